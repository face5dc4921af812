"""What `archive restore` has done, or would do."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recovery.logdir.quarantine_place import given_place
from recovery.printable import printable
from recovery.quantity import bytes_text, count_text

REPORT_VERSION = 1
FINISHED_TEXT = "moved in what an interrupted run had fetched"
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

    def lines(self, *, dry_run: bool) -> list[str]:
        """Return it as text."""
        name = f"{self.topic}-{self.partition}"
        if self.status in ("refused", "failed"):
            return [f"{self.status.upper()} {name}: {'; '.join(self.reasons)}"]
        done = _done_text(self.status, dry_run=dry_run)
        size = f"{count_text(self.segments, 'segment')}, {bytes_text(self.size_bytes)}"
        epochs = "" if self.leader_epochs is None else f", leader epochs {self.leader_epochs}"
        lines = [f"{name}: {done} in {self.log_dir} ({self.mode}): {size}, {self._offsets()}{epochs}"]
        if self.retained is not None and self.retained[0]:
            lines.append(
                f"  RETENTION would delete {count_text(self.retained[0], 'segment')}, "
                f"{bytes_text(self.retained[1])}, within minutes of the broker's start. Remedy: raise retention.ms and "
                "retention.bytes of the topic before"
            )
        return [*lines, *(f"  warning: {text}" for text in self.warnings)]

    def _offsets(self) -> str:
        if self.log_end_offset is None:
            end = "its last one" if self.status == "unchanged" else "the last one archived"
            return f"offsets {self.log_start_offset} to {end}"
        if self.log_end_offset == self.log_start_offset:
            return f"empty, the next offset is {self.log_end_offset}"
        return f"offsets {self.log_start_offset} to {self.log_end_offset - 1}"


def _done_text(status: Status, *, dry_run: bool) -> str:
    return {"restored": "to be restored" if dry_run else "restored", "unchanged": "there already"}.get(
        status, status
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRestore:
    """What an interrupted run had fetched, and this one has moved in before its own work.

    Attributes:
        partitions: their folders.
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
        quarantine: the run's folder, for `undo`; None if nothing was changed there besides.
        error: the I/O error that ended the work there, None if none did.
    """

    log_dir: str
    is_cordoned: bool
    needed_bytes: int
    usable_bytes: int | None
    finished: FinishedRestore | None = None
    quarantine: str | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "logDir": self.log_dir,
            "isCordoned": self.is_cordoned,
            "neededBytes": self.needed_bytes,
            "usableBytes": -1 if self.usable_bytes is None else self.usable_bytes,
            "finished": None if self.finished is None else self.finished.to_json(),
            "quarantine": self.quarantine,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The whole run.

    Attributes:
        in_part: log dirs of which the archive may not have all partitions, a sentence each.
        signal_number: the signal that ended the run early, None if it came to its end.
    """

    dry_run: bool
    log_dirs: Sequence[RestoredLogDir]
    partitions: Sequence[RestoredPartition]
    warnings: Sequence[str] = ()
    in_part: Sequence[str] = ()
    signal_number: int | None = None

    @property
    def exit_code(self) -> int:
        """0: all is there; 1: an I/O error in every log dir; 4: in some, or partitions were refused or failed.

        130 or 143: interrupted.
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
            "logDirs": [log_dir.to_json() for log_dir in self.log_dirs],
            "partitions": [partition.to_json() for partition in self.partitions],
        }
        return json.dumps(document, indent=2)

    def to_text(self) -> str:
        """Return the report as text, problems first."""
        lines = []
        if self.signal_number is not None:
            lines.append(f"INTERRUPTED by signal {self.signal_number}: start again to resume")
        lines += [f"NOT WHOLE {text}" for text in self.in_part]
        lines += [f"OFFLINE {one.log_dir}: {one.error}" for one in self.log_dirs if one.error is not None]
        lines += [
            f"FINISHED {one.log_dir}: {FINISHED_TEXT}: {', '.join(one.finished.partitions)}"
            for one in self.log_dirs
            if one.finished is not None
        ]
        ordered = sorted(self.partitions, key=lambda one: one.status not in ("refused", "failed"))
        lines += [line for one in ordered for line in one.lines(dry_run=self.dry_run)]
        lines += [f"warning: {text}" for text in self.warnings]
        for log_dir in self.log_dirs:
            usable = "unknown" if log_dir.usable_bytes is None else bytes_text(log_dir.usable_bytes)
            cordoned = ", cordoned" if log_dir.is_cordoned else ""
            lines.append(
                f"{log_dir.log_dir}: {bytes_text(log_dir.needed_bytes)} needed, {usable} usable{cordoned}"
            )
        counts = Counter(one.status for one in self.partitions)
        summary = ", ".join(
            f"{counts[status]} {_done_text(status, dry_run=self.dry_run)}"
            for status in get_args(Status)
            if counts[status]
        )
        lines.append(
            f"{count_text(len(self.partitions), 'partition')}: {summary or 'nothing to do'}. {self._next()}"
        )
        lines += self._ways_back()
        return "\n".join(map(printable, lines))

    def _next(self) -> str:
        """Return what the operator does next."""
        if self.dry_run:
            return "Nothing was written (dry run)."
        if self.exit_code == 0:
            return "Start the broker now."
        return (
            "A broker that is started now begins empty what is not there, or fetches it from other replicas."
        )

    def _ways_back(self) -> Iterator[str]:
        """Yield commands that take back what was done, for log dirs with the same place of quarantine together."""
        places: dict[tuple[str | None, int], list[str]] = {}
        for one in self.log_dirs:
            runs = {one.quarantine, None if one.finished is None else one.finished.quarantine} - {None}
            for place, count in Counter(given_place(one.log_dir, run) for run in runs if run).items():
                places.setdefault((place, count), []).append(one.log_dir)
        for (place, count), log_dirs in places.items():
            options = f"--log-dirs {shlex.quote(','.join(log_dirs))}"
            if place is not None:
                options += f" --quarantine-dir {shlex.quote(place)}"
            this = "this takes it back" if count == 1 else f"this, {count} times, takes it back run by run"
            yield f"{this}: kafka-log-recovery undo {options}"
