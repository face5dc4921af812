"""Offset indexes against `index.interval.bytes`, which may have been another one when the segment was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.check.rebuild import indexes_of
from recovery.archive.stores.archived import PartKind
from recovery.check.finding import Finding
from recovery.read.opened_log import OpenedFile
from tests.logs.archives import INDEX, LOG, WrittenArchive, made_copies, write_archive
from tests.runs.goings import gone_through

INTERVAL_BYTES = 1700


@pytest.fixture
def archive(tmp_path: Path) -> WrittenArchive:
    """Six segments of 1.6 to 3 KB with an entry for every 1,700 bytes: two neighbours have none."""
    archive = write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=6))
    for copy in archive.copies:
        made = indexes_of(
            OpenedFile(str(archive.place(copy, LOG))),
            base_offset=copy.remote.start_offset,
            index_interval_bytes=INTERVAL_BYTES,
            segment_index_bytes=10 << 20,
        )
        archive.place(copy, INDEX).write_bytes(made[PartKind.OFFSET_INDEX])
    sizes = [archive.place(copy, INDEX).stat().st_size for copy in archive.copies]
    assert sizes[-2:] == [0, 0]
    assert sizes[-3]
    return archive


def sparse(archive: WrittenArchive, interval_bytes: int) -> list[Finding]:
    configs = {"made": {"index.interval.bytes": str(interval_bytes)}}
    judged = [
        one.verdict
        for verdict in gone_through(archive.root, topic_configs=configs)
        for one in verdict.objects
    ]
    found = [finding for verdict in judged for finding in verdict.findings]
    assert {finding.rule for finding in found} <= {"index-sparse"}
    return found


def test_a_smaller_interval_than_that_of_the_time_is_no_damage(archive: WrittenArchive) -> None:
    found = sparse(archive, 100)
    assert {finding.severity for finding in found} == {"note"}
    assert "index.interval.bytes was another one" in found[0].detail
    assert sparse(archive, INTERVAL_BYTES) == []


def test_a_topic_whose_segments_are_all_smaller_than_the_interval_of_the_time(
    archive: WrittenArchive,
) -> None:
    for copy in archive.copies:
        archive.place(copy, INDEX).write_bytes(b"")
    found = sparse(archive, 100)
    assert [finding.severity for finding in found] == ["note"] * 6
    assert "index.interval.bytes was probably another one" in found[0].detail


@pytest.mark.parametrize("interval_bytes", [100, INTERVAL_BYTES])
def test_an_index_that_was_emptied_is_damage_where_its_neighbours_are_denser(
    archive: WrittenArchive, interval_bytes: int
) -> None:
    archive.place(archive.copies[0], INDEX).write_bytes(b"")
    bad = [finding for finding in sparse(archive, interval_bytes) if finding.severity == "damage"]
    assert len(bad) == 1
