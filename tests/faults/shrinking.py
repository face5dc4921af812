"""Files that somebody cuts or replaces while a run reads them: no run may die of a signal.

A page of a mapping that is gone raises SIGBUS, as a bad sector under it does. What was in the spoilt file itself
is nobody's to keep; of every other file nothing may be lost, and the next run comes to an end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tests.faults.bench import StateBench
from tests.faults.io_faults import error_words
from tests.faults.shim import Action, Call, Fault, Op

_READING_OPS = frozenset({Op.OPEN, Op.READ, Op.MMAP, Op.STAT})
_EIGHTHS = (0, 3, 7)


def shrinking_points(calls: Iterable[Call]) -> list[Fault]:
    """Every look at a file, with the file cut before and after it, or replaced."""
    points = []
    for call in calls:
        if call.op not in _READING_OPS or call.error or not _is_file(call):
            continue
        for eighths in _EIGHTHS:
            points += [
                Fault(action=action, at=call.number, error=eighths)
                for action in (Action.CUT_BEFORE, Action.CUT_AFTER)
            ]
        points.append(Fault(action=Action.REPLACE_BEFORE, at=call.number))
    return points


def check_shrinking(bench: StateBench, fault: Fault) -> list[str]:
    """Spoil one file in the middle of a run; return what is wrong then."""
    bench.fresh()
    ended = bench.run(fault)
    if ended.exit_code < 0:
        return [f"{fault} at {ended.hit}: killed by signal {-ended.exit_code}"]
    problems = []
    if "an error in the tool itself" in ended.stderr:
        problems.append(error_words(ended))
    spoilt = os.path.basename(ended.hit_path).partition(".")[0]  # in quarantine it has a second name
    again = bench.run()
    if again.exit_code < 0 or "an error in the tool itself" in again.stderr:
        problems.append(f"then: exit code {again.exit_code}: {error_words(again)}")
    problems += [f"lost: {place}" for place in bench.lost() if f"/{spoilt}." not in place]
    return [f"{fault} at {ended.hit}: {problem}" for problem in problems]


def _is_file(call: Call) -> bool:
    return "." in call.path.rpartition("/")[2] and not call.path.endswith(".lock")
