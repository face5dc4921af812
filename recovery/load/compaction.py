"""Whether a compaction was right to remove batches: a broken `.swap` removes batches as well.

A record may be removed if a later one has its key, if it is a tombstone, if its transaction was aborted, or if it has
no key; markers may be removed. So each record that is gone is compared with the live ones after it, by hashes of keys.
Memory is bounded: keys are handled in a limited number of turns; if there are too many for that, nothing counts as
superseded.

Kafka: Cleaner.shouldRetainRecord, Cleaner.cleanInto. Differs: the delete horizon of a tombstone is not considered.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from recovery.load.log_reader import LogReader
from recovery.load.model import Original
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.message_set import read_messages
from segfmt.record import Record, read_records
from segfmt.record_batch import read_record_batch_header
from segfmt.transaction_index import view_transaction_index

MOST_RECORDS = 1 << 19
"""How many records are looked at in one turn."""
MOST_TURNS = 8

Flags = npt.NDArray[np.bool_]


def most_records(batch: Original, offset_count: int, reader: LogReader) -> int:
    """Return how many records *batch* has at most; if it spans more offsets than it has bytes, its header says."""
    if offset_count > batch.size_bytes:
        with contextlib.suppress(FormatError):
            offset_count = min(offset_count, read_record_batch_header(reader.read_part(batch)).record_count)
    return max(offset_count, 1)


class AbortedTxns:
    """The transactions that were aborted, by the contents of `.txnindex` files."""

    def __init__(self, indexes: Iterable[bytes]) -> None:
        self._ranges: dict[int, set[tuple[int, int]]] = {}
        for data in indexes:
            entries = view_transaction_index(data)
            columns = (entries[name].tolist() for name in ("producer_id", "first_offset", "last_offset"))
            for producer_id, first_offset, last_offset in zip(*columns, strict=True):
                self._ranges.setdefault(producer_id, set()).add((first_offset, last_offset))

    def has(self, producer_id: int, offset: int) -> bool:
        """Return whether the record of a producer at *offset*, in a transaction, was aborted."""
        return any(first <= offset <= last for first, last in self._ranges.get(producer_id, ()))


def find_superseded(
    gone: Sequence[Sequence[Original]],
    *,
    record_bound: int,
    live: Sequence[Original],
    first_offset: int,
    reader: LogReader,
    aborted: AbortedTxns,
    is_certain: bool,
) -> list[Flags]:
    """Return which batches hold only records that a compaction may remove: bool, one array for each file of *gone*.

    Args:
        gone: batches that are in no live segment, file by file.
        record_bound: an upper bound on the number of their records.
        live: the segments that are live from *first_offset* on.
        first_offset: the lowest offset in *gone*.
        is_certain: whether the topic is known to be compacted. Otherwise only later records are a proof: a tombstone,
            or a record without a key, may be a record like any other.
    """
    batches = [batch for file_batches in gone for batch in file_batches]
    is_superseded = np.zeros(len(batches), np.bool_)
    turns = 1 + record_bound // MOST_RECORDS
    if turns <= MOST_TURNS:
        is_superseded[:] = True
        for turn in range(turns):
            keys_in_turn = _Turn(reader, aborted, turn, turns, is_certain=is_certain)
            is_superseded[keys_in_turn.unproven(batches, live, first_offset)] = False
    ends = np.cumsum([len(file_batches) for file_batches in gone])[:-1]
    return np.split(is_superseded, ends)


class _Turn:
    """The keys that one turn looks at: those whose hash modulo *turns* is *turn*."""

    def __init__(
        self, reader: LogReader, aborted: AbortedTxns, turn: int, turns: int, *, is_certain: bool
    ) -> None:
        self._reader = reader
        self._aborted = aborted
        self._turn = turn
        self._turns = turns
        self._is_certain = is_certain

    def unproven(
        self, batches: Sequence[Original], live: Sequence[Original], first_offset: int
    ) -> npt.NDArray[np.int64]:
        """Return the indexes of the *batches* with a record that is not superseded, int64."""
        hashes, offsets, batch_indexes = array("Q"), array("q"), array("q")
        tombstones, unreadable = array("b"), array("q")
        for batch_index, batch in enumerate(batches):
            try:
                for key_hash, offset, is_tombstone in self._records(batch):
                    hashes.append(key_hash)
                    offsets.append(offset)
                    batch_indexes.append(batch_index)
                    tombstones.append(is_tombstone)
            except (FormatError, _NoKeyError):
                unreadable.append(batch_index)
        keys: npt.NDArray[np.uint64] = np.array(hashes, np.uint64)
        order = np.lexsort((np.array(offsets, np.int64), keys))
        is_last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(order)]
        last = order[is_last]  # for each key, the latest record that is gone
        wanted_keys, wanted_offsets = keys[last], np.array(offsets, np.int64)[last]
        is_proven: Flags = np.array(tombstones, np.bool_)[last] & self._is_certain
        self._prove_by_later_records(live, first_offset, wanted_keys, wanted_offsets, is_proven)
        bad_keys = wanted_keys[~is_proven]
        unproven = np.array(batch_indexes, np.int64)[np.isin(keys, bad_keys)]
        return np.concatenate((unproven, np.array(unreadable, np.int64)))

    def _prove_by_later_records(
        self,
        live: Sequence[Original],
        first_offset: int,
        wanted_keys: npt.NDArray[np.uint64],
        wanted_offsets: npt.NDArray[np.int64],
        is_proven: Flags,
    ) -> None:
        """Mark those of *wanted_keys*, ascending, that a live record has at their offset or after it."""
        for part in live:
            for span in self._reader.spans(part):
                if is_proven.all():
                    return
                if span.last_offset < first_offset:
                    continue
                batch = part.after(span.position)
                records = self._readable(Original(
                    file=batch.file, size_bytes=span.size_bytes, origin_position=batch.origin_position
                ))  # fmt: skip
                if records:
                    keys = np.array([key_hash for key_hash, _, _ in records], np.uint64)
                    at = np.searchsorted(wanted_keys, keys).clip(max=len(wanted_keys) - 1)
                    is_later = np.array([offset for _, offset, _ in records], np.int64) >= wanted_offsets[at]
                    is_proven[at[(wanted_keys[at] == keys) & is_later]] = True

    def _readable(self, batch: Original) -> list[tuple[int, int, bool]]:
        """Return the records of a live batch; an unreadable one proves nothing."""
        try:
            return list(self._records(batch))
        except (FormatError, _NoKeyError):
            return []

    def _records(self, batch: Original) -> Iterator[tuple[int, int, bool]]:
        """Yield (hash of the key, offset, is a tombstone) for the records of *batch* in this turn."""
        for record in _records_of(self._reader.read_part(batch), self._aborted):
            if record.key is None:
                if not self._is_certain:
                    raise _NoKeyError
                continue
            key_hash = int.from_bytes(blake2b(record.key, digest_size=8).digest(), "little")
            if key_hash % self._turns == self._turn:
                yield key_hash, record.offset, record.value is None


class _NoKeyError(Exception):
    """A record without a key, in a topic that is not known to be compacted."""


def _records_of(data: bytes, aborted: AbortedTxns) -> Iterator[Record]:
    """Yield the records of a batch that count: no markers, nothing aborted."""
    if (
        int.from_bytes(data[byte_layout.MAGIC_POSITION : byte_layout.MAGIC_POSITION + 1], "big", signed=True)
        < byte_layout.MAGIC_V2
    ):
        for message in read_messages(data):
            yield Record(
                offset=message.offset, timestamp_ms=message.timestamp_ms, key=message.key, value=message.value
            )
        return
    header = read_record_batch_header(data)
    if header.is_control:
        return
    for record in read_records(data, header=header):
        if not (header.is_transactional and aborted.has(header.producer_id, record.offset)):
            yield record
