"""What `archive copy` has copied, and what it could not read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UncopiedFile:
    """A file, or a folder, that could not be copied whole.

    Attributes:
        position: of the first byte that could not be read; None if it could not be opened or listed.
        kept_bytes: that were copied, under its name with `.partial`.
    """

    file: str
    position: int | None
    error: str
    kept_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "file": self.file,
            "position": self.position,
            "error": self.error,
            "keptBytes": self.kept_bytes,
        }


@dataclass(slots=True, kw_only=True)
class CopiedLogDir:
    """One log dir.

    Attributes:
        folder: its name at the output.
        files, size_bytes: that were sent by this run.
        skipped_files, skipped_bytes: that were there already.
    """

    log_dir: str
    folder: str
    files: int = 0
    size_bytes: int = 0
    skipped_files: int = 0
    skipped_bytes: int = 0
    failed: list[UncopiedFile] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "logDir": self.log_dir,
            "folder": self.folder,
            "files": self.files,
            "bytes": self.size_bytes,
            "skippedFiles": self.skipped_files,
            "skippedBytes": self.skipped_bytes,
            "failed": [one.to_json() for one in self.failed],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """The whole run."""

    output: str
    log_dirs: Sequence[CopiedLogDir]
    warnings: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """0: all is there; 4: some could not be read."""
        return 4 if any(one.failed for one in self.log_dirs) else 0

    def to_json(self) -> str:
        """Return the report as JSON."""
        document = {
            "version": REPORT_VERSION,
            "command": "archive copy",
            "exitCode": self.exit_code,
            "output": self.output,
            "warnings": list(self.warnings),
            "logDirs": [one.to_json() for one in self.log_dirs],
        }
        return json.dumps(document, indent=2)

    def to_text(self) -> str:
        """Return the report as text, problems first."""
        lines = [
            f"NOT COPIED {failed.file}"
            + ("" if failed.position is None else f" from position {failed.position} on")
            + f": {failed.error}"
            + (
                f"; {bytes_text(failed.kept_bytes)} before it are kept as .partial"
                if failed.kept_bytes
                else ""
            )
            for one in self.log_dirs
            for failed in one.failed
        ]
        lines += [f"warning: {text}" for text in self.warnings]
        for one in self.log_dirs:
            skipped = (
                f"; {count_text(one.skipped_files, 'file')}, {bytes_text(one.skipped_bytes)}, there already"
                if one.skipped_files
                else ""
            )
            lines.append(
                f"{one.log_dir}: {count_text(one.files, 'file')}, {bytes_text(one.size_bytes)}, copied to "
                f"{self.output}/{one.folder}{skipped}"
            )
        return "\n".join(map(printable, lines))
