"""What lies in a log dir: the partitions' folders, the checkpoints, the marker, and what stops a broker.

Reads names, sizes, owners and checkpoints, but no segment.

Kafka: LogManager.loadLogs, up to the point where the jobs are submitted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from recovery.errors import AS_ROOT_DENIED, LogDirOfflineError, PartitionRefusedError
from recovery.load.forecast import unflushed_segments
from recovery.load.model import LogSettings, PartitionTask, TopicPartition
from recovery.load.release import Release
from recovery.logdir.checkpoints import (
    CHECKPOINT_FROM_BACKUP,
    WITHOUT_CHECKPOINT,
    Checkpoint,
    Offsets,
    is_line_of_log,
    read_checkpoint,
)
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.listing import (
    FolderContents,
    access_problem,
    fits_checkpoint,
    folder_problem,
    foreign_folder,
    is_log_name,
    is_of_type,
    look_into,
    mount_problems,
    no_folder,
    other_kind,
    owner_problems,
    unreadable,
    unwritable_folder,
)
from recovery.logdir.marker import marker_doubt
from recovery.logdir.remote_part import RemoteMetadata, RemotePart, has_deleted_segments
from recovery.logdir.user import broker_user, may_give_away
from recovery.problem import LOST_FOUND, Problem, Repair
from recovery.read.file_system import is_link, is_read_only, is_there, look_at, read_small
from segfmt.errors import FileNameError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_INDEX_CACHE_FOLDER,
    REPLICATION_OFFSET_CHECKPOINT,
    FolderState,
    PartitionFolder,
    read_folder_name,
)

_MOST_MARKER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFolder:
    """A folder that is left untouched, and why."""

    folder: str
    refusal: PartitionRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirInventory:
    """One log dir, as found.

    Attributes:
        tasks: one for each log that a broker would load, the largest amount of work first.
        refused: folders with which a broker would not start.
        passed_over: folders that a broker does not load (`__cluster_metadata-0`, the cache of remote
            indexes).
        left_out: folders of logs that were not chosen.
        recovery_points, log_start_offsets: the checkpoints' lines.
        problems: what makes a broker take the whole dir offline; nothing in it may be touched then.
        blockers: what makes it do so, or not start, though the logs can be recovered.
        notes: what was ignored or assumed.
        had_marker: whether the marker was there, be it ignored or not.
    """

    log_dir: str
    had_clean_shutdown: bool
    tasks: tuple[PartitionTask, ...]
    refused: tuple[RefusedFolder, ...]
    passed_over: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    recovery_points: Offsets = field(default_factory=dict)
    log_start_offsets: Offsets = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    blockers: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    had_marker: bool = False

    @property
    def log_count(self) -> int:
        """How many logs the dir holds, refused ones included."""
        return len(self.tasks) + len(self.refused)

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """The dir's own problems, and its folders' problems known without reading: refusals, owners, copies."""
        folder_problems = (
            *(problem for refused in self.refused for problem in refused.refusal.problems),
            *(_in_folder(task.folder, problem) for task in self.tasks for problem in task.problems),
        )
        return (*self.problems, *self.blockers, *folder_problems)

    def of(self, is_chosen: PartitionChoice) -> LogDirInventory:
        """Return this inventory with the chosen logs alone; a folder that is no log's is not chosen."""
        tasks = tuple(task for task in self.tasks if is_chosen(task.topic_partition))
        refused = tuple(one for one in self.refused if _is_chosen_folder(one.folder, is_chosen))
        kept = {task.folder for task in tasks} | {one.folder for one in refused}
        folders = (*(task.folder for task in self.tasks), *(one.folder for one in self.refused))
        left_out = tuple(sorted(folder for folder in folders if folder not in kept))
        return replace(self, tasks=tasks, refused=refused, left_out=left_out)


def _is_chosen_folder(folder: str, is_chosen: PartitionChoice) -> bool:
    try:
        return is_chosen(read_folder_name(folder))
    except FileNameError:
        return is_chosen.is_everything


def _in_folder(folder: str, problem: Problem) -> Problem:
    return problem if problem.file == folder else replace(problem, file=f"{folder}/{problem.file}")


def list_log_dir(
    log_dir: str,
    *,
    settings_of: Callable[[str], LogSettings],
    now_ms: int,
    producer_id_expiration_ms: int = 86_400_000,
    release: Release = Release.UNKNOWN,
    ignores_marker: bool = False,
    without: Collection[str] = (),
    remote_metadata: RemoteMetadata | None = None,
    may_vanish: bool = False,
    is_only_looked_at: bool = False,
) -> LogDirInventory:
    """Return what lies in *log_dir*.

    Args:
        log_dir: absolute path.
        settings_of: the settings of a topic's logs.
        now_ms: the clock of the recovery.
        release: of the broker that will load the logs.
        ignores_marker: recover as after an unclean shutdown, whatever the marker says.
        without: paths relative to *log_dir* that are treated as gone.
        remote_metadata: of all log dirs; None for that of this one.
        may_vanish: whether files and folders that vanish meanwhile are left out: a broker may be at work there.
        is_only_looked_at: whether nothing will be written, so that a read-only file system is only noted.

    Raises:
        LogDirOfflineError: the dir cannot be read.
    """
    try:
        metadata = remote_metadata or RemoteMetadata((log_dir,))
        listing = _Listing(
            log_dir,
            frozenset(without),
            metadata,
            may_vanish=may_vanish,
            is_only_looked_at=is_only_looked_at,
        )
        return listing.take(
            settings_of, now_ms, producer_id_expiration_ms, release, ignores_marker=ignores_marker
        )
    except OSError as error:
        raise LogDirOfflineError(log_dir, error) from error


class _Listing:
    """One look at a log dir."""

    def __init__(
        self,
        log_dir: str,
        without: frozenset[str],
        remote_metadata: RemoteMetadata,
        *,
        may_vanish: bool,
        is_only_looked_at: bool,
    ) -> None:
        self._log_dir = log_dir
        self._is_only_looked_at = is_only_looked_at
        self._may_vanish = may_vanish
        self._without = without
        self._remote_metadata = remote_metadata
        self._stat = os.stat(log_dir)
        self._user = broker_user(log_dir)
        self._gives_away = may_give_away()
        self._problems: list[Problem] = []
        self._blockers: list[Problem] = []
        self._notes: list[Problem] = []
        self._refused: list[RefusedFolder] = []
        self._passed_over: list[str] = []
        self._checkpoint_states: dict[str, str] = {}

    def _folder_names(self) -> list[str]:
        """Return the names of all folders; what only has the name of a log's is refused, or noted."""
        names = []
        with os.scandir(self._log_dir) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name in self._without | {CLEAN_SHUTDOWN_FILE}:
                    continue
                if is_of_type(entry, os.DirEntry.is_dir):
                    names.append(entry.name)
                elif is_log_name(entry.name):
                    problem = no_folder(entry.name, entry.path)
                    if entry.is_symlink():
                        self._refuse(entry.name, problem)
                    else:
                        self._notes.append(problem)
        return names

    def _look_at_rights(self) -> None:
        """Note what keeps this user, or anybody, from writing in the log dir."""
        is_frozen = is_read_only(self._log_dir)
        if is_frozen and self._is_only_looked_at:
            detail = "mounted read-only: looked at without a lock"
            remedy = "mount it read-write before a run that is to recover it"
            self._notes.append(Problem(file=self._log_dir, rule="read-only", detail=detail, remedy=remedy))
        else:
            self._problems += mount_problems(self._log_dir)
        if is_frozen:
            pass  # nobody may write there
        elif not os.access(self._log_dir, os.W_OK):
            detail = "the user that recover runs as may not write there: it could not carry out the plan"
            remedy = f"run it as {self._user.name}{', or as root' if self._user.uid and os.geteuid() else ''}"
            remedy = remedy if self._user.uid or os.geteuid() else AS_ROOT_DENIED
            self._notes.append(Problem(file=self._log_dir, rule="access", detail=detail, remedy=remedy))
        elif not self._gives_away:
            self._problems += owner_problems(self._log_dir, self._stat)
        for path, rights in (
            (self._log_dir, "rwx"),
            (os.path.join(self._log_dir, META_PROPERTIES), "r"),
        ):
            status = look_at(path)
            if status is not None and (lacking := self._user.lacks(status, rights)):
                name = path if path == self._log_dir else os.path.basename(path)
                self._problems.append(access_problem(name, path, status, lacking, self._user))

    def _look_into_metadata(self, name: str) -> None:
        """Note what the broker's user may not use of the metadata log, which is not touched here."""
        path = os.path.join(self._log_dir, name)
        try:
            problems = look_into(path, self._user, gives_away=True, may_vanish=True).problems
        except PermissionError as error:
            problems = [folder_problem(name, path, error, self._user)]
        self._problems += (_in_folder(name, problem) for problem in problems if problem.rule == "access")

    def take(
        self,
        settings_of: Callable[[str], LogSettings],
        now_ms: int,
        producer_id_expiration_ms: int,
        release: Release,
        *,
        ignores_marker: bool,
    ) -> LogDirInventory:
        names = self._folder_names()
        had_marker = self._has_marker()
        had_clean_shutdown = had_marker and not ignores_marker
        if had_clean_shutdown:
            self._note_doubtful_marker()
        self._look_at_rights()
        recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_start_offsets = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._checkpoint(REPLICATION_OFFSET_CHECKPOINT, self._blockers)
        marks = look_at(os.path.join(self._log_dir, REPLICATION_OFFSET_CHECKPOINT))
        marked_ns = 0 if marks is None else marks.st_mtime_ns
        cleaned_offsets = self._checkpoint(CLEANER_OFFSET_CHECKPOINT, self._blockers)
        self._blockers += self._blocked_writes()
        tasks = []
        for name in names:
            folder = self._folder(name)
            contents = None if folder is None else self._look_into(name)
            if folder is None or contents is None:
                continue
            key = (folder.topic, folder.partition)
            settings = settings_of(folder.topic)
            high_watermark, is_own = high_watermarks.get(key, 0), is_line_of_log(contents.files, marked_ns)
            is_doubtful = not settings.remote_log_known or bool(settings.remote_log_prevented_by)
            if folder.state is FolderState.CURRENT and is_doubtful:
                self._look_for_remote_part(name, folder.topic, contents, log_start_offsets.get(key), settings)
            tasks.append(
                PartitionTask(
                    log_dir=self._log_dir,
                    folder=name,
                    topic_partition=TopicPartition(topic=folder.topic, partition=folder.partition),
                    files=contents.files,
                    had_clean_shutdown=had_clean_shutdown,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_start_offsets.get(key, 0),
                    high_watermark=high_watermark if is_own else 0,
                    doubtful_high_watermark=0 if is_own else high_watermark,
                    cleaned_offset=cleaned_offsets.get(key, 0),
                    settings=settings,
                    now_ms=now_ms,
                    producer_id_expiration_ms=producer_id_expiration_ms,
                    release=release,
                    others=contents.others,
                    problems=tuple(contents.problems),
                    unreadable=frozenset(contents.unreadable),
                )
            )
        self._note_empty_checkpoints(tasks)
        tasks.sort(key=lambda task: -sum(size for _, _, size in unflushed_segments(task)))
        return LogDirInventory(
            log_dir=self._log_dir,
            had_clean_shutdown=had_clean_shutdown,
            tasks=tuple(tasks),
            refused=tuple(self._refused),
            passed_over=tuple(self._passed_over),
            recovery_points=recovery_points,
            log_start_offsets=log_start_offsets,
            problems=tuple(self._problems),
            blockers=tuple(self._blockers),
            notes=tuple(self._notes),
            had_marker=had_marker,
        )

    def _has_marker(self) -> bool:
        """Return whether the dir has a marker; anything else of that name is one of the dir's problems.

        Differs: a broker takes anything of this name for a marker, deletes it if it can (not a folder with something in
        it), and writes the next one through a dangling link.

        Kafka: CleanShutdownFileHandler.exists, delete, write.
        """
        path = os.path.join(self._log_dir, CLEAN_SHUTDOWN_FILE)
        if CLEAN_SHUTDOWN_FILE in self._without or not is_there(path):
            return False
        kind = other_kind(path)
        leads_away = is_link(path)
        if leads_away or kind is not None:
            what = "a link" if leads_away else f"a {kind} where a file is needed"
            self._problems.append(
                Problem(
                    file=CLEAN_SHUTDOWN_FILE,
                    rule="marker",
                    detail=f"{what}: a broker takes it for its clean-shutdown marker, and writes the next one there",
                    remedy="move it away: the log dir is then recovered as after an unclean shutdown",
                    repair=None if leads_away else Repair(names=(CLEAN_SHUTDOWN_FILE,)),
                )
            )
        return True

    def _note_doubtful_marker(self) -> None:
        try:
            doubt = marker_doubt(
                read_small(os.path.join(self._log_dir, CLEAN_SHUTDOWN_FILE), _MOST_MARKER_BYTES)
            )
        except OSError:  # one that cannot be read is a marker all the same
            return
        if doubt is not None:
            self._notes.append(
                Problem(
                    file=CLEAN_SHUTDOWN_FILE,
                    rule="marker",
                    detail=f"{doubt}, but takes it for its marker",
                    remedy="if the last shutdown is in doubt, run recover --force, which ignores it",
                )
            )

    def _blocked_writes(self) -> Iterator[Problem]:
        """Yield what obstructs a checkpoint that a broker writes. Kafka: CheckpointFile.write."""
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            temporary = f"{name}.tmp"
            path = os.path.join(self._log_dir, temporary)
            if temporary not in self._without and is_there(path) and (kind := other_kind(path)) is not None:
                waits = "its thread waits there for ever"
                effect = waits if kind == "pipe" else "IOException takes the log dir offline"
                yield Problem(
                    file=temporary,
                    rule="file-type",
                    detail=f"a {kind} where a broker writes its checkpoints ({effect})",
                    remedy="move it away",
                    repair=Repair(names=(temporary,)),
                )

    def _folder(self, name: str) -> PartitionFolder | None:
        """Return what the folder *name* is to a broker that loads it, None if it does not or cannot."""
        try:
            folder = read_folder_name(name)
        except FileNameError as error:
            if name == REMOTE_INDEX_CACHE_FOLDER:
                self._passed_over.append(name)
            else:
                self._refuse(name, foreign_folder(name, error, self._may_move(name)))
            return None
        if folder.topic == CLUSTER_METADATA_TOPIC:
            self._look_into_metadata(name)
            self._passed_over.append(name)
            return None
        if not fits_checkpoint(folder.topic):
            self._refuse(name, unwritable_folder(name, self._may_move(name)))
            return None
        return folder

    def _may_move(self, name: str) -> bool:
        """Whether the folder *name* may be moved away: not one of root's, unless the dir is root's.

        Root's `lost+found` belongs to the file system, whoever owns the dir.
        """
        owner = os.lstat(os.path.join(self._log_dir, name)).st_uid
        return owner != 0 or (self._stat.st_uid == 0 and name != LOST_FOUND)

    def _refuse(self, name: str, problem: Problem) -> None:
        self._refused.append(RefusedFolder(folder=name, refusal=PartitionRefusedError.of([problem])))

    def _look_into(self, name: str) -> FolderContents | None:
        path = os.path.join(self._log_dir, name)
        try:
            contents = look_into(path, self._user, gives_away=self._gives_away, may_vanish=self._may_vanish)
        except FileNotFoundError:
            if not self._may_vanish:
                raise
            return None
        except PermissionError as error:
            self._refuse(name, folder_problem(name, path, error, self._user))
            return None
        for gone in self._without:
            folder, _, file = gone.partition("/")
            if folder == name:
                contents.drop(file)
        return contents

    def _look_for_remote_part(
        self,
        name: str,
        topic: str,
        contents: FolderContents,
        log_start_offset: int | None,
        settings: LogSettings,
    ) -> None:
        """Note signs of a remote part of a log, if no setting says whether it has one, or if two settings differ."""
        part = RemotePart(
            os.path.join(self._log_dir, name),
            topic,
            contents.files,
            log_start_offset,
            has_checkpoint=self._checkpoint_states[LOG_START_OFFSET_CHECKPOINT] in ("read", "empty"),
            settings=settings,
            metadata=self._remote_metadata,
        )
        if settings.remote_log_known:
            note = part.loss()
        elif (problem := part.problem()) is not None:
            contents.problems.append(problem)
            return
        else:
            note = part.note()
        if note is not None:
            self._notes.append(note)

    def _checkpoint(self, name: str, target: list[Problem] | None = None) -> Offsets:
        """Return the lines of a checkpoint; problems with it are added to *target*, or to the dir's problems."""
        found = (
            Checkpoint(state="absent")
            if name in self._without
            else read_checkpoint(self._log_dir, name, self._user)
        )
        problems = self._problems if target is None else target
        problems += found.problems
        if found.denial is not None:
            problems.append(unreadable(name, found.denial))
        self._notes += found.notes
        self._checkpoint_states[name] = found.state
        return found.offsets

    def _note_empty_checkpoints(self, tasks: Collection[PartitionTask]) -> None:
        """Note checkpoints that are missing, or empty although the logs are not new.

        Kafka: CheckpointFile.<init> creates them, empty, when a broker starts.
        """
        pair = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
        states = {name: self._checkpoint_states[name] for name in pair}
        absent = {name for name in pair if states[name] == "absent"}
        empty = {name for name in pair if states[name] == "empty"}
        is_old = "read" in states.values() or any(
            task.had_clean_shutdown or has_deleted_segments(task.files) for task in tasks
        )
        for name in sorted(empty | absent) if tasks else ():
            if name in absent or is_old:
                gone = "moved to quarantine" if name in self._without else "missing"
                why = gone if name in absent else "empty, as a loss of power may leave it"
                detail = f"{why}, and the logs are not new: {WITHOUT_CHECKPOINT[name]}"
                self._notes.append(
                    Problem(file=name, rule="checkpoint", detail=detail, remedy=CHECKPOINT_FROM_BACKUP)
                )
