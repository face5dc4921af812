"""What the manifest says of what is in a folder that goes to quarantine as a whole, and where that ends."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from recovery.logdir.user import BrokerUser
from recovery.plan.manifest import FILE, FOLDER, MOST_DEPTH, OTHER, Thing, read_lines, read_manifest
from recovery.read.file_system import opened_folder
from recovery.write import moved_contents as module
from recovery.write.moved_contents import differences, list_contents
from recovery.write.quarantine import Quarantine
from tests.logs.quarantine_builder import a_foreign_folder, a_log_dir

ROOT_USER = BrokerUser(uid=0, gid=0, gids=frozenset({0}))
NOBODY = BrokerUser(uid=65534, gid=65534, gids=frozenset({65534}))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return a_log_dir(tmp_path / "d1")


@pytest.fixture
def folder(log_dir: Path) -> Path:
    return a_foreign_folder(log_dir)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def line_of(log_dir: Path, path: Path) -> dict:
    """What the manifest says of *path*, which is moved away."""
    quarantine = Quarantine(str(log_dir))
    quarantine.move_away(str(path), folder="log-dir", reason="foreign")
    (line,) = (Path(quarantine.run_folder) / "manifest.jsonl").read_text().splitlines()
    return json.loads(line)


class TestTheLine:
    def test_of_a_folder(self, log_dir: Path, folder: Path) -> None:
        line = line_of(log_dir, folder)
        assert (line["kind"], line["moved"], line["sha256"]) == ("moved", "folder", None)
        assert [tuple(one.values()) for one in line["contents"]] == [
            ("a", "file", 5, sha256(b"12345")),
            ("deep", "folder", 0, None),
            ("deep/00000000000000000007.log", "file", 7, sha256(b"a batch")),
            ("deep/empty", "folder", 0, None),
            ("deep/link", "other", 7, None),
            ("pipe", "other", 0, None),
            (os.fsdecode(b"\xff\xfe \n"), "file", 11, sha256(b"of any name")),
        ]
        assert list(line["contents"][0]) == ["path", "kind", "size_bytes", "sha256"]

    @pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe", "socket"])
    def test_of_what_is_no_folder(self, log_dir: Path, kind: str) -> None:
        path = log_dir / "odd"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as one:
                one.bind(f"{short}/s")
                os.rename(f"{short}/s", path)
        else:
            path.symlink_to("t-0" if "folder" in kind else "nowhere")
        line = line_of(log_dir, path)
        assert (line["moved"], line["contents"]) == ("other", [])

    def test_a_file_has_none(self, log_dir: Path) -> None:
        (log_dir / "foo.log").write_bytes(b"12345")
        assert "contents" not in line_of(log_dir, log_dir / "foo.log")

    def test_it_is_on_disk_before_the_folder_is_moved(
        self, log_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quarantine = Quarantine(str(log_dir))
        seen = []

        def fail(*_: str) -> None:
            assert quarantine._unsynced == {}
            with (Path(quarantine.run_folder) / "manifest.jsonl").open("rb") as manifest:
                seen.extend(read_manifest(read_lines(manifest.read)).entries)
            raise OSError(errno.EIO, "killed here")

        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="killed here"):
            quarantine.move_away(str(folder), folder="log-dir", reason="foreign")
        assert folder.is_dir()
        assert dict(seen[0].contents)["a"] == Thing(FILE, 5, sha256(b"12345"))

    def test_what_is_too_much_is_moved_as_a_whole(
        self, log_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_LISTED_BYTES", 1000)
        line = line_of(log_dir, folder)
        assert line["contents"] is None
        assert not folder.exists()


class TestItsEnd:
    def test_of_bytes_that_are_hashed(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What does not fit is passed over, and what is smaller and behind it may fit."""
        monkeypatch.setattr(module, "MOST_HASHED_BYTES", 16)
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert [path for path, thing in things.items() if thing.sha256] == [
            "a",
            "deep/00000000000000000007.log",
        ]
        (folder / "a").unlink()
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert [thing.size_bytes for thing in things.values() if thing.kind == FILE] == [7, 11]
        assert [bool(thing.sha256) for thing in things.values() if thing.kind == FILE] == [True, False]

    def test_a_terabyte_takes_no_time(self, folder: Path) -> None:
        os.truncate(folder / "a", 1 << 40)
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert things["a"] == Thing(FILE, 1 << 40, None)
        assert things["deep/00000000000000000007.log"].sha256 is not None

    @pytest.mark.parametrize("is_one_folder", [True, False])
    def test_of_things(self, folder: Path, monkeypatch: pytest.MonkeyPatch, is_one_folder: bool) -> None:
        monkeypatch.setattr(module, "MOST_LISTED_BYTES", 4000)
        assert list_contents(str(folder), ROOT_USER) is not None
        for number in range(25):
            place = folder if is_one_folder else folder / f"folder {number}"
            place.mkdir(exist_ok=True)
            (place / f"{number}").touch()
        assert list_contents(str(folder), ROOT_USER) is None

    def test_of_depth(self, folder: Path) -> None:
        deepest = folder.joinpath(*["x"] * (MOST_DEPTH - 1))
        deepest.mkdir(parents=True)
        (deepest / "file").touch()
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert max(path.count("/") for path in things) == MOST_DEPTH - 1
        (deepest / "folder").mkdir()
        assert list_contents(str(folder), ROOT_USER) is None

    def test_what_cannot_be_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> str:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(module, "sha256_of", fail)
            things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert things["a"] == Thing(FILE, 5, None)
        monkeypatch.setattr(os, "scandir", fail)
        assert list_contents(str(folder), ROOT_USER) is None

    def test_what_the_brokers_user_may_not_read(self, folder: Path) -> None:
        """Manifests are his to read."""
        for path in (folder, folder / "deep", folder / "deep" / "empty"):
            path.chmod(0o755)
        (folder / "a").chmod(0o600)
        things = list_contents(str(folder), NOBODY)
        assert things is not None
        assert things["a"] == Thing(FILE, 5, None)
        (folder / "deep").chmod(0o700)
        assert list_contents(str(folder), NOBODY) is None
        (folder / "deep").chmod(0o755)

    def test_no_link_is_followed(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "file").write_bytes(b"secret")
        (folder / "to folder").symlink_to(tmp_path / "secret")
        (folder / "to file").symlink_to(tmp_path / "secret" / "file")
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        assert things["to folder"].kind == things["to file"].kind == OTHER
        assert not any(path.startswith("to folder/") for path in things)


class TestComparing:
    def test_what_was_not_hashed_is_compared_by_its_size(self, folder: Path, tmp_path: Path) -> None:
        things = {"": Thing(FOLDER, 0, None), "a": Thing(FILE, 5, None)}
        with opened_folder(str(folder.parent.parent)) as run:
            for data, problem in ((b"54321", []), (b"1", ["1 bytes instead of 5"])):
                (folder / "a").write_bytes(data)
                found = differences(run, f"{folder.parent.name}/{folder.name}", things)
                assert [one.problem for one in found if one.is_loss] == problem

    def test_what_was_not_listed_is_not_entered(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        things = list_contents(str(folder), ROOT_USER)
        assert things is not None
        folder.joinpath(*["deep"] * 2, *["x"] * 300).mkdir(parents=True)
        with opened_folder(str(folder.parent.parent)) as run:
            (found,) = differences(run, f"{folder.parent.name}/{folder.name}", things)
        assert (found.path, found.is_loss) == ("deep/deep", False)
