"""What observers are told of a restore, and what becomes of it where a log dir fails or is full."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore import log_dir_restore
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoreReport
from recovery.archive.restore.run import restore
from recovery.archive.restore.stage import Stage
from recovery.engine.options import RecoverOptions
from recovery.errors import UnsafeError, UsageError
from recovery.read import opened_log
from recovery.saved.undo import undo
from recovery.stop_request import StopRequest
from recovery.watch.events import (
    AuxStateBuilt,
    BytesScanned,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    Observer,
    PartitionFinished,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.gauges import Gauges
from recovery.write.move_in import STAGE_FOLDER
from tests import ROOT
from tests.brokers.tiered_broker import TieredArchive
from tests.faults.killed import KillPoint
from tests.logs.samples import unpack
from tests.recovery.archive.restore.test_restore import LOST, one_of, options_of, trees, with_losses
from tests.runs.command import run
from tests.servers.file_systems import mounting
from tests.servers.machine import MOUNTS, needs


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return with_losses(tmp_path)


def watched(
    archive: TieredArchive, *observers: Observer, **options: object
) -> tuple[RestoreReport, list[Event]]:
    events: list[Event] = []
    report = restore(options_of(archive, **options), observers=[events.append, *observers])  # type: ignore[arg-type]  # by name
    return report, events


@contextmanager
def small_disk(log_dir: Path, free_bytes: int) -> Iterator[Path]:
    """The log dir *log_dir* on a disk of its own, with so much room."""
    kept = log_dir.parent / f"{log_dir.name}-kept"
    shutil.copytree(log_dir, kept)
    used = sum(-(-path.stat().st_size // 4096) * 4096 + 4096 for path in kept.rglob("*"))
    with mounting(log_dir, "tmpfs", f"size={used + free_bytes}"):
        shutil.copytree(kept, log_dir, dirs_exist_ok=True)
        yield log_dir


def test_a_byte_counts_when_it_is_fetched_and_when_it_is_checked(archive: TieredArchive) -> None:
    gauges = Gauges()
    report, events = watched(archive, gauges)
    assert report.exit_code == 0
    size_bytes = sum(one.size_bytes for one in report.partitions)
    begun = [event for event in events if isinstance(event, LogDirStarted)]
    assert sorted(event.log_dir for event in begun) == [str(path) for path in archive.log_dirs]
    assert sum(event.bytes_total for event in begun) == 2 * size_bytes
    assert sum(event.log_count for event in begun) == len(LOST)
    assert sum(event.scanned_bytes for event in events if isinstance(event, BytesScanned)) == 2 * size_bytes
    (started,) = (event for event in events if isinstance(event, RunStarted))
    assert (started.command, started.dry_run) == ("archive restore", False)
    assert events[-1] == RunFinished(
        exit_code=0, now_ms=events[-1].now_ms, monotonic_s=events[-1].monotonic_s
    )
    assert all(event.now_ms > 0 for event in events)
    assert STAGE_FOLDER not in repr(events)
    assert not [event for event in events if isinstance(event, Remark) and event.level != "info"]
    values = gauges.values()
    assert values.state == "complete"
    for log_dir in values.log_dirs:
        assert (log_dir.finished_logs, log_dir.remaining_bytes) == (log_dir.log_count, 0)
        assert log_dir.is_finished
        assert log_dir.recovered_segments == log_dir.segment_count > 0
    assert [event.duration_ms >= 0 for event in events if isinstance(event, LogDirFinished)] == [True, True]


def test_a_partition_is_finished_once_it_is_in_its_log_dir(archive: TieredArchive) -> None:
    seen = {}

    def look(event: Event) -> None:
        if isinstance(event, PartitionFinished):
            seen[event.partition] = event.status, (Path(event.log_dir) / event.partition).is_dir()

    assert watched(archive, look)[0].exit_code == 0
    assert seen == dict.fromkeys(LOST, ("recovered", True))


def test_what_is_refused_is_told(archive: TieredArchive) -> None:
    """One before anything is written, one after it was fetched."""
    sorted(archive.path.glob("plain-0-*/*.log"))[3].unlink()
    path = sorted(archive.path.glob("codecs-0-*/*.log"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    gauges = Gauges()
    report, events = watched(archive, gauges)
    assert report.exit_code == gauges.values().exit_code == 4
    statuses = {event.partition: event.status for event in events if isinstance(event, PartitionFinished)}
    assert statuses == {
        name: "refused" if name == "codecs-0" else "recovered" for name in LOST if name != "plain-0"
    }
    assert "refused: " in repr([event for event in events if getattr(event, "partition", None) == "plain-0"])
    assert sum(log_dir.truncated_bytes for log_dir in gauges.values().log_dirs) == 0


@pytest.mark.parametrize("is_lock_there", [False, True])
def test_a_dry_run_says_where_this_user_may_not_write(
    archive: TieredArchive, is_lock_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the run would: that finds out by its lock."""
    log_dir = archive.log_dirs[1]
    lock = log_dir / ".lock"
    if is_lock_there:
        lock.touch()
    may, barred = os.access, str(lock if is_lock_there else log_dir)
    monkeypatch.setattr(os, "access", lambda path, mode, **more: path != barred and may(path, mode, **more))
    report = restore(options_of(archive, broker={"dry_run": True}))
    told = {one.log_dir: one.error for one in report.log_dirs}
    denied = f"{lock}: Permission denied. Remedy: run this as the broker's user, or as root"
    assert told == {str(archive.log_dirs[0]): None, str(log_dir): denied}
    assert report.exit_code == 4
    reasons = {reason for one in report.partitions for reason in one.reasons}
    assert not any("format" in reason for reason in reasons)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("is_listed", [True, False])
def test_the_folder_of_another_user_is_refused_and_the_others_are_restored(
    archive: TieredArchive, is_listed: bool, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = archive.log_dirs[0] / "plain-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").touch()
    scan, may = os.scandir, os.access

    def scanned(path: str) -> object:
        if path == str(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    if not is_listed:
        monkeypatch.setattr(os, "scandir", scanned)
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: path != str(folder) and may(path, mode, **more)
    )
    report = restore(options_of(archive, broker={"dry_run": dry_run}))
    assert report.exit_code == 4
    refused = {f"{one.topic}-{one.partition}": one.reasons for one in report.partitions if one.reasons}
    why = ": an empty folder, which goes to quarantine, and this user may not move it" if is_listed else ""
    told = f"{folder}{why or ': Permission denied'}. Remedy: run this as the broker's user, or as root"
    assert refused == {"plain-0": (told,)}
    assert sum(one.status == "restored" for one in report.partitions) == len(LOST) - 1
    assert folder.is_dir()


def test_what_is_assigned_to_a_log_dir_that_is_offline_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = unpack("intact", tmp_path)
    output = tmp_path / "copy"
    copy(CopyOptions(output=str(output), log_dirs=tuple(map(str, sample.log_dirs))))
    log_dir = next(one for one in sample.log_dirs if (one / "plain-0").is_dir())
    shutil.rmtree(log_dir / "plain-0")
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: path != str(log_dir) and may(path, mode, **more)
    )
    report = restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(output), partitions=("plain-0",)),
            broker=RecoverOptions(config=sample.properties, is_config_complete=True, dry_run=True),
        )
    )
    (one,) = report.partitions
    assert one.reasons == (f"it is assigned to {log_dir}, which is offline. Remedy: bring that back",)


def test_a_dry_run_says_that_the_place_of_quarantine_is_none(archive: TieredArchive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for dry_run in (True, False):
        broker = {"dry_run": dry_run, "quarantine_dir": str(tmp_path / "file" / "q")}
        with pytest.raises(UsageError, match=f"{tmp_path / 'file'} is not a folder"):
            restore(options_of(archive, broker=broker))


def test_auxiliary_states_are_counted(archive: TieredArchive, tmp_path: Path) -> None:
    report, events = watched(archive, is_aux=True, names=[name for name in LOST if name != "stuck-copy-0"])
    built = sorted((event.topic, event.error) for event in events if isinstance(event, AuxStateBuilt))
    assert built == [("codecs", ""), ("plain", ""), ("transactions", "")], report.to_text()


def test_the_command_keeps_the_counts_in_the_file(archive: TieredArchive, tmp_path: Path) -> None:
    sorted(archive.path.glob("plain-1-*/*.log"))[1].unlink()
    chosen = [word for name in ("plain-0", "plain-1") for word in ("--partition", name)]
    metadata = ",".join(map(str, archive.log_dirs))
    config = archive.root / "server.properties"
    textfile = tmp_path / "restore.prom"
    done = run(
        *("archive", "restore", archive.path, "-c", config, "--aux", "--metadata", metadata, *chosen),
        *("--metrics-textfile", textfile, "--progress", "json"),
    )
    assert done.exit_code == 4
    assert "REFUSED plain-1: " in done.stdout
    text = textfile.read_text()
    prefix = "kafka_server_brokertopicmetrics_buildremotelogauxstate"
    assert f'{prefix}requests_total{{topic="plain"}} 2.0' in text
    assert f'{prefix}errors_total{{topic="plain"}} 1.0' in text
    assert "kafka_log_recovery_exit_code 4.0" in text


@needs(MOUNTS)
def test_a_disk_that_others_fill_fails_and_the_other_log_dir_goes_on(archive: TieredArchive) -> None:
    full = archive.log_dirs[1]
    with small_disk(full, 16 << 20):
        before = trees(archive)

        def fill(event: Event) -> None:
            if (
                isinstance(event, BytesScanned)
                and event.log_dir == str(full)
                and not (full / "filler").exists()
            ):
                room = os.statvfs(full)
                (full / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize))

        gauges = Gauges()
        report, events = watched(archive, fill, gauges)
        assert report.exit_code == gauges.values().exit_code == 4
        failed = {name for name, log_dir in LOST.items() if log_dir == "d2"}
        for name in LOST:
            one = one_of(report, name)
            assert one.status == ("failed" if name in failed else "restored"), one.reasons
            if name in failed:
                assert os.strerror(errno.ENOSPC) in one.reasons[0]
                assert "nothing of it is in the log dir" in one.reasons[0]
        (error,) = (log_dir.error for log_dir in report.log_dirs if log_dir.log_dir == str(full))
        assert os.strerror(errno.ENOSPC) in str(error)
        assert report.to_text().startswith(f"OFFLINE {full}: ")
        (offline,) = (event for event in events if isinstance(event, LogDirOffline))
        assert offline.log_dir == str(full)
        (full / "filler").unlink()
        assert trees(archive)[1] == before[1]
        assert not (full / STAGE_FOLDER).exists()
        again = restore(options_of(archive))
        assert again.exit_code == 0
        assert {one.status for one in again.partitions} == {"restored", "unchanged"}


@needs(MOUNTS)
def test_what_is_staged_already_needs_no_room(archive: TieredArchive) -> None:
    """A restore that has filled most of a disk is interrupted, and started again."""
    disk = archive.log_dirs[1]
    names = [name for name, log_dir in LOST.items() if log_dir == "d2"]
    foretold = restore(options_of(archive, names=names, broker={"dry_run": True}))
    size_bytes = sum(one.size_bytes for one in foretold.partitions)
    needed = foretold.log_dirs[1].needed_bytes
    with small_disk(disk, 4 * size_bytes):
        stop, left = StopRequest(), [size_bytes // 2]

        def interrupt(event: Event) -> None:
            if isinstance(event, BytesScanned):
                left[0] -= event.scanned_bytes
                if left[0] < 0:
                    stop.request(15)

        options = options_of(archive, names=names)
        stopped = restore(options, observers=[interrupt], stop=stop)
        assert stopped.exit_code == 143
        assert {one.status for one in stopped.partitions} == {"failed"}
        assert {one.log_dir for one in stopped.partitions} == {str(disk)}
        assert stopped.to_text().startswith("INTERRUPTED by signal 15")
        staged = sum(path.stat().st_size for path in (disk / STAGE_FOLDER).rglob("*.log"))
        assert staged > size_bytes // 4
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - needed + staged // 2))
        report, events = watched(archive, names=names)
        assert (report.log_dirs[1].usable_bytes or 0) < needed
        assert report.exit_code == 0, report.to_text()
        fetched_and_checked = sum(event.scanned_bytes for event in events if isinstance(event, BytesScanned))
        assert fetched_and_checked == 2 * size_bytes - staged


@needs(MOUNTS)
def test_what_restart_removes_counts_as_room(archive: TieredArchive) -> None:
    names = ["transactions-1"]
    dry = {"dry_run": True}
    needed = restore(options_of(archive, names=names, broker=dry)).log_dirs[1].needed_bytes
    with small_disk(archive.log_dirs[1], needed + (needed >> 1)) as disk:
        staged = disk / STAGE_FOLDER / "log-dir" / "transactions-1"
        staged.mkdir(parents=True)
        (staged / "00000000000000000000.log").write_bytes(bytes(needed))
        for broker in (dry | {"restart": True}, {"restart": True}):
            report = restore(options_of(archive, names=names, broker=broker))
            assert report.exit_code == 0, report.to_text()


@needs(MOUNTS)
def test_what_is_moved_in_first_is_no_room(archive: TieredArchive) -> None:
    """Although it lies in the stage: a dry run must not take its bytes for free."""
    log_dir = archive.log_dirs[1]
    point = KillPoint(event="os.rename", path=rf"{STAGE_FOLDER}/log-dir/codecs-0$")
    others = {"names": ["transactions-1"]}
    needed = restore(options_of(archive, **others, broker={"dry_run": True})).log_dirs[1].needed_bytes
    with small_disk(log_dir, 4 << 20) as disk:
        command = [*point.command(), "archive", "restore", str(archive.path), "--partition", "codecs-0"]
        command += ["-c", str(archive.root / "server.properties")]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == -9
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - needed + 100_000))
        for dry_run in (True, False):
            report = restore(options_of(archive, **others, broker={"dry_run": dry_run}))
            assert [one.status for one in report.partitions] == ["refused"]
            assert "are needed there" in report.partitions[0].reasons[0]


@needs(MOUNTS)
def test_a_quarantine_that_cannot_be_written_is_known_before_anything_is_done(
    archive: TieredArchive, tmp_path: Path
) -> None:
    """The log dirs have markers: a recovery would have nothing to save there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    before = trees(archive)
    with mounting(disk, "tmpfs", "size=64m"):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for dry_run in (True, False):
            with pytest.raises(UnsafeError, match=r"could not be kept in quarantine: .* mounted read-only"):
                restore(options_of(archive, broker={"quarantine_dir": str(disk), "dry_run": dry_run}))
    assert trees(archive) == before


def test_a_log_dir_of_another_node_is_named(archive: TieredArchive) -> None:
    """Which of several is meant: their files have the same name."""
    path = archive.log_dirs[1] / "meta.properties"
    path.write_text(re.sub(r"node\.id=\d+", "node.id=77", path.read_text()))
    with pytest.raises(UnsafeError, match=rf"{path}: node\.id is 77, .* Remedy: .* Nothing was changed"):
        restore(options_of(archive))


def test_what_an_interrupted_run_has_moved_in_is_told(archive: TieredArchive) -> None:
    """It is asked to end once the first log dir has all of its own; the command that is printed takes back both."""
    before = trees(archive)
    stop = StopRequest()

    def interrupt(event: Event) -> None:
        if isinstance(event, LogDirFinished):
            stop.request(15)

    report = restore(options_of(archive), observers=[interrupt], stop=stop)
    assert report.exit_code == 143
    assert json.loads(report.to_json())["exitCode"] == 143
    for one in report.partitions:
        is_there = (Path(str(one.log_dir)) / f"{one.topic}-{one.partition}").exists()
        assert is_there == (one.status == "restored")
    left = [one for one in report.partitions if one.status == "failed"]
    assert 0 < len(left) < len(LOST)
    assert all("interrupted before it was moved in" in one.reasons[0] for one in left)
    assert "undo" in report.to_text()
    again = restore(options_of(archive))
    assert again.exit_code == 0
    assert {one.status for one in again.partitions} == {"restored", "unchanged"}
    first, second = archive.log_dirs
    assert (
        f"this takes it back: kafka-log-recovery undo --log-dirs {first},{second}\n" in f"{again.to_text()}\n"
    )
    assert [one.earlier is None for one in again.log_dirs].count(False) == 1
    undo([str(log_dir) for log_dir in archive.log_dirs])
    assert trees(archive) == before


def test_a_move_that_fails_is_finished_by_the_next_run(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent is written, and stays with the stage."""
    real = log_dir_restore.move_in

    def fail(log_dir: str, moved: object, open_quarantine: object) -> str | None:
        if log_dir != str(archive.log_dirs[1]):
            return real(log_dir, moved, open_quarantine)  # type: ignore[arg-type]  # handed on
        with monkeypatch.context() as patch:
            patch.setattr("recovery.write.move_in.finish_move_in", _no_space)
            return real(log_dir, moved, open_quarantine)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(log_dir_restore, "move_in", fail)
    report = restore(options_of(archive))
    assert report.exit_code == 4
    failed = [one for one in report.partitions if one.status == "failed"]
    assert {f"{one.topic}-{one.partition}" for one in failed} == {
        name for name, log_dir in LOST.items() if log_dir == "d2"
    }
    assert all("is moved in then" in one.reasons[0] for one in failed)
    assert (archive.log_dirs[1] / STAGE_FOLDER / "intent.json").exists()
    monkeypatch.undo()
    again = restore(options_of(archive))
    assert again.exit_code == 0
    assert {one.status for one in again.partitions} == {"unchanged"}
    assert not (archive.log_dirs[1] / STAGE_FOLDER).exists()


def test_a_log_dir_fails_before_the_logs_tell_where_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copied log dir nothing else says it."""
    sample = unpack("stopped", tmp_path)
    shutil.copytree(sample.log_dirs[0], tmp_path / "copy")
    for folder in (
        path for path in sample.log_dirs[0].iterdir() if path.is_dir() and "__cluster" not in path.name
    ):
        shutil.rmtree(folder)
    options = RestoreOptions(
        archive=ArchiveOptions(url=str(tmp_path / "copy")),
        broker=RecoverOptions(config=sample.properties, is_config_complete=True, now_ms=sample.now_ms),
    )
    with monkeypatch.context() as patch:
        patch.setattr(Stage, "write_checkpoints", _no_space)
        report = restore(options)
    assert report.exit_code in (1, 4)
    planned = [one for one in report.partitions if one.status == "failed"]
    assert len(planned) > 1
    assert all(os.strerror(errno.ENOSPC) in one.reasons[0] for one in planned)
    again = restore(options)
    restored = {(one.topic, one.partition) for one in again.partitions if one.status == "restored"}
    assert restored == {(one.topic, one.partition) for one in planned}


def test_an_object_that_cannot_be_read_is_named(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the file that it was to become. The rest of the log dir is restored."""
    bad = sorted(archive.path.glob("codecs-0-*/*.log"))[2]
    real, inode = opened_log.fill, bad.stat().st_ino

    def fill(target: memoryview, descriptor: int, position: int) -> int:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(target, descriptor, position)

    monkeypatch.setattr(opened_log, "fill", fill)
    report = restore(options_of(archive))
    assert report.exit_code == 4
    assert {one.status for one in report.partitions if one.topic != "codecs"} == {"restored"}
    assert one_of(report, "codecs-0").status == "failed"
    assert one_of(report, "codecs-0").reasons == (
        f"{bad}: Input/output error. Remedy: see that it can be read, and start again",
    )
    assert not any((log_dir / STAGE_FOLDER).exists() for log_dir in archive.log_dirs)


def _no_space(*_arguments: object) -> str | None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere")
