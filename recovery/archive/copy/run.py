"""`archive copy`: log dirs as they are, to a folder or a bucket, in the layout of plain copies.

    list -> compare with the output -> copy file by file -> manifest

Files are read once, hashed on the way, and streamed. What an earlier run has sent is not sent again, by the manifest at
the output: a file with the same size, time and inode, or with the same SHA-256.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.copy.clean_marker import (
    NOT_WHOLE,
    OTHERS_UNKNOWN,
    CleanMarker,
    has_others,
    marker_key,
)
from recovery.archive.copy.earlier import kept_before
from recovery.archive.copy.file_copy import CopyJob, CopyOutcome, FileCopier
from recovery.archive.copy.folders import choose_folders, log_dir_text, properties_at
from recovery.archive.copy.listing import (
    PARTIAL_SUFFIX,
    FoundFile,
    FoundFiles,
    find_files,
    is_wanted_key,
    partition_of,
)
from recovery.archive.copy.manifest import MANIFEST_KEY, CopyManifest, folder_of, read_manifest
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.output import OutputFiles
from recovery.archive.copy.progress import CopyProgress
from recovery.archive.copy.report import CopiedLogDir, CopyReport, UncopiedFile
from recovery.archive.stores.stores import is_within, open_store
from recovery.check.log_dir_files import OFFSET_CHECKPOINTS
from recovery.errors import InterruptedRecoveryError, RecoveryError, UsageError, error_text, reason_text
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.dirs import find_broker_dirs
from recovery.logdir.lock import LogDirLocks
from recovery.quantity import count_text
from recovery.read.file_system import is_folder, is_read_only, is_same
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.threads import PoolAhead
from recovery.watch.events import Observer
from recovery.watch.notifier import Notifier
from recovery.write.move_in import has_intent
from recovery.write.undo_notice import entered_undo
from segfmt.filenames import META_PROPERTIES

_DEFAULT_THREADS = 2
_FILES_AHEAD = 4
"""Begun per thread before the first of them is done."""


def copy(
    options: CopyOptions, *, observers: Iterable[Observer] = (), stop: StopRequest | None = None
) -> CopyReport:
    """Copy log dirs of a stopped broker.

    What cannot be read, an output that fails on the way, and any other end before all is copied are in the report.

    Args:
        options: what, and where to.
        observers: notified as it goes on.
        stop: lets another thread end the run; started again, it goes on.

    Raises:
        UsageError: no log dir, a partition that is not there, or an output that cannot be one.
        LogDirLockedError: a broker or a recovery is running.
        OSError: the output cannot be listed.
    """
    options.refuse_wrong_values()
    given = None if options.log_dirs is None else list(options.log_dirs)
    dirs = find_broker_dirs(given, options.config, may_be_foreign=True, may_be_missing=True)
    if all(map(_is_missing, dirs.log_dirs)):
        find_broker_dirs(given, options.config, may_be_foreign=True)  # which names the first that is missing
    for log_dir in dirs.locked_dirs:
        _refuse_copy(log_dir)
    output = open_store(options.output)
    manifest = read_manifest(output)
    if manifest.is_new:
        _refuse_copied(CopyAccounts(output), options.output)
    folders = choose_folders(dirs.locked_dirs, manifest.folders, output)
    for log_dir in dirs.locked_dirs:
        _refuse_output(options.output, log_dir, folders)
    manifest.begin(folders, is_forgotten=options.restart)
    run = _Run(options, manifest, folders, Notifier(observers), StopRequest() if stop is None else stop)
    there = [log_dir for log_dir in dirs.locked_dirs if not _is_missing(log_dir)]
    writable = [log_dir for log_dir in there if not _is_read_only(log_dir)]
    for log_dir in there:
        if log_dir not in writable:
            run.warnings.append(f"{log_dir}: mounted read-only, so it is not locked")
    with LogDirLocks(writable) as locks:
        for log_dir, error in locks.offline.items():
            run.warnings.append(
                f"{log_dir}: it cannot be locked, see to it that no broker uses it: {error_text(error.error)}"
            )
        run.warnings += [text for log_dir in there for text in _interrupted(log_dir)]
        return run.run()


def _refuse_output(output: str, log_dir: str, folders: Mapping[str, str]) -> None:
    """Raise UsageError if something would be written into *log_dir*, or if it is where a copy goes."""
    if is_within(output, log_dir):
        raise UsageError(f"--output {output}: it is in the log dir {log_dir}, which is copied")
    for folder in folders.values():
        place = f"{output.rstrip('/')}/{folder}"
        if is_within(place, log_dir) or is_within(log_dir, place) or is_same(place, log_dir):
            raise UsageError(
                f"--output {output}: {place} would be the copy of a log dir, and {log_dir}, which is copied, is there. "
                "Remedy: choose another output"
            )


def _interrupted(log_dir: str) -> Iterator[str]:
    """Yield what was interrupted in a log dir, whose copy is then as it was left."""
    with suppress(OSError):
        if entered_undo(log_dir) is not None:
            yield (
                f"{log_dir}: an undo was interrupted, so a part of it is as a recovery has left it, and a part as "
                "before. Remedy: let undo finish, and copy again"
            )
        if has_intent(log_dir):
            yield (
                f"{log_dir}: a restore was interrupted while it moved partitions in, and those that it has not are not "
                "copied. Remedy: start archive restore again, which finishes it, and copy again"
            )


def _refuse_copied(output: CopyAccounts, url: str) -> None:
    """Raise UsageError if the output is in another copy: who reads that would find the partitions of both."""
    around = output.log_dirs_around
    if around:
        raise UsageError(
            f"--output {url}: it is in the copy of {', '.join(around)}, by {output.manifest_above}. Remedy: choose "
            "another output; or, if there is no copy any more, remove that file"
        )


def _refuse_copy(log_dir: str) -> None:
    """Raise UsageError if *log_dir* is a copy that is not whole: a copy of it would say that it is."""
    accounts = None
    with suppress(UsageError, OSError):  # then it is none, as far as can be seen
        accounts = CopyAccounts(open_store(log_dir))
    if accounts is None:
        return
    if any(is_folder(os.path.join(log_dir, folder)) for folder in accounts.copied_folders):
        raise UsageError(f"{log_dir}: what archive copy has made, and no log dir. Remedy: take it with cp -r")
    if accounts.copied_log_dir is not None and accounts.has_left_out():
        raise UsageError(
            f"{log_dir}: a copy of {accounts.copied_log_dir} that is not whole, or has files that are gone, which a "
            f"copy of it would not say. Remedy: take it with cp -r, with {MANIFEST_KEY} in the folder above"
        )


def _has_been_a_brokers(log_dir: str) -> bool:
    """Return whether it has logs or checkpoints, or cannot be listed; a disk may have left meta.properties alone."""
    with suppress(OSError):
        return any(partition_of(name) or name in OFFSET_CHECKPOINTS for name in os.listdir(log_dir))
    return True


_MOUNTED = "see that its file system is mounted"
_KEPT_REMEDY = (
    "archive restore leaves such copies out. Remedy: if no broker, recover or undo did that, the disk may have: the "
    "earlier copy may be all there is; else remove it"
)


def _is_missing(log_dir: str) -> bool:
    """Return whether it is certain that there is no folder; one that cannot be looked at is locked and listed."""
    with suppress(OSError):
        return not is_folder(log_dir)
    return False


def _is_read_only(log_dir: str) -> bool:
    with suppress(OSError):
        return is_read_only(log_dir)
    return False


@dataclass(frozen=True, slots=True)
class _Planned:
    """A log dir, and what of it is to be read."""

    log_dir: CopiedLogDir
    jobs: list[CopyJob]
    marker: CleanMarker

    @property
    def files(self) -> list[FoundFile]:
        """In the order in which they are read: the marker of a clean shutdown, if one is to be sent, comes last."""
        last = [] if self.marker.job is None else [self.marker.job]
        return [job.file for job in (*self.jobs, *last)]


class _Run:
    def __init__(
        self,
        options: CopyOptions,
        manifest: CopyManifest,
        folders: Mapping[str, str],
        notifier: Notifier,
        stop: StopRequest,
    ) -> None:
        self._options = options
        self._manifest = manifest
        self._stop = stop
        self._progress = CopyProgress(notifier)
        self._limit = RateLimit(options.max_bytes_per_second, check=stop.check)
        self._thread_count = options.threads or _DEFAULT_THREADS
        self._store = open_store(options.output)
        self._log_dirs = [CopiedLogDir(log_dir=log_dir, folder=folder) for log_dir, folder in folders.items()]
        self._folders = folders
        self._failure: OSError | None = None
        self._stale_markers: dict[str, str] = {}
        self.warnings: list[str] = []

    def run(self) -> CopyReport:
        """Copy all log dirs."""
        try:
            report = self._run()
        except BaseException as error:
            self._progress.finish(error.exit_code if isinstance(error, RecoveryError) else 1)
            raise
        self._progress.finish(report.exit_code)
        return report

    def _run(self) -> CopyReport:
        self._progress.start([one.log_dir for one in self._log_dirs], self._thread_count)
        for text in self.warnings:
            self._progress.warn(text)
        manifest = self._manifest
        with (
            self._store.held(),
            suppress(InterruptedRecoveryError),
            PoolAhead(self._thread_count, thread_name_prefix="archive-copy") as pool,
        ):
            self._copy(self._plan(manifest, pool), manifest, pool)
        is_cut_short = any(one.left_files or not (one.is_listed or one.failed) for one in self._log_dirs)
        return CopyReport(
            output=self._store.url,
            log_dirs=self._log_dirs,
            warnings=self.warnings,
            signal_number=self._stop.signal_number if self._stop.is_made and is_cut_short else None,
            error=self._failure,
        )

    # -- what is to be done ----------------------------------------------------------------------------------

    def _plan(self, manifest: CopyManifest, pool: PoolAhead) -> list[_Planned]:
        """List all log dirs, and what the output has of them."""
        is_chosen = self._options.choice()
        output = OutputFiles(self._store)
        output.remove_temporaries("")
        planned = []
        for log_dir in self._log_dirs:
            found = self._found(log_dir, is_chosen)
            for text in found.warnings:
                self._warn(text)
            for failed in found.failed:
                log_dir.failed.append(failed)
                self._progress.fail(log_dir.log_dir, "", failed)
            log_dir.is_listed = all(one.file != log_dir.log_dir for one in found.failed)
            self._refuse_another(log_dir, manifest)
            output.list_beside(log_dir.folder, (file.key for file in found.files), pool, self._thread_count)
            self._leave_out_gone(log_dir, found.files, is_chosen, manifest)
            self._warn_of_kept_before(log_dir, found.files, output)
            files = self._without_newer_checkpoints(log_dir, found.files, is_chosen, manifest)
            jobs = [self._job(file, output, manifest) for file in files]
            planned.append(self._with_marker(log_dir, jobs, is_chosen, output, manifest))
        if all(one.is_listed for one in self._log_dirs):
            is_chosen.refuse_missing(", ".join(self._folders))
        return planned

    def _found(self, log_dir: CopiedLogDir, is_chosen: PartitionChoice) -> FoundFiles:
        """Return the files of a log dir; one that is not there, or is none, has failed, and the others are copied."""
        if _is_missing(log_dir.log_dir):
            error = FileNotFoundError(errno.ENOENT, f"no such log dir. Remedy: {_MOUNTED}")
            return FoundFiles(failed=[UncopiedFile.of(log_dir.log_dir, error)])
        found = find_files(log_dir.log_dir, log_dir.folder, is_chosen, self._stop)
        if not found.failed and not _has_been_a_brokers(log_dir.log_dir):
            text = f"no log dir of a broker: it has neither logs nor checkpoints. Remedy: {_MOUNTED}"
            found.failed.append(UncopiedFile.of(log_dir.log_dir, OSError(errno.ENOENT, text)))
        return found

    def _refuse_another(self, log_dir: CopiedLogDir, manifest: CopyManifest) -> None:
        """Raise UsageError if what is at the output is not the copy of this log dir, whatever its path is."""
        place = f"{self._store.url}/{log_dir.folder}"
        try:
            level = self._store.list_level(f"{log_dir.folder}/")
        except (FileNotFoundError, NotADirectoryError):
            return
        ours = properties_at(open_store(log_dir.log_dir), "")
        theirs = properties_at(self._store, f"{log_dir.folder}/")
        if manifest.is_new and (level.objects or level.prefixes) and theirs != ours:
            raise UsageError(
                f"{place}: there are files, and no {MANIFEST_KEY} says that they are a copy. Remedy: choose another "
                "output"
            )
        whose, of_copy = log_dir_text(ours), log_dir_text(theirs)
        if whose and of_copy and whose != of_copy:
            raise UsageError(
                f"{place}: the copy of a log dir of {of_copy}, by {META_PROPERTIES}, and {log_dir.log_dir} is of "
                f"{whose}. Remedy: choose another output"
            )

    def _leave_out_gone(
        self,
        log_dir: CopiedLogDir,
        files: Sequence[FoundFile],
        is_chosen: PartitionChoice,
        manifest: CopyManifest,
    ) -> None:
        """Tell what is gone from a log dir; the marker of a clean shutdown goes at the output, too."""
        if not log_dir.is_listed:
            return
        found = {file.key for file in files} | {marker_key(log_dir.folder)}
        gone = []
        unseen = tuple(_unlisted(log_dir))

        def is_missed(key: str) -> bool:
            return is_wanted_key(key, is_chosen) and not f"{key}/".startswith(unseen)

        for key in manifest.keys(log_dir.folder):
            if key in found:
                manifest.set_gone(key, is_gone=False)
            elif is_missed(key):
                manifest.set_gone(key, is_gone=True)
                gone.append(key)
        if gone:
            self._warn(
                f"{log_dir.log_dir}: {count_text(len(gone), 'file')} of earlier copies, such as {gone[0]}, gone there, "
                "and kept at the output. archive restore leaves them out, unless all of a partition is gone"
            )
        self._warn_of_gone_parts(
            log_dir,
            [key for key in manifest.part_keys(log_dir.folder) if key not in found and is_missed(key)],
        )
        if is_chosen.is_everything:
            manifest.forget_unseen(log_dir.folder, {folder_of(file.key) for file in files}, unseen)

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

    def _warn_of_kept_before(
        self, log_dir: CopiedLogDir, files: Sequence[FoundFile], output: OutputFiles
    ) -> None:
        """Tell what earlier runs have kept: one that was killed has not told it."""
        kept = kept_before(output.keys(log_dir.folder), {file.key for file in files})
        if kept:
            copies = count_text(len(kept), "earlier copy", "earlier copies")
            self._warn(
                f"{log_dir.log_dir}: {copies} of files that then lost bytes, or changed them, such as {kept[0]}. "
                f"{_KEPT_REMEDY}"
            )

    def _without_newer_checkpoints(
        self,
        log_dir: CopiedLogDir,
        files: Sequence[FoundFile],
        is_chosen: PartitionChoice,
        manifest: CopyManifest,
    ) -> Sequence[FoundFile]:
        """Return *files* without the log dir's own if the output has partitions that are not chosen now.

        A newer checkpoint would tell of records that the copies of these do not have. If none has changed, none is new.
        """
        marker = marker_key(log_dir.folder)
        own = [file for file in files if not file.partition and file.key != marker]
        changed = {
            file.key
            for file in own
            if (earlier := manifest.earlier(file.key)) is not None and earlier.figures != file.figures
        }
        if not changed or not has_others(log_dir.folder, is_chosen, manifest):
            return files
        changed |= {file.key for file in own if manifest.earlier(file.key) is None}
        self._warn(
            f"{log_dir.log_dir}: its own files stay at the output as they are, with the partitions that are not "
            "chosen now, so records of the chosen ones that were deleted since (kafka-delete-records) may come back"
        )
        return [file for file in files if file.key not in changed]

    @staticmethod
    def _with_marker(
        log_dir: CopiedLogDir,
        jobs: Sequence[CopyJob],
        is_chosen: PartitionChoice,
        output: OutputFiles,
        manifest: CopyManifest,
    ) -> _Planned:
        """Return what is to be read of a log dir, with the marker of a clean shutdown apart from the rest."""
        key = marker_key(log_dir.folder)
        is_there = output.size_bytes(key) is not None
        if log_dir.is_listed and not is_there:
            manifest.forget(key)  # somebody has removed it, and logs may be copied without it from now on
        marker = CleanMarker(
            key=key,
            job=next((job for job in jobs if job.file.key == key), None),
            is_to_go=is_there and log_dir.is_listed,
            may_vouch=manifest.earlier(key) is not None
            or not has_others(log_dir.folder, is_chosen, manifest),
        )
        return _Planned(log_dir, [job for job in jobs if job.file.key != key], marker)

    @staticmethod
    def _job(file: FoundFile, output: OutputFiles, manifest: CopyManifest) -> CopyJob:
        part_key = file.part_key
        while manifest.earlier(part_key) is not None:  # the copy of a file that is gone by now
            part_key += PARTIAL_SUFFIX
        return CopyJob(
            file=file,
            there_bytes=output.size_bytes(file.key),
            part_key=part_key,
            part_bytes=output.size_bytes(part_key),
        )

    # -- the work --------------------------------------------------------------------------------------------

    def _copy(self, planned: Sequence[_Planned], manifest: CopyManifest, pool: PoolAhead) -> None:
        """Copy what is to be copied, and write down what was."""
        taken = {file.key for one in planned for file in one.files}
        copier = FileCopier(self._store, manifest, self._limit, self._stop, self._progress.read, taken)
        to_do = [self._to_do(one, copier, manifest) for one in planned]
        missing = [job.file.key for one in to_do for job in one.jobs]
        missing += [key for one in planned for key in _unlisted(one.log_dir)]
        try:
            for one in to_do:
                if text := one.marker.take_away(self._store, manifest):
                    self._stale_markers[one.marker.key] = text
            manifest.expect(
                (file.key for one in planned for file in one.files),
                missing,
                is_everything=self._options.choice().is_everything,
            )
            for one in to_do:
                self._copy_log_dir(one, copier, manifest, pool)
            manifest.write()
        except BaseException as error:
            with suppress(OSError):  # the first error tells more
                manifest.write()
            if not isinstance(error, OSError):
                raise
            self._failure = error
        finally:
            for text in self._stale_markers.values():
                self._warn(text)
            if manifest.unremoved:
                key, why = next(iter(manifest.unremoved.items()))
                parts = count_text(len(manifest.unremoved), "beginning")
                self._warn(
                    f"{parts} of files that are whole now, such as {self._store.url}/{key}, cannot be removed: "
                    f"{reason_text(why)}. Remedy: allow that, and start again, which removes them"
                )

    def _to_do(self, planned: _Planned, copier: FileCopier, manifest: CopyManifest) -> _Planned:
        """Return what is not at the output, and count the rest as it is."""
        log_dir, marker, jobs = planned.log_dir, planned.marker, []
        for job in planned.jobs:
            if copier.is_there(job):
                self._skip(log_dir, job, manifest)
            else:
                jobs.append(job)
        if marker.job is not None and copier.is_there(marker.job) and not jobs:
            self._skip(log_dir, marker.job, manifest)
            marker = marker.as_there()
        to_do = _Planned(log_dir, jobs, marker)
        log_dir.left_files = len(to_do.files)
        log_dir.left_bytes = sum(file.size_bytes for file in to_do.files)
        if log_dir.is_listed:
            self._progress.list(log_dir, to_do.files)
        else:
            self._progress.take_offline(log_dir.log_dir, log_dir.failed[-1].error)
        return to_do

    @staticmethod
    def _skip(log_dir: CopiedLogDir, job: CopyJob, manifest: CopyManifest) -> None:
        """Count a file that the output has as it is."""
        log_dir.skipped_files += 1
        log_dir.skipped_bytes += job.file.size_bytes
        if job.part_bytes is not None:
            manifest.remove(job.part_key)

    def _copy_log_dir(
        self, planned: _Planned, copier: FileCopier, manifest: CopyManifest, pool: PoolAhead
    ) -> None:
        log_dir = planned.log_dir
        if not log_dir.is_listed:
            return
        self._progress.start_log_dir(log_dir.log_dir, planned.files)
        jobs, is_as_it_is = self._begun(planned.jobs), True
        try:
            for outcome in pool.map_ahead(copier.copy, jobs, _FILES_AHEAD * self._thread_count):
                if outcome is not None:
                    self._account(log_dir, outcome)
                    is_as_it_is &= not outcome.warning
        finally:
            self._warn_of_kept(log_dir)
        if planned.marker.job is not None and log_dir.left_files == 1:
            is_as_it_is &= not log_dir.failed
            self._send_marker(planned, copier, manifest, is_as_it_is=is_as_it_is)
        if not log_dir.left_files:
            self._progress.finish_log_dir()

    def _send_marker(
        self, planned: _Planned, copier: FileCopier, manifest: CopyManifest, *, is_as_it_is: bool
    ) -> None:
        """Send the marker of a clean shutdown once all else is on disk, if it vouches for all that is there then."""
        log_dir, marker = planned.log_dir, planned.marker
        assert marker.job is not None
        if not (is_as_it_is and marker.may_vouch):
            log_dir.left_files -= 1
            log_dir.left_bytes -= marker.job.file.size_bytes
            if marker.key not in self._stale_markers:
                self._warn(f"{log_dir.log_dir}: {OTHERS_UNKNOWN if is_as_it_is else NOT_WHOLE}")
            return
        manifest.write()
        for job in self._begun([replace(marker.job, there_bytes=None)]):
            outcome = copier.copy(job)
            if outcome is not None:
                self._account(log_dir, outcome)
                if outcome.sent_bytes is not None:
                    self._stale_markers.pop(marker.key, None)

    def _warn_of_kept(self, log_dir: CopiedLogDir) -> None:
        """Tell which files have lost bytes; the one with the greatest loss as the example."""
        if log_dir.kept:
            worst = max(log_dir.kept, key=lambda one: one.earlier_bytes - one.size_bytes)
            files = count_text(len({one.file for one in log_dir.kept}), "file")
            self._warn(
                f"{log_dir.log_dir}: {files} lost bytes that were copied before, or changed them, such as "
                f"{worst.file}: {worst.earlier_bytes:,} bytes then, {worst.size_bytes:,} now; the earlier copy stays "
                f"as {worst.kept_as}. {_KEPT_REMEDY}"
            )

    def _begun(self, jobs: Iterable[CopyJob]) -> Iterator[CopyJob]:
        for job in jobs:
            if self._stop.is_made:
                return
            self._progress.start_file(job.file)
            yield job

    def _account(self, log_dir: CopiedLogDir, outcome: CopyOutcome) -> None:
        log_dir.left_files -= 1
        log_dir.left_bytes -= outcome.job.file.size_bytes
        if outcome.sent_bytes is not None:
            log_dir.files += 1
            log_dir.size_bytes += outcome.sent_bytes
        if outcome.there_bytes is not None:
            log_dir.skipped_files += 1
            log_dir.skipped_bytes += outcome.there_bytes
        if outcome.failed is not None:
            log_dir.failed.append(outcome.failed)
            self._progress.fail(log_dir.log_dir, outcome.job.file.partition, outcome.failed)
        log_dir.kept += outcome.kept
        if outcome.warning:
            self._warn(outcome.warning)
        self._progress.finish_file(outcome.job.file)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._progress.warn(text)


def _unlisted(log_dir: CopiedLogDir) -> Iterator[str]:
    """Yield the folders that could not be listed, as they would be at the output."""
    for failed in log_dir.failed:
        path = os.path.relpath(failed.file, log_dir.log_dir)
        yield f"{log_dir.folder}/" if path == "." else f"{log_dir.folder}/{path}/"
