"""What a copy tells its observers while it goes on: bytes of those to do, and what fails when it does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from recovery.errors import UsageError
from recovery.stop_request import StopRequest
from recovery.watch.events import (
    BytesScanned,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    PartitionChecked,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.gauges import Gauges
from tests.faults.bad_sector import bad_sector
from tests.logs.samples import Sample, unpack
from tests.runs.command import run

LARGE_BYTES = 3 << 20


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = unpack("crashed", tmp_path)
    (sample.log_dirs[0] / "big-0").mkdir()
    (sample.log_dirs[0] / "big-0" / f"{0:020}.log").write_bytes(bytes(range(1, 129)) * (LARGE_BYTES // 128))
    return sample


def observed(sample: Sample, output: Path, stop: StopRequest | None = None, **more: object) -> list[Event]:
    events: list[Event] = []
    log_dirs = tuple(map(str, sample.log_dirs))
    copy(CopyOptions(output=str(output), log_dirs=log_dirs, **more), observers=[events.append], stop=stop)  # type: ignore[arg-type]  # by name
    return events


def of(kind: type[Event], events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


def gauges_after(events: list[Event]) -> Gauges:
    gauges = Gauges()
    for event in events:
        gauges(event)
    return gauges


def sizes(log_dir: Path) -> list[int]:
    return [path.stat().st_size for path in log_dir.rglob("*") if path.is_file() and path.name != ".lock"]


def test_all_bytes_are_told_of_and_all_logs(sample: Sample, tmp_path: Path) -> None:
    events = observed(sample, tmp_path / "copy")
    first, *_, last = events
    assert isinstance(first, RunStarted)
    assert (first.command, first.log_dirs) == ("archive copy", tuple(map(str, sample.log_dirs)))
    assert isinstance(last, RunFinished)
    assert last.exit_code == 0
    started = {event.log_dir: event for event in events if isinstance(event, LogDirStarted)}
    read = dict.fromkeys(started, 0)
    for event in events:
        if isinstance(event, BytesScanned):
            read[event.log_dir] += event.scanned_bytes
    for log_dir in sample.log_dirs:
        assert read[str(log_dir)] == started[str(log_dir)].bytes_total == sum(sizes(log_dir))
        folders = [path for path in log_dir.iterdir() if path.is_dir() and sizes(path)]
        assert started[str(log_dir)].log_count == len(folders)
        assert started[str(log_dir)].segment_count == len(list(log_dir.glob("*/*.log")))
    checked = {(one.log_dir, one.partition) for one in events if isinstance(one, PartitionChecked)}
    begun = {(one.log_dir, one.partition) for one in events if isinstance(one, PartitionStarted)}
    assert begun - checked == {(str(log_dir), "") for log_dir in sample.log_dirs}
    values = gauges_after(events).values()
    assert values.state == "complete"
    for one in values.log_dirs:
        assert (one.remaining_bytes, one.finished_logs, one.is_finished) == (0, one.log_count, True)


def test_the_bar_counts_what_is_read_before_a_log_is_done(sample: Sample, tmp_path: Path) -> None:
    events = observed(sample, tmp_path / "copy", threads=1)
    positions = [
        at
        for at, event in enumerate(events)
        if isinstance(event, BytesScanned) and event.partition == "big-0"
    ]
    assert len(positions) == 3
    left = [gauges_after(events[: at + 1]).values().log_dirs[0].remaining_bytes for at in positions]
    assert [left[0] - left[1], left[1] - left[2]] == [1 << 20, 1 << 20]


def test_what_is_there_already_is_told_and_not_counted(sample: Sample, tmp_path: Path) -> None:
    observed(sample, tmp_path / "copy")
    with (sample.log_dirs[0] / "big-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"more")
    events = observed(sample, tmp_path / "copy")
    first, second = of(LogDirStarted, events)
    assert isinstance(first, LogDirStarted)
    assert isinstance(second, LogDirStarted)
    assert (first.log_count, first.bytes_total) == (1, LARGE_BYTES + 4)
    assert (second.log_count, second.bytes_total) == (0, 0)
    told = [event.text for event in events if isinstance(event, Remark)]
    assert len(told) == 2
    assert told[0].startswith(f"{len(sizes(sample.log_dirs[0])) - 1} files, ")
    assert all(text.endswith("are there already") for text in told)


def test_a_failure_is_told_when_it_happens(sample: Sample, tmp_path: Path) -> None:
    large = sample.log_dirs[0] / "big-0" / f"{0:020}.log"
    with bad_sector(large, 2 << 20):
        events = observed(sample, tmp_path / "copy", threads=1)
    (at,) = [at for at, event in enumerate(events) if isinstance(event, Remark) and event.level == "error"]
    remark = events[at]
    assert isinstance(remark, Remark)
    assert (remark.log_dir, remark.partition) == (str(sample.log_dirs[0]), "big-0")
    assert remark.text.startswith(f"NOT COPIED {large} from position {2 << 20} on")
    checked = events[at + 1]
    assert isinstance(checked, PartitionChecked)
    assert (checked.partition, checked.finding_count) == ("big-0", 1)
    assert [isinstance(event, PartitionChecked) for event in events[at + 2 :]].count(True)
    values = gauges_after(events).values()
    assert (values.state, values.log_dirs[0].partitions["damaged"]) == ("incomplete", 1)
    assert values.log_dirs[0].remaining_bytes == 0


def test_an_interrupted_run_says_so(sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, real = StopRequest(), LocalStore.send

    def send(self: LocalStore, key: str, *arguments: object, part_key: Callable[[], str]) -> str:
        stop.request(2)
        return real(self, key, *arguments, part_key=part_key)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(LocalStore, "send", send)
    events = observed(sample, tmp_path / "copy", stop)
    assert events[-1] == RunFinished(
        exit_code=130, now_ms=events[-1].now_ms, monotonic_s=events[-1].monotonic_s
    )
    assert of(LogDirFinished, events) == []


def test_an_error_ends_the_run_of_the_observers_too(sample: Sample, tmp_path: Path) -> None:
    events: list[Event] = []
    log_dirs = tuple(map(str, sample.log_dirs))
    given = CopyOptions(output=str(tmp_path / "copy"), log_dirs=log_dirs, topics=("nosuch",))
    with pytest.raises(UsageError):
        copy(given, observers=[events.append])
    assert [event.exit_code for event in events if isinstance(event, RunFinished)] == [1]


def test_a_log_dir_that_cannot_be_listed_is_offline(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    real, lost = os.scandir, str(sample.log_dirs[0])

    def scandir(path: str) -> object:
        if path == lost:
            raise OSError(5, os.strerror(5), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    events = observed(sample, tmp_path / "copy")
    assert [(event.log_dir, event.error) for event in events if isinstance(event, LogDirOffline)] == [
        (lost, os.strerror(5))
    ]
    assert [event.exit_code for event in events if isinstance(event, RunFinished)] == [4]


def test_by_the_command(sample: Sample, tmp_path: Path) -> None:
    options = (
        "-c",
        sample.config,
        "--output",
        tmp_path / "copy",
        "--metrics-textfile",
        tmp_path / "copy.prom",
    )
    done = run("archive", "copy", *options, "--progress", "json")
    assert done.exit_code == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["RunStarted", "RunFinished"]
    assert 'run_state{state="complete"} 1.0' in (tmp_path / "copy.prom").read_text()
    again = run("archive", "copy", *options, "--progress", "log")
    assert len(re.findall(r"INFO \d+ files, .* are there already", again.stderr)) == 2
