"""Archives after clean and unclean elections: whole ones are sound, and a segment of any history is missed.

What is expected follows from the leader epochs of each segment's own checkpoint, offset by offset.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from segfmt.checkpoint import read_leader_epoch_checkpoint
from tests.logs.archives import EPOCHS, SegmentCopy, metadata_records, write_archive
from tests.logs.elections import Reign, after_retention, reigns
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import gone_through, objects_of

SEEDS = range(6)


def copies_in(made: Sequence[Reign]) -> list[SegmentCopy]:
    return [copy for reign in made for copy in reign.copies]


def rules(
    root: Path, copies: Sequence[SegmentCopy], layout: str = "local-tiered", metadata: Sequence[Path] = ()
) -> set[str]:
    """The rules by which anything but notes is found in an archive of *copies*."""
    archive = write_archive(root, layout, copies)
    verdicts = gone_through(archive.root, metadata=metadata)
    findings = [finding for one in objects_of(verdicts).values() for finding in one.verdict.findings]
    return {finding.rule for finding in findings if finding.severity != "note"}


def epoch_at(copy: SegmentCopy, offset: int) -> int | None:
    """The leader epoch of an offset in a segment's history; None if the segment does not know it."""
    lines = read_leader_epoch_checkpoint(copy.files[EPOCHS])
    return next((line.epoch for line in reversed(lines) if line.start_offset <= offset), None)


def lacks_offsets(copies: Sequence[SegmentCopy]) -> bool:
    """Whether some segment's history begins in the archive, and does not reach up to the segment."""
    had = {
        (offset, epoch_at(copy, offset))
        for copy in copies
        for offset in range(copy.remote.start_offset, copy.remote.end_offset + 1)
    }
    first = min(copy.remote.start_offset for copy in copies)
    for copy in copies:
        base = copy.remote.start_offset
        before = [(offset, epoch_at(copy, offset)) in had for offset in range(first, base)]
        if before and not before[-1] and any(before):
            return True
    return False


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_leaders_have_archived_is_sound(tmp_path: Path, layout: str, seed: int) -> None:
    assert rules(tmp_path / "archive", copies_in(reigns(seed)), layout) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_retention_leaves_is_sound(tmp_path: Path, seed: int) -> None:
    """Also where the log start offset lay within a segment when that was archived."""
    made, rng = reigns(seed), random.Random(seed)
    end = made[-1].copies[-1].remote.start_offset
    for number, layout in enumerate(("local-tiered", "aiven", "aiven")):
        start = rng.randrange(1, end)
        kept = after_retention(made, start, known_from=rng.choice((0, start // 2, start)))
        metadata = tmp_path / f"metadata {number}"
        write_metadata(metadata, metadata_records(copy.remote for copy in kept))
        assert rules(tmp_path / f"archive {number}", kept, layout) == set()
        assert rules(tmp_path / f"again {number}", kept, layout, [metadata]) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_segment_is_missed_whose_offsets_no_other_one_has(tmp_path: Path, seed: int) -> None:
    copies = copies_in(reigns(seed))
    missed = 0
    for number in range(len(copies)):
        left = [*copies[:number], *copies[number + 1 :]]
        found = rules(tmp_path / f"archive {number}", left)
        assert bool(found) == lacks_offsets(left), (copies[number].remote, found)
        assert found <= {"offset-gap", "epoch-content"}
        missed += bool(found)
    assert missed


def test_with_the_metadata_topic_only_what_brokers_read_is_missed(tmp_path: Path) -> None:
    """Both leaders' first segments after the election are gone, the old leader's and the new one's."""
    made = reigns(1)
    copies = copies_in(made)
    write_metadata(tmp_path / "metadata", metadata_records(copy.remote for copy in copies))
    for reign, expected in ((made[0], set()), (made[1], set()), (made[2], {"missing-segment", "offset-gap"})):
        left = [copy for copy in copies if copy is not reign.copies[1]]
        assert lacks_offsets(left)
        root = tmp_path / f"archive {reign.copies[1].stem}"
        assert rules(root, left, metadata=(tmp_path / "metadata",)) == expected
