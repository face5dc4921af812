import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.archive.remote.lineage import (
    OffsetRange,
    cut_epochs,
    derive_epochs,
    epoch_for_offset,
    filter_epochs,
    is_within_leader_epochs,
    trace_lineage,
)
from recovery.archive.remote.remote_cache import RemoteLogCache, end_in_epoch
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.remote_log_metadata import RemoteSegmentState, encode_remote_log_metadata
from tests.brokers.remote_log_oracle import ask_kafka
from tests.logs.remote_logs import SimulatedLog, orderly_log

FINISHED = RemoteSegmentState.COPY_SEGMENT_FINISHED


def entries(*pairs):
    return [LeaderEpochEntry(*pair) for pair in pairs]


def cache_after(log):
    cache = RemoteLogCache()
    for record in log.records:
        cache.apply(record)
    return cache


def lineage_of(log, **options):
    return trace_lineage(cache_after(log), log.epochs, **options)


def ids(segments):
    return [one.segment_id for one in segments]


def a_log(*pairs, end=1000):
    return SimulatedLog(rng=random.Random(5), epochs=entries(*(pairs or [(0, 0)])), end=end)


# -- examples --------------------------------------------------------------------------


def test_a_chain_without_a_fault():
    log = a_log((0, 0), (2, 15))
    segments = [log.copy(0, 9), log.copy(10, 19), log.copy(20, 29)]
    lineage = lineage_of(log)
    assert ids(lineage.segments) == ids(segments)
    assert lineage.end_offset == 29
    assert not any((lineage.gaps, lineage.overlaps, lineage.below, lineage.outside, lineage.superseded))


def test_a_missing_segment_is_a_gap_and_the_end_is_none():
    log = a_log((0, 0), (2, 15))
    log.copy(0, 9)
    log.copy(20, 29)
    assert lineage_of(log, log_end_offset=100).gaps == (OffsetRange(start_offset=10, end_offset=19),)


def test_what_is_missing_at_the_log_start_is_a_gap():
    log = a_log()
    log.copy(10, 19)
    assert lineage_of(log).gaps == ()
    assert lineage_of(log, log_start_offset=5).gaps == (OffsetRange(start_offset=5, end_offset=9),)


def test_a_whole_epoch_may_be_missing():
    log = a_log((0, 0), (1, 10), (2, 20))
    log.copy(0, 9)
    log.copy(20, 29)
    assert lineage_of(log).gaps == (OffsetRange(start_offset=10, end_offset=19),)


def test_a_segment_may_begin_with_the_last_offset_of_an_epoch():
    log = a_log((0, 0), (1, 20))
    first, last = log.copy(0, 9), log.copy(19, 19)
    behind = log.copy(20, 29)
    lineage = lineage_of(log)
    assert ids(lineage.segments) == ids([first, last, behind])
    assert lineage.gaps == (OffsetRange(start_offset=10, end_offset=18),)
    assert ids(lineage.behind_gaps) == ids([last])


def test_segments_of_a_log_that_was_cut_off_are_outside():
    log = a_log((0, 0), end=30)
    kept, lost = log.copy(0, 9), log.copy(10, 29)
    log.change_leader(lost=10)
    log.append(20)
    again = log.copy(10, 39)
    lineage = lineage_of(log)
    assert ids(lineage.segments) == ids([kept, again])
    assert ids(lineage.outside) == ids([lost])
    assert not any((lineage.gaps, lineage.superseded))


def test_a_copy_of_the_same_offsets_is_superseded():
    log = a_log(end=40)
    first = log.copy(0, 9)
    log.change_leader()
    again, more = log.copy(0, 19), log.copy(20, 39)
    lineage = lineage_of(log)
    assert ids(lineage.segments) == ids([again, more])
    assert ids(lineage.superseded) == ids([first])


def test_copies_that_overlap_are_both_read():
    log = a_log(end=40)
    first = log.copy(0, 19)
    log.copy(30, 35)
    second = log.copy(10, 29)
    lineage = lineage_of(log)
    assert ids(lineage.segments)[:2] == ids([first, second])
    assert lineage.overlaps == (OffsetRange(start_offset=10, end_offset=19),)


def test_what_ends_below_the_log_start_waits_for_its_deletion():
    log = a_log()
    first, second = log.copy(0, 9), log.copy(10, 19)
    lineage = lineage_of(log, log_start_offset=15)
    assert ids(lineage.segments) == ids([second])
    assert ids(lineage.below) == ids([first])
    assert lineage.gaps == ()


def test_nothing_is_read_of_what_was_only_begun():
    log = a_log()
    log.copy(0, 9, finish=False)
    lineage = lineage_of(log)
    assert lineage.segments == ()
    assert lineage.end_offset is None


def test_epochs_that_contradict_each_other_end_nothing_in_a_loop():
    log = a_log((0, 0), (2, 15))
    segments = [log.copy(0, 9), log.copy(10, 19)]
    log.epochs = entries((3, 5), (0, 10), (2, 2), (2, 7), (1, 0))
    lineage = lineage_of(log)
    known = set(ids(segments))
    assert set(ids([*lineage.segments, *lineage.outside, *lineage.superseded, *lineage.below])) == known


def test_epochs_as_segments_tell_them():
    log = a_log((0, 0), end=30)
    log.copy(0, 29)
    log.change_leader(lost=10)
    log.append(30)
    log.change_leader()
    log.append(10)
    log.copy(10, 59)
    assert derive_epochs(cache_after(log).segments.values()) == log.epochs


def test_an_epoch_between_two_that_follow_each_other_was_cut_off():
    log = a_log((0, 0), (1, 30))
    log.copy(0, 39)
    log.epochs = entries((0, 0), (2, 35))
    log.copy(20, 49)
    assert derive_epochs(cache_after(log).segments.values()) == entries((0, 0), (2, 35))


def test_epochs_without_records_are_left_out():
    assert filter_epochs(entries((0, 0), (1, 5), (2, 5), (3, 9))) == entries((0, 0), (2, 5), (3, 9))
    assert cut_epochs(entries((0, 0), (1, 50), (2, 20), (3, 20), (4, 90))) == entries(
        (0, 0), (3, 20), (4, 90)
    )
    assert epoch_for_offset(entries((0, 5), (3, 9)), 4) is None
    assert epoch_for_offset(entries((0, 5), (3, 9)), 9) == 1


def test_without_epochs_nothing_is_within():
    assert not is_within_leader_epochs(a_log().copy(0, 9), 100, [])


# -- properties ------------------------------------------------------------------------


@given(st.integers(0, 2**40))
@settings(max_examples=300)
def test_every_copied_offset_of_the_log_is_read_and_none_is_lost(seed):
    """Against a model that goes offset by offset; each finished segment is in one list."""
    log = orderly_log(random.Random(seed))
    cache = cache_after(log)
    lineage = lineage_of(log, log_start_offset=log.start, log_end_offset=log.end)
    read = read_by_offset(cache, cut_epochs(log.epochs), range(log.start, log.end + 100))
    last = max((offset for offset, segment in read.items() if segment is not None), default=-1)
    missing = [offset for offset in range(log.start, last) if read[offset] is None]
    assert missing == [
        offset for gap in lineage.gaps for offset in range(gap.start_offset, gap.end_offset + 1)
    ]
    assert list(ids(lineage.segments)) == list(
        dict.fromkeys(one.segment_id for one in read.values() if one is not None)
    )
    lists = [lineage.segments, lineage.below, lineage.outside, lineage.superseded]
    finished = [one for one in cache.segments.values() if one.state is FINISHED]
    assert sorted(one for each in lists for one in ids(each)) == sorted(ids(finished))


def read_by_offset(cache, epochs, offsets):
    """The segment that each offset is read from: the one before, as long as it has the offset in the same epoch."""
    read, segment, before = {}, None, None
    for offset in offsets:
        place = epoch_for_offset(epochs, offset)
        epoch = None if place is None else epochs[place].epoch
        if segment is None or epoch != before or offset > end_in_epoch(segment, epoch):
            segment = None if epoch is None else cache.find(epoch, offset)
        read[offset], before = segment, epoch
    return read


@given(st.integers(0, 2**40))
@settings(max_examples=200)
def test_no_order_of_epochs_stops_the_trace(seed):
    rng = random.Random(seed)
    log = orderly_log(rng, steps=6)
    for _ in range(rng.randrange(4)):
        place = rng.randrange(len(log.epochs) + 1)
        log.epochs.insert(place, LeaderEpochEntry(rng.randrange(-1, 9), rng.randrange(-5, 90)))
    lineage = lineage_of(log, log_start_offset=rng.choice([None, 0, 17]))
    assert all(one.start_offset <= one.end_offset for one in (*lineage.gaps, *lineage.overlaps))


# -- Kafka -----------------------------------------------------------------------------


@pytest.mark.java
def test_within_is_what_kafka_says():
    rng = random.Random(31)
    questions = []
    for _ in range(1500):
        log = orderly_log(rng, steps=rng.randrange(3, 14))
        for segment in rng.sample(log.announced(), min(3, len(log.announced()))):
            epochs = [one for one in log.epochs if rng.random() < 0.95] or log.epochs[:1]
            epochs = [
                LeaderEpochEntry(epoch, max(0, start + rng.choice([0] * 12 + [-1, 1])))
                for epoch, start in epochs
            ]
            questions.append((segment, log.end + rng.choice([0, 0, -5, 5]), epochs))
    answers = ask_kafka(
        {
            "op": "within",
            "segment": encode_remote_log_metadata(segment).hex(),
            "log_end_offset": end,
            "epochs": [list(entry) for entry in epochs],
        }
        for segment, end, epochs in questions
    )
    for (segment, end, epochs), told in zip(questions, answers, strict=True):
        found = is_within_leader_epochs(segment, end, filter_epochs(epochs))
        assert told == {"is_within": found}, (segment, end, epochs)
    within = sum(told["is_within"] for told in answers)
    assert len(answers) / 10 < within < len(answers) * 9 / 10
