"""Somebody else holds `.lock`, as a broker does: exit code 3, nothing changed. tests/kafka has a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.logs.samples import LOCK, unpack
from tests.runs.command import arguments_of, assert_one_line, recover
from tests.runs.driving import footprint
from tests.runs.paused import resume, start_paused

HOLDER = """
import fcntl, os, sys
held = [os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in sys.argv[1:]]
for descriptor in held:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(*log_dirs: Path) -> Iterator[None]:
    """Another process has the locks of *log_dirs*."""
    paths = [str(log_dir / LOCK) for log_dir in log_dirs]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER, *paths], text=True, **pipes) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("")


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--handoff", "none"]])
@pytest.mark.parametrize("stale", [True, False])
def test_one_held_lock_leaves_every_dir_as_it_was(arguments: list[str], stale: bool, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    (sample.log_dirs[0] / LOCK).unlink(missing_ok=True)
    if stale:
        (sample.log_dirs[0] / LOCK).touch()
    with held(sample.log_dirs[1]):
        found = footprint(tmp_path)
        done = recover(sample, *arguments)
        assert done.exit_code == 3
        assert_one_line(done, str(sample.log_dirs[1] / LOCK), "Nothing was changed")
        assert footprint(tmp_path) == found
    assert recover(sample).exit_code == 0


def test_a_held_lock_of_a_separate_metadata_dir_counts_too(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    metadata_dir = tmp_path / "metadata"
    metadata_dir.mkdir()
    with held(metadata_dir):
        found = footprint(tmp_path)
        done = recover(sample, "--property", f"metadata.log.dir={metadata_dir}")
        assert done.exit_code == 3
        assert_one_line(done, str(metadata_dir / LOCK))
        assert footprint(tmp_path) == found


def test_two_recoveries_keep_each_other_out(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process = start_paused("PartitionFinished", 3, *arguments_of(sample))
    assert recover(sample).exit_code == 3
    assert recover(sample, "--dry-run").exit_code == 3
    assert resume(process)[0] == 0
    assert recover(sample).exit_code == 0


def test_the_metadata_log_is_read_under_the_locks(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    for path in (sample.log_dirs[0] / "__cluster_metadata-0").iterdir():
        path.write_bytes(b"a broker is writing here")
    with held(sample.log_dirs[0]):
        assert recover(sample).exit_code == 3
    assert recover(sample).exit_code == 1


def test_a_stale_lock_is_no_hindrance_and_is_removed(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    for log_dir in sample.log_dirs:
        (log_dir / LOCK).touch()
    assert recover(sample, "--dry-run").exit_code == 0
    assert all((log_dir / LOCK).exists() for log_dir in sample.log_dirs)
    assert recover(sample).exit_code == 0
    assert not any((log_dir / LOCK).exists() for log_dir in sample.log_dirs)


def test_a_dry_run_creates_no_lock(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    for log_dir in sample.log_dirs:
        (log_dir / LOCK).unlink(missing_ok=True)
    found = footprint(tmp_path)
    assert recover(sample, "--dry-run").exit_code == 0
    assert footprint(tmp_path) == found


def test_a_dry_run_needs_no_right_to_write_the_lock(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    lock = sample.log_dirs[0] / LOCK
    lock.touch()
    os.chmod(lock, 0o444)
    assert recover(sample, "--dry-run").exit_code == 0
