"""What is done about damage in the records that are read: the query fails, or it is left out, or it becomes rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from recovery.archive.records.arrow_rows import ArrowRows
from recovery.archive.records.batch_heads import BatchHeads, Fault
from recovery.archive.records.read_options import Corrupt
from recovery.check.finding import REMEDIES, Rule
from recovery.errors import DamagedSegmentError

_READ_ON = (
    "corrupt=skip leaves it out and counts it, corrupt=include makes rows of it, with the reason in `fault`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was left out of the rows.

    Attributes:
        name: of the object.
        size_bytes: from *position* on.
        is_damage: False for what a killed broker leaves after its last whole batch.
    """

    name: str
    position: int
    size_bytes: int
    rule: Rule
    detail: str
    is_damage: bool = True

    def __str__(self) -> str:
        return f"{self.name}: byte {self.position}: {self.rule}: {self.detail}"


class MissingOffsets(NamedTuple):
    """Offsets that the log has had and that are not there.

    Attributes:
        start_offset, end_offset: the first of them, and the one after the last.
        position: where in the log they are missing.
    """

    start_offset: int
    end_offset: int
    position: int
    rule: Rule
    detail: str


class DamageReport:
    """Takes in the damage of one segment.

    Args:
        name: of its log, for messages.
        rows: makes the rows.
        corrupt: what is done about damage.
        lost: what is done about offsets that are missing.
        on_left_out: called with what is left out.
    """

    def __init__(
        self,
        name: str,
        rows: ArrowRows,
        *,
        corrupt: Corrupt,
        lost: Corrupt,
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        self._name = name
        self._rows = rows
        self.corrupt = corrupt
        self._lost = lost
        self._on_left_out = on_left_out

    def take_stretch(
        self, position: int, size_bytes: int, fault: Fault, *, is_damage: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Take in bytes that are not a batch; without damage they are what a killed broker leaves.

        Raises:
            DamagedSegmentError: damage, with `Corrupt.FAIL`; so do the other methods.
        """
        if not is_damage:
            self._on_left_out(self._left_out(position, size_bytes, fault, is_damage=False))
        elif self.corrupt is Corrupt.INCLUDE:
            yield self._rows.placeholder(None, position, size_bytes, str(fault))
        else:
            self._leave_out(position, size_bytes, fault)

    def take_batch(self, head: BatchHeads, fault: Fault) -> Iterator[pa.RecordBatch]:
        """Take in a batch whose records cannot be read."""
        if self.corrupt is Corrupt.INCLUDE:
            row = head.rows[0]
            yield self._rows.placeholder(head, int(row["position"]), int(row["size_bytes"]), str(fault))
        else:
            self.leave_out_batch(head, fault)

    def leave_out_batch(self, head: BatchHeads, fault: Fault) -> None:
        """Leave out a batch, or fail."""
        row = head.rows[0]
        message = Fault(fault.rule, f"batch at offset {row['base_offset']}: {fault.detail}")
        self._leave_out(int(row["position"]), int(row["size_bytes"]), message)

    def take_missing(self, missing: MissingOffsets) -> Iterator[pa.RecordBatch]:
        """Take in that offsets are missing."""
        fault = Fault(missing.rule, missing.detail)
        if self._lost is Corrupt.INCLUDE:
            yield self._rows.missing(
                missing.start_offset, missing.end_offset - 1, missing.position, str(fault)
            )
            return
        left_out = self._left_out(missing.position, 0, fault)
        if self._lost is Corrupt.FAIL:
            raise DamagedSegmentError(
                f"{left_out}. Remedy: {REMEDIES[fault.rule]}. To read on: failOnDataLoss=false passes over the missing "
                "offsets and counts them, corrupt=include makes a row of them, with the reason in `fault`"
            )
        self._on_left_out(left_out)

    def take_object(self, fault: Fault) -> Iterator[pa.RecordBatch]:
        """Take in that an object is not what was told of it; the segment is read all the same."""
        if self.corrupt is Corrupt.INCLUDE:
            yield self._rows.placeholder(None, 0, 0, str(fault))
            return
        left_out = self._left_out(0, 0, fault)
        if self.corrupt is Corrupt.FAIL:
            raise DamagedSegmentError(
                f"{left_out}. Remedy: {REMEDIES['missing-object']}. To read on: corrupt=skip reads the "
                "segment and counts the fault, corrupt=include makes a row of it; timeIndex=false asks no time index"
            )
        self._on_left_out(left_out)

    def _left_out(self, position: int, size_bytes: int, fault: Fault, *, is_damage: bool = True) -> LeftOut:
        return LeftOut(
            name=self._name,
            position=position,
            size_bytes=size_bytes,
            rule=fault.rule,
            detail=fault.detail,
            is_damage=is_damage,
        )

    def _leave_out(self, position: int, size_bytes: int, fault: Fault) -> None:
        left_out = self._left_out(position, size_bytes, fault)
        if self.corrupt is Corrupt.FAIL:
            remedy = REMEDIES[fault.rule]
            if fault.rule == "too-large":
                remedy = "allow larger batches (maxBatchBytes), if there is memory for them"
            raise DamagedSegmentError(f"{left_out}. Remedy: {remedy}. To read on: {_READ_ON}")
        self._on_left_out(left_out)
