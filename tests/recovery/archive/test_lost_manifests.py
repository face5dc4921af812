"""Segments of the Aiven plugin whose manifest is lost or malformed: named, and left out alone if that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.records.damage import Corrupt, LeftOut
from recovery.archive.records.record_columns import ReadOptions
from recovery.errors import DamagedSegmentError
from tests.logs.archives import MANIFEST, WrittenArchive, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

NAMES = ("offset", "fault")


@pytest.fixture
def archive(tmp_path: Path) -> WrittenArchive:
    return write_archive(tmp_path / "archive", "aiven", made_copies(segments=4))


def emptied(manifest: Path) -> None:
    manifest.write_bytes(b"")


def garbled(manifest: Path) -> None:
    manifest.write_bytes(b"{")


@pytest.mark.parametrize("place", [1, 3])
@pytest.mark.parametrize(
    ("damage", "rule"), [(Path.unlink, "missing-object"), (emptied, "manifest"), (garbled, "manifest")]
)
def test_in_three_modes(
    damage: Callable[[Path], None], rule: str, place: int, archive: WrittenArchive
) -> None:
    log_dir = archive.root.parent / "log-dir"
    log_dir.mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
    everything = read(archive.root, *NAMES, metadata=(log_dir,))
    copy = archive.copies[place]
    manifest = archive.place(copy, MANIFEST)
    damage(manifest)
    with pytest.raises(DamagedSegmentError, match=rf"{manifest.name}: byte 0: {rule}: .*Remedy: restore"):
        read(archive.root, *NAMES, metadata=(log_dir,))
    expected = [
        row for row in everything if not copy.remote.start_offset <= row["offset"] <= copy.remote.end_offset
    ]
    left_out: list[LeftOut] = []
    options = ReadOptions(corrupt=Corrupt.SKIP)
    assert read(archive.root, *NAMES, options=options, metadata=(log_dir,), left_out=left_out) == expected
    assert {one.rule for one in left_out} == {rule}
    rows = read(archive.root, *NAMES, options=ReadOptions(corrupt=Corrupt.INCLUDE), metadata=(log_dir,))
    assert [row for row in rows if row["fault"] is None] == expected
    assert {row["fault"].partition(":")[0] for row in rows if row["fault"]} == {rule}

    committed = ReadOptions(corrupt=Corrupt.SKIP, is_committed=True)  # transactions are open over all seams
    with pytest.raises(
        DamagedSegmentError, match=rf"\.(log|rsm-manifest): .*({rule}|transaction-state): .*Remedy: "
    ):
        read(archive.root, *NAMES, options=committed, metadata=(log_dir,))
