"""What the model of a cached disk lets a crash leave."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.crash_model import VARIANT_COUNT, CachedDisk, Disk
from tests.faults.shim import Call, Op


def call(
    op: Op, path: Path, *, inode: int, target: Path | None = None, data: bytes = b"", offset: int = 0
) -> Call:
    return Call(
        number=0, op=op, path=str(path), target=str(target or ""), inode=inode, error=0, result=len(data),
        offset=offset, length=0, is_created=op is Op.CREATE, is_truncated=False, data=data,
    )  # fmt: skip


class Root:
    """A folder with one safe file, `old`."""

    def __init__(self, path: Path) -> None:
        (path / "old").write_bytes(b"old bytes")
        self.path = path
        self.inode = path.stat().st_ino
        self.old = (path / "old").stat().st_ino
        self.disk = CachedDisk(path)
        self._draws = 0

    def written(self, name: str, data: bytes, *, inode: int = 7) -> list[Call]:
        path = self.path / name
        return [call(Op.CREATE, path, inode=inode), call(Op.WRITE, path, inode=inode, data=data)]

    def crashes(self) -> list[dict[str, bytes]]:
        """What is found afterwards, in any of many crashes."""
        return [
            _names(self.disk.crash(variant % 40, random.Random(variant)))
            for variant in range(40 * VARIANT_COUNT)
        ]


def _names(disk: Disk) -> dict[str, bytes]:
    return {name: disk.files[inode] for name, inode in disk.folders[disk.root].items()}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_what_was_there_before_stays(root: Root) -> None:
    assert not root.disk.has_unsafe
    assert all(found == {"old": b"old bytes"} for found in root.crashes())


def test_an_unsynced_file_may_be_missing_empty_zeros_or_torn(root: Root) -> None:
    root.disk.follow(root.written("new", b"n" * 1000))
    found = [crash.get("new") for crash in root.crashes()]
    assert None in found
    assert b"" in found
    assert bytes(1000) in found
    assert b"n" * 1000 in found
    assert b"n" * 512 in found  # a sector
    assert any(data and 0 < len(data) < 512 for data in found)  # a byte


def test_a_synced_file_is_whole_once_its_name_is_safe(root: Root) -> None:
    root.disk.follow([*root.written("new", b"data"), call(Op.SYNC, root.path / "new", inode=7)])
    assert {crash.get("new") for crash in root.crashes()} == {None, b"data"}
    root.disk.follow([call(Op.SYNC, root.path, inode=root.inode)])
    assert not root.disk.has_unsafe
    assert {crash.get("new") for crash in root.crashes()} == {b"data"}


def test_a_rename_is_there_or_not_and_never_half(root: Root) -> None:
    sync = [call(Op.SYNC, root.path / "new", inode=7), call(Op.SYNC, root.path, inode=root.inode)]
    root.disk.follow([*root.written("new", b"data"), *sync])
    root.disk.follow([call(Op.RENAME, root.path / "new", inode=7, target=root.path / "old")])
    found = root.crashes()
    assert {"old": b"data"} in found
    assert {"old": b"old bytes", "new": b"data"} in found
    assert all(crash in ({"old": b"data"}, {"old": b"old bytes", "new": b"data"}) for crash in found)


def test_names_may_reach_the_disk_out_of_order(root: Root) -> None:
    root.disk.follow([call(Op.LINK, root.path / "old", inode=root.old, target=root.path / "kept")])
    root.disk.follow([call(Op.UNLINK, root.path / "old", inode=root.old)])
    found = root.crashes()
    assert {} in found  # the unlink without the link before it
    assert {"old": b"old bytes"} in found
    assert {"kept": b"old bytes"} in found
