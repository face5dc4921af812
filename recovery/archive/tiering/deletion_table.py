"""Segments that retention will delete, in columns: there may be a million of them, at 45 bytes each.

As objects, with the leader epochs that decided about them, they would take forty times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self, overload
from uuid import UUID

import numpy as np
import numpy.typing as npt

from recovery.archive.tiering.retention import Deletion, DeletionReason

_REASONS: Final = tuple(DeletionReason)
_NUMBERS: Final = {reason: number for number, reason in enumerate(_REASONS)}
_ROW: Final = np.dtype(
    [
        ("segment_id", "V16"),
        ("start_offset", np.int64),
        ("end_offset", np.int64),
        ("size_bytes", np.int32),
        ("max_timestamp_ms", np.int64),
        ("reason", np.int8),
    ]
)
_ROWS_AT_A_TIME: Final = 4096


class DeletedSegment(NamedTuple):
    """A segment that will be deleted, and why."""

    segment_id: UUID
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    reason: DeletionReason


class DeletionTable(Sequence[DeletedSegment]):
    """Segments that will be deleted, in their order. Its segments are made as they are asked for.

    Args:
        rows: one for each.
    """

    def __init__(self, rows: npt.NDArray[np.void]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, deletions: Sequence[Deletion]) -> Self:
        """Return the table of *deletions*."""
        rows = (
            (
                segment.segment_id.bytes,
                segment.start_offset,
                segment.end_offset,
                segment.size_bytes,
                segment.max_timestamp_ms,
                _NUMBERS[reason],
            )
            for segment, reason in deletions
        )
        return cls(np.fromiter(rows, _ROW, len(deletions)))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> DeletedSegment: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> DeletedSegment | Self:
        """Return one segment, or the table of some."""
        if isinstance(row, slice):
            return type(self)(self._rows[row])
        return next(_segments(self._rows[range(len(self))[row]].reshape(1)))

    def __iter__(self) -> Iterator[DeletedSegment]:
        """Yield the segments."""
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield from _segments(self._rows[start : start + _ROWS_AT_A_TIME])

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return int(self._rows["size_bytes"].sum(dtype=np.int64))

    def counts(self) -> dict[DeletionReason, int]:
        """Return how many there are by reason, in the order in which the reasons first occur."""
        numbers, firsts, counts = np.unique(self._rows["reason"], return_index=True, return_counts=True)
        order = np.argsort(firsts)
        return {_REASONS[numbers[at]]: int(counts[at]) for at in order}

    def without(self, others: Iterable[Deletion]) -> Self:
        """Return the table of those that are not among *others*."""
        ids = {deletion.segment.segment_id.bytes for deletion in others}
        is_kept = [bytes(one) not in ids for one in self._rows["segment_id"].tolist()]
        return type(self)(self._rows[np.array(is_kept, dtype=bool)])


def _segments(rows: npt.NDArray[np.void]) -> Iterator[DeletedSegment]:
    for segment_id, start, end, size_bytes, timestamp_ms, reason in rows.tolist():
        yield DeletedSegment(
            UUID(bytes=bytes(segment_id)), start, end, size_bytes, timestamp_ms, _REASONS[reason]
        )
