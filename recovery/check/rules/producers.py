"""Producers: each snapshot against a replay from the one before, and the aborted transactions of each segment.

Expired producers may be absent from a snapshot, and what was not followed from the start of the log is not judged.
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
from segfmt import byte_layout
from segfmt.filenames import snapshot_name
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import as_loaded, read_producer_snapshot

_NEVER_MS = 2**62
_DATA_FIELDS = ("last_offset", "last_sequence", "offset_delta")

Entries = npt.NDArray[np.void]


class _OneSnapshot:
    """The snapshot files of a `ProducerState`: the one it starts from, and those it writes."""

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
        log_start_offset: a recovery that begins there may have forgotten what lies before it.
        now_ms, expiration_ms: a producer that was last seen that long ago may be absent.
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
        self.restart(start_offset)

    def restart(self, offset: int) -> None:
        """Start over at *offset*, from a snapshot if there is one."""
        data = self._snapshots.get(offset)
        self._files = _OneSnapshot(offset if data is not None else None, data or b"")
        self._state = ProducerState(self._files, now_ms=0, expiration_ms=_NEVER_MS)
        self._state.truncate_and_reload(-1, offset)
        self.is_complete = data is not None or offset == 0
        self._began_at = self._followed_from = offset

    def break_off(self) -> None:
        """Know nothing of producers from here to the next snapshot: bytes of the log were skipped."""
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
            return np.empty(0, byte_layout.ABORTED_TXN_DTYPE)

    def reach(self, offset: int) -> None:
        """Compare with the snapshot at *offset*, and continue from it."""
        data = self._snapshots.get(offset)
        if data is None or offset == self._began_at:
            return
        entries = read_producer_snapshot(data, crc32c=crc32c_of_bytes)
        # Nearly all are byte for byte what a recovery would write, and need not be compared entry by entry.
        if data == self._compute(offset) or self._agrees(offset, as_loaded(entries)):
            self._judge_offsets(offset, entries)
        self.restart(offset)

    def snapshot_at(self, offset: int) -> bytes:
        """Return the snapshot that a recovery would write at *offset*, which has been reached.

        Empty if not everything is known of the producers, which never expire here.

        Kafka: LogSegment.recover, ProducerStateManager.takeSnapshot.
        """
        data = self._compute(offset)
        return data if self._computed[2] else b""

    def _compute(self, offset: int) -> bytes:
        """Return the snapshot at *offset*; kept, because a state writes only one at an offset."""
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
            return np.empty(0, byte_layout.PRODUCER_ENTRY_DTYPE)
        return as_loaded(read_producer_snapshot(data, crc32c=crc32c_of_bytes))

    def _agrees(self, offset: int, stored: Entries) -> bool:
        """Compare with what the log says; return whether all fields agree."""
        expected = np.sort(self._own_entries(offset), order="producer_id")
        stored = np.sort(stored, order="producer_id")
        ids, in_expected, in_stored = np.intersect1d(
            expected["producer_id"], stored["producer_id"], return_indices=True
        )
        for name in ("epoch", "timestamp_ms", *_DATA_FIELDS, "coordinator_epoch", "current_txn_first_offset"):
            expected_values, stored_values = expected[name][in_expected], stored[name][in_stored]
            differs = (expected_values != stored_values) & self._is_known(
                name, expected[in_expected], stored[in_stored]
            )
            for index in np.flatnonzero(differs)[:1]:
                detail = f"producer {ids[index]}: {name} {stored_values[index]}, the log says {expected_values[index]}"
                self._find(offset, detail)
                return False
        missing = expected[~np.isin(expected["producer_id"], stored["producer_id"])]
        is_open = missing["current_txn_first_offset"] >= 0
        lives = self._now_ms - missing["timestamp_ms"].astype(np.int64) < self._expiration_ms
        last = np.maximum(missing["last_offset"], missing["current_txn_first_offset"])
        has_acted = (missing["timestamp_ms"].astype(np.int64) >= 0) & (last >= self.log_start_offset)
        for row in missing[(is_open | lives) & has_acted][:1]:
            self._find(offset, f"producer {row['producer_id']} is missing")
        extra = stored[~np.isin(stored["producer_id"], expected["producer_id"])]
        if self.is_complete:
            # Another broker's snapshot may know what lies before the log start when the one before it does not.
            last = np.maximum(extra["last_offset"], extra["current_txn_first_offset"])
            for row in extra[last >= self.log_start_offset][:1]:
                self._find(offset, f"producer {row['producer_id']} has written nothing")
        return True

    def _judge_offsets(self, offset: int, stored: Entries) -> None:
        """Find a producer whose last batch or transaction lies past the snapshot, or where no offset is."""
        last, first = stored["last_offset"], stored["current_txn_first_offset"]
        impossible = np.flatnonzero((last >= offset) | (last < -1) | (first >= offset) | (first < -1))
        for index in impossible[np.argsort(stored["producer_id"][impossible])][:1]:
            row = stored[index]
            self._find(
                offset,
                f"producer {row['producer_id']}: last offset {last[index]}, transaction from offset {first[index]}",
            )

    def _is_known(self, name: str, expected: Entries, stored: Entries) -> npt.NDArray[np.bool_]:
        """Return where the log determines a field: an expired producer that came back has lost what was before."""
        if name in _DATA_FIELDS:
            has_data = expected["last_offset"] >= 0
            return has_data & (stored["last_offset"] >= 0)
        if name == "coordinator_epoch":
            return (expected[name] >= 0) & (stored[name] >= 0)
        if name == "current_txn_first_offset":
            is_new = expected[name] >= self.log_start_offset
            if self.is_complete:
                return is_new | (expected[name] < 0)
            # A transaction may have begun before the log was followed; its first offset seen is then a later one.
            return is_new & (stored[name] >= self._followed_from)
        return np.ones(len(expected), np.bool_)

    def _find(self, offset: int, detail: str) -> None:
        self.findings.append(
            Finding(file=snapshot_name(offset), position=None, rule="snapshot-content", detail=detail)
        )
