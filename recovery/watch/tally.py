"""How far a command is that has no logs to recover: a count on standard error.

    bar    one line of a terminal, written anew
    log    a line every ten seconds
    json   an object every second, `"event": "Count"`

A command that ends within a second says nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TextIO

from recovery.printable import printable
from recovery.quantity import duration_text
from recovery.watch.gauges import Gauges
from recovery.watch.json_lines import VERSION
from recovery.watch.log_lines import LogLines
from recovery.watch.open import can_draw

_FIRST_S = 1.0
_INTERVALS_S = {"bar": 0.2, "log": 10.0, "json": 1.0}
_ERASED = "\r\x1b[K"
_TRUSTED_S = 5.0
"""What is left is not foretold from less work than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How far a command is at one moment.

    Attributes:
        doing: what it does: "Listing s3://bucket/kafka".
        noun: what is counted, more than one of them.
        total: None while it is not known.
    """

    doing: str
    noun: str
    done: int
    total: int | None
    elapsed_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, None while that would be a guess."""
        if not (self.total and self.done and self.elapsed_s >= _TRUSTED_S):
            return None
        return self.elapsed_s / self.done * (self.total - self.done)

    def to_text(self) -> str:
        """Return e.g. "Taking back /data: 120 of 400 changes (30 %), about 12s left"."""
        if self.total is None:
            return f"{self.doing}: {self.done:,} {self.noun}"
        percent = f" ({100 * self.done // self.total} %)" if self.total else ""
        left = "" if self.left_s is None else f", about {duration_text(self.left_s)} left"
        return f"{self.doing}: {self.done:,} of {self.total:,} {self.noun}{percent}{left}"


class Tally:
    """Counts for one thread, and shows the count from time to time; by default to nobody.

    Args:
        doing, noun: as in `Count`.
        show: what is done with a count.
        interval_s: between two of them.
    """

    def __init__(
        self,
        doing: str = "",
        noun: str = "",
        show: Callable[[Count], None] = lambda _: None,
        *,
        interval_s: float = _FIRST_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doing = doing
        self._noun = noun
        self._show = show
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self._next_s = self._started_s + max(interval_s, _FIRST_S)
        self._done = 0
        self._total: int | None = None

    def expect(self, more: int) -> None:
        """Take in that so many *more* are to come."""
        self._total = (self._total or 0) + more

    def add(self, count: int = 1) -> None:
        """Take in that *count* are done."""
        self._done += count
        now_s = self._monotonic_s()
        if now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            self._show(
                Count(
                    doing=self._doing,
                    noun=self._noun,
                    done=self._done,
                    total=self._total,
                    elapsed_s=now_s - self._started_s,
                )
            )


@contextmanager
def open_tally(progress: str, doing: str, noun: str, stream: TextIO | None = None) -> Iterator[Tally]:
    """Give a tally that shows its counts as *progress* says, one of `open.PROGRESS_CHOICES`.

    Args:
        doing, noun: as in `Count`.
        stream: where to; standard error by default. One that is gone does not matter.
    """
    stream = sys.stderr if stream is None else stream
    if progress == "auto":
        progress = "bar" if can_draw(stream) else "log"
    if progress == "none":
        yield Tally()
        return
    shows = {"bar": _draw, "log": _log, "json": _write_json}

    def show(count: Count) -> None:
        with suppress(OSError, ValueError):
            shows[progress](stream, count)

    try:
        yield Tally(doing, noun, show, interval_s=_INTERVALS_S[progress])
    finally:
        if progress == "bar":
            with suppress(OSError, ValueError):
                stream.write(_ERASED)
                stream.flush()


def _draw(stream: TextIO, count: Count) -> None:
    columns = os.get_terminal_size(stream.fileno()).columns
    stream.write(f"{_ERASED}{printable(count.to_text())[: max(columns - 1, 0)]}")
    stream.flush()


def _log(stream: TextIO, count: Count) -> None:
    LogLines(stream, Gauges()).say(count.to_text())


def _write_json(stream: TextIO, count: Count) -> None:
    line = {
        "version": VERSION,
        "event": "Count",
        "now_ms": time.time_ns() // 1_000_000,
        "doing": count.doing,
        "noun": count.noun,
        "done": count.done,
        "total": count.total,
        "eta_seconds": None if count.left_s is None else round(count.left_s, 3),
    }
    stream.write(json.dumps(line, separators=(",", ":")) + "\n")
    stream.flush()
