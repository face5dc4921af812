"""An `undo` that is killed at a call, or in which one fails, and the next one that goes on.

Each case is a recovery, an `undo` that is disturbed, and one that is not: what that leaves is what one leaves that
nothing has disturbed, no batch is lost meanwhile, and what it leaves can be recovered as before.
"""

from __future__ import annotations

from tests.faults.bench import StateBench
from tests.faults.crashes import crash, crash_points
from tests.faults.io_faults import fault_points, named_problems
from tests.faults.kills import disk_points
from tests.faults.shim import Fault
from tests.logs.samples import differences


def undo_kill_points(bench: StateBench) -> list[Fault]:
    """Every disk that a kill of the `undo` can leave, once; none where there is nothing to take back."""
    return disk_points(bench.undone.calls) if bench.undone.is_possible else []


def undo_fault_points(bench: StateBench) -> list[Fault]:
    """Every fault of the `undo`."""
    return fault_points(bench.undone.calls) if bench.undone.is_possible else []


def undo_crash_points(bench: StateBench) -> list[str]:
    """The points of `crashes.crash_points` in the `undo`."""
    found = crash_points(bench.undone.calls) if bench.undone.is_possible else []
    return [f"{fault}/{variant}" for fault, variant in found]


def check_undo(bench: StateBench, fault: Fault) -> list[str] | None:
    """Recover, disturb one `undo`, look, let another one end, look again; return what is wrong.

    None where nothing failed.
    """
    bench.fresh()
    bench.run()
    ended = bench.run(fault, command="undo")
    if not ended.hit_count:
        return None
    problems = bench.losses()
    if not ended.is_killed:
        problems += _failed_problems(bench, fault, ended.exit_code) or named_problems(bench, ended, fault)
    return [f"{fault} at {ended.hit}: {problem}" for problem in (*problems, *bench.undo_problems())]


def check_undo_crash(bench: StateBench, fault: Fault, variant: int) -> list[str] | None:
    """Crash an `undo`, let another one end, look; return what is wrong, None where nothing was unsafe."""
    hit = crash(bench, fault, variant, command="undo")
    if hit is None:
        return None
    problems = [*bench.losses(), *bench.undo_problems()]
    return [f"crashed at {hit}, variant {variant}: {problem}" for problem in problems]


def _failed_problems(bench: StateBench, fault: Fault, exit_code: int) -> list[str]:
    """What is wrong with the exit code of an `undo` that was not killed."""
    if exit_code < 0:
        return [f"killed by signal {-exit_code}"]
    if exit_code == 0:
        return [
            f"exit code 0, but {words}" for words in differences(bench.undone.tree, bench.live_tree())[:3]
        ]
    return []
