"""Copies of the samples' log dirs: whole, off a disk with bad sectors, again after a change, beside a broker."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.run import restore
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Source
from recovery.engine.options import RecoverOptions
from recovery.errors import LogDirLockedError, UsageError
from recovery.logdir.lock import LogDirLocks
from recovery.quantity import bytes_text
from recovery.stop_request import StopRequest
from segfmt.checkpoint import read_offset_checkpoint
from tests.brokers.tiered_broker import unpack_tiered
from tests.logs.samples import Sample, read_properties, tree_of, unpack
from tests.runs.command import run
from tests.servers.file_systems import tmpfs
from tests.servers.machine import MOUNTS, needs

INTERRUPTED = "INTERRUPTED by signal 15: start again to resume"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("crashed", tmp_path)


def options(sample: Sample, output: Path, **more: object) -> CopyOptions:
    return CopyOptions(output=str(output), log_dirs=tuple(map(str, sample.log_dirs)), **more)  # type: ignore[arg-type]  # by name


def trees(folder: Path) -> dict[str, bytes]:
    """All files; a bucket has no folders, so an empty one is not copied."""
    return {name: data for name, data in tree_of(folder).items() if not name.endswith((".lock", "/"))}


def test_a_copy_is_the_log_dirs_and_nothing_is_sent_twice(sample: Sample, tmp_path: Path) -> None:
    before = [trees(log_dir) for log_dir in sample.log_dirs]
    report = copy(options(sample, tmp_path / "copy"))
    assert report.exit_code == 0
    for log_dir, tree in zip(sample.log_dirs, before, strict=True):
        assert trees(log_dir) == tree
        assert trees(tmp_path / "copy" / log_dir.name) == tree
    assert sum(one.files for one in report.log_dirs) == sum(map(len, before))
    again = copy(options(sample, tmp_path / "copy"))
    assert [one.files for one in again.log_dirs] == [0] * len(sample.log_dirs)
    assert [one.skipped_files for one in again.log_dirs] == [one.files for one in report.log_dirs]
    forgotten = copy(options(sample, tmp_path / "copy", restart=True))
    assert [one.files for one in forgotten.log_dirs] == [one.files for one in report.log_dirs]
    assert not list((tmp_path / "copy").rglob("*.recovery-tmp"))


def test_what_has_changed_is_sent_and_what_has_another_time_alone_is_not(
    sample: Sample, tmp_path: Path
) -> None:
    copy(options(sample, tmp_path / "copy"))
    logs = sorted(path for path in sample.log_dirs[0].rglob("*.log") if path.stat().st_size > 100)
    logs[0].write_bytes(logs[0].read_bytes()[:-1] + b"\x07")
    os.utime(logs[1])
    gone = tmp_path / "copy" / logs[2].relative_to(sample.log_dirs[0].parent)
    gone.unlink()
    report = copy(options(sample, tmp_path / "copy"))
    assert report.log_dirs[0].files == 2
    (kept,) = report.log_dirs[0].kept
    (tmp_path / "copy" / kept.kept_as).unlink()
    assert trees(tmp_path / "copy" / sample.log_dirs[0].name) == trees(sample.log_dirs[0])


def test_only_what_is_chosen(sample: Sample, tmp_path: Path) -> None:
    folder = next(path.name for path in sorted(sample.log_dirs[0].iterdir()) if path.name[-2:] == "-0")
    copy(options(sample, tmp_path / "copy", partitions=(folder,)))
    found = {path.name for path in (tmp_path / "copy").glob("*/*") if path.is_dir()}
    assert found == {folder}
    assert (tmp_path / "copy" / sample.log_dirs[0].name / "meta.properties").is_file()
    with pytest.raises(UsageError, match="nosuch"):
        copy(options(sample, tmp_path / "other", topics=("nosuch",)))


def test_off_a_disk_with_a_bad_sector(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = max(sample.log_dirs[0].rglob("*.log"), key=lambda path: path.stat().st_size)
    inode, real, position = bad.stat().st_ino, os.pread, 8192
    assert bad.stat().st_size > position + 4096

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == inode and offset + size > position:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    report = copy(options(sample, tmp_path / "copy"))
    assert report.exit_code == 4
    (failed,) = report.log_dirs[0].failed
    assert (failed.file, failed.position, failed.kept_bytes) == (str(bad), position, position)
    at_output = tmp_path / "copy" / bad.relative_to(sample.log_dirs[0].parent)
    assert not at_output.exists()
    assert Path(f"{at_output}.partial").read_bytes() == bad.read_bytes()[:position]
    assert f"NOT COPIED {bad} from position {position} on" in report.to_text()
    others = {name for name in trees(sample.log_dirs[0]) if name != str(bad.relative_to(sample.log_dirs[0]))}
    copied = trees(tmp_path / "copy" / sample.log_dirs[0].name)
    assert others <= copied.keys()


@needs(MOUNTS)
def test_a_read_only_mount(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="64m"):
        sample = unpack("crashed", tmp_path / "disk")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        report = copy(options(sample, tmp_path / "copy"))
        assert report.exit_code == 0
        assert any("mounted read-only" in warning for warning in report.warnings)
        for log_dir in sample.log_dirs:
            assert trees(tmp_path / "copy" / log_dir.name) == trees(log_dir)
        subprocess.run(["mount", "-o", "remount,rw", str(tmp_path / "disk")], check=True)


def test_a_live_broker_is_left_alone(sample: Sample, tmp_path: Path) -> None:
    with LogDirLocks(map(str, sample.log_dirs)), pytest.raises(LogDirLockedError):
        copy(options(sample, tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_interrupted_and_started_again(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, count = StopRequest(), [0]
    real = LocalStore.send

    def send(
        self: LocalStore, key: str, source: Source, size_bytes: int, *, part_key: Callable[[], str]
    ) -> str:
        sent_as = real(self, key, source, size_bytes, part_key=part_key)
        count[0] += 1
        if count[0] == 10:
            stop.request(15)
        return sent_as

    monkeypatch.setattr(LocalStore, "send", send)
    files = sum(len(trees(log_dir)) for log_dir in sample.log_dirs)
    first = copy(options(sample, tmp_path / "copy"), stop=stop)
    assert first.exit_code == 143
    sent, left = (sum(getattr(one, name) for one in first.log_dirs) for name in ("files", "left_files"))
    assert sent >= 10
    assert (sent + left, first.to_text().splitlines()[0]) == (files, INTERRUPTED)
    for one in first.log_dirs:
        assert (f"{one.left_files} files, {bytes_text(one.left_bytes)}, left" in first.to_text()) is bool(
            one.left_files
        )
    report = copy(options(sample, tmp_path / "copy"))
    assert sum(one.skipped_files for one in report.log_dirs) == sent
    for log_dir in sample.log_dirs:
        assert trees(tmp_path / "copy" / log_dir.name) == trees(log_dir)


def test_two_log_dirs_of_one_name(sample: Sample, tmp_path: Path) -> None:
    for number, log_dir in enumerate(sample.log_dirs):
        (tmp_path / str(number)).mkdir()
        shutil.copytree(log_dir, tmp_path / str(number) / "data")
    report = copy(
        CopyOptions(output=str(tmp_path / "copy"), log_dirs=(f"{tmp_path}/0/data", f"{tmp_path}/1/data"))
    )
    assert [one.folder for one in report.log_dirs] == ["data", "data.2"]
    head = json.loads((tmp_path / "copy" / MANIFEST_KEY).read_text().splitlines()[0])
    assert head["logDirs"] == {f"{tmp_path}/0/data": "data", f"{tmp_path}/1/data": "data.2"}
    shutil.copytree(tmp_path / "1" / "data", tmp_path / "2" / "data")
    (tmp_path / "2" / "data" / "meta.properties").unlink()
    for folder in (tmp_path / "2" / "data").glob("*-[0-9]"):
        shutil.rmtree(folder)
    with pytest.raises(UsageError, match="another log dir"):
        copy(CopyOptions(output=str(tmp_path / "copy"), log_dirs=(f"{tmp_path}/2/data",)))


def test_by_the_command(sample: Sample, tmp_path: Path) -> None:
    done = run("archive", "copy", "-c", sample.config, "--output", tmp_path / "copy", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert done.report["command"] == "archive copy"
    inside = run("archive", "copy", "-c", sample.config, "--output", sample.log_dirs[0] / "copy")
    assert inside.exit_code == 1
    assert "which is copied" in inside.stderr


def test_the_local_part_of_a_tiered_log_keeps_the_start_of_the_whole_log(tmp_path: Path) -> None:
    """Below the log start a broker deletes what is in remote storage."""
    archive = unpack_tiered(tmp_path)
    config = read_properties((archive.root / "server.properties").read_text())
    copy(CopyOptions(output=str(tmp_path / "copy"), config=config))
    shutil.rmtree(archive.root / "d1" / "plain-0")
    (archive.root / "d1" / "log-start-offset-checkpoint").write_text("0\n0\n")
    given = RestoreOptions(
        archive=ArchiveOptions(url=str(tmp_path / "copy"), partitions=("plain-0",)),
        broker=RecoverOptions(config=config, is_config_complete=True),
    )
    (one,) = restore(given).partitions
    assert (one.status, one.log_start_offset) == ("restored", 0)
    starts = read_offset_checkpoint((archive.root / "d1" / "log-start-offset-checkpoint").read_bytes())
    assert starts["plain", 0] == 0
    assert min((archive.root / "d1" / "plain-0").glob("*.log")).stem != f"{0:020}"
