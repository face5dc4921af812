"""Each log dir: which segments a restart would recover, by names, checkpoints and small files alone.

Nothing is locked or written, so a broker may be at work there: what vanishes meanwhile is left out, and what grows
counts as it is when it is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from recovery.errors import LogDirOfflineError, PartitionRefusedError, error_text
from recovery.load.forecast import SegmentToRecover, segments_recovered, segments_recovered_by_reading
from recovery.load.model import LogSettings, PartitionTask
from recovery.load.preflight import problems_of
from recovery.load.release import Release
from recovery.logdir.duplicates import refuse_duplicates
from recovery.logdir.inventory import LogDirInventory, list_log_dir
from recovery.logdir.listing import is_of_log
from recovery.logdir.lock import is_locked
from recovery.problem import Problem
from recovery.read.file_system import is_folder, open_file
from recovery.read.partition_files import PartitionFiles
from recovery.watch.tally import Tally
from segfmt.errors import FormatError
from segfmt.filenames import FileKind, file_kind

_TELLING_KINDS = frozenset({FileKind.TXN_INDEX, FileKind.SWAP, FileKind.CLEANED})
"""Files in which it stands, and not in names alone, what a load recovers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToRecover:
    """A log of which a restart would recover something.

    Attributes:
        folder: its path.
        topic: its topic's name.
        segments: ascending.
    """

    folder: str
    topic: str
    segments: tuple[SegmentToRecover, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments, each counted once."""
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirSurvey:
    """What a restart would find in a log dir.

    Attributes:
        is_live: whether a broker, or a recovery, holds its lock.
        log_count: the logs that a broker would load, those with nothing to recover included.
        file_count: their files.
        logs: those with something to recover.
        problems: what would keep a broker from starting, or take the dir offline, as far as names show it.
        notes: what was assumed.
        error: why it could not be listed, or not all of it; None if it could.
    """

    log_dir: str
    is_live: bool = False
    had_clean_shutdown: bool = False
    log_count: int = 0
    file_count: int = 0
    logs: tuple[LogToRecover, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None


def survey_log_dirs(
    log_dirs: Sequence[str],
    *,
    settings_of: Callable[[str], LogSettings],
    release: Release,
    now_ms: int,
    known_problems: Mapping[str, tuple[Problem, ...]],
    tally: Tally | None = None,
) -> list[LogDirSurvey]:
    """Return what a restart would find in each of *log_dirs*, as if the broker there, if one runs, had died now.

    Args:
        log_dirs: absolute paths.
        settings_of: the settings of a topic's logs.
        release: of the broker that would start.
        now_ms: the clock.
        known_problems: found before, by log dir.
        tally: counts the logs.

    Kafka: LogManager.loadLogs.
    """
    is_live: dict[str, bool] = {}
    errors: dict[str, str] = {}
    inventories: dict[str, LogDirInventory] = {}
    for log_dir in log_dirs:
        try:
            is_live[log_dir] = is_locked(log_dir)
        except OSError as error:
            errors[log_dir] = f"{error_text(error)}: whether a broker runs is not known"
        try:
            inventories[log_dir] = list_log_dir(
                log_dir, settings_of=settings_of, now_ms=now_ms, release=release, may_vanish=True
            )
        except LogDirOfflineError as error:
            errors[log_dir] = error_text(error.error)
    # A broker that runs has none, but for a moment, while it moves a log between its dirs.
    if not any(is_live.values()):
        inventories = {one.log_dir: one for one in refuse_duplicates(inventories.values())}
    tally = tally or Tally()
    tally.expect(sum(len(inventory.tasks) for inventory in inventories.values()))
    return [
        _survey(
            inventories[log_dir],
            is_live=is_live.get(log_dir, False),
            known_problems=known_problems.get(log_dir, ()),
            lock_error=errors.get(log_dir),
            tally=tally,
        )
        if log_dir in inventories
        else LogDirSurvey(log_dir=log_dir, is_live=is_live.get(log_dir, False), error=errors[log_dir])
        for log_dir in log_dirs
    ]


def _survey(
    inventory: LogDirInventory,
    *,
    is_live: bool,
    known_problems: Iterable[Problem],
    lock_error: str | None,
    tally: Tally,
) -> LogDirSurvey:
    logs, tasks = [], []
    for task in inventory.tasks:
        segments, problems = _look_into(task)
        tasks.append(replace(task, problems=tuple(problems)))
        if segments:
            folder = os.path.join(inventory.log_dir, task.folder)
            logs.append(LogToRecover(folder=folder, topic=task.topic_partition.topic, segments=segments))
        tally.add()
    return LogDirSurvey(
        log_dir=inventory.log_dir,
        is_live=is_live,
        had_clean_shutdown=inventory.had_clean_shutdown,
        log_count=len(inventory.tasks) + sum(is_of_log(refused.folder) for refused in inventory.refused),
        file_count=sum(len(task.files) for task in inventory.tasks),
        logs=tuple(logs),
        problems=(*known_problems, *replace(inventory, tasks=tuple(tasks)).all_problems),
        notes=tuple(map(str, inventory.notes)),
        error=_unlisted(inventory) or lock_error,
    )


def _unlisted(inventory: LogDirInventory) -> str | None:
    """Return which folders of logs could not be listed by this user, None if all could."""
    folders = [
        refused
        for refused in inventory.refused
        if is_folder(path := os.path.join(inventory.log_dir, refused.folder))
        and not os.access(path, os.R_OK | os.X_OK)
    ]
    if not folders:
        return None
    others = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    first = folders[0].refusal.problems[0]
    return f"{first.file}{others}: {first.detail}. Remedy: {first.remedy}"


def _look_into(task: PartitionTask) -> tuple[tuple[SegmentToRecover, ...], list[Problem]]:
    """Return what a load of *task* recovers, and what keeps a broker from loading it, without reading a `.log`."""
    files = PartitionFiles(os.path.join(task.log_dir, task.folder), task.settings)
    segments, problems = segments_recovered(task), list(task.problems)
    try:
        with suppress(OSError):  # gone meanwhile
            problems = list(problems_of(task, files))
        if any(file_kind(name) in _TELLING_KINDS for name in task.files):
            segments = segments_recovered_by_reading(task, files)
    except PartitionRefusedError as refusal:
        known = {problem.file for problem in problems}
        problems += [problem for problem in refusal.problems if problem.file not in known]
    except (OSError, FormatError):
        pass  # gone, or changed meanwhile: the names have to do
    finally:
        files.close()
    if task.settings.preallocate and segments:
        segments[-1] = _without_hole(task, segments[-1])
    return tuple(segments), problems


def _without_hole(task: PartitionTask, segment: SegmentToRecover) -> SegmentToRecover:
    """Return a preallocated segment with the size of what was written to it: the rest is a hole, which reads as zeros.

    Kafka: FileRecords.openChannel, LogSegment.recover, which ends at the first zeros.
    """
    with suppress(OSError):
        descriptor = open_file(os.path.join(task.log_dir, task.folder, segment.file))
        try:
            return segment._replace(size_bytes=min(segment.size_bytes, os.lseek(descriptor, 0, os.SEEK_HOLE)))
        finally:
            os.close(descriptor)
    return segment
