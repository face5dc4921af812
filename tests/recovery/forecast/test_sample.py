"""The sample of an estimate: pieces begin at batches, lie everywhere, and are dropped from the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import recovery
from recovery.forecast import sample as sampling
from recovery.forecast.sample import Sample, _batch_before, _pieces, take_sample
from recovery.forecast.survey import LogToRecover
from recovery.load.forecast import SegmentToRecover
from recovery.read.page_cache import absent_bytes
from segfmt.filenames import log_name, offset_index_name
from tests.logs.samples import unpack


def log_of(folder: Path, sizes: dict[int, int]) -> LogToRecover:
    segments = tuple(
        SegmentToRecover(log_name(base), base, size, True, False) for base, size in sizes.items()
    )
    return LogToRecover(folder=str(folder), topic="t", segments=segments)


@pytest.mark.parametrize("zero_entries", [0, 1000])
@pytest.mark.parametrize("position", [0, 1, 99, 100, 101, 250, 500, 9999])
def test_a_batch_at_or_before_a_position(tmp_path: Path, zero_entries: int, position: int) -> None:
    positions = [100, 200, 300, 500]
    entries = np.zeros(len(positions) + zero_entries, np.dtype([("offset", ">i4"), ("position", ">i4")]))
    entries["offset"][: len(positions)] = range(1, len(positions) + 1)
    entries["position"][: len(positions)] = positions
    (tmp_path / offset_index_name(0)).write_bytes(entries.tobytes() + b"\0\0\0")
    segment = SegmentToRecover(log_name(0), 0, 10_000, True, False)
    expected = max((one for one in positions if one <= position), default=0)
    assert _batch_before(str(tmp_path), segment, position) == expected


def test_without_an_index_a_piece_begins_with_the_segment(tmp_path: Path) -> None:
    assert _batch_before(str(tmp_path), SegmentToRecover(log_name(0), 0, 10_000, True, True), 5000) == 0


def test_pieces_are_spread_over_all_bytes(tmp_path: Path) -> None:
    import random

    logs = [log_of(tmp_path / str(number), {0: 10 << 20, 7: 30 << 20}) for number in range(10)]
    pieces = list(_pieces(logs, 40 << 20, random.Random(1)))
    by_segment = [piece.segment.base_offset for piece in pieces]
    assert {piece.folder for piece in pieces} == {log.folder for log in logs}
    assert by_segment.count(7) >= by_segment.count(0)
    assert list(_pieces(logs, 40 << 20, random.Random(1))) == pieces


def test_small_logs_are_read_as_a_whole(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    report = recovery.estimate(None, config=sample.properties, topic_configs=sample.topic_configs)
    assert report.size_bytes / 2 < report.sample.read_bytes <= report.size_bytes
    again = recovery.estimate(None, config=sample.properties, topic_configs=sample.topic_configs)
    assert (again.sample.read_bytes, again.sample.batch_count) == (
        report.sample.read_bytes,
        report.sample.batch_count,
    )


def test_a_wrong_index_does_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = unpack("crashed", tmp_path)
    log = max(sample.log_dirs[0].glob("codec-*/*.log"), key=lambda path: path.stat().st_size)
    size_bytes = log.stat().st_size
    misled = log_of(log.parent, {int(log.stem): size_bytes})
    piece = sampling._Piece(misled.folder, misled.segments[0], 7, size_bytes)  # in the middle of a batch
    monkeypatch.setattr(sampling, "_pieces", lambda *_: [piece])
    taken = take_sample([misled], most_bytes=size_bytes, seed=3)
    assert taken.batch_count > 0
    assert 0 < taken.read_bytes <= size_bytes


def test_what_was_not_cached_is_not_cached_afterwards(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    log = max(sample.log_dirs[0].glob("codec-*/*.log"), key=lambda path: path.stat().st_size)
    size_bytes = log.stat().st_size
    descriptor = os.open(log, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not absent_bytes(descriptor, 0, size_bytes):
            return  # a file system in memory: nothing can be dropped from it
        logs = [log_of(log.parent, {int(log.stem): size_bytes})]
        taken = take_sample(logs, most_bytes=size_bytes, seed=0)
        assert taken.absent_bytes > 0
        assert taken.disk_s > 0
        assert absent_bytes(descriptor, 0, size_bytes) > 0
        while os.read(descriptor, 1 << 20):
            pass
        taken = take_sample(logs, most_bytes=size_bytes, seed=0)
        assert (taken.absent_bytes, taken.disk_s) == (0, 0.0)
        assert absent_bytes(descriptor, 0, size_bytes) == 0
    finally:
        os.close(descriptor)


def test_nothing_to_read_is_no_speed() -> None:
    taken = take_sample([], most_bytes=1 << 20, seed=0)
    assert (taken.read_bytes, taken.bytes_per_second) == (0, None)
    assert taken.interpreter_s > 0
    assert taken.contention >= 1
    assert Sample().bytes_per_second is None
