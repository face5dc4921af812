"""Objects put together to segments, in columns: the same as one by one, whatever the names are."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.archive.check.scanned import ScanOptions
from recovery.archive.layouts.aiven_layout import AivenLayout
from recovery.archive.layouts.layout import Layout, part_kind
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.layouts.tiered_layout import LocalTieredLayout
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable, SegmentTable, parts_in
from recovery.check.facts import PartitionFacts
from segfmt.filenames import log_name, read_offset, snapshot_name
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_names import read_aiven_file, read_local_tiered_file
from tests.logs.remote_logs import SimulatedLog

FACTS = PartitionFacts(
    path="a/orders-0",
    folder="orders-0",
    topic="orders",
    partition=0,
    is_live=False,
    had_clean_shutdown=False,
    recovery_point=None,
    log_start_offset=None,
    high_watermark=None,
    is_contiguous=True,
)
WHERE = PartitionPrefix(prefix="a/orders-0/", topic="orders", partition=0)
KINDS = {
    ".log": PartKind.LOG,
    ".index": PartKind.OFFSET_INDEX,
    ".timeindex": PartKind.TIME_INDEX,
    ".txnindex": PartKind.TXN_INDEX,
    ".snapshot": PartKind.SNAPSHOT,
    ".leader_epoch_checkpoint": PartKind.LEADER_EPOCHS,
    ".indexes": PartKind.INDEXES,
    ".rsm-manifest": PartKind.MANIFEST,
}
OFFSETS = (0, 7, 8, 9, 500, 2**63 - 1, 2**63, -1, -8)
IDS = ("azWoOhPLTY2ie0GUqzeQ_A", "9HqOfWiVQFGS77rn8k-ghw", "azWoOhPLTY2ie0GUqzeQ_B", "azWoOhPLTY2ie0GUqzeQ_")
SUFFIXES = (*KINDS, ".log.swap", ".deleted", "", ".log\n")
REMOTE_NAMES = st.sampled_from(
    [f"{offset:020d}-{one}{suffix}" for offset in OFFSETS for one in IDS for suffix in SUFFIXES]
)
PLAIN_NAMES = st.one_of(
    st.sampled_from([f"{offset:020d}{suffix}" for offset in OFFSETS for suffix in (".log", ".snapshot")]),
    st.sampled_from(
        [f"{offset:0{width}d}{suffix}" for offset in OFFSETS for width in (19, 20, 21) for suffix in SUFFIXES]
    ),
)
FOREIGN = st.sampled_from(
    ["leader-epoch-checkpoint", "partition.metadata", ".log", "x.log", "+0000000000000000001.log"]
)


def table_of(names: Iterable[str]) -> ObjectTable:
    rows = [(name, 10 + place, f"v{place}") for place, name in enumerate(sorted(names))]
    return ObjectTable.of_rows(WHERE.prefix, rows)


def remote_segments(objects: ObjectTable, layout: Layout) -> tuple[list[ArchivedSegment], list[str]]:
    """Group objects one by one, by the value that each name is."""
    read = read_aiven_file if layout.name == "aiven" else read_local_tiered_file
    parts: dict[tuple[int, str], dict[PartKind, StoredObject]] = {}
    others = []
    for one in objects:
        found = read(one.name)
        if found is None:
            others.append(one.name)
            continue
        segment = found.start_offset, format_uuid(found.segment_id)
        parts.setdefault(segment, {})[KINDS[found.suffix]] = one
    segments = [
        ArchivedSegment(base_offset=base, segment_id=segment_id, parts=found)
        for (base, segment_id), found in sorted(parts.items(), key=lambda item: item[0])
    ]
    return segments, others


def plain_segments(objects: ObjectTable) -> tuple[list[ArchivedSegment], list[str]]:
    """Group the files of a folder one by one, by the names that Kafka would give them."""
    by_name = {one.name: one for one in objects}
    offsets = {offset for name in by_name if "." in name and (offset := offset_of(name)) is not None}
    bases = sorted(offset for offset in offsets if log_name(offset) in by_name)
    snapshots = {
        offset: by_name[snapshot_name(offset)] for offset in offsets if snapshot_name(offset) in by_name
    }
    segments = []
    for place, base in enumerate(bases):
        following = bases[place + 1] if place + 1 < len(bases) else None
        names = {kind: log_name(base).removesuffix(".log") + suffix for suffix, kind in KINDS.items()}
        parts = {
            kind: by_name[name]
            for kind, name in names.items()
            if name in by_name and part_kind(name) is kind and kind is not PartKind.SNAPSHOT
        }
        own = [
            offset
            for offset in sorted(snapshots)
            if (not place or offset > base) and (following is None or offset <= following)
        ]
        end = following if following is not None else max((one for one in own if one > base), default=None)
        if end in own:
            parts[PartKind.SNAPSHOT] = snapshots[end]
        segments.append(
            ArchivedSegment(
                base_offset=base,
                parts=parts,
                next_base_offset=following,
                snapshots={offset: snapshots[offset] for offset in own if offset != end},
            )
        )
    used = {part.key for one in segments for part in (*one.parts.values(), *one.snapshots.values())}
    return segments, [one.name for one in objects if one.key not in used]


def offset_of(name: str) -> int | None:
    try:
        offset = read_offset(name)
    except ValueError:
        return None
    return offset if name.partition(".")[0] == log_name(offset).removesuffix(".log") else None


@given(st.sets(st.one_of(REMOTE_NAMES, FOREIGN), max_size=40), st.sampled_from(["local-tiered", "aiven"]))
def test_remote_segments_are_those_that_the_names_spell(names: set[str], name: str) -> None:
    layout: Layout = AivenLayout() if name == "aiven" else LocalTieredLayout()
    objects = table_of(names)
    found = layout.partition(WHERE, objects)
    assert (list(found.segments), [one.name for one in found.others]) == remote_segments(objects, layout)


@given(st.sets(st.one_of(PLAIN_NAMES, FOREIGN), max_size=40))
def test_plain_segments_are_those_that_the_names_spell(names: set[str]) -> None:
    objects = table_of(names)
    found = PlainLayout().partition(WHERE, objects)
    assert (list(found.segments), [one.name for one in found.others]) == plain_segments(objects)


NAMES = [f"{offset:020d}{suffix}" for offset in (0, 7, 8, 500) for suffix in (".index", ".log", ".snapshot")]


@pytest.fixture
def partition() -> ArchivedPartition:
    return PlainLayout().partition(WHERE, table_of([*NAMES, f"{3:020d}.snapshot", "partition.metadata"]))


def test_neighbours_and_others_are_the_segments_that_they_were(partition: ArchivedPartition) -> None:
    segments = list(partition.segments)
    for start in range(5):
        for end in range(start, 5):
            assert list(partition.segments[start:end]) == segments[start:end]
            assert pickle.loads(pickle.dumps(partition.segments[start:end])) == partition.segments[start:end]
    assert list(partition.segments.take([3, 1])) == [segments[3], segments[1]]
    assert list(partition.segments[::-1]) == segments[::-1]
    assert partition.segments[-1] == segments[-1]
    with pytest.raises(IndexError):
        partition.segments[4]
    assert list(SegmentTable.of(WHERE.prefix, segments)) == segments
    assert pickle.loads(pickle.dumps(partition)) == partition


def test_a_file_beside_the_segments_keeps_its_name(partition: ArchivedPartition) -> None:
    swap = StoredObject(key=f"{WHERE.prefix}{7:020d}.log.swap", size_bytes=3)
    other = ArchivedSegment(base_offset=7, other_file=swap.name, parts={PartKind.LOG: swap})
    both = [*partition.segments, other]
    table = SegmentTable.of(WHERE.prefix, both)
    assert list(table) == both
    assert list(table[3:]) == both[3:]
    assert list(table.take([4, 0])) == [other, both[0]]
    assert list(table.only([PartKind.LOG]))[4] == other


def test_only_some_parts_are_these_parts(partition: ArchivedPartition) -> None:
    kinds = {PartKind.LOG, PartKind.TXN_INDEX}
    assert list(partition.segments.only(kinds).without_versions()) == [
        replace(
            one,
            parts={kind: replace(part, version="") for kind, part in one.parts.items() if kind in kinds},
            snapshots={},
        )
        for one in partition.segments
    ]
    assert [one.parts for one in partition.segments.only([])] == [{}] * 4


def test_what_is_planned_of_some_segments_is_what_was_planned(partition: ArchivedPartition) -> None:
    planned = choose_segments(partition, PlainLayout())
    every = list(planned)
    assert [one.is_last for one in every] == [False, False, False, True]
    assert [one.end_offset for one in every] == [7, 8, 500, None]
    for start in range(5):
        for end in range(start, 5):
            assert list(planned[start:end]) == every[start:end]
    assert list(planned.take([0, 3])) == [every[0], every[3]]
    assert planned[-1] == every[-1]


def test_columns_are_those_of_the_segments(partition: ArchivedPartition) -> None:
    segments = list(partition.segments)
    assert partition.segments.part_bytes(PartKind.LOG) == [one.log_bytes for one in segments]
    assert partition.segments.size_bytes() == [one.size_bytes for one in segments]
    assert [parts_in(shape) for shape in partition.segments.shapes()] == [
        frozenset(one.parts) for one in segments
    ]
    assert sorted(one.key for one in partition.objects) == [
        f"{WHERE.prefix}{name}" for name in sorted(table_names())
    ]


def table_names() -> list[str]:
    return [*NAMES, f"{3:020d}.snapshot", "partition.metadata"]


def test_a_segment_has_another_digest_with_anything_that_its_record_depends_on(
    partition: ArchivedPartition,
) -> None:
    options = ScanOptions(url="x", layout="plain")
    table = partition.segments
    first, other = table[1], table[2]
    log = first.parts[PartKind.LOG]
    changed = [
        replace(first, base_offset=6),
        replace(first, segment_id="x"),
        replace(first, next_base_offset=None),
        *(
            replace(first, parts={**first.parts, PartKind.LOG: one})
            for one in (
                replace(log, key=f"{WHERE.prefix}x"),
                replace(log, size_bytes=0),
                replace(log, version=""),
            )
        ),
        replace(first, parts={PartKind.LOG: log}),
        replace(
            first, parts={PartKind.TXN_INDEX if k is PartKind.LOG else k: v for k, v in first.parts.items()}
        ),
        replace(first, snapshots={3: table[0].snapshots[3]}),
        other,
    ]
    tables = [table[1:2], *(SegmentTable.of(WHERE.prefix, [one]) for one in changed)]
    tables.append(replace(table[1:2], objects=replace(table[1:2].objects, prefix="b/orders-0/")))
    digests = [options.digests(one, FACTS, remote={}) for one in tables]
    others = (replace(options, is_deep=True), replace(options, layout="y"))
    digests += [one.digests(table[1:2], FACTS, remote={}) for one in others]
    named = SegmentTable.of(WHERE.prefix, [replace(first, segment_id="x")])
    log = SimulatedLog(rng=random.Random(1), end=10)
    for remote in (log.copy(0, 3), log.copy(0, 4)):
        digests.append(options.digests(named, FACTS, remote={"x": remote}))
    assert len(set(digests)) == len(digests)
    assert b"".join(options.digests(table[n : n + 1], FACTS, remote={}) for n in range(4)) == options.digests(
        table, FACTS, remote={}
    )


def test_a_segment_has_another_digest_when_it_is_judged_otherwise(partition: ArchivedPartition) -> None:
    """Its objects are the same, and the checkpoints of the log dir have moved."""
    options = ScanOptions(url="x", layout="plain")
    segments = partition.segments
    closed, last = segments[1:2], segments[len(segments) - 1 :]
    base = closed.base_offsets[0]

    def digest(table: SegmentTable, unflushed_from: int, **changes: Any) -> bytes:
        facts = replace(FACTS, **changes)
        return options.digests(table, facts, remote={}, unflushed_from=unflushed_from)

    different = [
        digest(closed, base),
        digest(closed, base + 1),
        digest(closed, base + 1, log_start_offset=base + 1),
        digest(closed, base + 1, expiration_ms=1),
        digest(closed, base + 1, is_preallocated=True),
    ]
    assert len(set(different)) == len(different)
    beyond = last.base_offsets[0] + 1
    assert digest(last, beyond) != digest(last, beyond, had_clean_shutdown=True)
    # What lies behind it does not count, nor does what is known of the log's end.
    same = digest(closed, base + 1)
    assert same == digest(closed, beyond, log_start_offset=base, had_clean_shutdown=True, high_watermark=9)
