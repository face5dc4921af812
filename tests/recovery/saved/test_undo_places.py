"""Undo where there is more than one quarantine, or less than there was: back in the order that the messages say."""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import recovery
from recovery.errors import UnsafeError
from recovery.logdir.quarantine_place import JOURNAL, UNDO_JOURNAL
from recovery.saved.undo import undo
from recovery.write.undo_notice import UNDO_NOTICE
from tests.damage.mutilate import Victim
from tests.faults.states import MADE_STATES
from tests.logs.samples import MARKER, Sample, differences, tree_of
from tests.recovery.saved.test_undo import samples, state_of, without_pending
from tests.runs.driving import own_leftovers, quarantine_of, recover
from tests.runs.killing import killed_at

__all__ = ["samples"]


@pytest.fixture
def victim(samples: list[Sample], tmp_path: Path) -> Victim:
    victim = state_of(samples[0], "torn first segment", tmp_path)
    recover(samples[0], [victim.log_dir])
    return victim


def test_where_the_newest_run_was_purged_the_broker_is_not_blamed_alone(
    samples: list[Sample], victim: Victim
) -> None:
    (victim.log_dir / MARKER).unlink()
    recover(samples[0], [victim.log_dir])
    first, second = sorted(quarantine_of(victim.log_dir).iterdir())
    shutil.rmtree(second)
    with pytest.raises(UnsafeError, match=f"changed since run {first.name}.* or if that run was purged;"):
        undo([str(victim.log_dir)])


def test_a_notice_that_names_nothing_says_how_to_be_rid_of_it(samples: list[Sample], ram_path: Path) -> None:
    victim = state_of(samples[0], "torn first segment", ram_path)
    (victim.log_dir / UNDO_NOTICE).touch()
    with pytest.raises(
        UnsafeError, match=f"{UNDO_NOTICE} names no quarantine; if no undo has been at work here, remove it"
    ):
        undo([str(victim.log_dir)])
    (victim.log_dir / UNDO_NOTICE).unlink()
    recover(samples[0], [victim.log_dir])


def test_commands_that_look_tell_of_a_recovery_that_was_interrupted(
    samples: list[Sample], ram_path: Path
) -> None:
    """What it has cut is nowhere to be seen in the logs."""
    victim = state_of(samples[0], "torn first segment", ram_path)
    log_dirs = [str(victim.log_dir)]

    def told() -> list[str]:
        notes = [*recovery.verify(log_dirs).notes, *recovery.estimate(log_dirs, sample_bytes=0).notes]
        return [note.text for note in notes if "a recovery has not ended" in note.text]

    assert told() == []
    for number in count(10, 5):
        assert killed_at(number, lambda: recover(samples[0], [victim.log_dir]))
        if (quarantine_of(victim.log_dir) / JOURNAL).exists():
            break
    assert len(told()) == 2
    assert all(text.endswith("start the same recover again") for text in told())
    recover(samples[0], [victim.log_dir])
    assert told() == []


def test_an_interrupted_undo_keeps_recoveries_with_other_quarantines_away(
    samples: list[Sample], tmp_path: Path, ram_path: Path
) -> None:
    victim = state_of(samples[0], "torn first segment", ram_path)
    before = tree_of(victim.log_dir)
    recover(samples[0], [victim.log_dir])
    log_dirs, elsewhere = [str(victim.log_dir)], str(tmp_path / "elsewhere")
    for number in count(10, 5):  # until half of it is done
        assert killed_at(number, lambda: undo(log_dirs))
        if (victim.log_dir / UNDO_NOTICE).exists():
            break
    for options in ({}, {"quarantine_dir": elsewhere}, {"quarantine_dir": elsewhere, "dry_run": True}):
        with pytest.raises(UnsafeError, match="an undo was interrupted here"):
            recover(samples[0], [victim.log_dir], **options)
    command = f"let it finish first: kafka-log-recovery undo --log-dirs {victim.log_dir}"
    notes = [*recovery.verify(log_dirs).notes, *recovery.estimate(log_dirs, sample_bytes=0).notes]
    told = [note.text for note in notes if "an undo was interrupted, so a part of it is" in note.text]
    assert len(told) == 2
    assert all(text.endswith(f"Remedy: {command}") for text in told)
    with pytest.raises(UnsafeError, match=f"{command}$"):
        undo(log_dirs, quarantine_dir=elsewhere)
    gone = quarantine_of(victim.log_dir).rename(ram_path / "gone")
    remove = f"is not there; if it is gone for good, remove {victim.log_dir / UNDO_NOTICE}"
    with pytest.raises(UnsafeError, match=f"{command}. Its quarantine, .*, {remove}$"):
        undo(log_dirs)
    gone.rename(quarantine_of(victim.log_dir))
    undo(log_dirs)
    assert differences(before, tree_of(victim.log_dir)) == []
    assert own_leftovers(victim.log_dir) == []


def test_a_run_before_one_in_another_quarantine_is_not_taken_back_first(
    samples: list[Sample], tmp_path: Path
) -> None:
    """The first has handed nothing over, so that its account says nothing of the log dir's own files."""
    victim = state_of(samples[0], "torn first segment", tmp_path)
    before, log_dirs = tree_of(victim.log_dir), [str(victim.log_dir)]
    recover(samples[0], [victim.log_dir], handoff="none")
    recover(samples[0], [victim.log_dir], quarantine_dir=str(tmp_path / "two"))
    found = tree_of(victim.log_dir)
    for dry_run in (True, False):
        with pytest.raises(UnsafeError, match=r"changed since run .*: log-dir/\.kafka_cleanshutdown"):
            undo(log_dirs, dry_run=dry_run)
    assert differences(found, tree_of(victim.log_dir)) == []
    undo(log_dirs, quarantine_dir=str(tmp_path / "two"))
    undo(log_dirs)
    assert differences(before, tree_of(victim.log_dir)) == []


def test_runs_in_two_quarantines(samples: list[Sample], tmp_path: Path) -> None:
    """Killed with one `--quarantine-dir`, finished with another: back in the order that the messages say."""
    victim = state_of(samples[0], "torn first segment", tmp_path)
    before = tree_of(victim.log_dir)
    places = [{"quarantine_dir": str(tmp_path / name)} for name in ("one", "two")]
    assert killed_at(40, lambda: recover(samples[0], [victim.log_dir], thread_count=1, **places[0]))
    recover(samples[0], [victim.log_dir], **places[1])
    with pytest.raises(
        UnsafeError, match="first take back what was done since with another --quarantine-dir"
    ):
        undo([str(victim.log_dir)], **places[0])
    undo([str(victim.log_dir)], **places[1])
    recover(samples[0], [victim.log_dir], **places[0])
    undo([str(victim.log_dir)], **places[0])
    assert differences(before, tree_of(victim.log_dir)) == []


def recovered_twice(sample: Sample, root: Path) -> tuple[list[Path], list[dict[str, bytes]]]:
    """Two log dirs with two runs that changed partitions, and how they were between: by somebody else's hand."""
    root.mkdir()
    state = MADE_STATES["two log dirs"]
    state.make({sample.name: sample}, root)
    log_dirs = state.paths(root)
    recover(sample, log_dirs, handoff="none")
    for log_dir in log_dirs:
        next(log_dir.glob("*/leader-epoch-checkpoint")).write_text("nonsense")
    between = [tree_of(log_dir) for log_dir in log_dirs]
    recover(sample, log_dirs, handoff="none", repair=True)
    return log_dirs, between


@pytest.mark.long
@pytest.mark.parametrize("is_named", [False, True])
def test_an_interrupted_undo_of_several_log_dirs_takes_back_what_it_was_to_and_no_more(
    samples: list[Sample], ram_path: Path, is_named: bool
) -> None:
    """What lies between the two runs keeps the first from being taken back, in a log dir where the second is.

    A file that is moved back has the name of one that the recovery had made.
    """
    place, backup = ram_path / "place", ram_path / "backup"
    log_dirs, between = recovered_twice(samples[0], place)
    names = list(map(str, log_dirs))
    run = max(path.name for path in quarantine_of(log_dirs[0]).iterdir()) if is_named else None
    place.rename(backup)
    kills_in_between = 0
    for number in count(1):
        shutil.copytree(backup, place, symlinks=True)
        was_killed = killed_at(number, lambda: undo(names, run=run))
        unfinished = {name for name in names if (Path(name) / UNDO_NOTICE).exists()}
        if unfinished:
            is_first_ending = (
                names[0] not in unfinished and (quarantine_of(log_dirs[0]) / UNDO_JOURNAL).exists()
            )
            begun_or_next = names if names[0] in unfinished else names[1:]
            left_dirs = ",".join(names[:1] if is_first_ending else begun_or_next)
            with pytest.raises(UnsafeError, match=f"let it finish first: .* --log-dirs {left_dirs}$"):
                recover(samples[0], log_dirs)
            left = {one.log_dir for one in undo(names, run=run) if one.is_left}
            assert left.isdisjoint(unfinished)
            kills_in_between += bool(left)
        if unfinished or not was_killed:
            for log_dir, wanted in zip(log_dirs, between, strict=True):
                assert differences(without_pending(wanted), without_pending(tree_of(log_dir))) == []
                assert own_leftovers(log_dir) == []
        shutil.rmtree(place)
        if not was_killed:
            break
    assert kills_in_between > 3


def follow(refusal: str, sample: Sample, log_dirs: list[Path]) -> None:
    """Do what the messages of `undo` and `recover` say, until the log dirs can be recovered."""
    files = refusal.partition("end the undo where it is: remove ")[2].partition(", run recover")[0]
    for path in files.split(" and "):
        Path(path).unlink()
    for _ in log_dirs:
        try:
            recover(sample, log_dirs)
        except UnsafeError as refused:
            told = str(refused).partition("let it finish first: ")[2]
            with suppress(UnsafeError):
                undo(told.partition(" --log-dirs ")[2].split(","))
                continue
            with pytest.raises(UnsafeError, match="this may work: ") as left_out:
                undo(told.partition(" --log-dirs ")[2].split(","))
            undo(str(left_out.value).partition("this may work: ")[2].partition(" --log-dirs ")[2].split(","))
        else:
            return
    pytest.fail(f"no way out: {refusal}")


@pytest.mark.long
@pytest.mark.parametrize("changed", [0, 1])
def test_the_way_out_of_an_undo_of_several_log_dirs_leads_out(
    samples: list[Sample], ram_path: Path, changed: int
) -> None:
    """Of two log dirs, one has changed since the kill; whatever is typed is what the messages say."""
    place, backup = ram_path / "place", ram_path / "backup"
    place.mkdir()
    state = MADE_STATES["two log dirs"]
    state.make({samples[0].name: samples[0]}, place)
    log_dirs = state.paths(place)
    names = list(map(str, log_dirs))
    recover(samples[0], log_dirs)
    place.rename(backup)
    ways_out = 0
    for number in count(1, 3):
        shutil.copytree(backup, place, symlinks=True)
        was_killed = killed_at(number, lambda: undo(names))
        if all((log_dir / UNDO_NOTICE).exists() for log_dir in log_dirs):
            for log in log_dirs[changed].glob("*/*.log"):
                with log.open("ab") as file:
                    file.write(bytes([1]) * 3)
            try:
                undo(names)  # all logs of that log dir may be back already
            except UnsafeError as refused:
                ways_out += 1
                follow(str(refused), samples[0], log_dirs)
        shutil.rmtree(place)
        if not was_killed:
            break
    assert ways_out > 3
