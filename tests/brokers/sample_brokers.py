"""Brokers that are written to and killed for a test, where a stored sample does not do: other Kafka versions.

The records come from sample_logs/SampleWriter.java.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from tests.brokers.broker import QUIET_PROPERTIES, Broker, BrokerError, topic_configs_of
from tests.brokers.jars import KAFKA_VERSION, compiled
from tests.logs.samples import SAMPLE_DIR, Sample, read_properties

CLUSTER_ID = "c2FtcGxlLWxvZ3MtMDAwMQ"
OTHER_VERSIONS = ("4.4.0", "4.0.1", "3.9.1")


def start_writer(broker: Broker, life: str) -> subprocess.Popen[str]:
    """Let SampleWriter write *life* to a running broker; returns when all of it is written.

    Where the life leaves transactions open, the process stays until its stdin is closed (`communicate`).
    """
    command = broker.tool_command(
        "SampleWriter",
        broker.bootstrap_servers,
        life,
        after=[compiled(SAMPLE_DIR)],
        version=KAFKA_VERSION,
    )
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    if writer.stdout.readline().strip() != "done":
        writer.kill()
        writer.communicate()
        raise BrokerError(f"the writer of {life} failed; the broker said:\n{broker.log[-4000:]}")
    return writer


def broker_of(sample: Sample, work_dir: Path, version: str = KAFKA_VERSION) -> Broker:
    """A broker on the log dirs of *sample*, by its clock where this version can be given one, that is quiet."""
    properties = dict(sample.properties) | QUIET_PROPERTIES
    now_ms = sample.now_ms if version == KAFKA_VERSION else None
    return Broker(sample.log_dirs, work_dir=work_dir, properties=properties, version=version, now_ms=now_ms)


def crash_broker(version: str, into: Path) -> Sample:
    """The log dirs of a broker of *version* that was killed with transactions open (life `any-version`)."""
    log_dirs = (into / "d1", into / "d2")
    properties = {"log.index.size.max.bytes": "262144", "log.retention.ms": "-1"}
    with Broker(log_dirs, work_dir=into / "work", version=version, properties=properties) as broker:
        broker.format(CLUSTER_ID)
        broker.start()
        writer = start_writer(broker, "any-version")
        broker.kill()
        writer.communicate()
    text = broker.config.read_text()
    (into / "server.properties").write_text(text)
    return Sample(
        name=f"crashed-{version}",
        root=into,
        log_dirs=log_dirs,
        properties=read_properties(text),
        topic_configs=topic_configs_of(log_dirs[0]),
        now_ms=int(time.time() * 1000),
    )


def copy_of(sample: Sample, root: Path) -> Sample:
    """Copy a sample with its server.properties into the new folder *root*."""
    shutil.copytree(sample.root, root)
    text = (root / "server.properties").read_text().replace(str(sample.root), str(root))
    (root / "server.properties").write_text(text)
    return replace(sample, root=root, log_dirs=tuple(root / log_dir.name for log_dir in sample.log_dirs))
