"""A marker that is wrong: what a plain recovery says of it, and what `force` makes of the dir."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import recovery
from recovery.engine.report import RecoveryReport
from tests.brokers import Oracle
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack
from tests.runs.driving import log_bytes, lost_batches, recover

VICTIM = "plain-0"


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    """The log dirs of a broker that was shut down cleanly."""
    found = unpack("stopped", ram_path)
    assert all((log_dir / MARKER).exists() for log_dir in found.log_dirs)
    return found


def active_log(sample: Sample) -> Path:
    (folder,) = [log_dir / VICTIM for log_dir in sample.log_dirs if (log_dir / VICTIM).is_dir()]
    return max(folder.glob("*.log"))


def tear(log: Path) -> None:
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 10)


def add_junk(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"junk" * 4)


def lose_the_end(log: Path) -> None:
    """As if the pages of all batches had never reached the disk."""
    with log.open("r+b") as file:
        file.truncate(0)


def lead_astray(log: Path) -> None:
    """An index with a position behind the end of the log."""
    with log.with_suffix(".index").open("ab") as file:
        file.write((1 << 20).to_bytes(4, "big") + (1 << 28).to_bytes(4, "big"))


def warnings_of(report: RecoveryReport) -> list[str]:
    return [warning for partition in report.partitions for warning in partition.warnings]


@pytest.mark.parametrize(
    ("damage", "rest"),
    [
        (tear, "are hidden: a broker looks for them in {log}, and finds none of them"),
        (add_junk, None),
        (lose_the_end, "are missing at the end of the log"),
        (lead_astray, "are hidden: a broker looks for them in {log}, and finds none of them"),
    ],
)
def test_a_wrong_marker_is_said_aloud_and_no_log_is_touched(
    damage: Callable[[Path], None], rest: str | None, sample: Sample
) -> None:
    damage(active_log(sample))
    found = log_bytes(sample.root)
    report = recover(sample)
    assert log_bytes(sample.root) == found
    (warning,) = warnings_of(report)
    assert warning.startswith("the clean-shutdown marker is wrong: ")
    assert "Remedy: recover --force, which ignores the marker" in warning
    assert warning in report.to_text()
    holes = [str(hole) for partition in report.partitions for hole in partition.holes]
    assert len(holes) == (0 if rest is None else 1)
    assert all(hole.endswith((rest or "").format(log=active_log(sample).name)) for hole in holes)
    assert report.exit_code == (0 if rest is None else 2)


def test_a_right_marker_is_not_doubted(sample: Sample) -> None:
    assert warnings_of(recover(sample)) == []


def test_a_torn_tail_is_told_with_place_and_size(sample: Sample) -> None:
    log = active_log(sample)
    size_bytes = log.stat().st_size
    tear(log)
    (warning,) = warnings_of(recover(sample))
    end, tail = (int(words.split()[-1].replace(",", "")) for words in _around(warning))
    assert end + tail == size_bytes - 10


def _around(warning: str) -> tuple[str, str]:
    before, _, rest = warning.partition(" bytes of ")
    return rest.partition("from byte ")[2].partition(" on are")[0], before


@pytest.mark.java
@pytest.mark.parametrize("damage", [tear, add_junk, lead_astray])
def test_force_leaves_what_the_broker_leaves_without_the_marker(
    damage: Callable[[Path], None], sample: Sample, oracle: Oracle, ram_path: Path
) -> None:
    damage(active_log(sample))
    theirs = [shutil.copytree(log_dir, ram_path / "theirs" / log_dir.name) for log_dir in sample.log_dirs]
    for log_dir in theirs:
        (log_dir / MARKER).unlink()
    outcome = oracle.load(
        theirs, now_ms=sample.now_ms, properties=sample.properties, topic_configs=sample.topic_configs
    )
    assert outcome.outcome == "loaded"
    before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
    announced = recover(sample, force=True, dry_run=True)
    report = recover(sample, force=True)
    assert [log_dir.had_clean_shutdown for log_dir in report.log_dirs] == [True, True]
    assert announced.exit_code == report.exit_code == (0 if damage is lead_astray else 2)
    for ours, broker_dir in zip(sample.log_dirs, theirs, strict=True):
        assert differences(tree_of(broker_dir), tree_of(ours)) == []
        assert lost_batches(before[ours], ours) == []
    assert warnings_of(recover(sample)) == []


def test_force_leaves_the_marker_where_it_turns_out_to_be_right(sample: Sample) -> None:
    recover(sample, force=True)
    for log_dir in sample.log_dirs:
        (log_dir / MARKER).write_text('{"version":0,"brokerEpoch":7}')
    report = recover(sample, force=True)
    assert report.exit_code == 0
    assert [(log_dir / MARKER).read_text() for log_dir in sample.log_dirs] == [
        '{"version":0,"brokerEpoch":7}'
    ] * 2


def test_the_library_has_it_too(sample: Sample) -> None:
    tear(active_log(sample))
    paths = [str(log_dir) for log_dir in sample.log_dirs]
    options = {"config": dict(sample.properties), "now_ms": sample.now_ms, "dry_run": True}
    assert recovery.recover(paths, **options).exit_code == 2
    assert recovery.recover(paths, force=True, **options).exit_code == 2
