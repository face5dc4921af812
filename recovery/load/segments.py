"""One loaded segment of the log being folded, and the ordered map of them.

A segment answers what Kafka asks of a segment: where an offset lies, what comes after the last batch. A
recovered one answers from its scan; one that was not recovered answers, as in Kafka, from its index file and
a walk over the headers after the last indexed batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from native.raw_scan import PRODUCER_DTYPE, TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, RawScan
from recovery.errors import PartitionRefusedError
from recovery.load.model import FileStat
from recovery.load.tree import PartitionTree
from segfmt.byte_layout import OFFSET_INDEX_DTYPE, TIME_INDEX_DTYPE
from segfmt.errors import FileNameError
from segfmt.filenames import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    offset_index_name,
    read_offset,
    time_index_name,
    txn_index_name,
)
from segfmt.offset_index import view_offset_index

MAX_MAPPED_BYTES = 2**31 - 1
_NO_TABLES: Final[dict[str, Any]] = {
    "offset_index": np.empty((0, 2), np.int32),
    "time_index": np.empty(0, TIME_INDEX_ROW_DTYPE),
    "epochs": np.empty((0, 2), np.int64),
    "epoch_positions": np.empty(0, np.int64),
    "producers": np.empty(0, PRODUCER_DTYPE),
    "txn_events": np.empty(0, TXN_EVENT_DTYPE),
}


def log_base_offsets(names: Iterable[str]) -> dict[str, int]:
    """Return the base offset of each of *names* that is a number followed by `.log`."""
    stems = {name: name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
    return {name: int(stem) for name, stem in stems.items() if stem.isascii() and stem.isdigit()}


def misnamed_logs(names: Iterable[str]) -> dict[str, str]:
    """Return those of *names* that a broker takes for segments but never gives, as `40.log`: each with the right one.

    Kafka: LogLoader.loadSegmentFiles reads the offset, and opens the file with the name that it gives itself.
    """
    misnamed = {}
    for name in names:
        if name.endswith(LOG_SUFFIX):
            with suppress(FileNameError):
                right = log_name(read_offset(name))
                if right != name:
                    misnamed[name] = right
    return misnamed


def live_bases(files: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among *files*, ascending, as a broker reads them from names."""
    return sorted({read_offset(name) for name in files if file_kind(name) is FileKind.LOG})


def pending_bases(files: Mapping[str, FileStat]) -> list[int]:
    """Return the base offsets of segments with records that are pending deletion (`.deleted`), ascending."""
    pending = (name for name, stat in files.items() if stat.size_bytes and name.endswith(DELETED_SUFFIX))
    return sorted(log_base_offsets(name.removesuffix(DELETED_SUFFIX) for name in pending).values())


def first_unflushed(base_offsets: Iterable[int], recovery_point: int) -> int:
    """Return the base offset of the first segment that may hold what was not flushed; -1 where all begin after it.

    Kafka: LogSegments.values(recoveryPoint, Long.MAX_VALUE).
    """
    return max((base for base in base_offsets if base <= recovery_point), default=-1)


@dataclass(slots=True, kw_only=True, eq=False)
class Segment:
    """A segment in the map.

    Attributes:
        scan: the result of its recovery, without its tables; None until it is recovered.
        first_offset: base offset of its first batch according to that scan; None if it does not say (magic 0 and 1).
        is_split: whether it came out of a split in this load.
        opened_indexes: names of the index files that Kafka would have mapped; those are trimmed when the log
            is closed.
        appends_txns: whether its transaction index is not open yet: an existing file of that name is kept.
    """

    base_offset: int
    scan: RawScan | None = None
    first_offset: int | None = None
    opened_indexes: set[str]
    is_split: bool = False
    appends_txns: bool = False

    @property
    def log(self) -> str:
        """Name of its `.log`."""
        return log_name(self.base_offset)

    @property
    def offset_index(self) -> str:
        """Name of its `.index`."""
        return offset_index_name(self.base_offset)

    @property
    def time_index(self) -> str:
        """Name of its `.timeindex`."""
        return time_index_name(self.base_offset)

    @property
    def txn_index(self) -> str:
        """Name of its `.txnindex`."""
        return txn_index_name(self.base_offset)

    @property
    def mapped_indexes(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Name and entry size in bytes of the two index files that Kafka maps."""
        return (self.offset_index, OFFSET_INDEX_DTYPE.itemsize), (self.time_index, TIME_INDEX_DTYPE.itemsize)

    def check_mappable(self, tree: PartitionTree) -> None:
        """Refuse the partition if one of the two indexes is too long to be mapped."""
        for name, _ in self.mapped_indexes:
            self._check_mappable(tree, name)

    @staticmethod
    def _check_mappable(tree: PartitionTree, name: str) -> None:
        """Kafka: AbstractIndex constructor, which LazyIndex calls when an index is first asked for."""
        if name in tree and tree.size_bytes(name) > MAX_MAPPED_BYTES:
            raise PartitionRefusedError(
                file=name,
                position=MAX_MAPPED_BYTES,
                rule="index-size",
                detail=f"an index of more than {MAX_MAPPED_BYTES} bytes cannot be mapped "
                "(IllegalArgumentException stops the broker)",
                remedy="move the index away: it is rebuilt",
            )

    def index_entries(self, tree: PartitionTree) -> npt.NDArray[np.void]:
        """Return the entries of the offset index, OFFSET_INDEX_DTYPE, shape (n,). Opens it, in Kafka's sense."""
        self._check_mappable(tree, self.offset_index)
        self.opened_indexes.add(self.offset_index)
        return view_offset_index(tree.read(self.offset_index))


def first_offset_of(scan: RawScan) -> int | None:
    """Return the base offset of the first batch of *scan*; None if that batch has no leader epoch."""
    if not len(scan.epochs) or scan.epoch_positions[0]:
        return None
    return int(scan.epochs[0, 1])


def without_tables(scan: RawScan) -> RawScan:
    """Return *scan* with empty arrays: all that is needed of a segment once its indexes are made."""
    return scan._replace(**_NO_TABLES)


class SegmentMap:
    """The segments of a log by base offset, ascending.

    Kafka: LogSegments.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def base_offsets(self) -> list[int]:
        """All base offsets."""
        return list(self._bases)

    @property
    def first(self) -> Segment:
        """The first segment."""
        return self._segments[self._bases[0]]

    @property
    def last(self) -> Segment:
        """The active segment."""
        return self._segments[self._bases[-1]]

    def add(self, segment: Segment) -> None:
        """Add a segment; one with the same base offset is replaced."""
        if segment.base_offset not in self._segments:
            self._bases.insert(bisect_left(self._bases, segment.base_offset), segment.base_offset)
        self._segments[segment.base_offset] = segment

    def remove(self, segment: Segment) -> None:
        """Take a segment out."""
        del self._segments[segment.base_offset]
        self._bases.remove(segment.base_offset)

    def clear(self) -> None:
        """Take all segments out."""
        self._bases.clear()
        self._segments.clear()

    def floor(self, offset: int) -> Segment | None:
        """Return the segment with the largest base offset at or below *offset*."""
        index = bisect_right(self._bases, offset)
        return self._segments[self._bases[index - 1]] if index else None

    def values(self, start: int | None = None, end: int | None = None) -> list[Segment]:
        """Return the segments that may hold offsets in [start, end): from the floor of *start* on.

        Kafka: LogSegments.values(long, long): empty if *start* equals *end*.
        """
        if start is None or end is None:
            return [self._segments[base] for base in self._bases]
        if start == end:
            return []
        first = max(bisect_right(self._bases, start) - 1, 0)
        return [self._segments[base] for base in self._bases[first : bisect_left(self._bases, end)]]
