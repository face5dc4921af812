"""The records inside batches, decompressed, parsed and counted: what `verify --deep` adds. Pure.

Memory is bounded: any thread opens a batch of up to `SMALL_OPEN_BYTES`, but only one at a time one of up to
`MOST_OPEN_BYTES`. What would be larger is reported as not checked.

Kafka: DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator, ControlRecordType.parse.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from native.record_walk import RecordFault, RecordWalk, walk_plain_batches, walk_records
from recovery.check.finding import Finding, Rule
from segfmt import byte_layout
from segfmt.compression import Codec, decompress
from segfmt.control_record import ControlType, read_control_type
from segfmt.errors import ContentTooLargeError, DecompressionError, FormatError
from segfmt.message_set import read_messages
from segfmt.record import read_records
from segfmt.record_batch import RecordBatchHeader, read_record_batch_header

SMALL_OPEN_BYTES = 4 << 20
MOST_OPEN_BYTES = 32 << 20
MOST_WRAPPER_BYTES = 16 << 20
"""The limit for a message set: its messages become objects, which are larger than their bytes."""

_FAULT_WORDS = {
    RecordFault.CUT_OFF: "ends within a field",
    RecordFault.LONG_VARINT: "has a varint that does not end",
    RecordFault.BAD_SIZE: "has another size than its fields",
    RecordFault.BAD_HEADER_COUNT: "announces more headers than are possible",
    RecordFault.NULL_HEADER_KEY: "has a header without a key",
    RecordFault.BYTES_LEFT: "is the last, but bytes follow it",
    RecordFault.BAD_OFFSET_DELTA: "has an offset delta that is not above the one before, or above the batch's last",
    RecordFault.LATE_TIMESTAMP: "has a timestamp above the batch's greatest",
}


class RecordChecks:
    """The walk over the records of one segment.

    Args:
        file: the log's name.
        one_at_a_time: entered while a batch may open to `MOST_OPEN_BYTES`.
    """

    def __init__(self, file: str, one_at_a_time: AbstractContextManager[object]) -> None:
        self._file = file
        self._one_at_a_time = one_at_a_time
        self.findings: list[Finding] = []
        self.gaps: list[Finding] = []
        self._last_offset: int | None = None
        self._before: int | None = None

    def skip(self) -> None:
        """Note that bytes are skipped here."""
        self._last_offset = None

    def take(self, window: npt.NDArray[np.uint8], rows: HeaderRows) -> None:
        """Check the records of *rows*; the first of them begins *window*. Their CRCs hold."""
        rows = rows.copy()
        rows["record_count"][(rows["magic"] >= byte_layout.MAGIC_V2) & (rows["record_count"] < 0)] = 0
        self._take_plain(window, rows)
        is_v2 = rows["magic"] >= byte_layout.MAGIC_V2
        is_compressed = rows["attributes"] & byte_layout.COMPRESSION_CODEC_MASK != 0
        is_control = is_v2 & (rows["attributes"] & byte_layout.CONTROL_MASK != 0)
        for row_number in np.flatnonzero(is_compressed | is_control | ~is_v2).tolist():
            row = rows[row_number]
            start = int(row["position"] - rows["position"][0])
            batch = window[start : start + int(row["size_bytes"])]
            try:
                if not is_v2[row_number]:
                    self._before = (
                        int(rows["last_offset"][row_number - 1]) if row_number else self._last_offset
                    )
                    self._take_wrapper(batch, row)
                elif is_control[row_number]:
                    self._take_control(batch, row)
                else:
                    self._take_compressed(batch, row)
            except FormatError as error:
                rule: Rule = "compression" if isinstance(error, DecompressionError) else "record"
                self._add(row, rule, str(error))
        self._last_offset = int(rows["last_offset"][-1])

    def _take_plain(self, window: npt.NDArray[np.uint8], rows: HeaderRows) -> None:
        row_number = 0
        while row_number < len(rows):
            part = rows[row_number:]
            start = int(part["position"][0] - rows["position"][0])
            bad, walk = walk_plain_batches(window[start:], part)
            if bad == len(part):
                return
            self._add_fault(part[bad], walk)
            row_number += bad + 1

    def _take_compressed(self, batch: npt.NDArray[np.uint8], row: np.void) -> None:
        header = read_record_batch_header(batch)
        if (
            header.record_count <= 0
            or int(row["attributes"]) & byte_layout.COMPRESSION_CODEC_MASK > Codec.ZSTD
        ):
            return  # nothing to open, or an unknown codec, which is reported already
        payload = batch[byte_layout.RECORDS_POSITION :].tobytes()
        try:
            self._walk_opened(payload, header, row, SMALL_OPEN_BYTES)
        except ContentTooLargeError:
            with self._one_at_a_time:
                self._open_large(payload, header, row)

    def _open_large(self, payload: bytes, header: RecordBatchHeader, row: np.void) -> None:
        try:
            self._walk_opened(payload, header, row, MOST_OPEN_BYTES)
        except ContentTooLargeError:
            self._add(row, "too-large", f"opens to more than {MOST_OPEN_BYTES} bytes", is_unchecked=True)

    def _walk_opened(self, payload: bytes, header: RecordBatchHeader, row: np.void, most_bytes: int) -> None:
        content = decompress(header.codec, payload, magic=header.magic, max_bytes=most_bytes)
        walk = walk_records(
            np.frombuffer(content, np.uint8),
            record_count=header.record_count,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=header.base_timestamp_ms,
            max_timestamp_ms=None if header.is_log_append_time else header.max_timestamp_ms,
        )
        if walk.fault is not RecordFault.SOUND:
            self._add_fault(row, walk)

    def _take_control(self, batch: npt.NDArray[np.uint8], row: np.void) -> None:
        record = next(read_records(batch, max_bytes=SMALL_OPEN_BYTES), None)
        if record is None:
            return
        if record.key is None:
            self._add(row, "control-record", "a control record without a key")
        elif read_control_type(record.key) is ControlType.UNKNOWN:
            self._add(row, "control-record", "a control record of an unknown type")

    def _take_wrapper(self, batch: npt.NDArray[np.uint8], row: np.void) -> None:
        try:
            self._take_message(batch, row, SMALL_OPEN_BYTES)
        except ContentTooLargeError:
            with self._one_at_a_time:
                self._open_large_wrapper(batch, row)

    def _open_large_wrapper(self, batch: npt.NDArray[np.uint8], row: np.void) -> None:
        try:
            self._take_message(batch, row, MOST_WRAPPER_BYTES)
        except ContentTooLargeError:
            self._add(row, "too-large", f"opens to more than {MOST_WRAPPER_BYTES} bytes", is_unchecked=True)

    def _take_message(self, batch: npt.NDArray[np.uint8], row: np.void, most_bytes: int) -> None:
        last_offset, bound_ms = -1, int(row["max_timestamp_ms"])
        is_append_time = bool(int(row["attributes"]) & byte_layout.TIMESTAMP_TYPE_MASK)
        for message in read_messages(batch, max_bytes=most_bytes):
            if last_offset < 0:
                self._note_gap(row, message.offset)
            if message.offset <= last_offset:
                self._add(row, "record", f"message offset {message.offset} is not above the one before")
                return
            if message.timestamp_ms > bound_ms and int(row["magic"]) != 0 and not is_append_time:
                self._add(row, "record", f"message timestamp {message.timestamp_ms} is above its wrapper's")
                return
            last_offset = message.offset
        is_wrapper = int(row["attributes"]) & byte_layout.COMPRESSION_CODEC_MASK != 0
        if is_wrapper and last_offset != int(row["last_offset"]) and int(row["last_offset"]) != 0:
            self._add(
                row, "record", f"last message offset {last_offset}, its wrapper's is {row['last_offset']}"
            )

    def _note_gap(self, row: np.void, first_offset: int) -> None:
        """Note offsets that are missing before a wrapper; its header has only its last one."""
        is_wrapper = int(row["attributes"]) & byte_layout.COMPRESSION_CODEC_MASK != 0
        if is_wrapper and self._before is not None and first_offset > self._before + 1 and not self.gaps:
            detail = f"offsets {self._before + 1} to {first_offset - 1} are missing before this message set"
            position = int(row["position"])
            self.gaps.append(Finding(file=self._file, position=position, rule="offset-gap", detail=detail))

    def _add_fault(self, row: np.void, walk: RecordWalk) -> None:
        self._add(row, "record", f"record {walk.number} of {row['record_count']} {_FAULT_WORDS[walk.fault]}")

    def _add(self, row: np.void, rule: Rule, detail: str, *, is_unchecked: bool = False) -> None:
        if any(finding.rule == rule for finding in self.findings):
            return
        self.findings.append(
            Finding(
                file=self._file,
                position=int(row["position"]),
                rule=rule,
                detail=f"batch at offset {row['base_offset']}: {detail}",
                severity="unchecked" if is_unchecked else "damage",
            )
        )
