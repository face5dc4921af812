"""The remedies of refusals that a check of the segment would lift: each is followed, and the log is then loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.engine.report import PartitionReport
from tests.logs import builders
from tests.logs.edge_log import BASES, NOW_MS, PROPERTIES, Log, segment
from tests.logs.samples import MARKER, Sample
from tests.recovery.load.memory import METADATA
from tests.runs.driving import recover


@pytest.fixture
def log(ram_path: Path) -> Log:
    """The log of the edge cases, recovered: with a marker, indexes and snapshots."""
    made = Log(ram_path / "d")
    made.folder.mkdir(parents=True)
    (made.folder / "partition.metadata").write_bytes(METADATA)
    for base in BASES:
        made.file(base).write_bytes(segment(base))
    assert partition_of(made).status == "recovered"
    assert (made.log_dir / MARKER).exists()
    return made


def partition_of(log: Log, **options: bool) -> PartitionReport:
    sample = Sample(
        name="remedies",
        root=log.log_dir.parent,
        log_dirs=(log.log_dir,),
        properties=PROPERTIES,
        topic_configs={},
        now_ms=NOW_MS,
    )
    (partition,) = recover(sample, **options).partitions
    return partition


def remedy_of(log: Log, file: str) -> str:
    partition = partition_of(log)
    assert partition.status == "refused"
    (problem,) = partition.problems
    assert problem.file == file
    return problem.remedy


def spoil_last_batch(log: Log, base: int) -> None:
    """Give it a length that cannot be."""
    log.patch(base, log.positions(base)[-1] + 8, (5).to_bytes(4, "big"))


def test_the_active_segment_of_a_clean_dir(log: Log) -> None:
    spoil_last_batch(log, 24)
    log.file(24, ".index").write_bytes(b"")
    remedy = remedy_of(log, f"{24:020d}.log")
    assert remedy.startswith("run recover --force, which ignores the clean-shutdown marker: ")
    assert partition_of(log, force=True).status == "truncated"


def test_a_flushed_segment_of_an_unclean_dir(log: Log) -> None:
    (log.log_dir / MARKER).unlink()
    log.recovery_point(24)
    log.remove(".snapshot")
    spoil_last_batch(log, 0)
    remedy = remedy_of(log, f"{0:020d}.log")
    assert remedy.startswith("take the partition's line out of recovery-point-offset-checkpoint")
    assert "--force" not in remedy
    (log.log_dir / "recovery-point-offset-checkpoint").unlink()
    assert partition_of(log).status == "truncated"


def test_a_flushed_segment_of_a_clean_dir(log: Log) -> None:
    for base in (24, 36):
        log.file(base, ".snapshot").unlink()
    spoil_last_batch(log, 12)
    remedy = remedy_of(log, f"{12:020d}.log")
    assert "out of recovery-point-offset-checkpoint" in remedy
    assert "run recover --force" in remedy
    assert partition_of(log, force=True).status == "refused"
    (log.log_dir / "recovery-point-offset-checkpoint").unlink()
    assert partition_of(log).status == "refused"
    assert partition_of(log, force=True).status == "truncated"


def test_an_unflushed_segment_that_is_to_be_split(log: Log) -> None:
    (log.log_dir / MARKER).unlink()
    log.recovery_point(24)
    log.append(24, builders.data_batch(24 + 2**31 + 7, 3))
    log.append(24, b"\0" * 11 + b"\5" + b"\0" * 60)
    assert remedy_of(log, f"{24:020d}.log") == "restore the partition from another replica"


def test_a_swap(log: Log) -> None:
    swap = log.folder / f"{12:020d}.log.swap"
    shutil.copyfile(log.file(12), swap)
    log.patch(12, log.positions(12)[-1] + 8, (5).to_bytes(4, "big"), suffix=".log.swap")
    assert remedy_of(log, swap.name).startswith("move the .swap files of this offset away")
    swap.unlink()
    assert partition_of(log).status == "unchanged"


def test_a_folder_that_waits_for_its_deletion(log: Log) -> None:
    (log.log_dir / MARKER).unlink()
    log.remove(".snapshot")
    spoil_last_batch(log, 0)
    log.file(12, ".index").unlink()
    log.folder = log.folder.rename(log.log_dir / "t-0.0123456789abcdef0123456789abcdef-delete")
    assert remedy_of(log, f"{0:020d}.log").startswith("move the folder out of the log dir")
