"""What was surveyed, spooled and packed: each segment in one task, in order, and none lost."""

from __future__ import annotations

import random

import pytest

from recovery.archive.check import packing
from recovery.archive.check.packing import SEGMENT_BYTES, PackedTask, pack
from recovery.archive.check.scanned import DIGEST_BYTES, PartitionHead, PartitionWork
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.check.survey_spool import SurveySpool, head_of
from recovery.archive.remote.log_dir_copy import LogDirCopy
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable
from recovery.load.model import LogSettings

SIZES = {"a/": [100, 0, 5 << 20, 7], "b/": [], "c/": [1 << 20] * 30, "d/": [3], "e/": []}


def surveyed(prefix: str, sizes: list[int]) -> SurveyedPartition:
    where = PartitionPrefix(prefix=prefix, topic=prefix[0], partition=0)
    facts = LogDirCopy().facts(where, is_deep=False, is_tiered=True, now_ms=0)
    segments = SegmentTable.of(
        prefix,
        [
            ArchivedSegment(
                base_offset=place,
                segment_id=f"id{place}",
                parts={PartKind.LOG: StoredObject(key=f"{prefix}{place}.log", size_bytes=size)},
            )
            for place, size in enumerate(sizes)
        ],
    )
    digests = b"".join(f"{prefix}{place}".encode().ljust(DIGEST_BYTES) for place in range(len(sizes)))
    works = PartitionWork(prefix=prefix, facts=facts, segments=segments, digests=digests)
    head = PartitionHead(
        archived=ArchivedPartition(where=where), facts=facts, settings=LogSettings(), digests=digests
    )
    return SurveyedPartition(head=head, works=works)


def packed(task_bytes: int) -> list[PackedTask]:
    with SurveySpool() as spool:
        for prefix, sizes in SIZES.items():
            spool.add(surveyed(prefix, sizes))
        assert spool.partition_count == len(SIZES)
        assert spool.segment_count == sum(map(len, SIZES.values()))
        assert spool.log_bytes == sum(map(sum, SIZES.values()))
        return list(pack(spool, task_bytes=task_bytes))


@pytest.mark.parametrize("task_bytes", [1, 300_000, 2 << 20, 10 << 20, 1 << 40])
def test_each_segment_is_in_one_task_and_each_partition_begins_and_ends_once(task_bytes: int) -> None:
    tasks = packed(task_bytes)
    works = [(one.prefix, work) for task in tasks for one in task.works for work in one]
    assert [(prefix, work.segment.log_bytes) for prefix, work in works] == [
        (prefix, size) for prefix, sizes in SIZES.items() for size in sizes
    ]
    for prefix, work in works:
        assert work.digest == f"{prefix}{work.segment.base_offset}".encode().ljust(DIGEST_BYTES)
        assert work.segment.parts[PartKind.LOG].key == f"{prefix}{work.segment.base_offset}.log"
        assert work.task.log == f"{work.segment.base_offset:020d}.log"
    begun = [one for task in tasks for one in task.begun]
    assert begun == [(prefix, len(sizes), sum(sizes)) for prefix, sizes in SIZES.items()]
    assert [prefix for task in tasks for prefix in task.ended] == list(SIZES)
    assert [head_of(head).where.prefix for task in tasks for head in task.heads] == list(SIZES)
    for task in tasks:
        sizes = [work.segment.log_bytes for one in task.works for work in one]
        assert (task.segment_count, task.log_bytes) == (len(sizes), sum(sizes))
        assert sum(sizes[:-1]) + SEGMENT_BYTES * len(sizes[:-1]) < task_bytes


def test_a_partition_ends_with_its_last_segment_and_not_before() -> None:
    tasks = packed(2 << 20)
    (first, last) = (
        [place for place, task in enumerate(tasks) if any(one.prefix == "c/" for one in task.works)][at]
        for at in (0, -1)
    )
    assert last > first + 3
    assert [place for place, task in enumerate(tasks) if "c/" in task.ended] == [last]
    assert [place for place, task in enumerate(tasks) if "c/" in [one[0] for one in task.begun]] == [first]


def test_small_segments_do_not_make_endless_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_SEGMENTS", 7)
    assert max(task.segment_count for task in packed(1 << 40)) == 7


def test_works_of_some_segments_are_theirs() -> None:
    works = surveyed("c/", [random.Random(1).randrange(100) for _ in range(9)]).works
    every = list(works)
    assert list(works.between(2, 6)) == every[2:6]
    assert list(works.take([0, 3, 8])) == [every[0], every[3], every[8]]
    assert len(works.take([])) == 0
