"""What a figure was measured on, and how much of the machine others were using meanwhile."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from native import cpu

ROOT = Path(__file__).resolve().parent.parent
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal
_TICKS = os.sysconf("SC_CLK_TCK")


def describe(data_dir: Path) -> dict[str, Any]:
    """Return CPU, CPU path, kernel, file system of *data_dir*, versions and commit."""
    facts = _cpu_facts()
    return {
        "cpu": facts.get("model name", platform.processor()),
        "cpu_family_model": f"{facts.get('cpu family', '?')}/{facts.get('model', '?')}",
        "cpus": os.cpu_count(),
        "cpu_path": cpu.choose().name,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "file_system": _file_system(data_dir),
        "read_ahead_kb": _read_ahead_kb(data_dir),
        "python": platform.python_version(),
        "numba": version("numba"),
        "llvmlite": version("llvmlite"),
        "numpy": version("numpy"),
        "java": _java(),
        "commit": _commit(),
    }


def line(facts: dict[str, Any]) -> str:
    """Return what *facts* (`describe`) say in one line, for under a table."""
    return (
        f"Machine: {facts['cpu']} (family/model {facts['cpu_family_model']}), {facts['cpus']} CPUs, "
        f"{facts['memory_bytes'] / 1e9:.0f} GB, kernel {facts['kernel']}, {facts['file_system']}, Python "
        f"{facts['python']}, numba {facts['numba']}, {facts['java']}; CPU path {facts['cpu_path']}; "
        f"commit {facts['commit']}"
    )


def end_cleanly_when_told() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what it has made is removed, what it has started is ended."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


class CpuMeter:
    """How busy the machine is with the work of others.

    Kernel threads that write back our own pages count as others.
    """

    def __init__(self) -> None:
        self._start = self._now()

    def foreign_share(self, running_cpu_seconds: float = 0.0) -> float:
        """Return the share of all CPUs, 0 to 1, that others have used since the meter was made.

        Args:
            running_cpu_seconds: what children have used that still run; those that have been waited for count anyway.
        """
        wall, busy, own = (now - before for now, before in zip(self._now(), self._start, strict=True))
        return max(0.0, busy - own - running_cpu_seconds) / max(wall * (os.cpu_count() or 1), 1e-9)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        busy = sum(fields[place] for place in _BUSY_FIELDS) / _TICKS
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy, sum(usage.ru_utime + usage.ru_stime for usage in usages)


def wait_until_quiet(patience_seconds: float, *, most_share: float = 0.05) -> None:
    """Wait until others use less than *most_share* of the CPUs for a second, or patience is at its end."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        meter = CpuMeter()
        time.sleep(1)
        if meter.foreign_share() < most_share:
            return


def disk_read_bytes() -> int:
    """Return how much the machine has read from disks since it started."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counters["pgpgin"]) * 1024


def _cpu_facts() -> dict[str, str]:
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts


def _file_system(path: Path) -> str:
    done = subprocess.run(
        ["findmnt", "--json", "--output", "FSTYPE,OPTIONS", "--target", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return "?"
    found = json.loads(done.stdout)["filesystems"][0]
    return f"{found['fstype']} ({found['options']})"


def _read_ahead_kb(path: Path) -> int | None:
    device = os.stat(path).st_dev
    for place in ("queue", "../queue"):
        setting = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/{place}/read_ahead_kb")
        if setting.exists():
            return int(setting.read_text())
    return None


def _java() -> str:
    if shutil.which("java") is None:
        return "no Java"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[0]


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "?"
