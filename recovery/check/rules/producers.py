"""Producers: each snapshot against a replay from the one before, and the aborted transactions of each segment.

Expired producers may be absent from a snapshot, and what was not seen since the start of the log is not judged.
Pure: scans and bytes in, findings out.

Kafka: ProducerStateManager.takeSnapshot, ProducerStateEntry, TransactionIndex.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from native.crc32c import crc32c_of_bytes
from native.raw_scan import RawScan
from recovery.check.finding import Finding
from recovery.load.producers import ProducerState
from recovery.load.transactions import InvalidTxnStateError
from segfmt import layout
from segfmt.filenames import snapshot_name
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import as_loaded, read_producer_snapshot

_NEVER_MS = 2**62
_DATA_FIELDS = ("last_offset", "last_sequence", "offset_delta")

Entries = npt.NDArray[np.void]


class _OneSnapshot:
    """The snapshot files of a `ProducerState`: one to begin with, and what the state writes."""

    def __init__(self, offset: int | None = None, data: bytes = b"") -> None:
        self._offset = offset
        self._data = data
        self.written = b""

    def list_snapshots(self) -> dict[int, str]:
        return {} if self._offset is None else {self._offset: "given"}

    def read_snapshot(self, _name: str) -> bytes:
        return self._data

    def write_snapshot(self, _offset: int, data: bytes) -> str:
        self.written = data
        return "written"

    def delete_snapshot(self, _name: str) -> None:
        pass


class ProducerChecks:
    """The walk over a log's producers, piece by piece.

    Args:
        snapshots: sound ones, by offset.
        start_offset: where the log on disk begins.
        log_start_offset: what lies before it may be forgotten, by a recovery that begins there.
        now_ms, expiration_ms: a producer that was last seen so long ago may be absent.
    """

    def __init__(
        self,
        snapshots: Mapping[int, bytes],
        *,
        start_offset: int,
        log_start_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        self._snapshots = snapshots
        self.log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._files = _OneSnapshot()
        self._state: ProducerState | None = None
        self._began_at = -1
        self._followed_from = start_offset
        self._computed = -1, b"", False
        self.is_complete = False
        self.has_producers = False
        self.findings: list[Finding] = []
        self._begin(start_offset)

    def _begin(self, offset: int) -> None:
        """Start anew at *offset*, from a snapshot if there is one."""
        data = self._snapshots.get(offset)
        self._files = _OneSnapshot(offset if data is not None else None, data or b"")
        self._state = ProducerState(self._files, now_ms=0, expiration_ms=_NEVER_MS)
        self._state.truncate_and_reload(-1, offset)
        self.is_complete = data is not None or offset == 0
        self._began_at = self._followed_from = offset

    def break_off(self) -> None:
        """Know nothing of producers from here to the next snapshot: bytes of the log were left out."""
        self._began_at = -1
        self._followed_from = LONG_MAX
        self._files = _OneSnapshot()
        self._state = ProducerState(self._files, now_ms=0, expiration_ms=_NEVER_MS)
        self.is_complete = False

    def take(self, file: str, scan: RawScan) -> Entries:
        """Take in a piece of the log *file*; return its aborted transactions, ABORTED_TXN_DTYPE."""
        assert self._state is not None
        self._began_at = -1
        self._computed = -1, b"", False
        self.has_producers |= bool(len(scan.producers))
        try:
            return self._state.recover(scan)
        except InvalidTxnStateError as error:
            self.findings.append(
                Finding(file=file, position=error.position, rule="transaction-state", detail=str(error))
            )
            self.break_off()
            return np.empty(0, layout.ABORTED_TXN_DTYPE)

    def reach(self, offset: int) -> None:
        """Compare with the snapshot at *offset*, and go on from it."""
        data = self._snapshots.get(offset)
        if data is None or offset == self._began_at:
            return
        found = read_producer_snapshot(data, crc32c=crc32c_of_bytes)
        # Nearly all are, to the byte, what a recovery would write: then there is nothing to compare entry by entry.
        if data == self._compute(offset) or self._agrees(offset, as_loaded(found)):
            self._judge_offsets(offset, found)
        self._begin(offset)

    def snapshot_at(self, offset: int) -> bytes:
        """Return the snapshot that a recovery would write at *offset*, which has been reached.

        Empty where not all is known of the producers. They never expire here.

        Kafka: LogSegment.recover, ProducerStateManager.takeSnapshot.
        """
        data = self._compute(offset)
        return data if self._computed[2] else b""

    def _compute(self, offset: int) -> bytes:
        """Return the snapshot at *offset*; a state writes only one there."""
        if self._computed[0] != offset:
            assert self._state is not None
            self._files.written = b""
            self._state.map_end_offset = offset
            self._state.take_snapshot()
            self._computed = offset, self._files.written, self.is_complete
        return self._computed[1]

    def _own_entries(self, offset: int) -> Entries:
        data = self._compute(offset)
        if not data:
            return np.empty(0, layout.PRODUCER_ENTRY_DTYPE)
        return as_loaded(read_producer_snapshot(data, crc32c=crc32c_of_bytes))

    def _agrees(self, offset: int, found: Entries) -> bool:
        """Compare with what the log says; return whether no field differs."""
        own = np.sort(self._own_entries(offset), order="producer_id")
        found = np.sort(found, order="producer_id")
        ids, of_own, of_found = np.intersect1d(own["producer_id"], found["producer_id"], return_indices=True)
        for name in ("epoch", "timestamp_ms", *_DATA_FIELDS, "coordinator_epoch", "current_txn_first_offset"):
            ours, theirs = own[name][of_own], found[name][of_found]
            differs = (ours != theirs) & self._is_known(name, own[of_own], found[of_found])
            for place in np.flatnonzero(differs)[:1]:
                words = f"producer {ids[place]}: {name} {theirs[place]}, the log says {ours[place]}"
                self._find(offset, words)
                return False
        missing = own[~np.isin(own["producer_id"], found["producer_id"])]
        is_open = missing["current_txn_first_offset"] >= 0
        lives = self._now_ms - missing["timestamp_ms"].astype(np.int64) < self._expiration_ms
        last = np.maximum(missing["last_offset"], missing["current_txn_first_offset"])
        has_acted = (missing["timestamp_ms"].astype(np.int64) >= 0) & (last >= self.log_start_offset)
        for row in missing[(is_open | lives) & has_acted][:1]:
            self._find(offset, f"producer {row['producer_id']} is missing")
        extra = found[~np.isin(found["producer_id"], own["producer_id"])]
        if self.is_complete:
            # What lies before the log start another broker's snapshot may know, and the one before it may not.
            last = np.maximum(extra["last_offset"], extra["current_txn_first_offset"])
            for row in extra[last >= self.log_start_offset][:1]:
                self._find(offset, f"producer {row['producer_id']} has written nothing")
        return True

    def _judge_offsets(self, offset: int, found: Entries) -> None:
        """Find a batch behind the snapshot."""
        beyond = np.flatnonzero(found["last_offset"] >= offset)
        for place in beyond[np.argsort(found["producer_id"][beyond])][:1]:
            row = found[place]
            self._find(offset, f"producer {row['producer_id']}: last offset {row['last_offset']}")

    def _is_known(self, name: str, own: Entries, found: Entries) -> npt.NDArray[np.bool_]:
        """Return where the log tells a field: an expired producer that came back has lost what was before."""
        if name in _DATA_FIELDS:
            known = own["last_offset"] >= 0
            return known & (found["last_offset"] >= 0)
        if name == "coordinator_epoch":
            return (own[name] >= 0) & (found[name] >= 0)
        if name == "current_txn_first_offset":
            is_new = own[name] >= self.log_start_offset
            if self.is_complete:
                return is_new | (own[name] < 0)
            # It may have begun before the log was followed, and then its first offset here is a later one.
            return is_new & (found[name] >= self._followed_from)
        return np.ones(len(own), np.bool_)

    def _find(self, offset: int, detail: str) -> None:
        self.findings.append(
            Finding(file=snapshot_name(offset), position=None, rule="snapshot-content", detail=detail)
        )
