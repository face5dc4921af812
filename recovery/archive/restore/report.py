"""What `archive restore` has done, or would do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recovery.archive.restore.report_text import text_lines
from recovery.printable import printable

REPORT_VERSION = 1
Mode = Literal["full", "aux"]
Status = Literal["restored", "unchanged", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """What became of one partition.

    Attributes:
        log_dir: None where it was refused before one was chosen.
        segments, size_bytes: of its log in the log dir.
        retained: segments and bytes that retention would delete at its first check; None if not known.
    """

    topic: str
    partition: int
    topic_id: str
    mode: Mode
    status: Status
    log_dir: str | None = None
    segments: int = 0
    size_bytes: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    leader_epochs: Literal["kept", "renumbered"] | None = None
    retained: tuple[int, int] | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        retained = self.retained
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topicId": self.topic_id,
            "logDir": self.log_dir,
            "mode": self.mode,
            "status": self.status,
            "segments": self.segments,
            "bytes": self.size_bytes,
            "logStartOffset": self.log_start_offset,
            "logEndOffset": self.log_end_offset,
            "leaderEpochs": self.leader_epochs,
            "retention": None if retained is None else {"segments": retained[0], "bytes": retained[1]},
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRestore:
    """What an interrupted run had fetched, and this one has moved in before its own work.

    Attributes:
        partitions: their folders, of those that are in place.
        quarantine: the run's folder, for `undo`: that of the interrupted run, if it goes on.
    """

    partitions: Sequence[str]
    quarantine: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"partitions": list(self.partitions), "quarantine": self.quarantine}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredLogDir:
    """One log dir of the broker.

    Attributes:
        needed_bytes: at most, for what goes there.
        usable_bytes: that were free there for the broker's user; None if not known.
        finished: of an interrupted run; None if there was none.
        earlier: the folder of an interrupted run that was done there, for `undo`; None if there was none.
        quarantine: the run's folder, for `undo`; None if nothing was changed there besides.
        error: the I/O error that ended the work there, None if none did.
    """

    log_dir: str
    is_cordoned: bool
    needed_bytes: int
    usable_bytes: int | None
    finished: FinishedRestore | None = None
    earlier: str | None = None
    quarantine: str | None = None
    error: str | None = None

    @property
    def kept_runs(self) -> tuple[str, ...]:
        """The folders of the runs that `undo` takes back: this one's, then that of one that it goes on with."""
        runs = (self.quarantine, None if self.finished is None else self.finished.quarantine, self.earlier)
        return tuple(dict.fromkeys(run for run in runs if run is not None))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "logDir": self.log_dir,
            "isCordoned": self.is_cordoned,
            "neededBytes": self.needed_bytes,
            "usableBytes": -1 if self.usable_bytes is None else self.usable_bytes,
            "finished": None if self.finished is None else self.finished.to_json(),
            "earlierQuarantine": self.earlier,
            "quarantine": self.quarantine,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The whole run.

    Attributes:
        in_part: log dirs of which the archive may not have all partitions, a sentence each.
        unclean_dirs: log dirs without a clean-shutdown marker, in which there are other logs.
        signal_number: the signal that ended the run early, None if it came to its end.
    """

    dry_run: bool
    log_dirs: Sequence[RestoredLogDir]
    partitions: Sequence[RestoredPartition]
    warnings: Sequence[str] = ()
    in_part: Sequence[str] = ()
    unclean_dirs: Sequence[str] = ()
    signal_number: int | None = None

    @property
    def exit_code(self) -> int:
        """0: all is there; 1: an I/O error in every log dir; 4: in some, or partitions were refused or failed.

        129, 130 or 143: interrupted.
        """
        if self.signal_number is not None:
            return 128 + self.signal_number
        if all(one.error is not None for one in self.log_dirs):
            return 1
        if self.in_part or any(one.error is not None for one in self.log_dirs):
            return 4
        return 4 if any(one.status in ("refused", "failed") for one in self.partitions) else 0

    def to_json(self) -> str:
        """Return the report as JSON."""
        document = {
            "version": REPORT_VERSION,
            "command": "archive restore",
            "dryRun": self.dry_run,
            "exitCode": self.exit_code,
            "warnings": [*self.in_part, *self.warnings],
            "uncleanDirs": list(self.unclean_dirs),
            "logDirs": [log_dir.to_json() for log_dir in self.log_dirs],
            "partitions": [partition.to_json() for partition in self.partitions],
        }
        return json.dumps(document, indent=2)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report as text, problems first.

        Args:
            verbosity: -1: problems alone; 1: each partition.
        """
        return "\n".join(map(printable, text_lines(self, verbosity)))
