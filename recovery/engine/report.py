"""What a run did, or would do: values, their exit code, and the two ways of printing them.

The JSON form is an interface: `"version": 1`, names in Kafka's camelCase, nothing that depends on the order of
threads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from recovery.broker.starting_release import StartingRelease
from recovery.engine.loss import amount_text
from recovery.engine.report_text import text_lines
from recovery.load.model import Cut, Hole
from recovery.printable import printable
from recovery.problem import Note, Problem
from recovery.quantity import time_text
from recovery.watch.phases import PhaseTime

Status = Literal["unchanged", "recovered", "truncated", "refused", "failed"]

CUT_LEDGER = ".kafka-log-recovery-cuts"
"""The file of a log dir in which cuts are entered until they are reported; see `recovery/engine/cut_ledger.py`."""

EXIT_DONE, EXIT_ERROR, EXIT_DAMAGE, EXIT_LOCKED, EXIT_PARTIAL = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What became of one partition's folder.

    Attributes:
        status: unchanged; recovered (nothing lost); truncated (batches or whole segments left the live log);
            refused (a broker would halt, or this version must not guess: untouched); failed (an I/O error, or
            not reached after one).
        actions: what was done in the folder, or would be, in order, as text.
        quarantined: paths that now hold what left the log; empty in a dry run.
        to_quarantine: what goes to quarantine, by name, in a dry run as well.
        holes: offsets that are missing in what was read.
        reasons: why something was cut, refused or failed.
        problems: the reasons of a refusal, as values.
        warnings: what the operator should know although nothing is lost.
        pending_deletion_count, pending_deletion_bytes: `.deleted` files of the broker that were removed.
        is_to_be_finished: whether an interrupted run has saved what is cut, and the next one, no dry run, cuts it.
    """

    log_dir: str
    folder: str
    topic: str = ""
    partition: int = -1
    status: Status
    segment_count: int = 0
    scanned_bytes: int = 0
    recovered_segments: int = 0
    recovered_bytes: int = 0
    log_start_offset: int = -1
    log_end_offset: int = -1
    cuts: tuple[Cut, ...] = ()
    holes: tuple[Hole, ...] = ()
    actions: tuple[str, ...] = ()
    to_quarantine: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    pending_deletion_count: int = 0
    pending_deletion_bytes: int = 0
    is_to_be_finished: bool = False
    duration_ms: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether more was done than to remove pending deletions, so that an `undo` stops at this run."""
        return len(self.actions) > self.pending_deletion_count

    @property
    def losses(self) -> tuple[Cut, ...]:
        """The cuts that are a loss: those of preallocated zeros are not."""
        return tuple(cut for cut in self.cuts if not cut.is_preallocated)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of `.log` files that are lost from the live log."""
        return sum(cut.size_bytes for cut in self.losses)

    @property
    def truncated_batches(self) -> int:
        """Record batches among them."""
        return sum(cut.batch_count for cut in self.cuts)

    def to_json(self) -> dict[str, Any]:
        """Return the object of this partition in the JSON report."""
        return {
            "partition": self.folder,
            "status": self.status,
            "segments": {"total": self.segment_count, "recovered": self.recovered_segments},
            "bytes": {"scanned": self.scanned_bytes, "recovered": self.recovered_bytes},
            "logStartOffset": self.log_start_offset,
            "logEndOffset": self.log_end_offset,
            "truncatedBytes": self.truncated_bytes,
            "truncatedBatches": self.truncated_batches,
            "pendingDeletions": {"files": self.pending_deletion_count, "bytes": self.pending_deletion_bytes},
            "cuts": [_cut_to_json(cut) for cut in self.cuts],
            "holes": [hole.to_json() for hole in self.holes],
            "actions": list(self.actions),
            "toQuarantine": list(self.to_quarantine),
            "quarantined": list(self.quarantined),
            "reasons": list(self.reasons),
            "problems": [problem.to_json() for problem in self.problems],
            "warnings": list(self.warnings),
        }


class FileBefore(NamedTuple):
    """A file of a partition before a cut; its inode if the file system keeps inode numbers."""

    file: str
    size_bytes: int
    inode: int | None = None


def move_text(path: str, reason: str) -> str:
    """Return what a report says of a move to quarantine."""
    return f"move {path} to quarantine: {reason}"


class EarlierMove(NamedTuple):
    """What the repair of an earlier run has moved to quarantine, and no run has reported.

    Attributes:
        path: relative to the log dir.
        quarantine: the folder of all runs in which it is kept.
    """

    path: str
    reason: str
    time_ms: int
    quarantine: str
    is_made: bool = False

    @property
    def line(self) -> str:
        """What the report of the run that moves it says."""
        return move_text(self.path, self.reason)

    def __str__(self) -> str:
        return (
            f"{self.path}: moved to {self.quarantine} by --repair of an earlier run, at {time_text(self.time_ms)}: "
            f"{self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCut:
    """What an earlier run has cut from a partition, or found missing there, and no run has reported.

    Attributes:
        partition: its folder; empty if the line in the ledger cannot be read, so that nothing is known.
        time_ms: when that was, ms since 1970.
        quarantine: the folder of that run, which holds what was cut.
        holes: offsets that were missing in what it read.
        kept_in: where that folder is now; None if it is not there.
        is_made: whether that run has entered that the cut was made.
        before: the files that were to be cut; only the ledger uses them.
    """

    partition: str
    time_ms: int
    quarantine: str | None
    kept_in: str | None = None
    cuts: tuple[Cut, ...] = ()
    holes: tuple[Hole, ...] = ()
    is_made: bool = False
    before: tuple[FileBefore, ...] = ()

    @property
    def time_text(self) -> str:
        """When that was, in UTC: "2026-11-21T14:19:06Z"."""
        return time_text(self.time_ms)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of `.log` files that left the live log."""
        return sum(cut.size_bytes for cut in self.cuts)

    @property
    def truncated_batches(self) -> int:
        """Record batches among them."""
        return sum(cut.batch_count for cut in self.cuts)

    @property
    def kept_text(self) -> str:
        """Where what was cut lies; empty if it was not kept."""
        if self.quarantine is None:
            return ""
        if self.kept_in is None:
            return f"was kept in {self.quarantine}, which is not there any more"
        return f"kept in {self.kept_in}"

    def to_json(self) -> dict[str, Any]:
        """Return the object of this cut in the JSON report."""
        return {
            "partition": self.partition,
            "timeMs": self.time_ms,
            "quarantine": self.kept_in,
            "truncatedBytes": self.truncated_bytes,
            "truncatedBatches": self.truncated_batches,
            "cuts": [_cut_to_json(cut) for cut in self.cuts],
            "holes": [hole.to_json() for hole in self.holes],
        }

    def __str__(self) -> str:
        if not self.partition:
            return f"cut by an earlier run: not all of {CUT_LEDGER} can be read. Remedy: see quarantine list"
        when = self.time_text
        if not self.cuts:
            return f"{self.partition}: found by an earlier run, at {when}: {'; '.join(map(str, self.holes))}"
        kept = f"; {self.kept_text}" if self.kept_text else ""
        return f"{self.partition}: cut by an earlier run, at {when}: {amount_text(self.cuts)}{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirReport:
    """What became of one log dir.

    Attributes:
        status: unchanged, recovered, partial (some partitions refused or failed), offline (an I/O error
            ended the work) or interrupted (a signal did).
        marker: whether `.kafka_cleanshutdown` is there now, or would be; None if an I/O error prevents a look.
        repairs: what `--repair` has moved away, or would.
        actions: on the files of the log dir itself.
        passed_over: folders that are left alone.
        not_chosen: folders of logs that are left as they are, since others were chosen.
        warnings: what was ignored or assumed.
        notes: other notes on the dir.
        needed_bytes: what the partitions need on the dir's file system for new files and quarantine, at most.
        free_bytes: what was free there when the run began.
        quarantine_needed_bytes, quarantine_free_bytes: likewise on the file system of a quarantine that is on another
            one; 0 needed if it is on the same.
        problems: why a broker would not start with this dir, or would take it offline, apart from what concerns one
            partition. It may have been recovered all the same.
        earlier_cuts: what earlier runs have cut, or found missing, and not reported.
        is_begun: whether it begins with the journal of an interrupted run: `undo` refuses until one has ended.
    """

    log_dir: str
    status: Literal["unchanged", "recovered", "partial", "offline", "interrupted"]
    had_clean_shutdown: bool
    marker: bool | None
    partitions: tuple[PartitionReport, ...]
    repairs: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    quarantine: str | None = None
    passed_over: tuple[str, ...] = ()
    not_chosen: tuple[str, ...] = ()
    error: str | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    needed_bytes: int = 0
    free_bytes: int = 0
    quarantine_needed_bytes: int = 0
    quarantine_free_bytes: int = 0
    earlier_cuts: tuple[EarlierCut, ...] = ()
    is_begun: bool = False

    @property
    def all_notes(self) -> tuple[Note, ...]:
        """The warnings as notes, and the other notes."""
        return (*(Note(text=warning) for warning in self.warnings), *self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the object of this log dir in the JSON report."""
        return {
            "logDir": self.log_dir,
            "status": self.status,
            "error": self.error,
            "problems": [problem.to_json() for problem in self.problems],
            "hadCleanShutdown": self.had_clean_shutdown,
            "cleanShutdownMarker": self.marker,
            "quarantine": self.quarantine,
            "leftAlone": list(self.passed_over),
            "notChosen": list(self.not_chosen),
            "actions": [*self.repairs, *self.actions],
            "warnings": list(self.warnings),
            "notes": [note.to_json() for note in self.all_notes],
            "neededBytes": self.needed_bytes,
            "freeBytes": self.free_bytes,
            "quarantineNeededBytes": self.quarantine_needed_bytes,
            "quarantineFreeBytes": self.quarantine_free_bytes,
            "earlierCuts": [cut.to_json() for cut in self.earlier_cuts],
            "partitions": [partition.to_json() for partition in self.partitions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a run did in all log dirs.

    Attributes:
        cpu_path: how checksums were computed: portable, sse42-pclmul or avx512-vpclmul.
        kernel_origin: where the kernels come from: cache, compiled (and kept there), memory (of this process).
        release: of the broker that will start, whose rules were followed, and how it is known.
        signal_exit_code: 129, 130 or 143 if a signal ended the run.
        phases: where the threads' time went.
        notes: on the whole run: settings that were assumed, files that are missing.
        repair: whether `--repair` was given; what it has left is in the notes of log dirs.
        keep_deleted: whether `--keep-deleted` was given.
    """

    dry_run: bool
    now_ms: int
    cpu_path: str
    kernel_origin: str
    release: StartingRelease
    duration_ms: int
    log_dirs: tuple[LogDirReport, ...]
    signal_exit_code: int | None = None
    phases: tuple[PhaseTime, ...] = ()
    notes: tuple[Note, ...] = ()
    repair: bool = False
    keep_deleted: bool = False

    @property
    def partitions(self) -> tuple[PartitionReport, ...]:
        """The partitions of all log dirs."""
        return tuple(partition for log_dir in self.log_dirs for partition in log_dir.partitions)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that keeps a broker from loading, of log dirs and of partitions."""
        return (
            *(problem for log_dir in self.log_dirs for problem in log_dir.problems),
            *(problem for partition in self.partitions for problem in partition.problems),
        )

    @property
    def exit_code(self) -> int:
        """Return the exit code of the run; docs/reference/exit-codes.md has the table."""
        if self.signal_exit_code is not None:
            return self.signal_exit_code
        if self.log_dirs and all(log_dir.status == "offline" for log_dir in self.log_dirs):
            return EXIT_ERROR
        if any(log_dir.status in ("partial", "offline") or log_dir.problems for log_dir in self.log_dirs):
            return EXIT_PARTIAL
        if any(partition.status == "truncated" or partition.holes for partition in self.partitions):
            return EXIT_DAMAGE
        if any(log_dir.earlier_cuts for log_dir in self.log_dirs):
            return EXIT_DAMAGE
        return EXIT_DONE

    def to_json(self) -> str:
        """Return the report as one JSON document."""
        document = {
            "version": 1,
            "dryRun": self.dry_run,
            "exitCode": self.exit_code,
            "nowMs": self.now_ms,
            "durationMs": self.duration_ms,
            "release": self.release.to_json(),
            "kernels": {"cpuPath": self.cpu_path, "origin": self.kernel_origin},
            "phases": [phase.to_json() for phase in self.phases],
            "notes": [note.to_json() for note in self.notes],
            "logDirs": [log_dir.to_json() for log_dir in self.log_dirs],
        }
        return json.dumps(document, indent=2)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for a person to read: -1 for problems alone, 1 for each partition, 2 for each action."""
        return "\n".join(
            printable(line) for line in text_lines(self, verbosity)
        )  # a name must not forge a line


def _cut_to_json(cut: Cut) -> dict[str, Any]:
    return {
        "file": cut.file,
        "baseOffset": cut.base_offset,
        "position": cut.position,
        "bytes": cut.size_bytes,
        "batches": cut.batch_count,
        "firstOffset": _offset(cut.first_offset),
        "lastOffset": _offset(cut.known_last_offset),
        "rule": cut.rule,
        "reason": cut.reason,
    }


def _offset(offset: int) -> int | None:
    return offset if offset >= 0 else None
