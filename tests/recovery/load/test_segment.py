"""The map of a log's segments. Kafka: LogSegments."""

from __future__ import annotations

import random

import pytest

from recovery.load.segments import Segment, SegmentMap


def segment(base_offset: int) -> Segment:
    return Segment(base_offset=base_offset, opened_indexes=set())


@pytest.fixture
def segments() -> SegmentMap:
    made = SegmentMap()
    for base in (20, 0, 10):
        made.add(segment(base))
    return made


def bases(found: list[Segment]) -> list[int]:
    return [one.base_offset for one in found]


def test_they_are_in_order_whatever_the_order_of_adding(segments: SegmentMap) -> None:
    assert segments.base_offsets == [0, 10, 20]
    assert (segments.first.base_offset, segments.last.base_offset, len(segments)) == (0, 20, 3)


def test_the_same_base_offset_replaces(segments: SegmentMap) -> None:
    other = segment(10)
    segments.add(other)
    assert len(segments) == 3
    assert segments.floor(15) is other


@pytest.mark.parametrize(
    ("offset", "base"), [(-1, None), (0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (2**62, 20)]
)
def test_floor(segments: SegmentMap, offset: int, base: int | None) -> None:
    found = segments.floor(offset)
    assert (None if found is None else found.base_offset) == base


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 2**63 - 1, [0, 10, 20]),
        (5, 2**63 - 1, [0, 10, 20]),
        (10, 20, [10]),
        (15, 20, [10]),
        (15, 21, [10, 20]),
        (-7, 2**63 - 1, [0, 10, 20]),
        (99, 2**63 - 1, [20]),
        (2**63 - 1, 2**63 - 1, []),
        (5, 5, []),
    ],
)
def test_values_from_the_floor_of_the_start(
    segments: SegmentMap, start: int, end: int, expected: list[int]
) -> None:
    assert bases(segments.values(start, end)) == expected


def test_all_values(segments: SegmentMap) -> None:
    assert bases(segments.values()) == [0, 10, 20]


def test_a_removed_one_is_gone(segments: SegmentMap) -> None:
    segments.remove(segments.first)
    assert segments.base_offsets == [10, 20]
    assert segments.floor(5) is None


def test_a_list_of_bases_is_a_copy(segments: SegmentMap) -> None:
    segments.base_offsets.clear()
    assert len(segments) == 3


def test_against_a_plain_list() -> None:
    rng = random.Random(2)
    made, known = SegmentMap(), set()
    for _ in range(500):
        base = rng.randrange(100)
        if base in known and rng.random() < 0.6:
            made.remove(made.floor(base))
            known.discard(base)
        else:
            made.add(segment(base))
            known.add(base)
        assert made.base_offsets == sorted(known)
        start, end = sorted(rng.sample(range(110), 2))
        floor = max((one for one in known if one <= start), default=-1)
        assert bases(made.values(start, end)) == [one for one in sorted(known) if floor <= one < end]


def test_names_have_twenty_digits() -> None:
    one = segment(7)
    assert (one.log, one.offset_index, one.time_index, one.txn_index) == (
        "00000000000000000007.log",
        "00000000000000000007.index",
        "00000000000000000007.timeindex",
        "00000000000000000007.txnindex",
    )
