"""The bytes of a log as they come: standard input, or a file that is followed over rotation. Read, never written.

A file is read to its end, and then asked again: it grows; it is renamed and another one takes its name, perhaps behind
a symbolic link; it is cut and written from its start (copytruncate). What is left of the old file is read first.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from contextlib import suppress
from typing import Protocol

from recovery.errors import UsageError, reason_text
from recovery.read.file_system import open_file, read_at

STANDARD_INPUT = "-"
CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 16
"""Of a longer line this much is looked at: no line about a load is nearly as long."""
_LOOK_S = 0.02
_MISSING_S = 10.0
_HEAD_BYTES = 256
_NEWEST_BYTES = 1 << 14


class Feed(Protocol):
    """Where the bytes of a log come from."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can come."""

    @property
    def is_lost(self) -> bool:
        """Whether it has been missing for a while."""

    @property
    def written_s(self) -> float | None:
        """When the last byte that was read was written, seconds since the epoch; None where there is no telling."""

    @property
    def trickle_s(self) -> float:
        """For how long little at a time must have come, until it is not what was there before, but is written now."""

    def read(self, wait_s: float) -> bytes:
        """Return new bytes, waiting for at most *wait_s* seconds for them; empty if there are none."""

    def close(self) -> None:
        """Let go of it."""


def open_feed(path: str, *, may_be_missing: bool) -> Feed:
    """Return the log at *path*, or standard input.

    Args:
        may_be_missing: whether to wait for a file that is not there yet.

    Raises:
        UsageError: there is nothing to read.
    """
    if path == STANDARD_INPUT:
        return StreamFeed(0, "standard input")
    with suppress(OSError):
        if stat.S_ISFIFO(os.stat(path).st_mode):
            return StreamFeed(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    feed = FileFeed(path)
    if not feed.is_open and not may_be_missing:
        remedy = "check the path of the broker's log (server.log)"
        if feed.trouble == os.strerror(errno.EACCES):
            remedy = "run this as a user that may read it"
        if not path:
            remedy = "name the broker's log (server.log); is a variable of the shell empty?"
        raise UsageError(f"{path or 'the source'}: {feed.trouble}. Remedy: {remedy}")
    return feed


class StreamFeed:
    """Standard input, or a pipe that has a name."""

    is_lost = False
    written_s = None
    trickle_s = 5.0

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self.has_ended = False

    def read(self, wait_s: float) -> bytes:
        """Return new bytes. An error of the stream is its end."""
        try:
            if not select.select((self._descriptor,), (), (), wait_s)[0]:
                return b""
            data = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.has_ended = not data
        return data

    def close(self) -> None:
        """Close it, unless it is standard input."""
        if self._descriptor > 2:
            os.close(self._descriptor)


class FileFeed:
    """A file that is followed by its name."""

    has_ended = False
    trickle_s = 0.3

    def __init__(self, path: str) -> None:
        self.name = path
        self.trouble = ""
        self.written_s: float | None = None
        self._descriptor = -1
        self._position = 0
        self._head = b""
        self._missing_since_s: float | None = None
        self._open()

    @property
    def is_open(self) -> bool:
        """Whether there is a file."""
        return self._descriptor >= 0

    @property
    def is_lost(self) -> bool:
        """Whether there has been no file of that name for longer than a rotation takes."""
        return self._missing_since_s is not None and time.monotonic() - self._missing_since_s > _MISSING_S

    def read(self, wait_s: float) -> bytes:
        """Return new bytes. A file that is unreadable is treated as one that is missing."""
        deadline_s = time.monotonic() + wait_s
        while not (data := self._read_more()):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, _LOOK_S))
        return data

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_more(self) -> bytes:
        if self._descriptor < 0 and not self._open():
            return b""
        try:
            if data := self._read_here():
                return data
            if not self._has_other_file():
                return b""
            if data := self._read_here():  # written between the last look and the rotation
                return data
        except OSError as error:
            self._miss(error)
        self.close()
        return self._read_here() if self._open() else b""

    def _read_here(self) -> bytes:
        status = os.fstat(self._descriptor)
        if status.st_size < self._position or self._is_rewritten(status.st_size):
            self._position, self._head = 0, b""
        if status.st_size == self._position:
            return b""
        data = os.pread(self._descriptor, CHUNK_BYTES, self._position)
        if self._position == 0:
            self._head = data[:_HEAD_BYTES]
        self._position += len(data)
        self.written_s = status.st_mtime
        return data

    def _is_rewritten(self, size_bytes: int) -> bool:
        """Whether the file was cut and has grown past the place that was read, which only its beginning shows."""
        if size_bytes == self._position or not self._head:
            return False
        return read_at(self._descriptor, 0, len(self._head)) != self._head

    def _has_other_file(self) -> bool:
        try:
            found = os.stat(self.name)
        except OSError as error:
            self._miss(error)
            return False  # what is open may still grow: loggers write on after a rename
        self._missing_since_s = None
        return not os.path.samestat(found, os.fstat(self._descriptor))

    def _open(self) -> bool:
        try:
            self._descriptor = open_file(self.name)
        except OSError as error:
            self.close()
            self._miss(error)
            return False
        self._position, self._head, self._missing_since_s = 0, b"", None
        return True

    def _miss(self, error: OSError) -> None:
        self.trouble = reason_text(error)
        if self._missing_since_s is None:
            self._missing_since_s = time.monotonic()


class Lines:
    """Whole lines out of chunks of bytes, of which at most `LONGEST_LINE_BYTES` wait for their end."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_cut = False
        self._newest = b""

    def split(self, data: bytes, keywords: tuple[bytes, ...]) -> list[bytes]:
        """Return the lines that *data* ends and that hold one of *keywords*, in order."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return []
        first_end = data.find(b"\n") + 1
        first = (self._rest + data[:first_end])[:LONGEST_LINE_BYTES]
        body, self._rest, self._is_cut = data[first_end:end], b"", False
        self._keep(data[end:])
        self._newest = data[max(end - _NEWEST_BYTES, 0) : end]
        firsts = [first] if any(keyword in first for keyword in keywords) else []
        return firsts + _with_keywords(body, keywords)

    def newest(self) -> list[bytes]:
        """Return the last whole lines, the newest first; the oldest of them may lack its beginning."""
        return self._newest.splitlines()[::-1]

    def last(self, keywords: tuple[bytes, ...]) -> list[bytes]:
        """Return the last line, which has no end and gets none any more."""
        rest, self._rest, self._is_cut = self._rest, b"", False
        return [rest] if any(keyword in rest for keyword in keywords) else []

    def _keep(self, data: bytes) -> None:
        if not self._is_cut:
            self._rest = (self._rest + data)[:LONGEST_LINE_BYTES]
            self._is_cut = len(self._rest) == LONGEST_LINE_BYTES


def _with_keywords(body: bytes, keywords: tuple[bytes, ...]) -> list[bytes]:
    """Return the lines of *body* that hold one of *keywords*: few of many, found without looking at the others."""
    spans: dict[int, int] = {}
    for keyword in keywords:
        position = body.find(keyword)
        while position >= 0:
            start = body.rfind(b"\n", 0, position) + 1
            end = spans.get(start)
            if end is None:
                end = spans[start] = body.index(b"\n", position)
            position = body.find(keyword, end)
    return [body[start : min(spans[start], start + LONGEST_LINE_BYTES)] for start in sorted(spans)]
