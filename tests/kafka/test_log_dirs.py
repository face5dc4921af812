"""`log-dirs --describe` beside real brokers, against Kafka's AdminClient: from the files, and by asking the brokers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES, BrokerError
from tests.brokers.jars import KAFKA_VERSION, RELEASES, oracle_classes
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import Done, run
from tests.runs.driving import footprint
from tests.servers.file_systems import tmpfs
from tests.servers.machine import MOUNTS, needs

pytestmark = [pytest.mark.java, pytest.mark.broker]

CORDONED = "cordoned.log.dirs"
LogDirs = dict[str, dict[str, Any]]
STILL = {
    "replica__high__watermark__checkpoint__interval__ms": "3600000",
    "log__flush__offset__checkpoint__interval__ms": "3600000",
    "log__flush__start__offset__checkpoint__interval__ms": "3600000",
    "log__retention__check__interval__ms": "3600000",
}
"""A broker at rest writes nothing by the clock: what changes, others have changed."""
MOVES_ONCE = {"alter__log__dirs__replication__quota__window__size__seconds": "600"}
"""A replica that is moved gets its first batches, and no more for some hours, by the quota of `move_slowly`."""


@dataclass
class Cluster:
    """A broker with two log dirs on a file system of their own."""

    root: Path
    version: str = KAFKA_VERSION
    dirs: str = "a,b"

    @property
    def log_dirs(self) -> list[Path]:
        return [self.root / "logs" / name for name in self.dirs.split(",")]

    def broker(self, **properties: str) -> Broker:
        settings = {key.replace("__", "."): value for key, value in properties.items()}
        return Broker(
            self.log_dirs,
            work_dir=self.root / "work",
            properties=QUIET_PROPERTIES | settings,
            version=self.version,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with tmpfs(tmp_path / "logs", size="300m"):
        yield Cluster(tmp_path)


def by_admin(broker: Broker, *settings: str) -> LogDirs:
    """What AdminClient of the newest release says of a broker's log dirs."""
    after = [oracle_classes()]
    done = broker.run_tool("LogDirDescriptions", broker.bootstrap_servers, "1", *settings, after=after)
    return json.loads(done.splitlines()[-1])["1"]


def as_admin(done: Done) -> LogDirs:
    """The report of a run in the form of `by_admin`."""
    (broker,) = json.loads(done.stdout)["brokers"]
    assert broker["broker"] == 1
    return {
        one["logDir"]: {
            "error": one["error"],
            "totalBytes": None if one["totalBytes"] == -1 else one["totalBytes"],
            "usableBytes": None if one["usableBytes"] == -1 else one["usableBytes"],
            "isCordoned": one["isCordoned"],
            "partitions": sorted(
                f"{part['partition']} {part['size']} {part['offsetLag']} {json.dumps(part['isFuture'])}"
                for part in one["partitions"]
            ),
        }
        for one in broker["logDirs"]
    }


def describe(*arguments: object, **options: Any) -> Done:
    return run("log-dirs", "--describe", "--format", "json", *map(str, arguments), **options)


def assert_equal(broker: Broker, *, exit_code: int = 0) -> tuple[LogDirs, Done]:
    """Hold what the files say against the broker, at a moment when it says the same twice."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        before, done, after = by_admin(broker), describe("-c", broker.config), by_admin(broker)
        if before == after:
            assert done.exit_code == exit_code, done.stderr
            assert as_admin(done) == before
            return before, done
        assert time.monotonic() < deadline, "the broker is never idle"


def create(broker: Broker, topic: str, partitions: int, *configs: str) -> None:
    arguments = ["--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"]
    for config in configs:
        arguments += ["--config", config]
    tool = "org.apache.kafka.tools.TopicCommand"
    broker.run_tool(tool, "--bootstrap-server", broker.bootstrap_servers, *arguments)


def fill(broker: Broker, topic: str, records: int, size_bytes: int = 1000, *properties: str) -> None:
    load = (
        f"--topic {topic} --num-records {records} --record-size {size_bytes} --throughput -1 --producer-props"
    )
    tool = "org.apache.kafka.tools.ProducerPerformance"
    broker.run_tool(tool, *load.split(), f"bootstrap.servers={broker.bootstrap_servers}", *properties)


def alter(broker: Broker, *what: str) -> None:
    tool, client = "kafka.admin.ConfigCommand", ("--bootstrap-server", broker.bootstrap_servers)
    broker.run_tool(tool, *client, "--alter", "--entity-type", "brokers", *what)


def wait_until_cordoned(broker: Broker, log_dirs: list[str]) -> None:
    """Wait until the broker has applied what was altered: it has read its metadata log up to there."""
    wait_until(lambda: cordoned_in(by_admin(broker)) == log_dirs, f"not cordoned: {log_dirs}")


def cordoned_in(answer: LogDirs) -> list[str]:
    return sorted(path for path, one in answer.items() if one["isCordoned"])


def set_own(broker: Broker, value: str) -> None:
    alter(broker, "--entity-name", "1", "--add-config", f"{CORDONED}=[{value}]")


def move_slowly(broker: Broker, cluster: Cluster, topic: str) -> None:
    """Begin to move partition 0 of *topic* to the log dir where it is not, at a byte a second on average."""
    source = next(log_dir for log_dir in cluster.log_dirs if (log_dir / f"{topic}-0").exists())
    (target,) = (log_dir for log_dir in cluster.log_dirs if log_dir != source)
    plan = cluster.root / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    how = ["--execute", "--reassignment-json-file", str(plan), "--replica-alter-log-dirs-throttle", "1"]
    broker.run_tool(tool, "--bootstrap-server", broker.bootstrap_servers, *how)
    wait_until(lambda: any(part.stat().st_size for part in target.glob(f"{topic}-0.*-future/*.log")))


def not_moving(cluster: Cluster) -> dict[str, Any]:
    """Return the footprint without what a broker moves meanwhile."""
    return {path: status for path, status in footprint(cluster.root).items() if "-future" not in path}


@needs(MOUNTS)
@pytest.mark.parametrize("version", [*RELEASES.values()])
def test_sizes_totals_and_a_future_replica(version: str, cluster: Cluster) -> None:
    cluster.version = version
    with cluster.broker(log__preallocate="true", **STILL, **MOVES_ONCE) as broker:
        broker.format()
        broker.start()
        create(broker, "many", 6)
        create(broker, "empty", 2)
        create(broker, "gone", 2)
        create(broker, "moved", 1, "segment.bytes=16777216")
        create(broker, "plain", 1, "preallocate=false")
        for topic, records in (("many", 20_000), ("moved", 30_000), ("plain", 7)):
            fill(broker, topic, records)
        move_slowly(broker, cluster, "moved")
        broker.run_tool(
            "org.apache.kafka.tools.TopicCommand",
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--delete",
            "--topic",
            "gone",
        )
        deleted = [log_dir / f"gone-{number}" for log_dir in cluster.log_dirs for number in (0, 1)]
        wait_until(lambda: not any(folder.exists() for folder in deleted))
        answer, done = assert_equal(broker)
        assert done.stderr == ""
        parts = [part for one in answer.values() for part in one["partitions"]]
        (future,) = (part for part in parts if part.endswith("true"))
        assert int(future.split()[2]) > 0
        assert len(parts) == 6 + 2 + 2 + 1

        before = not_moving(cluster)
        text = run("log-dirs", "--describe", "-c", broker.config, "--topic-list", "moved").stdout
        assert "future" in text
        assert not_moving(cluster) == before
        filtered = as_admin(describe("-c", broker.config, "--topic-list", "moved,plain"))
        kept = {
            path: [part for part in one["partitions"] if part[:5] in ("moved", "plain")]
            for path, one in answer.items()
        }
        assert {path: one["partitions"] for path, one in filtered.items()} == kept
        live = describe("--bootstrap-server", broker.bootstrap_servers, prefix=broker.inside)
        assert as_admin(live) == as_admin(done)


@needs(MOUNTS)
@pytest.mark.parametrize("version", [*RELEASES.values()])
def test_cordons(version: str, cluster: Cluster) -> None:
    cluster.version = version
    first, second = map(str, cluster.log_dirs)

    def cordoned(broker: Broker, log_dirs: list[str]) -> None:
        wait_until_cordoned(broker, log_dirs)
        answer, _ = assert_equal(broker)
        assert cordoned_in(answer) == log_dirs

    with cluster.broker() as broker:
        broker.format()
        broker.start()
        cordoned(broker, [])
        set_own(broker, first)
        cordoned(broker, [first])
        set_own(broker, "*")
        cordoned(broker, [first, second])
        live = describe("--bootstrap-server", broker.bootstrap_servers, prefix=broker.inside)
        assert as_admin(live) == by_admin(broker)
        broker.stop()
    with cluster.broker(cordoned__log__dirs=second) as broker:
        broker.start()
        cordoned(broker, [first, second])
        set_own(broker, "")
        cordoned(broker, [])
        alter(broker, "--entity-name", "1", "--delete-config", CORDONED)
        cordoned(broker, [second])


@needs(MOUNTS)
@pytest.mark.parametrize("version", [*RELEASES.values()])
def test_cordons_that_a_broker_ignores(version: str, cluster: Cluster) -> None:
    """What the warnings say of a broker that starts now is what it does."""
    cluster.version = version
    first, second = map(str, cluster.log_dirs)

    def snapshot() -> None:
        folder = cluster.log_dirs[0] / "__cluster_metadata-0"
        before = set(folder.glob("*.checkpoint"))
        # A snapshot is begun by a record that comes late enough: here those that a controller writes when it is idle
        due = {
            "metadata__log__max__snapshot__interval__ms": "500",
            "metadata__max__idle__interval__ms": "500",
        }
        with cluster.broker(**due) as broker:
            broker.start()
            wait_until(lambda: not set(folder.glob("*.checkpoint")) <= before)
            broker.stop()

    def started(warned: list[str], told: list[str], applied: list[str], **properties: str) -> None:
        with cluster.broker(**properties) as broker:
            done = describe("-c", broker.config)
            assert [path for path, one in as_admin(done).items() if one["isCordoned"]] == told
            assert [line.split(": ")[3] for line in done.stderr.splitlines()] == warned
            broker.start()
            assert cordoned_in(by_admin(broker)) == applied
            broker.stop()

    with cluster.broker() as broker:
        broker.format()
        broker.start()
        set_own(broker, first)
        broker.stop()
    started([], [first], [first])
    snapshot()
    started([first], [first], [])
    with cluster.broker() as broker:
        broker.start()
        alter(broker, "--entity-name", "1", "--delete-config", CORDONED)
        alter(broker, "--entity-default", "--add-config", "log.index.interval.bytes=5000")
        broker.stop()
    started([second, first], [second], [first], cordoned__log__dirs=second)
    snapshot()
    started([second], [second], [], cordoned__log__dirs=second)


@needs(MOUNTS)
@pytest.mark.parametrize("version", [*RELEASES.values()])
def test_a_log_dir_that_a_broker_has_taken_offline(version: str, cluster: Cluster) -> None:
    cluster.version = version
    second = cluster.log_dirs[1]
    with tmpfs(second, size="20m"), cluster.broker() as broker:
        broker.format()
        broker.start()
        create(broker, "t", 4)
        fill(broker, "t", 100)
        assert_equal(broker)
        filler = second / "filler"
        with filler.open("wb", 0) as file, suppress(OSError):
            while True:  # until there is no space left
                file.write(bytes(1 << 20))
        waits = ("delivery.timeout.ms=3000", "request.timeout.ms=2000", "linger.ms=0", "max.block.ms=3000")
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while by_admin(broker)[str(second)]["error"] is None:
            assert time.monotonic() < deadline
            with suppress(BrokerError):
                fill(broker, "t", 400, 1000, *waits)
        for is_full in (True, False):  # it stays offline when there is space again
            answer, done = assert_equal(broker, exit_code=4)
            assert answer[str(second)]["error"].endswith("KafkaStorageException")
            assert f"{second}: offline: the running broker has taken it offline" in done.stderr
            if is_full:
                filler.unlink()
        live = describe("--bootstrap-server", broker.bootstrap_servers, prefix=broker.inside)
        assert live.exit_code == 4
        assert as_admin(live) == as_admin(done)
        alone = describe("-c", broker.config, "--log-dirs", second)
        assert (alone.exit_code, as_admin(alone)) == (4, {str(second): answer[str(second)]})


@needs(MOUNTS)
@pytest.mark.parametrize("version", [*RELEASES.values()])
def test_spellings_and_settings_that_a_broker_does_not_take(version: str, cluster: Cluster) -> None:
    cluster.version = version
    first, second = map(str, cluster.log_dirs)

    def configured(log_dirs: str, cordoned: str) -> Broker:
        broker = cluster.broker(cordoned__log__dirs=cordoned)
        text = broker.config.read_text()
        broker.config.write_text(re.sub(r"(?m)^log.dirs=.*$", f"log.dirs={log_dirs}", text))
        return broker

    with configured(f"{first}/,{second}", f"{first}/,{second}") as broker:
        broker.format()
        broker.start()
        answer, done = assert_equal(broker)
        assert {path: one["isCordoned"] for path, one in answer.items()} == {first: False, second: True}
        assert f"{first}/: to a broker the log dir is {first}" in done.stderr
        set_own(broker, second)
        broker.stop()
    with configured(first, first) as broker:  # what is set dynamically names a log dir that is gone
        broker.start()
        answer, done = assert_equal(broker)
        assert {path: one["isCordoned"] for path, one in answer.items()} == {first: True}
        assert f"dynamic settings of broker 1: cordoned.log.dirs: {second}: not in log.dirs" in done.stderr


@needs(MOUNTS)
def test_cordons_below_their_metadata_version(cluster: Cluster) -> None:
    first, _ = map(str, cluster.log_dirs)
    with cluster.broker(cordoned__log__dirs=first) as broker:
        broker.format(release="4.2")
        broker.start()
        answer, done = assert_equal(broker)
        assert not answer[first]["isCordoned"]
        assert "as metadata.version is 29" in done.stderr
