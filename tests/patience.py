"""How long tests wait for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_WAIT_SECONDS = 1800.0
"""Only what hangs takes as long: beside busy loops and other tests, a Spark command of 18 s has taken 600."""


def wait_until(
    holds: Callable[[], object],
    what: Callable[[], object] | str = "",
    *,
    pause_seconds: float = 0.05,
) -> None:
    """Return as soon as something holds.

    Args:
        holds: is asked again and again.
        what: what the failure says if it never holds; a function is called then.
        pause_seconds: between two questions.
    """
    end_s = time.monotonic() + LONGEST_WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end_s, what() if callable(what) else what or "it never came"
        time.sleep(pause_seconds)
