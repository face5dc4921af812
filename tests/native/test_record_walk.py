"""The walks over headers and records against the readers of `segfmt`: the same rows, the same faults."""

from __future__ import annotations

import random

import numpy as np
import pytest

from native.batch_headers import WalkEnd, walk_headers
from native.errors import ScanUsageError
from native.record_walk import RecordFault, walk_plain_batches, walk_records
from segfmt.errors import FormatError
from segfmt.message_set import Message, encode_message
from segfmt.record import Record, RecordHeader, encode_records, read_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch, read_record_batch_header, walk_batches

RECORDS = (
    Record(offset=100, timestamp_ms=1000, key=b"k", value=b"value"),
    Record(offset=101, timestamp_ms=1500, value=None, headers=(RecordHeader(key=b"h", value=b"x" * 200),)),
    Record(
        offset=105, timestamp_ms=900, key=b"", value=b"v" * 300, headers=(RecordHeader(key=b"", value=None),)
    ),
)
HEADER = RecordBatchHeader(
    base_offset=100,
    partition_leader_epoch=7,
    last_offset_delta=5,
    base_timestamp_ms=1000,
    max_timestamp_ms=1500,
    record_count=3,
)
BODY = encode_records(RECORDS, base_offset=100, base_timestamp_ms=1000)


def log_of(count: int) -> bytes:
    batches = []
    for number in range(count):
        header = RecordBatchHeader(
            base_offset=100 + 6 * number,
            partition_leader_epoch=number // 3,
            last_offset_delta=5,
            base_timestamp_ms=1000,
            max_timestamp_ms=1500 + number,
            producer_id=(1 << 40) + number,
            producer_epoch=number,
            base_sequence=70_000 + number,
            record_count=3,
        )
        batches.append(encode_record_batch(header, BODY))
        if number % 4 == 3:
            message = Message(
                offset=90 + number, magic=1, attributes=0, timestamp_ms=77, key=None, value=b"old"
            )
            batches.append(encode_message(message))
    return b"".join(batches)


def walk(body: bytes, **fields: int | None):
    known = {"record_count": 3, "last_offset_delta": 5, "base_timestamp_ms": 1000, "max_timestamp_ms": 1500}
    return walk_records(np.frombuffer(body, np.uint8), **(known | fields))


class TestHeaders:
    def test_rows_are_what_the_readers_read(self) -> None:
        data = log_of(13)
        rows = walk_headers(np.frombuffer(data, np.uint8), position=0, end_position=len(data)).rows
        expected = list(walk_batches(data))
        assert rows["position"].tolist() == [batch.position for batch in expected]
        assert rows["size_bytes"].tolist() == [batch.size_bytes for batch in expected]
        for row, batch in zip(rows, expected, strict=True):
            if batch.magic < 2:
                assert (row["magic"], row["max_timestamp_ms"], row["record_count"]) == (1, 77, -1)
                assert (row["producer_id"], row["producer_epoch"], row["base_sequence"]) == (-1, -1, -1)
                assert row["last_offset"] == batch.offset
                continue
            header = read_record_batch_header(data, batch.position)
            assert row["base_offset"] == header.base_offset
            assert row["last_offset"] == header.last_offset
            assert row["leader_epoch"] == header.partition_leader_epoch
            assert row["max_timestamp_ms"] == header.max_timestamp_ms
            assert row["record_count"] == header.record_count
            assert row["producer_id"] == header.producer_id
            assert row["producer_epoch"] == header.producer_epoch
            assert row["base_sequence"] == header.base_sequence

    def test_windows_do_not_matter(self) -> None:
        data = np.frombuffer(log_of(9), np.uint8)
        whole = walk_headers(data, position=0, end_position=data.size).rows
        for size in (17, 61, 700, 701, 5000):
            parts, position, wanted = [], 0, size
            while True:
                window = data[position : position + wanted]
                found = walk_headers(window, position=position, end_position=data.size, most_rows=2)
                parts.append(found.rows)
                if found.end is WalkEnd.END:
                    break
                wanted = size if found.position > position else wanted * 2
                position = found.position
            assert np.concatenate(parts).tolist() == whole.tolist()

    @pytest.mark.parametrize("cut", [1, 17, 18, 60, 61, 100])
    def test_a_torn_end(self, cut: int) -> None:
        data = log_of(2)
        last = list(walk_batches(data))[-1]
        torn = np.frombuffer(data[: last.position + cut], np.uint8)
        found = walk_headers(torn, position=0, end_position=torn.size)
        assert found.position == last.position
        assert found.end is (WalkEnd.END if cut <= 17 else WalkEnd.TORN)

    def test_zeros(self) -> None:
        data = np.frombuffer(log_of(1) + bytes(100), np.uint8)
        assert walk_headers(data, position=0, end_position=data.size).end is WalkEnd.BAD_LENGTH

    def test_what_is_no_window(self) -> None:
        with pytest.raises(ScanUsageError):
            walk_headers(np.zeros(10, np.int64), position=0, end_position=10)


class TestRecords:
    def test_sound_ones(self) -> None:
        assert walk(BODY).fault is RecordFault.SOUND
        assert walk(b"", record_count=0).fault is RecordFault.SOUND

    @pytest.mark.parametrize(
        ("fields", "fault"),
        [
            ({"record_count": 2}, RecordFault.BYTES_LEFT),
            ({"record_count": 4}, RecordFault.CUT_OFF),
            ({"last_offset_delta": 4}, RecordFault.BAD_OFFSET_DELTA),
            ({"max_timestamp_ms": 1499}, RecordFault.LATE_TIMESTAMP),
        ],
    )
    def test_what_the_batch_says_must_fit(self, fields: dict[str, int], fault: RecordFault) -> None:
        assert walk(BODY, **fields).fault is fault

    def test_timestamps_may_be_unbound(self) -> None:
        assert walk(BODY, max_timestamp_ms=None).fault is RecordFault.SOUND

    def test_offset_deltas_ascend(self) -> None:
        twice = encode_records([RECORDS[0], RECORDS[0]], base_offset=100, base_timestamp_ms=1000)
        assert walk(twice, record_count=2) == (RecordFault.BAD_OFFSET_DELTA, 1, len(twice) // 2)

    def test_faults_are_those_that_kafka_sees(self) -> None:
        """Any byte changed: the kernel refuses what the reader refuses, and offsets and times beside."""
        rng = random.Random(4)
        seen = set()
        for _ in range(4000):
            body = bytearray(BODY)
            for _ in range(rng.choice([1, 1, 2])):
                body[rng.randrange(len(body))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            how = rng.random()
            if how < 0.2:
                del body[rng.randrange(len(body)) :]
            elif how < 0.4:
                start = rng.randrange(len(body))
                body[start : start + 11] = b"\xff" * 11
            elif how < 0.5:
                body += rng.randbytes(3)
            found = walk(bytes(body))
            seen.add(found.fault)
            try:
                list(read_records(encode_record_batch(HEADER, bytes(body))))
            except FormatError:
                assert found.fault is not RecordFault.SOUND, body.hex()
            else:
                allowed = (RecordFault.SOUND, RecordFault.BAD_OFFSET_DELTA, RecordFault.LATE_TIMESTAMP)
                assert found.fault in allowed, body.hex()
        assert seen == {fault for fault in RecordFault if fault < RecordFault.BAD_COUNT}

    def test_many_batches_at_once(self) -> None:
        data = log_of(9)
        window = np.frombuffer(data, np.uint8)
        rows = walk_headers(window, position=0, end_position=len(data)).rows
        assert walk_plain_batches(window, rows)[0] == len(rows)
        broken = window.copy()
        fifth = rows[5]
        assert fifth["magic"] == 2
        broken[int(fifth["position"]) + 61] = 0x7E
        place, found = walk_plain_batches(broken, rows)
        assert place == 5
        assert found.fault is not RecordFault.SOUND
        behind = int(rows["position"][6])
        assert walk_plain_batches(broken[behind:], rows[6:])[0] == len(rows) - 6
