"""Counts on standard error of commands that have no logs to recover."""

from __future__ import annotations

import io
import itertools
import json
import os
import pty
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.describe.api import describe_log_dirs
from recovery.engine.api import recover
from recovery.forecast.api import estimate
from recovery.saved.purge import purge, runs_of
from recovery.saved.runs import check_run
from recovery.saved.undo import undo
from recovery.watch import tally as tally_module
from recovery.watch.tally import Count, Tally, open_tally
from tests.logs.samples import Sample, unpack


def counting(counts: list[Count]) -> Tally:
    """Return a tally that shows each count to *counts*: two seconds pass between any two of them."""
    seconds = itertools.count(step=2.0)
    return Tally("Counting", "sheep", counts.append, monotonic_s=lambda: next(seconds))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every count be shown."""
    monkeypatch.setattr(tally_module, "_FIRST_S", 0.0)
    monkeypatch.setattr(tally_module, "_INTERVALS_S", {"bar": 0.0, "log": 0.0, "json": 0.0})


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "text"),
    [
        (1234, None, 9.0, "Counting: 1,234 sheep"),
        (1, 4, 1.0, "Counting: 1 of 4 sheep (25 %)"),
        (10, 40, 10.0, "Counting: 10 of 40 sheep (25 %), about 30s left"),
        (0, 40, 10.0, "Counting: 0 of 40 sheep (0 %)"),
        (0, 0, 10.0, "Counting: 0 of 0 sheep"),
    ],
)
def test_what_is_left_is_foretold_from_some_work(
    done: int, total: int | None, elapsed_s: float, text: str
) -> None:
    count = Count(doing="Counting", noun="sheep", done=done, total=total, elapsed_s=elapsed_s)
    assert count.to_text() == text


def test_who_is_quick_says_nothing() -> None:
    counts: list[Count] = []
    seconds = iter((0.0, 0.9, 1.0, 1.5, 2.0))
    tally = Tally("Counting", "sheep", counts.append, monotonic_s=lambda: next(seconds))
    tally.expect(3)
    tally.expect(1)
    for _ in range(4):
        tally.add()
    assert [(one.done, one.total) for one in counts] == [(2, 4), (4, 4)]


@pytest.mark.usefixtures("at_once")
def test_log_lines() -> None:
    stream = io.StringIO()
    with open_tally("log", "Counting \x1b", "sheep", stream) as tally:
        tally.add(5)
    assert stream.getvalue().endswith("] INFO Counting \\x1b: 5 sheep\n")


@pytest.mark.usefixtures("at_once")
def test_json_lines() -> None:
    stream = io.StringIO()
    with open_tally("json", "Counting", "sheep", stream) as tally:
        tally.expect(10)
        tally.add(5)
    line = json.loads(stream.getvalue())
    assert line.pop("now_ms") > 0
    assert line == {
        "version": 1,
        "event": "Count",
        "doing": "Counting",
        "noun": "sheep",
        "done": 5,
        "total": 10,
        "eta_seconds": None,
    }


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("progress", ["none", "auto"])
def test_no_progress_and_a_pipe(progress: str) -> None:
    stream = io.StringIO()
    with open_tally(progress, "Counting", "sheep", stream) as tally:
        tally.add(5)
    assert stream.getvalue().count("\n") == (progress == "auto")


@pytest.fixture
def terminal() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """What is read of a terminal of 20 columns, and what is written to it."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        termios.tcsetwinsize(theirs, (5, 20))
        yield ours, stream
    os.close(ours)


@pytest.mark.usefixtures("at_once")
def test_a_line_of_a_terminal(
    terminal: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, stream = terminal
    with open_tally("auto", "Counting", "black sheep", stream) as tally:
        tally.add(5)
        tally.add(5)
    expected = "\r\x1b[KCounting: 5 black s\r\x1b[KCounting: 10 black \r\x1b[K"
    shown = ""
    while len(shown) < len(expected):
        shown += os.read(ours, 1000).decode()
    assert shown == expected


@pytest.mark.usefixtures("at_once")
def test_a_stream_that_is_gone_does_not_matter() -> None:
    stream = io.StringIO()
    stream.close()
    with open_tally("log", "Counting", "sheep", stream) as tally:
        tally.add()


@pytest.fixture
def recovered(tmp_path: Path) -> Sample:
    sample = unpack("crashed", tmp_path)
    recover(None, config=sample.properties, now_ms=sample.now_ms)
    return sample


def test_undo_counts_what_it_takes_back(recovered: Sample) -> None:
    counts: list[Count] = []
    undone = undo(list(map(str, recovered.log_dirs)), tally=counting(counts))
    assert sum(len(one.partitions) for one in undone) > 0
    assert [one.done for one in counts] == list(range(1, len(counts) + 1))
    assert counts[-1].done == counts[-1].total


def test_verify_and_purge_count_files(recovered: Sample) -> None:
    log_dirs = list(map(str, recovered.log_dirs))
    runs = [run for log_dir in log_dirs for run in runs_of(log_dir, None)]
    counts: list[Count] = []
    tally = counting(counts)
    for run in runs:
        check_run(run, tally)
    assert counts[-1].done == sum(len(run.counted) for run in runs) > 0
    counts = []
    purge(log_dirs, None, lambda _: True, tally=counting(counts))
    assert counts[-1].done == counts[-1].total == sum(len(run.files) for run in runs)


def test_an_inventory_counts_segments(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    counts: list[Count] = []
    report = inventory(ArchiveOptions(url=str(sample.log_dirs[0])), tally=counting(counts))
    assert counts[-1].done == sum(topic.segments for topic in report.topics.values()) > 0


def test_an_estimate_counts_logs(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    counts: list[Count] = []
    report = estimate(None, config=sample.properties, sample_bytes=0, tally=counting(counts))
    assert counts[-1].done == counts[-1].total == sum(one.log_count for one in report.log_dirs) > 0


def test_log_dirs_count_folders_and_active_segments(tmp_path: Path) -> None:
    sample = unpack("stopped", tmp_path)
    counts: list[Count] = []
    report = describe_log_dirs(config=sample.properties, tally=counting(counts))
    folders = sum(path.is_dir() for log_dir in sample.log_dirs for path in log_dir.iterdir())
    assert counts[folders - 1].done == folders
    replicas = sum(len(one.replicas) for one in report.log_dirs)
    assert counts[-1].done == counts[-1].total == folders + replicas
    assert replicas > 0
