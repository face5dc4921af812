"""The command line as a user runs it: a process of its own, its two streams, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.logs.samples import Sample
from tests.patience import LONGEST_WAIT_SECONDS

RECOVERY = (sys.executable, "-m", "recovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report, which is all that standard output has."""
        report = json.loads(self.stdout)
        assert report["version"] == 1
        assert report["exitCode"] == self.exit_code or self.exit_code == 0
        return report


def run(
    *arguments: str | os.PathLike[str],
    prefix: Sequence[str] = (),
    command: Sequence[str] = RECOVERY,
    timeout: float = LONGEST_WAIT_SECONDS,
    **options: Any,
) -> Done:
    """Run `kafka-log-recovery` with *arguments*; *prefix* is the command that starts it, `nsenter ...`."""
    done = subprocess.run(
        [*prefix, *command, *map(os.fspath, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        **options,
    )
    return Done(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def arguments_of(sample: Sample, *more: object) -> list[str]:
    """The command line that recovers a sample by its configuration and its clock, with a JSON report."""
    clock = ("--now", sample.now_ms)
    return list(
        map(str, ("recover", "-c", sample.config, *clock, "--format", "json", "--progress", "none", *more))
    )


def recover(sample: Sample, *arguments: str | os.PathLike[str], **options: Any) -> Done:
    """Run that."""
    return run(*arguments_of(sample, *map(os.fspath, arguments)), **options)


def start(
    *arguments: str | os.PathLike[str], command: Sequence[str] = RECOVERY, **options: Any
) -> subprocess.Popen[str]:
    """Start `kafka-log-recovery` and do not wait."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, *map(os.fspath, arguments)], text=True, **(pipes | options))


def run_unheard(*arguments: str | os.PathLike[str]) -> tuple[int, str]:
    """Run `kafka-log-recovery` where nobody gets its report: the device is full. Exit code, and standard error."""
    with open("/dev/full", "w") as full:
        process = start(*arguments, stdout=full)
        _, stderr = process.communicate()
    return process.returncode, stderr


def assert_one_line(done: Done, *words: str) -> None:
    """A failed command says in one line what is wrong, and prints no result."""
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("kafka-log-recovery")
    for word in words:
        assert word in lines[0]
