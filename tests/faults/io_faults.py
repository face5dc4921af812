"""Runs in which a call into the operating system fails, once or from then on, or does half of what it was asked.

What must hold: a run that could not do all that it should says so by its exit code and names the errno and the
file; nothing is lost; no marker vouches for what is not done; the next run comes to the same end. Where the
exit code is that of the undisturbed run, the failure was harmless, and everything is as after that: an `undo` takes
it back, too.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence

from segfmt.filenames import CLUSTER_METADATA_FOLDER
from tests.faults.bench import CLEAN_CODES, StateBench, differences_below
from tests.faults.fork_server import Ended
from tests.faults.kills import changing_kill_points
from tests.faults.shim import OPS_OF_ERROR, Action, Call, Fault, Op

_PARTIAL_OPS = frozenset({Op.READ, Op.WRITE, Op.COPY})


def fault_points(calls: Iterable[Call]) -> list[Fault]:
    """Every fault: each error at each call that it can befall, once and from then on, and each short read or write."""
    points = []
    for call in calls:
        for is_persistent in (False, True):
            points += [
                Fault(action=Action.FAIL, at=call.number, error=error, is_persistent=is_persistent, ops=ops)
                for error, ops in OPS_OF_ERROR.items()
                if call.op in ops
            ]
            if call.op in _PARTIAL_OPS and call.result > 1:
                points.append(Fault(action=Action.SHORTEN, at=call.number, is_persistent=is_persistent))
    return points


def check_fault(bench: StateBench, fault: Fault) -> list[str] | None:
    """Let one run fail, look, run once more, look again, take all back; return what is wrong.

    What a run has done that ended well all the same is taken back first. None where nothing failed.
    """
    bench.fresh()
    return _check_failing(bench, fault, frozenset())


def resumed_fault_points(calls: Sequence[Call], rng: random.Random) -> list[tuple[Fault, Fault]]:
    """Pairs: a run that is killed, and one that goes on with it and fails. As many as there are calls."""
    kills = changing_kill_points(calls)
    faults = fault_points(calls)
    return [(rng.choice(kills), rng.choice(faults)) for _ in calls]


def check_resumed_fault(bench: StateBench, kill: Fault, fault: Fault) -> list[str] | None:
    """Kill one run, let the next one fail, look, run once more, look again, take all back.

    None where nothing failed.
    """
    bench.fresh()
    over = bench.over()
    ended = bench.run(kill)
    if not ended.is_killed:
        return None
    problems = _check_failing(bench, fault, over | bench.over())
    return None if problems is None else [f"killed at {ended.hit}: {problem}" for problem in problems]


def _check_failing(bench: StateBench, fault: Fault, over: frozenset[str]) -> list[str] | None:
    ended = bench.run(fault)
    if not ended.hit_count:
        return None
    problems = _failed_problems(bench, ended, fault, over)
    is_done = ended.exit_code == bench.undisturbed.exit_code
    if is_done and bench.undone.is_possible and not over and not problems:
        return [f"{fault} at {ended.hit}: {problem}" for problem in bench.undo_problems()]
    over |= bench.over()
    problems += [f"then: {problem}" for problem in bench.rerun_problems(over, bench.unmarked())]
    problems = problems or bench.all_undone_problems()
    return [f"{fault} at {ended.hit}: {problem}" for problem in problems]


def _failed_problems(bench: StateBench, ended: Ended, fault: Fault, over: frozenset[str]) -> list[str]:
    problems = [*bench.losses(), *bench.false_markers()]
    if ended.exit_code < 0:
        return [*problems, f"killed by signal {-ended.exit_code}"]
    if ended.exit_code in (*CLEAN_CODES, bench.undisturbed.exit_code):
        wrong = bench.differences(over)
        if not wrong:
            return problems
        if ended.exit_code in CLEAN_CODES:
            return [*problems, f"exit code {ended.exit_code}, but {'; '.join(wrong[:3])}"]
    problems += named_problems(bench, ended, fault)
    return problems if fault.is_persistent else [*problems, *_others_held_up(bench, ended, over)]


def named_problems(bench: StateBench, ended: Ended, fault: Fault) -> list[str]:
    """What a run that has failed for *fault* should have said and has not."""
    if ended.exit_code == 0:
        return []
    if fault.action is Action.SHORTEN:
        return [f"exit code {ended.exit_code} for a short read or write: {ended.stderr.strip()}"]
    problems = []
    said = error_words(ended)
    if os.strerror(fault.error) not in said:
        problems.append(f"errno is not named: {said}")
    hits = [os.path.basename(ended.hit_path.removesuffix(" (deleted)"))]
    if fault.is_persistent:  # then it may be another call that tells
        hits.append(str(bench.work))
    if not any(hit in said for hit in hits):
        problems.append(f"{ended.hit_path} is not named: {said}")
    if "an error in the tool itself" in said:
        problems.append(f"an unexpected error: {said}")
    return problems


def _others_held_up(bench: StateBench, ended: Ended, over: frozenset[str]) -> list[str]:
    """The log dirs that a failure in another one has kept from being recovered.

    The metadata log is asked for everybody's settings.
    """
    if CLUSTER_METADATA_FOLDER in ended.hit_path:
        return []
    found = bench.live_tree()
    return [
        f"{log_dir.name} is held up: {'; '.join(wrong[:2])}"
        for log_dir in bench.log_dirs
        if any(ended.hit_path.startswith(f"{one}/") for one in bench.log_dirs if one != log_dir)
        and log_dir.name not in over
        and (wrong := differences_below(bench.expected, found, log_dir.name))
    ]


def error_words(ended: Ended) -> str:
    """What a run says is wrong: on standard error, and in the report as a dir's error or a partition's reasons."""
    words = [ended.stderr.strip()] if ended.stderr.strip() else []
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        return " ".join([*words, ended.stdout.strip()])
    for log_dir in report["logDirs"]:
        words += [log_dir["error"]] if log_dir.get("error") else []
        words += [
            reason
            for partition in log_dir["partitions"]
            if partition["status"] in ("refused", "failed")
            for reason in partition["reasons"]
        ]
    return " ".join(dict.fromkeys(words))
