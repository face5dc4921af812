"""How much anonymous memory (RssAnon) a process takes at most.

The kernel keeps no such peak (VmHWM has the pages of mapped files in it), so somebody has to look often.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

POLL_SECONDS = 0.005


class MemoryWatch:
    """Looks at a process's anonymous memory until it ends."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._status = Path(f"/proc/{pid}/status")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                lines = self._status.read_text().splitlines()
            except OSError:
                return
            found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")]
            if not found:
                return
            self.peak_bytes = max(self.peak_bytes, found[0])
            time.sleep(POLL_SECONDS)
