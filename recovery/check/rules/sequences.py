"""Producers' sequences over the segments of a log: where a producer does not continue as every leader demands.

None of this is damage. A broker forgets producers with time, when it reads the log again from a later start, and with
the segments that hold them; after that it accepts whatever comes. So silence, gaps and the start of the log end what is
known, and the rest is worth a note.

Kafka: ProducerAppendInfo.checkProducerEpoch, checkSequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from native.producer_sequences import BREAK_DTYPE, SequenceBreak, SequenceFold
from recovery.check.finding import Finding, Rule
from recovery.check.task import SegmentResult, SegmentTask
from segfmt.byte_layout import NO_SEQUENCE

_WHY = "records may be missing, or the broker had forgotten the producer"


_RULES: dict[SequenceBreak, Rule] = {
    SequenceBreak.SEQUENCE: "sequence-gap",
    SequenceBreak.EPOCH: "producer-epoch",
}


def fold_of(task: SegmentTask) -> SequenceFold | None:
    """Return the fold over the batches of a segment; None if sequences are not followed."""
    return None if task.expiration_ms is None else SequenceFold(task.expiration_ms, task.log_start_offset)


class SequenceChecks:
    """The walk over a log's segments.

    Args:
        expiration_ms: a producer that was silent so long may have been forgotten.
        log_start_offset: what lies before it is not judged.
    """

    def __init__(self, *, expiration_ms: int, log_start_offset: int) -> None:
        self._fold = SequenceFold(expiration_ms, log_start_offset)

    def take(self, result: SegmentResult) -> None:
        """Take in the next segment."""
        self._fold.take(result.sequences)

    def finish(self, results: Sequence[SegmentResult]) -> list[Finding]:
        """Return what was found in *results*, which are all that were taken in, ascending."""
        total = self._fold.result()
        breaks = np.frombuffer(total.breaks, BREAK_DTYPE)
        bases = [result.task.base_offset for result in results]
        findings = []
        for row in breaks:
            task = results[max(0, bisect_right(bases, int(row["offset"])) - 1)].task
            findings.append(
                Finding(
                    file=task.log,
                    position=int(row["position"]),
                    rule=_RULES[row["kind"]],
                    detail=_text(row),
                    severity="note",
                    is_flushed=task.is_flushed,
                )
            )
        more_count = total.break_count - len(findings)
        if more_count:
            detail = f"{findings[-1].detail}. {more_count} more like this follow in the log"
            findings[-1] = replace(findings[-1], detail=detail)
        return findings


def _text(row: np.void) -> str:
    """Return what is wrong at a break, a row of BREAK_DTYPE, as text."""
    who = f"producer {row['producer_id']}, epoch {row['epoch']}"
    if row["kind"] == SequenceBreak.EPOCH:
        return f"{who}: its epoch was {row['last_epoch']} before; {_WHY}"
    if row["last_sequence"] == NO_SEQUENCE:
        return f"{who}: its epoch begins with sequence {row['sequence']}, not 0; {_WHY}"
    return f"{who}: sequence {row['sequence']} follows {row['last_sequence']}; {_WHY}"
