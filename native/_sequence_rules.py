# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""How the summary of a producer's sequences is joined to the one that follows, and what counts as a break.

Kafka: ProducerAppendInfo.checkProducerEpoch, checkSequence.
"""

from __future__ import annotations

import numpy as np

from native._hints import rarely
from native._jit import inlined
from native._scan_producers import last_sequence
from native.producer_sequences import INHERITED, MOST_BREAKS, UNKNOWN, SequenceBreak
from segfmt import byte_layout

_MAX_INT32 = 2**31 - 1
_SEQUENCE, _EPOCH = int(SequenceBreak.SEQUENCE), int(SequenceBreak.EPOCH)


@inlined
def _next(sequence):
    """Kafka: ProducerAppendInfo.inSequence. 0 comes after -1."""
    return np.int64(0) if sequence == _MAX_INT32 else np.int64(sequence + 1)


@inlined
def copy_break(target, source):
    target.offset = source.offset
    target.position = source.position
    target.producer_id = source.producer_id
    target.sequence = source.sequence
    target.last_sequence = source.last_sequence
    target.epoch = source.epoch
    target.last_epoch = source.last_epoch
    target.kind = source.kind


@inlined
def room_for_break(state, breaks, offset, position):
    """Return the place in *breaks* of one at *offset*, made free; -1 if all that are kept come before it."""
    at = state.kept_break_count
    if at == MOST_BREAKS:
        last = breaks[at - 1]
        if offset > last.offset or (offset == last.offset and position >= last.position):
            return np.int64(-1)
        at -= 1
    else:
        state.kept_break_count = at + 1
    while at > 0:
        before = breaks[at - 1]
        if offset > before.offset or (offset == before.offset and position >= before.position):
            break
        copy_break(breaks[at], before)
        at -= 1
    return at


@inlined
def _note(state, breaks, kind, producer_id, offset, position, sequence, last, epoch, last_epoch):
    rarely()
    state.break_count += 1
    at = room_for_break(state, breaks, offset, position)
    if at >= 0:
        new = breaks[at]
        new.offset = offset
        new.position = position
        new.producer_id = producer_id
        new.sequence = sequence
        new.last_sequence = last
        new.epoch = epoch
        new.last_epoch = last_epoch
        new.kind = kind


@inlined
def _check_head(state, breaks, row, new):
    """Compare the first data batch of *new* with what precedes it; leave that to a later join if it is not known."""
    is_same_epoch = new.first_epoch == row.last_epoch
    is_said = (
        new.first_epoch < row.last_epoch
        and new.head_offset == new.first_offset
        and new.head_position == new.first_position
    )
    last = np.int64(row.last_sequence) if is_same_epoch else np.int64(byte_layout.NO_SEQUENCE)
    if last == INHERITED:
        row.head_offset = new.head_offset
        row.head_position = new.head_position
        row.head_sequence = new.head_sequence
    elif last != UNKNOWN and new.head_sequence != _next(last) and not is_said:
        _note(
            state,
            breaks,
            _SEQUENCE,
            new.producer_id,
            new.head_offset,
            new.head_position,
            new.head_sequence,
            last,
            new.first_epoch,
            new.first_epoch,
        )


@inlined
def join(state, breaks, row, new, is_known):
    """Make *row* the summary of its run and the run of *new*, which follows it.

    Args:
        is_known: whether nothing lies between the last event of *row* and the run of *new*.
    """
    silence_ms = new.first_timestamp_ms - row.last_timestamp_ms
    if is_known and new.has_first and row.last_timestamp_ms >= 0 and silence_ms < state.expiration_ms:
        if new.first_epoch < row.last_epoch:
            _note(
                state,
                breaks,
                _EPOCH,
                new.producer_id,
                new.first_offset,
                new.first_position,
                np.int64(byte_layout.NO_SEQUENCE),
                np.int64(byte_layout.NO_SEQUENCE),
                new.first_epoch,
                row.last_epoch,
            )
        if new.head_sequence >= 0:
            _check_head(state, breaks, row, new)
        if new.last_sequence != INHERITED:
            row.last_sequence = new.last_sequence
        elif new.first_epoch != row.last_epoch:
            row.last_sequence = byte_layout.NO_SEQUENCE
    else:
        row.last_sequence = UNKNOWN if new.last_sequence == INHERITED else new.last_sequence
    row.last_epoch = new.last_epoch
    row.last_timestamp_ms = new.last_timestamp_ms


@inlined
def begin(row, new, is_cut):
    """Make *row* a copy of *new*; if *is_cut*, nothing is known of what precedes it."""
    row.producer_id = new.producer_id
    row.has_first = new.has_first and not is_cut
    row.has_last = True
    row.last_epoch = new.last_epoch
    row.last_timestamp_ms = new.last_timestamp_ms
    row.last_sequence = new.last_sequence
    if row.has_first:
        row.first_offset = new.first_offset
        row.first_position = new.first_position
        row.first_timestamp_ms = new.first_timestamp_ms
        row.first_epoch = new.first_epoch
        row.head_offset = new.head_offset
        row.head_position = new.head_position
        row.head_sequence = new.head_sequence
        return
    row.first_offset = -1
    row.first_position = -1
    row.first_timestamp_ms = -1
    row.first_epoch = -1
    row.head_offset = -1
    row.head_position = -1
    row.head_sequence = -1
    if row.last_sequence == INHERITED:
        row.last_sequence = UNKNOWN


@inlined
def summarize(batch, row):
    """Fill *row* with the summary of one batch."""
    is_marker = batch.attributes & byte_layout.CONTROL_MASK != 0
    # A batch without epoch or sequence counts as broken; of its producer nothing is known before or after it.
    is_sound = batch.producer_epoch >= 0 and (
        is_marker or (batch.base_sequence >= 0 and batch.last_offset_delta >= 0)
    )
    row.producer_id = batch.producer_id
    row.has_first = is_sound
    row.has_last = is_sound
    row.first_offset = batch.base_offset
    row.first_position = batch.position
    row.first_timestamp_ms = batch.max_timestamp_ms
    row.first_epoch = batch.producer_epoch
    row.last_epoch = batch.producer_epoch
    row.last_timestamp_ms = batch.max_timestamp_ms
    row.head_offset = -1
    row.head_position = -1
    row.head_sequence = -1
    if is_marker:
        row.last_sequence = INHERITED
    elif not is_sound:
        row.last_sequence = UNKNOWN
    else:
        row.head_offset = batch.base_offset
        row.head_position = batch.position
        row.head_sequence = batch.base_sequence
        row.last_sequence = last_sequence(np.int64(batch.base_sequence), np.int64(batch.last_offset_delta))


@inlined
def goes_on(row, batch):
    """Return whether *batch*, of data, continues its epoch, as nearly all do: then only the end changes.

    A broker would take it after a silence, too.
    """
    return (
        batch.producer_epoch == row.last_epoch
        and row.last_sequence >= 0
        and batch.base_sequence == _next(row.last_sequence)
        and batch.last_offset_delta >= 0
    )
