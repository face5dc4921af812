"""Into which log dir a new log goes, by the rules of a broker that creates one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

_MOST_IN_ORDER = 4
"""Scala's maps keep the order of insertion up to this size; larger ones are hash tries."""
_BITS, _MASK = 5, 31


def next_log_dirs(
    live: Sequence[str], log_counts: Mapping[str, int], cordoned: Collection[str]
) -> Sequence[str]:
    """Return the log dirs in which a broker would try to create a new log, the first one first.

    Args:
        live: absolute paths of those that are not offline, in the order of the settings.
        log_counts: current and future logs in each; a dir without a line has none.
        cordoned: those that get no new logs.

    Kafka: LogManager.nextLogDirs. Of dirs with equally many logs it takes the order of a Scala map.
    """
    if len(live) == 1:
        return live
    counts = dict.fromkeys(live, 0) | {path: count for path, count in log_counts.items() if count}
    open_dirs = [path for path in counts if path not in cordoned]
    if len(counts) > _MOST_IN_ORDER:  # the map that is filtered stays a trie, however few are left
        open_dirs = _in_trie_order({path: _improved(_java_hash(path)) for path in open_dirs}, 0)
    return sorted(open_dirs, key=lambda path: counts[path]) if open_dirs else live[:1]


def _in_trie_order(hashes: Mapping[str, int], shift: int) -> list[str]:
    """Return paths in the order of a trie's node: its own entries, then those of each node below it.

    Scala: BitmapIndexedMapNode, ChampBaseIterator.
    """
    slots: dict[int, dict[str, int]] = {}
    for path, value in hashes.items():
        slots.setdefault(value >> shift & _MASK, {})[path] = value
    alone = [path for slot in sorted(slots) if len(slots[slot]) == 1 for path in slots[slot]]
    shared = [slots[slot] for slot in sorted(slots) if len(slots[slot]) > 1]
    below = ([*one] if len(set(one.values())) == 1 else _in_trie_order(one, shift + _BITS) for one in shared)
    return [*alone, *(path for paths in below for path in paths)]


def _java_hash(text: str) -> int:
    """Java: String.hashCode, as an unsigned number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _improved(value: int) -> int:
    """Scala: scala.collection.Hashing.improve."""
    value = value + (~(value << 9) & 0xFFFFFFFF) & 0xFFFFFFFF
    value ^= value >> 14
    value = value + (value << 4) & 0xFFFFFFFF
    return value ^ value >> 10
