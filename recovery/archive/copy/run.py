"""`archive copy`: log dirs as they are, to a folder or a bucket, in the layout of plain copies.

Files are read once, hashed on the way, and streamed. What an earlier run has sent is not sent again, by the manifest at
the output: a file with the same size, time and inode, or with the same SHA-256.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from recovery.archive.copy.manifest import MANIFEST_KEY, CopiedFile, CopyManifest, read_manifest
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.reading import ReadFile
from recovery.archive.copy.report import CopiedLogDir, CopyReport, UncopiedFile
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.stores import is_within, open_store
from recovery.errors import InterruptedRecoveryError, UsageError
from recovery.logdir.choice import PartitionChoice
from recovery.logdir.dirs import find_broker_dirs
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.quarantine_place import INSIDE_FOLDER
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.read.file_system import is_read_only, open_file
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.write.move_in import STAGE_FOLDER
from segfmt.errors import FileNameError
from segfmt.filenames import LOCK_FILE, read_folder_name

_DEFAULT_THREADS = 2
_HASHED_BYTES = 4 << 20
_LEFT_OUT = frozenset({LOCK_FILE, INSIDE_FOLDER, STAGE_FOLDER})
"""Of a log dir: its lock, and what only this tool has there."""
PARTIAL_SUFFIX = ".partial"
"""Of the copy of a file that could only be read up to some position."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A file to be copied."""

    path: str
    key: str


def copy(options: CopyOptions, *, stop: StopRequest | None = None) -> CopyReport:
    """Copy log dirs of a stopped broker.

    Args:
        options: what, and where to.
        stop: lets another thread end the run.

    Raises:
        UsageError: no log dir, or an output that cannot be one.
        LogDirLockedError: a broker or a recovery is running.
        OSError: the output cannot be written.
        InterruptedRecoveryError: *stop* was asked for; started again, it goes on.
    """
    options.refuse_wrong_values()
    given = None if options.log_dirs is None else list(options.log_dirs)
    dirs = find_broker_dirs(given, options.config, may_be_foreign=True)
    for log_dir in dirs.locked_dirs:
        if is_within(options.output, log_dir):
            raise UsageError(f"--output {options.output}: it is in the log dir {log_dir}, which is copied")
    run = _Run(options, dirs.locked_dirs, StopRequest() if stop is None else stop)
    writable = [log_dir for log_dir in dirs.locked_dirs if not _is_read_only(log_dir)]
    for log_dir in dirs.locked_dirs:
        if log_dir not in writable:
            run.warnings.append(f"{log_dir}: mounted read-only, so it is not locked")
    with LogDirLocks(writable) as locks:
        for log_dir, error in locks.offline.items():
            run.warnings.append(
                f"{log_dir}: it cannot be locked, see to it that no broker uses it: {error.error}"
            )
        return run.run()


def _is_read_only(log_dir: str) -> bool:
    with suppress(OSError):
        return is_read_only(log_dir)
    return False


class _Run:
    def __init__(self, options: CopyOptions, log_dirs: Sequence[str], stop: StopRequest) -> None:
        self._options = options
        self._stop = stop
        self._limit = RateLimit(options.max_bytes_per_second, check=stop.check)
        self._store = open_store(options.output)
        self._log_dirs = [
            CopiedLogDir(log_dir=log_dir, folder=folder) for log_dir, folder in _folders(log_dirs).items()
        ]
        self.warnings: list[str] = []

    def run(self) -> CopyReport:
        """Copy all log dirs."""
        folders = {one.log_dir: one.folder for one in self._log_dirs}
        manifest = read_manifest(self._store, folders, is_forgotten=self._options.restart)
        is_chosen = self._options.choice()
        count = self._options.threads or _DEFAULT_THREADS
        try:
            for log_dir in self._log_dirs:
                with ThreadPoolExecutor(count, thread_name_prefix="archive-copy") as pool:
                    jobs = self._jobs(log_dir, is_chosen)
                    for result in pool.map(partial(self._copy_unless_stopped, manifest), jobs):
                        self._account(log_dir, result)
                self._stop.check()
        finally:
            self._store.sync()
            manifest.write()
        is_chosen.refuse_missing(", ".join(folders))
        return CopyReport(output=self._store.url, log_dirs=self._log_dirs, warnings=self.warnings)

    @staticmethod
    def _account(log_dir: CopiedLogDir, result: tuple[int, int] | UncopiedFile | None) -> None:
        if isinstance(result, UncopiedFile):
            log_dir.failed.append(result)
        elif result is not None:
            sent, skipped = result
            log_dir.files += skipped < 0
            log_dir.size_bytes += sent
            log_dir.skipped_files += skipped >= 0
            log_dir.skipped_bytes += max(0, skipped)

    def _jobs(self, log_dir: CopiedLogDir, is_chosen: PartitionChoice) -> list[_Job]:
        return sorted(self._below(log_dir, log_dir.log_dir, "", is_chosen), key=lambda job: job.key)

    def _below(
        self, log_dir: CopiedLogDir, path: str, prefix: str, is_chosen: PartitionChoice
    ) -> Iterator[_Job]:
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            log_dir.failed.append(UncopiedFile(file=path, position=None, error=str(error.strerror or error)))
            return
        for entry in found:
            if entry.name in _LEFT_OUT or entry.name.endswith(TEMPORARY_SUFFIX):
                continue
            if entry.is_dir(follow_symlinks=False):
                if prefix or _is_wanted(entry.name, is_chosen):
                    yield from self._below(log_dir, entry.path, f"{prefix}{entry.name}/", is_chosen)
            elif entry.is_file():
                yield _Job(entry.path, f"{log_dir.folder}/{prefix}{entry.name}")
            else:
                self.warnings.append(f"{entry.path}: not a file, and left out")

    def _copy_unless_stopped(
        self, manifest: CopyManifest, job: _Job
    ) -> tuple[int, int] | UncopiedFile | None:
        if self._stop.signal_number:
            return None
        try:
            return self._copy(job, manifest)
        except InterruptedRecoveryError:
            return None

    def _copy(self, job: _Job, manifest: CopyManifest) -> tuple[int, int] | UncopiedFile:
        """Copy a file; return the bytes that were sent, and those that were there (-1: it was sent)."""
        try:
            descriptor = open_file(job.path)
        except OSError as error:
            return UncopiedFile(file=job.path, position=None, error=str(error.strerror or error))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return UncopiedFile(file=job.path, position=None, error="not a regular file")
            if self._is_there(job, status, descriptor, manifest):
                return 0, status.st_size
            source = ReadFile(descriptor, status.st_size, self._limit, self._stop)
            try:
                self._store.send(job.key, source, status.st_size)
            except OSError:
                if source.error is None:
                    raise  # of the output
                return self._keep_part(job, descriptor, source)
            manifest.note(job.key, _copied(status, source.sha256()))
            return status.st_size, -1
        finally:
            os.close(descriptor)

    def _is_there(self, job: _Job, status: os.stat_result, descriptor: int, manifest: CopyManifest) -> bool:
        """Return whether the output has a file: as it was when it was copied, or with the same bytes."""
        before = manifest.get(job.key)
        if before is None or before.size_bytes != status.st_size:
            return False
        try:
            if self._store.stat(job.key).size_bytes != status.st_size:
                return False
        except FileNotFoundError:
            return False
        if (before.mtime_ns, before.inode) == (status.st_mtime_ns, status.st_ino):
            return True
        source = ReadFile(descriptor, status.st_size, self._limit, self._stop)
        with suppress(OSError):
            while source.read(_HASHED_BYTES):
                pass
        if source.error is None and source.sha256() == before.sha256:
            manifest.note(job.key, _copied(status, before.sha256))
            return True
        return False

    def _keep_part(self, job: _Job, descriptor: int, source: ReadFile) -> UncopiedFile:
        """Copy what of a file comes before the byte that cannot be read."""
        assert source.error is not None
        kept = 0
        if source.position:
            part = ReadFile(descriptor, source.position, self._limit, self._stop)
            try:
                self._store.send(job.key + PARTIAL_SUFFIX, part, source.position)
                kept = source.position
            except OSError:
                if part.error is None:
                    raise
        return UncopiedFile(
            file=job.path,
            position=source.position,
            error=str(source.error.strerror or source.error),
            kept_bytes=kept,
        )


def _copied(status: os.stat_result, sha256: str) -> CopiedFile:
    return CopiedFile(status.st_size, status.st_mtime_ns, status.st_ino, sha256)


def _folders(log_dirs: Sequence[str]) -> Mapping[str, str]:
    """Return a name for each log dir at the output: its own, with a number if another one has it, too."""
    taken: dict[str, str] = {}
    for log_dir in log_dirs:
        name = base = os.path.basename(log_dir.rstrip("/")) or "log-dir"
        number = 1
        while name in taken.values() or name == MANIFEST_KEY:
            number += 1
            name = f"{base}-{number}"
        taken[log_dir] = name
    return taken


def _is_wanted(folder: str, is_chosen: PartitionChoice) -> bool:
    """Return whether a folder of a log dir is copied: with a choice only the folders of partitions that are chosen."""
    try:
        name = read_folder_name(folder)
    except FileNameError:
        return is_chosen.is_everything
    where = PartitionPrefix(prefix=f"{folder}/", topic=name.topic, partition=name.partition, folder=folder)
    return is_chosen(where)
