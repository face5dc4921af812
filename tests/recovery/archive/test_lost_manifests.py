"""Segments of the Aiven plugin whose manifest is lost or malformed: named, and left out alone if that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.archive_ends import ArchiveEnds
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.offset_limits import OffsetLimits
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.stores.stores import open_store
from recovery.errors import DamagedSegmentError
from tests.logs.archives import MANIFEST, WrittenArchive, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.recovery.archive.test_archive_ends import ends_of
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


@pytest.mark.parametrize("tasks", [Selection(), Selection(task_segments=1)])
def test_how_later_transactions_ended_is_known(tasks: Selection, archive: WrittenArchive) -> None:
    """No transaction is open before the first segment, so its transaction index is not missed."""
    names, first = ("offset", "aborted"), archive.copies[0]
    everything = read(archive.root, *names)
    emptied(archive.place(first, MANIFEST))
    rows = read(archive.root, *names, options=ReadOptions(corrupt=Corrupt.SKIP), selection=tasks)
    assert rows == [row for row in everything if row["offset"] > first.remote.end_offset]


@pytest.mark.parametrize("damage", [emptied, garbled])
def test_where_the_archive_ends_is_not_known_then(
    damage: Callable[[Path], None], archive: WrittenArchive
) -> None:
    topic, last = archive.copies[-1].owner.topic, archive.copies[-1]
    manifest = archive.place(last, MANIFEST)
    content = manifest.read_bytes()
    damage(manifest)
    pattern = rf"{manifest.name}: (byte 0: )?manifest: .*Remedy: restore"
    with pytest.raises(DamagedSegmentError, match=pattern):
        ends_of(archive.root, topic=topic)
    selection = Selection(ends=OffsetLimits(option="it", everywhere=last.remote.end_offset))
    with pytest.raises(DamagedSegmentError, match=pattern):
        read(archive.root, "offset", selection=selection)
    store = open_store(str(archive.root))
    layout = layout_of(store)
    skipping = ReadRequest(
        url=store.url,
        layout=layout.name,
        options=ReadOptions(corrupt=Corrupt.SKIP),
        selection=Selection(),
        needs_aborted=False,
    )
    ends = ArchiveEnds(store, layout, skipping)

    def found() -> int:
        (span,) = ends.find(Selection(), None, on_seen=lambda _: None, on_note=lambda _: None)
        return span.end_offset

    assert found() == last.remote.start_offset
    manifest.write_bytes(content)
    assert found() == last.remote.end_offset + 1
