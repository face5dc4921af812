"""A whole broker dies of it, `recover --repair` takes it away, and the broker starts with nothing to recover."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.sample_brokers import broker_of
from tests.kafka.test_handoff import METADATA, RECOVERING
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import recover
from tests.runs.driving import log_bytes, lost_batches

pytestmark = [pytest.mark.java, pytest.mark.broker]


def foreign_file(log_dir: Path) -> None:
    (log_dir / "plain-1" / "foo.snapshot").write_bytes(b"")


def foreign_folder(log_dir: Path) -> None:
    """As the operating system makes it, but not root's: that one is never moved."""
    (log_dir / "lost+found").mkdir(0o700)
    if os.geteuid() == 0:
        os.chown(log_dir / "lost+found", 65534, 65534)


def epochs(log_dir: Path) -> None:
    (log_dir / "plain-1" / "leader-epoch-checkpoint").write_text("0\n1\n-1 0\n")


def transaction_index(log_dir: Path) -> None:
    segment = min((log_dir / "plain-1").glob("*.log"))
    segment.with_suffix(".txnindex").write_bytes(b"\x7f\x00" + bytes(32))


def recovery_points(log_dir: Path) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("1\n0\n")


def index_folder(log_dir: Path) -> None:
    segment = max((log_dir / "plain-1").glob("*.log"))
    segment.with_suffix(".index").unlink()
    segment.with_suffix(".index").mkdir()


def high_watermarks(log_dir: Path) -> None:
    (log_dir / "replication-offset-checkpoint").write_text("1\n0\n")


DAMAGES = [
    foreign_file,
    foreign_folder,
    epochs,
    transaction_index,
    recovery_points,
    index_folder,
    high_watermarks,
]


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    """Two log dirs after an unclean shutdown; the metadata log is in the first one."""
    found = unpack("stopped", ram_path)
    for log_dir in found.log_dirs:
        (log_dir / MARKER).unlink()
    assert (found.log_dirs[0] / METADATA).is_dir()
    assert (found.log_dirs[0] / "plain-1").is_dir()
    return found


@pytest.mark.parametrize(
    "damage", [foreign_folder, epochs, recovery_points, index_folder], ids=lambda damage: damage.__name__
)
def test_a_broker_dies_of_it_and_the_tool_tells(
    damage: Callable[[Path], None], sample: Sample, ram_path: Path
) -> None:
    damage(sample.log_dirs[0])
    with broker_of(sample, ram_path / "before") as broker:
        broker.launch()
        assert broker.wait_for_end() != 0
    assert recover(sample).exit_code == 4


def test_a_link_to_a_disk_that_is_not_mounted(sample: Sample, ram_path: Path) -> None:
    """A broker starts, and loses the log dir as soon as it makes the log anew."""
    log_dir = sample.log_dirs[1]
    name = next(path.name for path in log_dir.iterdir() if path.name.startswith("plain-"))
    (log_dir / name).rename(ram_path / name)
    (log_dir / name).symlink_to("/nowhere")
    with broker_of(sample, ram_path / "before") as broker:
        broker.start()
        broker.wait_for("FileAlreadyExistsException")
        broker.stop()
    done = recover(sample)
    assert done.exit_code == 4
    reasons = [one["reasons"] for one in done.report["logDirs"][1]["partitions"] if one["partition"] == name]
    assert "a dangling link with the name of a log's folder" in reasons[0][0]


def test_a_broker_starts_on_what_is_repaired(sample: Sample, ram_path: Path) -> None:
    for damage in DAMAGES:
        damage(sample.log_dirs[0])
    before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
    done = recover(sample, "--repair")
    assert done.exit_code == 0, done.stdout
    moves = [line for line in done.report["logDirs"][0]["actions"] if line.startswith("move ")]
    assert len(moves) >= len(DAMAGES)
    for log_dir in sample.log_dirs:
        assert lost_batches(before[log_dir], log_dir) == []
    with broker_of(sample, ram_path / "after") as broker:
        broker.start()
        assert {partition for partition, _ in RECOVERING.findall(broker.log)} <= {METADATA}
        assert broker.log.count("since clean shutdown file was found") == 2
        broker.stop()
