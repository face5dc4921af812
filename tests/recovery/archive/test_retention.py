"""What retention will delete of a tiered log, held against Kafka's own task."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote_size import held_size, lineage_size, remote_log_size
from recovery.archive.tiering.deletion_table import DeletionTable
from recovery.archive.tiering.partition_state import PartitionState
from recovery.archive.tiering.retention import DeletionReason, Retention, expire, never_deleted
from recovery.archive.tiering.retention_report import RetentionReport, retained
from recovery.archive.tiering.tiered_log import NOTHING_COPIED, LocalSegment, TieredLog
from recovery.broker.log_retention import LogRetention
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.java_text import LONG_MAX
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState, encode_remote_log_metadata
from tests.brokers.remote_log_oracle import ask_kafka
from tests.logs.remote_logs import SimulatedLog, orderly_log

STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState
KEEP_ALL = Retention(-1, -1)


def cache_after(records):
    cache = RemoteLogCache()
    for record in records:
        cache.apply(record)
    return cache


def reasons(expiry):
    return [(one.segment.start_offset, one.reason.value) for one in expiry.deletions]


def a_log(*copies, end=100, epochs=((0, 0),), segments=((0, 0),), start=0):
    """A log and a cache with copies of these offsets; a third figure is the largest timestamp."""
    made = SimulatedLog(rng=random.Random(1), epochs=[LeaderEpochEntry(*one) for one in epochs], end=end)
    for first, last, *timestamp in copies:
        made.copy(first, last)
        if timestamp:
            number = made.records.index(made.announced()[-1])
            made.records[number] = replace(made.records[number], max_timestamp_ms=timestamp[0])
    log = TieredLog(
        segments=[LocalSegment(*one) for one in segments],
        epochs=made.epochs,
        log_start_offset=start,
        log_end_offset=end,
    )
    return made, log


def test_what_is_too_old_goes():
    made, log = a_log((0, 9, 50), (10, 19, 100), (20, 29, 70))
    expiry = expire(cache_after(made.records), log, Retention(100, -1), now_ms=200)
    assert reasons(expiry) == [(0, "time")]  # not after the second one, which may stay
    assert expiry.log_start_offset == 10
    assert expiry.size_bytes == 1000


def test_what_is_too_much_goes_and_never_more_than_that():
    made, log = a_log((0, 9), (10, 19), (20, 29), segments=[(30, 500)])
    for most, starts in ((3500, []), (2501, []), (2500, [0]), (1499, [0, 10]), (0, [0, 10, 20])):
        expiry = expire(cache_after(made.records), log, Retention(-1, most), now_ms=10**6)
        assert reasons(expiry) == [(start, "size") for start in starts], most


def test_a_broker_that_has_just_loaded_counts_twice_what_is_in_both_places():
    made, log = a_log((0, 9), (10, 19), (20, 29), segments=[(10, 1000), (20, 1000), (30, 500)])
    cache = cache_after(made.records)
    rule = Retention(-1, 3500)
    assert expire(cache, log, rule, now_ms=10**6).deletions == ()
    again = expire(cache, log, rule, now_ms=10**6, knows_what_is_copied=False)
    assert reasons(again) == [(0, "size"), (10, "size")]
    assert again.log_start_offset == 20


def test_what_was_begun_goes_on_and_what_is_before_the_start_goes():
    made, log = a_log((0, 9), (10, 19), (20, 29), start=10)
    made.update(made.announced()[1], DELETING)
    expiry = expire(cache_after(made.records), log, KEEP_ALL, now_ms=10**6)
    assert reasons(expiry) == [(0, "log-start"), (10, "unfinished-delete")]
    assert expiry.log_start_offset == 10
    for deletions in (expiry.deletions, expiry.deletions[::-1]):
        table = DeletionTable.of(deletions)
        assert [one.reason for one in table] == list(table.counts()) == [one.reason for one in deletions]
        assert table.size_bytes == expiry.size_bytes
        assert [one.start_offset for one in table.without(deletions[:1])] == [
            deletions[1].segment.start_offset
        ]
        assert table[1:][0] == table[-1]


def test_epochs_before_the_first_are_unreferenced_and_those_cut_off_stay():
    made, log = a_log((0, 9), end=60, epochs=[(2, 0)])
    made.epochs = [LeaderEpochEntry(4, 0)]
    cut_off = made.copy(0, 50)
    log = replace(log, epochs=[LeaderEpochEntry(3, 0), LeaderEpochEntry(5, 20)])
    cache = cache_after(made.records)
    expiry = expire(cache, log, Retention(0, 0), now_ms=10**6)
    assert reasons(expiry) == [(0, "unreferenced")]
    assert [one.segment_id for one in never_deleted(cache, log, expiry)] == [cut_off.segment_id]
    made.update(cut_off, DELETING)  # nobody looks through its epoch to end that
    cache = cache_after(made.records)
    expiry = expire(cache, log, Retention(0, 0), now_ms=10**6)
    assert reasons(expiry) == [(0, "unreferenced")]
    assert [one.segment_id for one in never_deleted(cache, log, expiry)] == [cut_off.segment_id]


def test_epochs_that_the_log_leaves_behind_are_unreferenced_at_once():
    """A leader cuts its epochs where the log begins, and only then looks for what is before them."""
    made, log = a_log((0, 9, 50), epochs=[(1, 0)], end=30)
    made.epochs = [LeaderEpochEntry(2, 10)]
    cut_off = made.copy(10, 14)
    made.epochs = [LeaderEpochEntry(1, 0), LeaderEpochEntry(3, 10)]
    made.copy(10, 19)
    log = replace(log, epochs=made.epochs)
    cache = cache_after(made.records)
    expiry = expire(cache, log, Retention(0, -1), now_ms=60)
    assert reasons(expiry) == [(0, "time"), (10, "unreferenced")]
    assert never_deleted(cache, log, expiry) == []
    kept = expire(cache, log, KEEP_ALL, now_ms=60)
    assert kept.deletions == ()
    assert never_deleted(cache, log, kept) == [cache.segments[cut_off.segment_id]]


def test_without_segments_nothing_happens():
    _, log = a_log(start=7)
    expiry = expire(RemoteLogCache(), log, Retention(0, 0), now_ms=10**6)
    assert (expiry.deletions, expiry.log_start_offset) == ((), 7)
    assert log.highest_copied_offset(RemoteLogCache()) == NOTHING_COPIED


def test_a_segment_of_two_epochs_counts_in_both():
    made, log = a_log((0, 9), (10, 29), epochs=[(0, 0), (3, 20)])
    cache = cache_after(made.records)
    assert (remote_log_size(cache, 0), remote_log_size(cache, 3), remote_log_size(cache, 1)) == (
        3000,
        2000,
        0,
    )
    assert lineage_size(cache, log.epochs, 100) == held_size(cache) == 3000
    made.update(made.announced()[0], DELETING)
    made.copy(30, 39, finish=False)
    cache = cache_after(made.records)
    assert (held_size(cache), lineage_size(cache, log.epochs, 100)) == (3000, 2000)
    assert remote_log_size(cache, 3) == 3000


def test_the_remedy_of_a_topic_is_that_for_all_its_partitions():
    made, log = a_log((0, 9), (10, 19), (20, 29), segments=[(20, 1000), (30, 500)])
    settings = LogRetention(
        is_expiring=True, retention_ms=-1, retention_bytes=3500, is_tiered=True, is_copy_disabled=False
    )
    state = PartitionState(
        topic="t",
        topic_id=UUID(int=1),
        partition=0,
        cache=cache_after(made.records),
        log=log,
        retention=settings,
    )
    larger = replace(log, segments=[LocalSegment(20, 1000), LocalSegment(30, 600)])
    disabled = replace(settings, is_copy_disabled=True)
    for one, said in (
        (settings, "raise retention.bytes of the topic from 3500 to 5100, and put it back then;"),
        (
            disabled,
            "to 5100 (and local.retention.bytes, if that is set, to the same at once), and put it back when",
        ),
    ):
        states = [replace(state, partition=1, log=larger, retention=one), replace(state, retention=one)]
        partitions = tuple(retained(each, now_ms=10**6) for each in states)
        report = RetentionReport(now_ms=10**6, duration_ms=0, partitions=partitions)
        lines = report.to_text(-1).splitlines()
        assert len(lines) == 2
        assert all(line.startswith("LOSS t-") and said in line for line in lines)
    most = replace(state, retention=replace(settings, retention_bytes=LONG_MAX))
    assert retained(most, now_ms=0).safe_retention_bytes == LONG_MAX


def a_partition(rng: random.Random):
    """A drawn log with copies in every state, local segments and retention, as a question to Kafka."""
    made = orderly_log(rng, steps=rng.randrange(2, 14))
    states = {one.segment_id: one for one in made.announced()}
    for number, record in enumerate(made.records):
        if isinstance(record, RemoteSegment):
            made.records[number] = replace(
                record,
                size_bytes=rng.choice([0, 1, 100, rng.randrange(5000)]),
                max_timestamp_ms=rng.choice([-1, rng.randrange(2000), record.max_timestamp_ms]),
            )
    for one in rng.sample(sorted(states.values(), key=lambda one: one.event_timestamp_ms), len(states) // 4):
        made.update(one, DELETING)
        if rng.random() < 0.5:
            made.update(one, DELETED)
    if rng.random() < 0.2:
        made.change_leader(lost=rng.choice([0, 30]))
    start = rng.choice([0, 0, rng.randrange(made.end + 1)])
    epochs = list(made.epochs)
    if rng.random() < 0.7:  # a broker forgets the epochs before the log start
        later = [one for one in epochs if one.start_offset > start]
        before = [one for one in epochs if one.start_offset <= start]
        epochs = [LeaderEpochEntry(before[-1].epoch, start), *later] if before else later
    bases = sorted({rng.randrange(made.end + 1) for _ in range(rng.randrange(1, 8))})
    log = TieredLog(
        segments=[LocalSegment(base, rng.randrange(3000)) for base in bases],
        epochs=epochs,
        log_start_offset=start,
        log_end_offset=made.end,
    )
    held = held_size(cache_after(made.records))
    retention = Retention(
        rng.choice([-1, -1, 0, rng.randrange(3000)]), rng.choice([-1, 0, rng.randrange(held + 5000)])
    )
    return made, log, retention, rng.choice([0, 1500, 3000]), rng.random() < 0.5


def ask(folder, made, log, retention, now_ms, knows):
    return {
        "op": "expire",
        "folder": str(folder),
        "values": [encode_remote_log_metadata(one).hex() for one in made.records],
        "epochs": [list(one) for one in log.epochs],
        "segments": [list(one) for one in log.segments],
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "retention_ms": retention.time_ms,
        "retention_bytes": retention.size_bytes,
        "now_ms": now_ms,
        "knows_what_is_copied": knows,
    }


@pytest.mark.java
def test_kafka_deletes_the_same_in_the_same_order(tmp_path):
    partitions = [drawn for seed in range(600) if (drawn := a_partition(random.Random(seed)))[0].records]
    answers = ask_kafka(ask(tmp_path, *drawn) for drawn in partitions)
    seen = set()
    for number, ((made, log, retention, now_ms, knows), answer) in enumerate(
        zip(partitions, answers, strict=True)
    ):
        assert "error" not in answer, (number, answer)
        cache = cache_after(made.records)
        assert log.highest_copied_offset(cache) == answer["highest_copied"], number
        expiry = expire(cache, log, retention, now_ms=now_ms, knows_what_is_copied=knows)
        ours = [str(one.segment.segment_id) for one in expiry.deletions]
        theirs = list(dict.fromkeys(_plain(one) for one in answer["deleted"]))
        assert ours == theirs, number
        assert expiry.log_start_offset == answer["log_start_offset"], number
        seen |= {one.reason for one in expiry.deletions}
    assert seen == set(DeletionReason)


@pytest.mark.java
def test_kafka_adds_up_the_same_sizes():
    logs = [orderly_log(random.Random(seed)) for seed in range(40)]
    asked = [
        (cache_after(log.records), epoch, [encode_remote_log_metadata(one).hex() for one in log.records])
        for log in logs
        if log.records
        for epoch in (0, 1, 2, 3)
    ]
    answers = ask_kafka({"op": "size", "values": values, "epoch": epoch} for _, epoch, values in asked)
    assert [remote_log_size(cache, epoch) for cache, epoch, _ in asked] == [one["bytes"] for one in answers]
    assert any(one["bytes"] for one in answers)


@given(st.integers(0, 2**32))
def test_sizes_by_a_slow_count(seed):
    made, log, _, _, _ = a_partition(random.Random(seed))
    cache = cache_after(made.records)
    for epoch in cache.leader_epochs:
        slow = sum(
            one.size_bytes
            for one in cache.segments.values()
            if one in cache.listed(epoch) and epoch in dict(one.leader_epochs)
        )
        assert remote_log_size(cache, epoch) == slow
    assert 0 <= lineage_size(cache, log.epochs, log.log_end_offset) <= held_size(cache)


def _plain(kafka_uuid: str) -> str:
    from segfmt.kafka_uuid import read_uuid

    return str(read_uuid(kafka_uuid))
