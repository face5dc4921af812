"""The lock among recoveries, undos and purges, of which a broker knows nothing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.errors import LogDirLockedError
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.work_lock import WorkLocks

_HOLD = """
import sys
from recovery.logdir.lock import LogDirLocks
with LogDirLocks(sys.argv[1:]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path)
    refused = pytest.raises(LogDirLockedError, match=r"Nothing was changed\. Remedy: wait")
    with WorkLocks([path]), refused, WorkLocks([path]):
        pass
    with WorkLocks([path]):
        pass
    assert os.listdir(path) == []


def test_a_folder_of_two_names_is_locked_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with WorkLocks([str(tmp_path / "a"), str(tmp_path / "b")]), pytest.raises(LogDirLockedError):
        WorkLocks([str(tmp_path / "b")]).__enter__()


def test_none_is_held_where_one_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    with WorkLocks([str(second)]):
        with pytest.raises(LogDirLockedError), WorkLocks([str(first), str(second)]):
            pass
        with WorkLocks([str(first)]):
            pass


def test_a_recovery_in_another_process_holds_it_until_it_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LogDirLockedError), WorkLocks([path]):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with WorkLocks([path]):
        pass


def test_a_recovery_waits_for_a_purge_and_leaves_no_lock_file(tmp_path: Path) -> None:
    with WorkLocks([str(tmp_path)]), pytest.raises(LogDirLockedError), LogDirLocks([str(tmp_path)]):
        pass
    assert os.listdir(tmp_path) == []
    with LogDirLocks([str(tmp_path)]):
        pass


def test_a_dry_run_is_held_up_by_none(tmp_path: Path) -> None:
    with WorkLocks([str(tmp_path)]), LogDirLocks([str(tmp_path)], dry_run=True):
        pass


def test_a_file_system_without_such_locks_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with WorkLocks([str(tmp_path)]):
        pass


def test_a_dir_that_cannot_be_opened_is_somebody_elses_matter(tmp_path: Path) -> None:
    with WorkLocks([str(tmp_path / "gone")]):
        pass
