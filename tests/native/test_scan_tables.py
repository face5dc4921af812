"""The tables that the scan of a segment makes: indexes, epochs, producers; their errors, growth and types."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from native.cpu_path import CpuPath
from native.raw_scan import PRODUCER_DTYPE, TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, Stop
from segfmt import byte_layout
from tests.logs import reference
from tests.logs.builders import data_batch, marker_batch, message
from tests.native.scanning import T, as_array, assert_same, idempotent, odd_marker, scan_segment

# --- index errors ---------------------------------------------------------------------------------


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


# --- epochs ---------------------------------------------------------------------------------------


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


# --- growth and types -----------------------------------------------------------------------------


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
    assert found.time_index.astype(byte_layout.TIME_INDEX_DTYPE).tobytes() == struct.pack(
        ">qiqi", T + 1, 1, T + 2, 2
    )
