"""The ledger of cuts that nobody was told of: half of them made, killed at any call, and gone at the end."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest import mock

import pytest

from recovery.engine.cut_ledger import CutLedger, acknowledge, forget_run, untold
from recovery.engine.report import CUT_LEDGER, EarlierCut, LogDirReport, PartitionReport, RecoveryReport
from recovery.load.model import Cut, Hole
from recovery.problem import Note
from recovery.read.file_system import OddFileError
from tests.runs.driving import own_leftovers
from tests.runs.killing import killed_at

FIRST = Cut(
    file="00.log", base_offset=0, position=60, size_bytes=40, batch_count=1, rule="torn-batch", reason="torn"
)
SECOND = Cut(
    file="10.log",
    base_offset=10,
    position=0,
    size_bytes=100,
    batch_count=2,
    rule="after-cut",
    reason="behind a cut",
)

HOLE = Hole(first_offset=4, last_offset=9, before=SECOND.file)


@pytest.fixture
def log_dir(ram_path: Path) -> Path:
    """With a partition of two segments, both whole."""
    folder = ram_path / "d" / "t-0"
    folder.mkdir(parents=True)
    for cut in (FIRST, SECOND):
        (folder / cut.file).write_bytes(bytes(100))
    return folder.parent


def report_of(log_dir: Path, *cuts: Cut, run: str = "1") -> PartitionReport:
    return PartitionReport(
        log_dir=str(log_dir),
        folder="t-0",
        topic="t",
        partition=0,
        status="truncated",
        cuts=cuts,
        quarantined=(f"/quarantine/{run}/t-0/10.log",) if cuts else (),
    )


def entered(log_dir: Path) -> list[tuple[Cut, ...]]:
    return [one.cuts for one in CutLedger(str(log_dir)).entries()]


def settled(log_dir: Path) -> list[tuple[Cut, ...]]:
    return [one.cuts for one in CutLedger(str(log_dir)).settle()]


def test_of_a_cut_that_was_half_made_half_is_told(log_dir: Path) -> None:
    ledger = CutLedger(str(log_dir))
    ledger.add(report_of(log_dir, FIRST, SECOND))
    (log_dir / "t-0" / SECOND.file).unlink()
    assert [one.cuts for one in ledger.settle(dry_run=True)] == [(SECOND,)]
    assert entered(log_dir) == [(FIRST, SECOND)]
    assert settled(log_dir) == [(SECOND,)]
    assert entered(log_dir) == [(SECOND,)]


def test_the_run_that_goes_on_enters_the_other_half(log_dir: Path) -> None:
    ledger = CutLedger(str(log_dir))
    ledger.add(report_of(log_dir, FIRST, SECOND))
    (log_dir / "t-0" / SECOND.file).unlink()
    ledger.settle()
    for _ in range(2):
        ledger.add(report_of(log_dir, FIRST, SECOND))
        assert entered(log_dir) == [(SECOND,), (FIRST,)]
    ledger.note_made(report_of(log_dir, FIRST, SECOND))
    assert settled(log_dir) == [(SECOND,), (FIRST,)]


def test_another_run_that_cuts_the_same_again_enters_it(log_dir: Path) -> None:
    ledger = CutLedger(str(log_dir))
    for run in ("1", "2"):
        ledger.add(report_of(log_dir, FIRST, run=run))
        ledger.note_made(report_of(log_dir, FIRST, run=run))
    assert settled(log_dir) == [(FIRST,), (FIRST,)]


def test_what_is_missing_is_entered_once_and_stays_until_it_is_told(log_dir: Path) -> None:
    ledger, report = CutLedger(str(log_dir)), replace(report_of(log_dir), holes=(HOLE,))
    for run in ("/quarantine/1", None):
        ledger.add_holes([report_of(log_dir), report], run)
    (entry,) = ledger.settle()
    assert (entry.partition, entry.cuts, entry.holes, entry.quarantine) == (
        "t-0",
        (),
        (HOLE,),
        "/quarantine/1",
    )
    assert "offsets 4 to 9 are missing before 10.log" in str(entry)
    assert untold((entry,), [report]) == ()
    assert untold((entry,), [replace(report, holes=(replace(HOLE, last_offset=8),))]) == (entry,)
    ledger.add(report_of(log_dir, FIRST))
    (left,) = ledger.settle()
    assert left == entry
    forget_run(str(log_dir), "/quarantine", "1")
    assert own_leftovers(log_dir) == []


def test_of_two_runs_of_one_second_the_one_that_is_taken_back_is_forgotten(
    log_dir: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (tmp_path / "link").symlink_to(here)
    ledger = CutLedger(str(log_dir))
    for place in (here, there):
        place.mkdir()
        report = report_of(log_dir, FIRST)
        ledger.add(replace(report, quarantined=(f"{place}/1/t-0/00.log.from-60",)))
        ledger.note_made(report)
    forget_run(str(log_dir), str(tmp_path / "link"), "1")
    assert [one.quarantine for one in ledger.entries()] == [f"{there}/1"]


def test_what_was_not_cut_is_struck_out(log_dir: Path) -> None:
    CutLedger(str(log_dir)).add(report_of(log_dir, FIRST, SECOND))
    assert settled(log_dir) == []
    assert own_leftovers(log_dir) == []


def test_what_was_moved_away_is_told_though_a_recovery_makes_it_anew(log_dir: Path) -> None:
    """The kill came behind the move; one before it leaves the file, and nothing to tell."""
    ledger, name = CutLedger(str(log_dir)), f"t-0/{FIRST.file}"
    ledger.add_move(name, "malformed", "/quarantine")
    assert ledger.moves() == ()
    assert settled(log_dir) == []
    assert own_leftovers(log_dir) == []
    ledger.add_move(name, "malformed", "/quarantine")
    (log_dir / name).unlink()
    ledger.settle()
    (log_dir / name).write_bytes(b"made anew")
    (move,) = ledger.moves()
    assert str(move).startswith(f"{name}: moved to ")
    ledger.forget_moves(["t-0/other"])
    assert ledger.moves() == (move,)
    ledger.forget_moves([name])
    assert not (log_dir / CUT_LEDGER).exists()


SWAPPED = Cut(
    file="10.log.swap",
    base_offset=10,
    position=60,
    size_bytes=40,
    batch_count=0,
    rule="torn-batch",
    reason="torn",
)
REPLACED = Cut(
    file="10.log",
    base_offset=10,
    position=60,
    size_bytes=40,
    batch_count=2,
    rule="replaced",
    reason="replaced",
)


def test_a_swap_that_is_live_and_not_yet_cut_is_told_by_its_inode(log_dir: Path) -> None:
    swap, log = (log_dir / "t-0" / cut.file for cut in (SWAPPED, REPLACED))
    swap.write_bytes(bytes(100))
    CutLedger(str(log_dir)).add(report_of(log_dir, SWAPPED, REPLACED))
    dry = [one.cuts for one in CutLedger(str(log_dir)).settle(dry_run=True)]
    assert dry == []
    swap.rename(log)
    assert settled(log_dir) == [(REPLACED,)]  # though what lies there is as long as what was replaced


def test_a_swap_that_was_moved_away_was_cut_though_the_log_is_as_long(log_dir: Path) -> None:
    swap = log_dir / "t-0" / SWAPPED.file
    swap.write_bytes(bytes(100))
    CutLedger(str(log_dir)).add(report_of(log_dir, SWAPPED))
    swap.unlink()
    assert settled(log_dir) == [(SWAPPED,)]


def test_without_inodes_the_length_tells(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.engine.cut_ledger.keeps_inodes", lambda path: False)
    swap = log_dir / "t-0" / SWAPPED.file
    swap.write_bytes(bytes(100))
    CutLedger(str(log_dir)).add(report_of(log_dir, SWAPPED))
    swap.rename(swap.with_suffix(""))
    assert settled(log_dir) == []


@pytest.mark.parametrize("data", [b"", b'{"ver', b'{"version": 1, "partition": "t', bytes(40)])
def test_one_that_a_kill_has_left_empty_or_torn_goes(log_dir: Path, data: bytes) -> None:
    (log_dir / CUT_LEDGER).write_bytes(data)
    assert settled(log_dir) == []
    assert own_leftovers(log_dir) == []


def test_a_report_tells_of_what_it_has_cut_itself(log_dir: Path) -> None:
    entry = EarlierCut(
        partition="t-0", time_ms=1, quarantine="/quarantine/1", cuts=(FIRST, SECOND), is_made=True
    )
    unknown = replace(entry, partition="", cuts=())
    assert untold((entry, unknown), [report_of(log_dir, SECOND)]) == (replace(entry, cuts=(FIRST,)), unknown)
    assert untold((entry,), [report_of(log_dir, FIRST, SECOND)]) == ()
    assert untold((entry,), [report_of(log_dir, FIRST, SECOND, run="2")]) == (
        entry,
    )  # as much of other records


def test_of_a_file_with_holes_the_whole_size_tells(log_dir: Path) -> None:
    scattered = replace(FIRST, size_bytes=20, is_scattered=True)
    CutLedger(str(log_dir)).add(report_of(log_dir, scattered))
    assert CutLedger(str(log_dir)).settle(dry_run=True) == ()
    os.truncate(log_dir / "t-0" / scattered.file, 80)
    assert settled(log_dir) == [(scattered,)]


def _forgotten(ledger: CutLedger) -> None:
    ledger.forget(ledger.entries()[:1])


@pytest.mark.parametrize("change", [CutLedger.settle, _forgotten])
def test_killed_at_any_call(log_dir: Path, change: Callable[[CutLedger], object]) -> None:
    for number in count(1):
        ledger = CutLedger(str(log_dir))
        (log_dir / "t-0" / SECOND.file).unlink(missing_ok=True)
        ledger.add(report_of(log_dir, FIRST))
        ledger.add(report_of(log_dir, SECOND, run="2"))
        before = entered(log_dir)
        was_killed = killed_at(number, lambda: change(CutLedger(str(log_dir))))
        assert entered(log_dir) in (before, [(SECOND,)])
        ledger.forget(ledger.entries())
        assert own_leftovers(log_dir) == []
        if not was_killed:
            break
    assert number > 3
    assert os.listdir(log_dir) == ["t-0"]


def test_a_folder_in_the_place_of_its_temporary_file_has_a_remedy(log_dir: Path) -> None:
    place = log_dir / f"{CUT_LEDGER}.recovery-tmp"
    place.mkdir()
    for change in (CutLedger(str(log_dir)).settle, lambda: _forgotten(CutLedger(str(log_dir)))):
        with pytest.raises(OddFileError) as raised:
            change()
        assert str(raised.value) == f"{place}: a folder, where a file is needed. Remedy: move it away"


@pytest.mark.parametrize("change", [b'"time_ms": 1' + b"0" * 23, b'"time_ms": -1', b'"size_bytes": -40'])
def test_figures_that_cannot_be_are_those_of_a_line_that_cannot_be_read(log_dir: Path, change: bytes) -> None:
    ledger, path = CutLedger(str(log_dir)), log_dir / CUT_LEDGER
    ledger.add(report_of(log_dir, FIRST))
    name = change.partition(b":")[0]
    path.write_bytes(re.sub(name + rb": \d+", change, path.read_bytes()))
    (entry,) = ledger.settle()
    assert entry.partition == ""
    assert "can be read" in str(entry)


@pytest.mark.parametrize("end", [b"", b"\n", b"\nxx\nxx"])
def test_what_is_not_its_own_is_one_cut_of_which_nothing_is_known(log_dir: Path, end: bytes) -> None:
    ledger, path = CutLedger(str(log_dir)), log_dir / CUT_LEDGER
    ledger.add(report_of(log_dir, FIRST))
    path.write_bytes(path.read_bytes() + b"x" * 500 + end)
    own, unknown = ledger.entries()
    assert (own.cuts, unknown.partition) == ((FIRST,), "")


def test_where_nothing_is_cut_the_file_is_not_read(log_dir: Path) -> None:
    (log_dir / CUT_LEDGER).mkdir()
    CutLedger(str(log_dir)).add(report_of(log_dir))


def test_a_torn_line_is_cut_off_and_nothing_else(log_dir: Path) -> None:
    ledger = CutLedger(str(log_dir))
    ledger.add(report_of(log_dir, FIRST))
    path = log_dir / CUT_LEDGER
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])
    CutLedger(str(log_dir)).add(report_of(log_dir, SECOND))
    assert path.read_bytes().startswith(whole)
    assert entered(log_dir) == [(FIRST,), (SECOND,)]


def test_only_a_move_that_a_report_names_is_forgotten(log_dir: Path) -> None:
    ledger = CutLedger(str(log_dir))
    for name in ("told", "noted", "not told"):
        ledger.add_move(name, "in the way", "/quarantine")
        ledger.note_moved(name)
    (told, noted, _) = ledger.moves()
    report = LogDirReport(
        log_dir=str(log_dir),
        status="recovered",
        had_clean_shutdown=False,
        marker=True,
        partitions=(),
        repairs=(told.line,),
        notes=(Note(text=str(noted)),),
    )
    whole = mock.Mock(spec=RecoveryReport, dry_run=False, signal_exit_code=None, log_dirs=(report,))
    acknowledge(whole, is_locked=True)
    assert [move.path for move in ledger.moves()] == ["not told"]
