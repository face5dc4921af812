"""What a run of the tests that was killed leaves mounted does not fail the runs after it."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import ROOT
from tests.servers.file_systems import unmount_what_killed_runs_left
from tests.servers.machine import MOUNTS

needs = pytest.mark.needs


@needs(MOUNTS)
def test_a_run_unmounts_what_a_killed_one_has_left(tmp_path: Path) -> None:
    of_user = tmp_path / f"pytest-of-{getpass.getuser()}"
    with ExitStack() as stack:
        for place in (of_user / "pytest-0/popen-gw1/test 0/logs", of_user / "garbage-0/logs"):
            place.mkdir(parents=True)
            _mount_twice(place, stack)
        environment = os.environ | {"PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
        environment.pop("PYTEST_XDIST_WORKER", None)  # it is a run of its own
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--co", "-p", "no:cacheprovider", __file__],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=True,
        )
        assert not _mounted_below(tmp_path)


@needs(MOUNTS)
def test_what_a_run_that_goes_on_has_mounted_stays(tmp_path: Path) -> None:
    dead, alive = tmp_path / "pytest-1/a", tmp_path / "pytest-2/a"
    ended = subprocess.Popen(["true"])
    ended.wait()
    with ExitStack() as stack:
        for place, pid in ((dead, ended.pid), (alive, os.getpid())):
            place.mkdir(parents=True)
            (place.parent / ".lock").write_text(str(pid))
            _mount_twice(place, stack)
        unmount_what_killed_runs_left(tmp_path)
        assert _mounted_below(tmp_path) == [alive, alive / "above"]


def _mount_twice(place: Path, stack: ExitStack) -> None:
    """Mount a file system, and one in it, which the test need not unmount."""
    stack.callback(subprocess.run, ["umount", "--recursive", str(place)], capture_output=True, check=False)
    for one in (place, place / "above"):
        one.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(one)], check=True)


def _mounted_below(folder: Path) -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [Path(line.split()[4].replace("\\040", " ")) for line in lines]
    return [place for place in places if place.is_relative_to(folder)]
