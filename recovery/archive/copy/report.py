"""What `archive copy` has copied, what it could not read, and what it has not come to."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from recovery.alike_lines import alike_lines
from recovery.archive.copy.earlier import KeptCopy
from recovery.errors import AS_BROKERS_USER, FULL_ERRNOS, error_text, reason_text
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

REPORT_VERSION = 1
_GONE = "Remedy: see that the log dir is still mounted, and that nobody works in it, and start again"

EarlierCopy = Literal["same", "older", "unknown"]
"""A whole copy that stays at the output: of the file as it is now, as it was once, or not named by the manifest."""
_EARLIER: dict[EarlierCopy, str] = {
    "same": "an earlier copy of it as it is now stays at the output",
    "older": "a copy of it as it was before it changed stays at the output",
    "unknown": "a copy of it that the manifest does not name stays at the output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UncopiedFile:
    """A file, or a folder, that could not be copied whole.

    Attributes:
        position: of the first byte that could not be read; None if it could not be opened or listed.
        kept_bytes: how many of its first bytes are at the output, as `kept_as`.
        is_kept_earlier: whether an earlier run has put them there.
        earlier_copy: which whole copy is at the output, None if there is none.
    """

    file: str
    position: int | None
    error: str
    kept_bytes: int = 0
    kept_as: str = ""
    is_kept_earlier: bool = False
    earlier_copy: EarlierCopy | None = None

    @classmethod
    def of(cls, file: str, error: OSError) -> Self:
        """Return what could not be opened, listed or given a name at the output."""
        text = reason_text(error)
        if isinstance(error, FileNotFoundError) and text == os.strerror(errno.ENOENT):
            text = f"it is gone since it was listed. {_GONE}"
        return cls(
            file=file,
            position=None,
            error=f"{text}. Remedy: {AS_BROKERS_USER}" if isinstance(error, PermissionError) else text,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "file": self.file,
            "position": self.position,
            "error": self.error,
            "keptBytes": self.kept_bytes,
            "keptAs": self.kept_as or None,
            "isKeptEarlier": self.is_kept_earlier,
            "earlierCopy": self.earlier_copy,
        }

    def to_text(self) -> str:
        """Return the text form, one line."""
        text = f"NOT COPIED {self.file}"
        if self.position is not None:
            text += f" from position {self.position} on"
        text += f": {self.error}"
        if self.kept_bytes:
            by = "an earlier run has kept " if self.is_kept_earlier else ""
            kept = "" if self.is_kept_earlier else " are kept"
            text += f"; {by}{bytes_text(self.kept_bytes)} from its beginning{kept} as {self.kept_as}"
        return text if self.earlier_copy is None else f"{text}; {_EARLIER[self.earlier_copy]}"


@dataclass(slots=True, kw_only=True)
class CopiedLogDir:
    """One log dir.

    Attributes:
        folder: its name at the output.
        files, size_bytes: that were sent by this run.
        skipped_files, skipped_bytes: that were there already.
        left_files, left_bytes: that the run has not come to, because it was interrupted.
        is_listed: whether it is known what is in it.
        kept: earlier copies that stay at the output, since their files have lost bytes.
    """

    log_dir: str
    folder: str
    files: int = 0
    size_bytes: int = 0
    skipped_files: int = 0
    skipped_bytes: int = 0
    left_files: int = 0
    left_bytes: int = 0
    is_listed: bool = False
    failed: list[UncopiedFile] = field(default_factory=list)
    kept: list[KeptCopy] = field(default_factory=list)

    @property
    def unlisted_folders(self) -> Iterator[str]:
        """The folders that could not be listed, as they would be at the output."""
        for failed in self.failed:
            path = os.path.relpath(failed.file, self.log_dir)
            yield f"{self.folder}/" if path == "." else f"{self.folder}/{path}/"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "logDir": self.log_dir,
            "folder": self.folder,
            "files": self.files,
            "bytes": self.size_bytes,
            "skippedFiles": self.skipped_files,
            "skippedBytes": self.skipped_bytes,
            "leftFiles": self.left_files if self.is_listed else None,
            "leftBytes": self.left_bytes if self.is_listed else None,
            "failed": [one.to_json() for one in self.sorted_failures()],
            "kept": [one.to_json() for one in self.kept],
        }

    def to_text(self, output: str, *, is_durable: bool) -> str:
        """Return the text form, one line; *is_durable*: whether what was sent is known to be on disk."""
        if not self.is_listed and not self.files:
            return f"{self.log_dir}: nothing copied; what it has is not known"
        verb = "copied" if is_durable else "sent"
        text = (
            f"{self.log_dir}: {count_text(self.files, 'file')}, {bytes_text(self.size_bytes)}, {verb} to "
            f"{output}/{self.folder}"
        )
        if self.skipped_files:
            text += (
                f"; {count_text(self.skipped_files, 'file')}, {bytes_text(self.skipped_bytes)}, there already"
            )
        if self.left_files:
            text += f"; {count_text(self.left_files, 'file')}, {bytes_text(self.left_bytes)}, left"
        return text

    def sorted_failures(self) -> list[UncopiedFile]:
        """Return what could not be copied, by path."""
        return sorted(self.failed, key=lambda one: one.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """The whole run.

    Attributes:
        signal_number: the signal that ended the run early, None if it came to its end.
        error: of the output, which ended it; None if none did.
    """

    output: str
    log_dirs: Sequence[CopiedLogDir]
    warnings: Sequence[str] = ()
    signal_number: int | None = None
    error: OSError | None = None

    @property
    def exit_code(self) -> int:
        """1: the output failed; 129, 130 or 143: interrupted; 4: some could not be read; 0: all is there."""
        if self.error is not None:
            return 1
        if self.signal_number is not None:
            return 128 + self.signal_number
        return 4 if any(one.failed for one in self.log_dirs) else 0

    def to_json(self) -> str:
        """Return the report as JSON."""
        document = {
            "version": REPORT_VERSION,
            "command": "archive copy",
            "exitCode": self.exit_code,
            "output": self.output,
            "error": None if self.error is None else error_text(self.error),
            "warnings": list(self.warnings),
            "logDirs": [one.to_json() for one in self.log_dirs],
        }
        return json.dumps(document, indent=2)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report as text, problems first.

        Args:
            verbosity: -1: problems alone; 0: what is the same of many files, or too long for a screen, is counted;
                1: all are there.
        """
        lines = []
        if self.error is not None:
            if self.error.errno in (errno.EEXIST, errno.ENOTDIR):
                remedy = "name a folder with --output, or one that is to be made"
            else:
                remedy = "make room there" if self.error.errno in FULL_ERRNOS else "see to the output"
                remedy += ", and start again: what is on disk there, by its manifest, is not sent again"
            lines.append(f"FAILED {error_text(self.error)}. Remedy: {remedy}")
        if self.signal_number is not None:
            lines.append(f"INTERRUPTED by signal {self.signal_number}: start again to resume")
        failures = (failed for one in self.log_dirs for failed in one.sorted_failures())
        told = ((failed.error, failed.to_text()) for failed in failures)
        lines += alike_lines(told, "file", is_each=verbosity > 0)
        lines += [f"warning: {text}" for text in self.warnings]
        if verbosity >= 0:
            lines += [one.to_text(self.output, is_durable=self.error is None) for one in self.log_dirs]
        return "\n".join(map(printable, lines))
