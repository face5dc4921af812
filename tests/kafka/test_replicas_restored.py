"""Partitions with archived leader epochs up to 4, restored to a cluster of two brokers: what followers make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from recovery.check.api import verify
from segfmt.transaction_index import view_transaction_index
from tests.brokers.broker import Broker
from tests.brokers.pair import NODES, BrokerPair
from tests.brokers.restoring import (
    LEVELS,
    QUIET,
    abort_open_transactions,
    archived,
    reads_of,
    restored,
    statuses,
)
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.runs.verifying import lines_of

pytestmark = [pytest.mark.java, pytest.mark.broker]

SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1"}
PROPERTIES = QUIET | {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "replica.lag.time.max.ms": "2000",
}
WARNED_OF_LEADERS = "in sync in the cluster"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    root = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        yield BrokerPair(root, root / "work", stack, "cmVzdG9yZWQtcGFpci0wMQ", PROPERTIES)


@pytest.fixture
def pair(cluster: BrokerPair) -> Iterator[BrokerPair]:
    """Both brokers run at the beginning."""
    cluster.start(*NODES)
    yield cluster
    for node in NODES:
        cluster.kill(node)


def stop(pair: BrokerPair, first: int, *topics: str) -> None:
    """Stop one broker, then the other, which alone is in sync at the end."""
    last = 5 - first
    pair.brokers[first].stop()
    pair.wait_for_leader(last, *topics, replicas=1)
    pair.brokers[last].stop()


def chosen(*topics: str) -> list[str]:
    return [word for topic in topics for word in ("--topic", topic)]


def restored_to(broker: Broker, archive: TieredArchive, *options: object) -> Mapping[str, Any]:
    report = restored(broker, archive.path, *options, metadata=archive.log_dirs)
    assert set(statuses(report).values()) == {"restored"}
    return report


def warnings_of(report: Mapping[str, Any]) -> str:
    return " ".join(text for one in report["partitions"] for text in one["warnings"])


def reads_from(broker: Broker, names: Sequence[str]) -> dict[str, dict[str, object]]:
    return {level: {name: reads[name] for name in names} for level, reads in reads_of(broker).items()}


def has_skipped(broker: Broker, name: str) -> bool:
    """Whether a follower has passed over batches of a partition."""
    return (
        re.search(rf"Skipping batch.*{re.escape(name)}|{re.escape(name)}.*Skipping batch", broker.log)
        is not None
    )


def has_cut_off(broker: Broker, name: str) -> bool:
    """Whether a follower has cut off records that its leader does not have."""
    return (
        re.search(rf"UnifiedLog partition={re.escape(name)},.*Truncating to offset", broker.log) is not None
    )


def described(pair: BrokerPair, topic: str) -> str:
    return pair.ask("TopicCommand", "--describe", "--topic", topic)


def test_a_follower_comes_in_sync_and_leads(pair: BrokerPair, archive: TieredArchive) -> None:
    """Restored to one of two, which alone was in sync: renumbered, the other gets all of it, and then leads."""
    topics = ("codecs", "deleted-records", "transactions")
    names = ("codecs-0", "deleted-records-0", "transactions-0", "transactions-1")
    for topic in topics:
        pair.create(topic, SETTINGS, replicas="2:3,2:3" if topic == "transactions" else "2:3")
    stop(pair, 3, *topics)
    report = restored_to(pair.brokers[2], archive, *chosen(*topics))
    assert {one["leaderEpochs"] for one in report["partitions"]} == {"renumbered"}
    assert WARNED_OF_LEADERS not in warnings_of(report)

    pair.start(*NODES)
    pair.wait_for_leader(2, *topics, replicas=2)
    held_back = abort_open_transactions(pair.brokers[2], report)
    first = reads_from(pair.brokers[2], names)
    pair.brokers[2].stop()
    pair.wait_for_leader(3, *topics, replicas=1)
    assert reads_from(pair.brokers[3], names) == first
    assert not any(has_skipped(pair.brokers[3], name) for name in names)
    for level in LEVELS:
        for name in names:
            if level == "read_uncommitted" or name not in held_back:
                assert first[level][name] == archived(archive, name, level), (level, name)
    pair.brokers[3].stop()
    assert_sound_with_indexes_of_their_own(pair, "transactions-0", "transactions-1")


def assert_sound_with_indexes_of_their_own(pair: BrokerPair, *names: str) -> None:
    """`verify` finds nothing, though the follower has entered other last stable offsets than the leader."""
    log_dirs = {node: broker.log_dirs[0] for node, broker in pair.brokers.items()}
    for log_dir in log_dirs.values():
        report = verify([str(log_dir)])
        assert report.exit_code == 0, lines_of(report)
    entries = {
        node: [
            entry
            for name in names
            for path in sorted((log_dir / name).glob("*.txnindex"))
            for entry in view_transaction_index(path.read_bytes()).tolist()
        ]
        for node, log_dir in log_dirs.items()
    }
    assert [entry[:-1] for entry in entries[2]] == [entry[:-1] for entry in entries[3]]
    assert entries[2] != entries[3]


def test_two_brokers_get_the_same(pair: BrokerPair, archive: TieredArchive) -> None:
    """Restored to both, each from the archive: neither cuts anything off, and both are in sync."""
    pair.create("plain", SETTINGS, replicas="2:3,3:2")
    stop(pair, 3, "plain")
    reports = {node: restored_to(broker, archive, *chosen("plain")) for node, broker in pair.brokers.items()}
    assert WARNED_OF_LEADERS not in warnings_of(reports[2])
    assert WARNED_OF_LEADERS in warnings_of(reports[3])
    pair.start(*NODES)
    pair.wait_until(lambda: len(re.findall(r"Isr: (2,3|3,2)\t", described(pair, "plain"))) == 2)
    names = ("plain-0", "plain-1")
    for name in names:
        for broker in pair.brokers.values():
            assert not has_cut_off(broker, name)
            assert not has_skipped(broker, name)
        logs = [
            {path.name: path.read_bytes() for path in (broker.log_dirs[0] / name).glob("*.log")}
            for broker in pair.brokers.values()
        ]
        assert logs[0] == logs[1]
        assert len(logs[0]) > 10
    first = reads_from(pair.brokers[2], names)
    assert first["read_committed"] == {name: archived(archive, name, "read_committed") for name in names}
    pair.brokers[2].stop()
    pair.wait_for_leader(3, "plain", replicas=1)
    assert reads_from(pair.brokers[3], names) == first


def test_epochs_are_kept_where_the_cluster_has_come_as_far(pair: BrokerPair, archive: TieredArchive) -> None:
    pair.create("expired-by-size", SETTINGS)
    for _ in range(2):  # each change of the leader is an epoch
        pair.wait_for_leader(2, "expired-by-size", replicas=2)
        pair.brokers[2].stop()
        pair.wait_for_leader(3, "expired-by-size", replicas=1)
        pair.start(2)
        pair.wait_for_leader(3, "expired-by-size", replicas=2)
        pair.ask("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    stop(pair, 3, "expired-by-size")
    report = restored_to(pair.brokers[2], archive, *chosen("expired-by-size"))
    assert {one["leaderEpochs"] for one in report["partitions"]} == {"kept"}
    pair.start(*NODES)
    pair.wait_for_leader(2, "expired-by-size", replicas=2)
    name = "expired-by-size-0"
    first = reads_from(pair.brokers[2], [name])
    assert first["read_uncommitted"][name] == archived(archive, name, "read_uncommitted")
    pair.brokers[2].stop()
    pair.wait_for_leader(3, "expired-by-size", replicas=1)
    assert reads_from(pair.brokers[3], [name]) == first


def test_a_leader_without_the_records_cuts_them_off(pair: BrokerPair, archive: TieredArchive) -> None:
    """What the warning says: restored to the broker that is not in sync, and not to the one that is."""
    pair.create("lost-delete", SETTINGS)
    stop(pair, 2, "lost-delete")
    report = restored_to(pair.brokers[2], archive, *chosen("lost-delete"))
    assert f"{WARNED_OF_LEADERS}: broker 3" in warnings_of(report)
    log_dir = pair.brokers[2].log_dirs[0] / "lost-delete-0"
    assert sum(path.stat().st_size for path in log_dir.glob("*.log"))
    pair.start(*NODES)
    pair.wait_for_leader(3, "lost-delete", replicas=2)
    assert not sum(path.stat().st_size for path in log_dir.glob("*.log"))
    assert has_cut_off(pair.brokers[2], "lost-delete-0")


def test_kept_epochs_above_the_clusters_keep_a_follower_out(pair: BrokerPair, archive: TieredArchive) -> None:
    """What the warning of `--leader-epochs keep` says."""
    pair.create("stuck-copy", SETTINGS)
    stop(pair, 3, "stuck-copy")
    report = restored_to(pair.brokers[2], archive, "--leader-epochs", "keep", *chosen("stuck-copy"))
    assert "followers pass over such batches, and never come in sync" in warnings_of(report)
    pair.start(*NODES)
    pair.wait_until(lambda: has_skipped(pair.brokers[3], "stuck-copy-0"))
    pair.wait_for_leader(2, "stuck-copy", replicas=1)
    pair.ask("TopicCommand", "--delete", "--topic", "stuck-copy")
