"""The scan of a segment against its slow twin, on sound, damaged and random bytes, whole and in pieces."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native import cpu
from native.cpu_path import CpuPath
from native.errors import ScanUsageError
from native.raw_scan import ControlKind, Stop
from native.segment_scan import SegmentScanner, warm_up
from segfmt import byte_layout
from tests.logs import builders, strategies
from tests.logs.builders import data_batch, message, record_batch
from tests.native.scanning import T, as_array, assert_same, scan, scan_segment, three_batches
from tests.native.ticking import TICKS, most_ticks_within

# --- the scan is its twin -------------------------------------------------------------------------


@settings(max_examples=300)
@given(segment=strategies.segments(), options=strategies.SCAN_OPTIONS)
def test_scan_is_its_slow_twin(
    segment: tuple[int, bytes], options: dict[str, Any], cpu_path: CpuPath
) -> None:
    base_offset, data = segment
    assert_same(data, cpu_path, base_offset=base_offset, **options)


@settings(max_examples=60)
@given(segment=strategies.sound_segments(), seed=st.integers(0, 2**32), slack=st.integers(0, 300))
def test_windows_do_not_matter(segment: tuple[int, bytes], seed: int, slack: int, cpu_path: CpuPath) -> None:
    base_offset, data = segment
    sizes = [random.Random(seed).randrange(1, 3000) for _ in range(5)]
    options = {"base_offset": base_offset, "index_interval_bytes": 200}
    pieces = scan(data, cpu_path, window_bytes=sizes, slack_bytes=slack, **options)
    assert pieces == scan(data, cpu_path, **options)


def test_every_flipped_header_bit_is_judged_like_kafka_does(cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    stops = set()
    for bit in range(8 * (byte_layout.RECORDS_POSITION + 4)):
        flipped = bytearray(data)
        flipped[start + bit // 8] ^= 0x80 >> bit % 8
        stops.add(assert_same(bytes(flipped), cpu_path, base_offset=10, index_interval_bytes=0).stop)
    assert stops >= {Stop.END, Stop.CRC_MISMATCH, Stop.BAD_LENGTH, Stop.TORN, Stop.OFFSET_OVERFLOW}


def test_every_flipped_payload_bit_is_found(cpu_path: CpuPath) -> None:
    data, start, end = three_batches()
    for position in range(start + byte_layout.ATTRIBUTES_POSITION, end, 5):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        found = scan(bytes(flipped), cpu_path, base_offset=10)
        assert (found.stop, found.stop_position, found.batch_count) == (Stop.CRC_MISMATCH, start, 1)


def test_log_cut_at_every_byte_of_the_last_batch_loses_that_batch_only(cpu_path: CpuPath) -> None:
    data, _start, end = three_batches()
    for size in range(end, len(data)):
        found = assert_same(data[:size], cpu_path, base_offset=10)
        assert found.stop is (Stop.END if size - end <= 17 else Stop.TORN)
        assert (found.valid_bytes, found.batch_count, found.last_offset) == (end, 2, 14)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48, 49, 2**31 - 13, 2**31 - 1])
def test_impossible_lengths(length: int, cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    broken = bytearray(data)
    struct.pack_into(">i", broken, start + 8, length)
    assert_same(bytes(broken), cpu_path, base_offset=10)


@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 3, 127])
def test_magic_of_a_record_batch_changed(magic: int, cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    broken = bytearray(data)
    struct.pack_into(">b", broken, start + 16, magic)
    found = assert_same(bytes(broken), cpu_path, base_offset=10)
    assert found.stop is (Stop.END if magic >= 2 else Stop.CRC_MISMATCH)


def test_short_record_batches_with_right_checksums(cpu_path: CpuPath) -> None:
    for size in range(26, 64):
        batch = struct.pack(">qiibI", 0, size - 12, 0, 2, 0) + bytes(size - 21)
        data = builders.recompute_crc(batch) + data_batch(1)
        found = assert_same(data, cpu_path, base_offset=0)
        assert found.stop is (Stop.BAD_LENGTH if size < 61 else Stop.END), size


# --- Kafka's own numbers --------------------------------------------------------------------------


def test_index_rule_of_four_batches(cpu_path: CpuPath) -> None:
    """The example that Kafka's LogSegment.recover was run on."""
    batches = [
        data_batch(base, 3, value_bytes=(238 - 61 - 3 * 7) // 3, max_timestamp_ms=T + delta)
        for base, delta in [(0, 2), (3, -98), (6, 52), (9, 12)]
    ]
    size = len(batches[0])
    found = scan(b"".join(batches), cpu_path, base_offset=0, index_interval_bytes=0)
    assert found.offset_index == [(5, size), (8, 2 * size), (11, 3 * size)]
    assert found.time_index == [(T + 2, 2), (T + 52, 8)]
    assert (found.max_timestamp_ms, found.max_timestamp_offset) == (T + 52, 8)


def test_first_batch_is_never_indexed_and_the_interval_is_exceeded_strictly(cpu_path: CpuPath) -> None:
    batch = data_batch(0)
    data = b"".join(data_batch(i) for i in range(7))
    found = scan(data, cpu_path, base_offset=0, index_interval_bytes=2 * len(batch))
    assert found.offset_index == [(3, 3 * len(batch)), (6, 6 * len(batch))]


def test_empty_and_tiny_segments(cpu_path: CpuPath) -> None:
    for size in range(18):
        found = assert_same(bytes(size), cpu_path, base_offset=77)
        assert (found.stop, found.valid_bytes, found.last_offset) == (Stop.END, 0, -1)
        assert (found.max_timestamp_ms, found.max_timestamp_offset) == (-1, 77)


def test_preallocated_tail_is_a_bad_length(cpu_path: CpuPath) -> None:
    data, _start, _end = three_batches()
    for zeros in (17, 18, 5000):
        found = assert_same(data + bytes(zeros), cpu_path, base_offset=10)
        assert (found.stop, found.valid_bytes) == (Stop.END if zeros == 17 else Stop.BAD_LENGTH, len(data))


def test_messages_of_magic_0_and_1(cpu_path: CpuPath) -> None:
    inner = [message(i, timestamp_ms=T + i) for i in range(4)]
    batches = [
        message(0, magic=0),
        message(1, magic=1, timestamp_ms=T),
        builders.compressed_message(inner, offset=5, timestamp_ms=T + 3),
        message(6, magic=-1, timestamp_ms=T + 9),
        message(7, magic=0, value=None),
    ]
    found = assert_same(b"".join(batches), cpu_path, base_offset=0, index_interval_bytes=0)
    assert (found.batch_count, found.legacy_batch_count, found.last_offset) == (5, 5, 7)
    assert (found.max_timestamp_ms, found.max_timestamp_offset) == (T + 9, 6)
    assert (found.epochs, found.producers, found.producer_end_offset) == ([], [], -1)


def test_messages_of_all_sizes(cpu_path: CpuPath) -> None:
    data = b"".join(message(i, value=bytes(i % 251 for i in range(size))) for i, size in enumerate(range(40)))
    assert assert_same(data, cpu_path, base_offset=0).batch_count == 40


def test_offsets_of_a_log_without_timestamps_make_no_time_index(cpu_path: CpuPath) -> None:
    data = b"".join(message(i, magic=0, value=bytes(100)) for i in range(30))
    found = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=0)
    assert (len(found.offset_index), found.time_index) == (29, [])


@pytest.mark.parametrize(
    ("base", "first", "delta", "stop"),
    [
        (10, 9, 0, Stop.OFFSET_OVERFLOW),
        (10, 9, 1, Stop.END),
        (0, 0, 2**31 - 1, Stop.END),
        (0, 1, 2**31 - 1, Stop.OFFSET_OVERFLOW),
        (0, 2**63 - 1, 1, Stop.OFFSET_OVERFLOW),
        (-(2**63), 2**63 - 1, 5, Stop.END),
        (0, 5, -6, Stop.OFFSET_OVERFLOW),
        (0, 5, -5, Stop.END),
    ],
)
def test_offsets_at_the_ends_of_their_range(
    base: int, first: int, delta: int, stop: Stop, cpu_path: CpuPath
) -> None:
    data = record_batch(base_offset=first, last_offset_delta=delta, records=[builders.record()])
    assert assert_same(data, cpu_path, base_offset=base).stop is stop


def test_offsets_beyond_the_greatest_are_relative_to_the_base_as_in_java(cpu_path: CpuPath) -> None:
    """The last offset wraps round, its distance from the base does not (found by fuzzing whole log dirs)."""
    base = 2**63 - 5
    data = data_batch(base, max_timestamp_ms=T)
    data += data_batch(base + 2, last_offset_delta=20, max_timestamp_ms=T + 1)
    found = assert_same(data, cpu_path, base_offset=base)
    assert (found.stop, found.time_index, found.last_offset) == (Stop.END, [(T + 1, 22)], -(2**63) + 17)
    at_index_point = assert_same(data * 2, cpu_path, base_offset=base, index_interval_bytes=len(data))
    assert (at_index_point.stop, at_index_point.offset_index[0][0]) == (Stop.END, 22)


# --- walks without checks, windows, results -------------------------------------------------------


def test_walk_without_checksums_reads_what_is_there(cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    broken = bytearray(data)
    broken[start + 70] ^= 0xFF
    options = {"base_offset": 10, "check_crc": False, "build_index": False}
    found = assert_same(bytes(broken), cpu_path, **options)
    assert (found.stop, found.batch_count, found.offset_index, found.time_index) == (Stop.END, 3, [], [])
    far = assert_same(data, cpu_path, **{**options, "base_offset": 2**40})
    assert (far.stop, far.last_offset) == (Stop.END, 15)


def test_walk_without_checksums_reads_a_short_header_over_its_end(cpu_path: CpuPath) -> None:
    short = struct.pack(">qiibI", 3, 14, 0, 2, 0) + bytes(5)
    options = {"base_offset": 0, "check_crc": False, "build_index": False}
    followed = assert_same(short + data_batch(4), cpu_path, **options)
    assert (followed.stop, followed.batch_count) == (Stop.END, 2)
    alone = assert_same(short + bytes(10), cpu_path, **options)
    assert (alone.stop, alone.stop_detail) == (Stop.SHORT_HEADER, (26, 36))


def test_walk_from_a_batch_in_the_middle(cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    found = assert_same(
        data, cpu_path, base_offset=10, start_position=start, check_crc=False, build_index=False
    )
    assert (found.batch_count, found.valid_bytes, found.last_offset) == (2, len(data), 15)


def test_windows_may_be_read_only_and_must_be_bytes(cpu_path: CpuPath) -> None:
    data = data_batch(0)
    array = as_array(data)
    assert not array.flags.writeable
    assert scan_segment(array, base_offset=0, cpu_path=cpu_path).batch_count == 1
    scanner = SegmentScanner(base_offset=0, size_bytes=len(data))
    for wrong in (array.view(np.int8), np.zeros(200, np.uint8)[::2], np.zeros((10, 10), np.uint8)):
        with pytest.raises(ScanUsageError):
            scanner.feed(wrong)


def test_bytes_behind_the_end_of_the_file_are_not_looked_at(cpu_path: CpuPath) -> None:
    data = data_batch(0)
    scanner = SegmentScanner(base_offset=0, size_bytes=len(data), cpu_path=cpu_path)
    scanner.feed(as_array(data + data_batch(1)))
    assert scanner.result().batch_count == 1


def test_warming_up_takes_the_path_of_the_scans(cpu_path: CpuPath) -> None:
    assert warm_up(cpu_path) is cpu_path
    assert warm_up() is cpu.choose()


def test_result_before_the_end_is_refused(cpu_path: CpuPath) -> None:
    data = data_batch(0)
    scanner = SegmentScanner(base_offset=0, size_bytes=len(data), cpu_path=cpu_path)
    with pytest.raises(ScanUsageError, match="from position 0"):
        scanner.result()
    scanner.feed(as_array(data)[:20])
    assert (scanner.position, scanner.needed_bytes) == (0, len(data))
    scanner.feed(as_array(data))
    with pytest.raises(ScanUsageError):
        scanner.feed(as_array(data))
    with pytest.raises(ScanUsageError):
        scanner.resume_control(ControlKind.NOTHING)


def test_gil_is_released_while_scanning(cpu_path: CpuPath) -> None:
    data = as_array(b"".join(data_batch(i, value_bytes=1000) for i in range(2000)) * 15)
    options: dict[str, Any] = {"base_offset": 0, "build_index": False, "cpu_path": cpu_path}
    scan_segment(data[:2000], **options)
    assert most_ticks_within(lambda: scan_segment(data, **options)) >= TICKS


class TestEndHere:
    def test_the_result_is_that_of_a_shorter_file(self) -> None:
        batches = [data_batch(offset, 3, producer_id=5, transactional=True) for offset in (0, 3, 6)]
        data = b"".join(batches)
        size = len(batches[0] + batches[1])
        scanner = SegmentScanner(base_offset=0, size_bytes=len(data), build_index=False)
        scanner.feed(as_array(data[:size]))
        assert not scanner.finished
        scanner.end_here()
        found = scanner.result()
        expected = scan_segment(as_array(data[:size]), base_offset=0, build_index=False)
        assert (found.stop, found.valid_bytes, found.stop_position) == (Stop.END, size, size)
        assert found.producers.tolist() == expected.producers.tolist()
        assert found.txn_events.tolist() == expected.txn_events.tolist()
        with pytest.raises(ScanUsageError):
            scanner.end_here()
