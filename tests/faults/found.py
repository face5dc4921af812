"""The cases that failed once: each is run in every suite for ever.

A call is written `{op path}`, the first one on a path that ends so (`fnmatch`), `{op path 2}`, the second,
`{op path -1}`, the last: its number changes with the code before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from tests.faults.bench import StateBench
from tests.faults.shim import Call, Fault

_CALL = re.compile(r"\{(\w+) (\S+?)(?: (-?\d+))?\}")

FOUND = (
    (
        "shrinking",
        "overflowed segment",
        "cut-before@{mmap late-0/00000000000000000035.log}:7",
        "cut between the look at its size and the mapping of it",
    ),
    (
        "faults",
        "log start beyond the end",
        "EIO@{stat d1/log-start-offset-checkpoint}",
        "a checkpoint that could not be looked at was taken for missing",
    ),
    (
        "faults",
        "torn with transactions",
        "EIO@{stat manifest.jsonl}",
        "a descriptor's number was named for the manifest",
    ),
    (
        "faults",
        "interrupted compaction",
        "EIO@{stat journal.new}",
        "a new journal that could not be looked at was left behind",
    ),
    (
        "faults",
        "log start beyond the end",
        "EACCES@{stat late-0/00000000000000000035.log}",
        "a refused folder did not say which file it was",
    ),
    (
        "faults",
        "clean, one of two is damaged",
        "EACCES@{stat transactions-0/00000000000000000000.timeindex}",
        "what is left of a clean log dir is loaded as unclean by the next run",
    ),
    (
        "undo-faults",
        "three partitions",
        "EIO@{readdir d1.quarantine/*/late-0 -1}",
        "an undo that had begun to remove its quarantine was done again, from what was left of it",
    ),
    ("undo-faults", "three partitions", "EACCES+@{stat d1.quarantine/*/late-1/* -1}", "the same"),
    (
        "undo-crashes",
        "torn first segment",
        "kill-after@{unlink d1.quarantine/undo -1}/4",
        "the journal of an undo was gone for good, and the quarantine that it had removed was not",
    ),
    (
        "faults-resumed",
        "two log dirs",
        "kill-after@{truncate d1/transactions-2/*.log},EIO@{stat d1/log-start-offset-checkpoint 8}",
        "an interrupted log dir that could not be looked at held up the other one",
    ),
    (
        "faults-resumed",
        "two log dirs",
        "kill-after@{truncate d1/transactions-2/*.log},EIO@{stat d2/log-start-offset-checkpoint 8}",
        "the same",
    ),
    (
        "faults-resumed",
        "clean, one of two is damaged",
        "kill-after@{mode d1/recovery-point-offset-checkpoint.recovery-tmp},EIO+@{sync d1}",
        "what the first run had staged of the hand-off was missed by the third one, which began anew",
    ),
    (
        "faults-resumed",
        "batches out of order",
        "kill-after@{write journal.new 2},EIO@{unlink journal.new}",
        "a journal that was not begun to its end, and could not be removed by the next run, stayed for ever",
    ),
    (
        "faults-resumed",
        "pending deletions",
        "tear@{write journal.new 2},EROFS@{unlink journal.new}",
        "the same",
    ),
)
"""Kind, state, point, and what it was."""


def numbered(bench: StateBench, kind: str, point: str) -> str:
    """Return *point* with the numbers of its calls: of an undisturbed run, behind a comma of one after the first fault.

    Raises:
        LookupError: there is no such call.
    """
    first, comma, second = point.partition(",")
    first = _with_numbers(first, bench.undone.calls if kind.startswith("undo") else bench.calls)
    if _CALL.search(second):
        bench.fresh()
        bench.run(Fault.parse(first))
        bench.run(trace=True)
        second = _with_numbers(second, bench.last_calls())
    return first + comma + second


def _with_numbers(word: str, calls: Sequence[Call]) -> str:
    return _CALL.sub(lambda place: str(_number(calls, place)), word)


def _number(calls: Sequence[Call], place: re.Match[str]) -> int:
    op, tail, nth = place.groups()
    found = [
        call.number for call in calls if call.op.name.lower() == op and fnmatchcase(call.path, f"*/{tail}")
    ]
    which = int(nth or 1)
    if len(found) < abs(which):
        raise LookupError(f"{place[0]}: {len(found)} such calls")
    return found[which - 1 if which > 0 else which]
