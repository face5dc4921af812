"""`archive metrics` and `archive retention` on the sample `tiered`: figures, what is not known, exit codes."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from recovery.archive.remote.log_batches import read_batches
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Store
from recovery.archive.tiering import cluster_view
from recovery.archive.tiering.deletion_table import DeletionTable
from recovery.archive.tiering.metadata_log import MetadataLog, read_metadata_log
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.prometheus import metrics_text
from recovery.archive.tiering.report import TieredPartition, TieringReport
from recovery.archive.tiering.retention import Deletion
from recovery.archive.tiering.retention_report import Foretold, RetainedPartition, RetentionReport
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from recovery.errors import UsageError
from segfmt.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
)
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import (
    TOPIC,
    RemotePartition,
    RemoteSegment,
    encode_remote_log_metadata,
    metadata_partition,
)
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.logs.metadata_topic import metadata_batch
from tests.logs.remote_logs import SimulatedLog
from tests.runs.command import run
from tests.runs.driving import footprint


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("tiering"))


def dirs(archive: TieredArchive) -> str:
    return ",".join(map(str, archive.log_dirs))


def test_the_figures_agree_with_what_the_broker_said_of_its_segments(archive: TieredArchive) -> None:
    before = [footprint(path) for path in archive.log_dirs]
    done = run("archive", "metrics", "--metadata", dirs(archive), "--format", "json")
    assert (done.exit_code, done.report["exitCode"], done.report["warnings"]) == (0, 0, [])
    live: dict[tuple[str, int], list[str]] = {}
    for segment in archive.expected["segments"].values():
        live.setdefault((segment["topic"], segment["partition"]), []).append(segment["states"][-1])
    compared = 0
    for one in done.report["partitions"]:
        states = live.setdefault((one["topic"], one["partition"]), [])
        known = [state for state in states if state != "DELETE_SEGMENT_FINISHED"]
        assert one["remoteLogMetadataCount"] == len(known)
        assert one["copyRequests"] == len(states)
        assert one["copyUnfinished"] == known.count("COPY_SEGMENT_STARTED")
        assert one["deleteUnfinished"] == known.count("DELETE_SEGMENT_STARTED")
        assert one["deleteRequests"] == len(states) - len(known) + one["deleteUnfinished"]
        assert one["logStartOffset"] <= one["localLogStartOffset"] <= one["logEndOffset"]
        assert one["lineageSizeBytes"] <= one["remoteLogSizeBytes"]
        del live[one["topic"], one["partition"]]
        compared += len(known)
    assert compared > 100
    assert {state for states in live.values() for state in states} == {
        "DELETE_SEGMENT_FINISHED"
    }  # of deleted topics
    (plain,) = (one for one in done.report["topics"] if one["topic"] == "plain")
    parts = [one for one in done.report["partitions"] if one["topic"] == "plain"]
    assert plain["remoteLogSizeBytes"] == sum(one["remoteLogSizeBytes"] for one in parts) > 0
    assert "logEndOffset" not in plain
    assert [footprint(path) for path in archive.log_dirs] == before


def test_what_cannot_be_known_is_null_and_has_no_sample(archive: TieredArchive, tmp_path: Path) -> None:
    copy = tmp_path / "d1"
    shutil.copytree(archive.log_dirs[0], copy)
    report = measure_tiering(TieringOptions(metadata=(str(copy),)))
    assert report.exit_code == 4
    without_replica = [one for one in report.partitions if one.figures.log_end_offset is None]
    assert without_replica
    text = metrics_text(report).decode()
    for one in without_replica:
        assert one.figures.local_only_bytes is None
        assert one.figures.remote_copy_lag_bytes is None
        assert f'local_only_bytes{{partition="{one.partition}",topic="{one.topic}"}}' not in text
        assert any(
            warning.startswith(f"{one.topic}-{one.partition}: its local part: no replica")
            for warning in report.warnings
        )
    sums = {one.topic: one.figures for one in report.topics}
    assert sums[without_replica[0].topic].local_only_bytes is None
    retention = foretell_retention(TieringOptions(metadata=(str(copy),)))
    assert retention.exit_code == 4
    names = [f"{one.topic}-{one.partition}" for one in without_replica]
    assert len(names) > 3
    for found in (report, retention):
        (line,) = (line for line in found.to_text(-1).splitlines() if "no replica was found" in line)
        some = f"{', '.join(names[:3])} and {len(names) - 3} more"
        assert line.startswith(
            f"WARNING: {len(names)} partitions ({some}): its local part: no replica was found."
        )
        (line,) = (line for line in found.to_text(1).splitlines() if "no replica was found" in line)
        assert f"({', '.join(names)})" in line


def test_a_damaged_metadata_topic_hides_what_it_says(archive: TieredArchive, tmp_path: Path) -> None:
    copies = [shutil.copytree(path, tmp_path / path.name) for path in archive.log_dirs]
    for copy in copies:
        for log in copy.glob("__remote_log_metadata-*/*.log"):
            data = bytearray(log.read_bytes())
            if len(data) > 300:
                data[200] ^= 0xFF
                log.write_bytes(data)
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, copies))))
    assert report.exit_code == 4
    hidden = [one for one in report.partitions if one.figures.remote_log_size_bytes is None]
    assert hidden
    assert all(one.figures.remote_delete_lag_bytes is None for one in hidden)
    assert any("its remote segments: " in warning for warning in report.warnings)


def test_settings_that_nobody_knows_are_not_guessed(archive: TieredArchive, tmp_path: Path) -> None:
    copies = [
        shutil.copytree(path, tmp_path / path.name, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        for path in archive.log_dirs
    ]
    arguments = [
        "archive",
        "metrics",
        "--metadata",
        ",".join(map(str, copies)),
        "--format",
        "json",
        "--topic",
        "plain",
    ]
    done = run(*arguments)
    assert done.exit_code == 4
    assert {one["remoteDeleteLagBytes"] for one in done.report["partitions"]} == {None}
    assert "Remedy: give --topic-config" in done.report["warnings"][0]
    given = run(
        *arguments,
        "--topic-config",
        json.dumps({"plain": {"retention.ms": 1, "remote.log.copy.disable": True}}),
    )
    assert given.exit_code == 0
    for one in given.report["partitions"]:
        assert one["remoteDeleteLagSegments"] == one["remoteLogMetadataCount"] > 0
        assert one["copyDisabled"] is True


def test_retention_names_what_a_start_would_lose(archive: TieredArchive) -> None:
    done = run("archive", "retention", "--metadata", dirs(archive), "--format", "json")
    assert done.exit_code == done.report["exitCode"] == 2
    by_topic = {one["topic"]: one for one in done.report["partitions"]}
    lost = by_topic["expired-by-size"]
    assert lost["deletions"] == []
    assert (
        lost["atNextStart"]["inRetentionBytes"]
        == sum(one["sizeBytes"] for one in lost["atNextStart"]["deletions"])
        > 0
    )
    assert {one["reason"] for one in by_topic["expired-by-time"]["deletions"]} == {"time"}
    assert by_topic["plain"]["deletions"] == by_topic["plain"]["atNextStart"]["deletions"] == []
    local_bytes = sum(
        log.stat().st_size for path in archive.log_dirs for log in path.glob("expired-by-size-0/*.log")
    )
    safe_bytes = lost["retentionBytes"] + local_bytes
    assert lost["atNextStart"]["safeRetentionBytes"] == safe_bytes
    assert by_topic["plain"]["atNextStart"]["safeRetentionBytes"] == -1
    text = run("archive", "retention", "--metadata", dirs(archive))
    assert text.stdout.startswith(
        "LOSS expired-by-size-0: a broker before 4.3.2 may delete 1 segment in retention"
    )
    assert f"raise retention.bytes of the topic from {lost['retentionBytes']} to {safe_bytes}" in text.stdout
    assert "Nothing was deleted." in text.stdout
    for settings, exit_code in (
        ({"retention.bytes": safe_bytes}, 0),
        ({"retention.bytes": safe_bytes, "remote.log.copy.disable": True}, 0),
        ({"remote.log.copy.disable": True}, 2),
    ):
        given = ("--topic", "expired-by-size", "--topic-config", json.dumps({"expired-by-size": settings}))
        done = run("archive", "retention", "--metadata", dirs(archive), *given)
        assert done.exit_code == exit_code, settings
    assert done.stdout.startswith(
        "LOSS expired-by-size-0: a broker before 4.3.2 deletes 1 segment in retention"
    )
    assert "as long as copying is disabled it counts local segments twice" in done.stdout


def test_the_json_of_retention_is_made_in_parts_and_laid_out_as_a_whole(archive: TieredArchive) -> None:
    options = TieringOptions(
        metadata=tuple(map(str, archive.log_dirs)), topic_configs={"plain": {"retention.ms": "0"}}
    )
    report = foretell_retention(options)
    (most,) = (one for one in report.partitions if (one.topic, one.partition) == ("plain", 0))
    assert most.now is not None
    assert most.at_next_start is most.now  # the same segments are held once
    times = 2500 // len(most.now.deletions) + 1
    rows = [one for _ in range(times) for one in most.now.deletions]
    many = DeletionTable.of([Deletion(cast("RemoteSegment", one), one.reason) for one in rows])
    assert list(many) == rows
    assert many[-1] == rows[-1]
    partitions = [replace(one, now=replace(most.now, deletions=many)) for one in report.partitions[:2]]
    unknown = replace(most, now=None, at_next_start=None, never_deleted_bytes=None)
    long = replace(report, partitions=(*partitions, unknown, *report.partitions))
    for one in (long, report, replace(report, partitions=())):
        text = one.to_json()
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    parsed = json.loads(long.to_json())
    assert [one["maxTimestampMs"] for one in parsed["partitions"][0]["deletions"]] == [
        one.max_timestamp_ms for one in rows
    ]
    assert parsed["partitions"][2]["deletions"] is parsed["partitions"][2]["atNextStart"] is None
    assert max(map(len, long.json_parts())) < 400_000


def test_a_sum_says_of_how_many_partitions_it_is() -> None:
    known = RetainedPartition(
        topic="t", topic_id="", partition=0, now=Foretold(deletions=DeletionTable.of(()), log_start_offset=0)
    )
    unknown = replace(known, partition=1, now=None)
    texts = [
        RetentionReport(now_ms=0, duration_ms=0, partitions=partitions).to_text()
        for partitions in ((known,), (known, unknown))
    ]
    assert "to be deleted. Nothing" in texts[0]
    assert "2 tiered partitions: 0 segments, 0 B, to be deleted of 1 of them (1 not known)." in texts[1]


def test_the_clock_may_be_given(archive: TieredArchive) -> None:
    early = foretell_retention(TieringOptions(metadata=tuple(map(str, archive.log_dirs)), now_ms=1))
    (expired,) = (one for one in early.partitions if one.topic == "expired-by-time")
    assert expired.now is not None
    assert len(expired.now.deletions) == 0


def test_the_textfile_has_the_same_figures(archive: TieredArchive, tmp_path: Path) -> None:
    file = tmp_path / "remote.prom"
    done = run(
        "archive",
        "metrics",
        "--metadata",
        dirs(archive),
        "--format",
        "prometheus",
        "--metrics-textfile",
        file,
    )
    assert done.exit_code == 0
    same = [line for line in file.read_text().splitlines() if "computation" not in line]
    assert same == [line for line in done.stdout.splitlines() if "computation" not in line]
    refused = run("archive", "metrics", "--metadata", dirs(archive), "--metrics-textfile", tmp_path)
    assert refused.exit_code == 1
    assert "Remedy: name a file" in refused.stderr


def test_a_textfile_has_no_figures_of_an_earlier_run(archive: TieredArchive, tmp_path: Path) -> None:
    file = tmp_path / "remote.prom"
    for metadata, exit_code in (("/nowhere", 1), (dirs(archive), 0), ("/nowhere", 1)):
        is_written = file.exists() or exit_code == 0
        done = run("archive", "metrics", "--metadata", metadata, "--metrics-textfile", file)
        assert done.exit_code == exit_code
        assert file.exists() == is_written
        assert not is_written or (b"kafka_" in file.read_bytes()) == (exit_code == 0)
    assert os.listdir(tmp_path).count(file.name) == len(
        [one for one in os.listdir(tmp_path) if ".prom" in one]
    )


def copied(archive: TieredArchive, into: Path) -> list[Path]:
    return [shutil.copytree(path, into / path.name) for path in archive.log_dirs]


def folder_of(log_dirs: Sequence[Path], name: str) -> Path:
    (folder,) = (path / name for path in log_dirs if (path / name).is_dir())
    return folder


def one_of(log_dirs: list[Path], topic: str, partition: int = 0) -> tuple[TieringReport, TieredPartition]:
    """The report of one partition, and that partition."""
    name = f"{topic}-{partition}"
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs)), partitions=(name,)))
    (found,) = report.partitions
    return report, found


def forget_end(folder: Path) -> None:
    """Remove what tells how far the log of a partition's folder reached, beside the log itself."""
    for path in (*folder.glob("*.snapshot"), max(folder.glob("*.index")), max(folder.glob("*.timeindex"))):
        path.unlink()
    topic, _, number = folder.name.rpartition("-")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        told = read_offset_checkpoint((folder.parent / name).read_bytes())
        told.pop((topic, int(number)), None)
        (folder.parent / name).write_bytes(encode_offset_checkpoint(told))


def test_a_metadata_topic_that_cannot_be_read_has_a_remedy_where_there_is_one_broker(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = metadata_partition(
        RemotePartition(
            topic="plain",
            topic_id=read_uuid(archive.expected["partitions"]["plain-0"]["topic_id"]),
            partition=0,
        ),
        3,
    )
    (log,) = folder_of(list(archive.log_dirs), f"{TOPIC}-{number}").glob("*.log")
    opened = LocalStore.open

    def open_others(store: LocalStore, key: str) -> object:
        if f"{store.url}/{key}" == str(log):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(log))
        return opened(store, key)

    monkeypatch.setattr(LocalStore, "open", open_others)
    report, one = one_of(list(archive.log_dirs), "plain")
    assert (report.exit_code, one.figures.remote_log_size_bytes) == (4, None)
    (warning,) = (text for text in report.warnings if text.startswith("plain-0: its remote segments"))
    assert warning.endswith(
        "Remedy: see that this user can read it, or give the log dirs of all brokers with --metadata"
    )


def test_a_topic_that_was_made_anew_may_have_the_high_watermark_of_the_deleted_one(
    archive: TieredArchive, tmp_path: Path
) -> None:
    """A broker writes that checkpoint every five seconds, and takes nothing out of it when a topic is deleted."""
    log_dirs = copied(archive, tmp_path)
    checkpoint = folder_of(log_dirs, "plain-0").parent / "replication-offset-checkpoint"
    marks = read_offset_checkpoint(checkpoint.read_bytes())
    checkpoint.write_bytes(encode_offset_checkpoint(marks | {("plain", 0): 900}))
    (checkpoint.parent / ".kafka_cleanshutdown").unlink()
    report, _ = one_of(log_dirs, "plain")
    assert "tells of offset 899: its end is missing, or a topic of its name was deleted" in report.warnings[0]
    assert "Remedy: beside a broker at work, ask again; else recover the log dir" in report.warnings[0]


def test_once_a_log_that_lost_its_end_is_recovered_its_figures_are_known(
    archive: TieredArchive, tmp_path: Path
) -> None:
    """A recovery leaves the high watermark as it is, above the end of the log."""
    log_dirs = copied(archive, tmp_path)
    folder = folder_of(log_dirs, "plain-0")
    os.truncate(max(folder.glob("*.log")), 0)
    (folder.parent / ".kafka_cleanshutdown").unlink()
    report, _ = one_of(log_dirs, "plain")
    assert "its end is missing. Remedy: recover the log dir" in report.warnings[0]
    assert run("recover", "--log-dirs", folder.parent).exit_code == 2  # MISSING
    marks = read_offset_checkpoint((folder.parent / "replication-offset-checkpoint").read_bytes())
    assert marks["plain", 0] > 405
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, report.warnings, one.figures.log_end_offset) == (0, (), 405)


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_log_begins_with_the_first_segment_that_is_left(
    archive: TieredArchive, tmp_path: Path, is_copied: bool
) -> None:
    """Its broker was killed before the checkpoint had where it begins; one that copies finds it when it starts."""
    log_dirs = copied(archive, tmp_path)
    _, whole = one_of(log_dirs, "expired-by-time")
    assert whole.figures.log_start_offset == 290
    checkpoint = folder_of(log_dirs, "expired-by-time-0").parent / "log-start-offset-checkpoint"
    starts = read_offset_checkpoint(checkpoint.read_bytes())
    checkpoint.write_bytes(encode_offset_checkpoint(starts | {("expired-by-time", 0): 0}))
    settings = {"remote.storage.enable": "true", "remote.log.copy.disable": str(not is_copied).lower()}
    report = measure_tiering(
        TieringOptions(
            metadata=tuple(map(str, log_dirs)),
            partitions=("expired-by-time-0",),
            topic_configs={"expired-by-time": settings},
        )
    )
    (late,) = report.partitions
    assert late.figures.log_start_offset == (290 if is_copied else 0)
    assert late.figures.lineage_size_bytes == whole.figures.lineage_size_bytes


def test_a_replica_that_is_behind_what_was_copied_tells_nothing(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    folder = folder_of(log_dirs, "plain-0")
    log = max(folder.glob("*.log"))
    whole = log.read_bytes()
    assert len(list(folder.glob("*.log"))) == 2
    log.write_bytes(b"")  # it ends right where the copies end: it may be the leader
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.log_end_offset) == (4, None)
    assert "the log ends at 405, and " in report.warnings[0]
    assert "its end is missing. Remedy: recover the log dir" in report.warnings[0]
    forget_end(folder)
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.log_end_offset) == (0, 405)
    log.unlink()
    before = max(folder.glob("*.log"))
    before.write_bytes(before.read_bytes()[: before.stat().st_size // 2])
    forget_end(folder)
    report, one = one_of(log_dirs, "plain")
    assert report.exit_code == 4
    assert one.figures.local_only_bytes is one.figures.remote_copy_lag_bytes is None
    assert one.figures.remote_delete_lag_bytes is None
    (warning,) = report.warnings
    assert f"{folder}: it ends at offset " in warning
    assert "and offset 404 was copied. Remedy: give the log dirs of all brokers" in warning
    assert (
        foretell_retention(
            TieringOptions(metadata=tuple(map(str, log_dirs)), partitions=("plain-0",))
        ).exit_code
        == 4
    )
    log.write_bytes(whole)
    checkpoint = folder / "leader-epoch-checkpoint"
    entries = read_leader_epoch_checkpoint(checkpoint.read_bytes())
    for known, said in ((entries[:1], "it ends in leader epoch 0"), ([], "it has no leader epochs")):
        checkpoint.write_bytes(encode_leader_epoch_checkpoint(known))
        report, one = one_of(log_dirs, "plain")
        assert said in report.warnings[0]
        assert one.figures.local_only_bytes is None


def test_a_log_that_begins_after_its_end_was_not_copied_at_one_moment(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    checkpoint = folder_of(log_dirs, "plain-0").parent / "log-start-offset-checkpoint"
    starts = read_offset_checkpoint(checkpoint.read_bytes())
    for start, is_known in ((435, True), (436, False)):
        checkpoint.write_bytes(encode_offset_checkpoint(starts | {("plain", 0): start}))
        report, one = one_of(log_dirs, "plain")
        assert (one.figures.log_start_offset is not None) is is_known
        assert report.exit_code == (0 if is_known else 4)
    assert (
        "the log begins at 436, and ends at 435. Remedy: copy the log dir while its broker is down"
        in (report.warnings[0])
    )


def test_a_log_without_a_line_of_its_start_has_none_that_is_known(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    folder = folder_of(log_dirs, "plain-0")
    assert min(int(log.stem) for log in folder.glob("*.log")) > 0
    checkpoint = folder.parent / "log-start-offset-checkpoint"
    starts = read_offset_checkpoint(checkpoint.read_bytes())
    del starts["plain", 0]
    checkpoint.write_bytes(encode_offset_checkpoint(starts))
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.log_start_offset) == (4, None)
    assert "where the log begins is not known" in report.warnings[0]


def without(log_dirs: list[Path], name: str) -> None:
    for path in log_dirs:
        shutil.rmtree(path / name, ignore_errors=True)


def metadata_partition_of(archive: TieredArchive, topic: str, partition: int = 0) -> int:
    """Which partition of the metadata topic tells of *topic*."""
    _, one = one_of(list(archive.log_dirs), topic, partition)
    topic_id = read_uuid(one.topic_id)
    count = len({folder.name for path in archive.log_dirs for folder in path.glob(f"{TOPIC}-*")})
    return metadata_partition(RemotePartition(topic=topic, topic_id=topic_id, partition=partition), count)


def test_the_last_partition_of_the_metadata_topic_is_missed_too(
    archive: TieredArchive, tmp_path: Path
) -> None:
    count = len({folder.name for path in archive.log_dirs for folder in path.glob(f"{TOPIC}-*")})
    tiered = [
        (one.topic, one.partition)
        for one in measure_tiering(TieringOptions(metadata=tuple(map(str, archive.log_dirs)))).partitions
    ]
    told_by_last = [one for one in tiered if metadata_partition_of(archive, *one) == count - 1]
    assert told_by_last
    log_dirs = copied(archive, tmp_path)
    without(log_dirs, f"{TOPIC}-{count - 1}")
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs))))
    assert report.exit_code == 4
    found = {(one.topic, one.partition): one.figures for one in report.partitions}
    for owner in told_by_last:
        assert found[owner].remote_log_size_bytes is found[owner].copy_requests is None
    assert any(f"{TOPIC}-{count - 1}, which tells of them, was not found" in text for text in report.warnings)


def test_a_metadata_topic_that_is_older_than_the_log_hides_what_was_copied(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    number = metadata_partition_of(archive, "plain")
    for folder in (path / f"{TOPIC}-{number}" for path in log_dirs):
        if folder.is_dir():  # as it was before anything was copied
            forget_end(folder)
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / f"{0:020}.log").touch()
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.remote_log_size_bytes) == (4, None)
    assert any("they are older than the log, or not all were copied" in text for text in report.warnings)


def test_partitions_that_the_cluster_alone_knows_are_in_no_sum(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    number = metadata_partition_of(archive, "plain")
    without(log_dirs, "plain-0")
    without(log_dirs, f"{TOPIC}-{number}")
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs)), topics=("plain",)))
    assert report.exit_code == 4
    (absent,) = (one for one in report.partitions if one.partition == 0)
    assert absent.figures.log_end_offset is absent.figures.remote_log_size_bytes is None
    (plain,) = report.topics
    assert plain.figures.remote_log_size_bytes is plain.figures.local_only_bytes is None


def test_a_metadata_log_without_its_end_is_not_used(archive: TieredArchive, tmp_path: Path) -> None:
    log_dirs = copied(archive, tmp_path)
    folder = folder_of(log_dirs, "__cluster_metadata-0")
    (folder / f"{10**9:020}.snapshot").touch()
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.remote_delete_lag_bytes) == (4, None)
    assert any("the metadata log in it is not used. Remedy: " in text for text in report.warnings)


def test_without_a_metadata_log_tiered_logs_are_named_all_the_same(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    without(log_dirs, "__cluster_metadata-0")
    without(log_dirs, f"{TOPIC}-{metadata_partition_of(archive, 'plain')}")
    report, one = one_of(log_dirs, "plain")
    assert (report.exit_code, one.figures.remote_log_size_bytes) == (4, None)
    assert any("is not known without a metadata log" in text for text in report.warnings)


def test_log_dirs_of_two_clusters_are_refused(archive: TieredArchive, tmp_path: Path) -> None:
    log_dirs = copied(archive, tmp_path)
    properties = log_dirs[1] / "meta.properties"
    properties.write_text(re.sub("cluster.id=.*", "cluster.id=another", properties.read_text()))
    with pytest.raises(UsageError, match=r"is of cluster another\. Remedy: give the log dirs of one cluster"):
        measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs))))


def add_deleted_topic(log_dirs: list[Path], topic: str) -> tuple[UUID, int]:
    """Let the metadata topic have two finished segments of a topic of this name that is no more: id and bytes."""
    folder = folder_of(log_dirs, "__remote_log_metadata-0")
    (log,) = folder.glob("*.log")
    store = LocalStore(str(folder))
    opened = store.open(log.name)
    try:
        end_offset = (
            max(
                batch.last_offset
                for batch in read_batches(opened, lambda finding: pytest.fail(finding.detail))
            )
            + 1
        )
    finally:
        opened.close()
    owner = RemotePartition(topic=topic, topic_id=UUID(int=7 << 80), partition=0)
    made = SimulatedLog(rng=random.Random(1), epochs=[LeaderEpochEntry(0, 0)], end=100, owner=owner)
    made.copy(0, 9)
    made.copy(10, 19)
    values = [encode_remote_log_metadata(one) for one in made.records]
    with log.open("ab") as file:
        file.write(metadata_batch(values, end_offset))
    return owner.topic_id, sum(one.size_bytes for one in made.announced())


@pytest.mark.parametrize("knows_the_cluster", [True, False])
def test_what_is_left_of_a_deleted_topic_stands_beside_the_new_one_of_its_name(
    archive: TieredArchive, tmp_path: Path, *, knows_the_cluster: bool
) -> None:
    log_dirs = copied(archive, tmp_path)
    settings = {} if knows_the_cluster else {"plain": {"retention.ms": "-1", "remote.storage.enable": "true"}}
    options = TieringOptions(metadata=tuple(map(str, log_dirs)), topics=("plain",), topic_configs=settings)
    before = measure_tiering(options)
    topic_id, left_bytes = add_deleted_topic(log_dirs, "plain")
    if not knows_the_cluster:
        for path in log_dirs:
            shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
    report = measure_tiering(options)
    assert report.exit_code == 0
    deleted, alive = sorted(report.topics, key=lambda one: not one.is_deleted)
    assert (deleted.is_deleted, alive.is_deleted) == (True, False)
    assert deleted.topic_id == format_uuid(topic_id)
    assert deleted.figures.remote_log_size_bytes == left_bytes
    assert replace(alive.figures, remote_log_size_computation_time_ms=0) == replace(
        before.topics[0].figures, remote_log_size_computation_time_ms=0
    )
    (warning,) = report.warnings
    assert (
        f"plain-0: the topic with the id {format_uuid(topic_id)} was deleted, and 2 remote segments"
        in warning
    )
    samples = [
        line.partition(" ")[0] for line in metrics_text(report).decode().splitlines() if line[0] != "#"
    ]
    assert len(samples) == len(set(samples))
    size_bytes = alive.figures.remote_log_size_bytes
    assert f'remotelogsizebytes{{topic="plain"}} {size_bytes}.0' in metrics_text(report).decode()
    assert (
        f'remote_deleted_topic_log_size_bytes{{topic="plain",topic_id="{format_uuid(topic_id)}"}} {left_bytes}.0'
        in metrics_text(report).decode()
    )
    assert "plain-0: 2 remote segments, 1.95 KiB, left of a deleted topic" in report.to_text(1)
    assert "plain (1 partition): 2 remote segments, 1.95 KiB, left of a deleted topic" in report.to_text()
    assert report.to_text(-1) == f"WARNING: {warning}"
    beside = measure_tiering(replace(options, archive=str(archive.path)))
    gone_too = [one.figures.missing_segments for one in beside.partitions if one.is_deleted]
    assert gone_too == [2]
    assert "MISSING" not in beside.to_text()  # nobody reads them
    assert beside.exit_code == 0
    retention = foretell_retention(options)
    assert retention.exit_code == 0
    (gone,) = (one for one in retention.partitions if one.is_deleted)
    assert (gone.now, gone.never_deleted_bytes) == (None, left_bytes)
    assert "plain-0: the topic was deleted" in retention.to_text()


def test_replicas_on_brokers_that_are_not_given_are_told_of(
    archive: TieredArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dirs = copied(archive, tmp_path)
    let_be_in_sync(monkeypatch, 1, 7)
    files = [path / "meta.properties" for path in log_dirs]
    said = [file.read_text() for file in files]
    for texts, is_told in (
        ([text.replace("node.id=1", "node.id=7") for text in said], True),
        ([said[0].replace("node.id=1", "node.id=7"), said[1]], False),
        ([said[0].replace("node.id=1", "node.id=7"), ""], False),  # any broker's
    ):
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        report, one = one_of(log_dirs, "plain", 1)
        assert (report.exit_code, one.figures.copy_unfinished) == (0, 0)
        assert [text.partition(", and what")[0] for text in report.warnings] == [
            "plain-1: there are replicas on broker 1"
        ] * is_told


def let_be_in_sync(monkeypatch: pytest.MonkeyPatch, *node_ids: int) -> None:
    """Let the metadata log say that these brokers may lead each partition."""

    def read(log_dirs: Sequence[Store]) -> MetadataLog:
        log = read_metadata_log(log_dirs)
        parts = {
            key: replace(one, in_sync=node_ids, replicas=tuple(sorted({*one.replicas, *node_ids})))
            for key, one in log.assignments.of_partitions.items()
        }
        return replace(log, assignments=replace(log.assignments, of_partitions=parts))

    monkeypatch.setattr(cluster_view, "read_metadata_log", read)


def test_a_metadata_topic_that_has_lost_its_beginning_hides_what_it_said(
    archive: TieredArchive, tmp_path: Path
) -> None:
    log_dirs = copied(archive, tmp_path)
    for folder in (one for path in log_dirs for one in path.glob("__remote_log_metadata-*")):
        (log,) = folder.glob("*.log")
        data = log.read_bytes()
        first_bytes = 12 + int.from_bytes(data[8:12])
        if len(data) > first_bytes:
            log.write_bytes(data[first_bytes:])
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs))))
    assert report.exit_code == 4
    hidden = [one.figures for one in report.partitions if one.figures.remote_log_size_bytes is None]
    assert hidden
    assert all(one.copy_requests is one.local_only_bytes is None for one in hidden)
    assert any("missing-records: offsets 0 to " in text for text in report.warnings)


def test_misspelled_settings_are_refused_or_told(archive: TieredArchive, tmp_path: Path) -> None:
    for action in ("metrics", "retention"):
        for given, meant in (
            ("log.retenton.ms=1", "is log.retention.ms meant?"),
            ("log.retention.byte=1", "is log.retention.bytes meant?"),
            ("retention.bytes=1", "the broker's is log.retention.bytes"),
            ("log.retention.ms", "expected KEY=VALUE"),
        ):
            done = run("archive", action, "--metadata", dirs(archive), "--property", given)
            assert (done.exit_code, done.stdout) == (1, ""), given
            assert meant in done.stderr
    config = tmp_path / "server.properties"
    config.write_text("log.retenton.ms=1\nlog.retention.check.interval.ms=5\n")  # a broker passes over both
    done = run("archive", "metrics", "--metadata", dirs(archive), "-c", config, "--format", "json")
    (warning,) = done.report["warnings"]
    assert warning.startswith("log.retenton.ms is not a setting of a broker, and has no effect")
    given = json.dumps({"plan": {"retention.ms": 1}})
    done = run("archive", "metrics", "--metadata", dirs(archive), "--topic-config", given, "--format", "json")
    assert done.report["warnings"] == [
        "--topic-config: no log of plan lies in the log dirs, so its settings have no effect; is plain meant?"
    ]


def test_wrong_paths_and_names_are_refused_with_a_remedy(archive: TieredArchive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for action in ("metrics", "retention"):
        for log_dirs, arguments, said in (
            (
                f"{dirs(archive)},{tmp_path / 'none'}",
                (),
                "none: No such file or directory. Remedy: check the path",
            ),
            (str(tmp_path / "file"), (), "Remedy: give a folder"),
            (
                str(tmp_path),
                (),
                "no partition of __remote_log_metadata is in it. Remedy: give the log dirs of all",
            ),
            (
                dirs(archive),
                ("--topic", "plan"),
                "--topic plan: not found in .*topics with similar names: plain",
            ),
            (dirs(archive), ("--topic", "untiered"), "--topic untiered: not found"),
            (dirs(archive), ("--topic", "gone", "--topic", "plain"), "--topic gone: not found"),
            (dirs(archive), ("--partition", "plain-9"), "topic plain has partitions from 0 to 1"),
            (dirs(archive), ("--partition", "plain"), "--partition plain: expected TOPIC-N"),
            (
                dirs(archive),
                ("--topic", "plain", "--partition", "codecs-7"),
                "--partition codecs-7: not found",
            ),
        ):
            done = run("archive", action, "--metadata", log_dirs, *arguments)
            assert (done.exit_code, done.stdout) == (1, ""), (action, log_dirs, arguments)
            assert re.search(said, done.stderr), done.stderr


def test_wrong_use(archive: TieredArchive, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--metadata"):
        TieringOptions(metadata=())
    with pytest.raises(UsageError, match="no partition of __remote_log_metadata"):
        measure_tiering(TieringOptions(metadata=(str(tmp_path),)))
    with pytest.raises(UsageError, match="--topic nope: not found in the tiered logs of "):
        measure_tiering(TieringOptions(metadata=tuple(map(str, archive.log_dirs)), topics=("nope",)))
    assert run("archive", "metrics").exit_code == 1
