"""Brokers of new clusters on what `archive restore` leaves: they read what the first ones gave, and change nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from segfmt.producer_snapshot import read_producer_snapshot
from tests.brokers.broker import Broker
from tests.brokers.tiered_broker import TieredArchive, tiered_broker, unpack_tiered
from tests.runs.command import run

pytestmark = [pytest.mark.java, pytest.mark.broker]

KEPT = (
    "codecs",
    "deleted-records",
    "expired-by-size",
    "failing-delete",
    "lost-delete",
    "plain",
    "stuck-copy",
)
TRANSACTIONAL = ("transactions",)
RESTORED = re.compile(
    r"LogLoader partition=(?!__cluster_metadata).*(Recovering unflushed segment|Could not find|Found a corrupted)"
)
UNLIMITED = ("retention.ms=-1", "retention.bytes=-1")
QUIET = {
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


def create(broker: Broker, topic: str, partitions: int, *settings: str) -> None:
    given = [word for setting in settings for word in ("--config", setting)]
    broker.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--create",
        "--topic",
        topic,
        "--partitions",
        str(partitions),
        *given,
    )


def restored(
    broker: Broker, archive: TieredArchive, *options: object, exit_code: int = 0
) -> Mapping[str, Any]:
    metadata = ",".join(map(str, archive.log_dirs))
    given = ("--metadata", metadata, "--format", "json", *options)
    done = run("archive", "restore", archive.path, "-c", broker.config, *given)
    assert done.exit_code == exit_code, done.stderr + done.stdout
    return json.loads(done.stdout)


def reads_of(broker: Broker) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Records, bytes and checksum, by isolation level and partition."""
    return {
        isolation: {name: (one.records, one.bytes, one.crc32c) for name, one in reads.items()}
        for isolation, reads in broker.read_all().items()
    }


def abort_open_transactions(broker: Broker, report: Mapping[str, Any]) -> set[str]:
    """Do what the warnings say of transactions that are open at the archive's end; return the partitions."""
    found = set()
    for partition in report["partitions"]:
        for warning in partition["warnings"]:
            for words in re.findall(r"kafka-transactions.sh (abort .*)", warning):
                tool = "org.apache.kafka.tools.TransactionsCommand"
                broker.run_tool(tool, "--bootstrap-server", broker.bootstrap_servers, *words.split())
                found.add(f"{partition['topic']}-{partition['partition']}")
    return found


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("restore"))


def test_a_new_cluster_reads_what_was_archived(archive: TieredArchive, tmp_path: Path) -> None:
    topics = [*KEPT, *TRANSACTIONAL]
    broker = Broker([tmp_path / "a", tmp_path / "b"], work_dir=tmp_path / "work", properties=QUIET)
    with broker:
        broker.format()
        broker.start()
        for topic in topics:
            create(broker, topic, 2 if topic in ("plain", "transactions") else 1, *UNLIMITED)
        broker.stop()
        chosen = [word for topic in topics for word in ("--topic", topic)]
        report = restored(broker, archive, *chosen)
        assert {one["status"] for one in report["partitions"]} == {"restored"}
        assert {one["leaderEpochs"] for one in report["partitions"]} == {"renumbered"}
        assert {one["logDir"] for one in report["partitions"]} == {str(tmp_path / "a"), str(tmp_path / "b")}

        broker.start()
        assert not RESTORED.search(broker.log)
        held_back = abort_open_transactions(broker, report)
        assert {name.rpartition("-")[0] for name in held_back} == set(TRANSACTIONAL)
        reads = reads_of(broker)
        compared = 0
        for partition in report["partitions"]:
            name = f"{partition['topic']}-{partition['partition']}"
            for isolation in ("read_uncommitted", "read_committed"):
                expected = archive.expected["partitions"][name][isolation]["tiered"]
                found = (expected["records"], expected["bytes"], expected["crc32c"])
                if isolation == "read_committed" and name in held_back:
                    # Some of these ended with a commit behind the archive's end
                    assert 0 <= found[0] - reads[isolation][name][0] < 20, name
                else:
                    assert reads[isolation][name] == found, (name, isolation)
                compared += 1
        assert compared == 2 * len(report["partitions"])
        broker.stop()
        before = broker.log
        broker.start()
        assert not RESTORED.search(broker.log.removeprefix(before))
        assert reads_of(broker) == reads


def test_the_rest_is_served_from_remote_storage(tmp_path: Path) -> None:
    """The disk with a partition is gone: its broker serves what is archived, and takes new records behind it."""
    archive = unpack_tiered(tmp_path)
    lost = {"plain-0": "d1", "codecs-0": "d2", "transactions-1": "d2", "deleted-records-0": "d1"}
    for name, log_dir in lost.items():
        shutil.rmtree(archive.root / log_dir / name)
    chosen = [word for name in lost for word in ("--partition", name)]
    with tiered_broker(archive, tmp_path / "work", {}) as broker:
        report = restored(broker, archive, "--aux", *chosen)
        assert {one["status"] for one in report["partitions"]} == {"restored"}
        assert {one["mode"] for one in report["partitions"]} == {"aux"}
        broker.start()
        assert not RESTORED.search(broker.log)
        reads = broker.read_all()["read_uncommitted"]
        for name in lost:
            expected = archive.expected["partitions"][name]
            found = reads[name]
            assert found.beginning_offset == expected["earliest_offset"]
            assert found.end_offset == expected["latest_tiered_offset"] + 1
            tiered = expected["read_uncommitted"]["tiered"]
            assert (found.records, found.bytes, found.crc32c) == (
                tiered["records"],
                tiered["bytes"],
                tiered["crc32c"],
            ), name
        broker.run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "codecs", "--num-records", "500"),
            *("--record-size", "100", "--throughput", "-1", "--command-property", "batch.size=0"),
        )
        after = broker.read_all()["read_uncommitted"]
        assert after["codecs-0"].records == reads["codecs-0"].records + 500
        broker.stop()
        before = broker.log
        broker.start()
        assert not RESTORED.search(broker.log.removeprefix(before))
        assert broker.read_all()["read_uncommitted"]["codecs-0"] == after["codecs-0"]
        producers = {
            path.parent.name: read_producer_snapshot(path.read_bytes())["producer_id"].tolist()
            for name, log_dir in lost.items()
            for path in [max((archive.root / log_dir / name).glob("*.snapshot"))]
        }
        assert all(producers.values()), producers
