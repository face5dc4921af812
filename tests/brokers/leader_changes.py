"""A real archive of two brokers that led in turn, one of them after an unclean election.

A controller and two brokers on loopback share Kafka's LocalTieredStorage. Of topic `clean` each new leader has all
that the one before had. Of topic `unclean` the last one is behind: it becomes the leader while the other is down, and
archives other records at offsets of which there are segments already.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from tests.brokers.broker import BrokerError
from tests.brokers.jars import KAFKA_VERSION, compiled, oracle_classes
from tests.brokers.pair import NODES, BrokerPair
from tests.brokers.tiered_broker import EXPECTED, TieredArchive, wait_until_still
from tests.logs.samples import SAMPLE_DIR

CLEAN, UNCLEAN = "clean", "unclean"
_CLUSTER_ID = "bGVhZGVyLWNoYW5nZXMtMQ"
_TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "FaultyTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    # Its reader may hold on to a broker that was killed for as long.
    "rlmm.config.remote.log.metadata.consumer.metadata.max.age.ms": "2000",
    "remote.log.manager.task.interval.ms": "250",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "replica.lag.time.max.ms": "2000",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
}
SMALL_SEGMENTS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40960",
    "local.retention.bytes": "40960",
    "index.interval.bytes": "1024",
    "retention.ms": "-1",
}
_KNOWS_SEGMENTS = "Initialized for all the 2 assigned user-partitions"


class TieredPair(BrokerPair):
    """Such a cluster with tiered storage in `remote`; the brokers run."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        work_dir = root.parent / f"{root.name}-work"
        properties = _TIERED | {"rsm.config.dir": str(root / "remote")}
        super().__init__(root, work_dir, stack, _CLUSTER_ID, properties, plugins=[compiled(SAMPLE_DIR)])
        self.start(*NODES)

    def write(
        self, node: int, topic: str, records: int, *, size: int = 420, transactional_id: str = ""
    ) -> None:
        """Let a producer write *records* of *size* bytes by way of broker *node*, a batch each in `unclean`."""
        arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(size)]
        arguments += ["--throughput", "4000"]
        if topic == UNCLEAN:
            arguments += ["--command-property", "batch.size=0"]
        if transactional_id:
            arguments += ["--transactional-id", transactional_id, "--transaction-duration-ms", "50"]
        printed = self.ask("ProducerPerformance", *arguments, node=node)
        if f"{records} records sent" not in printed:
            raise BrokerError(f"not all {records} records were written to {topic}:\n{printed}")

    def wait_for_metadata(self, *nodes: int) -> None:
        """Wait until brokers that were started anew know what is archived: before that nothing moves."""
        for node in nodes:
            self.brokers[node].wait_for(_KNOWS_SEGMENTS)

    def prefer(self) -> None:
        """Let broker 2 lead wherever it is in sync."""
        self.ask("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")

    def view(self) -> str:
        """What the brokers and their consumers say of the archive."""
        broker = self.brokers[2]
        servers = ",".join(one.bootstrap_servers for one in self.brokers.values())
        return broker.run_tool("TieredView", servers, after=[oracle_classes()]).splitlines()[-1]


def make_leader_changes(root: Path) -> TieredArchive:
    """Let two brokers make an archive in the new folder *root*; their log dirs are `d2` and `d3`."""
    root.mkdir()
    archive = TieredArchive(root=root, log_dirs=(root / "d2", root / "d3"))
    with ExitStack() as stack:
        cluster = TieredPair(root, stack)
        cluster.create(CLEAN, SMALL_SEGMENTS)
        cluster.create(UNCLEAN, SMALL_SEGMENTS | {"unclean.leader.election.enable": "true"})
        cluster.write(2, CLEAN, 700, transactional_id="first")
        cluster.write(2, UNCLEAN, 600)
        wait_until_still(archive)
        cluster.kill(2)
        cluster.wait_for_leader(3, CLEAN, replicas=1)
        cluster.write(3, CLEAN, 500, transactional_id="second")
        cluster.write(3, UNCLEAN, 300)
        cluster.start(2)
        cluster.wait_for_leader(3, UNCLEAN, replicas=2)
        cluster.wait_for_metadata(2)
        wait_until_still(archive)
        cluster.prefer()
        cluster.write(2, CLEAN, 400, transactional_id="third")
        cluster.write(2, UNCLEAN, 80)
        cluster.kill(3)
        cluster.wait_for_leader(2, UNCLEAN, replicas=1)
        cluster.write(
            2, UNCLEAN, 700
        )  # of these broker 3 will know nothing; the first go on in a segment it has
        wait_until_still(archive)
        cluster.kill(2)
        cluster.brokers[3].launch()
        cluster.brokers[3].wait_for("Kafka Server started")
        cluster.wait_for_leader(3, UNCLEAN, replicas=1)
        cluster.write(
            3, UNCLEAN, 1, size=20_000
        )  # has no room there, so broker 3 copies that segment no more
        cluster.write(3, UNCLEAN, 500)
        cluster.start(2)
        cluster.wait_for_leader(3, UNCLEAN, replicas=2)
        cluster.wait_for_metadata(2, 3)
        wait_until_still(archive)
        expected = {"kafka_version": KAFKA_VERSION, **json.loads(cluster.view())}
        cluster.stop()
    (root / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")
    return archive
