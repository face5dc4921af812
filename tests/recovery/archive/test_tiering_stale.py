"""`archive metrics` and `archive retention` by log dirs that are not up to date: nothing old passes as known."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.prometheus import metrics_text
from recovery.archive.tiering.report import TieringReport
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from segfmt.metadata_log import read_metadata_log
from segfmt.metadata_record import TopicRecord
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.recovery.archive.test_tiering import folder_of, let_be_in_sync


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return unpack_tiered(tmp_path)


def options_of(archive: TieredArchive, *more: Path, **options: object) -> TieringOptions:
    metadata = tuple(map(str, (*more, *archive.log_dirs)))
    return TieringOptions(metadata=metadata, topics=("plain",), **options)  # type: ignore[arg-type]  # by name


def measured(archive: TieredArchive) -> TieringReport:
    return measure_tiering(options_of(archive))


def cut_before_topic(folder: Path, name: str) -> None:
    """Let a metadata log end before a topic is created, as a copy that was made earlier does."""
    (log,) = folder.glob("*.log")
    data, position = log.read_bytes(), 0
    while True:
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        records = [
            record
            for batch in read_metadata_log(data[position:end]).batches
            for record in batch.records
            if isinstance(record, TopicRecord)
        ]
        if any(record.name == name for record in records):
            break
        position = end
    log.write_bytes(data[:position])
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot") or path.name == "leader-epoch-checkpoint":
            path.unlink()


@pytest.mark.parametrize("has_replica", [True, False])
def test_a_topic_that_is_newer_than_the_metadata_log_is_not_called_deleted(
    archive: TieredArchive, *, has_replica: bool
) -> None:
    """Whoever believes it deletes the only copy of the data."""
    (topic,) = measured(archive).topics
    cut_before_topic(folder_of(archive.log_dirs, "__cluster_metadata-0"), "plain")
    if not has_replica:
        for path in archive.log_dirs:
            for folder in path.glob("plain-?"):
                shutil.rmtree(folder)
    report = measured(archive)
    assert report.exit_code == 4
    (found,) = report.topics
    assert (found.topic_id, found.is_deleted) == (topic.topic_id, False)
    assert found.figures.remote_log_size_bytes == topic.figures.remote_log_size_bytes
    assert found.figures.remote_delete_lag_bytes is None
    text = report.to_text()
    assert re.search(
        r"its topic: the metadata log ends at \S+Z, and the first of it was copied at \S+Z", text
    )
    assert "was deleted" not in text
    assert "by hand" not in text
    assert "deleted_topic" not in metrics_text(report).decode()
    retention = foretell_retention(options_of(archive))
    assert retention.exit_code == 4
    assert [one.is_deleted for one in retention.partitions] == [False, False]
    assert "the topic was deleted" not in retention.to_text()


def test_settings_that_are_given_do_not_tell_that_a_topic_is_there(
    archive: TieredArchive,
) -> None:
    cut_before_topic(folder_of(archive.log_dirs, "__cluster_metadata-0"), "plain")
    given = {"plain": {"remote.storage.enable": "true", "retention.bytes": "1"}}
    report = measure_tiering(options_of(archive, topic_configs=given))
    assert report.exit_code == 4
    assert "its topic: the metadata log ends at " in report.to_text()


def test_a_broker_that_is_out_of_sync_tells_nothing(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_be_in_sync(monkeypatch, 7)
    report = measured(archive)
    assert report.exit_code == 4
    for one in report.partitions:
        assert one.figures.log_end_offset is None
        assert one.figures.remote_log_size_bytes is None
    folder = folder_of(archive.log_dirs, "plain-0")
    assert (
        f"{folder}: broker 1 is not in sync, by the metadata log; in sync: 7. Remedy: give"
        in report.to_text()
    )
    assert foretell_retention(options_of(archive)).exit_code == 4
    let_be_in_sync(monkeypatch, 1, 7)
    assert measured(archive).exit_code == 0


def test_one_replica_that_may_lead_is_enough(archive: TieredArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    before = measured(archive)
    other = archive.log_dirs[0].with_name("other")
    for path in archive.log_dirs:
        shutil.copytree(path, other, dirs_exist_ok=True)
    properties = other / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    let_be_in_sync(monkeypatch, 1)
    report = measure_tiering(options_of(archive, other))
    assert report.exit_code == 0
    assert [one.figures.log_end_offset for one in report.partitions] == [
        one.figures.log_end_offset for one in before.partitions
    ]


@pytest.mark.parametrize("name", ["plain-0", "__cluster_metadata-0"])
def test_entries_that_a_truncation_has_left_in_an_index_are_no_lost_end(
    archive: TieredArchive, name: str
) -> None:
    """A follower that has truncated its log goes on with the index as it was, and zeroes nothing in it."""
    before = measured(archive)
    folder = folder_of(archive.log_dirs, name)
    index, log = max(folder.glob("*.index")), max(folder.glob("*.log"))
    entry = struct.pack(">ii", 1_000_000, log.stat().st_size + 5000)
    index.write_bytes(index.read_bytes() + entry + bytes(4096))
    report = measured(archive)
    assert (report.exit_code, report.warnings) == (before.exit_code, before.warnings)
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:20])  # cut off in the middle of what was behind it
    assert measured(archive).exit_code == 4


def test_a_log_that_is_not_tiered_any_more_begins_with_its_first_segment(archive: TieredArchive) -> None:
    """Its broker writes no line for it. Kafka: LogManager.checkpointLogStartOffsetsInDir."""
    for path in archive.log_dirs:
        checkpoint = path / LOG_START_OFFSET_CHECKPOINT
        lines = read_offset_checkpoint(checkpoint.read_bytes())
        left = {key: offset for key, offset in lines.items() if key[0] != "plain"}
        checkpoint.write_bytes(encode_offset_checkpoint(left))
    assert measured(archive).exit_code == 4
    options = options_of(archive, topic_configs={"plain": {"remote.storage.enable": "false"}})
    report = measure_tiering(options)
    assert report.exit_code == 0
    for one in report.partitions:
        segments = folder_of(archive.log_dirs, f"plain-{one.partition}").glob("*.log")
        assert one.figures.log_start_offset == min(int(log.stem) for log in segments) > 0
    assert "its log begins at" not in report.to_text()
    assert foretell_retention(options).exit_code == 0


def test_settings_are_known_where_deletions_are_not(archive: TieredArchive) -> None:
    shutil.rmtree(folder_of(archive.log_dirs, "__remote_log_metadata-0"))
    options = TieringOptions(
        metadata=tuple(map(str, archive.log_dirs)), topic_configs={"plain": {"retention.bytes": "123456"}}
    )
    report = foretell_retention(options)
    assert report.exit_code == 4
    unknown = [one for one in report.partitions if one.now is None and not one.is_deleted]
    assert unknown
    for one in unknown:
        assert one.retention is not None
        assert one.is_copy_disabled is not None
        assert one.log_start_offset is not None
    assert {
        one.retention.size_bytes for one in report.partitions if one.topic == "plain" if one.retention
    } == {123456}


def test_what_needs_no_saving_keeps_its_setting(archive: TieredArchive) -> None:
    """Whoever raises `retention.bytes` to what saves all comes to an end."""
    size_bytes = 1
    for _ in range(2):
        options = options_of(archive, topic_configs={"plain": {"retention.bytes": str(size_bytes)}})
        report = foretell_retention(options)
        size_bytes = max(one.safe_retention_bytes or 0 for one in report.partitions)
    options = options_of(archive, topic_configs={"plain": {"retention.bytes": str(size_bytes)}})
    report = foretell_retention(options)
    assert report.exit_code == 0
    assert {one.safe_retention_bytes for one in report.partitions} == {size_bytes}
