"""Leader epochs over the seams: which checkpoint is wrong, what is missing, and what a neighbour rebuilds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.archive.check.epoch_seams import EpochSeams
from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.stores.archived import ArchivedSegment
from recovery.check.rules.batches import EpochRun
from recovery.check.rules.epochs import EpochDifference, epochs_between, first_difference
from recovery.check.task import SegmentResult, SegmentTask
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import (
    EPOCHS,
    LOG,
    SNAPSHOT,
    ForkedCopies,
    WrittenArchive,
    copies_of,
    forked_copies,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import bad_objects, gone_through, objects_of

Lines = Sequence[tuple[int, int]]
SEGMENT_OFFSETS = 100


def entries(*lines: tuple[int, int]) -> list[LeaderEpochEntry]:
    return [LeaderEpochEntry(*line) for line in lines]


def scanned(base: int, runs: Lines, *, broker_id: int | None = 1, is_whole: bool = True) -> ScannedSegment:
    """A segment of SEGMENT_OFFSETS offsets whose batches have the epochs *runs*: (epoch, first offset)."""
    task = SegmentTask(folder="", base_offset=base, log=f"{base:020d}.log", next_base_offset=None)
    result = SegmentResult(task=task, is_whole=is_whole)
    ends = [*(first for _, first in runs[1:]), base + SEGMENT_OFFSETS]
    result.epoch_runs = [
        EpochRun(epoch=epoch, first_offset=first, last_offset=end - 1, position=0)
        for (epoch, first), end in zip(runs, ends, strict=True)
    ]
    return ScannedSegment(
        segment=ArchivedSegment(base_offset=base, segment_id=f"{base}", parts={}),
        result=result,
        end_offset=base + SEGMENT_OFFSETS if is_whole else None,
        broker_id=broker_id,
    )


def found(*segments: tuple[ScannedSegment, Lines | None]) -> dict[int, list[str]]:
    """What the seams say of segments with these checkpoints, by base offset; notes have a question mark."""
    seams = EpochSeams(segments[0][0].segment.base_offset)
    for one, lines in segments:
        seams.take(one, None if lines is None else entries(*lines))
    seams.finish()
    return {
        one.segment.base_offset: [
            finding.rule + ("?" if finding.severity == "note" else "") for finding in one.findings
        ]
        for one, _ in segments
        if one.findings
    }


class TestRanges:
    def test_the_last_epoch_before_the_start_is_moved_there(self) -> None:
        lines = entries((0, 0), (2, 50), (4, 80))
        assert epochs_between(lines, 60, 100) == entries((2, 60), (4, 80))
        assert epochs_between(lines, 50, 80) == entries((2, 50))
        assert epochs_between(lines, 10, 10) == []

    def test_lists_are_compared_where_both_know(self) -> None:
        full, clipped = entries((0, 0), (2, 50), (4, 80)), entries((2, 60), (4, 80))
        assert first_difference(full, clipped, 100) is None
        assert first_difference(full, entries((2, 60), (4, 81)), 100) == EpochDifference(80, 4, 2)
        assert first_difference(full, entries((2, 60), (4, 81)), 80) is None


class TestSeams:
    def test_what_retention_and_takeovers_leave_is_sound(self) -> None:
        assert (
            found(
                (scanned(0, [(0, 0)]), [(0, 0)]),
                (scanned(100, [(0, 100), (2, 150)]), [(0, 0), (2, 150)]),
                (scanned(200, [(2, 200)]), [(0, 120), (2, 150)]),
                (scanned(300, [(2, 300)]), [(2, 250)]),
                (scanned(400, [(4, 400)], broker_id=2), [(0, 0), (2, 150), (4, 400)]),
            )
            == {}
        )

    def test_a_checkpoint_against_its_neighbours_and_the_logs(self) -> None:
        right: Lines = [(0, 0), (2, 150)]
        others: list[Lines] = [[(0, 0), (2, 151)], [(0, 0), (1, 20), (2, 150)], [(1, 0), (2, 150)]]
        for other in others:
            last = (scanned(200, [(2, 200)]), other)
            before = [(scanned(0, [(0, 0)]), [(0, 0)]), (scanned(100, [(0, 100), (2, 150)]), right)]
            assert found(*before, last) == {200: ["epoch-content"]}
            last = (scanned(200, [(2, 200)]), other)
            before = [(scanned(0, [(0, 0)]), [(0, 0)]), (scanned(100, [(0, 100), (2, 150)]), right)]
            assert found(*before, last, (scanned(300, [(2, 300)]), right)) == {200: ["epoch-content"]}

    @pytest.mark.parametrize(("before", "after"), [(1, 0), (5, 4), (5, 0)])
    def test_without_checkpoints_no_epoch_is_below_the_one_before(self, before: int, after: int) -> None:
        first = scanned(0, [(before, 0)])
        assert found((first, None), (scanned(100, [(after, 100)]), None)) == {100: ["leader-epoch"]}
        first = scanned(0, [(after, 0)])
        assert found((first, None), (scanned(100, [(before, 100), (after, 150)]), None)) == {
            100: ["leader-epoch"]
        }

    @pytest.mark.parametrize("wrong", [0, 1, 2])
    def test_before_the_first_log_two_checkpoints_outvote_one(self, wrong: int) -> None:
        lines: list[Lines] = [[(0, 0), (2, 50)]] * 3
        lines[wrong] = [(0, 0), (2, 60)]
        segments = [
            (scanned(base, [(2, base)]), lines[number]) for number, base in enumerate((100, 200, 300))
        ]
        assert found(*segments) == {100 * wrong + 100: ["epoch-content"]}

    def test_two_that_contradict_the_logs_before_show_that_a_segment_is_missing(self) -> None:
        new: Lines = [(0, 0), (1, 50)]
        assert found(
            (scanned(0, [(0, 0)]), [(0, 0)]),
            (scanned(100, [(1, 100)]), new),
            (scanned(200, [(1, 200)]), new),
        ) == {100: ["offset-gap"]}

    def test_that_it_is_missing_is_told_at_the_seam_although_only_later_checkpoints_tell(self) -> None:
        new: Lines = [(0, 0), (1, 50)]
        assert found(
            (scanned(0, [(0, 0)]), [(0, 0)]),
            (scanned(100, [(1, 100)]), None),
            (scanned(200, [(1, 200)]), new),
            (scanned(300, [(1, 300)]), new),
        ) == {100: ["offset-gap"]}

    @pytest.mark.parametrize(("broker_id", "rule"), [(1, "missing-epochs"), (None, "missing-epochs?")])
    def test_one_that_knows_less_than_the_next_one_was_shortened(
        self, broker_id: int | None, rule: str
    ) -> None:
        full: Lines = [(0, 0), (2, 50)]
        for last in ((300,), ()):
            segments = [(scanned(base, [(2, base)], broker_id=broker_id), full) for base in (100, 200, *last)]
            segments.insert(1, (scanned(100, [(2, 100)], broker_id=broker_id), [(2, 50)]))
            del segments[0]
            assert found(*segments) == {100: [rule]}

    def test_one_that_knows_more_than_its_neighbours_was_extended(self) -> None:
        lines: list[Lines] = [[(2, 50)], [(0, 0), (2, 50)], [(2, 50)]]
        segments = [
            (scanned(base, [(2, base)]), lines[number]) for number, base in enumerate((100, 200, 300))
        ]
        assert found(*segments) == {200: ["epoch-content"]}

    def test_a_log_without_a_checkpoint_is_held_against_a_later_one(self) -> None:
        lines: Lines = [(0, 0), (2, 150)]
        for runs, rules in (
            ([(0, 100), (2, 150)], {}),
            ([(0, 100), (4, 130), (2, 150)], {100: ["leader-epoch"]}),
        ):
            assert (
                found(
                    (scanned(0, [(0, 0)]), [(0, 0)]),
                    (scanned(100, runs), None),
                    (scanned(200, [(2, 200)]), lines),
                )
                == rules
            )

    def test_nothing_is_compared_over_a_log_that_ends_in_damage(self) -> None:
        assert (
            found(
                (scanned(0, [(0, 0)], is_whole=False), [(0, 0)]),
                (scanned(100, [(4, 100)]), [(0, 0), (2, 50), (4, 80)]),
            )
            == {}
        )

    def test_what_confirms_that_a_segment_continues_the_log_before(self) -> None:
        def unconfirmed(second: Lines | None, third: Lines | None, *, epoch: int = 1) -> set[int]:
            seams = EpochSeams(0)
            seams.take(scanned(0, [(0, 0)]), entries((0, 0)))
            seams.take(scanned(100, [(epoch, 100)]), None if second is None else entries(*second))
            seams.take(scanned(200, [(epoch, 200)]), None if third is None else entries(*third))
            seams.finish()
            return {base for base, _ in seams.unconfirmed}

        assert unconfirmed([(0, 0), (1, 100)], None) == set()
        assert unconfirmed(None, [(0, 0), (1, 100)]) == set()
        assert unconfirmed(None, None, epoch=0) == set()
        assert unconfirmed(None, None) == {100}
        assert unconfirmed(None, [(1, 150)]) == {100}
        assert unconfirmed([(0, 0), (1, 50)], [(0, 0), (1, 50)]) == {100}


# -- archives ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forked() -> ForkedCopies:
    return forked_copies()


def without(
    tmp_path: Path, forked: ForkedCopies, *parts: str, epochs_of_last_ones: bool = True
) -> WrittenArchive:
    """An archive that has lost the new leader's first segment as a whole, and *parts* of its second one."""
    copies = [*forked.shared, forked.lost, *forked.after]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    for part in parts:
        archive.place(forked.after[0], part).unlink()
    if not epochs_of_last_ones:
        for one in forked.after[1:]:
            archive.place(one, EPOCHS).unlink()
    return archive


def test_two_histories_are_no_damage(tmp_path: Path, forked: ForkedCopies) -> None:
    copies = [*forked.shared, forked.lost, forked.first, *forked.after]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    assert bad_objects(gone_through(archive.root)) == {}


@pytest.mark.parametrize("has_epochs", [True, False])
def test_nothing_is_rebuilt_from_the_other_history(
    tmp_path: Path, forked: ForkedCopies, has_epochs: bool
) -> None:
    """The only segment before is of another leader, at the same offsets."""
    archive = without(tmp_path, forked, SNAPSHOT, EPOCHS, epochs_of_last_ones=has_epochs)
    before = bad_objects(gone_through(archive.root))
    for number in range(2):
        gone_through(archive.root, tmp_path / f"output {number}", is_in_place=True)
        assert not any(archive.place(forked.after[0], part).exists() for part in (SNAPSHOT, EPOCHS))
    after = gone_through(archive.root)
    obstacles = objects_of(after)
    key = archive.place(forked.after[0], SNAPSHOT).relative_to(archive.root).as_posix()
    if has_epochs:
        assert bad_objects(after) == before
        log = archive.place(forked.after[0], LOG).relative_to(archive.root).as_posix()
        assert before[log] == ["offset-gap"]
    else:
        assert "no leader epochs confirm that its segment continues the log before" in obstacles[key].obstacle


def test_of_two_histories_no_state_before_a_segment_is_known(tmp_path: Path, forked: ForkedCopies) -> None:
    """Both are whole, and the snapshot of a later segment would follow from either."""
    copies = [*forked.shared, forked.lost, forked.first, *forked.after]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    path = archive.place(forked.after[1], SNAPSHOT)
    path.unlink()
    gone_through(archive.root, tmp_path / "output", is_in_place=True)
    assert not path.exists()
    key = path.relative_to(archive.root).as_posix()
    obstacle = objects_of(gone_through(archive.root))[key].obstacle
    assert obstacle == "several segments have the same offsets: which of them it continues is not known"


def test_an_epoch_of_the_metadata_that_begins_within_a_batch_is_found(tmp_path: Path) -> None:
    copies = made_copies(segments=4)
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    number = next(place for place, copy in enumerate(copies) if len(copy.remote.leader_epochs) > 1)
    remote = copies[number].remote
    (epoch, start) = remote.leader_epochs[-1]
    assert start > remote.start_offset
    archive.metadata[number] = replace(
        remote, leader_epochs=(*remote.leader_epochs[:-1], LeaderEpochEntry(epoch, start - 1))
    )
    write_metadata(tmp_path / "log-dir", metadata_records(archive.metadata), segment_batches=1000)
    bad = bad_objects(gone_through(archive.root, metadata=[tmp_path / "log-dir"]))
    log = archive.place(copies[number], LOG).relative_to(archive.root).as_posix()
    assert "metadata" in bad[log]


def test_nothing_is_rebuilt_from_a_snapshot_that_contradicts_its_log(tmp_path: Path) -> None:
    """It is well-formed, and the checks go on from it: what would follow is as wrong as it is."""
    copies = made_copies()
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    archive.rewrite(copies[2], SNAPSHOT, copies[1].files[SNAPSHOT])
    path = archive.place(copies[3], SNAPSHOT)
    path.unlink()
    gone_through(archive.root, tmp_path / "output", is_in_place=True)
    assert not path.exists()
    key = path.relative_to(archive.root).as_posix()
    assert objects_of(gone_through(archive.root))[key].obstacle == (
        "a log or a snapshot before its own log is damaged, or of another history"
    )


def test_the_leader_epochs_that_the_next_segment_knows_are_rebuilt(
    stored_archive: TieredArchive, tmp_path: Path
) -> None:
    """Of the first segment that retention has left, nothing before it tells them."""
    copies = copies_of(stored_archive, "deleted-records-0")
    assert copies[0].remote.start_offset > 0
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    path = archive.place(copies[0], EPOCHS)
    path.unlink()
    gone_through(archive.root, tmp_path / "output", is_in_place=True)
    base, end = copies[0].remote.start_offset, copies[0].remote.end_offset + 1
    known = epochs_between(read_leader_epoch_checkpoint(copies[0].files[EPOCHS]), base, end)
    assert epochs_between(read_leader_epoch_checkpoint(path.read_bytes()), base, end) == known
    assert bad_objects(gone_through(archive.root)) == {}


def test_nothing_wrong_is_copied(tmp_path: Path) -> None:
    """The next segment's leader epochs contradict the logs before: they are not those of this segment either."""
    copies = made_copies()
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    path = archive.place(copies[3], EPOCHS)
    path.unlink()
    (first, start), *others = read_leader_epoch_checkpoint(copies[4].files[EPOCHS])
    wrong = [(first, start), *((epoch, offset + 1) for epoch, offset in others)]
    archive.rewrite(copies[4], EPOCHS, encode_leader_epoch_checkpoint(wrong))
    gone_through(archive.root, tmp_path / "output", is_in_place=True)
    assert path.read_bytes() == copies[3].files[EPOCHS]
    bad = bad_objects(gone_through(archive.root))
    assert bad == {archive.place(copies[4], EPOCHS).relative_to(archive.root).as_posix(): ["epoch-content"]}
