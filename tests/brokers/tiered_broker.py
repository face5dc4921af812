"""Real archives: a Kafka broker with tiered storage that is written to, killed, and asked what it has archived.

The records come from sample_logs/TieredWriter.java, the remote storage is Kafka's LocalTieredStorage with the faults of
sample_logs/FaultyTieredStorage.java, what is expected of the archive is what the broker and its consumer say
(tests/oracle/src/TieredView.java). The sample `tiered` is made by the same code as the fresh archives of the tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.brokers.broker import LONGEST_WAIT_SECONDS, Broker, BrokerError
from tests.brokers.jars import KAFKA_VERSION, compiled, oracle_classes
from tests.logs.samples import SAMPLE_DIR, TIERED_NAME, Sample, read_properties, unpack

CLUSTER_ID = "dGllcmVkLWFyY2hpdmUtMQ"
EXPECTED = "expected.json"
ARCHIVE = Path("remote/kafka-tiered-storage")

TIERED_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:29093
listeners=PLAINTEXT://localhost:29092,CONTROLLER://localhost:29093
advertised.listeners=PLAINTEXT://localhost:29092,CONTROLLER://localhost:29093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=@ROOT@/d1,@ROOT@/d2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.index.size.max.bytes=65536
log.initial.task.delay.ms=500
log.flush.start.offset.checkpoint.interval.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=FaultyTieredStorage
rsm.config.dir=@ROOT@/remote
rsm.config.failing.delete.topic=failing-delete
rsm.config.lost.delete.topic=lost-delete
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.num.partitions=3
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.min.isr=1
remote.log.manager.task.interval.ms=250
remote.log.manager.copier.thread.pool.size=3
remote.log.manager.expiration.thread.pool.size=2
remote.log.reader.threads=2
"""
_STUCK_COPY = "stuck-copy"
_STILL_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class TieredArchive:
    """A real archive of LocalTieredStorage, its broker's log dirs after a clean shutdown, and what that broker said."""

    root: Path
    log_dirs: tuple[Path, ...]  # with `__remote_log_metadata-*` in them

    @property
    def path(self) -> Path:
        """The archive itself: a folder for each partition."""
        return self.root / ARCHIVE

    @cached_property
    def expected(self) -> Mapping[str, Any]:
        """What TieredView.java says: `partitions` by name, `segments` by uuid."""
        return json.loads((self.root / EXPECTED).read_text())


def unpack_tiered(into: Path) -> TieredArchive:
    """Unpack the sample `tiered` below *into*."""
    sample: Sample = unpack(TIERED_NAME, into)
    return TieredArchive(root=sample.root, log_dirs=sample.log_dirs)


def opened(root: Path) -> TieredArchive:
    """What `make_tiered` has left in *root*."""
    return TieredArchive(root=root, log_dirs=(root / "d1", root / "d2"))


def make_tiered(root: Path, *, size: int) -> TieredArchive:
    """Let a broker make an archive in the new folder *root*: stopped once, killed while it copies, stopped.

    Args:
        root: gets `d1`, `d2`, `remote`, `server.properties` and `expected.json`.
        size: about the number of segments that each of the three lives adds to a partition, at least 2.
    """
    root.mkdir()
    (root / "server.properties").write_text(TIERED_PROPERTIES)
    archive = opened(root)
    work_dir = root.parent / f"{root.name}-work"
    with tiered_broker(archive, work_dir, {}) as broker:
        broker.format(CLUSTER_ID)
        broker.start()
        _write(broker, "first", size)
        wait_until_still(archive)
        broker.stop()
    with tiered_broker(archive, work_dir, {"rsm.config.stuck.copy.topic": _STUCK_COPY}) as broker:
        broker.start()
        _write(broker, "second", size)
        wait_until(lambda: _interrupted(archive) > 0, broker)
        wait_until_still(archive)
        broker.kill()
    with tiered_broker(archive, work_dir, {}) as broker:
        broker.start()
        _write(broker, "last", size)
        wait_until_still(archive)
        printed = broker.run_tool("TieredView", broker.bootstrap_servers, after=[oracle_classes()])
        broker.stop()
    expected = {"kafka_version": KAFKA_VERSION, **json.loads(printed.splitlines()[-1])}
    (root / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")
    return archive


def tiered_broker(
    archive: TieredArchive, work_dir: Path, more: Mapping[str, str], *, java_agents: Sequence[str] = ()
) -> Broker:
    """Return the broker of *archive*, not started, with *more* properties."""
    properties = read_properties(TIERED_PROPERTIES.replace("@ROOT@", str(archive.root)))
    return Broker(
        archive.log_dirs,
        work_dir=work_dir,
        properties=properties | dict(more),
        heap="512m",
        plugins=[compiled(SAMPLE_DIR)],
        java_agents=java_agents,
    )


def set_while_down(
    archive: TieredArchive, work_dir: Path, topics: Mapping[str, Mapping[str, int | bool]]
) -> None:
    """Set configs of topics while the only broker is down: its node is started as controller alone, and stopped."""
    properties = read_properties(TIERED_PROPERTIES.replace("@ROOT@", str(archive.root)))
    node = Broker(
        archive.log_dirs, work_dir=work_dir, properties=properties | {"process.roles": "controller"}
    )
    with node:
        node.start()
        wait_until(lambda: "Becoming the active controller" in node.log, node)
        for topic, configs in topics.items():
            added = ",".join(f"{key}={str(value).lower()}" for key, value in configs.items())
            node.run_tool(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-controller", node.bootstrap_controllers),
                *("--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added),
            )
        node.stop()


def _write(broker: Broker, life: str, size: int) -> None:
    printed = broker.run_tool(
        "TieredWriter", broker.bootstrap_servers, life, str(size), after=[compiled(SAMPLE_DIR)]
    )
    if printed.strip() != "done":
        raise BrokerError(
            f"the writer of the {life} life said {printed!r}; the broker:\n{broker.log[-4000:]}"
        )


def _interrupted(archive: TieredArchive) -> int:
    """The number of files of copies that came to a stop."""
    return sum(len(list(folder.iterdir())) % 5 for folder in archive.path.glob(f"{_STUCK_COPY}-0-*"))


def wait_until(
    holds: Callable[[], bool], broker: Broker, *, wait_seconds: float = LONGEST_WAIT_SECONDS
) -> None:
    """Wait until something holds while a broker runs."""
    deadline = time.monotonic() + wait_seconds
    while not holds():
        if time.monotonic() > deadline:
            raise BrokerError(f"the broker did not come so far:\n{broker.log[-4000:]}")
        time.sleep(0.1)


def wait_until_still(archive: TieredArchive, *, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
    """Wait until nothing is left to copy, to expire or to delete: the same files for some seconds."""
    deadline = time.monotonic() + wait_seconds
    seen: object = None
    since = time.monotonic()
    while time.monotonic() - since < _STILL_SECONDS:
        if time.monotonic() > deadline:
            raise BrokerError(f"the archive in {archive.path} goes on changing")
        files = sorted([*archive.path.rglob("*"), *archive.root.glob("d?/*/*.log")])
        starts = [log_dir / "log-start-offset-checkpoint" for log_dir in archive.log_dirs]
        now = files, [sorted(path.read_text().split("\n")) for path in starts if path.exists()]
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)
