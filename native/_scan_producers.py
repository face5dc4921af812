# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""What the scan knows of producers: their hash table, their rows, their transactions.

A data batch only leaves its address in its producer's slot. What follows from it is worked out when it is needed:
at a marker, and at the end of a window.

Kafka: ProducerAppendInfo, ProducerStateEntry, DefaultRecordBatch.lastSequence.
"""

from __future__ import annotations

import numpy as np

from native._hints import rarely
from native._jit import inlined, kernel
from native._memory import load_be16, load_be32, load_be64, rows_at
from native._scan_state import (
    CLEARED,
    HAS_DATA,
    MARKER_WAS_LAST,
    PRODUCER_ROW_DTYPE,
    SLOT_DTYPE,
    USUAL_OUTSIDE,
    USUAL_UNKNOWN,
)
from native.raw_scan import TxnEventKind
from segfmt import byte_layout

_EVENT_MARKER = int(TxnEventKind.MARKER)
_EVENT_ABORTED = int(TxnEventKind.ABORTED)
_FREE = np.int64(-1)
_MAX_INT32 = 0x7FFFFFFF
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd: neighbouring ids land far apart
_HALF = np.uint64(32)


@inlined
def _int32(value):
    """Return *value* as Java's int arithmetic would leave it."""
    return np.int64(np.int32(value))


@inlined
def last_sequence(base_sequence, last_offset_delta):
    """Kafka: DefaultRecordBatch.lastSequence and incrementSequence, overflows included."""
    if (base_sequence | last_offset_delta) >= 0:
        return (base_sequence + last_offset_delta) & _MAX_INT32
    rarely()
    if base_sequence == -1:
        return np.int64(-1)
    if base_sequence > _int32(_MAX_INT32 - last_offset_delta):
        return _int32(last_offset_delta - (_MAX_INT32 - base_sequence) - 1)
    return _int32(base_sequence + last_offset_delta)


@inlined
def first_slot(producer_id, slot_count):
    """Return where to look for *producer_id* first.

    The product's highest bits choose: neighbouring ids, which is how brokers give them out, then hardly ever
    meet, and an unforeseen second look costs as much as a quarter of a small batch.
    """
    high = (np.uint64(producer_id) * _HASH_FACTOR) >> _HALF
    return (high * np.uint64(slot_count)) >> _HALF


@inlined
def find_slot(slots, producer_id):
    """Return the slot of *producer_id*, uint64, or the free one that it would take.

    *slots* is an open hash table, a power of two long and at most half full.
    """
    mask = np.uint64(slots.size - 1)
    slot = first_slot(producer_id, slots.size)
    while slots[slot].producer_id != producer_id and slots[slot].producer_id != _FREE:
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def known_producer(state, producers, slots, producer_id):
    """Return the slot of *producer_id*, uint64; it gets a row if it has none."""
    slot = find_slot(slots, producer_id)
    if slots[slot].producer_id == producer_id:
        return slot
    row = state.producer_count
    state.producer_count = row + 1
    slots[slot].producer_id = producer_id
    slots[slot].last_batch = 0
    slots[slot].row = row
    slots[slot].usual = USUAL_UNKNOWN
    new = producers[row]
    new.producer_id = producer_id
    new.last_offset = -1
    new.data_timestamp_ms = -1
    new.marker_timestamp_ms = -1
    new.last_sequence = -1
    new.offset_delta = 0
    new.coordinator_epoch = -1
    new.first_epoch = -1
    new.epoch = -1
    new.usual = USUAL_UNKNOWN
    new.flags = 0
    new.has_marker = False
    new.is_unsettled = False
    new.slot = slot
    new.begin_event = -1
    return slot


@inlined
def expect_data(state, producers, slots, slot):
    """Enter the producer in *slot* in the list of those that may have data batches in this window."""
    row = slots[slot].row
    producer = producers[row]
    if not producer.is_unsettled:
        producer.is_unsettled = True
        producer.next_unsettled_row = state.first_unsettled_row
        state.first_unsettled_row = row
    slots[slot].usual = producer.usual


@inlined
def settle(producers, slots, slot):
    """Bring a producer's row up to its last data batch.

    Kafka: ProducerAppendInfo.appendDataBatch, ProducerStateEntry.addBatch.
    """
    batch = slots[slot].last_batch
    if batch == 0:
        return
    slots[slot].last_batch = 0
    producer = producers[slots[slot].row]
    delta = load_be32(batch + byte_layout.LAST_OFFSET_DELTA_POSITION)
    producer.epoch = load_be16(batch + byte_layout.PRODUCER_EPOCH_POSITION)
    producer.last_offset = load_be64(batch) + delta
    producer.offset_delta = delta
    producer.last_sequence = last_sequence(load_be32(batch + byte_layout.BASE_SEQUENCE_POSITION), delta)
    producer.data_timestamp_ms = load_be64(batch + byte_layout.MAX_TIMESTAMP_POSITION)
    producer.flags = HAS_DATA


@inlined
def settle_all(state, producers, slots):
    """Bring the rows of all producers in the list up to date and empty the list, at the end of a window."""
    row = state.first_unsettled_row
    state.first_unsettled_row = -1
    while row >= 0:
        producer = producers[row]
        slot = np.uint64(np.uint32(producer.slot))
        settle(producers, slots, slot)
        slots[slot].usual = USUAL_UNKNOWN
        producer.is_unsettled = False
        row = np.int64(producer.next_unsettled_row)


@inlined
def add_event(state, events, kind, row, offset, last_offset, position, epoch):
    """Note a transaction event of the producer in *row*; return its own row."""
    place = state.first_free_event
    if place >= 0:
        state.first_free_event = events[place].offset
    else:
        place = state.event_count
        state.event_count = place + 1
    event = events[place]
    event.kind = kind
    event.producer = row
    event.offset = offset
    event.last_offset = last_offset
    event.position = position
    event.oldest_other_offset = -1
    event.marker_type = -1
    event.coordinator_epoch = -1
    event.epoch = epoch
    return place


@inlined
def _free_event(state, events, place):
    """Take an event back; its row waits in a list for the next one."""
    events[place].kind = 0
    events[place].offset = state.first_free_event
    state.first_free_event = place


@inlined
def note_begin(state, producers, row, place, offset):
    """Note that a transaction is known to begin at *place*, if it can be followed to its end in this segment.

    A producer's transactions are known from its first marker on; before that, one that began before the segment may
    be open. They can be left out as long as each begins after all others.
    """
    if offset <= state.greatest_begin_offset:
        state.txns_in_order = 0
    else:
        state.greatest_begin_offset = offset
    producer = producers[row]
    if not producer.has_marker:
        return
    producer.begin_event = place
    producer.older_open_row = state.newest_open_row
    producer.newer_open_row = -1
    if state.newest_open_row >= 0:
        producers[state.newest_open_row].newer_open_row = row
    else:
        state.oldest_open_row = row
    state.newest_open_row = row


@inlined
def _unlink_open(state, producers, row):
    """Remove the open transaction of the producer in *row* from the list of open transactions."""
    older = np.int64(producers[row].older_open_row)
    newer = np.int64(producers[row].newer_open_row)
    if older >= 0:
        producers[older].newer_open_row = newer
    else:
        state.oldest_open_row = newer
    if newer >= 0:
        producers[newer].older_open_row = older
    else:
        state.newest_open_row = older
    producers[row].begin_event = -1


@inlined
def _oldest_open_offset(state, producers, events):
    """Return where the first transaction known to be open begins, -1 without one."""
    if state.oldest_open_row < 0:
        return np.int64(-1)
    return np.int64(events[np.int64(producers[state.oldest_open_row].begin_event)].offset)


@inlined
def _settle_transaction(
    state, producers, events, row, base_offset, position, epoch, marker_type, coordinator_epoch
):
    """Take in what a marker ends; return whether it needs no event of its own.

    It needs none if the producer is known to have no transaction open, or if the marker ends one that is known:
    after a commit the beginning goes, too; after an abort the beginning becomes the whole transaction's event.
    """
    producer = producers[row]
    if not producer.has_marker:
        return False
    place = np.int64(producer.begin_event)
    if place < 0:
        return True
    _unlink_open(state, producers, row)
    if state.txns_in_order == 0:
        return False
    event = events[place]
    offset = np.int64(event.offset)
    if marker_type == byte_layout.CONTROL_TYPE_ABORT:
        event.kind = _EVENT_ABORTED
        event.last_offset = base_offset
        event.position = position
        event.marker_type = marker_type
        event.coordinator_epoch = coordinator_epoch
        event.epoch = epoch
        event.oldest_other_offset = _oldest_open_offset(state, producers, events)
    else:
        _free_event(state, events, place)
    if state.settled_txn_count == 0 or offset < state.first_settled_offset:
        state.first_settled_offset = offset
    if state.settled_txn_count == 0 or offset > state.last_settled_offset:
        state.last_settled_offset = offset
    state.settled_txn_count += 1
    return True


@inlined
def take_marker(
    state,
    producers,
    slots,
    events,
    slot,
    base_offset,
    last_offset,
    position,
    epoch,
    marker_type,
    coordinator_epoch,
    timestamp_ms,
):
    """Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateEntry.update."""
    expect_data(state, producers, slots, slot)
    settle(producers, slots, slot)
    row = np.int64(slots[slot].row)
    producer = producers[row]
    if not _settle_transaction(
        state, producers, events, row, base_offset, position, epoch, marker_type, coordinator_epoch
    ):
        place = add_event(state, events, _EVENT_MARKER, row, base_offset, last_offset, position, epoch)
        events[place].marker_type = marker_type
        events[place].coordinator_epoch = coordinator_epoch
        events[place].oldest_other_offset = _oldest_open_offset(state, producers, events)
    flags = producer.flags | MARKER_WAS_LAST
    if producer.usual == USUAL_UNKNOWN:
        producer.first_epoch = epoch
    elif producer.epoch != epoch:
        flags |= CLEARED
    producer.flags = flags
    producer.epoch = epoch
    producer.coordinator_epoch = coordinator_epoch
    producer.marker_timestamp_ms = timestamp_ms
    producer.has_marker = True
    producer.usual = USUAL_OUTSIDE
    slots[slot].usual = USUAL_OUTSIDE


@kernel
def rebuild_slots(producers_address, producers_rows, producer_count, slots_address, slots_rows):
    """Enter the first *producer_count* rows of producers in the slots, which are all free."""
    producers = rows_at(producers_address, producers_rows, PRODUCER_ROW_DTYPE)
    slots = rows_at(slots_address, slots_rows, SLOT_DTYPE)
    mask = np.uint64(slots.size - 1)
    for row in range(producer_count):
        slot = first_slot(producers[row].producer_id, slots.size)
        while slots[slot].producer_id != _FREE:
            slot = (slot + np.uint64(1)) & mask
        slots[slot].producer_id = producers[row].producer_id
        slots[slot].last_batch = 0
        slots[slot].row = row
        slots[slot].usual = USUAL_UNKNOWN
        producers[row].slot = slot
    return np.int64(0)
