"""`archive copy`: log dirs as they are, to a folder or a bucket, in the layout of plain copies.

    list -> compare with the output -> copy file by file -> manifest

Files are read once, hashed on the way, and streamed. What an earlier run has sent is not sent again, by the manifest at
the output: a file with the same size, time and inode, or with the same SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.copy.clean_marker import NOT_WHOLE, OTHERS_UNKNOWN
from recovery.archive.copy.earlier import KEPT_REMEDY
from recovery.archive.copy.file_copy import CopyJob, CopyOutcome, FileCopier
from recovery.archive.copy.folders import choose_folders
from recovery.archive.copy.listing import is_missing
from recovery.archive.copy.manifest import CopyManifest, read_manifest
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.plan import CopyPlanner, PlannedCopy
from recovery.archive.copy.progress import CopyProgress
from recovery.archive.copy.refusals import refuse_copied, refuse_copy, refuse_output
from recovery.archive.copy.report import CopiedLogDir, CopyReport
from recovery.archive.stores.stores import open_store, refuse_brokers_output
from recovery.errors import InterruptedRecoveryError, RecoveryError, error_text, reason_text
from recovery.logdir.dirs import find_broker_dirs
from recovery.logdir.lock import LogDirLocks
from recovery.quantity import count_text
from recovery.read.file_system import is_read_only
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.threads import PoolAhead
from recovery.watch.events import Observer
from recovery.watch.notifier import Notifier
from recovery.write.interruptions import interruptions

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
    dirs = find_broker_dirs(given, options.config, may_be_foreign=True, may_be_missing="some")
    for log_dir in dirs.locked_dirs:
        refuse_copy(log_dir)
    output = open_store(options.output)
    manifest = read_manifest(output)
    if manifest.is_new:
        refuse_copied(CopyAccounts(output), options.output)
    folders = choose_folders(dirs.locked_dirs, manifest.folders, output)
    for log_dir in dirs.locked_dirs:
        refuse_output(options.output, log_dir, folders)
    refuse_brokers_output(options.output)
    manifest.begin(folders, is_forgotten=options.restart)
    run = _Run(options, manifest, folders, Notifier(observers), StopRequest() if stop is None else stop)
    there = [log_dir for log_dir in dirs.locked_dirs if not is_missing(log_dir)]
    writable = [log_dir for log_dir in there if not _is_read_only(log_dir)]
    for log_dir in there:
        if log_dir not in writable:
            run.warnings.append(f"{log_dir}: mounted read-only, so it is not locked")
    with LogDirLocks(writable) as locks:
        for log_dir, error in locks.offline.items():
            run.warnings.append(
                f"{log_dir}: it cannot be locked, see to it that no broker uses it: {error_text(error.error)}"
            )
        run.warnings += (f"{text}. Then copy again" for text in interruptions(there))
        return run.run()


def _is_read_only(log_dir: str) -> bool:
    with suppress(OSError):
        return is_read_only(log_dir)
    return False


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
        with (
            self._store.held(),
            suppress(InterruptedRecoveryError),
            PoolAhead(self._thread_count, thread_name_prefix="archive-copy") as pool,
        ):
            self._copy(self._plan(pool), pool)
        is_cut_short = any(one.left_files or not (one.is_listed or one.failed) for one in self._log_dirs)
        return CopyReport(
            output=self._store.url,
            log_dirs=self._log_dirs,
            warnings=self.warnings,
            signal_number=self._stop.signal_number if self._stop.is_made and is_cut_short else None,
            error=self._failure,
        )

    def _plan(self, pool: PoolAhead) -> list[PlannedCopy]:
        is_chosen = self._options.choice()
        planner = CopyPlanner(
            self._store,
            self._manifest,
            is_chosen,
            stop=self._stop,
            progress=self._progress,
            warn=self._warn,
            pool=pool,
            thread_count=self._thread_count,
        )
        planned = [planner.plan(log_dir) for log_dir in self._log_dirs]
        if all(one.is_listed for one in self._log_dirs):
            is_chosen.refuse_missing(", ".join(one.log_dir for one in self._log_dirs))
        return planned

    def _copy(self, planned: Sequence[PlannedCopy], pool: PoolAhead) -> None:
        """Copy what is to be copied, and write down what was."""
        taken = {file.key for one in planned for file in one.files}
        copier = FileCopier(self._store, self._manifest, self._limit, self._stop, self._progress.read, taken)
        to_do = [self._to_do(one, copier) for one in planned]
        missing = [job.file.key for one in to_do for job in one.jobs]
        missing += [key for one in planned for key in one.log_dir.unlisted_folders]
        try:
            for one in to_do:
                if text := one.marker.take_away(self._store, self._manifest):
                    self._stale_markers[one.marker.key] = text
            self._manifest.expect(
                (file.key for one in planned for file in one.files),
                missing,
                is_everything=self._options.choice().is_everything,
            )
            for one in to_do:
                self._copy_log_dir(one, copier, pool)
            self._manifest.write()
        except BaseException as error:
            with suppress(OSError):  # the first error tells more
                self._manifest.write()
            if not isinstance(error, OSError):
                raise
            self._failure = error
        finally:
            for text in self._stale_markers.values():
                self._warn(text)
            if self._manifest.unremoved:
                key, why = next(iter(self._manifest.unremoved.items()))
                parts = count_text(len(self._manifest.unremoved), "beginning")
                self._warn(
                    f"{parts} of files that are whole now, such as {self._store.url}/{key}, cannot be removed: "
                    f"{reason_text(why)}. Remedy: allow that, and start again, which removes them"
                )

    def _to_do(self, planned: PlannedCopy, copier: FileCopier) -> PlannedCopy:
        """Return what is not at the output, and count the rest as it is."""
        log_dir, marker, jobs = planned.log_dir, planned.marker, []
        for job in planned.jobs:
            if copier.is_there(job):
                self._skip(log_dir, job)
            else:
                jobs.append(job)
        if marker.job is not None and copier.is_there(marker.job) and not jobs:
            self._skip(log_dir, marker.job)
            marker = marker.as_there()
        to_do = PlannedCopy(log_dir, jobs, marker)
        log_dir.left_files = len(to_do.files)
        log_dir.left_bytes = sum(file.size_bytes for file in to_do.files)
        if log_dir.is_listed:
            self._progress.list(log_dir, to_do.files)
        else:
            self._progress.take_offline(log_dir.log_dir, log_dir.failed[-1].error)
        return to_do

    def _skip(self, log_dir: CopiedLogDir, job: CopyJob) -> None:
        """Count a file that the output has as it is."""
        log_dir.skipped_files += 1
        log_dir.skipped_bytes += job.file.size_bytes
        if job.part_bytes is not None:
            self._manifest.remove(job.part_key)

    def _copy_log_dir(self, planned: PlannedCopy, copier: FileCopier, pool: PoolAhead) -> None:
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
            self._send_marker(planned, copier, is_as_it_is=is_as_it_is)
        if not log_dir.left_files:
            self._progress.finish_log_dir()

    def _send_marker(self, planned: PlannedCopy, copier: FileCopier, *, is_as_it_is: bool) -> None:
        """Send the marker of a clean shutdown once all else is on disk, if it vouches for all that is there then."""
        log_dir, marker = planned.log_dir, planned.marker
        assert marker.job is not None
        if not (is_as_it_is and marker.may_vouch):
            log_dir.left_files -= 1
            log_dir.left_bytes -= marker.job.file.size_bytes
            if marker.key not in self._stale_markers:
                self._warn(f"{log_dir.log_dir}: {OTHERS_UNKNOWN if is_as_it_is else NOT_WHOLE}")
            return
        self._manifest.write()
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
                f"as {worst.kept_as}. {KEPT_REMEDY}"
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
