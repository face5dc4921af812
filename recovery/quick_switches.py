"""How often threads take turns at the interpreter during a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_S = 0.0005
"""How long a thread that leaves a kernel waits for one in Python; Python's default, 5 ms, is a window's scan."""


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads take turns often in the block; the program's own setting is restored after it."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
