# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel that reads many small logs whole, and reports for each whether all of it is plainly sound.

It diagnoses nothing: a log is "sound" if no check of `recovery.check.segment` could find anything in it, and whatever
is unusual is left to those checks. So a batch costs one comparison per rule, and no fault is described here.

Kafka: FileLogInputStream.nextBatch, DefaultRecordBatch.isValid.
"""

from __future__ import annotations

import numpy as np

from native._crc32c import checksum
from native._header_kernel import FULL, _walk
from native._jit import inlined, kernel
from native._memory import load_be32, rows_at
from native._scan_rules import KIND_UNKNOWN, decode_marker
from native.batch_headers import HEADER_ROW_DTYPE
from native.log_checks import LOG_ROW_DTYPE
from segfmt import byte_layout

_LOW_32 = np.int64(0xFFFFFFFF)
_MOST_RELATIVE = np.int64(2**31 - 1)
_MOST_CODEC = 4
_PRODUCER_BITS = np.int64(63)


@inlined
def _has_plain_fields(row):
    """Return whether magic, codec, counts and producer of a batch are as a broker writes them."""
    attributes = np.int64(row.attributes)
    delta, count = np.int64(row.last_offset_delta), np.int64(row.record_count)
    is_control = attributes & byte_layout.CONTROL_MASK != 0
    is_transactional = attributes & byte_layout.TRANSACTIONAL_MASK != 0
    if row.magic != byte_layout.MAGIC_V2 or attributes & byte_layout.COMPRESSION_CODEC_MASK > _MOST_CODEC:
        return False
    if delta < 0 or count < 0 or count > delta + 1:
        return False
    if row.producer_id < 0:
        return row.producer_id == byte_layout.NO_PRODUCER_ID and not (is_transactional or is_control)
    if row.producer_epoch < 0 or (row.base_sequence < 0 and not is_control):
        return False
    return is_transactional or not is_control


@inlined
def _has_plain_offsets(row, log):
    """Return whether the offsets of a batch belong in its log, and end before those of the next log."""
    if row.base_offset < log.base_offset or row.last_offset < row.base_offset:
        return False
    if row.last_offset - log.base_offset > _MOST_RELATIVE:
        return False
    return log.next_base_offset < 0 or row.last_offset < log.next_base_offset


@inlined
def _has_right_checksum(path, batch, size_bytes):
    stored = load_be32(batch + byte_layout.BATCH_CRC_POSITION) & _LOW_32
    start = np.int64(byte_layout.ATTRIBUTES_POSITION)
    return stored == checksum(path, batch + start, size_bytes - start)


@inlined
def _check(path, start, log, rows):
    """Walk through the log at address *start* and fill in its row; return whether it is sound."""
    position, batch_count = np.int64(0), np.int64(0)
    first_offset, last_offset = np.int64(-1), np.int64(-1)
    max_timestamp_ms = np.int64(byte_layout.NO_TIMESTAMP_MS)
    has_compacted, has_gap = False, False
    # A bit, by the low bits of its id, for each producer that has written in a transaction: if it later writes outside
    # a transaction, the log is looked at more closely.
    in_transactions = np.uint64(0)
    status = np.int64(FULL)
    while status == FULL:
        status, count, behind = _walk(
            start + position, start + log.size_bytes, position, log.size_bytes, rows
        )
        for place in range(count):
            row = rows[place]
            batch = start + row.position
            if not (_has_plain_fields(row) and _has_plain_offsets(row, log)):
                return False
            if batch_count == 0:
                first_offset = np.int64(row.base_offset)
            else:
                if row.base_offset <= last_offset:
                    return False
                has_gap |= row.base_offset - 1 > last_offset
            last_offset = np.int64(row.last_offset)
            if not _has_right_checksum(path, batch, row.size_bytes):
                return False
            if row.producer_id >= 0:
                bit = np.uint64(1) << np.uint64(row.producer_id & _PRODUCER_BITS)
                if row.attributes & byte_layout.CONTROL_MASK != 0:
                    kind, _, _, _ = decode_marker(batch, row.size_bytes)
                    if kind == KIND_UNKNOWN:
                        return False
                elif row.attributes & byte_layout.TRANSACTIONAL_MASK != 0:
                    in_transactions |= bit
                elif in_transactions & bit != 0:
                    return False
            has_compacted |= row.record_count <= row.last_offset_delta
            max_timestamp_ms = max(max_timestamp_ms, np.int64(row.max_timestamp_ms))
            batch_count += 1
        position = behind
    log.batch_count = batch_count
    log.first_offset = first_offset
    log.last_offset = last_offset
    log.max_timestamp_ms = max_timestamp_ms
    log.has_compacted = has_compacted
    # Offsets may be missing only if records were compacted away.
    return position == log.size_bytes and (has_compacted or not has_gap)


@kernel
def check_logs(path, address, logs_address, log_count, rows_address, row_count):
    """Mark each log that is plainly sound.

    Args:
        path: CpuPath.
        address: of the buffer that the logs are in.
        logs_address: of *log_count* LOG_ROW_DTYPE. Read and written.
        rows_address: of *row_count* HEADER_ROW_DTYPE, working memory of the kernel. Written.

    Returns:
        How many are sound.
    """
    logs = rows_at(logs_address, log_count, LOG_ROW_DTYPE)
    rows = rows_at(rows_address, row_count, HEADER_ROW_DTYPE)
    sound = np.int64(0)
    for number in range(log_count):
        log = logs[number]
        is_sound = _check(path, address + log.start, log, rows)
        log.is_sound = is_sound
        sound += np.int64(is_sound)
    return sound
