"""Errors of a recovery, each with the exit code that the command line gives for it.

Damage met while scanning is a value, never one of these. These are what ends a partition
(`PartitionRefusedError`), a log dir (`LogDirOfflineError`) or the run (the others). Messages say what, where
(file, position), which rule, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class RecoveryError(Exception):
    """Root of the errors of this package."""

    exit_code: ClassVar[int] = 1


class UsageError(RecoveryError):
    """The command line or the configuration cannot be understood."""

    exit_code = 1


class LogDirLockedError(RecoveryError):
    """A broker, or another recovery, holds `.lock`. Nothing was changed.

    Kafka: LogManager.lockLogDirs.
    """

    exit_code = 3


class UnsafeError(RecoveryError):
    """What is on disk may not be touched: it is in use, or it is not what the caller thinks. Nothing was changed."""

    exit_code = 3


class JournalError(RecoveryError):
    """The journal of a run cannot be gone on with: it is not ours, of another version, or of another run.

    Nothing was changed.
    """

    exit_code = 3


class LogDirOfflineError(RecoveryError):
    """An I/O error concerns one log dir: it goes offline, the others go on.

    Kafka: LogDirFailureChannel.
    """

    exit_code = 4

    def __init__(self, log_dir: str, error: OSError | str) -> None:
        super().__init__(f"{log_dir}: {error}")
        self.log_dir = log_dir
        self.error = error


class PartitionRefusedError(RecoveryError):
    """A 4.3.1 broker would halt on this partition, or this version cannot recover it: it is left untouched.

    Attributes:
        file: name of the file in the partition's folder, or the folder itself.
        position: byte position in the file, or None where the whole file is meant.
        rule: what is violated, in words that name Kafka's behaviour.
        remedy: what the operator can do.
    """

    exit_code = 4

    def __init__(self, *, file: str, position: int | None, rule: str, remedy: str) -> None:
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{file}{at}: {rule}. Remedy: {remedy}")
        self.file = file
        self.position = position
        self.rule = rule
        self.remedy = remedy


class InterruptedRecoveryError(RecoveryError):
    """SIGTERM or SIGINT: what was begun is finished, the rest is for the next run."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by signal {signal_number}: start again to go on")
        self.signal_number = signal_number

    @property
    def signal_exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM."""
        return 128 + self.signal_number
