"""What the `.txnindex` of a segment must hold, by the transactions that are aborted in its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native.raw_scan import RawScan, TxnEventKind
from recovery.check.finding import Finding, Rule
from segfmt.byte_layout import ABORTED_TXN_DTYPE, NO_PRODUCER_ID
from segfmt.java_text import LONG_MAX
from segfmt.transaction_index import ENTRY_BYTES, Entries


class KnownAborts(NamedTuple):
    """The transactions that are aborted in a segment, according to its batches.

    Attributes:
        entries: as a leader enters them, ABORTED_TXN_DTYPE, shape (n,).
        next_begins: the first offset behind each marker at which a transaction of another producer begins in the
            segment, int64, shape (n,); the greatest one without any. Right only where none of another is open there.
        next_epochs: the first offset behind each marker from which on a follower may have truncated the log, as the
            next leader epoch begins there, or the log ends; int64, shape (n,); the greatest one without any.
    """

    entries: Entries
    next_begins: npt.NDArray[np.int64]
    next_epochs: npt.NDArray[np.int64]

    def before(self, end_offset: int) -> KnownAborts:
        """Return those whose markers are before *end_offset*."""
        is_before = self.entries["last_offset"] < end_offset
        return KnownAborts(self.entries[is_before], self.next_begins[is_before], self.next_epochs[is_before])

    def ended_at(self, offset: int) -> KnownAborts:
        """Return the same where the next leader epoch begins at *offset*, behind the segment, or the log ends."""
        end_offset = min(offset, LONG_MAX)  # the one behind the last of all is no int64
        return self._replace(next_epochs=np.minimum(self.next_epochs, end_offset))


def txn_begins(scan: RawScan) -> npt.NDArray[np.int64]:
    """Return where transactions begin in *scan*, ascending, and whose they are; int64, shape (n, 2).

    Args:
        scan: it must not settle any.
    """
    events = scan.txn_events[scan.txn_events["kind"] == TxnEventKind.BEGIN]
    begins = np.stack((events["offset"], scan.producers["producer_id"][events["producer"]]), axis=1)
    return begins[np.argsort(begins[:, 0], kind="stable")]


def known_aborts(
    entries: Sequence[Entries], begins: Sequence[npt.NDArray[np.int64]], epoch_starts: Sequence[int]
) -> KnownAborts:
    """Return the aborts of a segment from those of its pieces, with the offsets where transactions begin.

    One that is open where a piece begins has a begin there, too: it does not matter, see `KnownAborts.next_begins`.

    Args:
        epoch_starts: where leader epochs begin in the segment, ascending.
    """
    merged = np.concatenate([np.empty(0, ABORTED_TXN_DTYPE), *entries])
    offsets, owners = np.concatenate([*begins, np.array([[LONG_MAX, NO_PRODUCER_ID]])]).T
    last = len(owners) - 1  # stands for "none"
    changes = np.append(np.flatnonzero(np.diff(owners)) + 1, [last, last])
    next_of_others = changes[np.searchsorted(changes[:-1], np.arange(len(owners)), side="right")]
    rows = np.searchsorted(offsets, merged["last_offset"], side="right")
    is_own = owners[rows] == merged["producer_id"]
    next_begins = offsets[np.where(is_own, next_of_others[rows], rows)]
    epochs = np.array([*epoch_starts, LONG_MAX])
    return KnownAborts(
        merged, next_begins, epochs[np.searchsorted(epochs, merged["last_offset"], side="right")]
    )


def check_transaction_index(
    file: str,
    entries: Entries,
    known: KnownAborts,
    *,
    base_offset: int,
    end_offset: int,
    is_complete: bool,
    is_compacted: bool,
) -> list[Finding]:
    """Return what is wrong with a `.txnindex`.

    Args:
        file: its name.
        entries: those of the file, ABORTED_TXN_DTYPE.
        known: those according to the segment's batches.
        base_offset: of the segment.
        end_offset: the offset after the last one of the segment; the greatest int64 if unknown.
        is_complete: whether all producers were known at the segment's start.
        is_compacted: whether batches, markers included, may have been removed.
    """
    findings = []
    by_marker = {
        (int(row["producer_id"]), int(row["last_offset"])): (row, next_begin, next_epoch)
        for row, next_begin, next_epoch in zip(
            known.entries, known.next_begins.tolist(), known.next_epochs.tolist(), strict=True
        )
    }
    last = -1
    for number, entry in enumerate(entries):
        marker = int(entry["producer_id"]), int(entry["last_offset"])
        expected = by_marker.pop(marker, None)
        rule: Rule = "malformed-entry"
        detail = _malformed_text(entry, base_offset=base_offset, last_offset_before=last)
        if detail is None:
            rule = "transaction-index-entry"
            detail = _contradiction_text(
                entry, expected, end_offset=end_offset, is_complete=is_complete, is_compacted=is_compacted
            )
        last = max(last, marker[1])
        if detail is not None:
            position = number * ENTRY_BYTES
            findings.append(Finding(file=file, position=position, rule=rule, detail=detail))
    if by_marker and not is_compacted:
        (producer_id, offset), _ = min(by_marker.items(), key=lambda item: item[0][1])
        detail = (
            f"the abort of producer {producer_id} at offset {offset} has no entry: it is read as committed"
        )
        findings.append(Finding(file=file, position=None, rule="transaction-index-missing", detail=detail))
    return findings


def _malformed_text(entry: np.void, *, base_offset: int, last_offset_before: int) -> str | None:
    """Return why no broker writes an entry, whatever its log holds; None if one may."""
    first, last = int(entry["first_offset"]), int(entry["last_offset"])
    version = int(entry["version"])
    if version != 0:
        return f"version {version}, which stops {'every broker' if version >> 8 > 0 else 'a broker of 4.4 or later'}"
    if last < base_offset:
        return f"last offset {last} is before the segment"
    if last <= last_offset_before:
        return f"last offset {last} is not above the one before"
    if not 0 <= first < last:  # a marker comes after the batches of its transaction
        return f"offsets {first} to {last}"
    if int(entry["last_stable_offset"]) < 0:
        return f"last stable offset {entry['last_stable_offset']}"
    return None


def _contradiction_text(
    entry: np.void,
    expected: tuple[np.void, int, int] | None,
    *,
    end_offset: int,
    is_complete: bool,
    is_compacted: bool,
) -> str | None:
    """Return why an entry is not of its log, None if it may be.

    *expected*: that of its marker, and where the next transaction and the next leader epoch begin; None without one.
    """
    first, last, stable = (int(entry[name]) for name in ("first_offset", "last_offset", "last_stable_offset"))
    if last >= end_offset:
        return f"last offset {last} is past the end of the segment, {end_offset}"
    if is_compacted:
        return None
    if expected is None:
        return f"no abort marker of producer {entry['producer_id']} at offset {last}" if is_complete else None
    row, next_begin, next_epoch = expected
    if first != int(row["first_offset"]):
        return f"first offset {first}, the transaction begins at {row['first_offset']}"
    right = int(row["last_stable_offset"])
    if is_complete and not _may_be_stable(stable, right, last, next_begin, next_epoch):
        return f"last stable offset {stable}, by the log it was {right}"
    return None


def _may_be_stable(stable: int, right: int, last: int, next_begin: int, next_epoch: int) -> bool:
    """Return whether a broker may have entered *stable* for a marker at *last*, where *right* is what a leader enters.

    A follower appends many batches at once, and enters their aborts afterwards. Then it knows of transactions that
    began behind the marker; if none of another producer is open from before, the first of those of others is where it
    sees the log as stable. That one may have been cut since: a follower truncates its log where that of the next leader
    epoch differs, and leaves the entry as it is.

    Kafka: UnifiedLog.append, ProducerStateManager.lastStableOffset, TransactionIndex.truncateTo.
    """
    if stable == right:
        return True
    return right == last + 1 and (stable == next_begin or next_epoch <= min(stable, next_begin))
