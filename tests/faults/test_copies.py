"""Copies that are killed, or fail, and are started again: a sample; `python -m tests.faults.copies` takes more."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.copies import CopyBench, run_cases
from tests.faults.one_command import chosen_points
from tests.servers.file_systems import tmpfs
from tests.servers.machine import MOUNTS, needs

pytestmark = pytest.mark.long


@pytest.mark.parametrize("is_again", [False, True], ids=["new", "again"])
@pytest.mark.parametrize("is_failing", [False, True], ids=["killed", "failing"])
def test_a_copy_is_disturbed_and_started_again(ram_path: Path, is_again: bool, is_failing: bool) -> None:
    bench = CopyBench(folder=ram_path, is_again=is_again)
    bench.make()
    points = chosen_points(bench, seed=20, most=12, is_failing=is_failing)
    assert len(points) == 12
    assert run_cases(bench, points) == []


@needs(MOUNTS)
def test_the_disk_of_the_output_is_full(ram_path: Path) -> None:
    """It says so, has no half object, and goes on when there is room."""
    bench = CopyBench(folder=ram_path)
    bench.make()
    bench.fresh()
    sources = bench.sources()
    with tmpfs(bench.output, size="1m"):
        full = bench.run()
        assert full.returncode == 1
        account = json.loads(full.stdout)
        assert account["error"].startswith(str(bench.output))
        assert account["error"].endswith(os.strerror(errno.ENOSPC))
        assert sum(one["leftFiles"] for one in account["logDirs"]) > 0
        copied = bench.copied()
        assert copied
        assert copied.items() <= sources.items()
        subprocess.run(["mount", "-o", "remount,size=64m", str(bench.output)], check=True)
        due = bench.due()
        again = bench.run()
        assert again.returncode == 0, again.stderr
        assert bench.copied() == sources
        assert sum(one["files"] for one in json.loads(again.stdout)["logDirs"]) == len(due)
    assert bench.sources() == sources
