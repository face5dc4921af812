"""Rows after unclean elections: of one history, or the query fails. Which one, only the metadata topic tells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.kafka_uuid import format_uuid
from tests.logs.archives import EPOCHS, LOG, SegmentCopy, metadata_records, write_archive
from tests.logs.elections import reigns
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

SEEDS = {0: True, 3: True, 5: False}
"""Seeds of elections, and whether there are unclean ones among them whose histories are mixed by names."""


def changes_history(copies: Sequence[SegmentCopy]) -> bool:
    """Whether a segment, as names alone choose them, goes on after another history."""
    largest = {one.remote.start_offset: one for one in sorted(copies, key=lambda one: len(one.files[LOG]))}
    chosen = [largest[base] for base in sorted(largest)]
    for before, after in pairwise(chosen):
        offset = after.remote.start_offset - 1
        epochs = [
            next(line.epoch for line in reversed(lines) if line.start_offset <= offset)
            for lines in (read_leader_epoch_checkpoint(one.files[EPOCHS]) for one in (before, after))
        ]
        if before.remote.end_offset >= offset and epochs[0] != epochs[1]:
            return True
    return False


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_of_one_history_or_the_query_fails(tmp_path: Path, layout: str, seed: int) -> None:
    copies = [copy for reign in reigns(seed) for copy in reign.copies]
    outcomes = set()
    for number in range(len(copies)):
        left = [*copies[:number], *copies[number + 1 :]]
        archive = write_archive(tmp_path / f"archive {number}", layout, left)
        for task_segments in (1, 500):
            selection = Selection(task_segments=task_segments)
            left_out: list[LeftOut] = []
            read(
                archive.root,
                "offset",
                options=ReadOptions(corrupt=Corrupt.SKIP),
                selection=selection,
                left_out=left_out,
            )
            is_mixed = any(one.rule == "leader-epoch" for one in left_out)
            assert is_mixed == changes_history(left)
            outcomes.add(is_mixed)
            if is_mixed:
                with pytest.raises(DamagedSegmentError):
                    read(archive.root, "offset", selection=selection)
    assert (True in outcomes) == SEEDS[seed]


def test_the_error_names_the_segment_and_what_decides(tmp_path: Path) -> None:
    """What is not requested is not judged."""
    made = reigns(1)
    copies = [copy for reign in made for copy in reign.copies]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    after, last = made[-1].copies[1:3]
    expected = (
        f"{after.stem}.log: .*leader-epoch: offset 19 is of leader epoch 4 .*`metadata` tells the right one"
    )
    with pytest.raises(DamagedSegmentError, match=expected):
        read(archive.root, "offset")
    rows = read(archive.root, "offset", options=ReadOptions(lowest_offset=last.remote.start_offset))
    assert [row["offset"] for row in rows] == [
        *range(last.remote.start_offset, copies[-1].remote.end_offset + 1)
    ]


@pytest.mark.parametrize("seed", [1, 3, 21, 23, 24])
def test_with_the_metadata_topic_rows_are_those_of_the_last_leader(tmp_path: Path, seed: int) -> None:
    """Also where a segment that was cut off begins after one of the last leader, or ends after it."""
    made = reigns(seed)
    copies = [copy for reign in made for copy in reign.copies]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    write_metadata(tmp_path / "metadata", metadata_records(copy.remote for copy in copies))
    log = write_archive(tmp_path / "log", "local-tiered", made[-1].log)
    names = "offset", "value"
    for task_segments in (1, 500):
        selection = Selection(task_segments=task_segments)
        found = read(archive.root, *names, selection=selection, metadata=(tmp_path / "metadata",))
        assert found == read(log.root, *names)


@pytest.mark.parametrize("corrupt", Corrupt)
def test_offsets_that_were_cut_off_are_no_rows_before_their_successors_are_archived(
    tmp_path: Path, corrupt: Corrupt
) -> None:
    """The old leader has archived 0 to 37; the log of the new one goes on at 31."""
    old, new = reigns(23)[:2]
    archive = write_archive(tmp_path / "archive", "local-tiered", old.copies)
    write_metadata(tmp_path / "metadata", metadata_records(copy.remote for copy in old.copies))
    owner = old.copies[0].owner
    folder = tmp_path / "metadata" / f"{owner.topic}-{owner.partition}"
    folder.mkdir()
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 31\n")
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(owner.topic_id)}")
    (folder / f"{new.log[1].remote.start_offset:020d}.log").write_bytes(new.log[1].files[LOG])
    left_out: list[LeftOut] = []

    def rows() -> list[dict[str, Any]]:
        return read(
            archive.root,
            "offset",
            *(["fault"] if corrupt is Corrupt.INCLUDE else []),
            options=ReadOptions(corrupt=corrupt),
            metadata=(tmp_path / "metadata",),
            left_out=left_out,
        )

    if corrupt is Corrupt.FAIL:
        with pytest.raises(
            DamagedSegmentError, match=r"offsets 31 to 37 were cut off when leader epoch 3 began"
        ):
            rows()
    else:
        found = rows()
        assert all(row["offset"] is None or row["offset"] <= 30 for row in found)
        rules = [one.rule for one in left_out] or [row["fault"].partition(":")[0] for row in found]
        assert rules == ["not-compared"]
