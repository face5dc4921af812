"""What the log dirs of `--metadata` say of where logs begin: a checkpoint that cannot be right excuses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.archive.inventory.report import InventoryReport
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from tests.logs.archives import WrittenArchive, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import gone_through, objects_of

COPIES = made_copies(segments=6)
END = COPIES[-1].remote.end_offset + 1


@pytest.fixture
def archive(tmp_path: Path) -> WrittenArchive:
    return write_archive(tmp_path / "archive", "local-tiered", COPIES)


@pytest.fixture
def log_dir(archive: WrittenArchive) -> Path:
    path = write_archive(archive.root.with_name("log-dir"), "plain", COPIES).root
    write_metadata(path, metadata_records(archive.metadata), segment_batches=1000)
    return path


def taken(archive: WrittenArchive, log_dir: Path) -> InventoryReport:
    return inventory(ArchiveOptions(url=str(archive.root), metadata=(str(log_dir),)))


def lose(archive: WrittenArchive, *numbers: int) -> None:
    for number in numbers:
        for part in archive.parts(COPIES[number]):
            archive.place(COPIES[number], part).unlink()


def start_epochs_at(log_dir: Path, *entries: LeaderEpochEntry) -> None:
    (log_dir / "made-0" / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint(entries))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_earlier_epochs_than_a_log_dir_knows_are_not_deleted(
    number: int, archive: WrittenArchive, log_dir: Path
) -> None:
    """A follower that began anew has forgotten them; its first line may be within a segment."""
    entries = read_leader_epoch_checkpoint((log_dir / "made-0" / LEADER_EPOCH_CHECKPOINT).read_bytes())
    for start_offset in (COPIES[number].remote.start_offset, COPIES[number].remote.start_offset + 7):
        first = [entry for entry in entries if entry.start_offset <= start_offset][-1]
        later = [entry for entry in entries if entry.start_offset > start_offset]
        start_epochs_at(log_dir, LeaderEpochEntry(first.epoch, start_offset), *later)
        assert taken(archive, log_dir).rules == {}
    lose(archive, 0)
    report = taken(archive, log_dir)
    assert dict(report.rules) == {("damage", "missing-segment"): 1}
    assert report.exit_code == 2


@pytest.mark.parametrize("start_offset", [-1, END + 1, 9999])
def test_a_log_start_after_the_end_of_the_log_excuses_nothing(
    start_offset: int, archive: WrittenArchive, log_dir: Path
) -> None:
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\nmade 0 {start_offset}\n")
    lose(archive, 1)
    report = taken(archive, log_dir)
    assert dict(report.rules) == {("damage", "missing-segment"): 1, ("damage", "log-start"): 1}
    (finding,) = (finding for _, finding in report.findings if finding.rule == "log-start")
    assert finding.file == f"{log_dir}/{LOG_START_OFFSET_CHECKPOINT}"
    assert f"log start offset {start_offset}, the log ends at {END}" in finding.detail
    found = objects_of(gone_through(archive.root, metadata=[log_dir])).values()
    assert not [one for one in found if "below-log-start" in {of.rule for of in one.verdict.findings}]


@pytest.mark.parametrize("name", [LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT])
def test_a_malformed_checkpoint_is_named(name: str, archive: WrittenArchive, log_dir: Path) -> None:
    (log_dir / name).write_text("0\n7\nmade 0 5\n")
    report = taken(archive, log_dir)
    assert dict(report.rules) == {("damage", "checkpoint"): 1}
    assert report.findings[0][1].file == f"{log_dir}/{name}"


def test_a_log_start_that_can_be_is_believed(archive: WrittenArchive, log_dir: Path) -> None:
    start_offset = COPIES[2].remote.start_offset
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\nmade 0 {start_offset}\n")
    lose(archive, 0, 1)
    rules = dict(taken(archive, log_dir).rules)
    assert rules == {("note", "missing-segment"): 2, ("note", "below-log-start"): 2}


def test_offsets_between_the_archive_and_the_local_log_are_a_gap(
    archive: WrittenArchive, log_dir: Path
) -> None:
    """A broker removes a segment only after it was copied; here the topic knows all but the last two."""
    shutil.rmtree(log_dir / "__remote_log_metadata-0")
    write_metadata(log_dir, metadata_records(archive.metadata[:4]), segment_batches=1000)
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nmade 0 0\n")
    lose(archive, 4, 5)
    for number, copy in enumerate(COPIES[:5]):
        assert taken(archive, log_dir).rules == {}, number
        for path in (log_dir / "made-0").glob(f"{copy.remote.start_offset:020d}.*"):
            path.unlink()
    report = taken(archive, log_dir)
    assert dict(report.rules) == {("damage", "archive-gap"): 1}
    gap = f"offsets {COPIES[4].remote.start_offset} to {COPIES[5].remote.start_offset - 1} are in no finished"
    assert report.findings[0][1].detail.startswith(gap)
