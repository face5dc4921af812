"""Segments that a broker was about to delete: kept where nothing else may have what they hold."""

from __future__ import annotations

import pytest

from recovery.load.model import LogSettings
from tests.logs.builders import data_batch
from tests.recovery.load.memory import Folded, name, partition
from tests.recovery.load.test_account import COMPACTED, PLAIN, UNKNOWN, five_segments, holes_of, segment


@pytest.mark.parametrize("recovery_point", [0, 35, 50])
def test_a_broker_was_killed_while_it_truncated_the_log(recovery_point: int) -> None:
    files = five_segments()
    for base in (10, 20):
        for suffix in (".log", ".index", ".timeindex"):
            files[name(base, f"{suffix}.deleted")] = files.pop(name(base, suffix))
    files[name(70, ".log.deleted")] = b"z"
    made = Folded(files, settings=PLAIN, recovery_point=recovery_point)
    assert holes_of(made.outcome) == [(10, 29, name(30))]
    kinds = {file: kind.name for file, kind in made.outcome.removed.items() if file.endswith(".deleted")}
    assert kinds.pop(name(70, ".log.deleted")) == "PENDING_DELETION"  # of nothing that is missing
    assert list(kinds.values()) == ["CUT_OFF"] * 6
    (warning,) = made.outcome.warnings
    assert warning.startswith("2 .deleted files from offset 10 on may hold what no other segment has: kept")
    assert "recover again" in warning


@pytest.mark.parametrize("tail", [b"", data_batch(20)[:-7], b"\x01" * 40])
def test_behind_the_end_and_below_the_high_watermark(tail: bytes) -> None:
    """Also where nobody knows how far what is torn there went."""
    files = partition({0: segment(0), 10: segment(10) + tail}) | {
        name(base, ".log.deleted"): segment(base) for base in (30, 40)
    }
    for high_watermark, kept in ((20, set()), (35, {30}), (50, {30, 40})):
        outcome = Folded(files, settings=PLAIN, high_watermark=high_watermark).outcome
        kinds = {base: outcome.removed[name(base, ".log.deleted")].name for base in (30, 40)}
        assert {base for base, kind in kinds.items() if kind == "CUT_OFF"} == kept
        assert any("may hold what no other segment has" in one for one in outcome.warnings) == bool(kept)


@pytest.mark.parametrize("settings", [COMPACTED, LogSettings()])
@pytest.mark.parametrize("recovery_point", [0, 35, 50])
def test_the_same_of_a_log_that_is_or_may_be_compacted(recovery_point: int, settings: LogSettings) -> None:
    """What the cleaner has replaced looks the same, but for its line in `cleaner-offset-checkpoint`."""
    files = five_segments()
    for base in (10, 20):
        files[name(base, ".log.deleted")] = files.pop(name(base))
    for cleaned_offset, kept in ((0, {10, 20}), (10, {10, 20}), (15, {20}), (30, set())):
        outcome = Folded(
            files, settings=settings, recovery_point=recovery_point, cleaned_offset=cleaned_offset
        ).outcome
        assert outcome.holes == ()
        kinds = {base: outcome.removed[name(base, ".log.deleted")].name for base in (10, 20)}
        assert {base for base, kind in kinds.items() if kind == "CUT_OFF"} == kept


@pytest.mark.parametrize("recovery_point", [0, 35, 50])
def test_what_the_cleaner_has_just_put_into_one_is_none(recovery_point: int) -> None:
    """The broker was killed before it wrote `cleaner-offset-checkpoint`."""
    files = five_segments()
    for base in (10, 20):
        files[name(base, ".log.deleted")] = files.pop(name(base))
    for cleaned in (
        files | {name(0, ".log.deleted"): b"z"},
        {name(0, ".log.swap") if file == name(0) else file: data for file, data in files.items()},
    ):
        for settings in (COMPACTED, UNKNOWN):
            outcome = Folded(cleaned, settings=settings, recovery_point=recovery_point).outcome
            assert outcome.removed[name(20, ".log.deleted")].name == "PENDING_DELETION"


@pytest.mark.parametrize("recovery_point", [0, 30, 40])
def test_segments_pending_deletion_that_another_covers_are_none(recovery_point: int) -> None:
    """As a follower leaves them that has truncated its log and fetched more since; the other need not be recovered."""
    files = Folded(partition({0: segment(0, 30), 30: segment(30)})).tree | {name(10, ".log.deleted"): b"z"}
    for settings in (PLAIN, COMPACTED, LogSettings()):
        outcome = Folded(files, settings=settings, recovery_point=recovery_point).outcome
        assert outcome.removed[name(10, ".log.deleted")].name == "PENDING_DELETION"
        assert outcome.warnings == ()
        assert outcome.holes == ()


@pytest.mark.parametrize("recovery_point", [0, 15])
@pytest.mark.parametrize("pending", [10, 20, 30])
def test_between_what_is_cut(pending: int, recovery_point: int) -> None:
    """A cut takes what follows; what was pending deletion had left before."""
    files = five_segments()
    files[name(pending, ".log.deleted")] = files.pop(name(pending))
    damaged = 0 if recovery_point == 0 else 20 if pending == 10 else 10
    files[name(damaged)] = files[name(damaged)][:-1] + b"?"
    outcome = Folded(files, settings=PLAIN, recovery_point=recovery_point).outcome
    assert holes_of(outcome) == [(pending, pending + 9, name(pending + 10))]
    assert outcome.removed[name(pending, ".log.deleted")].name == "CUT_OFF"
    assert not any(cut.first_offset <= pending <= cut.last_offset for cut in outcome.cuts)


def test_several_that_reach_up_to_what_is_missing() -> None:
    files = five_segments()
    files[name(10, ".log.deleted")] = files.pop(name(10))
    files |= {name(base, ".log.deleted"): b"z" for base in (3, 7, 12)}
    outcome = Folded(files, settings=PLAIN).outcome
    assert holes_of(outcome) == [(10, 19, name(20))]
    kept = [file for file, kind in outcome.removed.items() if kind.name == "CUT_OFF"]
    assert sorted(kept) == [name(base, ".log.deleted") for base in (3, 7, 10, 12)]


def test_a_broker_had_truncated_the_log_below_its_high_watermark() -> None:
    files = five_segments() | {name(60, ".log.deleted"): b"z", name(20, ".log.deleted"): b"z"}
    outcome = Folded(files, settings=PLAIN, recovery_point=40, high_watermark=90).outcome
    assert holes_of(outcome) == [(50, 89, name(40))]
    warning, kept = outcome.warnings
    assert "its segments from offset 60 on are .deleted files: the broker had truncated it" in warning
    assert "from offset 60 on may hold what no other segment has" in kept
    assert outcome.removed[name(60, ".log.deleted")].name == "CUT_OFF"
    assert outcome.removed[name(20, ".log.deleted")].name == "PENDING_DELETION"  # a later one took its place
