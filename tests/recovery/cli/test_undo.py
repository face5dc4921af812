"""`undo` on the command line: what it says of the runs that are left, and how often a report asks for it."""

from __future__ import annotations

import errno
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.cli.main import main
from recovery.quantity import bytes_text, exact_bytes_text
from recovery.write.journal import Journal
from tests.logs.samples import differences, tree_of, unpack
from tests.recovery.cli.test_earlier_cuts import two_log_dirs
from tests.runs.command import arguments_of, recover, run_unheard

pytestmark = pytest.mark.long


def test_runs_that_are_left_are_named_with_the_option_that_takes_them_back(
    ram_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = unpack("crashed", ram_path)
    log_dir = sample.log_dirs[0]
    before = tree_of(log_dir)
    assert recover(sample, "--topic", "late").exit_code == 4
    in_between = tree_of(log_dir)
    assert recover(sample).exit_code == 0
    first, second = sorted(path.name for path in Path(f"{log_dir}.quarantine").iterdir())
    undo = ["undo", "--log-dirs", str(log_dir)]
    assert main([*undo, "--dry-run", "--format", "json"]) == 0
    assert [one["earlierRuns"] for one in json.loads(capsys.readouterr().out)["logDirs"]] == [[first]]
    assert main(undo) == 0
    newest, left = capsys.readouterr().out.splitlines()
    assert newest.startswith(f"{log_dir}: run {second}, ")
    assert left == (
        f"{log_dir}: 1 earlier run not taken back; this does that, too: "
        f"kafka-log-recovery undo --log-dirs {log_dir} --run {first}"
    )
    assert _lost(in_between, tree_of(log_dir)) == []
    assert main([*undo, "--run", first]) == 0
    (last,) = capsys.readouterr().out.splitlines()
    assert last.startswith(f"{log_dir}: run {first}, ")
    assert _lost(before, tree_of(log_dir)) == []


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_what_goes_is_said_beside_what_comes_back(
    ram_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """What a restore has brought in goes with its folder: a count of what comes back would hide that."""
    sample = unpack("crashed", ram_path)
    recover(sample)
    undo = ["undo", "--log-dirs", str(sample.log_dirs[0])]
    assert main([*undo, "--dry-run", "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["logDirs"]
    assert run["restoredBytes"] > 0
    assert run["logBytes"] == 0
    assert run["removedBytes"] > 0
    assert main([*undo, *more]) == 0
    soon = "to be " if more else ""
    restored, removed = bytes_text(run["restoredBytes"]), exact_bytes_text(run["removedBytes"])
    assert (
        f", 0 bytes of logs and {restored} of other files {soon}restored, {removed} of the run's own {soon}removed\n"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("options", [(), ("--keep-deleted",)])
def test_what_was_cut_is_counted_alike_by_all_commands(
    ram_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """Whole segments after the cut are in the folder still, as `.deleted`, and come back by another name."""
    sample = two_log_dirs(ram_path)
    log_dirs = ",".join(map(str, sample.log_dirs))
    recovered = recover(sample, "--format", "json", *options)
    assert recovered.exit_code == 2
    partitions = [one["partitions"] for one in json.loads(recovered.stdout)["logDirs"]]
    cut = [sum(one["truncatedBytes"] for one in of_dir) for of_dir in partitions]
    assert any(path.name.endswith(".log.deleted") for path in sample.root.rglob("*"))
    assert main(["quarantine", "list", "--log-dirs", log_dirs, "--format", "json"]) == 0
    listed = [one["runs"][0]["logBytes"] for one in json.loads(capsys.readouterr().out)["logDirs"]]
    assert cut[0] == listed[0]
    assert cut[1] < listed[1]  # there a `.swap` file has replaced a segment, which is no loss
    undo = ["undo", "--log-dirs", log_dirs]
    for more in (["--dry-run"], []):
        assert main([*undo, "--dry-run", "--format", "json"]) == 0
        runs = json.loads(capsys.readouterr().out)["logDirs"]
        assert [one["logBytes"] for one in runs] == listed
        assert main([*undo, *more]) == 0
        soon = "to be " if more else ""
        told = [
            f", {exact_bytes_text(one['logBytes'])} of logs and "
            f"{bytes_text(one['restoredBytes'] - one['logBytes'])} of other files {soon}restored, "
            for one in runs
        ]
        lines = capsys.readouterr().out.splitlines()
        assert [words in line for words, line in zip(told, lines, strict=True)] == [True] * 2, lines


def _lost(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """What is another, but for pending deletions, which go for good."""
    return [name for name in differences(before, after) if ".deleted" not in name]


@contextmanager
def failing(step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a *step* of an undo fail with an I/O error in the block."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/d/x")

    with monkeypatch.context() as patches:
        patches.setattr(f"recovery.saved.{step}", fail)
        yield


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_full_disk_is_told_with_what_was_done(
    is_begun: bool, ram_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = two_log_dirs(ram_path)
    before = tree_of(sample.root)
    assert recover(sample).exit_code == 2

    undo = ["undo", "--log-dirs", ",".join(map(str, sample.log_dirs))]
    with failing("run_undoing.stage" if is_begun else "undo.enter_undo", errno.ENOSPC, monkeypatch):
        assert main(undo) == 1
    state = "The undo is not finished: no broker may start yet" if is_begun else "Nothing was changed"
    goes_on = ", which goes on" if is_begun else ""
    assert capsys.readouterr().err == (
        f"kafka-log-recovery: /d/x: No space left on device. {state}. Remedy: make room, and start undo "
        f"again{goes_on}\n"
    )
    assert main(undo) == 0
    capsys.readouterr()
    assert differences(before, tree_of(sample.root)) == []


def test_a_report_counts_the_undos_that_its_cuts_need(
    ram_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run only drops what the first, whose report nobody has read, has called `.deleted`."""
    sample = two_log_dirs(ram_path)
    before = tree_of(sample.root)
    assert run_unheard(*arguments_of(sample))[0] == 1
    text = recover(sample, "--format", "text").stdout
    (line,) = [line for line in text.splitlines() if "kafka-log-recovery undo" in line]
    told, _, command = line.partition(": kafka-log-recovery ")
    assert told == "what was cut or replaced is kept; this puts it back"
    assert main(shlex.split(command)) == 0
    capsys.readouterr()
    assert differences(before, tree_of(sample.root)) == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_undo_that_finishes_another_one_says_so(
    ram_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    sample = two_log_dirs(ram_path)
    before = tree_of(sample.root)
    assert recover(sample).exit_code == 2

    undo = ["undo", "--log-dirs", ",".join(map(str, sample.log_dirs))]
    with failing("run_undoing.stage", errno.EIO, monkeypatch):
        assert main(undo) == 1
    capsys.readouterr()
    other = [*undo, "--run", "20200101T000000Z", "--format", form]
    for dry_run, words in (
        (["--dry-run"], "has to be finished first. Remedy: undo without --dry-run finishes it"),
        ([], "is finished. Remedy: start the same command again"),
    ):
        assert main([*other, *dry_run]) == 1
        told = capsys.readouterr()
        assert f"--run 20200101T000000Z: not taken back. The undo that was interrupted {words}" in told.err
        assert form == "text" or json.loads(told.out)["exitCode"] == 1
    assert differences(before, tree_of(sample.root)) == []
    assert main(other) == 1
    assert "no run 20200101T000000Z in " in capsys.readouterr().err


def test_an_end_that_is_not_on_disk_for_certain_is_no_undo_that_changed_nothing(
    ram_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = unpack("crashed", ram_path)
    recover(sample)
    undo = ["undo", "--log-dirs", str(sample.log_dirs[0])]
    remove = Journal.remove

    def half(journal: Journal) -> None:
        remove(journal)
        raise OSError(errno.EIO, "Input/output error", journal.path)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", half)
        assert main(undo) == 1
    said = capsys.readouterr().err
    assert "Nothing was changed" not in said
    assert ". All is put back, but a power failure now may take a part of that away. Remedy: " in said
    assert main(undo) == 0
    assert "nothing to take back" in capsys.readouterr().out
