"""What the metadata topic does not tell fails the query: rows are not left out as if no broker read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.records.damage import Corrupt, LeftOut
from recovery.archive.records.record_columns import ReadOptions
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.remote_log_metadata import TOPIC
from tests.logs.archives import (
    WrittenArchive,
    batch_positions,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

NAMES = ("offset", "fault")


@pytest.fixture
def archive(tmp_path: Path) -> WrittenArchive:
    return write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=5))


def log_dir_of(archive: WrittenArchive, known_count: int = 5) -> Path:
    """A log dir whose metadata topic knows the first segments."""
    log_dir = archive.root.parent / "log-dir"
    log_dir.mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata[:known_count]), segment_batches=1000)
    return log_dir


def flip_a_record(log_dir: Path) -> None:
    (log,) = log_dir.rglob("*.log")
    data = bytearray(log.read_bytes())
    data[batch_positions(bytes(data))[0] + 70] ^= 1
    log.write_bytes(data)


def forget_everything(log_dir: Path) -> None:
    (log,) = log_dir.rglob("*.log")
    log.write_bytes(b"")


def forget_nothing(_log_dir: Path) -> None:
    """It knows the segments that it was made with."""


def sound_offsets(archive: WrittenArchive) -> list[int]:
    return [row["offset"] for row in read(archive.root, "offset")]


@pytest.mark.parametrize(
    ("damage", "known_count", "rule"),
    [
        (flip_a_record, 5, "metadata-topic"),
        (forget_nothing, 3, "not-compared"),
        (forget_everything, 5, "not-compared"),
    ],
)
def test_in_three_modes(
    damage: Callable[[Path], None], known_count: int, rule: str, archive: WrittenArchive
) -> None:
    expected = sound_offsets(archive)
    log_dir = log_dir_of(archive, known_count)
    damage(log_dir)
    with pytest.raises(DamagedSegmentError, match=rf": {rule}: .*Remedy: .*`metadata`"):
        read(archive.root, *NAMES, metadata=(log_dir,))
    left_out: list[LeftOut] = []
    options = ReadOptions(corrupt=Corrupt.SKIP)
    kept = read(archive.root, *NAMES, options=options, metadata=(log_dir,), left_out=left_out)
    assert {row["offset"] for row in kept} <= set(expected)
    assert rule in {one.rule for one in left_out}
    rows = read(archive.root, *NAMES, options=ReadOptions(corrupt=Corrupt.INCLUDE), metadata=(log_dir,))
    assert [row for row in rows if row["fault"] is None] == kept
    faults: list[dict[str, Any]] = [row for row in rows if row["fault"]]
    assert [row["fault"].partition(":")[0] for row in faults] == [one.rule for one in left_out]


def test_segments_that_the_topic_is_too_old_for_matter_only_where_they_are_requested(
    archive: WrittenArchive,
) -> None:
    end = archive.metadata[2].end_offset
    below = ReadOptions(highest_offset=end)
    rows = read(archive.root, "offset", options=below, metadata=(log_dir_of(archive, 3),))
    assert [row["offset"] for row in rows] == [offset for offset in sound_offsets(archive) if offset <= end]


def test_a_sound_topic_says_which_segments_are_orphans(archive: WrittenArchive) -> None:
    notes: list[str] = []
    archive.metadata.pop(0)
    rows = read(archive.root, "offset", metadata=(log_dir_of(archive),), notes=notes)
    assert min(row["offset"] for row in rows) >= archive.metadata[0].start_offset
    assert [note.partition(": ")[2] for note in notes] == [
        "no broker reads 1 that the metadata topic does not know: these segments are left out"
    ]


def test_log_dirs_without_the_topic_are_refused(archive: WrittenArchive, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"metadata={tmp_path}: no partition of {TOPIC} is in it"):
        read(archive.root, "offset", metadata=(tmp_path,))
