"""The oracle is right: on every sample it leaves what a whole broker leaves.

A whole broker is started on one copy of the sample and stopped by SIGTERM as soon as it is RUNNING; the
oracle loads another. What the broker adds of its own: it becomes the leader of everything (a last leader
epoch without records), its other components write their checkpoints, and it changes the KRaft metadata log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kafka import Broker, Oracle
from tests.kafka_broker import QUIET_PROPERTIES
from tests.samples import SAMPLE_NAMES, Sample, differences, tree_of, unpack

pytestmark = [pytest.mark.java, pytest.mark.broker]

_OTHER_COMPONENTS = re.compile(
    r"(replication-offset-checkpoint|cleaner-offset-checkpoint|meta\.properties|bootstrap\.checkpoint"
    r"|__cluster_metadata-0/.*|remote-log-index-cache/.*)$"
)
_EPOCHS = "leader-epoch-checkpoint"


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_oracle_leaves_what_a_whole_broker_leaves(name: str, tmp_path: Path, oracle: Oracle) -> None:
    ours = unpack(name, tmp_path / "oracle")
    outcome = oracle.load(
        ours.log_dirs, now_ms=ours.now_ms, properties=ours.properties, topic_configs=ours.topic_configs
    )
    assert outcome.outcome == "loaded", outcome.error

    theirs = unpack(name, tmp_path / "broker")
    broker_properties = dict(theirs.properties) | QUIET_PROPERTIES
    with Broker(
        theirs.log_dirs, work_dir=tmp_path / "work", properties=broker_properties, now_ms=theirs.now_ms
    ) as broker:
        broker.start()
        broker.stop()

    expected, actual = comparable_tree(theirs), comparable_tree(ours)
    assert len(actual) > 30
    epochs_dropped = sum(_drop_new_leadership(expected, actual, path) for path in expected)
    assert epochs_dropped > 0  # the broker did become a leader
    assert differences(expected, actual) == []


def comparable_tree(sample: Sample) -> dict[str, bytes]:
    trees = {log_dir.name: tree_of(log_dir) for log_dir in sample.log_dirs}
    return {
        f"{name}/{path}": content
        for name, tree in trees.items()
        for path, content in tree.items()
        if not _OTHER_COMPONENTS.match(path)
    }


def _drop_new_leadership(expected: dict[str, bytes], actual: Mapping[str, bytes], path: str) -> bool:
    """Drop the broker's last leader epoch where it starts at the log end offset that the oracle reports."""
    if not path.endswith(f"/{_EPOCHS}") or expected[path] == actual.get(path):
        return False
    *kept, last = _entries(expected[path])
    log_dir, folder, _ = path.split("/")
    topic, _, partition = folder.rpartition("-")
    if (
        f"{topic} {partition} {last[1]}".encode()
        in actual[f"{log_dir}/recovery-point-offset-checkpoint"].splitlines()
    ):
        lines = ["0", str(len(kept)), *(f"{epoch} {start}" for epoch, start in kept)]
        expected[path] = "".join(f"{line}\n" for line in lines).encode()
        if not kept and actual[path] == b"":  # never written, which says the same as no entries
            expected[path] = b""
        return True
    return False


def _entries(content: bytes) -> list[tuple[int, int]]:
    pairs = (line.split() for line in content.decode().splitlines()[2:])
    return [(int(epoch), int(start)) for epoch, start in pairs]
