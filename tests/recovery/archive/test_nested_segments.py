"""A segment within another, as after a change of leader: its rows, and those of the other one before and after it."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from recovery.archive.records.read_request import Selection
from tests.logs.archives import LOG, SegmentCopy, batch_positions, made_copies, write_archive
from tests.runs.readings import read


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


@pytest.mark.parametrize("task_segments", [1, 500])
def test_the_last_one_does_not_end_the_archive_early(task_segments: int, tmp_path: Path) -> None:
    copies = made_copies(segments=2, batches=10)
    sound = write_archive(tmp_path / "sound", "local-tiered", copies)
    nested = write_archive(tmp_path / "nested", "local-tiered", [*copies, part_of(copies[1], 4, 7)])
    selection = Selection(task_segments=task_segments)
    expected = read(sound.root, "offset", "value")
    assert read(nested.root, "offset", "value", selection=selection) == expected
