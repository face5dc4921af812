"""Archives that two real brokers have made in turn: what one of them has archived the other may have archived, too."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.records.read_options import ReadOptions
from segfmt.checkpoint import read_leader_epoch_checkpoint
from tests.brokers.leader_changes import CLEAN, UNCLEAN, make_leader_changes
from tests.brokers.tiered_broker import TieredArchive
from tests.runs.goings import bad_objects, gone_through, objects_of
from tests.runs.readings import checksum, of_partition, read

pytestmark = pytest.mark.broker

_RECORD = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "leader_epoch")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return make_leader_changes(tmp_path_factory.mktemp("two-leaders") / "archive")


def test_what_two_leaders_have_archived_is_sound(archive: TieredArchive) -> None:
    """Each history is followed by itself; offsets that both have are an overlap, and no damage."""
    leaders = Counter(
        (segment["topic"], segment["broker_id"]) for segment in archive.expected["segments"].values()
    )
    assert min(leaders[topic, node] for topic in (CLEAN, UNCLEAN) for node in (2, 3)) > 2
    for metadata in ((), archive.log_dirs):
        verdicts = gone_through(archive.path, metadata=metadata, is_deep=True)
        assert bad_objects(verdicts) == {}
        rules = Counter(found.rule for one in objects_of(verdicts).values() for found in one.verdict.findings)
        assert rules["overlap"] > 0
        assert rules["sequence-gap"] == rules["producer-epoch"] == 0
        assert rules["outside-lineage"] == 0 if not metadata else rules["outside-lineage"] > 2
        chains = {verdict.head.where.topic: verdict.chain_count for verdict in verdicts}
        assert chains[UNCLEAN] > 1
        assert bad_objects(gone_through(archive.path, metadata=metadata, is_logs_only=True)) == {}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records_are_those_of_the_last_leader(archive: TieredArchive, isolation: str, tmp_path: Path) -> None:
    """To the byte what a consumer reads of what is tiered, but for what was cut off; whichever log dir comes first."""
    options = ReadOptions(is_committed=isolation == "read_committed")
    for log_dirs in (archive.log_dirs, archive.log_dirs[::-1]):
        rows = read(archive.path, *_RECORD, options=options, metadata=log_dirs)
        for topic in (CLEAN, UNCLEAN):
            own = of_partition(rows, f"{topic}-0")
            expected = archive.expected["partitions"][f"{topic}-0"][isolation]["tiered"]
            assert len(own) == expected["records"] > 1000, topic
            cut_off = _cut_off_and_served(archive, topic, tmp_path)
            assert bool(cut_off) == (topic == UNCLEAN)
            assert checksum([cut_off.get(row["offset"], row) for row in own]) == expected["crc32c"], topic
            assert all(row["leader_epoch"] == _epoch_at(archive, topic, row["offset"]) for row in own), topic


def _cut_off_and_served(archive: TieredArchive, topic: str, into: Path) -> dict[int, dict[str, Any]]:
    """The records by offset that were cut off, and that a consumer gets who reads all of *topic*.

    A 4.3.1 broker looks for the newest segment that has the epoch of the offset it is asked for, and hands out what
    follows in it: also an end that was cut off when another leader took over without it.
    """
    segments = [one for one in archive.expected["segments"].items() if one[1]["topic"] == topic]
    last_offset = archive.expected["partitions"][f"{topic}-0"]["latest_tiered_offset"]
    served: dict[int, dict[str, Any]] = {}
    offset = 0
    while offset <= last_offset:
        epoch = str(_epoch_at(archive, topic, offset))
        starts = {
            one["leader_epochs"][epoch]: uuid for uuid, one in segments if epoch in one["leader_epochs"]
        }
        uuid = starts[max(start for start in starts if start <= offset)]
        for path in archive.path.rglob(f"*-{uuid}.*"):
            copy = into / uuid / path.relative_to(archive.path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        served |= {row["offset"]: row for row in read(into / uuid, *_RECORD) if row["offset"] >= offset}
        offset = archive.expected["segments"][uuid]["end_offset"] + 1
    return {
        offset: row
        for offset, row in served.items()
        if row["leader_epoch"] != _epoch_at(archive, topic, offset)
    }


def _epoch_at(archive: TieredArchive, topic: str, offset: int) -> int:
    """The epoch of the record at *offset* in the history of the last leader, broker 3."""
    checkpoint = archive.log_dirs[1] / f"{topic}-0/leader-epoch-checkpoint"
    entries = read_leader_epoch_checkpoint(checkpoint.read_bytes())
    return max(entry.epoch for entry in entries if entry.start_offset <= offset)
