"""The manifest of a copy: it names what is on disk at the output, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.archive.copy import manifest
from recovery.archive.copy.manifest import MANIFEST_KEY, read_document
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from recovery.errors import UsageError
from tests.faults.bad_sector import bad_sector
from tests.servers.file_systems import failing_disk
from tests.servers.machine import LOOP_DEVICES, MKFS_EXT4, MOUNTS, needs


class Place:
    """A log dir of two files, and an output."""

    def __init__(self, root: Path) -> None:
        self.log_dir, self.output = root / "d1", root / "copy"
        self.log = self.log_dir / "t-0" / f"{0:020}.log"
        self.log.parent.mkdir(parents=True)
        self.log.write_bytes(os.urandom(100_000))
        (self.log_dir / "meta.properties").write_text("version=1\n")

    def options(self) -> CopyOptions:
        return CopyOptions(output=str(self.output), log_dirs=(str(self.log_dir),), threads=1)

    def named(self) -> list[str]:
        """The keys in the manifest, if there is one."""
        try:
            lines = (self.output / MANIFEST_KEY).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line)[0] for line in lines[1:]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the output, in its order."""
    calls: list[tuple[str, str]] = []
    real_sync, real_replace, real_remove = LocalStore.sync, LocalStore.replace, LocalStore.remove

    def sync(self: LocalStore, keys: Collection[str]) -> None:
        calls.extend(("sync", key) for key in keys)
        real_sync(self, keys)

    def replace(self: LocalStore, key: str, data: bytes | Iterable[bytes]) -> None:
        calls.append(("replace", key))
        real_replace(self, key, data)

    def remove(self: LocalStore, key: str) -> None:
        calls.append(("remove", key))
        real_remove(self, key)

    monkeypatch.setattr(LocalStore, "sync", sync)
    monkeypatch.setattr(LocalStore, "replace", replace)
    monkeypatch.setattr(LocalStore, "remove", remove)
    return calls


def test_a_part_goes_after_the_whole_file_is_on_disk_and_named(
    place: Place, calls: list[tuple[str, str]]
) -> None:
    key = f"d1/t-0/{place.log.name}"
    with bad_sector(place.log, 50_000):
        copy(place.options())
    written = ("replace", MANIFEST_KEY)
    assert calls == [written, ("sync", "d1/meta.properties"), ("sync", f"{key}.partial"), written]
    calls.clear()
    copy(place.options())
    assert calls == [written, ("sync", key), written, ("remove", f"{key}.partial")]


def test_it_is_written_while_files_are_sent(
    place: Place, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_WRITTEN_EVERY_S", -1.0)
    monkeypatch.setattr(manifest, "_LEAST_SHARE", 0)
    copy(place.options())
    first, second = ("sync", "d1/meta.properties"), ("sync", f"d1/t-0/{place.log.name}")
    written = ("replace", MANIFEST_KEY)
    assert calls == [written, first, written, second, written, written]


def test_what_does_not_reach_the_disk_is_not_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(place.options())
    (place.log_dir / "meta.properties").unlink()
    place.log.write_bytes(b"other bytes")
    before = place.named()

    def sync(_self: LocalStore, keys: Collection[str]) -> None:
        if keys:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(LocalStore, "sync", sync)
    report = copy(place.options())
    assert report.exit_code == 1
    assert report.to_text().startswith(
        f"FAILED {os.strerror(errno.EIO)}. Remedy: see to the output, and start again"
    )
    assert json.loads(report.to_json())["error"] == os.strerror(errno.EIO)
    assert "sent to" in report.to_text()
    assert place.named() == before
    assert read_document(LocalStore(str(place.output))).unfinished == {"d1/t-0/"}
    monkeypatch.undo()
    assert copy(place.options()).log_dirs[0].files == 1


@needs(MOUNTS, MKFS_EXT4, LOOP_DEVICES)
def test_a_disk_that_does_not_write_back(tmp_path: Path, place: Place) -> None:
    """Somebody else was told so, and it does so again by the time that the copy asks."""
    real = LocalStore.sync

    def sync(self: LocalStore, keys: Collection[str]) -> None:
        if keys:
            subprocess.run(["sync", "-f", str(mounted)], capture_output=True, check=False)
            filler.unlink(missing_ok=True)
        real(self, keys)

    with failing_disk(tmp_path / "disk") as (mounted, filler), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(LocalStore, "sync", sync)
        place.output = mounted / "copy"
        assert copy(place.options()).exit_code == 0
        (place.log_dir / "t-0" / "more").write_bytes(os.urandom(8 << 20))
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\1" * 65536)
        error = copy(place.options()).error
        assert error is not None
        assert str(error.filename).startswith(str(mounted))
        assert error.errno in (errno.EIO, errno.ENOSPC)  # and not that of the manifest, later: EROFS
        assert sorted(place.named()) == ["d1/meta.properties", f"d1/t-0/{place.log.name}"]


def test_a_file_is_on_disk_before_it_takes_the_place_of_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is new is not waited for."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    copy(place.options())
    assert not [name for name in synced if place.log.name in name]
    place.log.write_bytes(b"other bytes")
    copy(place.options())
    assert len([name for name in synced if name.startswith(f".{place.log.name}.")]) == 1


def test_what_is_no_manifest_is_refused(place: Place) -> None:
    place.output.mkdir()
    (place.output / MANIFEST_KEY).write_text("{}\n[1]\n")
    with pytest.raises(UsageError, match="not the manifest of a copy"):
        copy(place.options())


def written_back(place: Place, monkeypatch: pytest.MonkeyPatch, data: bytes) -> CopyReport:
    """Copy the log, and *data* in its place, which is not named any more; have it as it was, and copy that."""
    before, status = place.log.read_bytes(), place.log.stat()
    copy(place.options())
    place.log.write_bytes(data)

    def sync(_self: LocalStore, keys: Collection[str]) -> None:
        if keys:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "sync", sync)
        assert copy(place.options()).exit_code == 1
    assert (place.output / "d1" / "t-0" / place.log.name).read_bytes() == data
    place.log.write_bytes(before)
    os.utime(place.log, ns=(status.st_atime_ns, status.st_mtime_ns))
    report = copy(place.options())
    assert report.exit_code == 0
    assert (place.output / "d1" / "t-0" / place.log.name).read_bytes() == before
    return report


def test_an_object_that_a_run_may_have_replaced_is_not_taken_for_the_one_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.urandom(100_000)
    report = written_back(place, monkeypatch, other)
    (kept,) = report.log_dirs[0].kept
    assert kept.kept_as.endswith(".earlier.2")  # .earlier is what the second run kept
    assert (place.output / kept.kept_as).read_bytes() == other
    assert read_document(LocalStore(str(place.output))).sending == frozenset()
    again = copy(place.options())
    assert (again.log_dirs[0].files, again.log_dirs[0].skipped_files) == (0, 2)


def test_an_object_that_a_run_has_not_come_to_is_not_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(place.options())
    os.utime(place.log)
    with monkeypatch.context() as patch:
        patch.setattr("recovery.archive.copy.file_copy.FileCopier.copy", lambda _self, _job: None)
        copy(place.options())
    assert read_document(LocalStore(str(place.output))).sending == {f"d1/t-0/{place.log.name}"}
    again = copy(place.options())
    assert (again.log_dirs[0].files, again.log_dirs[0].skipped_files) == (0, 2)
    assert read_document(LocalStore(str(place.output))).sending == frozenset()


HEAD = '{"version": 1, "files": 0, "logDirs": {}, "unfinished": [], "gone": []}\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("null\n", "its first line is not that of one"),
        ('{"version": 1}\n', "its first line is not that of one"),
        ("junk", "its first line is not that of one"),
        (HEAD.replace("1", "9"), "version 9"),
        (HEAD + '["a", 1, 1, 1, "f"]\n', "more than its first line says: 1 of 0 files"),
        (HEAD.replace("0", "2") + '["a", 1, 1, 1, "f"]\n', "cut short: 1 of 2 files"),
        (HEAD.replace("0", "1") + '["a", 1, 1]\n', "its line 2 names no file"),
        (HEAD.replace(" 0", " 1e999"), "its first line is not that of one"),
        (HEAD.replace("0", "1") + '["a", 1e999, 1, 1, "f"]\n', "its line 2 names no file"),
        (HEAD.replace("0", "1") + "null\n", "its line 2 names no file"),
        (HEAD.replace("0", "1") + "[\n", "its line 2 names no file"),
    ],
)
def test_what_is_no_manifest_is_told_in_words(place: Place, text: str, why: str) -> None:
    place.output.mkdir()
    (place.output / MANIFEST_KEY).write_text(text)
    with pytest.raises(UsageError, match=rf"not the manifest of a copy \({why}\), so"):
        read_document(LocalStore(str(place.output)))


def test_what_was_sent_before_a_restart_that_was_interrupted_is_not_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read before it counts as there. What was not chosen stays as it is."""
    copy(place.options())
    whole = place.options()
    restarted = CopyOptions(output=whole.output, log_dirs=whole.log_dirs, topics=("t",), restart=True)
    (place.log_dir / "u-0").mkdir()
    (place.log_dir / "u-0" / "file").write_bytes(b"x")
    copy(whole)
    named = sorted(place.named())
    assert len(named) == 3
    with monkeypatch.context() as patch:
        patch.setattr("recovery.archive.copy.file_copy.FileCopier.copy", lambda _self, _job: None)
        copy(restarted)
    assert sorted(place.named()) == named
    assert read_document(LocalStore(str(place.output))).sending == {*named} - {"d1/u-0/file"}
    (place.output / "d1" / "t-0" / place.log.name).write_bytes(b"y" * place.log.stat().st_size)
    assert copy(whole).log_dirs[0].files == 1
    assert (place.output / "d1" / "t-0" / place.log.name).read_bytes() == place.log.read_bytes()
    copy(restarted)
    assert sorted(place.named()) == named
