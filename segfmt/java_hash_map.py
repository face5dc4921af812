"""The iteration order of Java's `HashMap<Long, V>`, which is the order of the entries in a producer snapshot.

The table starts with 16 buckets and doubles when it holds more than 3/4 as many keys. Buckets are walked in
order, the keys of one bucket in the order of their insertion, as long as no bucket of a table of 64 or more gets
a ninth key: then that bucket becomes a tree (`java_tree_bin`). Below 64 the ninth key doubles the table instead.

As long as there is no tree the order is a stable sort of a Python dict by bucket, so only the dict is kept.

`computeIfAbsent` yields other orders than `put`: it puts a new key at the front of its bucket, makes a tree at the
eighth key instead of the ninth, and doubles a table that is too full at the next call instead of at once.

Nothing is ever removed: a recovery that forgets producers begins with a new map.

Java: java.util.HashMap (putVal, computeIfAbsent, resize, treeifyBin, HashIterator).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from segfmt.java_tree_bin import TreeBin

INITIAL_CAPACITY = 16
MIN_TREEIFY_CAPACITY = 64
TREEIFY_THRESHOLD = 8
"""A bucket that gets more keys than this becomes a tree, or the table is doubled."""
UNTREEIFY_THRESHOLD = 6

_MASK_32 = 0xFFFFFFFF
_VECTOR_MIN_KEYS = 64

_V = TypeVar("_V")


def long_hash(key: int) -> int:
    """Return the spread hash of the Long *key*, 0 <= hash < 2**32. Java: Long.hashCode, HashMap.hash."""
    folded = (key ^ key >> 32) & _MASK_32  # the sign bits that >> shifts in are masked off
    return folded ^ folded >> 16


class JavaLongMap(Generic[_V]):
    """A map from int64 to anything, iterated in the order of a `HashMap<Long, V>` with the same history."""

    def __init__(self) -> None:
        self._values: dict[int, _V] = {}
        self._capacity = 0
        self._counts: dict[int, int] = {}
        self._bins: dict[int, list[int] | TreeBin] | None = None  # from the first tree on

    @property
    def capacity(self) -> int:
        """Number of buckets; 0 before the first key."""
        return self._capacity

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def __getitem__(self, key: int) -> _V:
        return self._values[key]

    def get(self, key: int) -> _V | None:
        """Return the value of *key*, None without one. Java: HashMap.get."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[int]:
        """Yield the keys in Java's order. The map must not change meanwhile."""
        return iter(self.keys())

    def __setitem__(self, key: int, value: _V) -> None:
        """Set the value of *key*, an int64; an existing key keeps its place. Java: HashMap.put."""
        is_new = key not in self._values
        self._values[key] = value
        if not is_new:
            return
        if self._capacity == 0:
            self._capacity = INITIAL_CAPACITY
        bucket = long_hash(key) & (self._capacity - 1)
        count = self._counts.get(bucket, 0) + 1
        self._counts[bucket] = count
        if self._bins is None:
            if count > TREEIFY_THRESHOLD:
                self._crowd(bucket)
        else:
            self._put_in_bins(self._bins, bucket, key)
        if len(self._values) * 4 > self._capacity * 3:
            self._double()

    def compute_if_absent(self, key: int, value: _V) -> None:
        """Set the value of *key*, an int64, if it is absent. Java: HashMap.computeIfAbsent."""
        if self._capacity == 0:
            self._capacity = INITIAL_CAPACITY
        elif len(self._values) * 4 > self._capacity * 3:  # whether the key is present or not
            self._double()
        if key in self._values:
            return
        bins = self._with_bins()
        self._values[key] = value
        bucket = long_hash(key) & (self._capacity - 1)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        keys = bins.setdefault(bucket, [])
        if isinstance(keys, TreeBin):
            keys.put(_order(key))
            return
        keys.insert(0, key)
        if len(keys) >= TREEIFY_THRESHOLD:
            self._crowd(bucket)

    def keys(self) -> list[int]:
        """Return the keys in Java's order of iteration."""
        if self._bins is not None:
            return [key for bucket in sorted(self._bins) for key in _bin_keys(self._bins[bucket])]
        keys = list(self._values)
        if len(keys) < _VECTOR_MIN_KEYS:
            mask = self._capacity - 1
            return sorted(keys, key=lambda key: long_hash(key) & mask)
        array = np.array(keys, dtype=np.int64)
        ordered: list[int] = array[_stable_order(_spread(array), self._capacity)].tolist()
        return ordered

    def items(self) -> list[tuple[int, _V]]:
        """Return (key, value) in Java's order of iteration."""
        return [(key, self._values[key]) for key in self.keys()]

    def values(self) -> list[_V]:
        """Return the values in Java's order of iteration."""
        return [self._values[key] for key in self.keys()]

    def _crowd(self, bucket: int) -> None:
        """Do what Java does when a bucket without a tree gets one key too many: a bigger table or a tree."""
        if self._capacity < MIN_TREEIFY_CAPACITY:
            self._double()
            return
        bins = self._with_bins()
        bins[bucket] = TreeBin([_order(key) for key in _bin_keys(bins[bucket])])

    def _with_bins(self) -> dict[int, list[int] | TreeBin]:
        """Return the buckets one by one; from now on they are kept in this form."""
        if self._bins is None:
            self._bins = {}
            for key in self._values:
                plain = self._bins.setdefault(long_hash(key) & (self._capacity - 1), [])
                assert isinstance(plain, list)
                plain.append(key)
        return self._bins

    def _put_in_bins(self, bins: dict[int, list[int] | TreeBin], bucket: int, key: int) -> None:
        keys = bins.setdefault(bucket, [])
        if isinstance(keys, TreeBin):
            keys.put(_order(key))
            return
        keys.append(key)
        if len(keys) > TREEIFY_THRESHOLD:
            self._crowd(bucket)

    def _double(self) -> None:
        bit = self._capacity
        self._capacity *= 2
        if self._bins is not None:
            self._split_bins(self._bins, bit)
        counts: dict[int, int] = {}
        mask = self._capacity - 1
        for key in self._values:
            bucket = long_hash(key) & mask
            counts[bucket] = counts.get(bucket, 0) + 1
        self._counts = counts

    def _split_bins(self, bins: dict[int, list[int] | TreeBin], bit: int) -> None:
        split: dict[int, list[int] | TreeBin] = {}
        for bucket, keys in bins.items():
            halves = _halves(keys, bit)
            for half, target in zip(halves, (bucket, bucket + bit), strict=True):
                if not half:
                    continue
                if isinstance(keys, list) or len(half) <= UNTREEIFY_THRESHOLD:
                    split[target] = half
                elif len(half) == len(halves[0]) + len(halves[1]):
                    split[target] = keys  # all on one side: the tree is kept as it is
                else:
                    split[target] = TreeBin([_order(key) for key in half])
        self._bins = split


def java_hash_map_order(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the indices of *keys* in the order in which a HashMap iterates after they were put one by one.

    Args:
        keys: int64, shape (n,), all different, in the order in which they were put into a new map. Not
            written.

    Returns:
        intp, shape (n,): `keys[result]` is the order of iteration.
    """
    capacity, bound = INITIAL_CAPACITY, INITIAL_CAPACITY * 3 // 4 + 1
    spread = _spread(keys)
    while not _has_crowd(spread[:bound], capacity):
        if len(keys) < bound:
            return _stable_order(spread, capacity)
        capacity, bound = capacity * 2, capacity * 2 * 3 // 4 + 1
    crowded: JavaLongMap[int] = JavaLongMap()
    for place, key in enumerate(keys.tolist()):
        crowded[key] = place
    return np.array(crowded.values(), dtype=np.intp)


def computed_hash_map_order(keys: npt.NDArray[np.int64], *, is_followed: bool) -> npt.NDArray[np.intp]:
    """Return the indices of *keys* in the order in which a HashMap iterates after `computeIfAbsent` of each in turn.

    Args:
        keys: int64, shape (n,), all different, in the order of their first calls. Not written.
        is_followed: whether `computeIfAbsent` was called again, for any key, after the first call of the last one.

    Returns:
        intp, shape (n,): `keys[result]` is the order of iteration.
    """
    capacity, bound = INITIAL_CAPACITY, INITIAL_CAPACITY * 3 // 4 + 1
    spread = _spread(keys)
    while not _has_crowd(spread[:bound], capacity, TREEIFY_THRESHOLD - 1):
        if len(keys) < bound or (len(keys) == bound and not is_followed):
            return np.ascontiguousarray(len(keys) - 1 - _stable_order(spread[::-1], capacity))
        capacity, bound = capacity * 2, capacity * 2 * 3 // 4 + 1
    computed: JavaLongMap[int] = JavaLongMap()
    for place, key in enumerate(keys.tolist()):
        computed.compute_if_absent(key, place)
    if is_followed:
        computed.compute_if_absent(int(keys[0]), 0)
    return np.array(computed.values(), dtype=np.intp)


def _spread(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    folded = (keys ^ keys >> 32) & _MASK_32
    return folded ^ folded >> 16


def _stable_order(spread: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.intp]:
    return (spread & (capacity - 1)).argsort(kind="stable")


def _has_crowd(spread: npt.NDArray[np.int64], capacity: int, most: int = TREEIFY_THRESHOLD) -> bool:
    return len(spread) > most and bool(np.bincount(spread & (capacity - 1)).max() > most)


def _order(key: int) -> tuple[int, int]:
    spread = long_hash(key)
    return (spread - 2**32 if spread >= 2**31 else spread), key


def _bin_keys(keys: list[int] | TreeBin) -> list[int]:
    return keys if isinstance(keys, list) else [key for _, key in keys]


def _halves(keys: list[int] | TreeBin, bit: int) -> tuple[list[int], list[int]]:
    low: list[int] = []
    high: list[int] = []
    for key in _bin_keys(keys):
        (high if long_hash(key) & bit else low).append(key)
    return low, high
