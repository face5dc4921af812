"""Tiered logs seen from outside, beside a broker: its gauges at rest, and what it deletes when it starts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from recovery.archive.remote.remote_metadata import read_remote_metadata
from recovery.archive.stores.stores import open_store
from recovery.archive.tiering.deletion_table import DeletedSegment
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.report import TieringReport
from recovery.archive.tiering.retention_report import RetentionReport
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from recovery.archive.tiering.survey import TieringSurvey
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from tests.brokers.agents import JOLOKIA_PORT, jolokia_agent
from tests.brokers.broker import Broker
from tests.brokers.tiered_broker import (
    TIERED_PROPERTIES,
    TieredArchive,
    tiered_broker,
    unpack_tiered,
    wait_until_still,
)
from tests.logs.samples import read_properties

pytestmark = [pytest.mark.broker]

GAUGES = {
    "RemoteCopyLagBytes": "remote_copy_lag_bytes",
    "RemoteCopyLagSegments": "remote_copy_lag_segments",
    "RemoteDeleteLagBytes": "remote_delete_lag_bytes",
    "RemoteDeleteLagSegments": "remote_delete_lag_segments",
    "RemoteLogSizeBytes": "remote_log_size_bytes",
    "RemoteLogMetadataCount": "remote_log_metadata_count",
}
FAILING = {"failing-delete"}
"""Where a deletion fails, so that a broker's figures are those of its last attempt."""
LOST_RACE = {
    "remote.log.manager.copier.thread.pool.size": "1",
    "remote.log.manager.expiration.thread.pool.size": "10",
}
"""One thread copies and many look at retention: they come before it has found out what is copied."""


def kept_across_the_first_epoch(archive: TieredArchive) -> dict[str, tuple[int, int]]:
    """Segments and bytes, by topic, that begin in an epoch before the log's first one and end in it or after it.

    A broker looks at them as at unreferenced ones: it counts them in its gauges as to be deleted, and keeps them.
    """
    found: dict[str, tuple[int, int]] = {}
    stores = [open_store(str(path)) for path in archive.log_dirs]
    with read_remote_metadata(stores) as metadata:
        for state in TieringSurvey(stores, metadata, options(archive)).partitions():
            assert state.cache is not None
            assert state.log is not None
            first = state.log.epochs[0].epoch if state.log.epochs else 0
            count, size_bytes = found.get(state.topic, (0, 0))
            for epoch in state.cache.leader_epochs:
                for segment in state.cache.listed(epoch) if epoch < first else ():
                    if segment.leader_epochs[-1].epoch >= first:
                        count, size_bytes = count + 1, size_bytes + segment.size_bytes
            found[state.topic] = count, size_bytes
    return found


def options(archive: TieredArchive) -> TieringOptions:
    properties = read_properties(TIERED_PROPERTIES.replace("@ROOT@", str(archive.root)))
    return TieringOptions(metadata=tuple(map(str, archive.log_dirs)), config=properties)


def gauges_of(broker: Broker) -> dict[str, dict[str, int]]:
    """The values of the broker's gauges, by topic."""
    found: dict[str, dict[str, int]] = {}
    for name in GAUGES:
        url = f"http://127.0.0.1:{JOLOKIA_PORT}/jolokia/read/kafka.server:type=BrokerTopicMetrics,name={name},topic=*"
        printed = subprocess.run(
            [*broker.inside, "curl", "-fsS", url], check=True, capture_output=True, text=True
        ).stdout
        answer: dict[str, Any] = json.loads(printed)["value"]
        for mbean, attributes in answer.items():
            topic = dict(pair.split("=") for pair in mbean.partition(":")[2].split(","))["topic"]
            found.setdefault(topic, {})[name] = attributes["Value"]
    return found


def ids(deletions: Iterable[DeletedSegment]) -> set[UUID]:
    return {segment.segment_id for segment in deletions}


def deleted_of(archive: TieredArchive, topic: str, partition: int) -> set[UUID]:
    """The segments of a partition that are deleted, or were begun to be."""
    stores = [open_store(str(path)) for path in archive.log_dirs]
    with read_remote_metadata(stores) as metadata:
        (owner,) = (one for one in metadata.partitions() if (one.topic, one.partition) == (topic, partition))
        return set(metadata.cache(owner.topic_id, partition).deleted)


Deleted = dict[tuple[str, int], set[UUID]]
LATE = ("lost-delete", 0)
"""Of which the log start was not written down before its broker was killed."""


def forget_log_start(archive: TieredArchive, topic: str, partition: int) -> None:
    """Let the log start of a partition be 0 by the checkpoint, as before its first segments were deleted."""
    for log_dir in archive.log_dirs:
        checkpoint = log_dir / "log-start-offset-checkpoint"
        starts = read_offset_checkpoint(checkpoint.read_bytes())
        if (topic, partition) in starts:
            checkpoint.write_bytes(encode_offset_checkpoint(starts | {(topic, partition): 0}))


@pytest.fixture(scope="module")
def lives(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[TieredArchive, RetentionReport, Deleted, TieringReport, dict[str, dict[str, int]], dict[str, int]]:
    """A broker on the sample, what was foretold before it started, and what is so once it is at rest."""
    root = tmp_path_factory.mktemp("tiering")
    archive = unpack_tiered(root)
    forget_log_start(archive, *LATE)
    foretold = foretell_retention(options(archive))
    before = {
        (one.topic, one.partition): deleted_of(archive, one.topic, one.partition)
        for one in foretold.partitions
        if one.topic != "empty"
    }
    with tiered_broker(archive, root / "work", LOST_RACE, java_agents=[jolokia_agent()]) as broker:
        broker.start()
        wait_until_still(archive)
        measured = measure_tiering(options(archive))
        gauges = gauges_of(broker)
        starts = broker.offsets(-2)
        broker.stop()
    return archive, foretold, before, measured, gauges, starts


def test_the_figures_are_a_brokers_at_rest(lives: Any) -> None:
    archive, _, _, measured, gauges, _ = lives
    kept = kept_across_the_first_epoch(archive)
    assert kept["deleted-records"] > (0, 0)
    compared = 0
    for topic in measured.topics:
        for name, ours in GAUGES.items():
            if topic.topic in FAILING and "Delete" in name:
                continue
            figure = getattr(topic.figures, ours)
            figure += {
                "RemoteDeleteLagSegments": kept[topic.topic][0],
                "RemoteDeleteLagBytes": kept[topic.topic][1],
            }.get(name, 0)
            assert figure == gauges[topic.topic][name], (topic.topic, name)
            compared += bool(gauges[topic.topic][name])
    assert compared > 10


def test_a_broker_that_starts_deletes_what_was_foretold(lives: Any) -> None:
    archive, foretold, before, _, _, starts = lives
    assert foretold.exit_code == 2
    compared = 0
    for partition in foretold.partitions:
        if partition.topic in FAILING or partition.topic == "empty":
            continue
        assert partition.now is not None
        assert partition.at_next_start is not None
        deleted = (
            deleted_of(archive, partition.topic, partition.partition)
            - before[partition.topic, partition.partition]
        )
        # Which of the two it is, is a race within the broker: mostly one topic or two lose what they should keep
        expected = [ids(partition.now.deletions), ids(partition.at_next_start.deletions)]
        assert deleted in expected, partition.topic
        told = {partition.now.log_start_offset, partition.at_next_start.log_start_offset}
        assert starts[f"{partition.topic}:{partition.partition}"] in told, partition.topic
        compared += len(deleted)
    assert compared
