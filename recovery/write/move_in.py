"""Finished folders of partitions are moved into a log dir, with their lines in its checkpoints.

They were made in a folder of that log dir that brokers pass over (`STAGE_FOLDER`), so each appears whole, by one
rename. Before the first step the intent is written there; whoever finds it carries it out:

1. What the checkpoints say of the partitions leaves them, after their present files are saved.
2. An empty folder that a partition replaces goes into quarantine.
3. The folders are renamed, one by one.
4. Their lines enter the checkpoints; in a log dir without other logs the log starts get theirs even if it stays empty.
5. The account is entered in the manifest, for `undo`, and the intent is removed.

A kill leaves a log dir that a broker can start on. In no state is there a line of a log beside another log: a broker
deletes all records of one that ends below its line in `log-start-offset-checkpoint`. A log without lines it recovers
from its first segment. What a broker has made or written to since is left as it is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from recovery.errors import JournalError, UnsafeError
from recovery.load.model import FileStat
from recovery.logdir.listing import file_stat, list_files
from recovery.logdir.quarantine_place import given_place, quarantine_root
from recovery.plan.actions import LOG_DIR_ITSELF, TEMPORARY_SUFFIX, PartitionPlan, SaveFile, WriteFile
from recovery.plan.commit import Commit, plain_name, read_state
from recovery.plan.undo_plan import read_account
from recovery.read.file_system import is_file, is_folder, is_link, is_there, keeps_inodes, look_at, read_small
from recovery.write.apply import apply_partition, publish, remove_uncommitted, unstage
from recovery.write.durable import sync, sync_below, write_new
from recovery.write.quarantine import MOST_MANIFEST_BYTES, Quarantine, manifest_entries
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.errors import FileNameError
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    SWAP_SUFFIX,
    read_folder_name,
)

STAGE_FOLDER = "__cluster_metadata-0.restore-stray"
"""A broker ignores it: LogManager.loadLogs skips every folder whose topic parses as __cluster_metadata."""
RECORD_SUFFIXES = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)
"""Of files that have the records of a log, also if its broker was killed at the end of a compaction."""
FINISH_RESTORE = "start archive restore again, which finishes it; then undo can take it back"
_INTENT = "intent.json"
_INTENT_VERSION = 2
CHANGED_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
"""Those that get the lines of partitions that are moved in."""


class OpenQuarantine(Protocol):
    """Opens quarantine of the log dir."""

    def __call__(
        self, run: str | None, quarantine_dir: str | None, on_created: Callable[[str], None]
    ) -> Quarantine:
        """Open that of *run*, in *quarantine_dir* or at its default place; without a run, where a new one is to be.

        Args:
            run: name of the folder of an interrupted run.
            quarantine_dir: where that is; of no account without a run.
            on_created: is told the name of a new run's folder.
        """
        ...


Lines = dict[tuple[str, int], int]
LineChange = Callable[[str, Lines], Lines]
"""From the name of a checkpoint and its lines to those that it is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedIn:
    """A partition that is moved in, with its lines in the checkpoints.

    Attributes:
        folder: its name, in the stage and in the log dir.
        log_start_offset: None if it has no line: its log begins with its first segment.
        log_end_offset: its recovery point, and its high watermark.
    """

    folder: str
    log_start_offset: int | None
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedMove:
    """What an intent has led to.

    Attributes:
        folders: that were moved in, and are those that were made.
        run: the run's folder in quarantine.
    """

    folders: Sequence[str]
    run: str | None


def staged_log_dir(log_dir: str) -> str:
    """Return the folder in which partitions are made before they are moved into *log_dir*."""
    return os.path.join(log_dir, STAGE_FOLDER, "log-dir")


def has_intent(log_dir: str) -> bool:
    """Return whether partitions were being moved into *log_dir* when a run was killed."""
    return is_there(os.path.join(log_dir, STAGE_FOLDER, _INTENT))


def refuse_unfinished_restore(log_dir: str) -> None:
    """Raise UnsafeError if partitions were being moved into *log_dir* when a run was killed."""
    if has_intent(log_dir):
        raise UnsafeError(
            f"{log_dir}: a restore was interrupted while it moved partitions into it. Nothing was changed. "
            f"Remedy: {FINISH_RESTORE}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    """What is being moved into a log dir.

    Attributes:
        files: in the folder of each partition, as they were made; a broker may have written to them since.
        run: name of the run's folder in quarantine, None as long as it has none.
        quarantine_dir: where that is, if it was given: the next run need not be given the same.
        commit: the last one on the log dir's checkpoints.
    """

    partitions: Sequence[MovedIn]
    files: Mapping[str, Mapping[str, FileStat]]
    run: str | None = None
    quarantine_dir: str | None = None
    commit: Commit | None = None


def folders_in_place(log_dir: str) -> list[str]:
    """Return the folders of the intent in the stage of *log_dir* that are moved in already."""
    intent = _read_intent(log_dir)
    return [one.folder for one in intent.partitions if _is_moved(log_dir, intent, one.folder)]


def folders_to_move(log_dir: str) -> list[str]:
    """Return the folders of the intent in the stage of *log_dir* that are not moved in yet."""
    staged = staged_log_dir(log_dir)
    return [
        one.folder for one in _read_intent(log_dir).partitions if is_folder(os.path.join(staged, one.folder))
    ]


def altered_folders(log_dir: str) -> list[str]:
    """Return the folders in the stage of *log_dir* that are to be moved in, and are not as they were made."""
    files, staged = _read_intent(log_dir).files, staged_log_dir(log_dir)
    return [
        folder
        for folder in folders_to_move(log_dir)
        if _contents(list_files(os.path.join(staged, folder))) != _contents(files[folder])
    ]


def _contents(files: Mapping[str, FileStat]) -> Mapping[str, tuple[int, int]]:
    """Return what tells whether files are those that were made, also in a copy of their log dir."""
    return {name: (stat.size_bytes, stat.mtime_ns) for name, stat in files.items()}


def lost_run(log_dir: str) -> str | None:
    """Return the run's folder in quarantine that the intent names if it is not there any more, None if it is.

    It was removed, or lies beside the path that the log dir had before.

    Raises:
        OSError: it cannot be determined.
    """
    intent = _read_intent(log_dir)
    if intent.run is None:
        return None
    path = os.path.join(quarantine_root(log_dir, intent.quarantine_dir), intent.run)
    return None if is_folder(path) else path


def move_in(
    log_dir: str,
    partitions: Sequence[MovedIn],
    open_quarantine: OpenQuarantine,
) -> str | None:
    """Move *partitions* from the stage into *log_dir*; all in the stage must be on disk.

    Returns:
        The run's folder in quarantine.

    Raises:
        UnsafeError: a folder with records is in the way; nothing was changed.
        OSError: the next run finishes it.
    """
    staged = staged_log_dir(log_dir)
    files = {one.folder: list_files(os.path.join(staged, one.folder)) for one in partitions}
    _write_intent(log_dir, _Intent(partitions=partitions, files=files))
    return finish_move_in(log_dir, open_quarantine).run


def finish_move_in(
    log_dir: str, open_quarantine: OpenQuarantine, given_up: Collection[str] = ()
) -> FinishedMove:
    """Do what is left of the intent in the stage of *log_dir*.

    Args:
        given_up: folders in the stage that are not moved in any more.

    Raises:
        UnsafeError: a folder with records is in the way; nothing was changed.
        OSError: the next run finishes it.
    """
    intent = _read_intent(log_dir)
    if given_up:
        # What has neither a folder in the stage nor a place in the intent is nobody's but the broker's
        kept = [one for one in intent.partitions if one.folder not in given_up]
        _write_intent(log_dir, replace(intent, partitions=kept))
        intent = _read_intent(log_dir)
        for folder in given_up:
            shutil.rmtree(os.path.join(staged_log_dir(log_dir), folder))
    return _Move(log_dir, intent, open_quarantine).finish()


class _Move:
    """Carries out an intent."""

    def __init__(self, log_dir: str, intent: _Intent, open_quarantine: OpenQuarantine) -> None:
        self._log_dir = log_dir
        self._staged = staged_log_dir(log_dir)
        self._intent = intent
        self._open_quarantine = open_quarantine
        self._saved: Mapping[str, str] = {}

    def finish(self) -> FinishedMove:
        left = [one for one in self._intent.partitions if is_folder(os.path.join(self._staged, one.folder))]
        for one in left:
            self._refuse_records(one.folder)
        quarantine = self._resumed_quarantine(left)
        self._change_checkpoints(_without_lines(left), quarantine)
        for one in left:
            self._make_room(one.folder, quarantine)
        for one in left:
            os.rename(os.path.join(self._staged, one.folder), os.path.join(self._log_dir, one.folder))
        if is_folder(self._staged):  # it may be gone once all was moved in
            sync(self._staged)
        sync(self._log_dir)
        moved = [one for one in self._intent.partitions if self._is_moved(one.folder)]
        self._change_checkpoints(_with_lines(moved), quarantine, made=self._made_without_lines(moved))
        for one in moved:
            _note(one.folder, self._intent.files[one.folder], quarantine)
        quarantine.sync()
        _forget_intent(self._log_dir)
        return FinishedMove(folders=tuple(one.folder for one in moved), run=quarantine.run_folder)

    def _resumed_quarantine(self, left: Collection[MovedIn]) -> Quarantine:
        """Return the run of the intent, whose last commit is carried out, or a new one if a broker was at work since.

        A run's account must be about what that run has left, else `undo` would take back what the broker did.
        """
        quarantine = self._open(self._intent)
        if self._goes_on(quarantine, left):
            return quarantine
        unstage(self._log_dir)
        self._saved = {}
        return self._open(replace(self._intent, run=None))

    def _goes_on(self, quarantine: Quarantine, left: Collection[MovedIn]) -> bool:
        """Carry out the last commit, and return whether the log dir is as the interrupted run has left it."""
        commit, run = self._intent.commit, quarantine.run_folder
        moved = set(self._intent.partitions).difference(left)
        if lost_run(self._log_dir) is not None or not all(self._is_moved(one.folder) for one in moved):
            return False
        if commit is not None:
            remove_uncommitted(self._log_dir, commit)
            if commit.explain(_files_of(self._log_dir), by_inode=keeps_inodes(self._log_dir)) is not None:
                return False
            quarantine.note_change(commit, publish(self._log_dir, commit))
        if run is None:
            return True
        self._saved = _saved_since_a_change(run)
        is_same = all(
            _is_as_saved(os.path.join(self._log_dir, name), path) for name, path in self._saved.items()
        )
        moved_away = os.path.join(run, LOG_DIR_ITSELF)
        return is_same and not any(
            is_there(os.path.join(moved_away, one.folder))
            and is_there(os.path.join(self._log_dir, one.folder))
            for one in left
        )

    def _open(self, intent: _Intent) -> Quarantine:
        def enter(name: str) -> None:
            place = given_place(self._log_dir, os.path.join(opened.root, name))
            self._enter(replace(self._intent, run=name, quarantine_dir=place))

        opened = self._open_quarantine(intent.run, intent.quarantine_dir, enter)
        return opened

    def _enter(self, intent: _Intent) -> None:
        self._intent = intent
        _write_intent(self._log_dir, intent)

    def _refuse_records(self, folder: str) -> None:
        path = os.path.join(self._log_dir, folder)
        if is_there(path) and (
            not is_folder(path)
            or any(
                name.endswith(RECORD_SUFFIXES) and stat.size_bytes for name, stat in list_files(path).items()
            )
        ):
            raise UnsafeError(
                f"{path}: it has records, and a restored log was to take its place. Nothing was changed. Remedy: move "
                "it out of the log dir, and start archive restore again"
            )

    def _make_room(self, folder: str, quarantine: Quarantine) -> None:
        path = os.path.join(self._log_dir, folder)
        if is_there(path):
            quarantine.move_away(path, folder=LOG_DIR_ITSELF, reason="empty, and replaced by restore")

    def _is_moved(self, folder: str) -> bool:
        return _is_moved(self._log_dir, self._intent, folder)

    def _made_without_lines(self, moved: Collection[MovedIn]) -> Collection[str]:
        """Return the checkpoints that are made even if they get no line, as by a broker that stops.

        Beside logs that were there before, one that is missing is a loss, which must not be hidden.
        """
        own = {STAGE_FOLDER, *(one.folder for one in moved)}
        has_others = any(_is_log(name) for name in os.listdir(self._log_dir) if name not in own)
        return () if has_others or not moved else (LOG_START_OFFSET_CHECKPOINT,)

    def _change_checkpoints(
        self, change: LineChange, quarantine: Quarantine, *, made: Collection[str] = ()
    ) -> None:
        plan = _checkpoint_plan(self._log_dir, change, self._saved, made)
        if plan.actions:
            self._saved = {}
            apply_partition(
                self._log_dir,
                plan,
                _files_of(self._log_dir),
                quarantine,
                enter=lambda commit, _saved: self._enter(replace(self._intent, commit=commit)),
            )


def _is_moved(log_dir: str, intent: _Intent, folder: str) -> bool:
    """Whether a folder is the one that was moved in, by a file that no broker writes twice, and not cut off since.

    A log start must not come back to a log that ends below it by now.
    """
    path, made = os.path.join(log_dir, folder), intent.files[folder]
    found = list_files(path) if is_folder(path) else {}
    last = max((name for name in made if name.endswith(LOG_SUFFIX)), default=PARTITION_METADATA)
    if not {PARTITION_METADATA, last} <= made.keys() & found.keys():
        return False
    ours, theirs = made[PARTITION_METADATA], found[PARTITION_METADATA]
    is_same = (ours.size_bytes, ours.mtime_ns) == (theirs.size_bytes, theirs.mtime_ns)
    return is_same and found[last].size_bytes >= made[last].size_bytes


def remove_stage(log_dir: str) -> None:
    """Remove the stage, and all that is in it; the intent first."""
    stage = os.path.join(log_dir, STAGE_FOLDER)
    if not is_folder(stage):
        return
    if has_intent(log_dir):
        _forget_intent(log_dir)
    shutil.rmtree(stage)
    sync(log_dir)


def _forget_intent(log_dir: str) -> None:
    """Remove the intent: it is carried out, or not to be; should it come back, nothing is left to do."""
    stage = os.path.join(log_dir, STAGE_FOLDER)
    os.unlink(os.path.join(stage, _INTENT))
    with suppress(OSError):
        sync(stage)


def sync_stage(log_dir: str) -> None:
    """Bring all that is in the stage to disk."""
    sync_below(os.path.join(log_dir, STAGE_FOLDER))
    sync(log_dir)


def _write_intent(log_dir: str, intent: _Intent) -> None:
    stage = os.path.join(log_dir, STAGE_FOLDER)
    path = os.path.join(stage, _INTENT)
    document = {
        "version": _INTENT_VERSION,
        "run": intent.run,
        "quarantine_dir": intent.quarantine_dir,
        "commit": None if intent.commit is None else intent.commit.to_json(),
        "partitions": [
            [
                one.folder,
                one.log_start_offset,
                one.log_end_offset,
                {
                    name: [stat.inode, stat.size_bytes, stat.mtime_ns]
                    for name, stat in intent.files[one.folder].items()
                },
            ]
            for one in intent.partitions
        ],
    }
    write_new(path + ".tmp", json.dumps(document).encode())
    sync(path + ".tmp")
    os.rename(path + ".tmp", path)
    sync(stage)


def _read_intent(log_dir: str) -> _Intent:
    path = os.path.join(log_dir, STAGE_FOLDER, _INTENT)
    try:
        document = json.loads(read_small(path, MOST_MANIFEST_BYTES))
        assert document["version"] == _INTENT_VERSION, f"version {document['version']}"
        run, place, commit = document["run"], document["quarantine_dir"], document["commit"]
        return _Intent(
            partitions=[
                MovedIn(
                    folder=plain_name(folder),
                    log_start_offset=None if start is None else int(start),
                    log_end_offset=int(end),
                )
                for folder, start, end, _ in document["partitions"]
            ],
            files={
                folder: {plain_name(name): read_state(state) for name, state in files.items()}
                for folder, _, _, files in document["partitions"]
            },
            run=None if run is None else plain_name(run),
            quarantine_dir=None if place is None else os.fspath(place),
            commit=None if commit is None else Commit.from_json(commit),
        )
    except (AssertionError, AttributeError, ValueError, KeyError, TypeError, JournalError) as error:
        raise UnsafeError(
            f"{path}: not what this tool writes there ({error}). Nothing was changed. Remedy: remove that folder; "
            "what is in it was made from the archive"
        ) from error


def _without_lines(partitions: Iterable[MovedIn]) -> LineChange:
    """Return the change that takes the lines of *partitions* out of a checkpoint."""
    keys = {_key(one) for one in partitions}
    return lambda _name, lines: {key: offset for key, offset in lines.items() if key not in keys}


def _with_lines(partitions: Sequence[MovedIn]) -> LineChange:
    """Return the change that enters the lines of *partitions*; those of a broker that was at work since stay."""

    def entered(name: str, lines: Lines) -> Lines:
        if name != LOG_START_OFFSET_CHECKPOINT:
            return {_key(one): one.log_end_offset for one in partitions} | lines
        starts = {
            _key(one): max(one.log_start_offset, lines.get(_key(one), 0))
            for one in partitions
            if one.log_start_offset is not None
        }
        return lines | starts

    return entered


def _key(one: MovedIn) -> tuple[str, int]:
    folder = read_folder_name(one.folder)
    return folder.topic, folder.partition


def _is_log(name: str) -> bool:
    """Return whether a log dir's entry is the folder of a topic's log, of whatever state."""
    with suppress(FileNameError):
        return read_folder_name(name).topic != CLUSTER_METADATA_TOPIC
    return False


def _checkpoint_plan(
    log_dir: str, change: LineChange, saved: Container[str], made: Container[str] = ()
) -> PartitionPlan:
    """Return the plan of *change*; the files in *saved* are in quarantine already, and their saving is entered.

    Those in *made* are written even without a line, unless they are there.
    """
    saves, writes = [], []
    for name in CHANGED_CHECKPOINTS:
        path = os.path.join(log_dir, name)
        content = _content(path)
        before = {} if content is None else read_offset_checkpoint(content)
        after = change(name, before)
        if after == before and (content is not None or name not in made):
            continue
        data = encode_offset_checkpoint(dict(sorted(after.items())))
        if content is not None and name not in saved:
            size_bytes = len(content)
            saves.append(
                SaveFile(name=name, size_bytes=size_bytes, reason="lines of restored logs were changed")
            )
        writes.append(WriteFile(name=name, data=data, size_bytes=len(data)))
    return PartitionPlan(folder=LOG_DIR_ITSELF, saves=tuple(saves), actions=tuple(writes))


def _saved_since_a_change(run: str) -> dict[str, str]:
    """Return which of the log dir's own files a run has saved for a change that it has not entered, by name."""
    account = read_account(manifest_entries(run), run)
    return {
        name: os.path.join(run, folder, saved.stored)
        for folder, name, saved in account.unused
        if folder == LOG_DIR_ITSELF
    }


def _is_as_saved(path: str, saved: str) -> bool:
    """Whether a file has the bytes that were saved of it, or is the link that was saved itself."""
    if is_link(saved):
        return is_link(path) and os.readlink(path) == os.readlink(saved)
    return not is_link(path) and read_small(saved) == _content(path)


def _content(path: str) -> bytes | None:
    return read_small(path) if is_file(path) else None


def _files_of(log_dir: str) -> dict[str, FileStat]:
    names = (*CHANGED_CHECKPOINTS, CLEAN_SHUTDOWN_FILE)  # the marker stays, as the account must say
    found = (
        (name, look_at(os.path.join(log_dir, name)))
        for own in names
        for name in (own, own + TEMPORARY_SUFFIX)  # of a run that was killed
    )
    return {name: file_stat(status) for name, status in found if status is not None}


def _note(folder: str, files: Mapping[str, FileStat], quarantine: Quarantine) -> None:
    """Enter a folder that was moved in: `undo` removes what is in it, and then the folder."""
    actions = tuple(
        WriteFile(name=name, data=b"", size_bytes=stat.size_bytes) for name, stat in sorted(files.items())
    )
    commit = Commit(folder=folder, before={}, staged=files, actions=actions)
    quarantine.note_change(commit, files, is_new_folder=True)
