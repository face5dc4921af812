import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.archive.remote.remote_cache import DroppedRecord, RemoteLogCache
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import (
    RemotePartitionDelete,
    RemotePartitionDeleteState,
    RemoteSegmentState,
    RemoteSegmentUpdate,
    encode_remote_log_metadata,
)
from tests.brokers.remote_log_oracle import ask_kafka
from tests.logs.remote_logs import OWNER, SimulatedLog, wild_records

STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState


def a_log(**options):
    return SimulatedLog(rng=random.Random(1), **options)


def cache_after(records):
    cache = RemoteLogCache()
    dropped = [cache.apply(record) for record in records]
    return cache, dropped


def test_a_segment_on_its_way():
    log = a_log(end=100)
    segment = log.copy(0, 9, finish=False)
    cache, _ = cache_after(log.records)
    assert cache.segments[segment.segment_id].state is STARTED
    assert cache.find(0, 5) is None
    assert cache.unreferenced(0) == {segment.segment_id}
    for state, is_read in ((FINISHED, True), (DELETING, False)):
        log.update(segment, state)
        cache, _ = cache_after(log.records)
        assert (cache.find(0, 5) is not None) is is_read
        assert cache.highest_offset(0) == 9
    log.update(segment, DELETED)
    cache, dropped = cache_after(log.records)
    assert not cache.segments
    assert cache.deleted[segment.segment_id].state is DELETED
    assert cache.highest_offset(0) == 9
    assert set(dropped) == {None}


def test_a_later_copy_takes_the_place_of_shorter_ones():
    log = a_log(end=300)
    first, second = log.copy(0, 100), log.copy(101, 150)
    third = log.copy(0, 200)
    cache, _ = cache_after(log.records)
    assert [one.segment_id for one in cache.referenced(0)] == [third.segment_id]
    assert cache.unreferenced(0) == {first.segment_id, second.segment_id}


def test_a_later_copy_that_ends_before_takes_nobodys_place():
    log = a_log(end=300)
    first = log.copy(50, 100)
    second = log.copy(0, 70)
    cache, _ = cache_after(log.records)
    assert [one.segment_id for one in cache.referenced(0)] == [second.segment_id, first.segment_id]


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([FINISHED, FINISHED], None),
        ([DELETING], None),
        ([DELETED], DroppedRecord.INVALID_TRANSITION),
        ([FINISHED, DELETED], DroppedRecord.INVALID_TRANSITION),
        ([DELETING, FINISHED], DroppedRecord.INVALID_TRANSITION),
        ([STARTED], DroppedRecord.STARTED_AGAIN),
        ([FINISHED, STARTED], DroppedRecord.INVALID_TRANSITION),
        ([DELETING, DELETED, DELETED], DroppedRecord.UNKNOWN_SEGMENT),
    ],
)
def test_transitions(states, reason):
    log = a_log(end=100)
    segment = log.copy(0, 9, finish=False)
    for state in states:
        log.update(segment, state)
    _, dropped = cache_after(log.records)
    assert dropped[-1] is reason


def test_a_segment_is_announced_once():
    log = a_log(end=100)
    segment = log.copy(0, 9)
    cache, _ = cache_after(log.records)
    assert cache.apply(segment) is DroppedRecord.INVALID_TRANSITION
    assert cache.apply(replace(segment, segment_id=UUID(int=1), state=FINISHED)) is DroppedRecord.NOT_STARTED
    assert cache.apply(replace(segment, owner=None)) is DroppedRecord.SNAPSHOT


def test_an_update_brings_the_custom_metadata():
    log = a_log(end=100)
    segment = log.copy(0, 9, finish=False)
    log.records.append(
        RemoteSegmentUpdate(
            owner=OWNER,
            segment_id=segment.segment_id,
            broker_id=9,
            event_timestamp_ms=77,
            state=FINISHED,
            custom_metadata=b"x",
        )
    )
    cache, _ = cache_after(log.records)
    found = cache.segments[segment.segment_id]
    assert (found.custom_metadata, found.broker_id, found.event_timestamp_ms) == (b"x", 9, 77)
    assert found.end_offset == 9


def test_a_deleted_partition_has_no_segments():
    log = a_log(end=100)
    segment = log.copy(0, 9)
    for state in RemotePartitionDeleteState:
        log.records.append(RemotePartitionDelete(owner=OWNER, broker_id=1, event_timestamp_ms=1, state=state))
    cache, _ = cache_after(log.records)
    assert not cache.segments
    assert list(cache.deleted) == [segment.segment_id]
    assert cache.leader_epochs == []


def test_a_segment_of_two_epochs_is_in_two_maps():
    log = a_log(end=100, epochs=[LeaderEpochEntry(0, 0), LeaderEpochEntry(4, 50)])
    segment = log.copy(10, 90)
    cache, _ = cache_after(log.records)
    assert cache.leader_epochs == [0, 4]
    assert cache.find(0, 49) == cache.find(4, 50) == cache.segments[segment.segment_id]
    assert cache.find(0, 50) is None
    assert (cache.highest_offset(0), cache.highest_offset(4)) == (49, 90)
    assert (cache.next_start(0, 0), cache.next_start(0, 10), cache.next_start(7, 0)) == (10, None, None)


@given(st.integers(0, 2**32))
def test_what_is_finished_is_somewhere(seed):
    """Every segment that is not deleted is referenced or unreferenced in each of its epochs, or was overwritten."""
    cache, _ = cache_after(wild_records(random.Random(seed)))
    for segment in cache.segments.values():
        for epoch, _ in segment.leader_epochs:
            is_read = segment.segment_id in {one.segment_id for one in cache.referenced(epoch)}
            assert not (is_read and segment.segment_id in cache.unreferenced(epoch))
            assert not is_read or segment.state is FINISHED
            assert segment.state is FINISHED or segment.segment_id in cache.unreferenced(epoch)


@pytest.mark.java
def test_the_cache_is_that_of_kafka():
    """After records in any order, valid or not: states, maps, highest offsets, and what a fetch finds."""
    rng = random.Random(21)
    histories = [wild_records(rng, count=rng.randrange(5, 80)) for _ in range(250)]
    offsets = [[epoch, offset] for epoch in range(6) for offset in range(0, 180, 7)]
    answers = ask_kafka(
        {
            "op": "cache",
            "values": [encode_remote_log_metadata(one).hex() for one in records],
            "offsets": offsets,
        }
        for records in histories
    )
    thrown = {DroppedRecord.NOT_STARTED, DroppedRecord.UNKNOWN_SEGMENT, DroppedRecord.STARTED_AGAIN}
    for records, told in zip(histories, answers, strict=True):
        cache, dropped = cache_after(records)
        assert told["thrown"] == sum(reason in thrown for reason in dropped)
        assert told["segments"] == {format_uuid(one): int(s.state) for one, s in cache.segments.items()}
        for epoch, of_epoch in told["epochs"].items():
            number = int(epoch)
            assert of_epoch["highest_offset"] == cache.highest_offset(number)
            assert of_epoch["referenced"] == [format_uuid(one.segment_id) for one in cache.referenced(number)]
            assert of_epoch["unreferenced"] == sorted(map(format_uuid, cache.unreferenced(number)))
        found = [cache.find(*pair) for pair in offsets]
        assert told["found"] == [None if one is None else format_uuid(one.segment_id) for one in found]
    assert sum(sum(one is not None for one in told["found"]) for told in answers) > 1000
