"""What longer commands share: signals that end them, and their result on standard output."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Protocol, TextIO

from recovery.cli.arguments import verbosity_of
from recovery.cli.nudge import nudged
from recovery.cli.patient_writer import GRACE_S, given_up_signal, hasten
from recovery.cli.wrapping import for_terminal
from recovery.errors import InterruptedRecoveryError, RecoveryError
from recovery.printable import printable

if TYPE_CHECKING:
    import argparse

    from recovery.stop_request import StopRequest


_NO_FILE_ERRNOS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})
"""Errors of fsync(2) on a pipe, a terminal or a device."""
_REPORT = "the run itself is complete, but the report"


class Report(Protocol):
    """What a command has to say."""

    def to_json(self) -> str:
        """Return all of it for a program."""

    def to_text(self, verbosity: int, /) -> str:
        """Return it for a person, as much as *verbosity* asks for."""


def print_report(report: Report, arguments: argparse.Namespace, signals: Signals | None = None) -> bool:
    """Print *report* as `--format`, `-q` and `-v` in *arguments* ask for, as `print_result`."""
    text = report.to_json() if arguments.format == "json" else report.to_text(verbosity_of(arguments))
    return print_result(text, signals, form=arguments.format)


def print_result(text: str, signals: Signals | None = None, *, form: str = "text") -> bool:
    """Print the result, as `print_parts`; where there is nothing to say, nothing is printed.

    Args:
        text: the result.
        signals: as of `print_parts`.
        form: "text" is broken to the width of a terminal, any other is printed as it is.
    """
    if not text:
        return True
    what = _REPORT if form in ("text", "json") else "the text"
    return print_parts((for_terminal(text, sys.stdout) if form == "text" else text,), signals, what=what)


def print_parts(
    parts: Iterable[str],
    signals: Signals | None = None,
    *,
    what: str = _REPORT,
) -> bool:
    """Print the result, and return whether all of it was taken: by a reader, or by the disk if it goes to a file.

    Only a caller that has closed standard output (`>&-`) wants no report; a reader that has gone (`| head`) has not
    taken all of it, which is an error as a full disk is.

    Args:
        parts: of the result, made as they are printed.
        signals: end the wait for a slow reader at once.
        what: subject of the sentence on what was not taken.

    Raises:
        OSError: it could not be written.
        InterruptedRecoveryError: a signal came while it was being written.
    """
    try:
        with nullcontext() if signals is None else signals.raising():
            _write(parts)
    except OSError as error:
        discard(sys.stdout)
        if error.errno == errno.EBADF:
            return False
        raise OSError(error.errno, f"{what} could not be written: {error.strerror}") from error
    except InterruptedRecoveryError as error:
        discard(sys.stdout)
        raise InterruptedRecoveryError(error.signal_number, "the report was only written in part") from error
    return True


def _write(parts: Iterable[str]) -> None:
    """Write *parts* and a line's end to standard output.

    In as many writes as needed: Python's own makes only one if it has no buffer. Names in it need not be UTF-8.
    A report in a file must survive a crash, as losses are reported only once.

    Raises:
        OSError: it was not written, or did not reach the disk.
        InterruptedRecoveryError: after a signal nobody reads it.
    """
    stream = sys.stdout
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream of the caller's
        print("".join(parts), flush=True)  # noqa: T201 - what a command line says
        return
    stream.flush()
    is_given_up = _is_given_up(descriptor)
    for part in chain(parts, "\n"):
        unwritten = memoryview(part.encode(stream.encoding, "backslashreplace"))
        while unwritten:
            if is_given_up and not select.select((), (descriptor,), (), GRACE_S)[1]:
                raise InterruptedRecoveryError(given_up_signal())
            try:
                written = os.write(descriptor, unwritten[: select.PIPE_BUF] if is_given_up else unwritten)
            except BlockingIOError:  # a full pipe that another process has made non-blocking
                select.select((), (descriptor,), ())
            else:
                unwritten = unwritten[written:]
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FILE_ERRNOS:
            raise


def _is_given_up(descriptor: int) -> bool:
    """Return whether it is what standard error is (`2>&1`), whose reader was given up after a signal."""
    try:
        return given_up_signal() != 0 and os.path.sameopenfile(descriptor, sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def complain(text: str, program: str = "kafka-log-recovery") -> None:
    """Print one line to standard error, which may be gone, or unable to show every character."""
    line = for_terminal(printable(f"{program}: {text}"), sys.stderr) + "\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line)
        sys.stderr.flush()


def tell_of_compiling() -> None:
    """Say on standard error why a command seems to do nothing."""
    print("compiling the kernels for this CPU, once, about 20 s", file=sys.stderr)  # noqa: T201 - what a command line says


def discard(stream: TextIO) -> None:
    """Redirect a standard stream that takes no more, so that the interpreter's last flush succeeds."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Lets a signal end the command at once until there is something to stop, and then stop that."""

    def __init__(self) -> None:
        self._number = 0
        self._stop: StopRequest | None = None
        self._raises = True

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal, in the main thread, at any moment."""
        self._number = number
        hasten(number)
        if self._stop is not None:
            self._stop.request(number)
        if self._raises:
            raise InterruptedRecoveryError(number)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal end the block at once: it may wait for long, and leaves nothing half done."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """As `raising`, around a library that takes a signal for an error of its own, and prints it."""
        import logging  # not earlier: --help needs none

        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with self.raising():
                yield
        except RecoveryError as error:
            if self._number and not isinstance(error, InterruptedRecoveryError):
                raise InterruptedRecoveryError(self._number) from error
            raise
        finally:
            logging.disable(before)

    def install(self) -> None:
        """Install our handlers again, after a library has replaced them."""
        for number in ENDING_SIGNALS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.receive)

    def forward_to(self, stop: StopRequest) -> None:
        """Pass signals on to *stop* from now on.

        Raises:
            InterruptedRecoveryError: there has been one already.
        """
        self._stop, self._raises = stop, False
        if self._number:
            raise InterruptedRecoveryError(self._number)


_is_process_over_then = False


def end_process_then() -> None:
    """Let signals change nothing once a command's watch for them is over: only the end of the process follows."""
    global _is_process_over_then
    _is_process_over_then = True


def begin_last_words() -> None:
    """Let signals end the wait for a reader of standard error, and nothing else, in a process of our own."""
    for number in ENDING_SIGNALS:
        if _is_process_over_then and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hasten)


def _hasten(number: int, _frame: FrameType | None) -> None:
    hasten(number)


@contextmanager
def watched_signals() -> Iterator[Signals]:
    """Let ENDING_SIGNALS end the run at the next safe place; entered before the slow imports.

    A hangup that is ignored stays so: `nohup` asks for it.
    """
    signals = Signals()
    previous = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    signals.install()
    try:
        with nudged():
            yield signals
    finally:
        for number, handler in previous.items():
            is_over = _is_process_over_then and handler is not signal.SIG_IGN
            signal.signal(number, _hasten if is_over else handler)
