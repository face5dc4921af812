"""What is asked of the page cache, and that only what came from disk leaves it again."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from recovery.load.model import LogSettings, Original, ScanRequest
from recovery.read import page_cache as module
from recovery.read.page_cache import STEP_BYTES, CachedFile, is_cached, kernel_read_ahead_bytes
from recovery.read.partition_files import PartitionFiles
from tests.logs.builders import data_batch

LOG = "00000000000000000000.log"


class Advice:
    """Stands for the kernel: holds which steps are cached, and notes what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cached: set[int], read_ahead_bytes: int) -> None:
        self.given: list[tuple[int, int, int]] = []
        self.looked_at: list[int] = []

        def look(_: int, start: int, end: int) -> bool:
            self.looked_at.append(start)
            return set(range(start, end, STEP_BYTES)) <= cached

        monkeypatch.setattr(module, "is_cached", look)
        monkeypatch.setattr(module, "kernel_read_ahead_bytes", lambda _: read_ahead_bytes)
        monkeypatch.setattr(
            os, "posix_fadvise", lambda _, start, size, what: self.given.append((what, start, size))
        )

    def of(self, what: int) -> list[tuple[int, int]]:
        return [(start, size) for kind, start, size in self.given if kind == what]


@pytest.fixture
def descriptor(tmp_path: Path):
    path = tmp_path / "file"
    with path.open("wb") as opened:
        opened.truncate(5 * STEP_BYTES)
    found = os.open(path, os.O_RDONLY)
    yield found
    os.close(found)


def test_two_steps_ahead_are_asked_for_where_the_kernel_asks_for_little(descriptor: int, monkeypatch) -> None:
    advice = Advice(monkeypatch, cached={STEP_BYTES}, read_ahead_bytes=128 << 10)
    cached = CachedFile(descriptor, gives_back=False)
    cached.approach(0)
    assert advice.of(os.POSIX_FADV_WILLNEED) == [(0, STEP_BYTES)]  # the second one is there
    cached.approach(10)
    assert advice.of(os.POSIX_FADV_WILLNEED) == [(0, STEP_BYTES), (2 * STEP_BYTES, STEP_BYTES)]
    cached.approach(5 * STEP_BYTES - 1)
    assert [start for start, _ in advice.of(os.POSIX_FADV_WILLNEED)] == [n * STEP_BYTES for n in (0, 2, 3, 4)]
    assert not advice.of(os.POSIX_FADV_DONTNEED)


def test_nothing_is_asked_for_where_the_kernel_reads_far_ahead(descriptor: int, monkeypatch) -> None:
    advice = Advice(monkeypatch, cached=set(), read_ahead_bytes=8 << 20)
    CachedFile(descriptor, gives_back=False).approach(0)
    assert not advice.given


def test_what_was_there_before_stays(descriptor: int, monkeypatch) -> None:
    advice = Advice(monkeypatch, cached={STEP_BYTES}, read_ahead_bytes=8 << 20)
    cached = CachedFile(descriptor, gives_back=True, position=0, end_position=3 * STEP_BYTES)
    cached.leave(STEP_BYTES - 1)
    assert not advice.given
    cached.leave(STEP_BYTES)
    assert advice.of(os.POSIX_FADV_DONTNEED) == [(0, STEP_BYTES)]
    cached.leave(3 * STEP_BYTES)
    assert advice.of(os.POSIX_FADV_DONTNEED) == [(0, STEP_BYTES), (2 * STEP_BYTES, STEP_BYTES)]


def test_each_step_is_looked_at_once(descriptor: int, monkeypatch) -> None:
    advice = Advice(monkeypatch, cached={STEP_BYTES}, read_ahead_bytes=128 << 10)
    cached = CachedFile(descriptor, gives_back=True)
    for position in range(0, cached.end_position, STEP_BYTES):
        cached.approach(position)
        cached.leave(position)
    assert advice.looked_at == [n * STEP_BYTES for n in range(5)]
    assert [start for start, _ in advice.of(os.POSIX_FADV_WILLNEED)] == [n * STEP_BYTES for n in (0, 2, 3, 4)]
    assert [start for start, _ in advice.of(os.POSIX_FADV_DONTNEED)] == [n * STEP_BYTES for n in (0, 2, 3)]


def test_a_scan_gives_back_what_it_took_from_disk(tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(b"".join(data_batch(offset, value_bytes=9000) for offset in range(100)))
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    asked = ScanRequest(part=Original(file=LOG, size_bytes=size), base_offset=0)

    def scan(*, drops_cache: bool) -> None:
        files = PartitionFiles(str(tmp_path), LogSettings(), mappable={LOG}, drops_cache=drops_cache)
        assert files.scan(asked).batch_count == 100

    def evict() -> bool:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return not is_cached(descriptor, 0, size)

    try:
        scan(drops_cache=True)
        assert is_cached(descriptor, 0, size)  # just written: it was there before
        forgets = evict()  # in memory alone (tmpfs) it stays
        scan(drops_cache=True)
        assert is_cached(descriptor, 0, size) is not forgets
        scan(drops_cache=False)
        assert is_cached(descriptor, 0, size)
    finally:
        os.close(descriptor)


def test_only_whole_ranges_count(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(64 * mmap.PAGESIZE))
    found = os.open(path, os.O_RDONLY)
    try:
        os.fsync(found)
        os.posix_fadvise(found, 0, 0, os.POSIX_FADV_DONTNEED)
        forgets = not is_cached(found, 0, 64 * mmap.PAGESIZE)  # in memory alone (tmpfs) it stays
        os.posix_fadvise(found, 0, 0, os.POSIX_FADV_RANDOM)  # or the kernel reads more than is asked for
        os.pread(found, mmap.PAGESIZE, 8 * mmap.PAGESIZE)
        assert is_cached(found, 8 * mmap.PAGESIZE + 10, 9 * mmap.PAGESIZE)
        assert is_cached(found, 8 * mmap.PAGESIZE, 10 * mmap.PAGESIZE) is not forgets
        assert is_cached(found, 40 * mmap.PAGESIZE, 41 * mmap.PAGESIZE) is not forgets
        # To ask has read nothing.
        assert is_cached(found, 40 * mmap.PAGESIZE, 41 * mmap.PAGESIZE) is not forgets
    finally:
        os.close(found)


def test_what_cannot_be_mapped_counts_as_cached(descriptor: int) -> None:
    assert is_cached(descriptor, 6 * STEP_BYTES, 7 * STEP_BYTES)
    reader, writer = os.pipe()
    try:
        assert is_cached(reader, 0, 1)
    finally:
        os.close(reader)
        os.close(writer)


def test_the_read_ahead_of_a_device_that_nobody_knows_is_none() -> None:
    assert kernel_read_ahead_bytes(os.makedev(4095, 1048575)) == 0
