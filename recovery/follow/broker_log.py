"""A broker's log as a source: bytes, lines, what they say, events, each with the time at which it was logged.

What is there at the start is read to its end first, and only the last load in it is told. So a log may hold many
starts, and a gigabyte takes seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from recovery.follow.broker_lines import (
    KEYWORDS,
    BrokerBegan,
    LoadBegan,
    LogTouched,
    Said,
    said_in,
)
from recovery.follow.broker_load import BrokerLoad
from recovery.follow.log_feed import Feed, Lines
from recovery.follow.log_layout import Logged, read_line
from recovery.follow.unflushed import WatchedDirs
from recovery.watch.events import Event, Remark, SourceLost

MOST_WAITING = 200_000
"""Lines that wait for the end of what is there at the start; a load of more is told as it is read."""
FREE_S = 3.0
"""How long the log dirs of a broker that loads logs may be without a lock until it counts as dead."""
_SETTLED_S = 0.3
_LITTLE_BYTES = 32 << 10
"""Less than this at a time is what a broker writes while it is read, and not what was there before."""
_MOST_ZONE_S = 15 * 3600.0


class BrokerLog:
    """The log of one broker.

    Args:
        feed: where its bytes come from.
        dirs: its log dirs, if they are on this machine.
        threads_per_dir: `num.recovery.threads.per.data.dir`, 0 if it is not known.
    """

    has_history = True

    def __init__(self, feed: Feed, dirs: WatchedDirs | None = None, threads_per_dir: int = 0) -> None:
        self._feed = feed
        self._dirs = dirs
        self._load = BrokerLoad(dirs, threads_per_dir)
        self._lines = Lines()
        self._clock = _LogClock()
        self._waiting: list[tuple[Said, Logged]] = []
        self._earlier_starts = 0
        self._is_lost = False
        self._free_since_s: float | None = None
        self._were_held = False  # perhaps by other names, as those in a container
        self._are_others_told = False
        self._trickles_since_s: float | None = None
        self.is_current = False

    @property
    def name(self) -> str:
        """The path, or "standard input"."""
        return self._feed.name

    @property
    def has_ended(self) -> bool:
        """Whether standard input has ended."""
        return self._feed.has_ended

    def poll(self, wait_s: float) -> Iterator[Event]:
        """Yield what is new in the log, and what its silence means."""
        data = self._feed.read(wait_s if self.is_current else min(wait_s, _SETTLED_S))
        found = self._lines.split(data, KEYWORDS)
        if self._feed.has_ended:
            found += self._lines.last(KEYWORDS)
        if data:
            self._free_since_s = None
        yield from self._read(found)
        if not data or self._trickles(len(data)):
            yield from self._catch_up()
        if not data:
            yield from self._judge_silence()

    def _trickles(self, read_bytes: int) -> bool:
        """Return whether the log is being written, and what was there before has been read: silence may never come."""
        if self.is_current or read_bytes >= _LITTLE_BYTES:
            self._trickles_since_s = None
            return False
        now_s = time.monotonic()
        if self._trickles_since_s is None:
            self._trickles_since_s = now_s
        return now_s - self._trickles_since_s >= self._feed.trickle_s

    def close(self) -> None:
        """Close the file."""
        self._feed.close()

    def _read(self, found: Iterable[bytes]) -> Iterator[Event]:
        for line in found:
            logged = read_line(line)
            if (said := said_in(logged.text)) is None:
                continue
            if self.is_current:
                self._clock.see_live(logged)
                yield from self._tell(said, logged)
            else:
                yield from self._wait(said, logged)

    def _wait(self, said: Said, logged: Logged) -> Iterator[Event]:
        if isinstance(said, LoadBegan | BrokerBegan):
            self._earlier_starts += any(isinstance(earlier, LoadBegan) for earlier, _ in self._waiting)
            self._waiting.clear()
        elif isinstance(said, LogTouched):
            return  # other lines will name the log, or it is in hand still and will be named
        self._waiting.append((said, logged))
        if len(self._waiting) >= MOST_WAITING:
            yield from self._catch_up()

    def _catch_up(self) -> Iterator[Event]:
        """Yield what was there at the start, with times before now."""
        if self.is_current:
            return
        self.is_current = True
        if self._earlier_starts:
            count = self._earlier_starts + 1
            yield Remark(text=f"the log holds {count} starts of the broker: the last one counts")
        waiting, self._waiting = self._waiting, []
        stamped = (logged for line in self._lines.newest() if (logged := read_line(line)).time_s is not None)
        if waiting and (newest := next(stamped, None)) is not None:
            self._clock.see_newest(newest, written_s=self._feed.written_s)
        for said, logged in waiting:
            yield from self._tell(said, logged)

    def _tell(self, said: Said, logged: Logged) -> Iterator[Event]:
        now_ms, monotonic_s = self._clock.time_of(logged)
        for event in self._load.take(said, now_ms):
            yield replace(event, now_ms=now_ms, monotonic_s=monotonic_s)

    def _judge_silence(self) -> Iterator[Event]:
        """Yield that the log has gone, or is back, or that its broker has: all that a log cannot say itself."""
        if self._feed.is_lost != self._is_lost:
            self._is_lost = self._feed.is_lost
            if self._is_lost:
                yield SourceLost(text=f"{self.name}: there is no such file any more")
            else:
                yield Remark(text=f"{self.name}: is back")
        if self._dirs is None or not self._load.is_open:
            return
        if self._dirs.are_held():
            self._free_since_s, self._were_held = None, True
            return
        if not (self._were_held or self._dirs.has_any_of(self._load.named_dirs)):
            if not self._are_others_told:
                self._are_others_told = True
                named = ", ".join(self._load.named_dirs)
                text = f"the log is of a broker on {named}: whether it lives is not known. Remedy: give its log dirs"
                yield Remark(text=text, level="warning")
            return
        now_s = time.monotonic()
        if self._free_since_s is None:
            self._free_since_s = now_s
        elif now_s - self._free_since_s >= FREE_S:
            yield from self._load.end("the broker has died: nobody holds the locks of its log dirs")


class _LogClock:
    """Times of a log as times of this machine, which never go back.

    A broker prints local time without a zone, and its clock may differ. A line that has just been written tells by how
    much; so does the time at which the file was last written, unless it is off by more than time zones are: then it is
    a copy. Without either, the zone is this machine's or UTC, whichever makes the newest line the younger one. No line
    is of the future.
    """

    def __init__(self) -> None:
        self._shift_s: float | None = None
        self._last_s = 0.0

    def see_newest(self, logged: Logged, *, written_s: float | None) -> None:
        """Take in the newest line of what was there at the start.

        Args:
            written_s: when it was written, if that is known.
        """
        if logged.time_s is None:
            return
        if written_s is not None and not logged.has_zone and abs(written_s - logged.time_s) < _MOST_ZONE_S:
            self._shift_s = written_s - logged.time_s
            return
        now_s = time.time()
        shifts_s = [0.0] if logged.has_zone else [0.0, _local_shift_s(logged.time_s)]
        ages_s = {now_s - (logged.time_s + shift_s): shift_s for shift_s in shifts_s}
        plausible = [age_s for age_s in ages_s if age_s >= 0]
        self._shift_s = ages_s[min(plausible)] if plausible else now_s - logged.time_s

    def see_live(self, logged: Logged) -> None:
        """Take in a line that was waited for."""
        if logged.time_s is not None:
            self._shift_s = time.time() - logged.time_s

    def time_of(self, logged: Logged) -> tuple[int, float]:
        """Return the time of a line, ms since the epoch and on the monotonic clock."""
        now_s = time.time()
        time_s = now_s
        if logged.time_s is not None and self._shift_s is not None:
            time_s = min(logged.time_s + self._shift_s, now_s)
        self._last_s = time_s = max(time_s, self._last_s)
        return round(time_s * 1000), time.monotonic() - (now_s - time_s)


def _local_shift_s(time_s: float) -> float:
    """Return what to add to a local time that was read as UTC."""
    return time.mktime((*time.gmtime(time_s)[:8], -1)) - time_s + time_s % 1
