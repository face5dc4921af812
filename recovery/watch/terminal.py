"""The view of a run on a terminal: a line for each log dir, one for all of them, and above them what went wrong.

    Recovering 2 log dirs, 2 threads each                                              12s
    log dir     share                            logs       segments   bytes             rate        left
    /d/data-0   ━━━━━━━━━━━━━━━╸━━━━━━━━  62 %   1,204/2,000   45/80   12.3 of 19.8 GiB  1.20 GiB/s  6s
      0 orders-3, 3 segments left   1 payments-0, 12 segments left

It draws on its own timer, several times a second, from the gauges; an event never draws. The first warnings and
errors are printed above the view, a line each that ends at the edge of the screen; the report has them all, whole.
`watch` has no such report: there they are whole.

If the terminal goes away, drawing stops, and the next event finds out and raises, so that the notifier
switches this observer off and the run continues.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from recovery.printable import printable
from recovery.watch.events import Event, Level, RunStarted
from recovery.watch.gauges import Gauges
from recovery.watch.notices import notice_of
from recovery.watch.terminal_view import view

REFRESH_S = 0.25
NOTICE_LIMIT = 20
"""Warnings, and likewise errors, that are printed above the view; a power cut can tear thousands of logs."""

_STYLES = {"info": "", "warning": "yellow", "error": "bold red"}
_WORDS = {"info": "", "warning": "WARN  ", "error": "ERROR "}


class Terminal:
    """An observer that draws while its context is open.

    Args:
        stream: a terminal.
        gauges: where the figures come from; it must see each event before this observer.
        monotonic_s: the clock of the events.
        console: for tests; made for *stream* by default.
    """

    def __init__(
        self,
        stream: TextIO,
        gauges: Gauges,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        self._gauges = gauges
        self._monotonic_s = monotonic_s
        self._console = console or Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
        self._notices: deque[tuple[Text, bool]] = deque()  # and whether the edge of the screen ends it
        self._are_reported = True
        self._notice_counts: dict[Level, int] = {"warning": 0, "error": 0}
        self._stop = Flag()
        self._error: Exception | None = None
        self._thread = Thread(target=self._draw_until_stopped, name="terminal", daemon=True)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._thread.start()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw once more and leave the last view on the screen."""
        self._stop.set()
        self._thread.join()
        if self._error is None:
            self._try(self._draw)
        self._try(self._live.stop)
        if not self._console.is_terminal:
            self._try(self._console.line)  # rich ends the view's last line on a terminal alone

    def __call__(self, event: Event) -> None:
        """Note what has to be printed above the view; the figures come from the gauges."""
        if self._error is not None:
            raise self._error
        if isinstance(event, RunStarted):
            self._are_reported = event.command != "watch"
        if (notice := notice_of(event)) is not None:
            self._note(notice.line, notice.level)

    def say(self, text: str, level: Level = "info") -> None:
        """Print a line above the view, whatever was printed there before."""
        self._notices.append((_notice(text, level), False))

    def _note(self, text: str, level: Level) -> None:
        count = self._notice_counts[level] = self._notice_counts[level] + 1
        if count <= NOTICE_LIMIT:
            self._notices.append((_notice(text, level), self._are_reported))
        elif count == NOTICE_LIMIT + 1:
            self.say(f"More {level}s follow: they are counted below, and the report has them all.")

    def _draw_until_stopped(self) -> None:
        while not self._stop.wait(REFRESH_S):
            if not self._try(self._draw):
                return

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:  # a terminal that has gone (EIO) must not end the run
            self._error = error
            return False
        return True

    def _draw(self) -> None:
        while self._notices:
            notice, ends_at_edge = self._notices.popleft()
            self._console.print(notice, no_wrap=ends_at_edge, overflow="ellipsis")
        values = self._gauges.values(self._monotonic_s())
        self._live.update(view(values, self._console.width, self._console.height), refresh=True)


def _notice(text: str, level: Level) -> Text:
    return Text.assemble((_WORDS[level], _STYLES[level]), printable(text))
