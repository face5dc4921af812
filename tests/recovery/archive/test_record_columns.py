"""Segments as Arrow rows against the slow readers of `segfmt`: the same records, batches and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.record_columns import SegmentView, read_segment
from recovery.archive.records.record_schema import Include
from recovery.errors import DamagedSegmentError, UsageError
from segfmt.compression import Codec, compress
from segfmt.errors import FormatError
from segfmt.message_set import Message, check_message, encode_message, read_messages
from segfmt.record import Record, RecordHeader, encode_records, read_records
from segfmt.record_batch import (
    RecordBatchHeader,
    check_record_batch,
    encode_record_batch,
    read_record_batch_header,
    walk_batches,
)
from tests.logs.memory_log import MemoryLog
from tests.logs.samples import SAMPLE_NAMES, unpack
from tests.runs.readings import arrow_schema

VIEW = SegmentView(name="t-3/00.log", topic="t", partition=3, base_offset=0)
FIRST_MS = 1_700_000_000_000


def rows_of(
    data: bytes,
    *names: str,
    view: SegmentView = VIEW,
    left_out: list[LeftOut] | None = None,
    index: Sequence[int] = (),
    **options: Any,
) -> list[dict[str, Any]]:
    """What `read_segment` gives, timestamps as ms."""
    wanted = ReadOptions(**options)
    schema = arrow_schema(wanted.include, *names)
    found = [] if left_out is None else left_out
    batches = list(
        read_segment(
            MemoryLog(data), view, schema, wanted, index_positions=lambda: index, on_left_out=found.append
        )
    )
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    for place, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table.to_pylist()


def expected_records(data: bytes) -> Iterator[dict[str, Any]]:
    """The same by the readers of `segfmt`; control batches are left out."""
    for batch in walk_batches(data):
        if batch.magic < 2:
            check_message(data, batch.position)
            for message in read_messages(data, batch.position):
                yield from expected_message(data, batch.position, message)
            continue
        header = check_record_batch(data, batch.position)
        if header.is_control:
            continue
        for record in read_records(data, batch.position):
            yield {
                "topic": "t",
                "partition": 3,
                "offset": record.offset,
                "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms,
                "timestamp_type": int(header.is_log_append_time),
                "key": record.key,
                "value": record.value,
                "headers": [
                    {"key": one.key.decode("utf-8", "replace"), "value": one.value} for one in record.headers
                ],
                "leader_epoch": header.partition_leader_epoch,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "sequence": record.sequence,
                "is_transactional": header.is_transactional,
                "is_control": False,
                "aborted": False,
                "position": batch.position,
                "crc_valid": True,
                "fault": None,
                "topic_id": None,
            }


def expected_message(data: bytes, position: int, message: Message) -> Iterator[dict[str, Any]]:
    attributes, magic = data[position + 17], data[position + 16]
    yield {
        "topic": "t",
        "partition": 3,
        "offset": message.offset,
        "timestamp": None if message.timestamp_ms == -1 else message.timestamp_ms,
        "timestamp_type": -1 if magic == 0 else attributes >> 3 & 1,
        "key": message.key,
        "value": message.value,
        "headers": [],
        "leader_epoch": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "sequence": -1,
        "is_transactional": False,
        "is_control": False,
        "aborted": False,
        "position": position,
        "crc_valid": True,
        "fault": None,
        "topic_id": None,
    }


class TestSamples:
    @pytest.mark.parametrize("name", SAMPLE_NAMES)
    def test_real_segments_give_what_the_slow_readers_read(self, name: str, tmp_path: Path) -> None:
        sample = unpack(name, tmp_path)
        read = 0
        for path in sorted(path for log_dir in sample.log_dirs for path in log_dir.glob("*/*.log")):
            data = path.read_bytes()
            found = rows_of(data, view=replace(VIEW, is_last=True), corrupt=Corrupt.SKIP)
            expected = [
                row | {"position": batch.position}
                for batch in walk_to_the_end(data)
                for row in expected_records(data[batch.position : batch.position + batch.size_bytes])
            ]
            assert found == expected, path
            read += len(found)
        assert read > 100


def walk_to_the_end(data: bytes) -> list[Any]:
    """The batches before whatever a broker has left behind the last one."""
    found = []
    try:
        for batch in walk_batches(data):
            found.append(batch)  # noqa: PERF402 - what was found before the error counts
    except FormatError:
        pass
    return found


# -- what logs are made of -----------------------------------------------------------------------------------

SOME_BYTES = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"", b"v" * 200, b"\xff" * 9]))
HEADER_KEYS = st.one_of(
    st.binary(max_size=6), st.sampled_from([b"trace", "schl\u00fcssel".encode(), b"\xc3", b"\xa9"])
)
TIMES = st.one_of(st.integers(-5, 10**6).map(lambda delta: FIRST_MS + delta), st.sampled_from([-1, 0, 2**62]))


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    """(bytes, next offset): a batch of magic 2 that the readers accept."""
    deltas = sorted(draw(st.sets(st.integers(0, 30), max_size=6)))
    base_timestamp_ms = draw(TIMES)
    base_sequence = draw(st.sampled_from([-1, 0, 70_000, 2**31 - 4]))
    records = [
        Record(
            offset=base_offset + delta,
            timestamp_ms=base_timestamp_ms + draw(st.integers(-3, 1000)),
            key=draw(SOME_BYTES),
            value=draw(SOME_BYTES),
            headers=tuple(
                RecordHeader(key=key, value=value)
                for key, value in draw(st.lists(st.tuples(HEADER_KEYS, SOME_BYTES), max_size=3))
            ),
        )
        for delta in deltas
    ]
    codec = draw(st.sampled_from(Codec))
    attributes = codec | draw(st.sampled_from([0, 0, 8, 0x10, 0x18, 0x30]))
    header = RecordBatchHeader(
        base_offset=base_offset,
        partition_leader_epoch=draw(st.integers(-1, 9)),
        attributes=attributes,
        last_offset_delta=deltas[-1] if deltas else 0,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max((record.timestamp_ms for record in records), default=-1),
        producer_id=draw(st.sampled_from([-1, 5, 2**40])),
        producer_epoch=draw(st.sampled_from([-1, 0, 32767])),
        base_sequence=base_sequence,
        record_count=len(records),
    )
    body = encode_records(records, base_offset=base_offset, base_timestamp_ms=base_timestamp_ms)
    return encode_record_batch(header, compress(codec, body)), base_offset + header.last_offset_delta + 1


@st.composite
def messages(draw: st.DrawFn, offset: int) -> tuple[bytes, int]:
    """(bytes, next offset): a message of magic 0 or 1, or a wrapper of some."""
    magic = draw(st.sampled_from([0, 1]))
    stamp = draw(st.sampled_from([0, 8]))

    def message(number: int, attributes: int = 0) -> Message:
        return Message(
            offset=number,
            magic=magic,
            attributes=attributes,
            timestamp_ms=-1 if magic == 0 else draw(TIMES),
            key=draw(SOME_BYTES),
            value=draw(SOME_BYTES),
        )

    codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
    if codec is Codec.NONE:
        return encode_message(message(offset, stamp)), offset + 1
    count = draw(st.integers(1, 4))
    first = 0 if magic == 1 else offset
    content = b"".join(encode_message(message(first + number)) for number in range(count))
    content += draw(st.sampled_from([b"", b"", content[:20]]))  # the rest of a message is dropped
    wrapper = replace(
        message(offset + count - 1, codec | stamp), key=None, value=compress(codec, content, magic=magic)
    )
    return encode_message(wrapper), offset + count


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    offset, parts = draw(st.sampled_from([0, 5, 2**40])), []
    for make in draw(st.lists(st.sampled_from([batches, batches, messages]), max_size=8)):
        part, offset = draw(make(offset))
        parts.append(part)
    return b"".join(parts)


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(logs()))
    for bit in (
        draw(st.lists(st.integers(0, max(0, 8 * len(data) - 1)), min_size=1, max_size=3)) if data else ()
    ):
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.integers(0, 4)) == 0 else bytes(data)


class TestRecords:
    @settings(max_examples=150)
    @given(logs())
    def test_are_those_of_the_slow_readers(self, data: bytes) -> None:
        assert rows_of(data) == list(expected_records(data))

    @settings(max_examples=100)
    @given(logs(), st.sets(st.sampled_from(arrow_schema(Include.RECORDS).names), min_size=1))
    def test_any_columns_are_those_of_all(self, data: bytes, names: set[str]) -> None:
        """However few are asked for: offsets and counts come from headers then, nothing is opened."""
        chosen = sorted(names)
        expected = [{name: row[name] for name in chosen} for row in expected_records(data)]
        assert rows_of(data, *chosen) == expected

    def test_timestamps_for_spark_are_in_microseconds(self) -> None:
        times = [FIRST_MS, -1, 2**62, -5]
        records = [Record(offset=n, timestamp_ms=time, value=b"") for n, time in enumerate(times)]
        data = batch_of(records)
        schema = arrow_schema(Include.RECORDS, "timestamp", timestamp_unit="us")
        (found,) = read_segment(MemoryLog(data), VIEW, schema, ReadOptions(), on_left_out=[].append)
        assert found.column(0).cast(pa.int64()).to_pylist() == [FIRST_MS * 1000, None, None, -5000]

    def test_many_records_come_in_parts(self) -> None:
        records = [Record(offset=n, timestamp_ms=n, value=b"x") for n in range(150_000)]
        data = batch_of(records[:100], base=0) + batch_of(records[100:], base=100)
        batches = list(
            read_segment(
                MemoryLog(data), VIEW, arrow_schema(Include.RECORDS), ReadOptions(), on_left_out=[].append
            )
        )
        assert max(batch.num_rows for batch in batches) <= 65536
        assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(150_000))

    def test_control_records_only_when_asked_for(self) -> None:
        header = RecordBatchHeader(
            base_offset=0, attributes=0x30, record_count=1, producer_id=5, producer_epoch=0
        )
        body = encode_records(
            [Record(offset=0, timestamp_ms=0, key=bytes(4), value=bytes(6))],
            base_offset=0,
            base_timestamp_ms=0,
        )
        data = encode_record_batch(header, body)
        assert rows_of(data) == []
        (row,) = rows_of(data, has_control_records=True)
        assert (row["is_control"], row["key"]) == (True, bytes(4))

    def test_those_of_other_segments_are_left_to_them(self) -> None:
        data = batch_of([Record(offset=n, timestamp_ms=0, value=b"") for n in range(6)])
        view = replace(VIEW, start_offset=1, end_offset=4)
        for names in (("offset",), ("offset", "value"), ("position", "offset")):
            assert [row["offset"] for row in rows_of(data, *names, view=view)] == [1, 2, 3]
        assert len(rows_of(data, "position", view=view)) == 3

    def test_half_characters_in_header_keys_are_replaced_in_each(self) -> None:
        """Although they are whole where keys lie one behind the other."""
        halves = tuple(RecordHeader(key=key, value=None) for key in (b"\xc3", b"\xa9", "\u00e9".encode()))
        (row,) = rows_of(batch_of([Record(offset=0, timestamp_ms=0, headers=halves)]), "headers")
        assert [header["key"] for header in row["headers"]] == ["\ufffd", "\ufffd", "\u00e9"]

    def test_an_unknown_column_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"offset_: no column of include=records; the columns are topic"):
            rows_of(b"", "offset_")


def batch_of(
    records: Sequence[Record], *, base: int | None = None, codec: Codec = Codec.NONE, **fields: Any
) -> bytes:
    base = records[0].offset if base is None else base
    header = RecordBatchHeader(
        base_offset=base,
        attributes=codec,
        last_offset_delta=records[-1].offset - base,
        base_timestamp_ms=0,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        record_count=len(records),
    )
    body = compress(codec, encode_records(records, base_offset=base, base_timestamp_ms=0))
    return encode_record_batch(replace(header, **fields), body)


def three(codec: Codec = Codec.NONE) -> list[bytes]:
    return [
        batch_of([Record(offset=10 * n + k, timestamp_ms=n, value=b"v%d" % k) for k in range(3)], codec=codec)
        for n in range(3)
    ]


class TestBatches:
    @settings(max_examples=100)
    @given(logs())
    def test_are_those_of_the_slow_readers(self, data: bytes) -> None:
        found = rows_of(data, include=Include.BATCHES)
        assert [row["position"] for row in found] == [batch.position for batch in walk_batches(data)]
        for row, batch in zip(found, walk_batches(data), strict=True):
            assert (row["size_bytes"], row["magic"], row["crc_valid"]) == (
                batch.size_bytes,
                batch.magic,
                True,
            )
            if batch.magic < 2:
                is_wrapper = bool(data[batch.position + 17] & 7)
                assert row["last_offset"] == batch.offset
                assert row["base_offset"] == (None if is_wrapper else batch.offset)
                assert row["record_count"] == (None if is_wrapper else 1)
                continue
            header = read_record_batch_header(data, batch.position)
            assert (row["base_offset"], row["last_offset"]) == (header.base_offset, header.last_offset)
            assert row["record_count"] == header.record_count
            assert row["codec"] == header.codec.name.lower()
            assert row["base_sequence"] == header.base_sequence
            assert row["max_timestamp"] == (
                None if header.max_timestamp_ms == -1 else header.max_timestamp_ms
            )
            assert (row["is_transactional"], row["is_control"]) == (
                header.is_transactional,
                header.is_control,
            )

    def test_are_not_opened(self) -> None:
        data = bytearray(three(Codec.ZSTD)[0])
        data[61:] = b"\0" * (len(data) - 61)
        (row,) = rows_of(bytes(data), include=Include.BATCHES)
        assert (row["crc_valid"], row["record_count"]) == (False, 3)
        assert row["fault"] == "checksum: the stored checksum is not that of the bytes"


class TestDamage:
    @settings(max_examples=200)
    @given(damaged_logs())
    def test_never_gives_other_records(self, data: bytes) -> None:
        """Whatever is wrong: what is left is what the slow readers make of the batches that are sound."""
        left_out: list[LeftOut] = []
        found = rows_of(data, corrupt=Corrupt.SKIP, left_out=left_out)
        by_position: dict[int, list[dict[str, Any]]] = {}
        for row in found:
            by_position.setdefault(row["position"], []).append(row)
        for position, rows in by_position.items():
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            alone = [
                row | {"position": position} for row in expected_records(data[position : position + size])
            ]
            assert rows == alone
        for batch in sound_prefix(data):
            control = batch.magic >= 2 and read_record_batch_header(data, batch.position).is_control
            empty = batch.magic >= 2 and read_record_batch_header(data, batch.position).record_count == 0
            assert control or empty or batch.position in by_position
        with_rows = rows_of(data, corrupt=Corrupt.INCLUDE)
        assert [row for row in with_rows if row["fault"] is None] == found
        assert bool(left_out) == any(row["fault"] is not None for row in with_rows)
        batches = rows_of(data, include=Include.BATCHES)
        assert sum(row["size_bytes"] for row in batches) == len(data)

    def test_fails_by_default(self) -> None:
        first, second, third = three()
        data = bytearray(first + second + third)
        data[len(first) + 70] ^= 1
        with pytest.raises(DamagedSegmentError) as caught:
            rows_of(bytes(data))
        assert str(caught.value).startswith(
            f"t-3/00.log: byte {len(first)}: checksum: batch at offset 10: the stored checksum is not that of the bytes"
        )
        assert "Remedy: copy the partition" in str(caught.value)
        assert "corrupt=skip" in str(caught.value)

    def test_is_skipped_and_counted(self) -> None:
        first, second, third = three()
        data = bytearray(first + second + third)
        data[len(first) + 70] ^= 1
        left_out: list[LeftOut] = []
        found = rows_of(bytes(data), "offset", corrupt=Corrupt.SKIP, left_out=left_out)
        assert [row["offset"] for row in found] == [0, 1, 2, 20, 21, 22]
        assert [(one.position, one.size_bytes, one.rule) for one in left_out] == [
            (len(first), len(second), "checksum")
        ]

    def test_is_included_with_its_reason(self) -> None:
        first, second, third = three()
        data = bytearray(first + second + third)
        data[len(first) + 67] ^= 1  # a byte of a value
        found = rows_of(bytes(data), "offset", "crc_valid", "fault", corrupt=Corrupt.INCLUDE)
        assert [row["offset"] for row in found if not row["crc_valid"]] == [10, 11, 12]
        assert {row["fault"] for row in found} == {
            None,
            "checksum: the stored checksum is not that of the bytes",
        }

    @pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
    def test_a_stream_that_cannot_be_opened_is_one_row(self, codec: Codec) -> None:
        header = RecordBatchHeader(base_offset=7, attributes=codec, record_count=3, last_offset_delta=2)
        data = encode_record_batch(header, b"\x01no stream of any codec at all")
        (row,) = rows_of(data, corrupt=Corrupt.INCLUDE)
        assert (row["offset"], row["crc_valid"], row["value"]) == (7, True, None)
        assert row["fault"].startswith("compression: ")
        with pytest.raises(DamagedSegmentError, match="compression: batch at offset 7"):
            rows_of(data)

    def test_behind_a_wrong_length_the_index_leads_on(self) -> None:
        first, second, third = three()
        data = bytearray(first + second + third)
        data[len(first) + 8 : len(first) + 12] = (1000).to_bytes(4, "big")
        behind = len(first) + len(second)
        options: dict[str, Any] = {"corrupt": Corrupt.SKIP, "left_out": (left_out := [])}
        found = rows_of(bytes(data), "offset", index=[len(first), behind], **options)
        assert [row["offset"] for row in found] == [0, 1, 2, 20, 21, 22]
        assert [(one.position, one.size_bytes, one.rule) for one in left_out] == [
            (len(first), len(second), "torn-batch")
        ]

    def test_behind_a_length_that_leads_astray_too(self) -> None:
        """What stands where the length leads to looks like batches, and is none."""
        first, second, third = three()
        inner = batch_of([Record(offset=50, timestamp_ms=0, value=second)])
        data = bytearray(first + inner + third)
        at = len(first)
        lead_to = inner.index(second)
        data[at + 8 : at + 12] = (lead_to - 12).to_bytes(4, "big")
        data[at + lead_to + 70] ^= 1
        behind = at + len(inner)
        options: dict[str, Any] = {"corrupt": Corrupt.SKIP, "left_out": (left_out := [])}
        found = rows_of(bytes(data), "offset", index=[at, behind], **options)
        assert [row["offset"] for row in found] == [0, 1, 2, 20, 21, 22]
        assert [(one.position, one.size_bytes, one.rule) for one in left_out] == [
            (at, len(inner), "checksum")
        ]

    @pytest.mark.parametrize("tail", [bytes(500), three()[0][:40], b"\x01"])
    def test_what_a_killed_broker_leaves_is_none(self, tail: bytes) -> None:
        data = b"".join(three()) + tail
        left_out: list[LeftOut] = []
        found = rows_of(data, view=replace(VIEW, is_last=True), left_out=left_out)
        assert len(found) == 9
        assert [(one.size_bytes, one.is_damage) for one in left_out] == [(len(tail), False)]
        with pytest.raises(DamagedSegmentError):
            rows_of(data)

    def test_a_log_that_becomes_shorter_is_named(self) -> None:
        class Shorter(MemoryLog):
            @property
            def end_position(self) -> int:
                return super().end_position + 1

        schema = arrow_schema(Include.RECORDS, "offset")
        with pytest.raises(OSError, match=r"became shorter while it was read: 't-3/00.log'"):
            list(read_segment(Shorter(three()[0]), VIEW, schema, ReadOptions(), on_left_out=[].append))

    def test_bombs_and_wrong_counts_do_not_fill_the_memory(self) -> None:
        record = Record(offset=0, timestamp_ms=0, value=bytes(3 << 20))
        bomb = batch_of([record], codec=Codec.ZSTD)
        assert len(rows_of(bomb, "value")) == 1
        with pytest.raises(DamagedSegmentError, match=r"too-large.*maxBatchBytes"):
            rows_of(bomb, most_batch_bytes=1 << 20)
        lying = batch_of([replace(record, value=b"")], record_count=2**31 - 1)
        with pytest.raises(DamagedSegmentError, match="record: batch at offset 0: a record ends within"):
            rows_of(lying)
        assert rows_of(lying, "position", corrupt=Corrupt.SKIP) == []
        assert MOST_BATCH_BYTES <= 1 << 28

    def test_a_batch_larger_than_allowed_is_passed_over(self) -> None:
        large = batch_of([Record(offset=3, timestamp_ms=0, value=bytes(5 << 20))])
        data = three()[0] + large + three()[1]
        left_out: list[LeftOut] = []
        found = rows_of(data, "offset", corrupt=Corrupt.SKIP, left_out=left_out, most_batch_bytes=1 << 20)
        assert [row["offset"] for row in found] == [0, 1, 2, 10, 11, 12]
        assert [one.rule for one in left_out] == ["too-large"]
        assert len(rows_of(data, "offset")) == 7


def sound_prefix(data: bytes) -> list[Any]:
    """The batches before the first that is wrong in any way."""
    found = []
    try:
        for batch in walk_batches(data):
            one = data[batch.position : batch.position + batch.size_bytes]
            list(expected_records(one))
            found.append(batch)
    except FormatError:
        pass
    return found
