"""Healthy archives: a real broker whose topics' settings change while they are written to, and that ends in every way.

Each step draws what is written, altered and deleted, by seed; between steps the broker is stopped or killed. Nothing in
what it leaves is damage, whatever the settings were when a segment was written, and no matter whether it runs again.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.brokers.broker import Broker, BrokerError, topic_configs_of
from tests.brokers.jars import compiled
from tests.brokers.tiered_broker import (
    CLUSTER_ID,
    TIERED_PROPERTIES,
    TieredArchive,
    opened,
    wait_until_still,
)
from tests.logs.samples import SAMPLE_DIR, read_properties
from tests.patience import LONGEST_WAIT_SECONDS

TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40960",
    "local.retention.bytes": "81920",
    "retention.ms": "-1",
    "index.interval.bytes": "1024",
}
_LOCAL = {"internal.segment.bytes": "40960", "index.interval.bytes": "1024"}
TOPICS = {
    "plain": TIERED,
    "in-transactions": TIERED,
    "local": _LOCAL,
    "local-transactions": _LOCAL,
    "compacted": _LOCAL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "internal.segment.bytes": ("16384", "40960", "131072"),
    "index.interval.bytes": ("1", "512", "1024", "4096", "16384", "1048576"),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "segment.ms": ("1000", "604800000"),
    "segment.jitter.ms": ("0", "500"),
    "preallocate": ("true", "false"),
    "flush.messages": ("1", "9223372036854775807"),
    "segment.index.bytes": ("4096", "10485760"),
}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PROPERTIES = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}


def make_restless(root: Path, seed: int, *, steps: int = 6) -> Iterator[TieredArchive]:
    """Let a broker make an archive, and plain log dirs, in the new folder *root*.

    Yields them between its lives, as the broker has left them when it was stopped or killed.
    """
    root.mkdir(parents=True)
    archive = opened(root)
    properties = read_properties(TIERED_PROPERTIES.replace("@ROOT@", str(root))) | _PROPERTIES
    work_dir = root.parent / f"{root.name}-work"
    (root / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with Broker(
        archive.log_dirs,
        work_dir=work_dir,
        properties=properties,
        heap="512m",
        plugins=[compiled(SAMPLE_DIR)],
    ) as broker:
        broker.format(CLUSTER_ID)
        broker.start()
        life = _Life(broker, random.Random(f"restless {seed}"), work_dir)
        life.create()
        for step in range(steps):
            life.step()
            if step % 2:
                wait_until_still(archive, wait_seconds=LONGEST_WAIT_SECONDS)
            life.end()
            yield archive
            broker.start()
        life.step()
        wait_until_still(archive, wait_seconds=LONGEST_WAIT_SECONDS)
        broker.stop()
    yield archive


def settings_of(archive: TieredArchive) -> dict[str, dict[str, str]]:
    """The settings that the topics have in the end."""
    return topic_configs_of(archive.log_dirs[0])


class _Life:
    """What is done to one broker."""

    def __init__(self, broker: Broker, rng: random.Random, work_dir: Path) -> None:
        self._broker = broker
        self._rng = rng
        self._work_dir = work_dir
        self._written = dict.fromkeys(TOPICS, 0)

    def create(self) -> None:
        for topic, settings in TOPICS.items():
            configs = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
            self._ask("org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, *configs)

    def step(self) -> None:
        """Write to all topics at a time, and meanwhile alter some and delete the beginning of one."""
        writers = [self._writer(topic) for topic in TOPICS]
        for topic in self._rng.sample(list(TOPICS), 3):
            self._alter(topic)
        for writer in writers:
            printed, _ = writer.communicate(timeout=LONGEST_WAIT_SECONDS)
            if writer.returncode != 0 or "Exception" in printed:
                raise BrokerError(
                    f"a writer ended with {writer.returncode}:\n{printed}\n{self._broker.log[-3000:]}"
                )
        self._delete_records(self._rng.choice([topic for topic in TOPICS if topic != "compacted"]))

    def end(self) -> None:
        """Stop or kill the broker."""
        if self._rng.random() < 0.5:
            self._broker.stop()
        else:
            self._broker.kill()

    def _writer(self, topic: str) -> subprocess.Popen[str]:
        rng = self._rng
        count = rng.randrange(100, 900)
        self._written[topic] += count
        if topic == "compacted":
            return self._keyed_writer(topic, count)
        arguments = ["--bootstrap-server", self._broker.bootstrap_servers, "--topic", topic]
        arguments += ["--num-records", str(count), "--record-size", str(rng.choice((20, 100, 400, 3000)))]
        arguments += ["--throughput", str(rng.choice((500, 4000)))]
        arguments += ["--command-property", f"compression.type={rng.choice(_CODECS)}"]
        arguments += ["--command-property", f"linger.ms={rng.choice((0, 5, 50))}"]
        arguments += ["--command-property", f"batch.size={rng.choice((1, 200, 16384))}"]
        if topic.endswith("transactions"):
            arguments += [
                "--transactional-id",
                f"{topic}-{rng.randrange(3)}",
                "--transaction-duration-ms",
                "60",
            ]
        command = self._broker.tool_command("org.apache.kafka.tools.ProducerPerformance", *arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _keyed_writer(self, topic: str, count: int) -> subprocess.Popen[str]:
        """Write few keys many times."""
        lines = self._work_dir / "lines"
        lines.write_text("".join(f"{self._rng.randrange(40)}:{'x' * 400}{n}\n" for n in range(count)))
        arguments = ["--bootstrap-server", self._broker.bootstrap_servers, "--topic", topic]
        arguments += ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
        arguments += ["--command-property", f"compression.type={self._rng.choice(_CODECS)}"]
        arguments += ["--command-property", f"batch.size={self._rng.choice((1, 2000, 16384))}"]
        command = self._broker.tool_command("org.apache.kafka.tools.ConsoleProducer", *arguments)
        with lines.open() as given:
            return subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

    def _alter(self, topic: str) -> None:
        names = self._rng.sample(list(_CHOICES), 4)
        if not topic.startswith("local"):
            names = [name for name in names if name != "preallocate"]
        added = ",".join(f"{name}={self._rng.choice(_CHOICES[name])}" for name in names)
        arguments = ["--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added]
        self._ask("kafka.admin.ConfigCommand", *arguments)

    def _delete_records(self, topic: str) -> None:
        offset = self._rng.randrange(self._written[topic] // 2 + 1)
        path = self._work_dir / "delete.json"
        place = {"topic": topic, "partition": 0, "offset": offset}
        path.write_text(json.dumps({"partitions": [place], "version": 1}))
        self._ask("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(path))

    def _ask(self, tool: str, *arguments: str) -> str:
        return self._broker.run_tool(tool, "--bootstrap-server", self._broker.bootstrap_servers, *arguments)
