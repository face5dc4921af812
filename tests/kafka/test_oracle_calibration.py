"""The oracle is right: it leaves what a whole broker leaves, on every sample and on damaged partitions.

A whole broker is started on one copy and stopped by SIGTERM as soon as it is RUNNING; the oracle loads the
other. What the broker adds of its own: it leads everything (one more leader epoch, from the log
end offset on), its other components write their checkpoints, and it changes the KRaft metadata log.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker, Oracle
from tests.brokers.broker import BrokerError
from tests.brokers.sample_brokers import broker_of
from tests.damage.mutilate import CHECKPOINTS, DAMAGES, FOLDER_DAMAGES, make_victim
from tests.logs.samples import MARKER, SAMPLE_NAMES, Sample, differences, tree_of, unpack

pytestmark = [pytest.mark.java, pytest.mark.broker]

DAMAGED_BROKERS = int(os.environ.get("DAMAGED_BROKERS", "4"))

_EPOCHS = "leader-epoch-checkpoint"
_OTHER_COMPONENTS = re.compile(
    r"(replication-offset-checkpoint|cleaner-offset-checkpoint|meta\.properties|bootstrap\.checkpoint"
    r"|__cluster_metadata-0/.*|remote-log-index-cache/.*)$"
)
# The broker itself reads these topics when it starts, and writes to other logs by what it finds there.
_BROKERS_OWN = re.compile(r"__|remote-log-index-cache|tiered")
# These make the whole broker see a stray, or fill the disk.
_NOT_FOR_A_BROKER = ("partition.metadata", "no segments", "huge file")


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_oracle_leaves_what_a_whole_broker_leaves(name: str, tmp_path: Path, oracle: Oracle) -> None:
    ours, theirs = unpack(name, tmp_path / "oracle"), unpack(name, tmp_path / "broker")
    load(oracle, ours)
    start_and_stop(theirs, tmp_path / "work")
    assert compare(theirs, ours) == []


@pytest.mark.parametrize("seed", range(DAMAGED_BROKERS))
def test_oracle_leaves_what_a_whole_broker_leaves_of_damaged_partitions(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    ours, theirs = unpack("crashed", tmp_path / "oracle"), unpack("crashed", tmp_path / "broker")
    damages = dict(damage_partitions([ours, theirs], random.Random(seed), tmp_path / "victims", oracle))
    assert len(damages) > 15
    load(oracle, ours)
    start_and_stop(theirs, tmp_path / "work")
    found = compare(theirs, ours)
    assert [(line, damages.get(line.split("/")[1])) for line in found] == []


def test_a_broker_halts_where_the_oracle_says_fatal(tmp_path: Path, oracle: Oracle) -> None:
    ours, theirs = unpack("stopped", tmp_path / "oracle"), unpack("stopped", tmp_path / "broker")
    for sample in (ours, theirs):
        (sample.log_dirs[0] / "lost+found").mkdir()
    assert oracle.load(ours.log_dirs, now_ms=ours.now_ms).outcome == "fatal"
    with pytest.raises(BrokerError, match=r"lost\+found"):
        start_and_stop(theirs, tmp_path / "work")


def test_a_dir_is_offline_for_a_broker_too(tmp_path: Path, oracle: Oracle) -> None:
    # Not `crashed`: a log with an open transaction, loaded after its dir has failed, makes a broker halt.
    name = "crashed-v0-v1"
    ours, theirs = unpack(name, tmp_path / "oracle"), unpack(name, tmp_path / "broker")
    for sample in (ours, theirs):
        folder = next(folder for folder in sample.log_dirs[1].iterdir() if folder.is_dir())
        (folder / _EPOCHS).write_text("7\n0\n")
    outcome = oracle.load(
        ours.log_dirs, now_ms=ours.now_ms, properties=ours.properties, topic_configs=ours.topic_configs
    )
    assert outcome.offline_dirs == (str(ours.log_dirs[1]),)
    broker = start_and_stop(theirs, tmp_path / "work")
    assert f"due to failure on log directory {theirs.log_dirs[1]}" in broker.log
    assert not (theirs.log_dirs[1] / MARKER).exists()
    # For partitions of the dir that is offline the broker may make new, empty logs in the other one.
    loaded = tuple(f"d1/{folder.name}/" for folder in ours.log_dirs[0].iterdir() if folder.is_dir())
    assert [line for line in compare(theirs, ours) if line.startswith(loaded)] == []


def load(oracle: Oracle, sample: Sample) -> None:
    outcome = oracle.load(
        sample.log_dirs,
        now_ms=sample.now_ms,
        properties=sample.properties,
        topic_configs=sample.topic_configs,
    )
    assert outcome.outcome == "loaded", outcome.error


def start_and_stop(sample: Sample, work_dir: Path) -> Broker:
    with broker_of(sample, work_dir) as broker:
        broker.start()
        broker.stop()
    return broker


def damage_partitions(
    copies: list[Sample], rng: random.Random, scratch: Path, oracle: Oracle
) -> Iterator[tuple[str, str]]:
    """Damage most partitions of all *copies* alike, in ways that a broker survives: (folder, damage)."""
    damages = [
        *(name for name in FOLDER_DAMAGES if not name.endswith(_NOT_FOR_A_BROKER)),
        "recovery point",
        "log start offset",
    ]
    folders = [path for log_dir in copies[0].log_dirs for path in sorted(log_dir.iterdir()) if path.is_dir()]
    for folder in folders:
        if _BROKERS_OWN.match(folder.name):
            continue
        for attempt in range(8):
            victim = make_victim(copies[0], folder, scratch / f"{folder.name}-{attempt}")
            name = rng.choice(damages)
            words = DAMAGES[name](victim, rng)
            trial = scratch / f"{folder.name}-{attempt}-trial"
            shutil.copytree(victim.log_dir, trial, symlinks=True)
            outcome = oracle.load(
                [trial],
                now_ms=copies[0].now_ms,
                properties=copies[0].properties,
                topic_configs=copies[0].topic_configs,
            )
            if words is not None and outcome.outcome == "loaded":
                for copy in copies:
                    _put_back(victim.log_dir, copy.root / folder.parent.name, folder.name)
                yield folder.name, f"{name}: {words}"
                break


def _put_back(victim_dir: Path, log_dir: Path, folder_name: str) -> None:
    shutil.rmtree(log_dir / folder_name)
    shutil.copytree(victim_dir / folder_name, log_dir / folder_name, symlinks=True)
    topic, _, partition = folder_name.split(".")[0].rpartition("-")
    for name in CHECKPOINTS:
        others = [
            line
            for line in (log_dir / name).read_text().splitlines()[2:]
            if line.split()[:2] != [topic, partition]
        ]
        lines = others + (victim_dir / name).read_text().splitlines()[2:]
        (log_dir / name).write_text(f"0\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines))


def compare(theirs: Sample, ours: Sample) -> list[str]:
    """How the broker's tree differs from the oracle's once the oracle's partitions have a leader as well."""
    expected, actual = _own_files(theirs), _own_files(ours)
    assert len(actual) > 30
    led = 0
    for path in expected:
        if path.endswith(f"/{_EPOCHS}") and path in actual and expected[path] != actual[path]:
            epoch, start = _entries(expected[path])[-1]
            led += _is_log_end(actual, path, start)
            led_in = [
                _with_leadership(actual[path], [*before, epoch], start) for before in _epochs_before(epoch)
            ]
            actual[path] = expected[path] if expected[path] in led_in else led_in[0]
    assert led > 0
    return differences(expected, actual)


def _own_files(sample: Sample) -> dict[str, bytes]:
    trees = {log_dir.name: tree_of(log_dir) for log_dir in sample.log_dirs}
    return {
        f"{name}/{path}": content
        for name, tree in trees.items()
        for path, content in tree.items()
        if not _OTHER_COMPONENTS.match(path)
    }


def _is_log_end(tree: dict[str, bytes], path: str, offset: int) -> bool:
    log_dir, folder, _ = path.split("/")
    topic, _, partition = folder.rpartition("-")
    recovery_points = tree[f"{log_dir}/recovery-point-offset-checkpoint"].splitlines()
    return f"{topic} {partition} {offset}".encode() in recovery_points


def _epochs_before(epoch: int) -> list[list[int]]:
    """In which epochs the broker may have led before, since it started: none, or the one that it was stopped in.

    It is to be seen where the log claims an epoch above both, whose bits were flipped.
    """
    return [[], *([before] for before in range(min(epoch, 50)))]


def _with_leadership(content: bytes, epochs: list[int], start: int) -> bytes:
    """LeaderEpochFileCache.assign, entry by entry: later and conflicting entries go, the new one comes."""
    kept: list[tuple[int, int]] = []
    for one in [*_entries(content), *((epoch, start) for epoch in epochs)]:
        if not kept or one[0] != kept[-1][0] or one[1] < kept[-1][1]:
            kept = [entry for entry in kept if entry[0] < one[0] and entry[1] < one[1]] + [one]
    lines = ["0", str(len(kept)), *(f"{epoch} {start}" for epoch, start in kept)]
    return "".join(f"{line}\n" for line in lines).encode()


def _entries(content: bytes) -> list[tuple[int, int]]:
    pairs = (line.split() for line in content.decode().splitlines()[2:])
    return [(int(epoch), int(start)) for epoch, start in pairs]
