"""How much anonymous memory (RssAnon) a process and its worker processes take at most, together.

The kernel keeps no such peak (VmHWM has the pages of mapped files in it), so somebody has to look often.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

POLL_SECONDS = 0.005


class MemoryWatch:
    """Looks at the anonymous memory of a process, and of those that its main thread has started, until it ends."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        while (own := _anonymous_bytes(self._pid)) is not None:
            try:
                workers = children.read_text().split()
            except OSError:
                return
            others = sum(_anonymous_bytes(int(pid)) or 0 for pid in workers)
            self.peak_bytes = max(self.peak_bytes, own + others)
            time.sleep(POLL_SECONDS)


def _anonymous_bytes(pid: int) -> int | None:
    """Return the process's RssAnon, None where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)
