"""A long run of the real command line, killed by SIGKILL at any time, again and again, until one gets to its end."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

from tests import ROOT
from tests.faults.states import torn_first_segment_of
from tests.logs.large_log_dirs import make_large
from tests.logs.samples import differences, tree_of
from tests.runs.command import RECOVERY
from tests.runs.driving import log_bytes, lost_batches, own_leftovers

PROCESSES = ("never", "always")
"""What a killed run was is nothing to the next one: each takes one of these."""


class LongRun:
    """Large damaged log dirs, and what a run makes of them that nobody kills."""

    def __init__(self, root: Path, *, copies: int = 12, segment_mib: int = 12) -> None:
        self._root = root
        self._sample = make_large(root / "original", copies=copies, segment_mib=segment_mib)
        for log_dir in self._sample.log_dirs:
            for folder in sorted(log_dir.glob("large-*")) + sorted(log_dir.glob("late-copy-*")):
                torn_first_segment_of(folder)
        self._before = {path.name: log_bytes(path) for path in self._sample.log_dirs}
        self._work = root / "work"
        self.fresh()
        started_s = time.monotonic()
        self.exit_code = self._start("never").wait()
        self.duration_s = time.monotonic() - started_s
        self._expected = self._trees()

    def fresh(self) -> None:
        """Start from the damaged dirs."""
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._sample.root, self._work, symlinks=True)
        config = self._work / "server.properties"
        config.write_text(config.read_text().replace(str(self._sample.root), str(self._work)))

    def check(self, rng: random.Random, *, kills: int) -> list[str]:
        """Kill up to *kills* runs, let the next one end; return what is wrong."""
        self.fresh()
        killed = []
        for _ in range(kills):
            delay_s = rng.uniform(0, self.duration_s)
            run = self._start(rng.choice(PROCESSES))
            try:
                run.wait(timeout=delay_s)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
                killed.append(f"{delay_s:.2f} s")
        code = self._start(rng.choice(PROCESSES)).wait()
        problems = [] if code in (0, self.exit_code) else [f"exit code {code}"]
        found = self._trees()
        problems += differences(self._expected, found)[:4]
        for log_dir in self._log_dirs():
            problems += [f"left behind: {name}" for name in own_leftovers(log_dir)]
            problems += [f"lost: {place}" for place in lost_batches(self._before[log_dir.name], log_dir)[:3]]
        return [f"killed after {', '.join(killed)}: {problem}" for problem in problems]

    def _log_dirs(self) -> list[Path]:
        return [self._work / log_dir.name for log_dir in self._sample.log_dirs]

    def _start(self, processes: str) -> subprocess.Popen[bytes]:
        sample = self._sample
        arguments = ["recover", "-c", str(self._work / "server.properties"), "--now", str(sample.now_ms)]
        arguments += ["--topic-config", str(self._work / "topic-configs.json"), "--progress", "none"]
        arguments += ["--processes", processes]
        return subprocess.Popen(
            [*RECOVERY, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _trees(self) -> dict[str, bytes]:
        return {
            f"{log_dir.name}/{name}": data
            for log_dir in self._log_dirs()
            for name, data in tree_of(log_dir).items()
            if not name.endswith(".deleted")
        }
