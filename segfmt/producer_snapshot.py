"""`<offset>.snapshot`: what a log knew of its producers up to an offset.

    0 version i16 = 1 | 2 crc u32 (CRC-32C of [6, end)) | 6 count i32 | 10 entries, 46 bytes each

Entries are one structured array, `byte_layout.PRODUCER_ENTRY_DTYPE`; their order is that of a Java HashMap
(`java_hash_map`). Bytes after the last entry are covered by the CRC and otherwise ignored, as Kafka does.

Kafka: ProducerStateManager.readSnapshot, writeSnapshot.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from segfmt import byte_layout
from segfmt import crc32c as plain
from segfmt.entry_view import Buffer
from segfmt.errors import CorruptSnapshotError

EMPTY_SNAPSHOT_BYTES = byte_layout.SNAPSHOT_ENTRIES_POSITION
MOST_ENTRIES = 1_000_000
"""From 4.4 on a broker takes a longer snapshot, which it may itself have written, for a corrupt one."""

Entries = npt.NDArray[np.void]
"""Structured, dtype `byte_layout.PRODUCER_ENTRY_DTYPE`, shape (producer_count,)."""


def read_producer_snapshot(
    data: Buffer, *, crc32c: Callable[[bytes], int] = plain.crc32c, most_entries: int | None = None
) -> Entries:
    """Return the entries of a producer snapshot.

    Args:
        data: any buffer of bytes, not written.
        crc32c: CRC-32C of bytes; give a fast one for snapshots of many producers.
        most_entries: that are read; None for any number.

    Returns:
        Structured array, shape (count,), read-only.

    Raises:
        CorruptSnapshotError: wrong version, impossible count, wrong CRC or too short; the broker deletes such
            a file when it reads it, and takes the next older one.

    Kafka: ProducerStateManager.readSnapshot.
    """
    buffer = bytes(data)
    _check_version_and_count(buffer, most_entries)
    stored = int.from_bytes(
        buffer[byte_layout.SNAPSHOT_CRC_POSITION : byte_layout.SNAPSHOT_COUNT_POSITION], "big"
    )
    actual = crc32c(buffer[byte_layout.SNAPSHOT_COUNT_POSITION :])
    if stored != actual:
        raise CorruptSnapshotError(
            f"CRC {stored:#010x} stored, {actual:#010x} computed", position=byte_layout.SNAPSHOT_CRC_POSITION
        )
    return np.frombuffer(
        buffer,
        byte_layout.PRODUCER_ENTRY_DTYPE,
        count=_count(buffer),
        offset=byte_layout.SNAPSHOT_ENTRIES_POSITION,
    )


def may_be_snapshot(head: bytes, size_bytes: int) -> bool:
    """Return whether a file of *size_bytes* that begins with *head*, up to its count, may be a snapshot.

    If it may not, `read_producer_snapshot` raises for *head* alone.
    """
    is_known = head[: byte_layout.SNAPSHOT_CRC_POSITION] == byte_layout.SNAPSHOT_VERSION.to_bytes(2, "big")
    entries_bytes = _count(head) * byte_layout.PRODUCER_ENTRY_DTYPE.itemsize
    return is_known and 0 <= entries_bytes <= size_bytes - byte_layout.SNAPSHOT_ENTRIES_POSITION


def encode_producer_snapshot(entries: Entries, *, crc32c: Callable[[bytes], int] = plain.crc32c) -> bytes:
    """Return the snapshot that holds *entries* in their order.

    Args:
        entries: dtype `byte_layout.PRODUCER_ENTRY_DTYPE`, shape (count,). Not written.
        crc32c: as in `read_producer_snapshot`.

    Kafka: ProducerStateManager.writeSnapshot.
    """
    body = (
        len(entries).to_bytes(4, "big")
        + entries.astype(byte_layout.PRODUCER_ENTRY_DTYPE, copy=False).tobytes()
    )
    return byte_layout.SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def as_loaded(entries: Entries) -> Entries:
    """Return a copy of *entries* as the broker would write them again after loading them.

    An entry without a last offset has no batch: its sequence is -1, its delta 0. A negative first offset of a
    transaction becomes -1, none.

    Kafka: ProducerStateManager.readSnapshot, ProducerStateEntry.lastSeq, lastDataOffset, lastOffsetDelta.
    """
    plain_rows = np.dtype((np.void, entries.itemsize))  # else numpy copies field by field
    loaded: Entries = entries.view(plain_rows).copy().view(entries.dtype)
    has_no_batch = loaded["last_offset"] < 0
    if has_no_batch.any():
        loaded["last_offset"][has_no_batch] = -1
        loaded["last_sequence"][has_no_batch] = byte_layout.NO_SEQUENCE
        loaded["offset_delta"][has_no_batch] = 0
    loaded["current_txn_first_offset"][loaded["current_txn_first_offset"] < 0] = -1
    return loaded


def _count(buffer: bytes) -> int:
    start, end = byte_layout.SNAPSHOT_COUNT_POSITION, byte_layout.SNAPSHOT_ENTRIES_POSITION
    return int.from_bytes(buffer[start:end], "big", signed=True)


def _check_version_and_count(buffer: bytes, most_entries: int | None) -> None:
    if len(buffer) < byte_layout.SNAPSHOT_CRC_POSITION:
        raise CorruptSnapshotError(f"{len(buffer)} bytes are too short for a version")
    version = int.from_bytes(buffer[: byte_layout.SNAPSHOT_CRC_POSITION], "big", signed=True)
    if version != byte_layout.SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}, expected {byte_layout.SNAPSHOT_VERSION}")
    if len(buffer) < byte_layout.SNAPSHOT_ENTRIES_POSITION:
        raise CorruptSnapshotError(
            f"{len(buffer)} bytes are too short for CRC and count", position=len(buffer)
        )
    count = _count(buffer)
    if most_entries is not None and count > most_entries:
        raise CorruptSnapshotError(
            f"{count} entries announced, at most {most_entries} are read",
            position=byte_layout.SNAPSHOT_COUNT_POSITION,
        )
    present_bytes = len(buffer) - byte_layout.SNAPSHOT_ENTRIES_POSITION
    if count < 0 or count * byte_layout.PRODUCER_ENTRY_DTYPE.itemsize > present_bytes:
        raise CorruptSnapshotError(
            f"{count} entries announced, {present_bytes} bytes of entries are there",
            position=byte_layout.SNAPSHOT_COUNT_POSITION,
        )
