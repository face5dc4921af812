"""Which segments a load will recover: counted in one place, for progress before a run and for an estimate without one.

A forecast: the fold itself decides, and a cut may spare it the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from recovery.load.log_reader import LogReader
from recovery.load.model import Original, PartitionSource, PartitionTask
from recovery.load.segments import Segment, first_unflushed, log_base_offsets
from recovery.load.small_files import txn_index_problem
from recovery.load.stops import remedy_by_checking
from recovery.load.swaps import settle_leftovers
from recovery.load.tree import LINKS_TO_NOTHING, PartitionTree
from segfmt.filenames import log_name
from segfmt.java_text import LONG_MAX


class SegmentToRecover(NamedTuple):
    """A segment that a load recovers.

    Attributes:
        file: its `.log`, by its name before the load.
        is_unflushed: whether it is recovered in its turn, and so counted by Kafka's gauges.
        is_reindexed: whether it is recovered as soon as it is opened, since its offset index is missing or its
            transaction index wrong. Kafka recovers one that is both twice; here it is read once.
    """

    file: str
    base_offset: int
    size_bytes: int
    is_unflushed: bool
    is_reindexed: bool


def segments_recovered(task: PartitionTask) -> list[SegmentToRecover]:
    """Return what a load of *task* recovers, ascending, as far as names show it: nothing is read.

    Kafka: LogLoader.loadSegmentFiles, LogLoader.recoverLog.
    """
    files, others = task.files, task.others

    def exists(name: str) -> bool:
        return name in files or others.get(name, "dangling link") not in LINKS_TO_NOTHING

    return _find(task, files, exists, lambda log: Original(file=log, size_bytes=files[log].size_bytes))


def segments_recovered_by_reading(task: PartitionTask, source: PartitionSource) -> list[SegmentToRecover]:
    """Return the same after a look into transaction indexes, and into the `.swap` files of an interrupted cleaning.

    Raises:
        PartitionRefusedError: the broker would halt at one of these.
        FileNameError: a leftover has no offset in its name, which stops the broker.
        OSError: a file cannot be read, or is gone.
    """
    tree = PartitionTree(task.files, source, task.others)
    reader = LogReader(tree, source, partial(remedy_by_checking, task))
    settle_leftovers(tree, reader, segment_index_bytes=task.settings.segment_index_bytes)

    def is_txn_index_wrong(segment: Segment, is_unflushed: bool) -> bool:
        is_low_byte_read = task.release.halts_on_any_txn_version and not is_unflushed
        return txn_index_problem(tree, segment, is_low_byte_read=is_low_byte_read) is not None

    return _find(task, tree.names(), tree.exists, reader.part, is_txn_index_wrong)


def _find(
    task: PartitionTask,
    names: Iterable[str],
    exists: Callable[[str], bool],
    part_of: Callable[[str], Original],
    is_txn_index_wrong: Callable[[Segment, bool], bool] = lambda _segment, _is_unflushed: False,
) -> list[SegmentToRecover]:
    bases = {name: base for name, base in log_base_offsets(names).items() if name == log_name(base)}
    first = first_unflushed(bases.values(), task.recovery_point)
    found = []
    for log, base_offset in sorted(bases.items()):
        segment = Segment(base_offset=base_offset, opened_indexes=set())
        is_unflushed = task.recovers(base_offset, first) and task.recovery_point < LONG_MAX
        is_reindexed = not exists(segment.offset_index) or is_txn_index_wrong(segment, is_unflushed)
        if is_unflushed or is_reindexed:
            part = part_of(log)
            found.append(
                SegmentToRecover(part.file, base_offset, part.size_bytes, is_unflushed, is_reindexed)
            )
    return found
