"""One file, from its log dir to the output: whole, or up to where it can be read. Nothing at the output is lost.

* A whole copy stays until there is another whole one, also of the file as it was before it changed. If the file has
  lost bytes since, it stays under another name, as the beginning of a file does.
* The beginning of a file stays until there is a longer one, or all of it, and under another name if that does not
  begin with it. Where its next block cannot be read, that block is all that is read of the file again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from recovery.archive.copy.earlier import Ending, KeptCopy, StoredBytes, earlier_keys, is_lost, sha256_at
from recovery.archive.copy.listing import FoundFile
from recovery.archive.copy.manifest import CopiedFile, CopyManifest, FileFigures
from recovery.archive.copy.output import NAME_ERRNOS
from recovery.archive.copy.reading import ReadFile, block_error
from recovery.archive.copy.report import EarlierCopy, UncopiedFile
from recovery.archive.stores.store import OutputStore
from recovery.errors import InterruptedRecoveryError, reason_text
from recovery.read.file_system import open_unseen
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest

_HASHED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """A file, and what the output has of it.

    Attributes:
        there_bytes: size of the object with its key, None without one.
        part_key: of its beginning, if the rest cannot be read.
        part_bytes: size of the object with that key, None without one.
    """

    file: FoundFile
    there_bytes: int | None
    part_key: str
    part_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcome:
    """What has become of a file: one of the first three.

    Attributes:
        sent_bytes: that were sent: all of it.
        there_bytes: that were there already: all of it, under another time.
        kept: earlier copies that stay, as the file has lost bytes of them.
    """

    job: CopyJob
    sent_bytes: int | None = None
    there_bytes: int | None = None
    failed: UncopiedFile | None = None
    warning: str = ""
    kept: tuple[KeptCopy, ...] = ()


class FileCopier:
    """Copies files, from any thread.

    Args:
        store: the output.
        manifest: told what is there.
        limit: on the reads of all threads together.
        on_bytes: told how many bytes of a file were read, each time.
        taken: the keys of all files.
    """

    def __init__(
        self,
        store: OutputStore,
        manifest: CopyManifest,
        limit: RateLimit,
        stop: StopRequest,
        on_bytes: Callable[[FoundFile, int], None],
        taken: Container[str],
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._limit = limit
        self._stop = stop
        self._on_bytes = on_bytes
        self._taken = taken

    def is_there(self, job: CopyJob) -> bool:
        """Return whether the output has a file as it is now, as far as that is known without reading it."""
        figures, earlier = job.file.figures, self._manifest.get(job.file.key)
        return (
            figures is not None
            and earlier is not None
            and not self._manifest.is_doubtful(job.file.key)
            and job.there_bytes == figures.size_bytes
            and earlier.figures == figures
        )

    def copy(self, job: CopyJob) -> CopyOutcome | None:
        """Copy a file; return None if the run is to end before.

        Raises:
            OSError: of the output.
        """
        if self._stop.is_made:
            return None
        path = job.file.path
        try:
            descriptor = open_unseen(path)
        except OSError as error:
            return self._unopened(job, error)
        try:
            return self._copy(job, descriptor)
        except InterruptedRecoveryError:
            return None
        finally:
            with suppress(OSError):
                os.close(descriptor)

    def _copy(self, job: CopyJob, descriptor: int) -> CopyOutcome:
        try:
            figures = FileFigures.of(os.fstat(descriptor))
        except OSError as error:
            return self._unopened(job, error)
        if figures.size_bytes < job.file.size_bytes:
            return self._unopened(job, OSError(errno.EIO, "the file became shorter after it was listed"))
        try:
            return self._as_before(job, descriptor, figures) or self._send(job, descriptor, figures)
        except OSError as error:
            if error.errno not in NAME_ERRNOS:
                raise
            detail = f"the output does not take its name: {error.strerror}"
            return self._unopened(job, OSError(error.errno, detail))

    def _unopened(self, job: CopyJob, error: OSError) -> CopyOutcome:
        failed = UncopiedFile.of(job.file.path, error)
        return self._failed(job, job.file.figures, failed.error, None)

    def _as_before(self, job: CopyJob, descriptor: int, figures: FileFigures) -> CopyOutcome | None:
        """Return the outcome of an earlier run if it is that of this one, too; None if there is more to be had."""
        part = self._manifest.part(job.file.key)
        if (
            part is None
            or part.kept_bytes is None
            or part.kept_bytes != job.part_bytes
            or part.figures != figures
        ):
            return None
        error = block_error(descriptor, part.kept_bytes)
        if error is None:
            return None
        return self._failed(job, figures, reason_text(error), part.kept_bytes)

    def _send(self, job: CopyJob, descriptor: int, figures: FileFigures) -> CopyOutcome:
        key, size_bytes = job.file.key, figures.size_bytes
        kept: list[KeptCopy] = []
        earlier = self._manifest.get(key)
        if earlier is not None and earlier.size_bytes == size_bytes == job.there_bytes:
            source = self._source(job, descriptor, size_bytes, self._stored_part(job))
            while source.read(_HASHED_BYTES):
                pass
            if source.error is not None:
                return self._keep(job, descriptor, figures, source, "", kept)
            if source.sha256() == self._sha256_there(key, earlier):
                kept.extend(self._kept(job, figures, self._stored_part(job), source))
                self._note(job, figures, source)
                return CopyOutcome(job=job, there_bytes=size_bytes, kept=tuple(kept))
        stored = [*self._stored_whole(job), *self._stored_part(job)]
        source = self._source(job, descriptor, size_bytes, stored)
        ending = Ending(source, lambda: kept.extend(self._kept(job, figures, stored, source)))
        try:
            sent_as = self._store.send(
                key, ending, size_bytes, part_key=lambda: self._part_key(job, figures, source, kept)
            )
        except OSError as error:
            if source.error is None or error.errno not in NAME_ERRNOS:
                raise
            sent_as = ""
        if source.error is not None:
            return self._keep(job, descriptor, figures, source, sent_as, kept)
        self._note(job, figures, source)
        warning = _change_text(job, descriptor, figures)
        return CopyOutcome(job=job, sent_bytes=size_bytes, warning=warning, kept=tuple(kept))

    def _stored_whole(self, job: CopyJob) -> list[StoredBytes]:
        """Return the object that is about to be replaced, if there is one."""
        if job.there_bytes is None:
            return []
        named = self._manifest.earlier(job.file.key)
        is_named = named is not None and named.size_bytes == job.there_bytes
        sha256 = self._sha256_there(job.file.key, named) if named is not None and is_named else ""
        return [StoredBytes(key=job.file.key, size_bytes=job.there_bytes, sha256=sha256)]

    def _sha256_there(self, key: str, named: CopiedFile) -> str:
        """Return the SHA-256 of an object that the manifest names; it is read if it may be another one."""
        return sha256_at(self._store, key) if self._manifest.is_doubtful(key) else named.sha256

    def _stored_part(self, job: CopyJob) -> list[StoredBytes]:
        """Return the beginning of the file that becomes needless, if there is one."""
        if job.part_bytes is None:
            return []
        named = self._manifest.earlier_part(job.file.key)
        is_named = named is not None and named.kept_bytes == job.part_bytes
        sha256 = named.sha256 if named is not None and is_named else ""
        return [StoredBytes(key=job.part_key, size_bytes=job.part_bytes, sha256=sha256)]

    def _kept(
        self, job: CopyJob, figures: FileFigures, stored: Iterable[StoredBytes], source: ReadFile
    ) -> Iterator[KeptCopy]:
        """Keep those objects of which bytes are not in the file any more, before their own keys are taken."""
        key = job.file.key
        for one in stored:
            if is_lost(os.path.basename(key), one, source, is_cleaned=job.file.is_cleaned):
                yield KeptCopy(
                    file=job.file.path,
                    size_bytes=figures.size_bytes,
                    earlier_bytes=one.size_bytes,
                    kept_as=self._store.keep(one.key, earlier_keys(key, self._taken)),
                )

    def _source(
        self, job: CopyJob, descriptor: int, size_bytes: int, stored: Iterable[StoredBytes]
    ) -> ReadFile:
        return ReadFile(
            descriptor,
            size_bytes,
            self._limit,
            self._stop,
            on_bytes=lambda count: self._on_bytes(job.file, count),
            marks=[one.size_bytes for one in stored],
        )

    def _note(self, job: CopyJob, figures: FileFigures, source: ReadFile) -> None:
        copied = CopiedFile(figures, source.sha256())
        needless = "" if job.part_bytes is None else job.part_key
        self._manifest.note(job.file.key, copied, at=job.file.key, needless=needless)

    def _wanted_part(self, job: CopyJob, source: ReadFile) -> str:
        """Return the key for what could be read of a file; empty if the output has more of it, or the same."""
        if not source.position or source.position < (job.part_bytes or 0) or self._is_kept(job, source):
            return ""
        return job.part_key

    def _part_key(self, job: CopyJob, figures: FileFigures, source: ReadFile, kept: list[KeptCopy]) -> str:
        """As `_wanted_part`; what the output has of the file stays, too, if what could be read does not begin so."""
        wanted = self._wanted_part(job, source)
        if wanted and not kept:
            kept.extend(self._kept(job, figures, self._stored_part(job), source))
        return wanted

    def _is_kept(self, job: CopyJob, source: ReadFile) -> bool:
        """Return whether the output has the very bytes that could be read of a file."""
        part = self._manifest.part(job.file.key)
        return part is not None and source.position == job.part_bytes and part.sha256 == source.sha256()

    def _keep(
        self,
        job: CopyJob,
        descriptor: int,
        figures: FileFigures,
        source: ReadFile,
        sent_as: str,
        kept: list[KeptCopy],
    ) -> CopyOutcome:
        """Have what comes before the bad byte at the output: it is read again if that does not hold it any more."""
        assert source.error is not None
        read, marks = source, [one.size_bytes for one in self._stored_part(job)]
        while not sent_as and (wanted := self._part_key(job, figures, read, kept)):
            size_bytes = read.position
            read = ReadFile(descriptor, size_bytes, self._limit, self._stop, marks=marks)
            try:
                sent_as = self._store.send(wanted, read, size_bytes)
            except OSError as error:
                if error.errno not in NAME_ERRNOS:
                    raise
                break
        detail = reason_text(source.error)
        if sent_as or self._is_kept(job, read):
            copied = CopiedFile(figures, read.sha256(), kept_bytes=read.position)
            self._manifest.note(job.file.key, copied, at=sent_as or job.part_key)
        kept_bytes = read.position if sent_as else None
        return self._failed(job, figures, detail, source.position, kept_bytes=kept_bytes, kept=kept)

    def _failed(
        self,
        job: CopyJob,
        figures: FileFigures | None,
        error: str,
        position: int | None,
        *,
        kept_bytes: int | None = None,
        kept: Iterable[KeptCopy] = (),
    ) -> CopyOutcome:
        """Return the outcome of a file that cannot be read whole; *kept_bytes* of it were sent by this run."""
        self._manifest.set_unsent(job.file.key)
        there_bytes = (job.part_bytes or 0) if kept_bytes is None else kept_bytes
        failed = UncopiedFile(
            file=job.file.path,
            position=position,
            error=error,
            kept_bytes=there_bytes,
            kept_as=job.part_key if there_bytes else "",
            is_kept_earlier=kept_bytes is None and there_bytes > 0,
            earlier_copy=self._earlier_copy(job, figures),
        )
        return CopyOutcome(job=job, failed=failed, kept=tuple(kept))

    def _earlier_copy(self, job: CopyJob, figures: FileFigures | None) -> EarlierCopy | None:
        if job.there_bytes is None:
            return None
        earlier = self._manifest.earlier(job.file.key)
        if (
            earlier is None
            or earlier.size_bytes != job.there_bytes
            or self._manifest.is_doubtful(job.file.key)
        ):
            return "unknown"
        return "same" if earlier.figures == figures else "older"


def _change_text(job: CopyJob, descriptor: int, before: FileFigures) -> str:
    """Return what there is to say if a file has changed since it was opened, as locks keep only brokers out."""
    with suppress(OSError):
        if FileFigures.of(os.fstat(descriptor)) != before:
            return (
                f"{job.file.path}: written to while it was copied. Remedy: find out by whom, and start again"
            )
    return ""
