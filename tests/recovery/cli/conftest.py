"""What the suites of the command line share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def signals_are_not_ignored() -> Iterator[None]:
    """As `nohup`, or a script that runs the tests with `&`, would have it, for every command that they start."""
    given = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}
    for number, handler in given.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in given.items():
        signal.signal(number, handler)
