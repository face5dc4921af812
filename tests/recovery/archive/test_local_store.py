"""A folder as a store: whose file it is that replaces another."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from recovery.archive.stores.local_store import LocalStore


def rights_of(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_what_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    index = tmp_path / "orders-0" / "0.index"
    index.parent.mkdir()
    index.write_bytes(b"old")
    index.chmod(0o640)
    before = rights_of(index)
    LocalStore(str(tmp_path)).replace("orders-0/0.index", b"new")
    assert (index.read_bytes(), rights_of(index)) == (b"new", before)


def test_it_keeps_its_owner_and_a_new_file_gets_that_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the user may give files away; nobody who may not is refused."""
    given: dict[str, tuple[int, int]] = {}
    real_stat = os.stat

    def owned(path: str) -> os.stat_result:
        status = real_stat(path)
        uid = 12 if path.endswith("0.index") else 56
        return os.stat_result((*status[:4], uid, uid + 1, *status[6:]))

    def give(path: str, uid: int, gid: int) -> None:
        given[Path(path).name.split(".")[2]] = uid, gid
        raise PermissionError

    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "0.index").write_bytes(b"old")
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "stat", owned)
    monkeypatch.setattr(os, "chown", give)
    store.replace("orders-0/0.index", b"new")
    store.replace("orders-0/0.timeindex", b"new")
    monkeypatch.undo()
    assert given == {"index": (12, 13), "timeindex": (56, 57)}
    assert (folder / "0.index").read_bytes() == (folder / "0.timeindex").read_bytes() == b"new"
