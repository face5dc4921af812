"""The runs beside busy loops: the loops end, and a failure ends the runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.busy import busy_loops, main


def test_loops_end_with_their_block() -> None:
    with busy_loops(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert all(loop.poll() for loop in loops)


@pytest.mark.parametrize(("code", "runs"), [(0, 2), (3, 1)])
def test_a_failure_ends_the_runs(tmp_path: Path, code: int, runs: int) -> None:
    program = f"open({str(tmp_path / 'runs')!r}, 'a').write('.'); raise SystemExit({code})"
    assert main(["--loops", "1", "--times", "2", "--", sys.executable, "-c", program]) == code
    assert (tmp_path / "runs").read_text() == "." * runs
