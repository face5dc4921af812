"""How the suites run `verify` on samples and damaged partitions, and what they look at in its report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recovery.check.api import verify
from recovery.check.finding import Finding
from recovery.check.report import VerifyReport
from tests.logs.samples import Sample

_HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def verified(sample: Sample, log_dirs: Iterable[Path] | None = None, **options: Any) -> VerifyReport:
    """Verify *log_dirs* (all of the sample's unless given) with the sample's settings."""
    properties = {key: text for key, text in sample.properties.items() if "log.dir" not in key}
    dirs = sample.log_dirs if log_dirs is None else log_dirs
    topics = {
        folder.name.rpartition("-")[0].split(".")[0]: {}
        for log_dir in sample.log_dirs
        for folder in log_dir.iterdir()
        if folder.is_dir()
    }
    return verify(
        [str(log_dir) for log_dir in dirs],
        config=properties,
        topic_configs=topics | dict(sample.topic_configs),
        now_ms=sample.now_ms,
        **options,
    )


def damage_of(report: VerifyReport) -> list[Finding]:
    """All findings of damage."""
    return [found for file in report.files for found in file.findings if found.severity == "damage"]


def rules_of(report: VerifyReport) -> set[str]:
    """The rules of all findings of damage."""
    return {found.rule for found in damage_of(report)}


def lines_of(report: VerifyReport) -> list[str]:
    """What the report says of damage and of files that could not be read, for messages."""
    return [line for file in report.files for line in file.lines() if not line.startswith("note")]


@contextmanager
def held_lock(log_dir: Path) -> Iterator[None]:
    """Hold the lock of a log dir in another process, as a broker does."""
    command = [sys.executable, "-c", _HOLDER, os.fspath(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.stdin.close()
            holder.wait()
