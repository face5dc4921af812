"""Target: a whole log dir through the engine. What is promised for every dir is checked, whatever is in it."""

from __future__ import annotations

import functools
import os
import random
import shutil
import tempfile
from pathlib import Path

from recovery.engine.report import RecoveryReport
from recovery.load.model import LogSettings
from tests.fuzz.choices import Choices
from tests.fuzz.log_dirs import INDEX_INTERVAL_BYTES, MARKER, NOW_MS, SEGMENT_INDEX_BYTES, make_log_dir
from tests.fuzz.targets import Target
from tests.logs.samples import tree_of
from tests.runs.driving import (
    footprint,
    log_bytes,
    lost_batches,
    manifest_errors,
    own_leftovers,
    quarantine_of,
)
from tests.runs.engine_run import run_engine

_SETTINGS = LogSettings(index_interval_bytes=INDEX_INTERVAL_BYTES, segment_index_bytes=SEGMENT_INDEX_BYTES)


def recover(log_dir: Path, *, dry_run: bool = False) -> RecoveryReport:
    """Recover one log dir with small indexes."""
    return run_engine([log_dir], lambda _topic: _SETTINGS, thread_count=1, now_ms=NOW_MS, dry_run=dry_run)


@functools.cache
def _work_of(pid: int) -> Path:
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"kafka-log-recovery-fuzz-{pid}-", dir=folder))


def _whole_dir(data: bytes) -> None:
    work = _work_of(os.getpid())
    log_dir = work / "d"
    try:
        choices = Choices(data)
        make_log_dir(choices).write(log_dir)
        check(log_dir, with_dry_run=choices.is_rare(4))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        _work_of.cache_clear()


def check(log_dir: Path, *, with_dry_run: bool = True) -> RecoveryReport:
    """Recover *log_dir* twice and assert what holds for all log dirs.

    A broker's second start is not like its first where files are odd: with the marker it writes other
    snapshots, or the leader epochs once more, and so does a second run (tests.fuzz.judge compares the two). But
    what was recovered is sound: no log changes, and nothing is found damaged. (With a marker the first run looks
    at no log, and folders that wait for their deletion or are set aside have no line in the checkpoints it writes.)
    """
    before, logs = tree_of(log_dir), log_bytes(log_dir)
    announced = _announced(log_dir) if with_dry_run else None
    report = recover(log_dir)
    statuses = [(one.folder, one.status) for one in report.partitions]
    assert announced in (None, statuses), f"{announced} announced, {statuses} done"
    assert lost_batches(logs, log_dir) == []
    assert manifest_errors(log_dir) == []
    assert not [name for name in own_leftovers(log_dir) if name not in before]
    after = tree_of(log_dir)
    for folder, status in statuses:
        if status == "refused":
            assert _below(folder, after) == _below(folder, before), f"{folder} is refused and not untouched"
        assert status != "failed", report.to_text()
    if any(one.status == "offline" for one in report.log_dirs):
        assert after == before, "offline, and not untouched"
    live = log_bytes(log_dir)
    again = recover(log_dir)
    assert lost_batches(live, log_dir) == []
    if MARKER not in before and not any(name.endswith(("-delete/", "-stray/")) for name in before):
        assert _with_batches(log_bytes(log_dir)) == _with_batches(live), "a second run changes logs"
        assert again.exit_code in (0, report.exit_code), (
            f"exit code {report.exit_code}, then {again.exit_code}"
        )
    shutil.rmtree(quarantine_of(log_dir), ignore_errors=True)
    return report


def _with_batches(logs: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in logs.items() if data}


def _announced(log_dir: Path) -> list[tuple[str, str]]:
    """What a dry run says of each partition, having changed nothing."""
    untouched = footprint(log_dir)
    report = recover(log_dir, dry_run=True)
    assert footprint(log_dir) == untouched, "the dry run has changed the log dir"
    return [(one.folder, one.status) for one in report.partitions]


def _below(folder: str, tree: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in tree.items() if name.startswith(f"{folder}/")}


def _random_seeds() -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(size) for size in (40, 100, 300, 800) for _ in range(12)]


TARGETS = [
    Target(
        name="log_dir",
        run=_whole_dir,
        instruments=("segfmt", "recovery"),
        more_seeds=_random_seeds,
        longest_bytes=1024,
    )
]
