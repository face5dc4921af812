"""How far a run is, in the output of a notebook's cell: one line, rewritten twice a second at most.

3/13 logs, 45/206 segments, 2.1 MiB of 8.4 MiB (25 %), 12.0 MiB/s, about 1s left
"""

from __future__ import annotations

import sys
from typing import TextIO

from recovery.printable import printable
from recovery.watch.events import (
    BytesScanned,
    Event,
    LogDirStarted,
    PartitionChecked,
    RunFinished,
    RunStarted,
)
from recovery.watch.gauges import Gauges
from recovery.watch.text import progress_text

_INTERVAL_S = 0.5


def is_notebook() -> bool:
    """Return whether this program is a notebook's kernel: Jupyter's, Databricks's, or one like them."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookLine:
    """An observer that rewrites its line.

    Args:
        stream: what a cell prints.
        gauges: where the figures come from; it must see each event before this observer.
    """

    def __init__(self, stream: TextIO, gauges: Gauges) -> None:
        self._stream = stream
        self._gauges = gauges
        self._shown_s = float("-inf")
        self._width = 0

    def __call__(self, event: Event) -> None:
        """Show how far the run is, if that may have changed."""
        match event:
            case RunStarted():
                self._show(f"listing {printable(', '.join(event.log_dirs))}")
            case LogDirStarted() | RunFinished():
                self._show_figures(event.monotonic_s)
            case BytesScanned() | PartitionChecked():
                if event.monotonic_s - self._shown_s >= _INTERVAL_S:
                    self._show_figures(event.monotonic_s)
        if isinstance(event, RunFinished):
            self._stream.write("\n")
            self._stream.flush()

    def _show_figures(self, monotonic_s: float) -> None:
        self._shown_s = monotonic_s
        self._show(progress_text(self._gauges.values(monotonic_s)))

    def _show(self, text: str) -> None:
        """Write *text* over the line before, to its end."""
        self._stream.write(f"\r{text.ljust(self._width)}")
        self._stream.flush()
        self._width = len(text)
