"""All that keeps a broker from loading one log, found before anything in its folder is touched.

A broker stops at the first reason, and at the next one when that is gone. Here they are reported together: those that
names, sizes and the small files show (`problems_of`), and those that the fold meets in what would be left without
them (`fold_checked`). A problem has a repair if moving files away is enough for a broker and loses no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.load.fold import fold
from recovery.load.forecast import unflushed_segments
from recovery.load.limits import MAX_LOG_BYTES, refuse_large_index, refuse_large_log
from recovery.load.model import Cut, Original, PartitionOutcome, PartitionSource, PartitionTask, ScanRequest
from recovery.load.segments import Segment, first_unflushed, misnamed_logs
from recovery.load.small_files import partition_metadata_text, read_epochs, read_topic_id, txn_index_problem
from recovery.load.stops import refusal_of_stop
from recovery.load.tree import LINKS_TO_NOTHING, PartitionTree
from recovery.problem import Problem, Repair
from segfmt.errors import FileNameError
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    read_offset,
)
from segfmt.java_text import LONG_MAX

_UNNUMBERED_KINDS = frozenset({FileKind.OTHER, FileKind.DELETED})
_ENDING_STOPS = frozenset({Stop.CONTROL_FATAL, Stop.INDEX_FULL, Stop.TIME_INDEX_FULL, Stop.INVALID_TXN})
"""Stops of a scan that stop a broker whichever segment they are in."""


def fold_checked(
    task: PartitionTask,
    source: PartitionSource,
    *,
    peek: Callable[[ScanRequest], RawScan] | None = None,
) -> PartitionOutcome:
    """Return what a broker leaves of *task*'s folder, as `fold` does.

    Args:
        peek: returns the scan of a segment after one that is refused; None for *source*'s own.

    Raises:
        PartitionRefusedError: with all the problems, in the order in which a broker would meet them.
    """
    problems = list(problems_of(task, source))
    rest = _without_problems(task, problems)
    outcome = None
    if rest is not None:
        try:
            outcome = fold(rest, source)
        except PartitionRefusedError as refusal:
            problems += [problem for problem in refusal.problems if problem not in problems]
            problems += _problems_after(rest, refusal, source.scan if peek is None else peek)
    if outcome is None or problems:
        raise PartitionRefusedError.of(
            problems if outcome is None else _without_cuts(task, problems, outcome)
        )
    notes = tuple(str(note) for note in notes_of(task))
    return replace(outcome, warnings=outcome.warnings + notes) if notes else outcome


def problems_of(task: PartitionTask, source: PartitionSource) -> tuple[Problem, ...]:
    """Return the problems that names, sizes and small files show, without reading a `.log`."""
    files = {name: stat for name, stat in task.files.items() if name not in task.unreadable}
    tree = PartitionTree(files, source)
    return (
        *task.problems,
        *_type_problems(task),
        *_caught(lambda: read_epochs(tree), LEADER_EPOCH_CHECKPOINT),
        *_name_problems(files),
        *_segment_problems(task, tree),
        *_caught(lambda: read_topic_id(tree, task.settings.topic_id)),
    )


def notes_of(task: PartitionTask) -> Iterator[Problem]:
    """Yield what does not keep a broker from loading the log, but will stop it later, or is passed over by it."""
    for name, right in misnamed_logs(task.files).items():
        is_there = right in task.files
        made = "" if is_there else f", and makes an empty {right}"
        first = "" if is_there else "take the recovery back with undo if it has been done, "
        yield Problem(
            file=name,
            rule="foreign-file",
            detail=f"no name that a broker gives: it never reads this file{made}",
            remedy=f"{first}move it out of the partition's folder; if it is the segment, call it {right}; then recover "
            "again",
        )
    if not task.others:
        return
    blocking = {problem.file for problem in _type_problems(task)}
    for name, kind in sorted(task.others.items()):
        if name == f"{LEADER_EPOCH_CHECKPOINT}.tmp":
            yield Problem(
                file=name,
                rule="file-type",
                detail=f"a {kind} where the broker writes its leader epochs (IOException takes the log dir "
                "offline at the first election of a leader)",
                remedy="move it out of the partition's folder",
                repair=Repair(names=(name,)),
            )
        elif name not in blocking and file_kind(name) not in _UNNUMBERED_KINDS:
            yield Problem(
                file=name,
                rule="file-type",
                detail=f"a {kind} with the name of a file of the log: a broker ignores it until it needs the name",
                remedy="move it out of the partition's folder",
                repair=None if kind in LINKS_TO_NOTHING else Repair(names=(name,)),
            )


def reads_segments(problems: Iterable[Problem]) -> bool:
    """Whether the repair of *problems* lets a segment be read for its indexes, and cut if it is damaged."""
    return any(_logs_read(problem) for problem in problems)


def without_files(task: PartitionTask, names: Iterable[str]) -> PartitionTask:
    """Return *task* as it would be without *names* in its folder."""
    gone = frozenset(names)
    return replace(
        task,
        files={name: stat for name, stat in task.files.items() if name not in gone},
        others={name: kind for name, kind in task.others.items() if name not in gone},
    )


# -- what the listing shows --------------------------------------------------------------------------------


def _type_problems(task: PartitionTask) -> Iterator[Problem]:
    """Yield what stands in place of files that the load opens.

    Kafka: CheckpointFile, PartitionMetadataFile, LazyIndex.
    """
    if not task.others:
        return
    kind = task.others.get(LEADER_EPOCH_CHECKPOINT)
    if kind is not None:
        yield Problem(
            file=LEADER_EPOCH_CHECKPOINT,
            rule="file-type",
            detail=f"a {kind}, which cannot be read (IOException takes the log dir offline)",
            remedy="move it away: the broker makes a new one from the segments that it recovers",
            repair=Repair(names=(LEADER_EPOCH_CHECKPOINT,)),
        )
    kind = task.others.get(PARTITION_METADATA)
    if kind is not None and kind not in LINKS_TO_NOTHING:  # to a broker, those do not exist
        yield Problem(
            file=PARTITION_METADATA,
            rule="file-type",
            detail=f"a {kind}, which cannot be read (IOException takes the log dir offline)",
            remedy=f"{partition_metadata_text(task.settings.topic_id)} into a file in its place, or copy it from "
            "another replica",
        )
    segments = list(_loaded_segments(task))
    unflushed = {file for file, _, _ in unflushed_segments(task)}
    for segment in segments:
        is_mapped = segment.log in unflushed or segment is segments[-1]  # the others are mapped when needed
        mapped = (segment.offset_index, segment.time_index) if is_mapped else ()
        for name in (*mapped, segment.txn_index):
            kind = task.others.get(name)
            if kind is not None and kind not in LINKS_TO_NOTHING:
                yield Problem(
                    file=name,
                    rule="file-type",
                    detail=f"a {kind} where an index must be (IOException takes the log dir offline)",
                    remedy="move it and the segment's .index away: both are rebuilt from the log",
                    repair=Repair(names=_present(task, segment.offset_index, name)),
                )


def _name_problems(files: Iterable[str]) -> Iterator[Problem]:
    """Yield the files without an offset in their name. Kafka: LogFileUtils.offsetFromFileName."""
    for name in sorted(files):
        if file_kind(name) in _UNNUMBERED_KINDS:
            continue
        try:
            read_offset(name)
        except FileNameError as error:
            yield Problem(
                file=name,
                rule="foreign-file",
                detail=f"{error} ({error.kafka} stops the broker)",
                remedy="move the file out of the partition's folder",
                repair=Repair(names=(name,)),
            )


def _segment_problems(task: PartitionTask, tree: PartitionTree) -> Iterator[Problem]:
    """Yield what single segments show. With `.swap` files present, only the fold knows which segments there will be."""
    if any(name.endswith(SWAP_SUFFIX) for name in task.files):
        return
    segments = list(_loaded_segments(task))
    first = first_unflushed((segment.base_offset for segment in segments), task.recovery_point)
    for segment in segments:
        yield from _caught(partial(refuse_large_log, segment.log, task.files[segment.log].size_bytes))
        if segment.offset_index in tree:
            is_rewritten = task.recovers(segment.base_offset, first)
            reads_low_byte = task.release.halts_on_any_txn_version and not is_rewritten
            check = partial(txn_index_problem, tree, segment, is_low_byte_read=reads_low_byte)
            yield from _caught(check, segment.offset_index, segment.txn_index)
    if segments:
        yield from _size_problems(task, tree, segments[-1])


def _size_problems(task: PartitionTask, tree: PartitionTree, active: Segment) -> Iterator[Problem]:
    """Yield the active indexes that cannot be mapped, in a log that is not recovered. Kafka: AbstractIndex.resize."""
    is_recovered = not task.had_clean_shutdown and task.recovery_point != LONG_MAX
    if is_recovered or task.is_delete_folder or active.offset_index not in tree:
        return
    if task.log_start_offset > active.base_offset or _asks_for_recovery(task, tree, active):
        return
    limit = task.settings.segment_index_bytes
    for name, entry_bytes in active.mapped_indexes:
        size = tree.size_bytes(name) if name in tree else 0
        yield from _caught(
            partial(refuse_large_index, name, size, entry_bytes, segment_index_bytes=limit),
            *_present(task, active.offset_index, name),
        )


def _asks_for_recovery(task: PartitionTask, tree: PartitionTree, active: Segment) -> bool:
    reads_low_byte = task.release.halts_on_any_txn_version
    try:
        return txn_index_problem(tree, active, is_low_byte_read=reads_low_byte) is not None
    except PartitionRefusedError:
        return False


def _loaded_segments(task: PartitionTask) -> Iterator[Segment]:
    """Yield the segments whose `.log` a load opens: those named as Kafka names them, ascending."""
    for name in sorted(task.files):
        if file_kind(name) is not FileKind.LOG or name in task.unreadable:
            continue
        try:
            base_offset = read_offset(name)
        except FileNameError:
            continue
        if name == log_name(base_offset):
            yield Segment(base_offset=base_offset, opened_indexes=set())


def _present(task: PartitionTask, *names: str) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name in task.files or name in task.others)


def _caught(check: Callable[[], object], *repaired_names: str) -> list[Problem]:
    """Return the problems for which *check* refuses the partition; moving *repaired_names* away repairs them."""
    try:
        check()
    except PartitionRefusedError as refusal:
        repair = Repair(names=repaired_names) if repaired_names else None
        return [replace(problem, repair=repair) for problem in refusal.problems]
    return []


# -- what is left --------------------------------------------------------------------------------------------


def _without_problems(task: PartitionTask, problems: list[Problem]) -> PartitionTask | None:
    """Return *task* without the files that are problems; None if the rest would be a different log."""
    gone = set(task.unreadable)
    for problem in problems:
        if problem.repair is not None:
            gone.update(problem.repair.names)
        elif problem.file == PARTITION_METADATA:
            gone.add(problem.file)
        elif problem.file in task.files and task.files[problem.file].size_bytes > MAX_LOG_BYTES:
            return None
    if any(file_kind(name) is not FileKind.OTHER for name in task.unreadable):
        return None
    return without_files(task, gone) if gone else task


def _without_cuts(task: PartitionTask, problems: list[Problem], outcome: PartitionOutcome) -> list[Problem]:
    """Return *problems* without the repairs by which a segment would be cut that is not read otherwise.

    Args:
        outcome: what is left of the log once all of them are repaired.
    """
    unflushed = {file for file, _, _ in unflushed_segments(task)}
    cuts = {cut.file: cut for cut in outcome.cuts if cut.file not in unflushed}
    return [_without_cut(problem, cuts) for problem in problems]


def _without_cut(problem: Problem, cuts: Mapping[str, Cut]) -> Problem:
    cut = next((cuts[log] for log in _logs_read(problem) if log in cuts), None)
    if cut is None:
        return problem
    remedy = (
        f"copy the partition from another replica. {cut.file} is damaged at byte {cut.position}: if its indexes are "
        f"moved away to be rebuilt, {cut.batch_count} batches are cut, as by a broker"
    )
    return replace(problem, remedy=remedy, repair=None)


def _logs_read(problem: Problem) -> list[str]:
    """Return the logs that are read to rebuild the indexes which a repair moves away."""
    logs = []
    for name in () if problem.repair is None else problem.repair.names:
        if file_kind(name) is FileKind.OFFSET_INDEX:
            with suppress(FileNameError):
                logs.append(log_name(read_offset(name)))
    return logs


def _problems_after(
    task: PartitionTask, refusal: PartitionRefusedError, peek: Callable[[ScanRequest], RawScan]
) -> list[Problem]:
    """Return what would stop a broker in the segments after the one that is refused, up to one that is cut."""
    unflushed = unflushed_segments(task)
    indexes = [index for index, (file, _, _) in enumerate(unflushed) if file == refusal.file]
    problems: list[Problem] = []
    for file, base_offset, size_bytes in unflushed[indexes[0] + 1 :] if indexes else ():
        if not size_bytes:
            continue
        scan = peek(ScanRequest(part=Original(file=file, size_bytes=size_bytes), base_offset=base_offset))
        if scan.stop in _ENDING_STOPS:
            problems += refusal_of_stop(file, base_offset, scan, while_loading=False).problems
        elif scan.valid_bytes < size_bytes:
            break
    return problems
