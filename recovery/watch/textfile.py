"""The metrics in a file, for the textfile collector of node_exporter: what it shows outlives the process.

    /var/lib/node_exporter/kafka_log_recovery.prom          read by others (mode 644), replaced whole
    /var/lib/node_exporter/kafka_log_recovery.prom.<pid>.tmp    being written; node_exporter reads only names in .prom

It is written before the first byte of a log is read, every five seconds, once more when the run is over, however it
ends, and when the process ends. It is not synced: it need not survive the machine. A file that this tool has not
written is not replaced: it could be a segment, or somebody's configuration.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread

from recovery.errors import FULL_ERRNOS, UsageError
from recovery.threads import MORE_THREADS, is_started
from recovery.watch.gauges import Gauges
from recovery.watch.http.metrics import metrics_text

INTERVAL_S = 5.0
_LAST_WRITE_S = 5.0
"""How long the end of a run, and of the process, waits for its write, to a file system that may hang."""
_OWN_BEGINNINGS = tuple(
    b"# HELP kafka_" + name for name in (b"log_recovery_", b"log_logmanager_", b"server_brokertopicmetrics_")
)
"""How all that `metrics_text` makes begins, and the figures of tiered logs: names of metrics do not change."""
_FOREIGN = "not empty, and not metrics that this tool has written"

_logger = logging.getLogger(__name__)


@contextmanager
def kept_in_file(gauges: Gauges, path: str) -> Iterator[Callable[[], None]]:
    """Keep the figures in the file *path* while the context is open, and leave the last ones there.

    Yields:
        What brings the figures of now into the file, without waiting for the next time.

    Raises:
        UsageError: the file cannot be written, or is none, or somebody else's; or no thread can be started.
    """
    refuse_foreign_file(path)
    file = _TextFile(gauges, path)
    try:
        file.write()
    except OSError as error:
        remedy = (
            "make room"
            if error.errno in FULL_ERRNOS
            else "name a file in a folder that this user may write to"
        )
        raise UsageError(f"--metrics-textfile {path}: {error.strerror}. Remedy: {remedy}") from error
    if not is_started(file.thread):
        raise UsageError(
            f"--metrics-textfile {path}: no thread can be started. Remedy: {MORE_THREADS}, or leave the option out"
        )
    if not path.endswith(".prom"):
        _logger.warning(
            "--metrics-textfile %s: node_exporter reads only files whose names end in .prom", path
        )
    try:
        yield file.bring_up_to_date
    finally:
        file.stop()


def refuse_foreign_file(path: str) -> None:
    """Refuse the path of a file that this tool has not written; none at all, and an empty one, are accepted.

    Raises:
        UsageError: it is somebody else's, or no file, or cannot be looked at.
    """
    try:
        _refuse_replacing(os.path.realpath(path))
    except OSError as error:
        raise UsageError(
            f"--metrics-textfile {path}: {error.strerror}. Remedy: name a file that is not there yet, or one that this "
            "tool has written and this user may read"
        ) from error


def replace_textfile(path: str, metrics: bytes) -> None:
    """Let the file at *path* hold *metrics*: replaced whole, so that nobody reads half of them.

    Raises:
        OSError: that is not possible, or it is somebody else's file. It is as it was before.
    """
    path = os.path.realpath(path)  # a link stays one
    _refuse_replacing(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process that was killed
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o644)  # whatever the umask: node_exporter is another user
            stream.write(metrics)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _refuse_replacing(path: str) -> None:
    """Raise OSError if something is at *path* that is not a file that this tool has written."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a device would be replaced by a file
            raise OSError(0, "not a regular file", path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:
            beginning = stream.read(max(map(len, _OWN_BEGINNINGS)))
        # It is not synced, so a loss of power may leave zeros of it.
        is_lost = path.endswith(".prom") and not beginning.strip(b"\0")
        if beginning and not is_lost and not beginning.startswith(_OWN_BEGINNINGS):
            raise OSError(0, _FOREIGN, path)


class _TextFile:
    """The file, and the thread that writes it."""

    def __init__(self, gauges: Gauges, path: str) -> None:
        self._gauges = gauges
        self._path = path
        self._is_failing = False
        self._is_over = False
        self._wanted, self._written = Flag(), Flag()
        self.thread = Thread(target=self._write_until_stopped, name="textfile", daemon=True)

    def write(self) -> None:
        """Replace the file. Raises like `replace_textfile`."""
        replace_textfile(self._path, metrics_text(self._gauges.values(time.monotonic())))

    def bring_up_to_date(self) -> None:
        """Let the thread write the file now, and wait for it, unless its file system hangs."""
        self._written.clear()
        self._wanted.set()
        self._written.wait(_LAST_WRITE_S)

    def stop(self) -> None:
        """Write the file once more, and end the thread."""
        self._is_over = True
        self._wanted.set()
        self.thread.join(_LAST_WRITE_S)

    def _write_until_stopped(self) -> None:
        is_last = False
        while not is_last:
            self._wanted.wait(INTERVAL_S)
            self._wanted.clear()
            is_last = self._is_over
            try:
                self.write()
            except OSError as error:
                if not self._is_failing:
                    _logger.warning(
                        "--metrics-textfile %s cannot be written any more: %s; the run continues.",
                        self._path,
                        error.strerror,
                    )
                self._is_failing = True
            else:
                self._is_failing = False
            self._written.set()
