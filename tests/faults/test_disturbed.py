"""Killed, failing, short of room, crashed: a sample of each kind on each state. The campaign takes all points."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.brokers import Oracle
from tests.faults.bench import Bench
from tests.faults.campaign import run_long_kills, run_state
from tests.faults.found import FOUND
from tests.faults.states import MADE_STATES, find_state
from tests.runs.driving import quarantine_of

pytestmark = pytest.mark.long

STATES = (*MADE_STATES, "1/2", "1/3", "1/8")
SEED = 4


def assert_holds(
    bench: Bench,
    kind: str,
    state: str,
    *,
    most: int | None = None,
    point: str | None = None,
    oracle: Oracle | None = None,
) -> None:
    tally = run_state(bench, kind, find_state(state), seed=SEED, most=most, point=point, oracle=oracle)
    assert not tally.failing, "\n".join(map(str, tally.failing[:5]))
    assert tally.cases


@pytest.mark.parametrize("state", STATES)
def test_killed_and_started_again(bench: Bench, state: str) -> None:
    assert_holds(bench, "kills", state, most=24)


@pytest.mark.parametrize("state", STATES)
def test_killed_and_begun_anew(bench: Bench, state: str) -> None:
    assert_holds(bench, "kills-restart", state, most=16)


@pytest.mark.java
@pytest.mark.parametrize("state", [name for name in MADE_STATES if MADE_STATES[name].keeps_broker])
def test_killed_and_a_broker_is_started_instead(bench: Bench, oracle: Oracle, state: str) -> None:
    assert_holds(bench, "kills-broker", state, most=6, oracle=oracle)


@pytest.mark.parametrize("state", STATES)
def test_a_call_fails(bench: Bench, state: str) -> None:
    assert_holds(bench, "faults", state, most=24)


@pytest.mark.parametrize("kind", ["undo-kills", "undo-faults", "undo-crashes"])
@pytest.mark.parametrize("state", ["torn first segment", "unfinished split", "clean, one of two is damaged"])
def test_an_undo_is_disturbed(bench: Bench, kind: str, state: str) -> None:
    assert_holds(bench, kind, state, most=12)


@pytest.mark.parametrize("state", STATES)
def test_crashed_and_started_again(bench: Bench, state: str) -> None:
    assert_holds(bench, "crashes", state, most=10)


@pytest.mark.java
@pytest.mark.parametrize("state", ["torn first segment", "overflowed segment"])
def test_crashed_and_a_broker_is_started_instead(bench: Bench, oracle: Oracle, state: str) -> None:
    assert_holds(bench, "crashes-broker", state, most=10, oracle=oracle)


@pytest.mark.parametrize("state", ["torn first segment", "interrupted compaction", "two log dirs"])
def test_files_shrink_while_they_are_read(bench: Bench, state: str) -> None:
    assert_holds(bench, "shrinking", state, most=30)


def test_a_run_changes_nothing_where_quarantine_cannot_be_written(bench: Bench) -> None:
    with bench.place(find_state("torn first segment")) as on_bench:
        on_bench.fresh()
        (log_dir,) = on_bench.log_dirs
        quarantine_of(log_dir).write_bytes(b"in the way")
        assert on_bench.run().exit_code == 1
        assert on_bench.live_tree() == on_bench.untouched
        quarantine_of(log_dir).unlink()
        assert on_bench.rerun_problems() == []


def test_the_disk_is_full() -> None:
    command = [sys.executable, "-m", "tests.faults.campaign", "full-disk", "--only", "overflowed segment"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " cases, 0 failing" in done.stdout


def test_a_long_run_is_killed_at_any_time(ram_path: Path) -> None:
    tally = run_long_kills(ram_path, SEED, 2, copies=4, segment_mib=4)
    assert not tally.failing, "\n".join(map(str, tally.failing))


@pytest.mark.parametrize(("kind", "state", "point", "what"), FOUND)
def test_what_failed_once(bench: Bench, kind: str, state: str, point: str, what: str) -> None:
    assert_holds(bench, kind, state, point=point)
