"""`archive metrics` and `archive retention` for topics that are not tiered any more, or not there any more."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.archive.remote.log_ends import read_log_end
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.prometheus import metrics_text
from recovery.archive.tiering.retention_report import RetainedPartition
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.metadata_record import ConfigRecord, RemoveTopicRecord
from segfmt.partition_metadata import read_partition_metadata
from segfmt.remote_log_metadata import (
    TOPIC,
    RemotePartition,
    RemoteSegmentState,
    encode_remote_log_metadata,
    metadata_partition,
)
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.logs.metadata_topic import metadata_batch
from tests.logs.remote_logs import SimulatedLog
from tests.recovery.archive.test_tiering import add_deleted_topic
from tests.recovery.broker.test_config_metadata import batch, config


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return unpack_tiered(tmp_path)


def options_for(archive: TieredArchive, *more: Path, **configs: dict[str, str]) -> TieringOptions:
    metadata = tuple(map(str, (*archive.log_dirs, *more)))
    return TieringOptions(metadata=metadata, topics=("plain",), topic_configs=configs)


def samples_of(text: bytes, label: str) -> list[str]:
    return [line for line in text.decode().splitlines() if label in line and "computation" not in line]


def test_no_broker_deletes_or_copies_anything_of_a_topic_whose_remote_storage_is_disabled(
    archive: TieredArchive,
) -> None:
    options = options_for(archive, plain={"remote.storage.enable": "false", "retention.ms": "1"})
    report = measure_tiering(options)
    assert report.exit_code == 0
    local_bytes = sum(
        log.stat().st_size for path in archive.log_dirs for log in path.glob("plain-[01]/*.log")
    )
    (plain,) = report.topics
    held = measure_tiering(options_for(archive)).topics[0].figures.remote_log_size_bytes
    assert plain.figures.remote_log_size_bytes == held
    assert plain.figures.copy_disabled is True
    assert plain.figures.local_only_bytes == local_bytes
    assert plain.figures.remote_copy_lag_bytes == plain.figures.remote_delete_lag_bytes == 0
    assert plain.figures.lineage_size_bytes == 0
    assert [one.figures.highest_copied_offset for one in report.partitions] == [-1, -1]
    assert len(report.warnings) == 2
    assert report.warnings[0].startswith(
        "plain-0: remote storage is disabled for the topic, and 14 remote segments of it, 158 KiB, are left; but its "
        "log begins at 0, in remote storage: they are a part of it if that setting is not what brokers have. Remedy: "
    )
    retention = foretell_retention(options)
    assert retention.exit_code == 0
    for one in retention.partitions:
        assert one.now is not None
        assert (len(one.now.deletions), len(one.in_retention)) == (0, 0)
    assert sum(one.never_deleted_bytes or 0 for one in retention.partitions) == held
    for path in archive.log_dirs:  # as brokers do once it is disabled
        (path / LOG_START_OFFSET_CHECKPOINT).write_text("0\n2\nplain 0 377\nplain 1 403\n")
    assert ", are left. Remedy: " in measure_tiering(options).warnings[0]


def test_a_topic_of_which_nothing_is_left_in_remote_storage_is_none_that_is_tiered(
    archive: TieredArchive,
) -> None:
    (folder,) = (path / "untiered-0" for path in archive.log_dirs if (path / "untiered-0").is_dir())
    topic_id = read_partition_metadata((folder / "partition.metadata").read_bytes()).topic_id
    owner = RemotePartition(topic="untiered", topic_id=topic_id, partition=0)
    made = SimulatedLog(rng=random.Random(1), end=10, owner=owner)
    segment = made.copy(0, 9)
    for states, is_there in (
        ([], True),
        ([RemoteSegmentState.DELETE_SEGMENT_STARTED, RemoteSegmentState.DELETE_SEGMENT_FINISHED], False),
    ):
        for state in states:
            made.update(segment, state)
        append_records(archive, owner, made)
        made.records.clear()
        options = TieringOptions(metadata=tuple(map(str, archive.log_dirs)))
        assert ("untiered" in {one.topic for one in measure_tiering(options).partitions}) is is_there
        assert ("untiered" in {one.topic for one in foretell_retention(options).partitions}) is is_there


def append_records(archive: TieredArchive, owner: RemotePartition, made: SimulatedLog) -> None:
    """Add what *made* says to the partition of the metadata topic that tells of *owner*."""
    folders = {folder.name: folder for path in archive.log_dirs for folder in path.glob(f"{TOPIC}-*")}
    (log,) = folders[f"{TOPIC}-{metadata_partition(owner, len(folders))}"].glob("*.log")
    end_offset = read_log_end(LocalStore(str(log.parent)), LocalStore(str(log.parent)).list_level("").objects)
    with log.open("ab") as file:
        file.write(metadata_batch([encode_remote_log_metadata(one) for one in made.records], end_offset))


def test_a_stale_replica_of_a_deleted_topic_does_not_stand_for_the_one_of_its_name(
    archive: TieredArchive,
) -> None:
    before = metrics_text(measure_tiering(options_for(archive)))
    topic_id, left_bytes = add_deleted_topic(list(archive.log_dirs), "plain")
    stale = archive.log_dirs[0].with_name("stale")
    (folder,) = (path / "plain-0" for path in archive.log_dirs if (path / "plain-0").is_dir())
    shutil.copytree(folder, stale / "plain-0")
    properties = (folder.parent / "meta.properties").read_text()
    (stale / "meta.properties").write_text(properties.replace("node.id=1", "node.id=2"))
    (stale / "plain-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(topic_id)}\n")
    report = measure_tiering(options_for(archive, stale))
    assert report.exit_code == 0
    (deleted,) = (one for one in report.partitions if one.is_deleted)
    assert (deleted.topic_id, deleted.figures.log_end_offset) == (format_uuid(topic_id), None)
    assert deleted.figures.remote_log_size_bytes == left_bytes
    (warning,) = report.warnings
    assert (
        f"plain-0: the topic with the id {format_uuid(topic_id)} was deleted, and 2 remote segments"
        in warning
    )
    assert f"{stale}/plain-0" in warning
    after = metrics_text(report)
    assert samples_of(after, '{topic="plain"}') == samples_of(before, '{topic="plain"}')
    assert samples_of(after, ',topic="plain"}') == samples_of(before, ',topic="plain"}')
    (gone,) = (one for one in foretell_retention(options_for(archive, stale)).partitions if one.is_deleted)
    assert gone.never_deleted_bytes == left_bytes


def test_a_setting_of_one_broker_holds_for_the_replicas_in_its_log_dirs(archive: TieredArchive) -> None:
    """Whatever node the properties file is of: that of another broker gives the defaults all the same."""
    assert sum(one.now is not None and len(one.now.deletions) for one in retained_of(archive)) == 0
    append_to_metadata_log(archive, config("1", "log.retention.bytes", "1", resource_type=4))
    for node_id in (None, "1", "2"):
        given = {} if node_id is None else {"node.id": node_id}
        found = retained_of(archive, given)
        assert [one.retention.size_bytes for one in found if one.retention] == [1, 1], node_id
        assert all(one.now is not None and len(one.now.deletions) for one in found)


def test_what_an_earlier_controller_has_not_committed_says_nothing(archive: TieredArchive) -> None:
    folder = metadata_log_of(archive)
    other = archive.log_dirs[0].with_name("other")
    shutil.copytree(folder, other / folder.name)
    shutil.copy(folder.parent / "meta.properties", other)
    last = read_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())[-1]
    later = LeaderEpochEntry(last.epoch + 1, last.start_offset + 1)
    (other / folder.name / "leader-epoch-checkpoint").write_bytes(
        encode_leader_epoch_checkpoint([last, later])
    )
    topic_id = read_uuid(measure_tiering(options_for(archive)).topics[0].topic_id)
    append_to_metadata_log(archive, RemoveTopicRecord(topic_id=topic_id))
    assert [one.is_deleted for one in measure_tiering(options_for(archive)).topics] == [True]
    assert [one.is_deleted for one in measure_tiering(options_for(archive, other)).topics] == [False]


def metadata_log_of(archive: TieredArchive) -> Path:
    (folder,) = (path for log_dir in archive.log_dirs for path in log_dir.glob("__cluster_metadata-0"))
    return folder


def append_to_metadata_log(archive: TieredArchive, record: ConfigRecord | RemoveTopicRecord) -> None:
    folder = metadata_log_of(archive)
    store = LocalStore(str(folder))
    end_offset = read_log_end(store, store.list_level("").objects)
    with max(folder.glob("*.log")).open("ab") as file:
        file.write(batch([record], end_offset))


def retained_of(
    archive: TieredArchive, config: dict[str, str] | None = None
) -> tuple[RetainedPartition, ...]:
    return foretell_retention(replace(options_for(archive), config=config or {})).partitions
