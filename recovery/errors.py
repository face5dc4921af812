"""Errors of a recovery, each with the exit code that the command line gives for it.

Damage found by a scan is a value, never one of these. These end a partition
(`PartitionRefusedError`), a log dir (`LogDirOfflineError`) or the run (the others). A message says what is wrong,
where (file, position), by which rule, and what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import ClassVar

from recovery.problem import Problem, ProblemRule


class RecoveryError(Exception):
    """Root of the errors of this package."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Go to another process as it is: Exception would call a subclass with the message for its arguments."""
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(
    kind: type[RecoveryError], arguments: tuple[object, ...], attributes: dict[str, object]
) -> RecoveryError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class UsageError(RecoveryError):
    """The command line or the configuration cannot be understood."""

    exit_code = 1


class LogDirLockedError(RecoveryError):
    """A broker, or another recovery, holds `.lock`. Nothing was changed.

    Kafka: LogManager.lockLogDirs.
    """

    exit_code = 3


class UnsafeError(RecoveryError):
    """What is on disk must not be touched: it is in use, or is not what the caller expects. Nothing was changed."""

    exit_code = 3


class JournalError(RecoveryError):
    """A run cannot be resumed from its journal: it is not ours, or belongs to another version or another run.

    Nothing was changed.
    """

    exit_code = 3


class WorkerError(RecoveryError):
    """A worker process failed because of a defect in this tool; its traceback is in the message."""


class LogDirOfflineError(RecoveryError):
    """One log dir has an I/O error, or a broker would not load it: it goes offline, the others continue.

    Attributes:
        problems: everything that is wrong with the dir, if that is more than an I/O error.

    Kafka: LogDirFailureChannel.
    """

    exit_code = 4

    def __init__(
        self, log_dir: str, error: OSError | str | None = None, *, problems: Iterable[Problem] = ()
    ) -> None:
        self.problems = tuple(problems)
        words = "; ".join(map(str, self.problems))
        self.error = words if error is None else error
        self.log_dir = log_dir
        super().__init__(f"{log_dir}: {(words or remedied_text(error or '')).removeprefix(f'{log_dir}: ')}")


class PartitionRefusedError(RecoveryError):
    """A broker would halt at this partition, or this version cannot recover it: it is left untouched.

    Attributes:
        problems: the reasons, at least one.
        file, position, remedy: of the first one.
    """

    exit_code = 4

    def __init__(
        self, *, file: str, position: int | None, rule: ProblemRule, detail: str, remedy: str
    ) -> None:
        problem = Problem(file=file, position=position, rule=rule, detail=detail, remedy=remedy)
        super().__init__(str(problem))
        self.problems: tuple[Problem, ...] = (problem,)

    @property
    def file(self) -> str:
        """The file of the first problem, or the folder itself."""
        return self.problems[0].file

    @property
    def position(self) -> int | None:
        """Where in that file."""
        return self.problems[0].position

    @property
    def remedy(self) -> str:
        """What to do about the first problem."""
        return self.problems[0].remedy

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> PartitionRefusedError:
        """Return the refusal for all of *problems*, in their order."""
        first, *others = problems
        refusal = cls(
            file=first.file,
            position=first.position,
            rule=first.rule,
            detail=first.detail,
            remedy=first.remedy,
        )
        refusal.problems = (first, *others)
        refusal.args = ("; ".join(map(str, refusal.problems)),)
        return refusal


class DamagedSegmentError(RecoveryError):
    """Records were requested, but some bytes of a segment hold none; the message says how to continue without them."""


INTERRUPTED_EXIT_CODES = frozenset({129, 130, 143})
"""Of a run that SIGHUP, SIGINT or SIGTERM has ended."""


class InterruptedRecoveryError(RecoveryError):
    """SIGTERM, SIGINT or SIGHUP: what was begun is finished, the rest is left to the next run."""

    def __init__(self, signal_number: int, next_step: str = "start again") -> None:
        super().__init__(f"interrupted by signal {signal_number}: {next_step}")
        self.signal_number = signal_number

    @property
    def signal_exit_code(self) -> int:
        """129 after SIGHUP, 130 after SIGINT, 143 after SIGTERM."""
        return 128 + self.signal_number


class UndoneError(OSError):
    """All is put back, but not on disk for certain."""


FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of an I/O error that ends once there is room."""

MORE_MEMORY = "allow it more memory (ulimit -v, the container's limit)"
"""What helps where there is too little of it."""
_SCARCITY_REMEDIES = {
    errno.EMFILE: "allow it more open files (ulimit -n)",
    errno.ENFILE: "allow this machine more open files (sysctl fs.file-max)",
    errno.ENOMEM: MORE_MEMORY,
}

AS_BROKERS_USER = "run this as the broker's user, or as root"
"""What helps where permission is denied."""
AS_ROOT_DENIED = (
    "look for immutable or append-only files (lsattr; chattr -i -a), and for missing capabilities of root"
)
"""What helps where even root is denied (EPERM)."""


def without_path(text: str, path: str) -> str:
    """Return *text* without *path* at its beginning, be it alone or that of a file below: it stands before the text."""
    return text.removeprefix(f"{path}: ").removeprefix(os.path.join(path, ""))


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a process that *error* ends."""
    if isinstance(error, InterruptedRecoveryError):
        return error.signal_exit_code
    return error.exit_code if isinstance(error, RecoveryError) else 1


def error_text(error: BaseException | str) -> str:
    """Return what an error says; one of the operating system with the file first, and without its number."""
    if not isinstance(error, OSError) or type(error).__str__ is not OSError.__str__ or error.strerror is None:
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return ": ".join([" -> ".join(names), error.strerror]) if names else error.strerror


def scarcity_remedy(error: BaseException | str) -> str | None:
    """Return what helps where the system gives no more memory or open files; None after any other error."""
    if isinstance(error, MemoryError):
        return MORE_MEMORY
    return _SCARCITY_REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None


def remedied_text(error: BaseException | str) -> str:
    """Return what an error says, as `error_text`, and what helps where the system gives too little of something."""
    text, remedy = error_text(error), scarcity_remedy(error)
    return text if remedy is None or "Remedy: " in text else f"{text}. Remedy: {remedy}, then start again"


def reason_text(error: BaseException) -> str:
    """Return what an error says, in a sentence that names the file."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    remedy = scarcity_remedy(error)
    return error.strerror if remedy is None else f"{error.strerror}: {remedy}"
