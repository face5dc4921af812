"""The one way through a log: windows of whole batches, whatever the sizes of both."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from native.batch_headers import WalkEnd, walk_headers
from native.raw_scan import Stop
from native.segment_scan import SegmentScanner
from recovery.check.api import verify
from recovery.read.batch_probe import BatchSearch
from recovery.read.rate_limit import RateLimit
from recovery.read.windows import SLACK_BYTES, Window, WindowBuffer, Windows, feed, scan_windows
from tests.logs.builders import data_batch, record, record_batch
from tests.logs.memory_log import MemoryLog

BATCHES = [data_batch(offset, value_bytes=30 * (offset % 5)) for offset in range(40)]
LOG = b"".join(BATCHES)
SIZE = len(BATCHES[0])
"""Of the smallest batch."""


class CountingLog(MemoryLog):
    """Notes what is read of it, and what it is told."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []
        self.calls: list[tuple[str, int]] = []

    def read_at(self, target: np.ndarray, position: int) -> int:
        self.reads.append((position, target.size))
        return super().read_at(target, position)

    def approach(self, position: int) -> None:
        self.calls.append(("approach", position))

    def leave(self, position: int) -> None:
        self.calls.append(("leave", position))


class ShrinkingLog(MemoryLog):
    """Says that it has more bytes than it has."""

    @property
    def end_position(self) -> int:
        return super().end_position + 1000


def gone_through(windows: Windows) -> list[bytes]:
    """The batches of a log, one by one, as windows have them."""
    found = []
    for window in windows:
        assert not window.large_bytes
        walk = walk_headers(window.octets, position=window.position, end_position=windows.end_position)
        found += [
            window.between(int(row["position"]), int(row["position"] + row["size_bytes"])).tobytes()
            for row in walk.rows
        ]
        if walk.end in (WalkEnd.TORN, WalkEnd.BAD_LENGTH):
            break
        windows.position = walk.position
    return found


class TestWindows:
    @pytest.mark.parametrize(
        "window_bytes", [1, 61, *range(SIZE - 1, SIZE + 2), *range(200, 500, 7), 1 << 20]
    )
    def test_have_each_batch_once_whole(self, window_bytes: int) -> None:
        assert gone_through(Windows(MemoryLog(LOG), window_bytes=window_bytes)) == BATCHES

    @pytest.mark.parametrize("ending", [-1, 0, 1])
    def test_that_end_with_a_batch_or_a_byte_beside_its_end(self, ending: int) -> None:
        log = CountingLog(LOG)
        first = len(BATCHES[0] + BATCHES[1])
        assert gone_through(Windows(log, window_bytes=first + ending)) == BATCHES
        begin = first if ending >= 0 else len(BATCHES[0])
        assert [position for position, _ in log.reads][:2] == [0, begin]

    @pytest.mark.parametrize("window_bytes", [1, 100, 333, 1 << 20])
    def test_are_scanned_as_the_log_at_once(self, window_bytes: int) -> None:
        scanner = SegmentScanner(base_offset=0, size_bytes=len(LOG))
        reached: list[int] = []
        scan_windows(scanner, Windows(MemoryLog(LOG), window_bytes=window_bytes), reached.append)
        scan = scanner.result()
        assert (scan.stop, scan.batch_count, scan.valid_bytes) == (Stop.END, len(BATCHES), len(LOG))
        assert reached[-1] == len(LOG)
        assert sorted(reached) == reached

    def test_are_scanned_from_where_the_scanner_is(self) -> None:
        start = len(BATCHES[0])
        log = CountingLog(LOG)
        scan_windows(SegmentScanner(base_offset=0, size_bytes=len(LOG), start_position=start), Windows(log))
        assert log.reads == [(start, len(LOG) - start)]

    def test_of_nothing_are_none(self) -> None:
        log = CountingLog(b"")
        assert list(Windows(log)) == []
        scan_windows(SegmentScanner(base_offset=0, size_bytes=0), Windows(log))
        assert log.reads == []

    def test_a_batch_that_is_longer_is_read_once_and_alone(self) -> None:
        long = data_batch(1, value_bytes=5000)
        log = CountingLog(BATCHES[0] + long + data_batch(2))
        assert gone_through(Windows(log, window_bytes=300)) == [BATCHES[0], long, data_batch(2)]
        assert log.reads == [(0, 300), (SIZE, len(long)), (SIZE + len(long), len(data_batch(2)))]

    def test_a_batch_that_is_longer_than_may_be_read_is_shown_by_its_size(self) -> None:
        long, last = data_batch(1, value_bytes=5000), data_batch(2)
        log = CountingLog(BATCHES[0] + long + last)
        windows = Windows(log, window_bytes=300, most_batch_bytes=len(long) - 1)
        shown: list[Window] = []
        for window in windows:
            shown.append(window)
            windows.position += window.large_bytes or len(BATCHES[0] if not window.position else last)
        assert [(one.position, one.large_bytes) for one in shown] == [
            (0, 0), (SIZE, len(long)), (SIZE + len(long), 0),
        ]  # fmt: skip
        assert not shown[1].octets.size
        assert sum(size for _, size in log.reads) < 1000

    def test_as_long_as_may_be_read_is_read(self) -> None:
        long = data_batch(1, value_bytes=5000)
        windows = Windows(MemoryLog(BATCHES[0] + long), window_bytes=300, most_batch_bytes=len(long))
        assert gone_through(windows) == [BATCHES[0], long]

    def test_a_length_that_reaches_beyond_the_log_makes_no_large_window(self) -> None:
        torn = bytearray(data_batch(1, value_bytes=5000))
        torn[8:12] = (1 << 30).to_bytes(4, "big")
        data = BATCHES[0] + bytes(torn)
        log = CountingLog(data)
        assert gone_through(Windows(log, window_bytes=SIZE + 20)) == [BATCHES[0]]
        assert log.reads == [(0, SIZE + 20), (SIZE, SIZE + 20)]

    def test_go_on_where_their_reader_says(self) -> None:
        windows = Windows(MemoryLog(LOG), window_bytes=200)
        seen = []
        for window in windows:
            seen.append(window.position)
            windows.position = 3000 if window.position < 3000 else len(LOG)
        assert seen == [0, 3000]

    def test_are_told_ahead_and_given_back_behind(self) -> None:
        log = CountingLog(LOG)
        windows = Windows(log, window_bytes=1000)
        gone_through(windows)
        begins = [position for position, _ in log.reads]
        assert log.calls == [(call, position) for position in begins for call in ("leave", "approach")]

    @pytest.mark.parametrize("may_shrink", [False, True])
    def test_of_a_log_that_became_shorter(self, may_shrink: bool) -> None:
        windows = Windows(ShrinkingLog(LOG), name="a log", window_bytes=1000, may_shrink=may_shrink)
        if may_shrink:
            assert gone_through(windows) == BATCHES
            assert windows.end_position == len(LOG)
            last = next(iter(Windows(ShrinkingLog(LOG), may_shrink=True)))
            assert last.octets.size == len(LOG)
        else:
            with pytest.raises(OSError, match="the file became shorter while it was read: 'a log'"):
                gone_through(windows)

    def test_are_no_larger_than_a_rate_lets_pass_but_never_less_than_a_batch(self) -> None:
        slept: list[float] = []
        limit = RateLimit(200_000, clock=lambda: sum(slept), sleep=slept.append)
        batches = [
            data_batch(0, value_bytes=200_000),
            *(data_batch(1 + i, value_bytes=9000) for i in range(20)),
        ]
        log = CountingLog(b"".join(batches))
        assert gone_through(Windows(log, limit=limit)) == batches
        assert [size for _, size in log.reads][:3] == [
            limit.window_bytes,
            len(batches[0]),
            limit.window_bytes,
        ]


class TestFeed:
    """Of a window in pieces, as verify does; a control batch that the kernel leaves to us is among them."""

    @pytest.mark.parametrize("slack", [0, 1, SLACK_BYTES])
    def test_in_pieces_and_over_a_control_batch(self, slack: int) -> None:
        odd = record_batch(
            base_offset=1,
            records=[record(key=struct.pack(">hhq", 0, 1, 7), value=struct.pack(">hiq", 0, 9, 7))],
            producer_id=5,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        batches = [data_batch(0), odd, data_batch(2), data_batch(3)]
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        data = b"".join(batches)
        window = Window(1000, np.frombuffer(b"\xff" * slack + data, np.uint8), slack)
        scanner = SegmentScanner(base_offset=0, size_bytes=1000 + len(data), start_position=1000)
        feed(scanner, window, 1000 + ends[0])
        assert scanner.position == 1000 + ends[0]
        feed(scanner, window, 1000 + ends[2])
        assert (scanner.position, scanner.paused_control) == (1000 + ends[1], False)
        feed(scanner, window, 1000 + ends[2])
        assert scanner.position == 1000 + ends[2]
        feed(scanner, window)
        scan = scanner.result()
        assert (scan.stop, scan.batch_count) == (Stop.END, 4)
        assert scan.producers["coordinator_epoch"].tolist() == [9]


class TestBuffer:
    def test_is_kept(self) -> None:
        buffer = WindowBuffer(1000)
        first = buffer.memory(1000)
        assert (first.size, np.shares_memory(first, buffer.memory(10))) == (SLACK_BYTES + 1000, True)
        assert buffer.memory(10).size == SLACK_BYTES + 10

    def test_a_large_one_is_not_kept(self) -> None:
        buffer = WindowBuffer(1000)
        large = buffer.memory(100_000)
        assert large.size == SLACK_BYTES + 100_000
        assert not np.shares_memory(large, buffer.memory(1000))
        assert buffer.memory(1000).base.size == SLACK_BYTES + 1000


class TestSearch:
    def find(self, log: MemoryLog, **fields: object) -> int | None:
        rest = walk_headers(np.frombuffer(LOG, np.uint8), position=0, end_position=len(LOG)).rows
        arguments = {"position": 0, "rest": rest, "index_positions": tuple, "base_offset": 0} | fields
        return BatchSearch(log, most_batch_bytes=1 << 20).find(**arguments)

    def test_finds_the_next_by_the_lengths(self) -> None:
        assert self.find(MemoryLog(LOG)) == len(BATCHES[0])

    def test_finds_the_next_by_the_index(self) -> None:
        positions = [0, len(BATCHES[0]) + 1, len(BATCHES[0] + BATCHES[1])]
        assert self.find(MemoryLog(LOG), rest=None, index_positions=lambda: positions) == positions[-1]

    def test_finds_none_below_an_offset(self) -> None:
        assert self.find(MemoryLog(LOG), base_offset=7) == len(b"".join(BATCHES[:7]))

    def test_finds_none_that_is_damaged_cut_off_or_too_long(self) -> None:
        damaged = bytearray(LOG)
        damaged[len(BATCHES[0]) + 70] ^= 1
        assert self.find(MemoryLog(bytes(damaged))) == len(BATCHES[0] + BATCHES[1])
        assert self.find(MemoryLog(LOG[: len(BATCHES[0] + BATCHES[1]) - 1])) is None
        whole = MemoryLog(BATCHES[0] + BATCHES[1])
        assert self.find(whole) == len(BATCHES[0])
        search = BatchSearch(whole, most_batch_bytes=len(BATCHES[1]) - 1)
        assert not search.is_sound(len(BATCHES[0]), base_offset=0)

    def test_ends_after_so_many(self) -> None:
        search = BatchSearch(MemoryLog(LOG), most_batch_bytes=1 << 20)
        found = [search.find(0, None, lambda: [SIZE], base_offset=0) for _ in range(101)]
        assert found == [SIZE] * 100 + [None]


def test_verify_reads_a_batch_that_is_longer_than_its_rate_lets_pass_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "d" / "orders-0"
    folder.mkdir(parents=True)
    data = data_batch(0, value_bytes=70_000) + data_batch(1)
    (folder / f"{0:020}.log").write_bytes(data)
    report = verify([str(folder.parent)], topic_configs={"orders": {}}, max_bytes_per_second=250_000)
    assert not [one for one in report.damaged if one.path.endswith(".log")]
