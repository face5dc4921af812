"""Archives that two real brokers have made in turn: what one of them has archived the other may have archived, too."""

from __future__ import annotations

from collections import Counter

import pytest

from recovery.archive.records.read_request import ReadOptions
from tests.brokers.leader_changes import CLEAN, UNCLEAN, make_leader_changes
from tests.brokers.tiered_broker import TieredArchive
from tests.runs.goings import bad_objects, gone_through, objects_of
from tests.runs.readings import checksum, of_partition, read

pytestmark = pytest.mark.broker


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
def test_records_are_those_of_the_last_leader(archive: TieredArchive, isolation: str) -> None:
    """To the byte what a consumer reads of what is tiered, whichever log dir is named first."""
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    options = ReadOptions(is_committed=isolation == "read_committed")
    for log_dirs in (archive.log_dirs, archive.log_dirs[::-1]):
        rows = read(archive.path, *names, options=options, metadata=log_dirs)
        for topic in (CLEAN, UNCLEAN):
            own = of_partition(rows, f"{topic}-0")
            expected = archive.expected["partitions"][f"{topic}-0"][isolation]["tiered"]
            assert len(own) == expected["records"] > 1000, topic
            assert checksum(own) == expected["crc32c"], topic
