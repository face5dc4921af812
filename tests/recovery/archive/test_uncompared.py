"""What the metadata topic does not tell fails the query: rows are not left out as if no broker read them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.records.damage import LeftOut
from recovery.archive.records.partition_plans import MOST_READINGS_AGAIN
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Level
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.remote_log_metadata import (
    TOPIC,
    RemoteLogMetadata,
    RemoteSegment,
    RemoteSegmentState,
    encode_remote_log_metadata,
)
from tests.logs.archives import (
    LOG,
    WrittenArchive,
    batch_positions,
    doubled,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

NAMES = ("offset", "fault")
Changes = Callable[[str, Sequence[Callable[[], None]]], list[str]]


@pytest.fixture
def archive(tmp_path: Path) -> WrittenArchive:
    return write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=5))


def log_dir_of(archive: WrittenArchive, known_count: int = 5) -> Path:
    """A log dir whose metadata topic knows the first segments."""
    log_dir = archive.root.parent / "log-dir"
    log_dir.mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata[:known_count]), segment_batches=1000)
    return log_dir


def test_a_log_of_another_size_than_was_told_is_named(archive: WrittenArchive) -> None:
    copy = archive.copies[2]
    log = archive.place(copy, LOG)
    log.write_bytes(log.read_bytes()[: batch_positions(copy.files[LOG])[-2]])
    left_out: list[LeftOut] = []
    options = ReadOptions(corrupt=Corrupt.SKIP)
    read(archive.root, *NAMES, metadata=(log_dir_of(archive),), options=options, left_out=left_out)
    (size,) = (one for one in left_out if one.rule == "object-size")
    assert size.detail == (
        f"{log.stat().st_size} bytes, {copy.remote.size_bytes} according to the metadata topic"
    )


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


def test_a_segment_copied_again_since_is_no_orphan(archive: WrittenArchive) -> None:
    """The topic knows of the copy that was begun before it, and of nothing that replaced it."""
    begun = archive.copies[-1]
    again = doubled(archive.copies, 4)[-1]
    twin = write_archive(archive.root.with_name("again"), archive.layout, [again])
    shutil.copytree(twin.root, archive.root, dirs_exist_ok=True)
    archive.place(begun, LOG).unlink()
    archive.metadata[-1] = replace(archive.metadata[-1], state=RemoteSegmentState.COPY_SEGMENT_STARTED)
    log_dir = log_dir_of(archive)
    with pytest.raises(
        DamagedSegmentError, match=r"not-compared: .* nor any finished one that has offset \d+: "
    ):
        read(archive.root, *NAMES, metadata=(log_dir,))


def test_segments_that_the_topic_is_too_old_for_matter_only_where_they_are_requested(
    archive: WrittenArchive,
) -> None:
    end = archive.metadata[2].end_offset
    below = ReadOptions(highest_offset=end)
    rows = read(archive.root, "offset", options=below, metadata=(log_dir_of(archive, 3),))
    assert [row["offset"] for row in rows] == [offset for offset in sound_offsets(archive) if offset <= end]


def test_a_sound_topic_says_which_segments_are_orphans(archive: WrittenArchive) -> None:
    """Those whose offsets others have."""
    notes: list[str] = []
    expected = sound_offsets(archive)
    twin = write_archive(archive.root.with_name("again"), archive.layout, [doubled(archive.copies, 0)[-1]])
    shutil.copytree(twin.root, archive.root, dirs_exist_ok=True)
    rows = read(archive.root, "offset", metadata=(log_dir_of(archive),), notes=notes)
    assert [row["offset"] for row in rows] == expected
    assert [note.partition(": ")[2] for note in notes] == [
        "no broker reads 1 that the metadata topic does not know: these segments are left out"
    ]


def test_log_dirs_that_say_nothing_are_refused(archive: WrittenArchive, tmp_path: Path) -> None:
    log_dir = log_dir_of(archive)
    for empty, words in (
        (tmp_path / "gone", "no such folder"),
        (archive.root.parent, "no folder of a partition"),
    ):
        with pytest.raises(UsageError, match=f"metadata={empty}: {words}.*: give log dirs of brokers"):
            read(archive.root, "offset", metadata=(log_dir, empty))


def test_log_dirs_without_the_topic_are_refused(archive: WrittenArchive, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(UsageError, match=f"metadata={tmp_path}: no partition of {TOPIC} is in it"):
        read(archive.root, "offset", metadata=(tmp_path,))


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Makes one change before each listing of a partition; returns the prefixes that were listed."""

    def begin(name: str, pending: Sequence[Callable[[], None]]) -> list[str]:
        list_level, left, listed = LocalStore.list_level, list(pending), []

        def changing(store: LocalStore, prefix: str) -> Level:
            if prefix.startswith(name):
                listed.append(prefix)
                if left:
                    left.pop(0)()
            return list_level(store, prefix)

        monkeypatch.setattr(LocalStore, "list_level", changing)
        return listed

    return begin


def rewrite_topic(log_dir: Path, segments: Sequence[RemoteSegment]) -> None:
    shutil.rmtree(log_dir)
    write_metadata(log_dir, metadata_records(segments), segment_batches=1000)


def partition_name(archive: WrittenArchive) -> str:
    return archive.place(archive.copies[0], LOG).parent.name


def test_segments_that_are_archived_after_the_topic_was_read(
    archive: WrittenArchive, tmp_path: Path, changes: Changes
) -> None:
    expected = sound_offsets(archive)
    growing = write_archive(tmp_path / "growing", "local-tiered", archive.copies[:2])
    log_dir = log_dir_of(growing)

    def archive_one(count: int) -> None:
        copy = archive.copies[count - 1]
        for part in archive.parts(copy):
            shutil.copy(archive.place(copy, part), growing.place(copy, part))
        rewrite_topic(log_dir, archive.metadata[:count])

    listed = changes(partition_name(archive), [lambda: archive_one(3), lambda: archive_one(4)])
    found = [row["offset"] for row in read(growing.root, "offset", metadata=(log_dir,))]
    assert found == [offset for offset in expected if offset < archive.copies[4].remote.start_offset]
    assert len(listed) == 3


def test_segments_that_are_deleted_after_the_topic_was_read(
    archive: WrittenArchive, changes: Changes
) -> None:
    expected = sound_offsets(archive)
    log_dir = log_dir_of(archive)

    def delete_two() -> None:
        for copy in archive.copies[:2]:
            for part in archive.parts(copy):
                archive.place(copy, part).unlink()
        deleted = [
            replace(segment, state=RemoteSegmentState.DELETE_SEGMENT_FINISHED)
            for segment in archive.metadata[:2]
        ]
        rewrite_topic(log_dir, [*deleted, *archive.metadata[2:]])

    changes(partition_name(archive), [delete_two])
    found = [row["offset"] for row in read(archive.root, "offset", metadata=(log_dir,))]
    assert found == [offset for offset in expected if offset >= archive.copies[2].remote.start_offset]


def test_a_topic_that_stays_as_it_is_is_not_read_again(archive: WrittenArchive, changes: Changes) -> None:
    log_dir = log_dir_of(archive, 3)
    listed = changes(partition_name(archive), [])
    with pytest.raises(DamagedSegmentError, match=": not-compared: "):
        read(archive.root, "offset", metadata=(log_dir,))
    assert len(listed) == 1


def test_a_topic_that_keeps_behind_is_not_waited_for(archive: WrittenArchive, changes: Changes) -> None:
    log_dir = log_dir_of(archive, 3)
    (log,) = log_dir.rglob("*.log")
    listed = changes(partition_name(archive), [partial(os.utime, log, ns=(1, n)) for n in range(20)])
    with pytest.raises(DamagedSegmentError, match=": not-compared: "):
        read(archive.root, "offset", metadata=(log_dir,))
    assert len(listed) == 1 + MOST_READINGS_AGAIN


def test_a_malformed_record_hides_the_segments_of_its_partition_alone(tmp_path: Path) -> None:
    copies = [*made_copies(segments=2), *made_copies(partition=1, segments=2)]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    log_dir = tmp_path / "log-dir"
    records: list[RemoteLogMetadata | bytes] = [*metadata_records(archive.metadata)]
    records.append(encode_remote_log_metadata(metadata_records(archive.metadata[:1])[-1])[:-3])
    write_metadata(log_dir, records, segment_batches=1000)
    for _ in range(5):  # partitions are planned side by side
        left_out: list[LeftOut] = []
        read(
            archive.root,
            "offset",
            options=ReadOptions(corrupt=Corrupt.SKIP),
            metadata=(log_dir,),
            left_out=left_out,
        )
        assert [one.rule for one in left_out] == ["metadata-topic"]
    with pytest.raises(DamagedSegmentError, match=r": metadata-topic: malformed-record: .*made-0"):
        read(archive.root, "offset", metadata=(log_dir,))
    second = Selection(partitions=frozenset({1}))
    assert read(archive.root, "offset", selection=second, metadata=(log_dir,))
