"""What the scan of a segment says of producers and their transactions, and how it handles control batches."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.cpu_path import CpuPath
from native.errors import ScanUsageError
from native.raw_scan import ControlKind, Stop, TxnEventKind
from native.segment_scan import SegmentScanner
from tests.logs import builders, reference
from tests.logs.builders import data_batch, marker_batch, record_batch
from tests.native.scanning import T, as_array, assert_same, idempotent, odd_marker, scan_segment

# --- producers and transactions -------------------------------------------------------------------


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


@settings(max_examples=150)
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


# --- control batches that the caller decodes ------------------------------------------------------


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
