"""`archive metrics` and `archive retention`: which replica of a partition counts, and how far it reaches."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.remote.replicas import Replicas
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.report import TieredPartition, TieringReport
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from segfmt.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
)
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return unpack_tiered(tmp_path)


def measured(*log_dirs: Path, name: str = "plain-0") -> tuple[TieringReport, TieredPartition]:
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs)), partitions=(name,)))
    (found,) = report.partitions
    return report, found


def folder_of(archive: TieredArchive, name: str) -> Path:
    (folder,) = (path / name for path in archive.log_dirs if (path / name).is_dir())
    return folder


def batches_of(log: Path) -> list[tuple[int, int]]:
    """Position and first offset of each batch."""
    data, position, found = log.read_bytes(), 0, []
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        found.append((position, base_offset))
        position += 12 + length
    return found


def other_replica(archive: TieredArchive, name: str, *, node_id: int = 2) -> Path:
    """The folder of a partition in a log dir of another broker, without anything that tells of its end."""
    source = folder_of(archive, name)
    log_dir = source.parent.with_name("other")
    copy = shutil.copytree(source, log_dir / name)
    for path in (*copy.glob("*.index"), *copy.glob("*.timeindex"), *copy.glob("*.snapshot")):
        path.unlink()
    topic, _, number = name.rpartition("-")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {number} 0\n")
    properties = (source.parent / "meta.properties").read_text()
    (log_dir / "meta.properties").write_text(properties.replace("node.id=1", f"node.id={node_id}"))
    return copy


def test_why_a_folder_does_not_count_is_asked_only_where_none_does(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes requests for each log dir."""
    asked: list[str] = []

    def why_unread(_: Replicas, where: PartitionPrefix) -> str:
        asked.append(f"{where.topic}-{where.partition}")
        return "unread"

    monkeypatch.setattr(Replicas, "why_unread", why_unread)
    shutil.rmtree(folder_of(archive, "plain-1"))
    measure_tiering(TieringOptions(metadata=tuple(map(str, archive.log_dirs))))
    assert asked == ["plain-1"]


@pytest.mark.parametrize("is_indexed", [True, False])
def test_the_replica_counts_that_reaches_furthest_wherever_its_last_segment_begins(
    archive: TieredArchive, *, is_indexed: bool
) -> None:
    _, leader = measured(*archive.log_dirs)
    follower = other_replica(archive, "plain-0", node_id=1)
    log = max(follower.glob("*.log"))
    *_, (rolled_at, base_offset), _, (end, end_offset), _ = batches_of(log)
    data = log.read_bytes()
    log.write_bytes(data[:rolled_at])
    (follower / f"{base_offset:020}.log").write_bytes(data[rolled_at:end])
    if not is_indexed:
        max(folder_of(archive, "plain-0").glob("*.index")).unlink()
    _, behind = measured(
        *(path for path in archive.log_dirs if not (path / "plain-0").is_dir()), follower.parent
    )
    assert behind.figures.log_end_offset == end_offset
    _, both = measured(*archive.log_dirs, follower.parent)
    assert both.figures.log_end_offset == leader.figures.log_end_offset
    assert both.figures.remote_copy_lag_segments == leader.figures.remote_copy_lag_segments


def test_a_follower_that_was_down_does_not_count_for_the_epochs_that_its_leader_has_left_behind(
    archive: TieredArchive,
) -> None:
    follower = other_replica(archive, "plain-0")
    log = max(follower.glob("*.log"))
    *_, (end, _) = batches_of(log)
    log.write_bytes(log.read_bytes()[:end])
    folder = folder_of(archive, "plain-0")
    _, second, last = read_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())
    start = last.start_offset - 1
    left = [LeaderEpochEntry(second.epoch, start), last]
    (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint(left))
    checkpoint = folder.parent / "log-start-offset-checkpoint"
    starts = read_offset_checkpoint(checkpoint.read_bytes()) | {("plain", 0): start}
    checkpoint.write_bytes(encode_offset_checkpoint(starts))
    _, leader = measured(*archive.log_dirs)
    assert leader.figures.log_start_offset == start
    _, both = measured(*archive.log_dirs, follower.parent)
    assert replace(both.figures, remote_log_size_computation_time_ms=0) == replace(
        leader.figures, remote_log_size_computation_time_ms=0
    )


def test_leader_epochs_before_the_log_start_are_none_of_the_logs(archive: TieredArchive) -> None:
    """A broker that was killed has not removed them from the file, and does so when it loads the log."""
    folder = folder_of(archive, "plain-0")
    file, checkpoint = folder / "leader-epoch-checkpoint", folder.parent / "log-start-offset-checkpoint"
    *_, last = read_leader_epoch_checkpoint(file.read_bytes())
    start = last.start_offset + 10
    starts = read_offset_checkpoint(checkpoint.read_bytes()) | {("plain", 0): start}
    checkpoint.write_bytes(encode_offset_checkpoint(starts))
    _, stale = measured(*archive.log_dirs)
    file.write_bytes(encode_leader_epoch_checkpoint([LeaderEpochEntry(last.epoch, start)]))
    _, flushed = measured(*archive.log_dirs)
    assert (
        stale.figures.remote_delete_lag_segments
        == flushed.figures.remote_delete_lag_segments
        == stale.figures.remote_log_metadata_count - 4
    )


def test_what_an_active_segment_has_after_the_last_copy_is_on_this_disk_alone(archive: TieredArchive) -> None:
    """An earlier leader rolled at another offset than this one."""
    _, before = measured(*archive.log_dirs)
    folder = folder_of(archive, "plain-0")
    first, last = sorted(folder.glob("*.log"))
    first.write_bytes(first.read_bytes() + last.read_bytes())
    for path in (last, *folder.glob("*.index"), *folder.glob("*.timeindex")):
        path.unlink()
    _, active = measured(*archive.log_dirs)
    assert active.figures.highest_copied_offset == before.figures.highest_copied_offset
    assert (active.figures.local_only_segments, active.figures.remote_copy_lag_segments) == (1, 0)
    assert active.figures.local_only_bytes == first.stat().st_size
    *_, (rolled_at, base_offset) = batches_of(first)
    data = first.read_bytes()
    first.write_bytes(data[:rolled_at])
    (folder / f"{base_offset:020}.log").write_bytes(data[rolled_at:])
    _, closed = measured(*archive.log_dirs)
    assert (closed.figures.local_only_segments, closed.figures.local_only_bytes) == (2, len(data))
    assert (closed.figures.remote_copy_lag_segments, closed.figures.remote_copy_lag_bytes) == (1, rolled_at)
    for path in archive.log_dirs:
        shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
    report, without_settings = measured(*archive.log_dirs)
    assert report.exit_code == 4
    assert without_settings.figures.local_only_bytes == closed.figures.local_only_bytes
    assert without_settings.figures.remote_copy_lag_bytes is None  # copying may be disabled


def test_what_is_preallocated_is_no_part_of_a_log(archive: TieredArchive) -> None:
    options = TieringOptions(metadata=tuple(map(str, archive.log_dirs)))
    before, foretold = measure_tiering(options), json.loads(foretell_retention(options).to_json())
    for folder in (one for path in archive.log_dirs for one in path.glob("*-[0-9]")):
        with max(folder.glob("*.log")).open("r+b") as log:
            log.truncate(1 << 20)
    after = measure_tiering(options)
    assert after.exit_code == 0
    assert [one.figures.local_only_bytes for one in after.partitions] == [
        one.figures.local_only_bytes for one in before.partitions
    ]
    assert json.loads(foretell_retention(options).to_json())["partitions"] == foretold["partitions"]


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("content", [None, "garbage"])
def test_the_file_is_named_for_want_of_which_a_replica_does_not_count(
    archive: TieredArchive, name: str, content: str | None
) -> None:
    file = folder_of(archive, "plain-0") / name
    file.unlink()
    if content is not None:
        file.write_text(content)
    report, one = measured(*archive.log_dirs)
    assert (report.exit_code, one.figures.log_end_offset) == (4, None)
    assert report.warnings[0].startswith(f"plain-0: its local part: {file}: ")
    assert "Remedy: copy the folder whole" in report.warnings[0]


def test_a_folder_that_this_user_may_not_read_is_not_said_to_be_missing(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LocalStore.read

    def refused(store: LocalStore, key: str, *, most_bytes: int) -> bytes:
        if key == "plain-0/partition.metadata" and (Path(store.url) / key).exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{store.url}/{key}")
        return read(store, key, most_bytes=most_bytes)

    monkeypatch.setattr(LocalStore, "read", refused)
    report, _ = measured(*archive.log_dirs)
    (told,) = (text for text in report.warnings if text.startswith("plain-0: its local part: "))
    assert "plain-0/partition.metadata: Permission denied. Remedy: see that this user can read it" in told


def test_a_replica_of_which_nobody_knows_where_it_begins_counts_only_without_another(
    archive: TieredArchive,
) -> None:
    other = other_replica(archive, "plain-0", node_id=1)
    (folder_of(archive, "plain-0").parent / "log-start-offset-checkpoint").write_text("garbage")
    report, one = measured(*archive.log_dirs)
    assert (report.exit_code, one.figures.log_start_offset) == (4, None)
    report, one = measured(*archive.log_dirs, other.parent)
    assert (report.exit_code, one.figures.log_start_offset) == (0, 0)


def test_records_that_brokers_do_not_find_are_told(archive: TieredArchive) -> None:
    for path in archive.log_dirs:
        for folder in path.glob("__remote_log_metadata-*"):
            folder.rename(str(folder).replace("metadata-", "metadata-1"))
    report, one = measured(*archive.log_dirs)
    assert (report.exit_code, one.figures.remote_log_size_bytes) == (4, None)
    assert re.search(
        r"their records are in __remote_log_metadata-1[0-2], and brokers look for them in "
        r"__remote_log_metadata-[0-2] of 3: .*Remedy: give the folder its name",
        report.warnings[0],
    )


def copied(archive: TieredArchive, output: Path) -> list[Path]:
    """The log dirs of a copy, which is brought up to date."""
    copy(CopyOptions(output=str(output), log_dirs=tuple(map(str, archive.log_dirs))))
    return [output / log_dir.name for log_dir in archive.log_dirs]


@pytest.mark.parametrize("topic", ["plain", "__remote_log_metadata"])
def test_a_copy_that_has_not_all_of_a_log_tells_nothing_of_it(
    archive: TieredArchive, tmp_path: Path, topic: str
) -> None:
    log_dirs = copied(archive, tmp_path / "copy")
    assert measured(*log_dirs)[0].exit_code == 0
    manifest = tmp_path / "copy" / "kafka-log-recovery-copy.jsonl"
    head, _, lines = manifest.read_text().partition("\n")
    names = [
        name for name in os.listdir(log_dirs[0]) + os.listdir(log_dirs[1]) if name.startswith(f"{topic}-")
    ]
    in_part = [
        f"{log_dir.name}/{name}/" for log_dir in log_dirs for name in names if (log_dir / name).is_dir()
    ]
    manifest.write_text(json.dumps(json.loads(head) | {"unfinished": sorted(in_part)}) + "\n" + lines)
    report, one = measured(*log_dirs)
    assert report.exit_code == 4
    (warning,) = report.warnings
    assert "archive copy has not copied all of it. Remedy: copy it again" in warning
    if topic == "plain":
        assert (one.figures.log_end_offset, one.figures.remote_log_metadata_count) == (None, 14)
    else:
        assert (one.figures.remote_log_metadata_count, one.figures.log_end_offset) == (None, 435)


def test_what_has_gone_from_a_copied_log_dir_is_not_counted(archive: TieredArchive, tmp_path: Path) -> None:
    copied(archive, tmp_path / "copy")
    first, *_ = sorted(folder_of(archive, "plain-0").glob("*.log"))
    first.unlink()
    log_dirs = copied(archive, tmp_path / "copy")
    expected, found = (measured(*dirs)[1].figures for dirs in (archive.log_dirs, log_dirs))
    assert found.local_log_start_offset == expected.local_log_start_offset == 405
