"""Restores that are killed, or fail, and are started again: a sample; `python -m tests.faults.restores` takes more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.one_command import chosen_points
from tests.faults.restore_undos import UndoBench
from tests.faults.restores import RestoreBench, run_cases

pytestmark = pytest.mark.long


@pytest.mark.parametrize("is_aux", [False, True], ids=["full", "aux"])
def test_a_restore_is_killed_and_started_again(ram_path: Path, is_aux: bool) -> None:
    bench = RestoreBench(folder=ram_path, is_aux=is_aux)
    bench.make()
    points = chosen_points(bench, seed=18, most=12)
    assert len(points) == 12
    assert run_cases(bench, points) == []


@pytest.mark.parametrize("is_aux", [False, True], ids=["full", "aux"])
def test_a_call_of_a_restore_fails(ram_path: Path, is_aux: bool) -> None:
    """It says so, leaves no half folder, and the next run comes to the same tree."""
    bench = RestoreBench(folder=ram_path, is_aux=is_aux)
    bench.make()
    points = chosen_points(bench, seed=19, most=12, is_failing=True)
    assert len(points) == 12
    assert run_cases(bench, points) == []


@pytest.mark.parametrize("is_failing", [False, True], ids=["killed", "failing"])
def test_an_undo_of_a_restore_is_disturbed(ram_path: Path, is_failing: bool) -> None:
    """It leaves a log whole or takes all of it, and the next one goes on."""
    bench = UndoBench(folder=ram_path)
    bench.make()
    points = chosen_points(bench, seed=20, most=12, is_failing=is_failing)
    assert len(points) == 12
    assert run_cases(bench, points) == []
