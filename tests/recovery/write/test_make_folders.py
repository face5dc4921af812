"""Folders are made unless they are there, and an error is that of the call that failed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from recovery.write.durable import make_folders


def test_they_are_made_once(tmp_path: Path) -> None:
    for _ in range(2):
        make_folders(str(tmp_path / "a/b"))
        assert (tmp_path / "a/b").is_dir()


def test_a_file_has_the_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folders(str(tmp_path / "a"))


def test_one_that_may_not_be_looked_at_is_not_said_to_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `tests.faults.restores`, EACCES at the look at the folder above quarantine."""

    def refuse(path: str, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        with pytest.raises(PermissionError):
            make_folders(str(tmp_path))
