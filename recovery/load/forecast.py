"""Which segments a load will recover: counted here alone, for progress before a run and for an estimate without one.

A forecast: the fold itself decides, and a cut may spare it the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from recovery.errors import PartitionRefusedError
from recovery.load.log_reader import LogReader
from recovery.load.model import Original, PartitionSource, PartitionTask
from recovery.load.segments import Segment, first_unflushed, log_base_offsets
from recovery.load.small_files import txn_index_problem
from recovery.load.stops import remedy_by_checking
from recovery.load.swaps import settle_leftovers
from recovery.load.tree import LINKS_TO_NOTHING, PartitionTree
from segfmt.errors import FileNameError
from segfmt.filenames import FileKind, file_kind, read_offset
from segfmt.java_text import LONG_MAX


class SegmentToRecover(NamedTuple):
    """A segment that a load recovers.

    Attributes:
        file: its `.log`, by its name before the load; one that the load makes is empty.
        is_unflushed: whether it is recovered in its turn, and so counted by Kafka's gauges.
        is_reindexed: whether it is recovered as soon as it is opened, since its offset index is missing or its
            transaction index wrong. Kafka recovers one that is both twice; here it is read once.
    """

    file: str
    base_offset: int
    size_bytes: int
    is_unflushed: bool
    is_reindexed: bool


def unflushed_segments(task: PartitionTask) -> list[tuple[str, int, int]]:
    """Return (file, base offset, bytes) of the segments that a recovery will most likely read, ascending.

    For progress and for reading ahead. Empty for clean log dirs.

    Kafka: LogLoader.recoverLog, LogSegments.values(recoveryPoint, Long.MAX_VALUE).
    """
    logs: dict[int, str] = {}
    for name, base in sorted(log_base_offsets(task.files).items()):  # the name that Kafka gives comes first
        logs.setdefault(base, name)
    return [(logs[base], base, task.files[logs[base]].size_bytes) for base in _unflushed(task, logs)]


def unflushed_count(task: PartitionTask, source: PartitionSource) -> int:
    """Return how many unflushed segments there are once finished swaps have taken the place of segments.

    An interrupted cleaning or split leaves other segments than the names say, and only the ends of the `.swap` files
    tell which ones.
    """
    tree = PartitionTree(task.files, source, task.others)
    with suppress(OSError, PartitionRefusedError, FileNameError):  # the load meets it again
        _settle(task, tree, source)
    return len(unflushed_bases(task, tree.names()))


def unflushed_bases(task: PartitionTask, names: Iterable[str]) -> list[int]:
    """Return the base offsets of the unflushed segments among those that a load opens, ascending."""
    return _unflushed(task, _opened_bases(names))


def segments_recovered(task: PartitionTask) -> list[SegmentToRecover]:
    """Return what a load of *task* recovers, ascending, as far as names show it: nothing is read.

    Kafka: LogLoader.loadSegmentFiles, LogLoader.recoverLog.
    """
    files, others = task.files, task.others

    def exists(name: str) -> bool:
        return name in files or others.get(name, "dangling link") not in LINKS_TO_NOTHING

    def part_of(log: str) -> Original:
        return Original(file=log, size_bytes=files[log].size_bytes if log in files else 0)

    return _recovered(task, files, exists, part_of)


def segments_recovered_by_reading(task: PartitionTask, source: PartitionSource) -> list[SegmentToRecover]:
    """Return the same after a look into transaction indexes, and into the `.swap` files of an interrupted cleaning.

    Raises:
        PartitionRefusedError: the broker would halt at one of these.
        FileNameError: a leftover has no offset in its name, which stops the broker.
        OSError: a file cannot be read, or is gone.
    """
    tree = PartitionTree(task.files, source, task.others)
    reader = _settle(task, tree, source)

    def is_txn_index_wrong(segment: Segment, is_unflushed: bool) -> bool:
        is_low_byte_read = task.release.halts_on_any_txn_version and not is_unflushed
        return txn_index_problem(tree, segment, is_low_byte_read=is_low_byte_read) is not None

    return _recovered(task, tree.names(), tree.exists, reader.part, is_txn_index_wrong)


def _settle(task: PartitionTask, tree: PartitionTree, source: PartitionSource) -> LogReader:
    """Let the swaps in *tree* be finished, if there are any; return the reader of its logs."""
    reader = LogReader(tree, source, partial(remedy_by_checking, task))
    if any(file_kind(name) in (FileKind.SWAP, FileKind.CLEANED) for name in task.files):
        settle_leftovers(tree, reader, segment_index_bytes=task.settings.segment_index_bytes)
    return reader


def _recovered(
    task: PartitionTask,
    names: Iterable[str],
    exists: Callable[[str], bool],
    part_of: Callable[[str], Original],
    is_txn_index_wrong: Callable[[Segment, bool], bool] = lambda _segment, _is_unflushed: False,
) -> list[SegmentToRecover]:
    bases = _opened_bases(names)
    unflushed = set(_unflushed(task, bases))
    found = []
    for base_offset in sorted(bases):
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        is_unflushed = base_offset in unflushed
        is_reindexed = not exists(segment.offset_index) or is_txn_index_wrong(segment, is_unflushed)
        if is_unflushed or is_reindexed:
            part = part_of(segment.log)
            found.append(
                SegmentToRecover(part.file, base_offset, part.size_bytes, is_unflushed, is_reindexed)
            )
    return found


def _opened_bases(names: Iterable[str]) -> set[int]:
    """Return the base offsets of the segments that a load opens: of each `.log`, however its number is written.

    Kafka: LogLoader.loadSegmentFiles, LogFileUtils.offsetFromFile.
    """
    bases = set()
    for name in names:
        with suppress(FileNameError):  # which stops the broker
            if file_kind(name) is FileKind.LOG:
                bases.add(read_offset(name))
    return bases


def _unflushed(task: PartitionTask, base_offsets: Collection[int]) -> list[int]:
    """Return which of *base_offsets* are recovered in their turn, ascending."""
    if not task.is_recovered or task.recovery_point == LONG_MAX:
        return []
    first = first_unflushed(base_offsets, task.recovery_point)
    return sorted(base for base in base_offsets if first <= base < LONG_MAX)
