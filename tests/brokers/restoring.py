"""New clusters that archived partitions are restored to: topics, the command, and what consumers then read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.brokers.broker import Broker, TopicReads
from tests.brokers.jars import oracle_classes
from tests.brokers.tiered_broker import TieredArchive
from tests.runs.command import RECOVERY, run

RECOVERED = re.compile(
    r"LogLoader partition=(?!__cluster_metadata).*(Recovering unflushed segment|Could not find|Found a corrupted)"
)
"""A broker that says so finds something to do in a log."""
UNLIMITED = ("retention.ms=-1", "retention.bytes=-1")
QUIET = {
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
LEVELS = ("read_uncommitted", "read_committed")
Counts = tuple[int, int, int]
"""Records, bytes, checksum."""


def create(broker: Broker, topic: str, partitions: int, *settings: str) -> None:
    """Create a topic, with settings `name=value`."""
    given = [word for setting in settings for word in ("--config", setting)]
    ask(broker, "TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions), *given)


def ask(broker: Broker, tool: str, *arguments: str) -> str:
    """Run one of Kafka's tools against a broker; what it printed."""
    given = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
    return broker.run_tool(f"org.apache.kafka.tools.{tool}", *given)


def restored(
    broker: Broker,
    archive: Path,
    *options: object,
    metadata: Sequence[Path] = (),
    exit_code: int = 0,
    command: Sequence[str] = RECOVERY,
) -> Mapping[str, Any]:
    """Restore into the log dirs of a stopped broker; the report."""
    given = ("--metadata", ",".join(map(str, metadata))) if metadata else ()
    done = run(
        "archive", "restore", archive, "-c", broker.config, *given, "--format", "json", *map(str, options),
        command=command,
    )  # fmt: skip
    assert done.exit_code == exit_code, done.stderr + done.stdout
    return json.loads(done.stdout)


def reads_of(broker: Broker) -> dict[str, dict[str, Counts]]:
    """What a consumer reads, by isolation level and partition."""
    return {
        isolation: {name: counts_of(one) for name, one in reads.items()}
        for isolation, reads in broker.read_all().items()
    }


def counts_of(one: TopicReads) -> Counts:
    """The records of a partition as one value."""
    return one.records, one.bytes, one.crc32c


def archived(archive: TieredArchive, name: str, isolation: str) -> Counts:
    """What the first broker's consumer read of what is archived of a partition."""
    found = archive.expected["partitions"][name][isolation]["tiered"]
    return found["records"], found["bytes"], found["crc32c"]


def statuses(report: Mapping[str, Any]) -> dict[str, str]:
    """What became of each partition, by name."""
    return {f"{one['topic']}-{one['partition']}": one["status"] for one in report["partitions"]}


def abort_open_transactions(broker: Broker, report: Mapping[str, Any]) -> set[str]:
    """Do what the warnings say of transactions that are open at the archive's end; return the partitions."""
    found = set()
    for partition in report["partitions"]:
        for warning in partition["warnings"]:
            for words in re.findall(
                r"kafka-transactions.sh --bootstrap-server HOST:PORT (abort .*)", warning
            ):
                ask(broker, "TransactionsCommand", *words.split())
                found.add(f"{partition['topic']}-{partition['partition']}")
    return found


def times_of(broker: Broker, timestamps_ms: Sequence[int]) -> dict[str, list[list[int] | None]]:
    """Offset and timestamp of the first record from each of *timestamps_ms* on, by partition."""
    printed = broker.run_tool(
        "TimeOffsets", broker.bootstrap_servers, *map(str, timestamps_ms), after=[oracle_classes()]
    )
    found: dict[str, list[list[int] | None]] = json.loads(printed.splitlines()[-1])
    return found


def create_all(broker: Broker, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Create topics, with their numbers of partitions and settings."""
    given = {
        name: {"partitions": count, "configs": dict(configs)} for name, (count, configs) in topics.items()
    }
    broker.run_tool("NewTopics", broker.bootstrap_servers, json.dumps(given), after=[oracle_classes()])
