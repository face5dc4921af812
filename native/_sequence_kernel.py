# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernels that follow the sequences of producers: batches and summaries of batches are joined to a summary."""

from __future__ import annotations

import numpy as np

from native._jit import inlined, kernel
from native._memory import rows_at
from native._scan_producers import first_slot, last_sequence
from native._sequence_rules import begin, copy_break, goes_on, join, room_for_break, summarize
from native.batch_headers import HEADER_ROW_DTYPE
from native.producer_sequences import (
    BREAK_DTYPE,
    MOST_BREAKS,
    SEQUENCE_DTYPE,
    SLOTS_PER_ROW,
    STATE_DTYPE,
    UNKNOWN,
)
from segfmt import byte_layout

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_ROW_BYTES, _STATE_BYTES = SEQUENCE_DTYPE.itemsize, STATE_DTYPE.itemsize


@inlined
def _tables(state, state_address):
    """Return rows, marks, slots and breaks."""
    count = state.most_rows
    marks_address = state.tables_address + (count + 1) * _ROW_BYTES
    return (
        rows_at(state.tables_address, count + 1, SEQUENCE_DTYPE),
        rows_at(marks_address, count, _INT64),
        rows_at(marks_address + count * 8, count * SLOTS_PER_ROW, _INT32),
        rows_at(state_address + _STATE_BYTES, np.int64(MOST_BREAKS), BREAK_DTYPE),
    )


@inlined
def _find(slots, rows, producer_id):
    """Return the slot of *producer_id*, uint64, or the free one that it would take."""
    mask = np.uint64(slots.size - 1)
    slot = first_slot(producer_id, slots.size)
    while slots[slot] > 0 and rows[slots[slot] - 1].producer_id != producer_id:
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def _take(state, rows, slots, marks, breaks, new, is_cut, known_mark, new_mark):
    """Join *new* to the row of its producer, or begin a row with it."""
    slot = _find(slots, rows, new.producer_id)
    place = np.int64(slots[slot]) - 1
    if place < 0:
        place = state.row_count
        state.row_count = place + 1
        slots[slot] = place + 1
        begin(rows[place], new, is_cut)
    else:
        join(state, breaks, rows[place], new, marks[place] == known_mark)
    marks[place] = new_mark if new.has_last else np.int64(-1)
    return place


@inlined
def _reach(state, start_offset, end_offset, batch_count):
    """Extend the run to *end_offset*; a gap before *start_offset* cuts it, and so does the log's start."""
    if state.batch_count == 0:
        state.start_offset = start_offset
    elif state.end_offset != start_offset or start_offset <= state.log_start_offset:
        state.is_cut = 1
        state.generation += 1
    state.end_offset = end_offset
    state.batch_count += batch_count


@kernel
def follow_sequences(state_address, batches_address, batch_count):
    """Take in batches until there is no room for a further producer.

    Args:
        state_address: of one STATE_DTYPE, which has the tables. Written.
        batches_address: of *batch_count* HEADER_ROW_DTYPE.

    Returns:
        How many were taken in.
    """
    state = rows_at(state_address, 1, STATE_DTYPE)[0]
    rows, marks, slots, breaks = _tables(state, state_address)
    batches = rows_at(batches_address, batch_count, HEADER_ROW_DTYPE)
    scratch = rows[state.most_rows]
    known_id, place = np.int64(byte_layout.NO_PRODUCER_ID), np.int64(-1)
    for number in range(batch_count):
        batch = batches[number]
        producer_id = np.int64(batch.producer_id)
        if producer_id >= 0 and state.row_count == state.most_rows:
            return np.int64(number)
        _reach(state, batch.base_offset, batch.last_offset + 1, 1)
        is_control = batch.attributes & byte_layout.CONTROL_MASK != 0
        if producer_id < 0 or (is_control and batch.record_count == 0):  # emptied by compaction
            continue
        if producer_id != known_id:
            known_id = producer_id
            place = np.int64(slots[_find(slots, rows, producer_id)]) - 1
        if place >= 0 and marks[place] == state.generation and not is_control:
            row = rows[place]
            if goes_on(row, batch):
                row.last_sequence = last_sequence(
                    np.int64(batch.base_sequence), np.int64(batch.last_offset_delta)
                )
                row.last_timestamp_ms = batch.max_timestamp_ms
                continue
        summarize(batch, scratch)
        mark = np.int64(state.generation)
        place = _take(state, rows, slots, marks, breaks, scratch, state.is_cut != 0, mark, mark)
    return np.int64(batch_count)


@kernel
def join_sequences(
    state_address,
    new_address,
    new_count,
    breaks_address,
    kept_break_count,
    break_count,
    batch_count,
    start_offset,
    end_offset,
    is_cut,
):
    """Take in the summary of the run that follows; the tables have room for all of its producers.

    Args:
        state_address: of one STATE_DTYPE, which has the tables. Written.
        new_address: of *new_count* SEQUENCE_DTYPE.
        breaks_address: of *kept_break_count* BREAK_DTYPE, of *break_count* that there are.
        batch_count, start_offset, end_offset, is_cut: of the summary.

    Returns:
        0.
    """
    state = rows_at(state_address, 1, STATE_DTYPE)[0]
    rows, marks, slots, breaks = _tables(state, state_address)
    new = rows_at(new_address, new_count, SEQUENCE_DTYPE)
    if batch_count > 0:
        _reach(state, start_offset, end_offset, batch_count)
    was_cut = state.is_cut != 0
    known_mark = np.int64(state.generation)
    if is_cut:
        state.is_cut = 1
        state.generation += 1
    for number in range(new_count):
        _take(state, rows, slots, marks, breaks, new[number], was_cut, known_mark, np.int64(state.generation))
    of_new = rows_at(breaks_address, kept_break_count, BREAK_DTYPE)
    for number in range(kept_break_count):
        one = of_new[number]
        at = room_for_break(state, breaks, one.offset, one.position)
        if at >= 0:
            copy_break(breaks[at], one)
    state.break_count += break_count
    return np.int64(0)


@kernel
def place_sequences(state_address):
    """Put the rows of *state* into its slots, which are all free.

    Args:
        state_address: of one STATE_DTYPE, which has the tables. The slots are written.

    Returns:
        0.
    """
    state = rows_at(state_address, 1, STATE_DTYPE)[0]
    rows, _marks, slots, _breaks = _tables(state, state_address)
    for place in range(state.row_count):
        slots[_find(slots, rows, np.int64(rows[place].producer_id))] = place + 1
    return np.int64(0)


@kernel
def end_sequences(state_address):
    """Mark in the rows what is not known at the end of the run.

    Args:
        state_address: of one STATE_DTYPE. Its rows are written.

    Returns:
        0.
    """
    state = rows_at(state_address, 1, STATE_DTYPE)[0]
    rows, marks, _slots, _breaks = _tables(state, state_address)
    for place in range(state.row_count):
        row = rows[place]
        if marks[place] != state.generation:
            row.has_last = False
            row.last_timestamp_ms = byte_layout.NO_TIMESTAMP_MS
            row.last_epoch = byte_layout.NO_PRODUCER_EPOCH
            row.last_sequence = UNKNOWN
    return np.int64(0)
