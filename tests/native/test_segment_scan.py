"""The scan of a segment against its slow twin, on sound, damaged and random bytes, whole and in pieces."""

from __future__ import annotations

import dataclasses
import pickle
import random
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native import cpu
from native.cpu import CpuPath
from native.errors import ScanUsageError
from native.raw_scan import (
    PRODUCER_DTYPE,
    TIME_INDEX_ROW_DTYPE,
    TXN_EVENT_DTYPE,
    ControlKind,
    Stop,
    TxnEventKind,
)
from native.segment_scan import SegmentScanner, scan_segment, warm_up
from segfmt import layout
from tests import builders, reference
from tests.builders import data_batch, marker_batch, message, record_batch
from tests.native import strategies

T = builders.BASE_TIMESTAMP_MS


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def scan(
    data: bytes,
    cpu_path: CpuPath | None = None,
    *,
    window_bytes: list[int] | None = None,
    slack_bytes: int = 0,
    **options: Any,
) -> reference.Scan:
    """Scan *data* in windows of random sizes of *window_bytes* (whole without), the twin's decoder helping
    out."""
    scanner = SegmentScanner(size_bytes=len(data), cpu_path=cpu_path, **options)
    array, source = as_array(data), random.Random(len(data))
    while not scanner.finished:
        size = len(data) if window_bytes is None else max(scanner.needed_bytes, source.choice(window_bytes))
        slack = min(slack_bytes, scanner.position)
        before = scanner.position
        assert 0 < scanner.needed_bytes <= len(data) - before
        scanner.feed(array[before - slack : before + size], slack)
        if scanner.paused_control:
            batch = data[scanner.control_position : scanner.position]
            scanner.resume_control(*reference.decode_control(batch))
        assert scanner.finished or scanner.position > before or window_bytes is not None
    assert scanner.needed_bytes == 0
    return reference.plain(scanner.result())


def assert_same(data: bytes, cpu_path: CpuPath, **options: Any) -> reference.Scan:
    expected = reference.scan(data, **options)
    for windows in (None, [1, 61, 200, 1000]):
        found = scan(data, cpu_path, window_bytes=windows, **options)
        for field in dataclasses.fields(reference.Scan):
            assert getattr(found, field.name) == getattr(expected, field.name), (field.name, windows)
    return expected


# --- the scan is its twin ---------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(segment=strategies.segments(), options=strategies.SCAN_OPTIONS)
def test_scan_is_its_slow_twin(
    segment: tuple[int, bytes], options: dict[str, Any], cpu_path: CpuPath
) -> None:
    base_offset, data = segment
    assert_same(data, cpu_path, base_offset=base_offset, **options)


@settings(max_examples=60, deadline=None)
@given(segment=strategies.sound_segments(), seed=st.integers(0, 2**32), slack=st.integers(0, 300))
def test_windows_do_not_matter(segment: tuple[int, bytes], seed: int, slack: int, cpu_path: CpuPath) -> None:
    base_offset, data = segment
    sizes = [random.Random(seed).randrange(1, 3000) for _ in range(5)]
    options = {"base_offset": base_offset, "index_interval_bytes": 200}
    pieces = scan(data, cpu_path, window_bytes=sizes, slack_bytes=slack, **options)
    assert pieces == scan(data, cpu_path, **options)


def three_batches() -> tuple[bytes, int, int]:
    """(segment, where its second batch begins and ends)"""
    batches = [
        data_batch(10, 2, producer_id=4, producer_epoch=1, base_sequence=0, leader_epoch=3),
        data_batch(12, 3, producer_id=4, producer_epoch=1, base_sequence=2, leader_epoch=3, value_bytes=400),
        data_batch(15, 1, producer_id=4, producer_epoch=1, base_sequence=5, leader_epoch=3),
    ]
    return b"".join(batches), len(batches[0]), len(batches[0]) + len(batches[1])


def test_every_flipped_header_bit_is_judged_like_kafka_does(cpu_path: CpuPath) -> None:
    data, start, _end = three_batches()
    stops = set()
    for bit in range(8 * (layout.RECORDS_POSITION + 4)):
        flipped = bytearray(data)
        flipped[start + bit // 8] ^= 0x80 >> bit % 8
        stops.add(assert_same(bytes(flipped), cpu_path, base_offset=10, index_interval_bytes=0).stop)
    assert stops >= {Stop.END, Stop.CRC_MISMATCH, Stop.BAD_LENGTH, Stop.TORN, Stop.OFFSET_OVERFLOW}


def test_every_flipped_payload_bit_is_found(cpu_path: CpuPath) -> None:
    data, start, end = three_batches()
    for position in range(start + layout.ATTRIBUTES_POSITION, end, 5):
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


# --- Kafka's own numbers ------------------------------------------------------------------------


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


# --- index errors -----------------------------------------------------------------------------


def test_full_indexes_stop_the_scan(cpu_path: CpuPath) -> None:
    data = b"".join(data_batch(i, max_timestamp_ms=T + i) for i in range(10))
    options = {"base_offset": 0, "index_interval_bytes": 0}
    full = assert_same(data, cpu_path, max_index_entries=3, **options)
    assert (full.stop, full.stop_detail, full.batch_count) == (Stop.INDEX_FULL, (3, 3), 4)
    time_full = assert_same(data, cpu_path, max_time_index_entries=4, **options)
    assert (time_full.stop, time_full.stop_detail, len(time_full.offset_index)) == (
        Stop.TIME_INDEX_FULL,
        (3, 4),
        4,
    )


def test_offset_that_falls_back_is_found_at_index_points_only(cpu_path: CpuPath) -> None:
    offsets = [0, 1, 2, 1, 4]
    data = b"".join(data_batch(offset) for offset in offsets)
    size = len(data) // 5
    at_point = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=0)
    assert (at_point.stop, at_point.stop_position, at_point.stop_detail) == (
        Stop.INVALID_OFFSET,
        3 * size,
        (1, 2),
    )
    assert at_point.valid_bytes == 3 * size
    between = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=2 * size)
    assert (between.stop, between.batch_count) == (Stop.END, 5)


def test_time_index_that_falls_back_names_the_batch_with_the_timestamp(cpu_path: CpuPath) -> None:
    batches = [
        data_batch(0, max_timestamp_ms=T),
        data_batch(50, max_timestamp_ms=T + 1),
        data_batch(20, max_timestamp_ms=T + 2),
    ]
    size = len(batches[0])
    last = assert_same(b"".join(batches), cpu_path, base_offset=0, index_interval_bytes=size - 1)
    assert (last.stop, last.stop_position) == (Stop.INVALID_OFFSET, 2 * size)
    data = b"".join(batches)
    final = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=size)
    assert final.stop is Stop.END
    data = b"".join([batches[0], batches[0], batches[1], batches[2], data_batch(60, max_timestamp_ms=T)])
    final = assert_same(data[: 4 * size], cpu_path, base_offset=0, index_interval_bytes=size)
    assert (final.stop, final.stop_position) == (Stop.TIME_INDEX_INVALID_OFFSET, 3 * size)
    assert (final.stop_detail, final.valid_bytes) == ((20, 50), 4 * size)
    at_point = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=size)
    assert (at_point.stop, at_point.stop_position) == (Stop.TIME_INDEX_INVALID_OFFSET, 3 * size)
    assert (at_point.valid_bytes, len(at_point.offset_index)) == (4 * size, 2)


# --- epochs ------------------------------------------------------------------------------------


def test_epochs_are_the_rising_ones(cpu_path: CpuPath) -> None:
    epochs = [-1, 0, 0, 3, 1, 3, 4, -5, 4]
    data = b"".join(data_batch(i, leader_epoch=epoch) for i, epoch in enumerate(epochs))
    found = assert_same(data, cpu_path, base_offset=0)
    assert found.epochs == [(0, 1), (3, 3), (4, 6)]
    assert found.epoch_positions == [i * len(data) // len(epochs) for i in (1, 3, 6)]


def test_epoch_that_starts_below_zero_is_reported_and_left_to_the_cache(cpu_path: CpuPath) -> None:
    data = data_batch(-3, 5, leader_epoch=2) + data_batch(2, leader_epoch=2)
    found = assert_same(data, cpu_path, base_offset=0)
    assert (found.stop, found.epochs) == (Stop.END, [(2, -3)])


# --- producers and transactions -----------------------------------------------------------------


def idempotent(offset: int, producer_id: int, epoch: int = 0, **fields: Any) -> bytes:
    return data_batch(offset, producer_id=producer_id, producer_epoch=epoch, **fields)


def test_idempotent_producer_costs_one_event(cpu_path: CpuPath) -> None:
    data = b"".join(idempotent(i, 9, base_sequence=i) for i in range(1000))
    found = assert_same(data, cpu_path, base_offset=0)
    assert found.txn_events == [(TxnEventKind.NON_TRANSACTIONAL, 0, 0, 0, 0, -1, -1, 0, -1)]
    assert found.producers == [(9, 999, T, T, 999, 0, -1, 0, 0, True, False, False)]
    assert found.producer_end_offset == 1000


@pytest.mark.parametrize(
    "producer_ids", [range(3000), [i << 32 for i in range(1500)], [7 + 128 * i for i in range(700)]]
)
def test_many_producers_in_order_of_first_appearance(producer_ids: Any, cpu_path: CpuPath) -> None:
    ids = list(producer_ids)
    random.Random(1).shuffle(ids)
    order = ids + random.Random(2).choices(ids, k=500)
    data = b"".join(idempotent(i, pid, value_bytes=0) for i, pid in enumerate(order))
    found = assert_same(data, cpu_path, base_offset=0)
    assert [row[0] for row in found.producers] == ids


@pytest.mark.parametrize(
    ("sequence", "delta", "last"),
    [
        (-1, 4, -1),
        (5, 4, 9),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 3, 6, 3),
        (-5, 2, -3),
        (5, -2, -(2**31) + 3),
    ],
)
def test_last_sequence_wraps_as_java_does(sequence: int, delta: int, last: int, cpu_path: CpuPath) -> None:
    data = idempotent(5, 1, base_sequence=sequence, last_offset_delta=delta)
    found = assert_same(data, cpu_path, base_offset=0)
    (producer,) = found.producers
    assert producer[4] == last
    assert producer[5] == delta


def test_transactions_begin_once_and_end_with_their_marker(cpu_path: CpuPath) -> None:
    batches = [
        idempotent(0, 7, transactional=True),
        idempotent(1, 7, transactional=True),
        marker_batch(2, builders.ABORT, producer_id=7, coordinator_epoch=5, base_timestamp_ms=T + 44),
        idempotent(3, 7),
        idempotent(4, 7, transactional=True),
        marker_batch(5, builders.COMMIT, producer_id=7, producer_epoch=1, coordinator_epoch=6),
        marker_batch(6, builders.COMMIT, producer_id=8),
    ]
    found = assert_same(b"".join(batches), cpu_path, base_offset=0, settles_txns=False)
    assert [(event[0], event[1], event[2], event[5], event[6], event[7]) for event in found.txn_events] == [
        (TxnEventKind.BEGIN, 0, 0, -1, -1, 0),
        (TxnEventKind.MARKER, 0, 2, builders.ABORT, 5, 0),
        (TxnEventKind.BEGIN, 0, 4, -1, -1, 0),
        (TxnEventKind.MARKER, 0, 5, builders.COMMIT, 6, 1),
        (TxnEventKind.MARKER, 1, 6, builders.COMMIT, 0, 0),
    ]
    seven, eight = found.producers
    assert seven == (7, 4, T, T, -1, 0, 6, 0, 1, True, True, True)
    assert eight == (8, -1, T, -1, -1, 0, 0, 0, 0, False, True, False)


def test_a_commit_leaves_no_event_once_its_producer_is_known(cpu_path: CpuPath) -> None:
    batches = [
        marker_batch(0, producer_id=7),
        marker_batch(1, producer_id=8),
        idempotent(2, 7, transactional=True),
        idempotent(3, 8, transactional=True),
        idempotent(4, 9, transactional=True),
        marker_batch(5, builders.ABORT, producer_id=8),
        marker_batch(6, builders.COMMIT, producer_id=8),
        marker_batch(7, builders.COMMIT, producer_id=7),
        idempotent(8, 8, transactional=True),
        idempotent(9, 7, transactional=True),
        marker_batch(10, builders.COMMIT, producer_id=7),
        marker_batch(11, builders.COMMIT, producer_id=9),
    ]
    found = assert_same(b"".join(batches), cpu_path, base_offset=0)
    assert [(event[0], event[1], event[2], event[8]) for event in found.txn_events] == [
        (TxnEventKind.MARKER, 0, 0, -1),
        (TxnEventKind.MARKER, 1, 1, -1),
        (TxnEventKind.BEGIN, 2, 4, -1),
        (TxnEventKind.ABORTED, 1, 3, 2),
        (TxnEventKind.BEGIN, 1, 8, -1),
        (TxnEventKind.MARKER, 2, 11, 8),
    ]
    assert (found.settled_txn_count, found.first_settled_offset, found.last_settled_offset) == (3, 2, 9)


def test_no_transaction_is_settled_behind_one_that_begins_before_another(cpu_path: CpuPath) -> None:
    batches = [marker_batch(0, producer_id=7)]
    for offset in (10, 20, 20, 30):
        batches += [idempotent(offset, 7, transactional=True), marker_batch(offset + 1, producer_id=7)]
    found = assert_same(b"".join(batches), cpu_path, base_offset=0)
    assert (found.txns_in_order, found.settled_txn_count, found.last_settled_offset) == (False, 2, 20)
    assert [event[2] for event in found.txn_events] == [0, 20, 21, 30, 31]


_TXN_STEP = st.tuples(
    st.integers(0, 4),
    st.sampled_from(["data", "data", "commit", "commit", "abort"]),
    st.sampled_from([1] * 9 + [0, -3]),
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(_TXN_STEP, max_size=60))
def test_transactions_are_those_of_the_slow_twin(
    steps: list[tuple[int, str, int]], cpu_path: CpuPath
) -> None:
    offset, batches = 0, []
    for producer_id, what, step in steps:
        offset = max(0, offset + step)
        if what == "data":
            batches.append(idempotent(offset, producer_id, transactional=True))
        else:
            kind = builders.COMMIT if what == "commit" else builders.ABORT
            batches.append(marker_batch(offset, kind, producer_id=producer_id))
    assert_same(b"".join(batches), cpu_path, base_offset=0)


def test_batch_outside_of_an_open_transaction_stops_the_scan(cpu_path: CpuPath) -> None:
    data = idempotent(0, 7, transactional=True) + idempotent(1, 7) + idempotent(2, 7)
    found = assert_same(data, cpu_path, base_offset=0)
    assert (found.stop, found.stop_detail, found.batch_count) == (Stop.INVALID_TXN, (7, 1), 2)
    assert [event[0] for event in found.txn_events] == [TxnEventKind.BEGIN, TxnEventKind.INVALID_TXN]
    assert found.producers[0][1] == 0, "the refused batch is not in the producer's state"


def test_epoch_changes_clear_what_is_before_them(cpu_path: CpuPath) -> None:
    cleared = {}
    for name, batches in {
        "data, marker of its epoch": [idempotent(0, 1), marker_batch(1, producer_id=1)],
        "data, marker of the next": [idempotent(0, 1), marker_batch(1, producer_id=1, producer_epoch=1)],
        "and data again": [
            idempotent(0, 1),
            marker_batch(1, producer_id=1, producer_epoch=1),
            idempotent(2, 1, epoch=1),
        ],
        "markers, other epochs": [marker_batch(i, producer_id=1, producer_epoch=i) for i in range(2)],
        "and back": [marker_batch(i, producer_id=1, producer_epoch=i % 2) for i in range(3)],
    }.items():
        (producer,) = assert_same(b"".join(batches), cpu_path, base_offset=0).producers
        cleared[name] = producer[-1]
    assert cleared == {
        "data, marker of its epoch": False,
        "data, marker of the next": True,
        "and data again": False,
        "markers, other epochs": True,
        "and back": True,
    }


def test_control_batch_without_records_only_makes_the_producer_known(cpu_path: CpuPath) -> None:
    data = record_batch(base_offset=0, records=[], control=True, producer_id=3, producer_epoch=4)
    found = assert_same(data, cpu_path, base_offset=0)
    assert found.producers == [(3, -1, -1, -1, -1, 0, -1, -1, -1, False, False, False)]
    assert (found.txn_events, found.producer_end_offset) == ([], 1)


def test_control_batches_without_producer_are_passed_over(cpu_path: CpuPath) -> None:
    data = record_batch(records=builders.control_record(2), control=True) + data_batch(1)
    found = assert_same(data, cpu_path, base_offset=0)
    assert (found.stop, found.producers, found.producer_end_offset) == (Stop.END, [], 2)


def test_marker_of_log_append_time_has_the_batch_timestamp(cpu_path: CpuPath) -> None:
    data = marker_batch(0, producer_id=1, log_append_time=True, max_timestamp_ms=T + 5)
    (producer,) = assert_same(data, cpu_path, base_offset=0).producers
    assert producer[2] == T + 5


# --- control batches that the caller decodes -----------------------------------------------------


def odd_marker(offset: int, **fields: Any) -> bytes:
    """A marker whose timestamp delta takes two bytes: not the shape that the kernel decodes."""
    records = builders.control_record(builders.COMMIT, coordinator_epoch=3, timestamp_delta_ms=1000)
    return record_batch(
        base_offset=offset, records=records, control=True, producer_id=6, producer_epoch=2, **fields
    )


def paused_scanner(data: bytes, cpu_path: CpuPath) -> SegmentScanner:
    scanner = SegmentScanner(base_offset=0, size_bytes=len(data), cpu_path=cpu_path)
    scanner.feed(as_array(data))
    assert scanner.paused_control
    assert not scanner.finished
    return scanner


def test_odd_control_batch_waits_for_the_caller(cpu_path: CpuPath) -> None:
    first, odd, last = data_batch(0), odd_marker(1), data_batch(2)
    data = first + odd + last
    scanner = paused_scanner(data, cpu_path)
    assert data[scanner.control_position : scanner.position] == odd
    with pytest.raises(ScanUsageError):
        scanner.feed(as_array(last))
    scanner.resume_control(ControlKind.MARKER, builders.COMMIT, 3, T + 1000)
    assert not scanner.finished
    scanner.feed(as_array(last))
    found = reference.plain(scanner.result())
    assert found == reference.scan(data, base_offset=0)
    assert found.producers == [(6, -1, T + 1000, -1, -1, 0, 3, 2, 2, False, True, False)]


@pytest.mark.parametrize("kind", [ControlKind.MARKER, ControlKind.NOTHING])
def test_odd_control_batch_at_the_very_end(kind: ControlKind, cpu_path: CpuPath) -> None:
    data = data_batch(0) + odd_marker(1)
    scanner = paused_scanner(data, cpu_path)
    scanner.resume_control(kind)
    assert scanner.finished
    found = scanner.result()
    assert (found.stop, found.producer_end_offset, len(found.producers)) == (Stop.END, 2, 1)
    assert len(found.txn_events) == (kind is ControlKind.MARKER)


def test_invalid_control_batch_stays_and_what_is_behind_it_goes(cpu_path: CpuPath) -> None:
    first, odd = data_batch(0), odd_marker(1, max_timestamp_ms=T + 9)
    scanner = paused_scanner(first + odd + data_batch(2), cpu_path)
    scanner.resume_control(ControlKind.INVALID)
    found = scanner.result()
    assert (found.stop, found.valid_bytes) == (Stop.INVALID_CONTROL, len(first + odd))
    assert (found.stop_position, found.stop_detail, found.last_offset) == (len(first), (6, 1), 1)
    assert found.time_index.tolist() == [(T + 9, 1)]
    assert (found.producers.size, found.producer_end_offset) == (0, 1)


def test_fatal_control_batch_ends_the_scan(cpu_path: CpuPath) -> None:
    scanner = paused_scanner(odd_marker(0) + data_batch(1), cpu_path)
    scanner.resume_control(ControlKind.FATAL)
    assert scanner.result().stop is Stop.CONTROL_FATAL
    assert scanner.result().time_index.size == 0


def test_whole_segment_with_an_odd_control_batch_says_so(cpu_path: CpuPath) -> None:
    data = data_batch(0) + odd_marker(1) + data_batch(2)
    found = scan_segment(as_array(data), base_offset=0, cpu_path=cpu_path)
    assert (found.stop, found.stop_detail, found.batch_count) == (Stop.CONTROL_PAUSED, (6, 1), 2)


def test_compressed_marker_waits_for_the_caller(cpu_path: CpuPath) -> None:
    markers = [builders.control_record(builders.ABORT, coordinator_epoch=4) for _ in range(2)]
    for records, count, stop in [
        (markers[:1], 1, Stop.END),
        (markers, 2, Stop.END),
        (markers, 1, Stop.INVALID_CONTROL),
        (markers[:1], 2, Stop.INVALID_CONTROL),
        (markers[:1], -1, Stop.INVALID_CONTROL),
    ]:
        batch = record_batch(
            records=builders.gzip(b"".join(records)),
            record_count=count,
            last_offset_delta=0,
            codec=builders.GZIP,
            control=True,
            producer_id=2,
        )
        found = assert_same(batch + data_batch(1), cpu_path, base_offset=0)
        assert (found.stop, len(found.txn_events)) == (stop, stop is Stop.END)


def test_every_byte_of_a_marker_changed(cpu_path: CpuPath) -> None:
    whole = marker_batch(0, builders.COMMIT, producer_id=6, coordinator_epoch=9)
    stops = set()
    for position in range(21, len(whole)):
        for change in (0x01, 0x02, 0x7F, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[position] ^= change
            data = builders.recompute_crc(bytes(changed)) + data_batch(1)
            stops.add(assert_same(data, cpu_path, base_offset=0).stop)
    assert stops >= {Stop.END, Stop.INVALID_CONTROL, Stop.CONTROL_FATAL}


# --- walks without checks, options, types ---------------------------------------------------------


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


def test_index_is_left_out_on_request(cpu_path: CpuPath) -> None:
    data = b"".join(data_batch(i) for i in range(200))
    found = assert_same(data, cpu_path, base_offset=0, build_index=False, index_interval_bytes=0)
    assert (found.stop, found.offset_index, found.time_index) == (Stop.END, [], [])
    assert found.max_timestamp_ms == T


def test_tables_grow_far_beyond_their_first_size(cpu_path: CpuPath) -> None:
    batches = []
    for i in range(0, 2000, 2):
        pid = i % 600
        batches.append(idempotent(i, pid, transactional=True, leader_epoch=i, max_timestamp_ms=T + i))
        batches.append(marker_batch(i + 1, producer_id=pid, leader_epoch=i + 1))
    options = {"base_offset": 0, "index_interval_bytes": 0}
    found = assert_same(b"".join(batches), cpu_path, settles_txns=False, **options)
    assert (found.stop, len(found.txn_events), len(found.producers)) == (Stop.END, 2000, 300)
    found = assert_same(b"".join(batches), cpu_path, **options)
    assert (len(found.txn_events), found.settled_txn_count) == (600, 700)
    assert (len(found.offset_index), len(found.epochs)) == (1999, 2000)


@pytest.mark.parametrize("first", [0, 1])
def test_tables_that_are_full_between_messages_and_batches_grow(first: int, cpu_path: CpuPath) -> None:
    make = [lambda i: message(i, timestamp_ms=T + i), lambda i: data_batch(i, max_timestamp_ms=T + i)]
    data = b"".join(make[(first + i) % 2](i) for i in range(300))
    found = assert_same(data, cpu_path, base_offset=0, index_interval_bytes=0)
    assert (len(found.offset_index), found.legacy_batch_count) == (299, 150)


@pytest.mark.parametrize("before", [61, 62, 63, 64, 126, 127])
def test_tables_that_are_full_at_an_odd_control_batch_grow(before: int, cpu_path: CpuPath) -> None:
    batches = [idempotent(i, 1000 + i, leader_epoch=0) for i in range(before)]
    batches += [
        odd_marker(before),
        odd_marker(before + 1),
        idempotent(before + 2, 7),
        idempotent(before + 3, 8),
    ]
    found = assert_same(b"".join(batches), cpu_path, base_offset=0)
    assert (len(found.producers), len(found.txn_events)) == (before + 3, before + 3)


def test_shapes_and_types_of_the_result(cpu_path: CpuPath) -> None:
    data = idempotent(0, 1) + marker_batch(1, producer_id=1)
    for scanned in (
        scan_segment(as_array(data), base_offset=0, index_interval_bytes=0, cpu_path=cpu_path),
        scan_segment(as_array(b""), base_offset=0, cpu_path=cpu_path),
    ):
        assert (scanned.offset_index.dtype, scanned.offset_index.shape[1:]) == (np.dtype(np.int32), (2,))
        assert (scanned.epochs.dtype, scanned.epochs.shape[1:]) == (np.dtype(np.int64), (2,))
        assert scanned.time_index.dtype == TIME_INDEX_ROW_DTYPE
        assert scanned.producers.dtype == PRODUCER_DTYPE
        assert scanned.txn_events.dtype == TXN_EVENT_DTYPE
        assert isinstance(scanned.stop, Stop)
        assert all(type(value) is int for value in (scanned.valid_bytes, *scanned.stop_detail))
        again = pickle.loads(pickle.dumps(scanned))
        assert reference.plain(again) == reference.plain(scanned)


def test_indexes_encode_by_a_cast_to_the_file_types() -> None:
    data = b"".join(data_batch(i, max_timestamp_ms=T + i) for i in range(3))
    size = len(data) // 3
    found = scan_segment(as_array(data), base_offset=0, index_interval_bytes=0)
    assert found.offset_index.astype(">i4").tobytes() == struct.pack(">iiii", 1, size, 2, 2 * size)
    assert found.time_index.astype(layout.TIME_INDEX_DTYPE).tobytes() == struct.pack(
        ">qiqi", T + 1, 1, T + 2, 2
    )


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
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    for _ in range(40):
        scan_segment(data, **options)
        if time.perf_counter() - begin > 0.15:
            break
    end = time.perf_counter()
    done.set()
    ticker.join()
    assert sum(begin < tick < end for tick in ticks) >= 5


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
