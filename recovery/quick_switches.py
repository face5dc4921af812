"""How often threads take turns at the interpreter while a run is on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_S = 0.0005
"""How long a thread that comes out of a kernel waits for one in Python; its own 5 ms are a window's scan."""


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads take turns often in the block; what the program has set is set again behind it."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
