"""Interrupted runs whose log dir something else has changed before they were resumed: taken back, or left whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from recovery.engine.cut_ledger import CutLedger
from recovery.engine.log_dir_run import LogDirRun
from recovery.engine.report import CUT_LEDGER
from recovery.errors import UnsafeError
from recovery.saved.undo import undo
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from recovery.write.undo_notice import UNDO_NOTICE
from tests.damage.mutilate import Victim
from tests.logs.samples import LOCK, Sample, differences, tree_of
from tests.recovery.saved.test_undo import state_of
from tests.runs.driving import footprint, quarantine_of, recover
from tests.runs.killing import killed_at


class KilledError(BaseException):
    """What stands for a kill."""


@pytest.fixture
def victim(sample: Sample, ram_path: Path) -> Victim:
    victim = state_of(sample, "torn first segment", ram_path)
    (victim.folder / "00000000000000000007.log.deleted").write_bytes(b"pending")
    (victim.folder / "00000000000000000007.index.deleted").write_bytes(b"")
    return victim


def places(victim: Victim) -> list[Path]:
    return [path for path in (victim.log_dir, quarantine_of(victim.log_dir)) if path.exists()]


def touched(victim: Victim) -> None:
    """As `chown` and `chmod` do: the time of a change is another one."""
    for path in victim.log_dir.rglob("*"):
        os.chmod(path, path.stat().st_mode)


def copied(victim: Victim) -> None:
    """As to another disk: all has another inode."""
    for path in places(victim):
        shutil.copytree(path, path.with_name("copied"), symlinks=True)
        shutil.rmtree(path)
        path.with_name("copied").rename(path)


def left(_victim: Victim) -> None:
    """Nothing is done to it."""


def undo_all(victim: Victim) -> int:
    count = 0
    while undo([str(victim.log_dir)])[0].run is not None:
        count += 1
    return count


def begun_anew(victim: Victim, original: Path) -> None:
    for path in places(victim):
        shutil.rmtree(path)
    shutil.copytree(original, victim.log_dir)


@pytest.mark.long
@pytest.mark.parametrize("change", [touched, copied, left])
@pytest.mark.parametrize("is_restart", [False, True])
def test_what_a_killed_run_has_done_is_taken_back(
    sample: Sample, victim: Victim, change: Callable[[Victim], None], is_restart: bool, ram_path: Path
) -> None:
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    run_counts: set[int] = set()
    for number in range(1, 400):
        begun_anew(victim, original)
        if not killed_at(number, lambda: recover(sample, [victim.log_dir], keep_deleted=True)):
            break
        change(victim)
        recover(sample, [victim.log_dir], keep_deleted=True, restart=is_restart)
        run_counts.add(undo_all(victim))
        assert differences(before, tree_of(victim.log_dir)) == [], number
    assert number > 30
    assert run_counts >= ({1, 2} if is_restart or change is not left else {1})


@pytest.mark.long
def test_an_undo_that_was_killed_is_finished_on_another_disk(
    sample: Sample, victim: Victim, ram_path: Path
) -> None:
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    for number in range(1, 400):
        begun_anew(victim, original)
        recover(sample, [victim.log_dir], keep_deleted=True)
        if not killed_at(number, lambda: undo([str(victim.log_dir)])):
            break
        copied(victim)
        undo_all(victim)
        assert differences(before, tree_of(victim.log_dir)) == [], number
    assert number > 20


def killed_before_the_hand_over(sample: Sample, victim: Victim) -> None:
    with (
        mock.patch.object(LogDirRun, "_hand_over", side_effect=KilledError),
        pytest.raises(KilledError),
    ):
        recover(sample, [victim.log_dir])


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("repair", [False, True])
def test_what_was_appended_meanwhile_comes_back_and_what_was_cut_before_stays_in_quarantine(
    sample: Sample, victim: Victim, repair: bool, has_checkpoint: bool
) -> None:
    """A broker was started after the kill, appended, and was killed; with or without having written a checkpoint."""
    killed_before_the_hand_over(sample, victim)
    (first,) = (path for path in quarantine_of(victim.log_dir).iterdir() if path.is_dir())
    saved = tree_of(first)
    log = sorted(victim.folder.glob("*.log"))[-1]
    with log.open("ab") as file:
        file.write(b"\x01" * 300)
    if has_checkpoint:
        checkpoint = victim.log_dir / "recovery-point-offset-checkpoint"
        checkpoint.write_bytes(checkpoint.read_bytes())
    appended = log.read_bytes()
    report = recover(sample, [victim.log_dir], repair=repair)
    (log_dir,) = report.log_dirs
    assert log_dir.quarantine != str(first)
    assert [cut.quarantine for cut in log_dir.earlier_cuts] == [str(first)]
    (undone,) = undo([str(victim.log_dir)])
    assert undone.earlier_runs == (first.name,)
    assert log.read_bytes() == appended
    with pytest.raises(
        UnsafeError, match=f"changed since run {first.name} recovered it: {victim.folder.name}/"
    ):
        undo([str(victim.log_dir)])
    assert {
        name: data for name, data in tree_of(first).items() if name in saved and name != "manifest.jsonl"
    } == {name: data for name, data in saved.items() if name != "manifest.jsonl"}
    assert log.read_bytes() == appended


def test_two_changes_of_one_log_are_not_taken_back_if_something_was_between_them(
    sample: Sample, victim: Victim
) -> None:
    """As earlier versions have left it: both in one run."""
    killed_before_the_hand_over(sample, victim)
    log = sorted(victim.folder.glob("*.log"))[-1]
    with log.open("ab") as file:
        file.write(b"\x01" * 300)
    with (
        mock.patch("recovery.engine.resume.RunJournal._changed_commit", return_value=None),
        mock.patch("recovery.engine.resume.RunJournal._changed", return_value="t-0/x"),
    ):
        recover(sample, [victim.log_dir])
    found = tree_of(victim.log_dir.parent)
    with pytest.raises(
        UnsafeError, match=f"changed while run .* was interrupted: {victim.folder.name}/{log.name}"
    ):
        undo([str(victim.log_dir)])
    assert differences(found, tree_of(victim.log_dir.parent)) == []


def test_a_move_that_is_taken_back_is_forgotten_before_the_manifest_is(
    sample: Sample, victim: Victim
) -> None:
    (victim.log_dir / "foreign").mkdir()
    recover(sample, [victim.log_dir], repair=True, acknowledge=False)
    with (
        mock.patch("recovery.saved.run_undoing.remove_undone", side_effect=KilledError),
        pytest.raises(KilledError),
    ):
        undo([str(victim.log_dir)])
    shutil.rmtree(next(path for path in quarantine_of(victim.log_dir).iterdir() if path.is_dir()))
    assert undo_all(victim) == 1
    assert CutLedger(str(victim.log_dir)).moves() == ()


def test_a_dry_run_changes_nothing_of_an_undo_that_was_killed(sample: Sample, victim: Victim) -> None:
    recover(sample, [victim.log_dir])
    with (
        mock.patch("recovery.saved.run_undoing.remove_undone", side_effect=KilledError),
        pytest.raises(KilledError),
    ):
        undo([str(victim.log_dir)])
    with (quarantine_of(victim.log_dir) / "undo").open("ab") as journal:
        journal.write(b"NOTE torn")
    found, open_files = footprint(victim.log_dir.parent), len(os.listdir("/proc/self/fd"))
    undo([str(victim.log_dir)], dry_run=True)
    assert footprint(victim.log_dir.parent) == found
    assert len(os.listdir("/proc/self/fd")) == open_files


def appended(victim: Victim) -> None:
    """As by a broker that was started in between; the log is then longer than before the recovery."""
    for log in victim.folder.glob("*.log"):
        with log.open("ab") as file:
            file.write(b"\x01" * 100_000)


def appended_a_little(victim: Victim) -> None:
    for log in victim.folder.glob("*.log"):
        with log.open("ab") as file:
            file.write(b"\x01" * 3)


def deleted(victim: Victim) -> None:
    """As with its topic."""
    shutil.rmtree(victim.folder)


@pytest.mark.long
@pytest.mark.parametrize("change", [appended, appended_a_little, deleted])
def test_an_interrupted_undo_loses_nothing_of_a_log_that_has_changed_since(
    sample: Sample, victim: Victim, change: Callable[[Victim], None], ram_path: Path
) -> None:
    """All that was cut, and all that came since, is in the log or in quarantine; the way out that is named is one."""
    before = tree_of(victim.folder)
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    outcomes: list[str] = []
    for number in range(1, 400):
        begun_anew(victim, original)
        recover(sample, [victim.log_dir], keep_deleted=True)
        saved = tree_of(quarantine_of(victim.log_dir))
        if not killed_at(number, lambda: undo([str(victim.log_dir)])):
            break
        was_whole = victim.folder.exists() and differences(before, tree_of(victim.folder)) == []
        change(victim)
        found = tree_of(victim.log_dir)
        try:
            undo([str(victim.log_dir)])
        except UnsafeError as refused:
            (victim.log_dir / LOCK).unlink(missing_ok=True)  # the killed one's
            found.pop(LOCK, None)
            assert differences(found, tree_of(victim.log_dir)) == [], number
            kept = tree_of(quarantine_of(victim.log_dir))
            for name, data in saved.items():  # what is put back has both names, until all is
                assert kept[name].startswith(data), (number, name)
            outcomes.append("refused")
            text = str(refused)
            if "Nothing more was changed" in text:
                assert "remove" in text
                assert "run recover" in text
                (victim.log_dir / UNDO_NOTICE).unlink(missing_ok=True)
                (quarantine_of(victim.log_dir) / "undo").unlink()
                recover(sample, [victim.log_dir])
        else:
            assert was_whole, number
            assert (
                tree_of(victim.log_dir).items()
                >= {
                    name: data for name, data in found.items() if name.startswith(f"{victim.folder.name}/")
                }.items()
            )
            outcomes.append("done")
    assert {"refused", "done"} == set(outcomes)


@pytest.mark.long
def test_a_dry_run_of_an_interrupted_undo_says_what_the_real_one_says(
    sample: Sample, victim: Victim, ram_path: Path
) -> None:
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    recover(sample, [victim.log_dir])
    (whole,) = undo([str(victim.log_dir)])
    resumed_count = 0
    for number in range(1, 400):
        begun_anew(victim, original)
        recover(sample, [victim.log_dir])
        if not killed_at(number, lambda: undo([str(victim.log_dir)])):
            break
        (planned,) = undo([str(victim.log_dir)], dry_run=True)
        (done,) = undo([str(victim.log_dir)])
        assert (done.log_bytes, done.restored_bytes, done.removed_bytes, done.partitions) == (
            planned.log_bytes,
            planned.restored_bytes,
            planned.removed_bytes,
            planned.partitions,
        ), number
        if done.run is not None:
            resumed_count += 1
            assert done.restored_bytes == whole.restored_bytes, number
            assert done.log_bytes == whole.log_bytes > 0, number
            assert done.partitions == whole.partitions, number
    assert resumed_count > 20


def test_an_undo_that_cannot_begin_leaves_nothing_in_the_way(
    sample: Sample, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover(sample, [victim.log_dir])
    found = tree_of(victim.log_dir.parent)
    create = Journal.create

    def full(path: str, header: Header) -> Journal:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(Journal, "create", full)
    with pytest.raises(OSError, match="No space left"):
        undo([str(victim.log_dir)])
    assert differences(found, tree_of(victim.log_dir.parent)) == []
    monkeypatch.setattr(Journal, "create", create)
    assert recover(sample, [victim.log_dir]).exit_code == 0


def test_an_undo_that_a_power_failure_has_left_without_a_journal_is_none(
    sample: Sample, victim: Victim
) -> None:
    recover(sample, [victim.log_dir])
    (quarantine_of(victim.log_dir) / "undo").write_bytes(b"")
    assert recover(sample, [victim.log_dir]).exit_code == 0
    assert undo_all(victim) == 1
    assert not quarantine_of(victim.log_dir).exists()


def test_a_foreign_file_beside_the_logs_is_no_hindrance(sample: Sample, victim: Victim) -> None:
    before = tree_of(victim.log_dir)
    killed_before_the_hand_over(sample, victim)
    (victim.log_dir / "NOTE").write_text("by hand\n")
    checkpoint = victim.log_dir / "meta.properties"
    checkpoint.write_bytes(checkpoint.read_bytes())
    recover(sample, [victim.log_dir])
    undo_all(victim)
    assert differences(before | {"NOTE": b"by hand\n"}, tree_of(victim.log_dir)) == []


@pytest.mark.long
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_killed_repair_is_taken_back(
    sample: Sample, victim: Victim, is_elsewhere: bool, ram_path: Path, tmp_path: Path
) -> None:
    """Also where the file that it moves has both names by then; elsewhere, on another disk, it is a copy."""
    (victim.folder / "foo.log").write_bytes(b"foreign" * 1000)
    (victim.log_dir / "no topic").mkdir()
    (victim.log_dir / "no topic" / "file").write_bytes(b"foreign")
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    options = {"quarantine_dir": str(tmp_path / "elsewhere")} if is_elsewhere else {}
    for number in range(1, 600, 3):
        begun_anew(victim, original)
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        if not killed_at(
            number, lambda: recover(sample, [victim.log_dir], repair=True, keep_deleted=True, **options)
        ):
            break
        refusal = ""
        try:
            undo([str(victim.log_dir)], **options)
        except UnsafeError as error:
            refusal = str(error)
        if refusal:
            assert "let recover finish it, then undo" in refusal, number
            recover(sample, [victim.log_dir], repair=True, keep_deleted=True, **options)
        while undo([str(victim.log_dir)], **options)[0].run is not None:
            pass
        found = tree_of(victim.log_dir)
        found.pop(CUT_LEDGER, None)  # an empty one is the next recovery's to remove
        assert differences(before, found) == [], number
    assert number > 40


@pytest.mark.long
def test_copies_that_a_killed_run_had_begun_are_in_no_undos_way(
    sample: Sample, victim: Victim, ram_path: Path, tmp_path: Path
) -> None:
    """On another disk, where they are copies; the run is forgotten."""
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    options = {"quarantine_dir": str(tmp_path / "elsewhere")}
    for number in range(1, 400):
        begun_anew(victim, original)
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        if not killed_at(number, lambda: recover(sample, [victim.log_dir], keep_deleted=True, **options)):
            break
        recover(sample, [victim.log_dir], restart=True, keep_deleted=True, **options)
        while undo([str(victim.log_dir)], **options)[0].run is not None:
            pass
        assert differences(before, tree_of(victim.log_dir)) == [], number
    assert number > 30


@pytest.mark.long
@pytest.mark.parametrize("is_whole_run", [False, True])
def test_what_was_saved_and_is_gone_is_saved_once_more(
    sample: Sample, victim: Victim, is_whole_run: bool, ram_path: Path
) -> None:
    """Somebody has made room in quarantine while a run was interrupted."""
    original = shutil.copytree(victim.log_dir, ram_path / "original")
    lost = 0
    for number in range(1, 400):
        begun_anew(victim, original)
        if not killed_at(number, lambda: recover(sample, [victim.log_dir])):
            break
        logs = {path.name: path.read_bytes() for path in victim.folder.glob("*.log")}
        for run in [path for path in quarantine_of(victim.log_dir).glob("*") if path.is_dir()]:
            for folder in [run] if is_whole_run else [path for path in run.iterdir() if path.is_dir()]:
                shutil.rmtree(folder)
                lost += 1
        recover(sample, [victim.log_dir])
        kept = b"".join(data for _, data in sorted(tree_of(victim.log_dir.parent).items()))
        for name, data in logs.items():
            cut = len((victim.folder / name).read_bytes()) if (victim.folder / name).exists() else 0
            assert data[cut:] in kept, (number, name)
    assert lost > 5
