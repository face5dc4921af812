"""Runs that are killed at a call: before it, after it, or in the middle of what it writes; then started again.

What a point is called (`kill-after@17`, or `kill-after@17,kill-before@9` for a second run that is killed, too)
repeats it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recovery.plan.actions import TEMPORARY_SUFFIX
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT
from tests.brokers import Oracle
from tests.faults.bench import StateBench, differences_below, differences_by_file
from tests.faults.fork_server import Ended
from tests.faults.shim import CHANGING_OPS, Action, Call, Fault, Op
from tests.logs.samples import MARKER


def kill_points(calls: Iterable[Call]) -> list[Fault]:
    """Every kill: before each call, after each that changes something, and within each write."""
    points = []
    for call in calls:
        points.append(Fault(action=Action.KILL_BEFORE, at=call.number))
        if call.op in CHANGING_OPS:
            points.append(Fault(action=Action.KILL_AFTER, at=call.number))
        if call.op in (Op.WRITE, Op.COPY) and call.result > 1:
            points.append(Fault(action=Action.TEAR, at=call.number))
    return points


def disk_points(calls: Iterable[Call]) -> list[Fault]:
    """Every disk that a kill can leave, once: that of the start, and those of `changing_kill_points`.

    A kill leaves nothing but the disk. Before a call that only looks it leaves what the kill before that call would
    have left, and before one that changes something what the kill after the last such call has left.
    """
    return [Fault(action=Action.KILL_BEFORE, at=1), *changing_kill_points(calls)]


def changing_kill_points(calls: Iterable[Call]) -> list[Fault]:
    """The kills that leave the disk in a state of its own: after each call that changes something, and torn."""
    return [point for point in kill_points(calls) if point.action is not Action.KILL_BEFORE]


def double_kills(calls: Sequence[Call], count: int, rng: random.Random) -> list[tuple[Fault, Fault]]:
    """*count* pairs: a run that is killed, and one after it that is killed early or late."""
    points = changing_kill_points(calls)
    last = len(calls)
    return [
        (
            rng.choice(points),
            Fault(
                action=rng.choice([Action.KILL_BEFORE, Action.KILL_AFTER, Action.TEAR]),
                at=rng.randint(1, last),
            ),
        )
        for _ in range(count)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEnd:
    """What a broker makes of a state, and what it loses.

    Attributes:
        unmarked: the same for the state without its clean-shutdown markers, where it has any: a run takes the marker
            away before it changes anything, as a broker does.
    """

    tree: dict[str, bytes]
    lost: frozenset[str]
    unmarked: BrokerEnd | None = None


def check_kills(bench: StateBench, kills: Sequence[Fault]) -> list[str]:
    """Kill one run after the other, look, run once more, look again, take all back; return what is wrong."""
    bench.fresh()
    over: frozenset[str] = frozenset()
    killed: list[Ended] = []
    for kill in kills:
        over |= bench.over()
        ended = bench.run(kill)
        killed.append(ended)
        if not ended.is_killed:
            return bench.end_problems(ended, over)
        problems = [*bench.losses(), *bench.false_markers()]
        if problems:
            return [f"killed at {ended.hit}: {problem}" for problem in problems]
    over |= bench.over()
    problems = bench.rerun_problems(over, before=killed) or bench.all_undone_problems()
    return [f"killed at {ended.hit}: {problem}" for problem in problems]


def check_restart(bench: StateBench, kill: Fault) -> list[str]:
    """Kill a run and begin anew with `--restart`; return what is wrong with the account that both have given.

    A run that has taken the marker of a clean log dir is not forgotten: the same command goes on with it.
    """
    bench.fresh()
    killed = bench.run(kill)
    ended = bench.run(options=("--restart",))
    if ended.exit_code == 3 and "taken the clean-shutdown marker away" in ended.stderr:
        ended = bench.run()
    problems = [*bench.losses(), *bench.leftovers(), *bench.account_problems((killed, ended))]
    return [f"killed at {killed.hit}: {problem}" for problem in problems]


def check_broker(bench: StateBench, kill: Fault, oracle: Oracle, untouched: BrokerEnd) -> list[str]:
    """Kill a run and start a broker instead; return what is wrong with the tree that it reaches.

    Args:
        untouched: what the broker makes of the state without a run before.
    """
    bench.fresh()
    ended = bench.run(kill)
    return [f"killed at {ended.hit}: {problem}" for problem in broker_problems(bench, oracle, untouched)]


def untouched_end(bench: StateBench, oracle: Oracle) -> BrokerEnd | str:
    """What a broker makes of the state without a run before, or why it does not start."""
    bench.fresh()
    end = broker_end(bench, oracle)
    if not bench.state.is_clean or isinstance(end, str):
        return end
    bench.fresh()
    for log_dir in bench.log_dirs:
        (log_dir / MARKER).unlink()
    unmarked = broker_end(bench, oracle)
    return unmarked if isinstance(unmarked, str) else replace(end, unmarked=unmarked)


def broker_problems(bench: StateBench, oracle: Oracle, untouched: BrokerEnd) -> list[str]:
    """Start a broker on what is on the bench; return what is wrong with the tree that it reaches."""
    over = bench.over()
    marked = {log_dir.name for log_dir in bench.log_dirs if (log_dir / MARKER).exists()}
    advanced = {log_dir.name for log_dir in bench.log_dirs if _has_advanced(bench, log_dir.name)}
    found = broker_end(bench, oracle)
    if isinstance(found, str):
        return [f"the broker does not start: {found}"]
    wrong = []
    may_lose = untouched.lost | (untouched.unmarked.lost if untouched.unmarked else frozenset())
    for log_dir in bench.log_dirs:
        expected = untouched.tree
        if log_dir.name in over:
            expected = bench.expected_again
        elif untouched.unmarked is not None and log_dir.name not in marked:
            expected = untouched.unmarked.tree
        here = differences_below(expected, found.tree, log_dir.name)
        if here and expected is not untouched.tree and log_dir.name in advanced - over:
            here = differences_by_file(untouched.tree, expected, found.tree, log_dir.name)
        wrong += [f"a broker reaches another tree: {words}" for words in here[:3]]
    lost = sorted(found.lost - may_lose)
    if lost:
        wrong.append(f"the broker has lost {len(lost)} batches more: {', '.join(lost[:3])}")
    return wrong


def _has_advanced(bench: StateBench, log_dir: str) -> bool:
    """Whether the hand-off of a log dir has begun: its recovery points are those of the end."""
    place = f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}"
    return not differences_below(bench.expected, bench.live_tree(), place)


def broker_end(bench: StateBench, oracle: Oracle) -> BrokerEnd | str:
    """Let the broker load what is on the bench; return what becomes of it, or why it does not start."""
    sample = bench.sample
    bench.changed()
    outcome = oracle.load(
        bench.log_dirs, now_ms=sample.now_ms, properties=sample.properties, topic_configs=sample.topic_configs
    )
    if outcome.outcome != "loaded":
        return f"{outcome.outcome}: {outcome.error}"
    # A broker passes over what a killed run was writing, too.
    tree = {name: data for name, data in bench.live_tree().items() if not name.endswith(TEMPORARY_SUFFIX)}
    return BrokerEnd(tree=tree, lost=frozenset(bench.lost()))
