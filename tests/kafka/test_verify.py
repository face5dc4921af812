"""`verify` beside a live broker under load: segments roll, go by retention and compaction, and nothing is damaged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from recovery.check.api import verify
from recovery.check.report import VerifyReport
from tests.brokers import Broker
from tests.runs.verifying import lines_of

pytestmark = [pytest.mark.java, pytest.mark.broker]

RESTLESS = {
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "1500",
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
TOPICS = {
    "plain": {"segment.bytes": "1048576"},
    "short-lived": {"segment.bytes": "1048576", "retention.bytes": "1500000"},
    "compacted": {
        "segment.bytes": "1048576",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
    "in-transactions": {"segment.bytes": "1048576", "segment.ms": "1000"},
    "preallocated": {"segment.bytes": "1048576", "preallocate": "true"},
}
LOOKS = 12
"""Enough looks, where the broker also has BATCHES by then: a slow one is looked at for longer."""
BATCHES = 1000
RULES_OF_SEQUENCES = {"sequence-gap", "producer-epoch"}


def rules_of_notes(report: VerifyReport) -> set[str]:
    return {found.rule for file in report.files for found in file.findings if found.severity == "note"}


def batch_count(report: VerifyReport) -> int:
    return sum(one.batch_count for one in report.log_dirs)


def is_enough(reports: list[VerifyReport]) -> bool:
    return len(reports) >= LOOKS and batch_count(reports[-1]) > BATCHES


def create_topics(broker: Broker) -> None:
    for topic, settings in TOPICS.items():
        configs = [text for key, value in settings.items() for text in ("--config", f"{key}={value}")]
        arguments = ["--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", topic]
        broker.run_tool("org.apache.kafka.tools.TopicCommand", *arguments, "--partitions", "2", *configs)


def start_load(broker: Broker, topic: str, *, codec: str = "none") -> subprocess.Popen[bytes]:
    in_transactions = ["--transactional-id", topic, "--transaction-duration-ms", "40"]
    command = broker.tool_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--num-records", "40000", "--record-size", "300", "--throughput", "6000"),
        *("--command-property", f"compression.type={codec}", "--command-property", "linger.ms=5"),
        *(in_transactions if topic == "in-transactions" else []),
    )
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_broker_under_load_has_no_damage(ram_path: Path) -> None:
    log_dirs = (ram_path / "d1", ram_path / "d2")
    reports: list[VerifyReport] = []
    with Broker(log_dirs, work_dir=ram_path / "work", properties=RESTLESS) as broker:
        broker.format()
        broker.start()
        create_topics(broker)
        loads = [
            start_load(broker, topic, codec=codec)
            for topic, codec in zip(TOPICS, ("none", "lz4", "zstd", "none", "snappy"), strict=True)
        ]
        try:
            while any(load.poll() is None for load in loads) and not is_enough(reports):
                reports.append(verify([str(log_dir) for log_dir in log_dirs], deep=len(reports) % 2 == 1))
        finally:
            for load in loads:
                load.kill()
                load.wait()
        assert [load.returncode for load in loads if load.returncode not in (0, -9)] == []
        reports.append(verify([str(log_dir) for log_dir in log_dirs], deep=True))
        broker.stop()
    assert len(reports) > 2
    for number, report in enumerate(reports):
        assert all(one.is_live for one in report.log_dirs)
        assert report.exit_code == 0, (number, lines_of(report))
        assert rules_of_notes(report).isdisjoint(RULES_OF_SEQUENCES), number
    assert batch_count(reports[-1]) > BATCHES
    stopped = verify([str(log_dir) for log_dir in log_dirs], deep=True)
    assert stopped.exit_code == 0, lines_of(stopped)
    assert not any(one.is_live for one in stopped.log_dirs)
    assert rules_of_notes(stopped).isdisjoint(RULES_OF_SEQUENCES)
