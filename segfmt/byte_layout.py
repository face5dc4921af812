"""Where the fields of Kafka's binary formats are: positions, sizes and dtypes, each in one place.

Positions are bytes from the start of the structure they belong to; all numbers on disk are big-endian.
This module holds facts only: it reads nothing and checks nothing.

Record batch, magic 2 (and whatever magic 3..127 Kafka reads as such)::

    0 baseOffset i64 | 8 length i32 (bytes after it) | 12 partitionLeaderEpoch i32 | 16 magic i8
    17 crc u32 (CRC-32C of [21, end)) | 21 attributes i16 (only the low byte is used) | 23 lastOffsetDelta i32
    27 baseTimestamp i64 | 35 maxTimestamp i64 | 43 producerId i64 | 51 producerEpoch i16
    53 baseSequence i32 | 57 recordCount i32 | 61 records

Message, magic 0 and 1 (and any negative magic, which Kafka reads as a message too)::

    0 offset i64 | 8 size i32 (bytes after it) | 12 crc u32 (CRC-32 of [16, end)) | 16 magic i8
    17 attributes i8
    [magic 1: 18 timestamp i64] | keySize i32, key, valueSize i32, value

Kafka: Records, FileLogInputStream, DefaultRecordBatch, LegacyRecord, OffsetIndex, TimeIndex, AbortedTxn,
ProducerStateManager.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# --- common to every magic (Kafka: Records) ----------------
OFFSET_POSITION: Final = 0
"""int64: base offset of a record batch; of a compressed message its last inner offset."""
LENGTH_POSITION: Final = 8
"""int32: bytes that follow this field."""
MAGIC_POSITION: Final = 16
"""int8, signed: below 2 a message, otherwise a record batch."""
LOG_OVERHEAD_BYTES: Final = 12
"""Bytes before what the length field counts: the whole batch has LOG_OVERHEAD_BYTES + length bytes."""
HEADER_UP_TO_MAGIC_BYTES: Final = 17
"""Kafka: Records.HEADER_SIZE_UP_TO_MAGIC; a tail of at most this many bytes is silently not a batch."""

# --- record batch, magic >= 2 (Kafka: DefaultRecordBatch) ----------------
PARTITION_LEADER_EPOCH_POSITION: Final = 12
BATCH_CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""int16; also where the bytes begin that the CRC covers."""
ATTRIBUTES_LOW_BYTE_POSITION: Final = 22
"""Kafka casts the int16 to a byte: the high byte has no meaning."""
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57
RECORDS_POSITION: Final = 61
RECORD_BATCH_OVERHEAD_BYTES: Final = 61

COMPRESSION_CODEC_MASK: Final = 0x07
"""0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
TIMESTAMP_TYPE_MASK: Final = 0x08
"""Set: LogAppendTime, every record's timestamp is the batch's maxTimestamp."""
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP_MS: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

RECORD_BATCH_HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The 61 bytes before the records, as one packed structure."""

# --- control records (Kafka: ControlRecordType, EndTransactionMarker) ----------------
CONTROL_KEY_BYTES: Final = 4
"""int16 version, int16 type."""
CONTROL_TYPE_ABORT: Final = 0
CONTROL_TYPE_COMMIT: Final = 1
END_TXN_MARKER_VALUE_BYTES: Final = 6
"""int16 version, int32 coordinatorEpoch."""

# --- message, magic < 2 (Kafka: LegacyRecord) ----------------
MESSAGE_CRC_POSITION: Final = 12
MESSAGE_CRC_START_POSITION: Final = 16
"""Where the bytes begin that the message's CRC covers."""
MESSAGE_ATTRIBUTES_POSITION: Final = 17
MESSAGE_TIMESTAMP_POSITION: Final = 18
"""int64, every magic but 0."""
MESSAGE_KEY_SIZE_POSITION_V0: Final = 18
MESSAGE_KEY_SIZE_POSITION_V1: Final = 26
MIN_MESSAGE_BYTES: Final = 14
"""The least length field that is possible at any magic (Kafka: LegacyRecord.RECORD_OVERHEAD_V0)."""

# --- index files ----------------
OFFSET_INDEX_DTYPE: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
"""One entry of `.index`, 8 bytes."""
TIME_INDEX_DTYPE: Final = np.dtype([("timestamp_ms", ">i8"), ("relative_offset", ">i4")])
"""One entry of `.timeindex`, 12 bytes."""
ABORTED_TXN_DTYPE: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
"""One entry of `.txnindex`, 34 bytes."""

# --- producer snapshots (Kafka: ProducerStateManager.writeSnapshot) ----------------
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_CRC_POSITION: Final = 2
SNAPSHOT_COUNT_POSITION: Final = 6
"""int32; also where the bytes begin that the CRC-32C covers."""
SNAPSHOT_ENTRIES_POSITION: Final = 10
PRODUCER_ENTRY_DTYPE: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp_ms", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
"""One entry of `.snapshot`, 46 bytes."""
