"""A broker's log dirs, copied by `archive copy` and restored to a new cluster, with groups and transactional ids."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segfmt.producer_snapshot import read_producer_snapshot
from tests.brokers.broker import QUIET_PROPERTIES, Broker
from tests.brokers.jars import KAFKA_VERSION
from tests.brokers.restoring import (
    QUIET,
    RECOVERED,
    UNLIMITED,
    Counts,
    ask,
    create,
    create_all,
    reads_of,
    restored,
    statuses,
    times_of,
)
from tests.brokers.sample_brokers import broker_of, crash_broker
from tests.logs.samples import tree_of
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import run

pytestmark = [pytest.mark.java, pytest.mark.broker]

INTERNAL = ("__consumer_offsets", "__transaction_state")
TRANSACTIONAL_ID = "restored"
GROUP = "readers"
READ = 20
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a broker says of its topics, groups and transactional ids."""

    reads: Mapping[str, Mapping[str, Counts]]
    times: Mapping[str, list[list[int] | None]]
    committed: int
    producer: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A new cluster, its broker stopped, and what the first one has told."""

    copy: Path
    first: Told
    timestamps_ms: list[int]
    broker: Broker
    report: Mapping[str, Any]


def committed_offset(broker: Broker) -> int:
    printed = ask(broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", GROUP)
    (row,) = (line.split() for line in printed.splitlines() if line.startswith(GROUP))
    return int(row[3])


def producer_of(broker: Broker) -> tuple[int, int]:
    """Id and epoch of the producer with the transactional id."""
    printed = ask(broker, "TransactionsCommand", "describe", "--transactional-id", TRANSACTIONAL_ID)
    (row,) = (line.split("\t") for line in printed.splitlines() if TRANSACTIONAL_ID in line)
    return int(row[2]), int(row[3])


def told_by(broker: Broker, timestamps_ms: list[int]) -> Told:
    return Told(
        reads=reads_of(broker),
        times=times_of(broker, timestamps_ms),
        committed=committed_offset(broker),
        producer=producer_of(broker),
    )


def consume(broker: Broker) -> None:
    """Let the group read on, and commit."""
    words = ("--topic", "codec-none", "--group", GROUP, "--from-beginning", "--max-messages", str(READ))
    words += ("--timeout-ms", str(round(LONGEST_WAIT_SECONDS * 1000)))
    assert len(ask(broker, "consumer.ConsoleConsumer", *words).splitlines()) == READ


def write_transactions(broker: Broker) -> None:
    words = ("--topic", "transactions", "--num-records", "30", "--record-size", "50", "--throughput", "-1")
    transactional = ("--transactional-id", TRANSACTIONAL_ID, "--transaction-duration-ms", "5")
    assert "30 records sent" in ask(broker, "ProducerPerformance", *words, *transactional)


def partition_counts(copy: Path) -> dict[str, int]:
    """The number of partitions of each topic in a copy."""
    counts: dict[str, int] = {}
    for path in copy.glob("*/*-*"):
        topic, _, number = path.name.rpartition("-")
        if path.is_dir() and topic != "__cluster_metadata":
            counts[topic] = max(counts.get(topic, 0), int(number) + 1)
    return counts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """The first broker is killed, started, used, stopped and copied; the copy is restored to a new one."""
    root = tmp_path_factory.mktemp("copied")
    sample = crash_broker(KAFKA_VERSION, root / "first")
    timestamps_ms = [sample.now_ms + MINUTE_MS * minutes for minutes in (-6000, -90, -30, -5, -1, 0, 20, 600)]
    with broker_of(sample, root / "first-work") as broker:
        broker.start()
        consume(broker)
        write_transactions(broker)
        first = told_by(broker, timestamps_ms)
        broker.stop()
    done = run("archive", "copy", "-c", broker.config, "--output", root / "copy")
    assert done.exit_code == 0, done.stderr
    counts = partition_counts(root / "copy")
    second = Broker(
        [root / "a", root / "b"], work_dir=root / "second-work", properties=QUIET_PROPERTIES | QUIET
    )
    with second:
        second.format()
        second.start()
        settings = {
            topic: (count, sample.topic_configs.get(topic, {}))
            for topic, count in counts.items()
            if topic not in INTERNAL
        }
        create_all(second, settings)
        # Asked for a group and a transactional id that there are not, a broker creates these topics, and writes nothing
        ask_in_vain(second, "consumer.group.ConsumerGroupCommand", "--describe", "--group", "none")
        ask_in_vain(second, "TransactionsCommand", "describe", "--transactional-id", "none")
        second.stop()
        words = [word for topic in counts for word in ("--topic", topic)]
        report = restored(second, root / "copy", *words)
        yield Restored(
            copy=root / "copy", first=first, timestamps_ms=timestamps_ms, broker=second, report=report
        )


def ask_in_vain(broker: Broker, tool: str, *arguments: str) -> None:
    """Ask for what is not there; whatever the tool makes of that."""
    command = broker.tool_command(
        f"org.apache.kafka.tools.{tool}", "--bootstrap-server", broker.bootstrap_servers, *arguments
    )
    subprocess.run(command, capture_output=True, check=False)


def snapshots_of(log_dirs: list[Path]) -> dict[str, np.ndarray[Any, Any]]:
    """The producers in the last snapshot of each log, by folder."""
    found = {}
    for log_dir in log_dirs:
        for folder in log_dir.glob("*-*"):
            paths = sorted(folder.glob("*.snapshot"))
            if paths and "__cluster" not in folder.name:
                entries = read_producer_snapshot(paths[-1].read_bytes())
                found[f"{folder.name}/{paths[-1].name}"] = np.sort(entries, order="producer_id")
    return found


def test_the_new_cluster_is_as_the_first(cluster: Restored) -> None:
    """Records, reads by time, producers, groups and transactional ids; and a restart finds nothing to do."""
    broker = cluster.broker
    assert set(statuses(cluster.report).values()) == {"restored"}
    broker.start()
    assert not RECOVERED.search(broker.log)
    found = told_by(broker, cluster.timestamps_ms)
    assert found == cluster.first
    assert any(answer for answers in found.times.values() for answer in answers)
    assert len({str(answers) for answers in found.times.values()}) > 5
    assert found.committed == READ
    broker.stop()

    snapshots = snapshots_of([cluster.copy / "d1", cluster.copy / "d2"])
    kept = snapshots_of(list(broker.log_dirs))
    assert sum(len(entries) for entries in snapshots.values()) > 50
    for name, entries in snapshots.items():
        assert np.array_equal(kept[name], entries), name

    before = [logs_of(log_dir) for log_dir in broker.log_dirs]
    broker.start()
    assert not RECOVERED.search(broker.log)
    broker.stop()
    after = [logs_of(log_dir) for log_dir in broker.log_dirs]
    assert [changed(*both) for both in zip(before, after, strict=True)] == [[], []]

    # Where the group stood it goes on, and the transactional id has its next epoch
    broker.start()
    consume(broker)
    assert committed_offset(broker) == 2 * READ
    write_transactions(broker)
    producer_id, epoch = producer_of(broker)
    assert producer_id == cluster.first.producer[0]
    assert epoch > cluster.first.producer[1]
    broker.stop()


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def logs_of(log_dir: Path) -> dict[str, bytes]:
    """Files of logs that a broker without clients does not touch; each start adds a leader epoch."""
    return {
        name: data
        for name, data in tree_of(log_dir).items()
        if name.endswith((".log", ".snapshot", ".txnindex")) and "__cluster" not in name
    }


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["known", "forgotten"])
def test_a_new_producer_gets_an_id_that_is_known(tmp_path: Path, is_forgotten: bool) -> None:
    """What the warning says: its first record is acknowledged and not written, unless the remedy is followed."""
    remedy = "producer.id.expiration.ms=60000"
    with Broker([tmp_path / "a"], work_dir=tmp_path / "first", properties=QUIET) as first:
        first.format()
        first.start()
        create(first, "taken", 1, *UNLIMITED)
        produce_one(first)
        first.stop()
    later_ms = int(time.time() * 1000) + 2 * MINUTE_MS
    with Broker([tmp_path / "b"], work_dir=tmp_path / "second", properties=QUIET, now_ms=later_ms) as second:
        second.format()
        second.start()
        create(second, "taken", 1, *UNLIMITED)
        second.stop()
        (one,) = restored(second, tmp_path / "a", "--topic", "taken")["partitions"]
        (warning,) = one["warnings"]
        assert "1 producer with ids up to 0 known at its end" in warning
        assert warning.endswith(remedy)
        if is_forgotten:
            second.config.write_text(second.config.read_text() + remedy + "\n")
        second.start()
        produce_one(second)
        assert second.read_all()["read_uncommitted"]["taken-0"].records == (2 if is_forgotten else 1)
        second.stop()


def produce_one(broker: Broker) -> None:
    words = ("--topic", "taken", "--num-records", "1", "--record-size", "50", "--throughput", "-1")
    assert "1 records sent" in ask(broker, "ProducerPerformance", *words)
