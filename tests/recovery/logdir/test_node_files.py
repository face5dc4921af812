"""What stops a KRaft node before it looks at its logs. tests/kafka/test_blockers.py asks brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.logdir.identity import identify
from recovery.logdir.node_files import node_faults
from tests.logs.samples import Sample, unpack
from tests.runs.command import recover, run

QUORUM_STATE = "__cluster_metadata-0/quorum-state"
PARTITION_METADATA = "__cluster_metadata-0/partition.metadata"
SNAPSHOT = "__cluster_metadata-0/00000000000000000250-0000000001.checkpoint"


@pytest.mark.parametrize("name", ["crashed", "crashed-4.4", "crashed-v0-v1", "tiered"])
def test_nodes_that_start_have_none(name: str, tmp_path: Path) -> None:
    for log_dir in unpack(name, tmp_path).log_dirs:
        assert list(node_faults(str(log_dir))) == []


@pytest.mark.parametrize(
    ("name", "content", "rule", "words"),
    [
        ("bootstrap.checkpoint", b"", "bootstrap-checkpoint", "no metadata.version in it (Runtime"),
        ("bootstrap.checkpoint", b"garbage" * 30, "bootstrap-checkpoint", "no metadata.version in it: "),
        (QUORUM_STATE, b"", "quorum-state", "empty (EOFException"),
        (QUORUM_STATE, b"{", "quorum-state", "no JSON (JsonParse"),
        (QUORUM_STATE, b"[]", "quorum-state", "no JSON object"),
        (QUORUM_STATE, b"{}", "quorum-state", "data_version is None"),
        (QUORUM_STATE, b'{"data_version":7}', "quorum-state", "data_version is 7"),
        (QUORUM_STATE, b'{"data_version":1,"leaderId":1}', "quorum-state", "no leaderEpoch"),
        (PARTITION_METADATA, b"", "topic-id", "stops the node"),
    ],
)
def test_what_stops_a_node_is_a_problem_of_its_log_dir(
    name: str, content: bytes, rule: str, words: str, sample: Sample
) -> None:
    """The logs are recovered all the same; what the remedy says ends it."""
    (sample.log_dirs[0] / name).write_bytes(content)
    done = recover(sample)
    assert done.exit_code == 4
    ((problem,), others) = (one["problems"] for one in done.report["logDirs"])
    assert (problem["file"], problem["rule"], others) == (name, rule, [])
    assert words in problem["detail"]
    assert "remove it" in problem["remedy"]
    verified = run("verify", "-c", sample.config, "--progress", "none", "-q")
    assert verified.exit_code == 2
    assert f"{sample.log_dirs[0]}/{name}" in verified.stdout
    (sample.log_dirs[0] / name).unlink()
    assert recover(sample).exit_code == 0


def test_what_cannot_be_read_stops_it_too(sample: Sample) -> None:
    path = sample.log_dirs[0] / QUORUM_STATE
    path.unlink()
    path.mkdir()
    (problem,) = identify([str(sample.log_dirs[0])]).blockers[str(sample.log_dirs[0])]
    assert (problem.file, problem.rule) == (QUORUM_STATE, "quorum-state")


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


def test_a_snapshot_without_its_end_is_no_snapshot(sample: Sample) -> None:
    """All settings would be the broker's defaults, and every log a stray of a topic that is gone."""
    (sample.log_dirs[0] / SNAPSHOT).write_bytes(b"")
    done = recover(sample, "--format", "text")
    assert done.exit_code == 1
    assert (
        "it ends without a footer: its end is lost (a node waits for ever, or starts without it)"
        in done.stderr
    )
    assert "Remedy: give them with --topic-config" in done.stderr
    verified = run("verify", "-c", sample.config, "--progress", "none", "-q")
    assert verified.exit_code == 2
    assert f"{SNAPSHOT} at byte 0: cut-end: " in verified.stdout


def test_a_metadata_log_that_has_lost_all_tells_nothing_of_topics(sample: Sample) -> None:
    folder = sample.log_dirs[0] / "__cluster_metadata-0"
    for path in (*folder.glob("*.log"), *folder.glob("*index")):
        path.write_bytes(b"")
    done = recover(sample)
    texts = [note["text"] for note in done.report["notes"]]
    assert any("it has no topic at all, and there are logs of " in text for text in texts)
    assert not any("-stray" in text for text in texts)
