"""A sample of what would be recovered, read and checked by the kernels of a recovery: how fast this machine does it.

Pieces are chosen by seed, evenly over all bytes, and begin at a batch. What lies in the page cache now is what a
restart of the process would find there, too; after a restart of the machine nothing is. What had to be read from disk
is dropped from the cache again, and after each such read the disk is left alone for as long as the read took.
"""

from __future__ import annotations

import math
import os
import random
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from native.segment_scan import SegmentScanner
from recovery.forecast.survey import LogToRecover
from recovery.load.forecast import SegmentToRecover
from recovery.read.file_system import fill, open_unseen, read_at, read_whole
from recovery.read.page_cache import absent_bytes
from recovery.read.windows import SLACK_BYTES, Window, batch_bytes, feed, thread_buffer
from segfmt import byte_layout
from segfmt.byte_layout import OFFSET_INDEX_DTYPE
from segfmt.filenames import offset_index_name

_PIECE_BYTES = 4 << 20
_MOST_BATCH_BYTES = 64 << 20
_LONGEST_REST_S = 1.0
_INTERPRETER_ROUNDS, _INTERPRETER_LOOPS = 30, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was read, and how long that took, by one thread.

    Attributes:
        read_bytes: in whole batches.
        absent_bytes: of these, not in the page cache before.
        cached_bytes: of the pieces that were in it as a whole.
        cached_cpu_s: reading these pieces, on a CPU.
        disk_s: reading the others, by the clock.
        scan_cpu_s: checking all of it, on a CPU.
        seconds: all of that by the clock.
        interpreter_s: a fixed loop of Python, at best: how fast this machine is at what is not a kernel.
        contention: how much longer that loop took by the clock than on a CPU, because of others; at least 1.0.
        running: threads on this machine that wanted a CPU meanwhile, besides this one; the mean.
    """

    read_bytes: int = 0
    batch_count: int = 0
    absent_bytes: int = 0
    cached_bytes: int = 0
    cached_cpu_s: float = 0.0
    disk_s: float = 0.0
    scan_cpu_s: float = 0.0
    seconds: float = 0.0
    interpreter_s: float = 0.0
    contention: float = 1.0
    running: float = 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """What one thread reads and checks in a second; None if nothing was read."""
        return self.read_bytes / self.seconds if self.read_bytes else None


class _Piece(NamedTuple):
    folder: str
    segment: SegmentToRecover
    position: int
    size_bytes: int


class _Reading(NamedTuple):
    read_bytes: int
    batch_count: int
    absent_bytes: int
    read_s: float
    read_cpu_s: float
    scan_s: float
    scan_cpu_s: float


def take_sample(logs: Sequence[LogToRecover], *, most_bytes: int, seed: int) -> Sample:
    """Return how fast some of *logs* are read and checked; what has vanished meanwhile is left out.

    Args:
        most_bytes: to be read in all; each piece ends with a whole batch, so it may be a little more.
        seed: of the choice.
    """
    readings = []
    running: list[int] = []
    interpreter_s, contention = _interpreter_speed(running)
    for piece in _pieces(logs, most_bytes, random.Random(seed)):
        running.append(_running_threads())
        with suppress(OSError):
            reading = _read(piece)
            if not reading.batch_count and piece.position:  # its index was wrong
                reading = _read(piece._replace(position=0))
            if reading.batch_count:
                readings.append(reading)
            if reading.absent_bytes:
                time.sleep(min(reading.read_s, _LONGEST_REST_S))
    return Sample(
        read_bytes=sum(one.read_bytes for one in readings),
        batch_count=sum(one.batch_count for one in readings),
        absent_bytes=sum(one.absent_bytes for one in readings),
        cached_bytes=sum(one.read_bytes for one in readings if not one.absent_bytes),
        cached_cpu_s=sum(one.read_cpu_s for one in readings if not one.absent_bytes),
        disk_s=sum(one.read_s for one in readings if one.absent_bytes),
        scan_cpu_s=sum(one.scan_cpu_s for one in readings),
        seconds=sum(one.read_s + one.scan_s for one in readings),
        interpreter_s=interpreter_s,
        contention=contention,
        running=sum(running) / len(running),
    )


def _pieces(logs: Sequence[LogToRecover], most_bytes: int, chance: random.Random) -> Iterator[_Piece]:
    """Yield where to read: all bytes, one log after another, are cut into equal parts, and each has one piece."""
    segments = [(log.folder, segment) for log in logs for segment in log.segments if segment.size_bytes]
    ends = list(accumulate(segment.size_bytes for _, segment in segments))
    if not segments:
        return
    total_bytes = ends[-1]
    piece_bytes = min(_PIECE_BYTES, -(-total_bytes // len(segments)))
    count = -(-min(most_bytes, total_bytes) // piece_bytes)
    seen = set()
    for number in range(count):
        place = int((number + chance.random()) * total_bytes / count)
        index = min(bisect_right(ends, place), len(segments) - 1)
        folder, segment = segments[index]
        position = place - (ends[index] - segment.size_bytes)
        start = _batch_before(folder, segment, min(position, max(segment.size_bytes - piece_bytes, 0)))
        if (index, start) not in seen:
            seen.add((index, start))
            yield _Piece(folder, segment, start, piece_bytes)


def _batch_before(folder: str, segment: SegmentToRecover, position: int) -> int:
    """Return where a batch begins at or before *position*, by the segment's offset index; 0 if that does not say.

    The index of an active segment ends with zeros.
    """
    if not position:
        return 0
    try:
        descriptor = open_unseen(os.path.join(folder, offset_index_name(segment.base_offset)))
    except OSError:
        return 0
    entry_bytes, found = OFFSET_INDEX_DTYPE.itemsize, 0
    try:
        low, high = 0, os.fstat(descriptor).st_size // entry_bytes
        while low < high:
            middle = (low + high) // 2
            entry = np.frombuffer(read_at(descriptor, middle * entry_bytes, entry_bytes), OFFSET_INDEX_DTYPE)
            batch_position = int(entry["position"][0])
            if 0 < batch_position <= position:
                low, found = middle + 1, batch_position
            else:
                high = middle
    except (OSError, ValueError, IndexError):  # it was cut meanwhile
        found = 0
    finally:
        os.close(descriptor)
    return found


def _read(piece: _Piece) -> _Reading:
    """Read and check a piece, from its position on: whole batches, at least one if there is one."""
    segment, start = piece.segment, piece.position
    descriptor = open_unseen(os.path.join(piece.folder, segment.file))
    try:
        size_bytes = min(segment.size_bytes, os.fstat(descriptor).st_size)
        end = min(start + piece.size_bytes, size_bytes)
        absent = absent_bytes(descriptor, start, end) if start < end else 0
        started_s, started_cpu_s = time.perf_counter(), time.thread_time()
        head = read_at(descriptor, start, byte_layout.LOG_OVERHEAD_BYTES)
        if len(head) == byte_layout.LOG_OVERHEAD_BYTES and batch_bytes(head) <= _MOST_BATCH_BYTES:
            end = min(max(end, start + batch_bytes(head)), size_bytes)
        if absent:  # requested at once, as far ahead of its reader as a recovery requests it
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_WILLNEED)
        memory = thread_buffer().memory(max(end - start, 0))
        count = fill(memory[SLACK_BYTES:].data, descriptor, start)
        read_s, read_cpu_s = time.perf_counter() - started_s, time.thread_time() - started_cpu_s
        if absent:
            os.posix_fadvise(descriptor, start, count, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    scanner = SegmentScanner(base_offset=segment.base_offset, size_bytes=start + count, start_position=start)
    window = Window(start, memory[: SLACK_BYTES + count], SLACK_BYTES)
    started_s, started_cpu_s = time.perf_counter(), time.thread_time()
    while not scanner.finished:
        feed(scanner, window)
    scan = scanner.result()
    scan_s, scan_cpu_s = time.perf_counter() - started_s, time.thread_time() - started_cpu_s
    read_bytes = scan.valid_bytes - start
    absent = min(absent, read_bytes)
    return _Reading(read_bytes, scan.batch_count, absent, read_s, read_cpu_s, scan_s, scan_cpu_s)


def _interpreter_speed(running: list[int]) -> tuple[float, float]:
    """Return how long a fixed loop of Python takes here at best, and by how much others make it longer.

    Args:
        running: gets the number of other threads that wanted a CPU, each time.
    """
    started_s, started_cpu_s = time.perf_counter(), time.thread_time()
    best_s = math.inf
    for _ in range(_INTERPRETER_ROUNDS):
        best_s = min(best_s, _interpreter_round())
        running.append(_running_threads())
    cpu_s = time.thread_time() - started_cpu_s
    return best_s, max((time.perf_counter() - started_s) / cpu_s, 1.0) if cpu_s else 1.0


def _interpreter_round() -> float:
    started_s = time.perf_counter()
    found: dict[str, int] = {}
    for number in range(_INTERPRETER_LOOPS):
        found[str(number & 255)] = number
    return time.perf_counter() - started_s


def _running_threads() -> int:
    """Return how many threads of the machine want a CPU now, besides this one; 0 if that is not known."""
    try:
        return max(int(read_whole("/proc/loadavg").split()[3].partition(b"/")[0]) - 1, 0)
    except (OSError, IndexError, ValueError):
        return 0
