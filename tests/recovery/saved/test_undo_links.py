"""A checkpoint that is a link becomes a file, as by a broker, and `undo` puts the link back; where it leads stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import UnsafeError
from recovery.plan.actions import action_words
from recovery.saved.purge import foreign_files
from recovery.saved.runs import check_run, list_runs
from recovery.saved.undo import undo
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.damage.mutilate import Victim
from tests.logs.samples import Sample, differences, tree_of
from tests.recovery.saved.test_undo import state_of
from tests.runs.driving import footprint, own_leftovers, quarantine_of, recover
from tests.runs.killing import killed_at

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_MTIME_NS = 1_600_000_000_123_456_789


def link(path: Path, *, is_relative: bool = True) -> Path:
    """Put a link in the place of *path*, and return where it leads."""
    elsewhere = path.parents[1] / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    target = path.rename(elsewhere / path.name)
    path.symlink_to(os.path.relpath(target, path.parent) if is_relative else target)
    os.utime(path, ns=(_MTIME_NS, _MTIME_NS), follow_symlinks=False)
    return target


@pytest.fixture
def victim(sample: Sample, ram_path: Path) -> Victim:
    """A log dir whose two checkpoints are links, and are both written by the hand-off."""
    victim = state_of(sample, "torn first segment", ram_path)
    for name, is_relative in zip(CHECKPOINTS, (True, False), strict=True):
        (victim.log_dir / name).write_text("0\n1\nlate 0 1\n")
        link(victim.log_dir / name, is_relative=is_relative)
    return victim


def times_of_links(log_dir: Path) -> list[int]:
    return [(log_dir / name).lstat().st_mtime_ns for name in CHECKPOINTS]


def begin_anew(victim: Victim, original: Path) -> None:
    for folder in (victim.log_dir, quarantine_of(victim.log_dir)):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, victim.log_dir, symlinks=True)


def run_undos(victim: Victim) -> None:
    while undo([str(victim.log_dir)])[0].run is not None:
        pass


@pytest.mark.parametrize("handoff", ["clean-shutdown", "recovery-point", "none"])
@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("run_count", [1, 2])
def test_links_come_back(
    sample: Sample, victim: Victim, handoff: str, is_far: bool, run_count: int, tmp_path: Path
) -> None:
    before, elsewhere = tree_of(victim.log_dir), victim.log_dir.parent / "elsewhere"
    targets = footprint(elsewhere)
    places: dict[str, Any] = {"quarantine_dir": str(tmp_path / "far")} if is_far else {}
    options = {"handoff": handoff, **places}
    planned = recover(sample, [victim.log_dir], dry_run=True, **options).log_dirs[0]
    done = recover(sample, [victim.log_dir], **options).log_dirs[0]
    assert planned.actions == done.actions
    for _ in range(1, run_count):
        recover(sample, [victim.log_dir], force=True, **options)
    is_written = handoff != "none"
    assert [(victim.log_dir / name).is_symlink() for name in CHECKPOINTS] == [not is_written] * 2
    expected = undo([str(victim.log_dir)], dry_run=True, **places)
    taken_back = undo([str(victim.log_dir)], **places)
    assert taken_back == expected
    words = {action_words(action) for run in taken_back for _, action in run.actions}
    assert is_written == (f"restore {CHECKPOINTS[0]} from {CHECKPOINTS[0]} in quarantine" in words)
    assert differences(before, tree_of(victim.log_dir)) == []
    assert times_of_links(victim.log_dir) == [_MTIME_NS] * 2
    assert footprint(elsewhere) == targets
    assert own_leftovers(victim.log_dir) == []
    assert not quarantine_of(victim.log_dir).exists()


@pytest.mark.long
@pytest.mark.parametrize("is_restart", [False, True])
def test_links_that_a_killed_run_has_replaced(
    sample: Sample, victim: Victim, is_restart: bool, ram_path: Path
) -> None:
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original", symlinks=True)
    for number in range(1, 400):
        begin_anew(victim, original)
        if not killed_at(number, lambda: recover(sample, [victim.log_dir], keep_deleted=True)):
            break
        recover(sample, [victim.log_dir], keep_deleted=True, restart=is_restart)
        run_undos(victim)
        assert differences(before, tree_of(victim.log_dir)) == [], number
    assert number > 30


@pytest.mark.long
@pytest.mark.parametrize("is_far", [False, True])
def test_links_that_a_killed_undo_was_to_put_back(
    sample: Sample, victim: Victim, is_far: bool, ram_path: Path, tmp_path: Path
) -> None:
    before = tree_of(victim.log_dir)
    original = shutil.copytree(victim.log_dir, ram_path / "original", symlinks=True)
    places: dict[str, Any] = {"quarantine_dir": str(tmp_path / "far")} if is_far else {}
    for number in range(1, 400):
        begin_anew(victim, original)
        recover(sample, [victim.log_dir], **places)
        if not killed_at(number, lambda: undo([str(victim.log_dir)], **places)):
            break
        while undo([str(victim.log_dir)], **places)[0].run is not None:
            pass
        assert differences(before, tree_of(victim.log_dir)) == [], number
    assert number > 20


def test_quarantine_knows_its_links(sample: Sample, victim: Victim) -> None:
    recover(sample, [victim.log_dir])
    (run,) = list_runs(str(quarantine_of(victim.log_dir)))
    assert check_run(run) == []
    assert foreign_files(run) == []
    links = {entry.file: entry.link for entry in run.manifest.entries if entry.link is not None}
    assert links[CHECKPOINTS[0]] == f"../elsewhere/{CHECKPOINTS[0]}"
    assert set(links) == set(CHECKPOINTS)


def test_a_pending_deletion_that_is_a_link_comes_back(sample: Sample, victim: Victim) -> None:
    path = victim.folder / "00000000000000000000.log.deleted"
    path.write_bytes(b"pending")
    link(path)
    before = tree_of(victim.log_dir)
    for _ in range(2):
        recover(sample, [victim.log_dir], keep_deleted=True, force=True)
    run_undos(victim)
    assert differences(before, tree_of(victim.log_dir)) == []


def put_elsewhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def put_a_file(path: Path) -> None:
    path.unlink()
    path.write_text("0\n0\n")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put_elsewhere, f"leads to /etc/passwd instead of ../elsewhere/{CHECKPOINTS[0]}"),
        (put_a_file, "not a link"),
        (Path.unlink, "No such file or directory"),
    ],
)
def test_another_link_in_quarantine_is_not_put_back(
    sample: Sample, victim: Victim, change: Callable[[Path], None], told: str
) -> None:
    recover(sample, [victim.log_dir])
    (folder,) = quarantine_of(victim.log_dir).glob("*/log-dir")
    change(stored := folder / CHECKPOINTS[0])
    recovered = tree_of(victim.log_dir)
    with pytest.raises(UnsafeError, match=f"{stored}: {told}. Nothing was changed"):
        undo([str(victim.log_dir)])
    assert tree_of(victim.log_dir) == recovered
    (run,) = list_runs(str(quarantine_of(victim.log_dir)))
    assert len(check_run(run)) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Path.unlink, "is no file any more"),
        (lambda path: path.write_text("0\n0\n"), "has changed since"),
    ],
)
def test_a_link_that_no_longer_leads_to_what_it_did_is_not_put_back(
    sample: Sample, victim: Victim, change: Callable[[Path], object], told: str
) -> None:
    before = tree_of(victim.log_dir)
    recover(sample, [victim.log_dir])
    target = victim.log_dir.parent / "elsewhere" / CHECKPOINTS[0]
    recovered, kept = tree_of(victim.log_dir), shutil.copy2(target, target.with_name("kept"))
    change(target)
    with pytest.raises(UnsafeError, match=f"{told}. Nothing was changed. Remedy: put that back"):
        undo([str(victim.log_dir)])
    assert tree_of(victim.log_dir) == recovered
    kept.rename(target)  # the remedy
    undo([str(victim.log_dir)])
    assert differences(before, tree_of(victim.log_dir)) == []
