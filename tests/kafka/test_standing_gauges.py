"""Gauges of remote storage that stand still or are wrong while a store fails, and our figures, which follow.

The truth is taken from files: what of the local log lies whole in the store, and what of the store is before the log's
start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from recovery.archive.tiering.figures import TieringFigures
from recovery.archive.tiering.run import measure_tiering
from segfmt.checkpoint import read_offset_checkpoint
from tests.brokers.agents import jolokia_agent
from tests.brokers.broker import NEVER_FENCED, Broker
from tests.brokers.tiered_broker import (
    TieredArchive,
    tiered_broker,
    unpack_tiered,
    wait_until,
    wait_until_still,
)
from tests.kafka.test_tiering import gauges_of, options

pytestmark = [pytest.mark.broker]

FAILING_COPY, STUCK_COPY, FAILING_DELETE, SOUND = "plain", "codecs", "failing-delete", "expired-by-time"
LOST_DELETE = "lost-delete"
FAILED_COPY = f"copies of {FAILING_COPY} are to fail"
OBJECTS = 5
"""At least, of a whole segment."""


class Size(NamedTuple):
    segments: int
    size_bytes: int


@dataclass(frozen=True)
class Figures:
    """One topic's, at one moment: a broker's gauges, and ours."""

    gauges: Mapping[str, int]
    ours: TieringFigures

    @property
    def gauge_copy_lag(self) -> Size:
        return Size(self.gauges["RemoteCopyLagSegments"], self.gauges["RemoteCopyLagBytes"])

    @property
    def gauge_delete_lag(self) -> Size:
        return Size(self.gauges["RemoteDeleteLagSegments"], self.gauges["RemoteDeleteLagBytes"])

    @property
    def our_copy_lag(self) -> tuple[int | None, int | None]:
        return self.ours.remote_copy_lag_segments, self.ours.remote_copy_lag_bytes

    @property
    def our_delete_lag(self) -> tuple[int | None, int | None]:
        return self.ours.remote_delete_lag_segments, self.ours.remote_delete_lag_bytes


def figures(archive: TieredArchive, broker: Broker) -> dict[str, Figures]:
    gauges = gauges_of(broker)
    topics = measure_tiering(options(archive)).topics
    return {one.topic: Figures(gauges[one.topic], one.figures) for one in topics}


def in_store(archive: TieredArchive, folder: str) -> Iterator[Path]:
    """The logs of the segments of a partition that lie whole in the store."""
    files = [file for path in archive.path.glob(f"{folder}-*") for file in path.iterdir()]
    objects = Counter(file.name.partition(".")[0] for file in files)
    return (file for file in files if file.suffix == ".log" and objects[file.stem] >= OBJECTS)


def not_copied(archive: TieredArchive, topic: str) -> Size:
    """The closed local segments that do not lie whole in the store."""
    sizes = []
    for folder in (path for log_dir in archive.log_dirs for path in log_dir.glob(f"{topic}-[0-9]")):
        copied = {int(file.name[:20]) for file in in_store(archive, folder.name)}
        closed = sorted(folder.glob("*.log"))[:-1]
        sizes += [log.stat().st_size for log in closed if int(log.stem) not in copied]
    return Size(len(sizes), sum(sizes))


def before_the_start(archive: TieredArchive, topic: str) -> Size:
    """The segments in the store of a topic of one partition that end before the log's start."""
    starts: dict[tuple[str, int], int] = {}
    for log_dir in archive.log_dirs:
        starts |= read_offset_checkpoint((log_dir / "log-start-offset-checkpoint").read_bytes())
    said = archive.expected["segments"]
    sizes = [
        file.stat().st_size
        for file in in_store(archive, f"{topic}-0")
        if (segment := said.get(file.stem[21:])) and segment["end_offset"] < starts[topic, 0]
    ]
    return Size(len(sizes), sum(sizes))


def store_bytes(archive: TieredArchive, topic: str) -> int:
    """Bytes of a topic's logs in the store."""
    return sum(file.stat().st_size for file in in_store(archive, f"{topic}-[0-9]"))


def is_copied_in_part(archive: TieredArchive, topic: str) -> bool:
    """Whether a segment of a topic lies in the store without some of its objects."""
    files = [file for path in archive.path.glob(f"{topic}-[0-9]-*") for file in path.iterdir()]
    return any(count < OBJECTS for count in Counter(file.name.partition(".")[0] for file in files).values())


def produce(broker: Broker, topic: str) -> None:
    """Write enough for some segments; a broker refuses batches longer than a segment, as a busy producer sends them."""
    printed = broker.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--num-records", "300", "--record-size", "400", "--throughput", "-1"),
        *("--command-property", "batch.size=4000"),
    )
    assert "300 records sent" in printed, printed


def test_a_store_that_fails_hangs_or_does_not_delete(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    faults = {"rsm.config.failing.copy.topic": FAILING_COPY, "rsm.config.stuck.copy.topic": STUCK_COPY}
    with tiered_broker(archive, tmp_path / "work", faults, java_agents=[jolokia_agent()]) as broker:
        broker.start()
        wait_until_still(archive)
        produce(broker, STUCK_COPY)
        wait_until(lambda: is_copied_in_part(archive, STUCK_COPY), broker)
        before = store_bytes(archive, SOUND)
        produce(broker, SOUND)  # once that is copied, a copy of any other topic would have had its turn again
        wait_until(lambda: store_bytes(archive, SOUND) > before, broker)
        produce(broker, FAILING_COPY)
        wait_until(lambda: broker.log.count(FAILED_COPY) > 2, broker)
        found = figures(archive, broker)
        topics = (STUCK_COPY, FAILING_COPY, FAILING_DELETE, SOUND, LOST_DELETE)
        stored_bytes = {topic: store_bytes(archive, topic) for topic in topics}  # before more is copied
        beside = replace(options(archive), archive=str(archive.path))
        there = {one.topic: one.figures for one in measure_tiering(beside).topics}

    for topic in topics:
        lies = there[topic]
        assert (lies.missing_segments, lies.incomplete_segments, lies.orphan_segments) == (0, 0, 0), topic
        assert bool(lies.undeleted_segments) is (topic == LOST_DELETE), topic
        assert lies.archived_log_bytes is not None
        assert lies.archived_log_bytes >= stored_bytes[topic]

    hanging = found[STUCK_COPY]
    assert hanging.our_copy_lag == not_copied(archive, STUCK_COPY) > (0, 0)
    assert hanging.gauge_copy_lag == (0, 0)

    failing = found[FAILING_COPY]  # a broker counts again after each attempt, also one that has failed
    assert failing.our_copy_lag == not_copied(archive, FAILING_COPY) > (0, 0)
    assert failing.gauge_copy_lag == failing.our_copy_lag

    undeleted = found[FAILING_DELETE]
    assert undeleted.our_delete_lag == before_the_start(archive, FAILING_DELETE)
    assert (0, 0) < undeleted.gauge_delete_lag < undeleted.our_delete_lag


def test_a_broker_that_seldom_looks(tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    # A leader anew looks at once.
    seldom = NEVER_FENCED | {"remote.log.manager.task.interval.ms": "3600000"}
    with tiered_broker(archive, tmp_path / "work", seldom, java_agents=[jolokia_agent()]) as broker:
        broker.start()
        wait_until_still(archive)
        at_first = figures(archive, broker)[FAILING_COPY]
        produce(broker, FAILING_COPY)
        broker.run_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--alter", "--entity-type", "topics"),
            *("--entity-name", FAILING_COPY, "--add-config", "retention.bytes=30000"),
        )
        found = figures(archive, broker)[FAILING_COPY]
    assert found.gauges == at_first.gauges
    assert found.our_copy_lag == not_copied(archive, FAILING_COPY) > found.gauge_copy_lag
    assert found.ours.remote_log_size_bytes == store_bytes(archive, FAILING_COPY)
    segments, size_bytes = found.our_delete_lag
    assert segments is not None
    assert size_bytes is not None
    assert (segments, size_bytes) > found.gauge_delete_lag
    assert size_bytes <= store_bytes(archive, FAILING_COPY)
