"""KAFKA-20732 on a 4.3.1 broker: what a start deletes without right, and that the remedy keeps it.

Whether a broker looks at retention before its first copy is a race within it. Where copying is disabled it never does:
there the outcome is certain.
"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from recovery.archive.tiering.deletion_table import DeletedSegment
from recovery.archive.tiering.retention_report import RetainedPartition
from recovery.archive.tiering.run import foretell_retention
from tests.brokers.broker import Broker
from tests.brokers.tiered_broker import (
    TieredArchive,
    set_while_down,
    tiered_broker,
    unpack_tiered,
    wait_until,
    wait_until_still,
)
from tests.kafka.test_tiering import LOST_RACE, deleted_of, options
from tests.runs.command import Done, run

pytestmark = [pytest.mark.broker]

TOPIC = "expired-by-size"
BY_SIZE = (TOPIC, "failing-delete", "lost-delete")
RETAINED_BYTES = 49_152
COPYING_DISABLED = {"local.retention.bytes": RETAINED_BYTES, "remote.log.copy.disable": True}


def retention(archive: TieredArchive, *arguments: str) -> Done:
    log_dirs = ",".join(map(str, archive.log_dirs))
    return run("archive", "retention", "--metadata", log_dirs, *arguments)


def foretold(archive: TieredArchive) -> dict[str, RetainedPartition]:
    """What is foretold of the topics of one partition that are kept by size."""
    report = foretell_retention(options(archive))
    return {one.topic: one for one in report.partitions if one.topic in BY_SIZE}


def local_bytes(archive: TieredArchive, topic: str) -> int:
    """Bytes of the local log of a topic's only partition."""
    return sum(log.stat().st_size for path in archive.log_dirs for log in path.glob(f"{topic}-0/*.log"))


def ids(segments: list[DeletedSegment]) -> set[UUID]:
    return {segment.segment_id for segment in segments}


def life(archive: TieredArchive, work_dir: Path) -> set[UUID]:
    """Start a broker and stop it once nothing changes; the segments of TOPIC that it has deleted."""
    before = deleted_of(archive, TOPIC, 0)
    with tiered_broker(archive, work_dir, {}) as broker:
        broker.start()
        wait_until_still(archive)
        broker.stop()
    return deleted_of(archive, TOPIC, 0) - before


def test_a_start_with_copying_disabled_loses_what_is_in_retention(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    set_while_down(archive, tmp_path / "controller", {TOPIC: COPYING_DISABLED})
    said = foretold(archive)[TOPIC]
    assert said.now is not None
    assert len(said.now.deletions) == 0
    assert len(said.in_retention) > 0
    assert "as long as copying is disabled" in retention(archive, "--topic", TOPIC).stdout.partition("\n")[0]
    assert life(archive, tmp_path / "work") == ids(list(said.in_retention))


def test_the_remedy_keeps_it(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    set_while_down(archive, tmp_path / "controller", {TOPIC: COPYING_DISABLED})
    raised = RETAINED_BYTES + local_bytes(archive, TOPIC)
    assert f"to {raised}" in retention(archive, "--topic", TOPIC).stdout.partition("\n")[0]
    set_while_down(
        archive,
        tmp_path / "controller",
        {TOPIC: {"retention.bytes": raised, "local.retention.bytes": raised}},
    )
    done = retention(archive, "--topic", TOPIC, "--format", "json")
    assert done.exit_code == 0
    assert done.report["partitions"][0]["atNextStart"]["inRetentionBytes"] == 0
    assert life(archive, tmp_path / "work") == set()


def test_the_remedy_keeps_all_where_the_race_is_lost_and_is_taken_back(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    without = foretold(archive)
    assert all(len(one.in_retention) for one in without.values())
    raised = {topic: RETAINED_BYTES + local_bytes(archive, topic) for topic in BY_SIZE}
    set_while_down(
        archive, tmp_path / "controller", {topic: {"retention.bytes": raised[topic]} for topic in BY_SIZE}
    )
    done = retention(archive, "--format", "json")
    assert done.exit_code == 0
    assert {one["atNextStart"]["inRetentionBytes"] for one in done.report["partitions"]} == {0}
    before = {topic: deleted_of(archive, topic, 0) for topic in BY_SIZE}
    with tiered_broker(archive, tmp_path / "work", LOST_RACE) as broker:
        broker.start()
        wait_until(lambda: all(knows_what_is_copied(broker, topic) for topic in BY_SIZE), broker)
        wait_until_still(archive)
        for topic in BY_SIZE:
            broker.run_tool(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", broker.bootstrap_servers, "--alter", "--entity-type", "topics"),
                *("--entity-name", topic, "--add-config", f"retention.bytes={RETAINED_BYTES}"),
            )
        wait_until_still(archive)
        broker.stop()
    for topic in BY_SIZE:
        now = without[topic].now
        assert now is not None
        gone = deleted_of(archive, topic, 0) - before[topic]
        assert gone <= ids(list(now.deletions)), topic
        assert not gone & ids(list(without[topic].in_retention)), topic
    assert json.loads(retention(archive, "--format", "json").stdout)["exitCode"] == 2  # of the next start


def knows_what_is_copied(broker: Broker, topic: str) -> bool:
    """Whether the broker's log has the line after which local segments no longer count twice."""
    return any(
        "Found the highest copiedRemoteOffset" in line and f":{topic}-0" in line
        for line in broker.log.splitlines()
    )
