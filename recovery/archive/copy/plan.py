"""What of a log dir is to be copied: its files beside what the output has of them, and what is told of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from recovery.archive.copy.clean_marker import CleanMarker, has_others, marker_key
from recovery.archive.copy.earlier import KEPT_REMEDY, kept_before
from recovery.archive.copy.file_copy import CopyJob
from recovery.archive.copy.listing import PARTIAL_SUFFIX, FoundFile, find_files, is_wanted_key
from recovery.archive.copy.manifest import CopyManifest, folder_of
from recovery.archive.copy.output import OutputFiles
from recovery.archive.copy.progress import CopyProgress
from recovery.archive.copy.refusals import refuse_another
from recovery.archive.copy.report import CopiedLogDir
from recovery.archive.stores.store import OutputStore
from recovery.logdir.choice import PartitionChoice
from recovery.quantity import count_text
from recovery.stop_request import StopRequest
from recovery.threads import PoolAhead


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """A log dir, and what of it is to be read."""

    log_dir: CopiedLogDir
    jobs: list[CopyJob]
    marker: CleanMarker

    @property
    def files(self) -> list[FoundFile]:
        """In the order in which they are read: the marker of a clean shutdown, if one is to be sent, comes last."""
        last = [] if self.marker.job is None else [self.marker.job]
        return [job.file for job in (*self.jobs, *last)]


class CopyPlanner:
    """Says what is to be copied of each log dir.

    What a killed run was writing directly at the output is removed at once, what it was writing below as it is listed.

    Args:
        store: the output.
        is_chosen: the partitions that are to be copied.
        warn: takes what the operator should know.
        pool: lists the output, with *thread_count* threads.
    """

    def __init__(
        self,
        store: OutputStore,
        manifest: CopyManifest,
        is_chosen: PartitionChoice,
        *,
        stop: StopRequest,
        progress: CopyProgress,
        warn: Callable[[str], None],
        pool: PoolAhead,
        thread_count: int,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._is_chosen = is_chosen
        self._stop = stop
        self._progress = progress
        self._warn = warn
        self._pool = pool
        self._thread_count = thread_count
        self._output = OutputFiles(store)
        self._output.remove_temporaries("")

    def plan(self, log_dir: CopiedLogDir) -> PlannedCopy:
        """List a log dir, and what the output has of it.

        Raises:
            UsageError: the output has something else in its place.
        """
        found = find_files(log_dir.log_dir, log_dir.folder, self._is_chosen, self._stop)
        for text in found.warnings:
            self._warn(text)
        for failed in found.failed:
            log_dir.failed.append(failed)
            self._progress.fail(log_dir.log_dir, "", failed)
        log_dir.is_listed = all(one.file != log_dir.log_dir for one in found.failed)
        refuse_another(self._store, log_dir, is_new=self._manifest.is_new)
        self._output.list_beside(
            log_dir.folder, (file.key for file in found.files), self._pool, self._thread_count
        )
        self._leave_out_gone(log_dir, found.files)
        self._warn_of_kept_before(log_dir, found.files)
        files = self._without_newer_checkpoints(log_dir, found.files)
        return self._with_marker(log_dir, [self._job(file) for file in files])

    def _leave_out_gone(self, log_dir: CopiedLogDir, files: Sequence[FoundFile]) -> None:
        """Tell what is gone from a log dir; the marker of a clean shutdown goes at the output, too."""
        if not log_dir.is_listed:
            return
        found = {file.key for file in files} | {marker_key(log_dir.folder)}
        gone = []
        unseen = tuple(log_dir.unlisted_folders)

        def is_missed(key: str) -> bool:
            return is_wanted_key(key, self._is_chosen) and not f"{key}/".startswith(unseen)

        for key in self._manifest.keys(log_dir.folder):
            if key in found:
                self._manifest.set_gone(key, is_gone=False)
            elif is_missed(key):
                self._manifest.set_gone(key, is_gone=True)
                gone.append(key)
        if gone:
            self._warn(
                f"{log_dir.log_dir}: {count_text(len(gone), 'file')} of earlier copies, such as {gone[0]}, gone there, "
                "and kept at the output. archive restore leaves them out, unless all of a partition is gone"
            )
        self._warn_of_gone_parts(
            log_dir,
            [key for key in self._manifest.part_keys(log_dir.folder) if key not in found and is_missed(key)],
        )
        if self._is_chosen.is_everything:
            self._manifest.forget_unseen(log_dir.folder, {folder_of(file.key) for file in files}, unseen)

    def _warn_of_gone_parts(self, log_dir: CopiedLogDir, keys: Iterable[str]) -> None:
        """Tell of which files that are gone only the beginning was ever copied."""
        parts = [f"{key}{PARTIAL_SUFFIX}" for key in keys]
        there = [part for part in parts if self._has_object(part)]
        if there:
            self._warn(
                f"{log_dir.log_dir}: {count_text(len(there), 'file')} that could not be read, gone there: what was "
                f"read before stays at the output, such as {there[0]}. archive restore leaves it out"
            )

    def _has_object(self, key: str) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._store.stat(key)
            return True
        return False

    def _warn_of_kept_before(self, log_dir: CopiedLogDir, files: Sequence[FoundFile]) -> None:
        """Tell what earlier runs have kept: one that was killed has not told it."""
        kept = kept_before(self._output.keys(log_dir.folder), {file.key for file in files})
        if kept:
            copies = count_text(len(kept), "earlier copy", "earlier copies")
            self._warn(
                f"{log_dir.log_dir}: {copies} of files that then lost bytes, or changed them, such as {kept[0]}. "
                f"{KEPT_REMEDY}"
            )

    def _without_newer_checkpoints(
        self, log_dir: CopiedLogDir, files: Sequence[FoundFile]
    ) -> Sequence[FoundFile]:
        """Return *files* without the log dir's own if the output has partitions that are not chosen now.

        A newer checkpoint would tell of records that the copies of these do not have. If none has changed, none is new.
        """
        marker = marker_key(log_dir.folder)
        own = [file for file in files if not file.partition and file.key != marker]
        changed = {
            file.key
            for file in own
            if (earlier := self._manifest.earlier(file.key)) is not None and earlier.figures != file.figures
        }
        if not changed or not has_others(log_dir.folder, self._is_chosen, self._manifest):
            return files
        changed |= {file.key for file in own if self._manifest.earlier(file.key) is None}
        self._warn(
            f"{log_dir.log_dir}: its own files stay at the output as they are, with the partitions that are not "
            "chosen now, so records of the chosen ones that were deleted since (kafka-delete-records) may come back"
        )
        return [file for file in files if file.key not in changed]

    def _with_marker(self, log_dir: CopiedLogDir, jobs: Sequence[CopyJob]) -> PlannedCopy:
        """Return what is to be read of a log dir, with the marker of a clean shutdown apart from the rest."""
        key = marker_key(log_dir.folder)
        is_there = self._output.size_bytes(key) is not None
        if log_dir.is_listed and not is_there:
            self._manifest.forget(
                key
            )  # somebody has removed it, and logs may be copied without it from now on
        marker = CleanMarker(
            key=key,
            job=next((job for job in jobs if job.file.key == key), None),
            is_to_go=is_there and log_dir.is_listed,
            may_vouch=self._manifest.earlier(key) is not None
            or not has_others(log_dir.folder, self._is_chosen, self._manifest),
        )
        return PlannedCopy(log_dir, [job for job in jobs if job.file.key != key], marker)

    def _job(self, file: FoundFile) -> CopyJob:
        part_key = file.part_key
        while self._manifest.earlier(part_key) is not None:  # the copy of a file that is gone by now
            part_key += PARTIAL_SUFFIX
        return CopyJob(
            file=file,
            there_bytes=self._output.size_bytes(file.key),
            part_key=part_key,
            part_bytes=self._output.size_bytes(part_key),
        )
