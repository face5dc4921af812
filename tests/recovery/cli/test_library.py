"""`recovery.recover(...)`: the same as a library call."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

import pytest

import recovery
from recovery.engine.log_dir_run import LogDirRun
from recovery.engine.options import RecoverOptions
from recovery.engine.partition_run import PartitionRun
from recovery.engine.report import LogDirReport
from recovery.errors import LogDirLockedError, UsageError
from recovery.watch.events import Event, PartitionFinished, RunFinished, RunStarted
from tests.logs.samples import MARKER, differences, tree_of, unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.recovery.cli import test_lock_conflicts
from tests.runs.command import recover as recover_by_command
from tests.runs.driving import footprint


def test_the_options_are_the_documented_ones() -> None:
    assert {field.name: getattr(RecoverOptions(), field.name) for field in fields(RecoverOptions)} == {
        "config": None,
        "config_notes": (),
        "is_config_complete": None,
        "topic_configs": None,
        "release": "auto",
        "now_ms": None,
        "dry_run": False,
        "handoff": "clean-shutdown",
        "threads": None,
        "quarantine_dir": None,
        "keep_deleted": False,
        "force": False,
        "repair": False,
        "restart": False,
        "topics": (),
        "partitions": (),
        "max_bytes_per_second": None,
        "drop_cache": False,
        "processes": "auto",
        "acknowledge": True,
    }
    assert [*inspect.signature(recovery.recover).parameters] == [
        "log_dirs",
        "options",
        "observers",
        "stop",
        "changes",
    ]


@pytest.mark.parametrize("call", [recovery.recover, recovery.verify])
def test_an_option_that_there_is_not(call: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="dryrun"):
        call([str(tmp_path)], dryrun=True)


def test_options_and_changes_of_them(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    before = tree_of(sample.root)
    options = recovery.RecoverOptions(config=sample.properties, now_ms=sample.now_ms, threads=1)
    log_dirs = list(map(str, sample.log_dirs))
    assert recovery.recover(log_dirs, options, dry_run=True).dry_run
    assert tree_of(sample.root) == before
    assert not recovery.recover(log_dirs, options).dry_run


@pytest.mark.parametrize("call", [recovery.recover, recovery.verify])
def test_observers_hear_which_log_dirs_are_cordoned(call: Callable[..., object], tmp_path: Path) -> None:
    sample, events = unpack("crashed", tmp_path), []
    first, second = map(str, sample.log_dirs)
    more = {"dry_run": True, "now_ms": sample.now_ms} if call is recovery.recover else {}
    for value, expected in (("*", (first, second)), (second, (second,)), ("", ())):
        config = {**sample.properties, "cordoned.log.dirs": value}
        call(None, config=config, observers=[events.append], **more)
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        assert started.cordoned_log_dirs == expected
        events.clear()


def test_it_leaves_the_tree_that_the_command_line_leaves(tmp_path: Path) -> None:
    by_call, by_command = unpack("crashed", tmp_path / "call"), unpack("crashed", tmp_path / "command")
    events: list[Event] = []
    report = recovery.recover(
        list(map(str, by_call.log_dirs)),
        config=by_call.properties,
        now_ms=by_call.now_ms,
        observers=[events.append],
    )
    assert recover_by_command(by_command).exit_code == report.exit_code == 0
    for call, command in zip(by_call.log_dirs, by_command.log_dirs, strict=True):
        assert differences(tree_of(command), tree_of(call)) == []
    assert len(report.partitions) == 29
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert sum(isinstance(event, PartitionFinished) for event in events) == 29


def test_any_mapping_is_a_configuration_for_processes_as_well(tmp_path: Path) -> None:
    """Workers are given what they go by: no properties, which may be anything, and hold passwords."""
    sample = unpack("crashed", tmp_path)
    report = recovery.recover(
        None,
        config=MappingProxyType(dict(sample.properties)),
        config_notes=(note for note in ["a note"]),
        now_ms=sample.now_ms,
        processes="always",
    )
    assert report.exit_code == 0
    assert {one.status for one in report.log_dirs} == {"recovered"}
    assert "a note" in [note.text for note in report.notes]


def test_log_dirs_may_come_from_the_configuration(tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    report = recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, dry_run=True)
    assert [one.log_dir for one in report.log_dirs] == [str(log_dir) for log_dir in sample.log_dirs]
    assert not any((log_dir / MARKER).exists() for log_dir in sample.log_dirs)


def test_an_observer_that_raises_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    sample = unpack("crashed-v0-v1", tmp_path)
    assert recovery.recover(sample.log_dirs, now_ms=sample.now_ms, observers=[fail]).exit_code == 0
    assert "Switched off" in caplog.text


def test_errors_are_typed_and_change_nothing(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    found = footprint(tmp_path)
    with pytest.raises(UsageError, match="threads"):
        recovery.recover(sample.log_dirs, threads=0)
    with pytest.raises(UsageError, match="no such log dir"):
        recovery.recover([str(tmp_path / "nowhere")])
    with pytest.raises(UsageError, match="no log dir"):
        recovery.recover([])
    assert footprint(tmp_path) == found
    with test_lock_conflicts.held(sample.log_dirs[0]):
        found = footprint(tmp_path)
        with pytest.raises(LogDirLockedError):
            recovery.recover(sample.log_dirs)
        assert footprint(tmp_path) == found


def test_no_thread_is_at_work_when_an_error_lets_the_locks_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second dir is slow; the hand-over of the first one fails in a way that nobody foresaw."""
    sample = unpack("crashed", tmp_path)
    first, second = map(str, sample.log_dirs)
    failed = threading.Event()
    hand_over, run_partition = LogDirRun._hand_over, LogDirRun._run_partition

    def fail(run: LogDirRun) -> LogDirReport:
        if run._inventory.log_dir == first:
            failed.set()
            raise ZeroDivisionError
        return hand_over(run)

    def wait(run: LogDirRun, partition: PartitionRun) -> None:
        if run._inventory.log_dir == second:
            failed.wait(timeout=LONGEST_WAIT_SECONDS)
        run_partition(run, partition)

    monkeypatch.setattr(LogDirRun, "_hand_over", fail)
    monkeypatch.setattr(LogDirRun, "_run_partition", wait)
    with pytest.raises(ZeroDivisionError):
        recovery.recover([first, second], now_ms=sample.now_ms)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("log-recovery-")] == []
    assert not any((log_dir / MARKER).exists() for log_dir in sample.log_dirs)


def test_importing_the_package_costs_nothing() -> None:
    program = "import sys, recovery; print('numpy' in sys.modules, recovery.recover.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False recover\n"


@pytest.mark.parametrize("option", ["handoff", "processes"])
def test_a_value_that_the_command_line_refuses_is_a_usage_error(tmp_path: Path, option: str) -> None:
    sample = unpack("intact", tmp_path)
    before = footprint(tmp_path)
    with pytest.raises(UsageError, match=f"--{option} clean_shutdown: expected one of "):
        recovery.recover([str(path) for path in sample.log_dirs], **{option: "clean_shutdown"})
    assert footprint(tmp_path) == before


@pytest.mark.parametrize("option", ["threads", "max_bytes_per_second"])
def test_less_than_one_is_a_usage_error(tmp_path: Path, option: str) -> None:
    sample = unpack("intact", tmp_path)
    found = footprint(tmp_path)
    with pytest.raises(UsageError, match="expected an integer from 1 on"):
        recovery.recover([str(path) for path in sample.log_dirs], **{option: 0})
    assert footprint(tmp_path) == found


@pytest.mark.parametrize("is_heard", [True, False])
def test_who_has_the_report_has_been_told(tmp_path: Path, is_heard: bool) -> None:
    sample = unpack("crashed", tmp_path)
    log = max((sample.log_dirs[0] / "codec-none-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    first = recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, acknowledge=is_heard)
    assert first.exit_code == 2
    second = recovery.recover(None, config=sample.properties, now_ms=sample.now_ms)
    assert second.exit_code == (0 if is_heard else 2)
    assert [len(one.earlier_cuts) for one in second.log_dirs] == ([0, 0] if is_heard else [1, 0])
    assert recovery.recover(None, config=sample.properties, now_ms=sample.now_ms).exit_code == 0
