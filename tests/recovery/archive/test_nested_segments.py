"""A segment within another, as after a change of leader: its rows, and those of the other one before and after it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from recovery.archive.records.damage import LeftOut
from recovery.archive.records.offset_limits import OffsetLimits
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from segfmt import byte_layout
from tests.logs.archives import (
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    SegmentCopy,
    WrittenArchive,
    batch_positions,
    made_copies,
    write_archive,
)
from tests.recovery.archive.test_archive_ends import ends_of
from tests.runs.readings import read

COPIES = made_copies(topic="plain", segments=6)
NAMES = "offset", "value", "aborted"


def part_of(copy: SegmentCopy, first: int, last: int) -> SegmentCopy:
    """Some batches of a segment as a segment of their own, with no entries in its indexes."""
    log = copy.files[LOG]
    positions = batch_positions(log)
    (base_offset,) = struct.unpack_from(">q", log, positions[first])
    (end_offset,) = struct.unpack_from(">q", log, positions[last])
    part = log[positions[first] : positions[last]]
    files = {**{name: b"" if "index" in name else data for name, data in copy.files.items()}, LOG: part}
    remote = replace(
        copy.remote,
        segment_id=UUID(int=(1 << 76) + 5),
        start_offset=base_offset,
        end_offset=end_offset - 1,
        size_bytes=len(part),
    )
    return SegmentCopy(remote=remote, files=files)


def joined(copies: Sequence[SegmentCopy]) -> SegmentCopy:
    """Consecutive segments as one, which another leader has rolled later."""
    first, last = copies[0].remote, copies[-1].remote
    indexes, time_indexes, position = [], [], 0
    for copy in copies:
        index = np.frombuffer(copy.files[INDEX], byte_layout.OFFSET_INDEX_DTYPE).copy()
        time_index = np.frombuffer(copy.files[TIME_INDEX], byte_layout.TIME_INDEX_DTYPE).copy()
        for entries in (index, time_index):
            entries["relative_offset"] += copy.remote.start_offset - first.start_offset
        index["position"] += position
        position += len(copy.files[LOG])
        indexes.append(index.tobytes())
        time_indexes.append(time_index.tobytes())
    files = {
        **copies[-1].files,
        LOG: b"".join(copy.files[LOG] for copy in copies),
        INDEX: b"".join(indexes),
        TIME_INDEX: b"".join(time_indexes),
        TXN_INDEX: b"".join(copy.files.get(TXN_INDEX, b"") for copy in copies),
    }
    epochs = {entry.epoch: entry for copy in reversed(copies) for entry in copy.remote.leader_epochs}
    remote = replace(
        last,
        segment_id=UUID(int=(1 << 76) + 7),
        start_offset=first.start_offset,
        leader_epochs=tuple(sorted(epochs.values())),
        size_bytes=position,
        has_no_transactions=not files[TXN_INDEX],
    )
    return SegmentCopy(remote=remote, files=files)


LONG, SHORT = joined(COPIES[2:5]), COPIES[3]
NESTED = {
    "middle": ([*COPIES[:2], LONG, SHORT, COPIES[5]], COPIES),
    "end": ([*COPIES[:2], LONG, SHORT], COPIES[:5]),
}
REST = SHORT.remote.end_offset + 3
"""An offset that the longer one alone has."""


class TestNested:
    """The shorter one in the middle of a partition, and at its end."""

    @pytest.fixture(params=NESTED)
    def place(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(params=["local-tiered", "aiven"])
    def archives(self, request: pytest.FixtureRequest, place: str, tmp_path: Path) -> list[WrittenArchive]:
        """The archive with both, and the same log without."""
        return [
            write_archive(tmp_path / name, request.param, copies)
            for name, copies in zip(("nested", "sound"), NESTED[place], strict=True)
        ]

    @pytest.mark.parametrize("is_committed", [False, True])
    @pytest.mark.parametrize("task_segments", [1, 2, 500])
    def test_rows_are_those_of_the_log(
        self, task_segments: int, is_committed: bool, archives: list[WrittenArchive]
    ) -> None:
        selection = Selection(task_segments=task_segments)
        for given in ({}, {"lowest_offset": REST}, {"highest_offset": REST}, {"highest_offset": REST - 5}):
            options = ReadOptions(is_committed=is_committed, **given)
            found, expected = (
                read(archive.root, *NAMES, options=options, selection=selection) for archive in archives
            )
            assert found == expected
            assert found

    def test_offsets_of_the_rest_are_there(self, archives: list[WrittenArchive]) -> None:
        for name in ("starts", "ends"):
            limits: dict[str, Any] = {name: OffsetLimits(option="it", everywhere=REST)}
            found, expected = (
                read(archive.root, "offset", selection=Selection(**limits)) for archive in archives
            )
            assert found == expected
            assert found

    @pytest.mark.parametrize("is_committed", [False, True])
    def test_the_archive_ends_where_the_log_does(
        self, is_committed: bool, archives: list[WrittenArchive]
    ) -> None:
        found, expected = (ends_of(archive.root, is_committed=is_committed) for archive in archives)
        assert found == expected


@pytest.mark.parametrize("task_segments", [1, 500])
@pytest.mark.parametrize("lowest_offset", [None, REST])
def test_damage_of_the_longer_one_is_told_of_once(
    task_segments: int, lowest_offset: int | None, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path / "archive", "local-tiered", NESTED["middle"][0])
    data = bytearray(LONG.files[LOG])
    data[batch_positions(bytes(data))[-2] + 70] ^= 1
    archive.place(LONG, LOG).write_bytes(data)
    selection = Selection(task_segments=task_segments)
    with pytest.raises(DamagedSegmentError, match="checksum"):
        read(archive.root, "offset", options=ReadOptions(lowest_offset=lowest_offset), selection=selection)
    left_out: list[LeftOut] = []
    options = ReadOptions(corrupt=Corrupt.SKIP, lowest_offset=lowest_offset)
    rows = read(archive.root, "offset", options=options, selection=selection, left_out=left_out)
    assert [one.rule for one in left_out] == ["checksum"]
    options = ReadOptions(corrupt=Corrupt.INCLUDE, lowest_offset=lowest_offset)
    included = read(archive.root, "offset", "fault", options=options, selection=selection)
    assert sorted(row["offset"] for row in included if row["fault"] is None) == [
        row["offset"] for row in rows
    ]
    assert len(included) > len(rows)


@pytest.mark.parametrize("task_segments", [1, 500])
def test_a_cut_rest_is_missing(task_segments: int, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", "local-tiered", NESTED["end"][0])
    data = LONG.files[LOG]
    archive.place(LONG, LOG).write_bytes(data[: batch_positions(data)[-2]])
    with pytest.raises(DamagedSegmentError, match=": cut-end: "):
        read(archive.root, "offset", selection=Selection(task_segments=task_segments))


@pytest.mark.parametrize("task_segments", [1, 500])
def test_the_last_one_does_not_end_the_archive_early(task_segments: int, tmp_path: Path) -> None:
    copies = COPIES[:2]
    sound = write_archive(tmp_path / "sound", "local-tiered", copies)
    nested = write_archive(tmp_path / "nested", "local-tiered", [*copies, part_of(copies[1], 4, 7)])
    selection = Selection(task_segments=task_segments)
    expected = read(sound.root, "offset", "value")
    assert read(nested.root, "offset", "value", selection=selection) == expected
