"""The smallest input that still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.fuzz.children import Note, in_child
from tests.fuzz.targets import Target


def failure_of(target: Target, data: bytes) -> str | None:
    """How *target* fails on *data*, in a child: a signal, or the exception and the line that raised it."""

    def work(note: Note) -> None:
        note.write(data)
        target.run(data)

    error = in_child(work).error
    return None if error is None else signature(error)


def signature(error: str) -> str:
    """The last place and the exception's name of a traceback: what tells one finding from another."""
    places = re.findall(r'File "[^"]*?((?:segfmt|native|recovery|tests)/[^"]+)", line (\d+)', error)
    last = error.strip().splitlines()[-1]
    # The words of an assertion tell what is wrong, its numbers which case it was.
    name = re.sub(r"[\d'\"\[(].*", "", last).strip() if "Assertion" in last else last.partition(":")[0]
    return f"{name} at {':'.join(places[-1])}" if places else name


def minimise(data: bytes, is_failing: Callable[[bytes], bool], *, most_trials: int = 2000) -> bytes:
    """Return *data* with pieces left out, then bytes made zero, for as long as it fails."""
    trials = 0

    def fails(candidate: bytes) -> bool:
        nonlocal trials
        trials += 1
        return trials <= most_trials and is_failing(candidate)

    size = len(data) // 2
    while size > 0:
        position = 0
        while position < len(data):
            shorter = data[:position] + data[position + size :]
            if fails(shorter):
                data = shorter
            else:
                position += size
        size //= 2
    for position in range(len(data)):
        zeroed = data[:position] + b"\0" + data[position + 1 :]
        if zeroed != data and fails(zeroed):
            data = zeroed
    return data
