"""What a machine lacks is looked for before the tests that need it, and named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.servers import machine
from tests.servers.machine import MOUNTS, OTHER_USERS, Need, hide_programs, needs

WITHOUT_MOUNTS = ("setpriv", "--bounding-set", "-sys_admin")


def run_without_mounts(*arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WITHOUT_MOUNTS, "env", f"CI={ci}", sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@needs(MOUNTS, OTHER_USERS)
class TestWithoutTheRightToMount:
    TEST = "tests/recovery/engine/test_file_systems.py::TestOverlay"

    def test_it_is_named_in_a_line(self) -> None:
        done = run_without_mounts("tests.servers.machine")
        assert done.returncode == 0
        mounts, apart = (
            line for line in done.stderr.splitlines() if "mount" in line
        )  # others may lack as well
        assert mounts.startswith(
            "no right to mount (CAP_SYS_ADMIN): the tests on overlays, full and failing disks are skipped. Remedy: "
        )
        assert apart.startswith("no mounts of a process's own")

    def test_tests_are_skipped_and_not_begun(self, tmp_path: Path) -> None:
        done = run_without_mounts(
            "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 't'}", self.TEST
        )
        assert done.returncode == 0, done.stdout
        assert "no right to mount (CAP_SYS_ADMIN). Remedy: run them as root" in done.stdout
        assert "error" not in done.stdout.splitlines()[-1]

    def test_in_ci_that_is_a_failure(self, tmp_path: Path) -> None:
        done = run_without_mounts(
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            f"--basetemp={tmp_path / 't'}",
            self.TEST,
            ci="true",
        )
        assert done.returncode == 1, done.stdout
        assert "skipped, which counts as a failure in CI" in done.stdout


def test_what_is_missing_below_is_what_is_named() -> None:
    below = Need(is_met=lambda: False, lack="no below", tests="some", remedy="have it")
    above = Need(is_met=lambda: pytest.fail("looked for"), lack="x", tests="x", remedy="x", beyond=(below,))
    assert above.why_not == below.why_not == "no below. Remedy: have it"


def test_each_need_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Need(is_met=lambda: False, lack="no such thing", tests="the tests of it", remedy="get it")
    there = Need(is_met=lambda: True, lack="x", tests="x", remedy="x")
    covered = Need(is_met=lambda: False, lack="x", tests="x", remedy="x", beyond=(lacking,))
    monkeypatch.setattr(machine, "ALL", (lacking, there, covered))
    assert machine.unmet() == ["no such thing: the tests of it are skipped. Remedy: get it"]


def test_commands_that_are_missing_are_needs_that_are_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for is_met in (machine.may_mount, machine.has_mkfs_ext4, machine.may_become_another_user, machine.has_go):
        assert not is_met.__wrapped__()


@pytest.mark.parametrize("program", ["java", "javac", "mvn", "go", "chromium"])
def test_what_the_quick_gate_does_without_cannot_be_started(program: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)}
    hide_programs(tmp_path, environment)
    assert list(environment) == ["PATH"]
    done = subprocess.run([program, "-version"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"the quick gate starts no {program}\n")


@pytest.mark.long
@pytest.mark.parametrize("given", [["-n", "0"], ["-n", "1"], ["-n", "0", "-m", "broker or not broker"]])
def test_the_quick_gate_leaves_out_what_is_marked(given: list[str], tmp_path: Path) -> None:
    suite = "tests/kafka/test_quarantine_purge.py"
    options = ["--quick", "-v", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 't'}", *given]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, suite],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(re.findall(rf"{suite}::(\w+)", done.stdout)) == {"test_what_counts_as_a_complaint"}, (
        done.stdout
    )
    assert done.returncode == 0
