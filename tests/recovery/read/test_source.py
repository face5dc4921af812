"""Where bytes come from: mapped or read, the same scan; and what happens when a file changes under it."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from native.raw_scan import RawScan, Stop
from native.segment_scan import SegmentScanner
from recovery.load.model import BatchSpan, LogSettings, Original, ScanMode, ScanRequest
from recovery.read import partition_files as module
from recovery.read import windows
from recovery.read.mapping import MappedFile
from recovery.read.partition_files import PartitionFiles
from recovery.read.rate_limit import RateLimit
from segfmt.errors import CorruptBatchError, FormatError
from tests.logs import builders
from tests.logs.builders import data_batch, marker_batch, message, record, record_batch

LOG = "00000000000000000000.log"
SETTINGS = LogSettings(index_interval_bytes=200)


def segment(count: int = 60, seed: int = 1) -> bytes:
    """Batches of many sizes, producers and transactions among them."""
    rng, offset, batches = random.Random(seed), 0, []
    for number in range(count):
        records = rng.randint(1, 5)
        fields = {
            "leader_epoch": number // 10,
            "base_timestamp_ms": builders.BASE_TIMESTAMP_MS + rng.randrange(99),
        }
        if number % 4 == 3:
            fields |= {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number}
        batches.append(data_batch(offset, records, value_bytes=rng.choice([0, 10, 300, 3000]), **fields))
        offset += records
    return b"".join(batches)


def request(size_bytes: int, **fields: object) -> ScanRequest:
    defaults = {"part": Original(file=LOG, size_bytes=size_bytes), "base_offset": 0}
    return ScanRequest(**(defaults | fields))


def same(one: RawScan, other: RawScan) -> bool:
    return all(
        np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        for mine, theirs in zip(one, other, strict=True)
    )


class Files:
    """A folder with one segment, mapped or read."""

    def __init__(self, folder: Path, data: bytes) -> None:
        self.path = folder / LOG
        self.path.write_bytes(data)
        self.scanned: list[int] = []
        self.read = PartitionFiles(str(folder), SETTINGS, on_bytes=self.scanned.append)
        self.mapped = PartitionFiles(str(folder), SETTINGS, mappable={LOG}, on_bytes=self.scanned.append)


@pytest.fixture(autouse=True)
def maps_small_segments(monkeypatch) -> None:
    monkeypatch.setattr(module, "LEAST_MAPPED_BYTES", 0)


def test_a_small_segment_is_not_mapped(tmp_path: Path, monkeypatch) -> None:
    files = Files(tmp_path, segment())
    size = files.path.stat().st_size
    expected = files.mapped.scan(request(size))
    monkeypatch.setattr(module, "LEAST_MAPPED_BYTES", size + 1)
    monkeypatch.setattr(module, "MappedFile", lambda *_: pytest.fail("mapped"))
    assert same(files.mapped.scan(request(size)), expected)


class TestMappedAndRead:
    @pytest.mark.parametrize("mode", ScanMode)
    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data,
            lambda data: data[:-5],
            lambda data: data + bytes(5000),
            lambda data: data[:20_000] + b"\xff" + data[20_001:],
            lambda data: b"",
            lambda data: data[:40],
        ],
        ids=["sound", "torn", "zeros behind", "flipped", "empty", "shorter than a header"],
    )
    def test_agree(
        self, tmp_path: Path, mode: ScanMode, damage: Callable[[bytes], bytes], monkeypatch
    ) -> None:
        monkeypatch.setattr(windows, "WINDOW_BYTES", 4096)
        monkeypatch.setattr(module, "MAPPED_WINDOW_BYTES", 7000)
        files = Files(tmp_path, damage(segment()))
        asked = request(files.path.stat().st_size, mode=mode)
        assert same(files.mapped.scan(asked), files.read.scan(asked))

    def test_agree_with_a_scan_of_the_whole_file_at_once(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(windows, "WINDOW_BYTES", 512)
        files = Files(tmp_path, segment())
        data = np.frombuffer(files.path.read_bytes(), np.uint8)
        scanner = SegmentScanner(
            base_offset=0, size_bytes=data.size, index_interval_bytes=SETTINGS.index_interval_bytes
        )
        scanner.feed(data)
        assert same(files.read.scan(request(data.size)), scanner.result())
        assert len(scanner.result().offset_index) > 10

    def test_from_a_position_in_the_middle(self, tmp_path: Path) -> None:
        first, rest = segment(7), segment(60)
        files = Files(tmp_path, first + rest)
        asked = request(len(first + rest), start_position=len(first), mode=ScanMode.REPLAY)
        scan = files.mapped.scan(asked)
        assert same(scan, files.read.scan(asked))
        assert (scan.batch_count, scan.valid_bytes) == (60, len(first + rest))

    def test_a_part_of_a_file_is_scanned_as_if_it_stood_alone(self, tmp_path: Path) -> None:
        first, rest = segment(7), segment(60)
        files = Files(tmp_path, first + rest + b"more")
        part = Original(file=LOG, size_bytes=len(rest), origin_position=len(first))
        scan = files.mapped.scan(ScanRequest(part=part, base_offset=0))
        alone = Files(tmp_path, rest).read.scan(request(len(rest)))
        assert same(scan, alone)

    def test_all_bytes_of_a_recovery_are_told_and_none_of_a_walk(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(windows, "WINDOW_BYTES", 4096)
        monkeypatch.setattr(module, "REPORTED_BYTES", 4096)
        files = Files(tmp_path, segment())
        size = files.path.stat().st_size
        files.read.scan(request(size))
        files.mapped.scan(request(size))
        assert sum(files.scanned) == 2 * size
        assert len(files.scanned) > 3
        files.scanned.clear()
        files.read.scan(request(size, mode=ScanMode.WALK))
        assert sum(files.scanned) == 0

    def test_a_batch_larger_than_a_window(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(windows, "WINDOW_BYTES", 1000)
        large = data_batch(0, value_bytes=100_000)
        files = Files(tmp_path, large + data_batch(1))
        scan = files.read.scan(request(files.path.stat().st_size))
        assert (scan.stop, scan.batch_count) == (Stop.END, 2)

    @pytest.mark.parametrize("longest", ["read", "mapped"])
    def test_a_batch_that_is_longer_than_may_be_read_is_mapped(
        self, tmp_path: Path, longest: str, monkeypatch
    ) -> None:
        first, long = segment(7), data_batch(0, value_bytes=100_000)
        files = Files(tmp_path, first + long + data_batch(1) + b"more")
        part = Original(file=LOG, size_bytes=len(long + data_batch(1)), origin_position=len(first))
        expected = files.read.scan(ScanRequest(part=part, base_offset=0))
        mapped: list[int] = []

        class Counted(MappedFile):
            def __init__(self, descriptor: int, size_bytes: int) -> None:
                mapped.append(size_bytes)
                super().__init__(descriptor, size_bytes)

        monkeypatch.setattr(module, "MappedFile", Counted)
        monkeypatch.setattr(windows, "WINDOW_BYTES", 1000)
        monkeypatch.setattr(module, "MOST_READ_BATCH_BYTES", len(long) - (longest == "mapped"))
        assert same(files.read.scan(ScanRequest(part=part, base_offset=0)), expected)
        assert (expected.stop, expected.batch_count, len(mapped)) == (Stop.END, 2, longest == "mapped")

    def test_whoever_wants_to_stop_says_so_between_windows(self, tmp_path: Path) -> None:
        data = segment()
        (tmp_path / LOG).write_bytes(data)

        def stop(_: int) -> None:
            raise KeyboardInterrupt

        for mappable in ((), {LOG}):
            files = PartitionFiles(str(tmp_path), SETTINGS, mappable=mappable, on_bytes=stop)
            with pytest.raises(KeyboardInterrupt):
                files.scan(request(len(data)))


class TestBytesASecond:
    def test_no_more_is_read_at_once_than_the_limit_lets_pass(self, tmp_path: Path) -> None:
        slept: list[float] = []
        limit = RateLimit(256 << 10, clock=lambda: sum(slept), sleep=slept.append)
        data = segment(400)
        (tmp_path / LOG).write_bytes(data)
        for mappable in ((), {LOG}):
            scanned: list[int] = []
            files = PartitionFiles(
                str(tmp_path), SETTINGS, mappable=mappable, on_bytes=scanned.append, limit=limit
            )
            files.scan(request(len(data)))
            assert sum(scanned) == len(data)
            assert len(scanned) >= len(data) // (128 << 10)
        # The last window needs no wait behind it.
        assert sum(slept) >= (2 * len(data) - (64 << 10)) / (256 << 10)


class TestFilesThatChange:
    """What lies in the folder was written down before; nobody should change it, but nothing may go wrong silently."""

    def test_a_file_shorter_than_it_was_is_an_error(self, tmp_path: Path) -> None:
        files = Files(tmp_path, segment())
        size = files.path.stat().st_size
        os.truncate(files.path, size - 1)
        for source in (files.read, files.mapped):
            with pytest.raises(OSError, match="the file became shorter while it was read") as raised:
                source.scan(request(size))
            assert raised.value.filename == str(files.path)

    @pytest.mark.parametrize("kept", [0, 5000, -1], ids=["to nothing", "to a page", "within its last page"])
    def test_a_file_cut_while_it_is_mapped_ends_as_where_it_is_read(
        self, tmp_path: Path, kept: int, monkeypatch
    ) -> None:
        files = Files(tmp_path, segment())
        size = files.path.stat().st_size

        class CutWhileMapped(MappedFile):
            def __enter__(self) -> MappedFile:
                os.truncate(files.path, kept if kept >= 0 else size + kept)
                return super().__enter__()

        monkeypatch.setattr(module, "MappedFile", CutWhileMapped)
        with pytest.raises(OSError, match="the file became shorter while it was read"):
            files.mapped.scan(request(size))

    def test_a_mapping_that_faults_is_given_up_for_reading(self, tmp_path: Path, monkeypatch) -> None:
        files = Files(tmp_path, segment())
        size = files.path.stat().st_size
        expected = files.read.scan(request(size))

        class Faulty(MappedFile):
            @property
            def view(self) -> np.ndarray:
                return np.zeros(size, np.uint8)

            @property
            def has_faulted(self) -> bool:
                return True

        monkeypatch.setattr(module, "MappedFile", Faulty)
        assert same(files.mapped.scan(request(size)), expected)

    def test_a_file_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        files = Files(tmp_path, segment())
        files.path.unlink()
        with pytest.raises(FileNotFoundError):
            files.read.scan(request(100))

    def test_what_was_appended_meanwhile_is_not_read(self, tmp_path: Path) -> None:
        data = segment()
        files = Files(tmp_path, data + segment())
        for source in (files.read, files.mapped):
            assert source.scan(request(len(data))).valid_bytes == len(data)


class TestControlBatches:
    """Those that the kernel leaves to us: too large, compressed, or not made as a coordinator makes them."""

    @staticmethod
    def scan(tmp_path: Path, *batches: bytes, **fields: object) -> RawScan:
        files = Files(tmp_path, b"".join(batches))
        scan = files.read.scan(request(files.path.stat().st_size, **fields))
        assert same(scan, files.mapped.scan(request(files.path.stat().st_size, **fields)))
        return scan

    @staticmethod
    def control(key: bytes | None, value: bytes | None, *, base_offset: int = 1) -> bytes:
        return record_batch(
            base_offset=base_offset,
            records=[record(key=key, value=value)],
            producer_id=5,
            producer_epoch=0,
            transactional=True,
            control=True,
        )

    def test_a_marker_with_more_behind_its_fields(self, tmp_path: Path) -> None:
        batch = self.control(struct.pack(">hhq", 0, 1, 7), struct.pack(">hiq", 0, 9, 7))
        scan = self.scan(tmp_path, data_batch(0), batch, data_batch(2))
        assert (scan.stop, scan.batch_count) == (Stop.END, 3)
        assert scan.producers["coordinator_epoch"].tolist() == [9]

    @pytest.mark.parametrize(
        ("key", "value", "stop"),
        [
            (b"\x00", struct.pack(">hi", 0, 9), Stop.INVALID_CONTROL),
            (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 9), Stop.INVALID_CONTROL),
            (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 9), Stop.INVALID_CONTROL),
            (None, struct.pack(">hi", 0, 9), Stop.CONTROL_FATAL),
            (struct.pack(">hh", 0, 1), None, Stop.CONTROL_FATAL),
            (struct.pack(">hh", 0, 1), b"\x00\x00\x00", Stop.CONTROL_FATAL),
            (struct.pack(">hh", 0, 7), struct.pack(">hi", 0, 9), Stop.CONTROL_FATAL),
        ],
        ids=[
            "short key", "negative key version", "negative value version", "no key", "no value", "short value",
            "unknown type",
        ],
    )  # fmt: skip
    def test_one_without_sense(
        self, tmp_path: Path, key: bytes | None, value: bytes | None, stop: Stop
    ) -> None:
        scan = self.scan(tmp_path, data_batch(0), self.control(key, value), data_batch(2))
        assert (scan.stop, scan.batch_count) == (stop, 2)
        assert scan.stop_position == len(data_batch(0))

    def test_one_across_windows(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(windows, "WINDOW_BYTES", 100)
        monkeypatch.setattr(module, "MAPPED_WINDOW_BYTES", 100)
        key, value = struct.pack(">hh", 0, 0) + bytes(500), struct.pack(">hi", 0, 4) + bytes(500)
        batch = self.control(key, value, base_offset=9)
        scan = self.scan(tmp_path, *(data_batch(i) for i in range(9)), batch)
        assert scan.txn_events["marker_type"].tolist() == [0]

    @pytest.mark.parametrize("bad", ["control", "transaction", "both"])
    def test_a_walk_looks_at_headers_only(self, tmp_path: Path, bad: str) -> None:
        batches = [data_batch(0)]
        if bad in ("control", "both"):
            batches.append(self.control(None, None))
        if bad in ("transaction", "both"):
            own = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}
            batches += [data_batch(2, transactional=True, **own), data_batch(3, **own)]
        batches.append(marker_batch(4, producer_id=8))
        scan = self.scan(tmp_path, *batches, mode=ScanMode.WALK)
        assert (scan.stop, scan.batch_count, scan.last_offset) == (Stop.END, len(batches), 4)
        scan = self.scan(tmp_path, *batches[:-1], mode=ScanMode.WALK)
        assert (scan.batch_count, scan.last_offset) == (len(batches) - 1, 1 if bad == "control" else 3)


def crc_of(batch: bytes) -> int:
    return int.from_bytes(batch[17:21], "big")


class TestBatches:
    def spans(self, tmp_path: Path, data: bytes, start_position: int = 0, **part: int) -> list[BatchSpan]:
        files = Files(tmp_path, data)
        whole = {"size_bytes": len(data)} | part
        return list(files.read.batches(Original(file=LOG, **whole), start_position))

    def test_position_size_and_offsets(self, tmp_path: Path) -> None:
        one, two = data_batch(5, 3), data_batch(9, 1)
        assert self.spans(tmp_path, one + two) == [
            (0, len(one), 5, 7, 2, crc_of(one), False),
            (len(one), len(two), 9, 9, 2, crc_of(two), False),
        ]

    def test_that_it_holds_fewer_records_than_offsets(self, tmp_path: Path) -> None:
        thinned = record_batch(base_offset=3, last_offset_delta=1, records=[record(offset_delta=1)])
        found = self.spans(tmp_path, data_batch(0, 3) + thinned + message(5))
        assert [span.has_compacted for span in found] == [False, True, False]

    def test_from_a_position_and_in_a_part(self, tmp_path: Path) -> None:
        one, two, three = data_batch(5, 3), data_batch(9, 1), data_batch(10, 2)
        data = one + two + three
        assert [span.base_offset for span in self.spans(tmp_path, data, len(one))] == [9, 10]
        part = {"origin_position": len(one), "size_bytes": len(two)}
        assert self.spans(tmp_path, data, **part) == [(0, len(two), 9, 9, 2, crc_of(two), False)]

    def test_a_part_as_bytes(self, tmp_path: Path) -> None:
        files = Files(tmp_path, data_batch(5, 3) + b"behind")
        assert (
            files.read.read_part(Original(file=LOG, size_bytes=4, origin_position=3)) == data_batch(5, 3)[3:7]
        )

    def test_the_checksum_of_a_message(self, tmp_path: Path) -> None:
        (span,) = self.spans(tmp_path, builders.message(7, crc=0x1234))
        assert (span.magic, span.crc) == (1, 0x1234)

    @pytest.mark.parametrize("kept", [0, 5, 17, 18, 60])
    def test_a_torn_one_is_not_among_them(self, tmp_path: Path, kept: int) -> None:
        one = data_batch(5, 3)
        assert len(self.spans(tmp_path, one + data_batch(9)[:kept])) == 1

    def test_a_length_that_cannot_be_is_an_error(self, tmp_path: Path) -> None:
        one = data_batch(5, 3)
        with pytest.raises(CorruptBatchError, match=f"position {len(one)}: batch length 0"):
            self.spans(tmp_path, one + bytes(100))

    def test_a_compressed_message_set_begins_at_its_first_message(self, tmp_path: Path) -> None:
        inner = [builders.message(offset) for offset in range(3)]
        outer = builders.compressed_message(inner, offset=12)
        plain = builders.message(13)
        assert [(span.base_offset, span.last_offset) for span in self.spans(tmp_path, outer + plain)] == [
            (10, 12),
            (13, 13),
        ]

    def test_a_message_set_that_nobody_asks_for_is_not_opened(self, tmp_path: Path) -> None:
        outer = builders.compressed_message([builders.message(offset) for offset in range(3)], offset=12)
        spoilt = outer[:40] + bytes(len(outer) - 40)
        part = Original(file=LOG, size_bytes=len(spoilt))
        files = Files(tmp_path, spoilt)
        (span,) = files.read.batches(part, 0, opens_message_sets=False)
        assert (span.base_offset, span.last_offset) == (12, 12)
        with pytest.raises(FormatError):
            list(files.read.batches(part, 0))

    def test_magic_0_keeps_absolute_offsets_inside(self, tmp_path: Path) -> None:
        inner = [builders.message(offset, magic=0) for offset in (10, 11, 12)]
        outer = builders.compressed_message(inner, offset=12, magic=0)
        assert [(span.base_offset, span.last_offset) for span in self.spans(tmp_path, outer)] == [(10, 12)]


class TestSmallFiles:
    def test_read(self, tmp_path: Path) -> None:
        files = Files(tmp_path, b"123")
        assert files.read.read(LOG) == b"123"

    @pytest.mark.parametrize(
        ("data", "start", "expected"),
        [
            (bytes(100), 0, True),
            (b"x" + bytes(99), 1, True),
            (b"x" + bytes(99), 0, False),
            (bytes(99) + b"x", 5, False),
        ],
    )
    def test_is_zero(self, tmp_path: Path, data: bytes, start: int, expected: bool) -> None:
        files = Files(tmp_path, data)
        part = Original(file=LOG, size_bytes=100 - start, origin_position=start)
        assert files.read.is_zero(part) is expected

    def test_a_file_that_became_shorter_is_not_taken_for_zeros(self, tmp_path: Path) -> None:
        files = Files(tmp_path, bytes(50))
        assert not files.read.is_zero(Original(file=LOG, size_bytes=100))
