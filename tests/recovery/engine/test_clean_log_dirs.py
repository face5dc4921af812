"""A clean log dir of which a part is left alone stays clean: else a broker would recover that part, and cut it."""

from __future__ import annotations

import errno
import re
import shlex
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import UnsafeError
from recovery.plan.commit import Commit
from recovery.saved.undo import undo
from recovery.write.apply import stage
from recovery.write.journal import Journal
from tests.logs.samples import MARKER, differences, tree_of
from tests.recovery.engine.test_engine import RECOVERY_POINTS, damaged, log_dir, run
from tests.recovery.load.memory import name
from tests.recovery.load.test_partition import three_segments
from tests.runs.driving import footprint, quarantine_of
from tests.runs.killing import killed_at

CHOICE = {"topics": ("t",)}


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A clean log dir: t-0 lacks an index, and u-0 is damaged where only a recovery would look."""
    one = log_dir(tmp_path / "d1", t_0=three_segments(), u_0=three_segments())
    run(one)
    (one / "u-0" / name(10)).write_bytes(damaged()[name(10)])
    (one / RECOVERY_POINTS).write_text("0\n2\nt 0 30\nu 0 0\n")
    (one / "t-0" / name(10, ".index")).unlink()
    return one


def refuse(one: Path) -> None:
    """Let u-0 be refused."""
    (one / "u-0" / "leader-epoch-checkpoint").write_text("0\n5\ngarbage\n")


@pytest.mark.parametrize("handoff", ["clean-shutdown", "recovery-point", "none"])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("choice", [{}, CHOICE])
def test_the_marker_is_there_again(clean: Path, choice: dict[str, Any], force: bool, handoff: str) -> None:
    if not choice:
        refuse(clean)
    options = {**choice, "force": force, "handoff": handoff}
    before, left_alone = tree_of(clean), footprint(clean / "u-0")
    planned = run(clean, dry_run=True, **options)
    assert tree_of(clean) == before
    done = run(clean, **options)
    words = "skip recovery here" if choice else "marker stays, but a broker may halt on what is refused"
    for report in (planned, done):
        assert report.exit_code == (0 if choice else 4)
        assert [(one.status, one.had_clean_shutdown, one.marker) for one in report.log_dirs] == [
            ("recovered" if choice else "partial", True, True)
        ]
        assert words in report.to_text()
        if choice:
            assert "1 log not chosen: not checked, and left as it was" in report.to_text()
    assert (clean / MARKER).exists()
    assert (clean / "t-0" / name(10, ".index")).exists()
    assert footprint(clean / "u-0") == left_alone
    again = run(clean)
    assert again.log_dirs[0].had_clean_shutdown
    assert not any(partition.cuts for partition in again.partitions)
    assert footprint(clean / "u-0") == left_alone


@pytest.mark.parametrize("options", [{"handoff": "none"}, {"handoff": "recovery-point"}])
def test_where_all_is_recovered_it_goes_if_that_is_asked_for(clean: Path, options: dict[str, str]) -> None:
    for report in (run(clean, dry_run=True, **options), run(clean, **options)):
        assert report.log_dirs[0].had_clean_shutdown
        assert not report.log_dirs[0].marker
    assert not (clean / MARKER).exists()


@pytest.mark.parametrize("options", [{}, CHOICE, {"force": True}])
def test_in_an_unclean_log_dir_a_dry_run_ends_as_the_real_one(clean: Path, options: dict[str, Any]) -> None:
    (clean / MARKER).unlink()
    refuse(clean)
    planned, done = run(clean, dry_run=True, **options), run(clean, **options)
    assert planned.exit_code == done.exit_code == 4
    assert [one.status for one in planned.log_dirs] == [one.status for one in done.log_dirs] == ["partial"]
    assert not (clean / MARKER).exists()


@pytest.mark.parametrize("choice", [{}, CHOICE])
def test_a_killed_run_is_not_forgotten(clean: Path, choice: dict[str, Any], tmp_path: Path) -> None:
    """Begun anew, the log dir would be an unclean one."""
    left_alone, elsewhere, refused_count = footprint(clean / "u-0"), str(tmp_path / "elsewhere"), 0
    index = clean / "t-0" / name(10, ".index")
    for number in count(1):
        index.unlink(missing_ok=True)
        was_killed = killed_at(number, lambda: run(clean, **choice))
        if not (clean / MARKER).exists():
            refused_count += 1
            with pytest.raises(
                UnsafeError, match="start again without --quarantine-dir and without --restart"
            ):
                run(clean, restart=True, **choice)
            for dry_run in (True, False):
                with pytest.raises(
                    UnsafeError, match="add --force to begin anew, as after an unclean shutdown"
                ):
                    run(clean, quarantine_dir=elsewhere, dry_run=dry_run, **choice)
        elif was_killed:
            assert run(clean, restart=True, **choice).exit_code == 0
        report = run(clean, **choice)
        assert report.exit_code == 0
        assert report.log_dirs[0].marker
        assert (clean / MARKER).exists()
        assert footprint(clean / "u-0") == left_alone
        if not was_killed:
            break
    assert refused_count > 3


def test_a_run_with_another_quarantine_is_told_where_to_go_on(clean: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "one place")
    number = next(
        number
        for number in count(1)
        if killed_at(number, lambda: run(clean, quarantine_dir=place)) and not (clean / MARKER).exists()
    )
    assert number > 1
    with pytest.raises(
        UnsafeError, match=f"start again with --quarantine-dir '{place}' and without --restart"
    ):
        run(clean, quarantine_dir=place, restart=True)
    assert run(clean, quarantine_dir=place).exit_code == 0
    assert (clean / MARKER).exists()


def test_begun_anew_by_force_the_marker_is_kept_and_its_run_is_named(clean: Path) -> None:
    before = tree_of(clean)
    without_marker(clean)
    report = run(clean, restart=True, force=True)
    assert report.exit_code == 2
    assert {one.folder for one in report.partitions if one.cuts} == {"u-0"}
    first = undo([str(clean)])
    assert not (clean / MARKER).exists()
    undo([str(clean)], run=first[-1].earlier_runs[0])
    assert differences(before, tree_of(clean)) == []


def without_marker(clean: Path) -> None:
    """Leave the log dir as a run does that is killed once it has taken the marker."""
    numbers = count(1)
    while (clean / MARKER).exists():
        assert killed_at(next(numbers), lambda: run(clean))


def test_a_foreign_file_in_a_log_does_not_keep_a_run_from_going_on(clean: Path) -> None:
    left_alone = footprint(clean / "u-0")
    without_marker(clean)
    (clean / "u-0" / "NOTE").write_text("by hand")
    report = run(clean)
    assert (report.exit_code, report.log_dirs[0].marker) == (0, True)
    (clean / "u-0" / "NOTE").unlink()
    assert (
        footprint(clean / "u-0").items()
        >= {key: value for key, value in left_alone.items() if key != "."}.items()
    )


@pytest.mark.parametrize("change", ["metadata", "copy"])
def test_what_cannot_go_on_does_not_cut_what_was_clean(clean: Path, change: str) -> None:
    """The words name what to type; with the marker back, nothing is cut."""
    log = clean / "u-0" / name(10)
    before = log.read_bytes()
    without_marker(clean)
    if change == "copy":
        for path in (clean, quarantine_of(clean)):
            shutil.copytree(path, path.with_name("copied"))
            shutil.rmtree(path)
            path.with_name("copied").rename(path)
    else:
        (clean / "u-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    for dry_run in (True, False):
        with pytest.raises(UnsafeError, match="it was clean before the run that was interrupted") as refused:
            run(clean, dry_run=dry_run)
    command = re.search(r"(cp -p \S+ \S+), and start again", str(refused.value))
    assert command is not None, str(refused.value)
    subprocess.run(shlex.split(command[1]), check=True)
    report = run(clean)
    assert (report.exit_code, report.log_dirs[0].marker) == (0, True)
    assert log.read_bytes() == before


def test_what_was_removed_before_an_error_is_told(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's own pending deletions come first, without a commit: the next run does not find them."""

    def full(folder: str, *arguments: Any, **options: Any) -> Commit:
        if folder.endswith("/t-0"):
            raise OSError(28, "No space left on device")
        return stage(folder, *arguments, **options)

    (clean / "t-0" / f"{name(0)}.deleted").write_bytes(b"12345")
    with monkeypatch.context() as patch:
        patch.setattr("recovery.write.apply.stage", full)
        failed = run(clean)
    assert failed.log_dirs[0].status == "offline"
    assert "1 .deleted file (5 B) removed" in failed.to_text()
    assert not (clean / "t-0" / f"{name(0)}.deleted").exists()
    assert ".deleted" not in run(clean).to_text()


def test_an_offline_log_dir_says_that_it_was_clean(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("recovery.engine.log_dir_run.write_handoff", full)
    report = run(clean)
    assert report.exit_code == 1
    assert not (clean / MARKER).exists()
    assert [(one.status, one.had_clean_shutdown, one.marker) for one in report.log_dirs] == [
        ("offline", True, False)
    ]
    assert "its clean-shutdown marker is gone until this is finished" in report.to_text()
    monkeypatch.undo()
    assert run(clean).exit_code == 0
    assert (clean / MARKER).exists()


def test_without_a_journal_it_is_left_as_it_is(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run would take it for one that was not clean, and cut u-0."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "journal")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "create", full)
        before = tree_of(clean)
        report = run(clean)
    assert [(one.status, one.marker) for one in report.log_dirs] == [("offline", True)]
    assert "No space left on device" in report.to_text()
    assert "begins anew" not in report.to_text()
    assert tree_of(clean) == before
    assert [one.losses for one in run(clean).partitions] == [(), ()]
