"""Runs that are ended in the middle: nothing half done stays, and the next run reaches the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from recovery.cli.session import Signals
from recovery.engine.report import CUT_LEDGER
from recovery.errors import InterruptedRecoveryError
from recovery.stop_request import StopRequest
from tests.logs.large_log_dirs import make_large
from tests.logs.samples import LOCK, MARKER, Sample, differences, tree_of, unpack
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import Done, recover, start
from tests.runs.driving import own_leftovers
from tests.runs.paused import resume, start_paused

pytestmark = pytest.mark.long

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
KILLS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """A few hundred MB of log dirs, and what an uninterrupted run makes of them."""

    sample: Sample
    recovered: Sample
    duration_s: float


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    root = tmp_path_factory.mktemp("large")
    sample = make_large(root / "sample", copies=24, large_partitions=2, segment_mib=32)
    recovered = copy_of(sample, root / "recovered")
    recover(recovered, "--dry-run")  # kernels are compiled once on a machine; that is no part of a run's time
    started_s = time.monotonic()
    assert recover(recovered).exit_code == 2  # the copies of preallocated-0 are not preallocated: cut
    yield Large(sample=sample, recovered=recovered, duration_s=time.monotonic() - started_s)
    shutil.rmtree(root)


@pytest.fixture
def copies(large: Large, tmp_path: Path) -> Iterator[Iterator[tuple[Sample, float]]]:
    """New copies, one in the place of the other, each with a time in which the run on it may be done.

    A run may be over much sooner than the one that was measured, on a machine that others use: the time is halved.
    """

    def made() -> Iterator[tuple[Sample, float]]:
        for attempt in range(8):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            yield copy_of(large.sample, tmp_path / "copy"), large.duration_s / 2**attempt
        pytest.fail("no signal came in time")

    yield made()
    shutil.rmtree(tmp_path / "copy")


def copy_of(sample: Sample, root: Path) -> Sample:
    """A copy that shares the closed segments: nothing is wrong with them, so nobody writes to them."""
    actives = {
        max(folder.glob("*.log"), default=None) for log_dir in sample.log_dirs for folder in log_dir.iterdir()
    }

    def link_closed(source: str, target: str) -> None:
        is_closed = source.endswith(".log") and Path(source) not in actives
        (os.link if is_closed else shutil.copy2)(source, target)

    shutil.copytree(sample.root, root, copy_function=link_closed)
    config = root / "server.properties"
    config.write_text(config.read_text().replace(str(sample.root), str(root)))
    return replace(sample, root=root, log_dirs=tuple(root / path.name for path in sample.log_dirs))


def assert_same_tree(recovered: Sample, sample: Sample) -> None:
    for expected, actual in zip(recovered.log_dirs, sample.log_dirs, strict=True):
        assert differences(tree_of(expected), tree_of(actual)) == []


def assert_not_handed_over(sample: Sample) -> None:
    for log_dir in sample.log_dirs:
        assert not (log_dir / MARKER).exists()
        assert own_leftovers(log_dir) in (
            [],
            [CUT_LEDGER],
        )  # it has not ended: the next run tells of its cuts


@pytest.mark.parametrize("number", EXIT_CODES, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "-n", "-c"],
        ["verify", "-c"],
        ["undo", "-n", "-c"],
        ["watch", "-", "-c"],
        ["recover", "-n", "--log-dirs", "/nowhere", "--topic-config"],
        ["watch"],
        ["archive", "inventory", "/nowhere", "--files-from"],
        ["archive", "verify", "/nowhere", "--files-from"],
    ],
    ids=" ".join,
)
def test_a_signal_ends_the_wait_for_a_pipe(arguments: list[str], number: int, tmp_path: Path) -> None:
    """As `-c <(command)`, where the command never says anything."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start(*arguments, str(pipe))
    with writing(pipe):
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == EXIT_CODES[number], stderr


@contextmanager
def writing(pipe: Path) -> Iterator[None]:
    """Hold *pipe* open, once somebody has opened it for reading, and write nothing."""
    writers: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):  # nobody reads
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    wait_until(is_read)
    try:
        yield
    finally:
        os.close(writers[0])


def run_until(sample: Sample, seconds: float, number: int, *, processes: str = "never") -> tuple[Done, bool]:
    """Start a recovery and send it a signal *seconds* after its begin; how it ended, and whether it came in time."""
    options = ("--now", sample.now_ms, "--format", "json", "--progress", "json", "--processes", processes)
    process = start("recover", "-c", *map(str, (sample.config, *options)))
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["event"] == "RunStarted"
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    done = Done(exit_code=process.returncode, stdout=stdout, stderr=stderr)
    return done, done.exit_code not in (0, 2)


@pytest.mark.parametrize("processes", ["never", "always"])
@pytest.mark.parametrize("number", EXIT_CODES, ids=lambda number: number.name)
def test_a_signal_ends_a_run_cleanly_and_the_next_one_goes_on(
    number: signal.Signals, processes: str, large: Large, copies: Iterator[tuple[Sample, float]]
) -> None:
    for copy, duration_s in copies:
        done, was_in_time = run_until(copy, duration_s * 0.25, number, processes=processes)
        if was_in_time:
            break
    assert done.exit_code == EXIT_CODES[number]
    assert "Traceback" not in done.stderr
    assert {log_dir["status"] for log_dir in done.report["logDirs"]} == {"interrupted"}
    assert json.loads(done.stderr.splitlines()[-1])["exit_code"] == EXIT_CODES[number]
    assert_not_handed_over(copy)
    recover(copy)
    assert_same_tree(large.recovered, copy)


def test_runs_that_are_killed_again_and_again_end_in_the_same_tree(
    large: Large, copies: Iterator[tuple[Sample, float]]
) -> None:
    for copy, duration_s in copies:
        if kills_in_time(copy, duration_s) > 1:
            break
    assert recover(copy).exit_code in (0, 2)
    assert_same_tree(large.recovered, copy)
    for log_dir in copy.log_dirs:
        assert own_leftovers(log_dir) == []


def kills_in_time(copy: Sample, duration_s: float) -> int:
    """Kill one run after the other, a little later each time; return how many were killed before they were done."""
    rng = random.Random(1)
    for kill in range(KILLS):
        done, was_in_time = run_until(copy, duration_s * (kill + rng.random()) / KILLS, signal.SIGKILL)
        if not was_in_time or done.stdout:  # it goes on where it was, so it is over sooner each time
            return kill
        assert done.exit_code == -signal.SIGKILL
    return KILLS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The sample `crashed` after an uninterrupted run."""
    sample = unpack("crashed", tmp_path_factory.mktemp("whole"))
    assert recover(sample).exit_code == 0
    return sample


@pytest.mark.parametrize(
    ("number", "event", "nth"),
    [
        (signal.SIGTERM, "RunStarted", 1),
        (signal.SIGINT, "PartitionStarted", 1),
        (signal.SIGTERM, "SegmentRecovered", 20),
        (signal.SIGINT, "PartitionFinished", 12),
    ],
)
def test_a_signal_at_any_stage_leaves_a_dir_that_the_next_run_finishes(
    number: signal.Signals, event: str, nth: int, tmp_path: Path, whole: Sample
) -> None:
    sample = unpack("crashed", tmp_path)
    process = start_paused(event, nth, *arguments(sample))
    process.send_signal(number)
    exit_code, stdout, stderr = resume(process)
    assert exit_code == EXIT_CODES[number]
    assert "Traceback" not in stderr
    report = json.loads(stdout)
    assert report["exitCode"] == exit_code
    assert [log_dir["cleanShutdownMarker"] for log_dir in report["logDirs"]] == [False, False]
    assert_not_handed_over(sample)
    assert recover(sample).exit_code == 0
    assert_same_tree(whole, sample)


def test_a_signal_after_the_last_partition_still_writes_no_marker(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process = start_paused("PartitionFinished", partition_count(sample), *arguments(sample))
    process.send_signal(signal.SIGTERM)
    exit_code, _, _ = resume(process)
    assert exit_code == 143
    # The dirs are handed over in turn, so the first one may have been before the last partition of the second.
    assert not (sample.log_dirs[1] / MARKER).exists()
    assert recover(sample).exit_code == 0


def test_a_dir_that_was_handed_over_before_the_signal_stays_so(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process = start_paused("LogDirHandedOver", 1, *arguments(sample))
    process.send_signal(signal.SIGTERM)
    exit_code, stdout, _ = resume(process)
    assert exit_code == 143
    assert [log_dir["status"] for log_dir in json.loads(stdout)["logDirs"]] == ["recovered", "interrupted"]
    assert [(log_dir / MARKER).exists() for log_dir in sample.log_dirs] == [True, False]
    assert recover(sample).exit_code == 0
    assert [(log_dir / MARKER).exists() for log_dir in sample.log_dirs] == [True, True]


def test_a_clean_dir_is_unclean_once_a_killed_run_has_changed_it(tmp_path: Path) -> None:
    sample, whole = unpack("stopped", tmp_path / "cut"), unpack("stopped", tmp_path / "whole")
    before = [tree_of(log_dir) for log_dir in sample.log_dirs]
    recover(whole)
    process = start_paused("PartitionFinished", partition_count(sample), *arguments(sample))
    process.kill()
    process.communicate()
    for log_dir, found, end in zip(sample.log_dirs, before, whole.log_dirs, strict=True):
        now = {name: data for name, data in tree_of(log_dir).items() if name != LOCK}
        is_marked = (log_dir / MARKER).exists()
        assert is_marked == (now in (found, tree_of(end)))  # as it was, or handed over
    assert recover(sample).exit_code == 0
    for log_dir in sample.log_dirs:
        assert own_leftovers(log_dir) == []
    assert_same_tree(whole, sample)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", MARKER])
def test_temporary_files_of_a_killed_hand_over_are_removed(name: str, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    recover(sample)
    for log_dir in sample.log_dirs:
        (log_dir / f"{name}.recovery-tmp").write_bytes(b"0\n")
    assert recover(sample).exit_code == 0
    assert [own_leftovers(log_dir) for log_dir in sample.log_dirs] == [[], []]


@pytest.mark.parametrize("number", EXIT_CODES)
@pytest.mark.parametrize("delay_s", [0.004, 0.01, 0.02])
def test_a_signal_behind_the_report_changes_nothing(
    number: signal.Signals, delay_s: float, ram_path: Path
) -> None:
    sample = unpack("crashed", ram_path)
    log = sample.log_dirs[0] / "late-0" / "00000000000000000035.log"
    os.truncate(log, 9000)
    options = ("--now", sample.now_ms, "--format", "json", "--progress", "none")
    process = start("recover", "-c", sample.config, *map(str, options))
    assert process.stdout is not None
    assert any(line == "}\n" for line in process.stdout)
    time.sleep(delay_s)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 2


def test_a_signal_before_there_is_anything_to_stop_ends_the_command_and_is_remembered() -> None:
    """A library may swallow the error that it raises."""
    signals = Signals()
    with pytest.raises(InterruptedRecoveryError):
        signals.receive(signal.SIGTERM, None)
    with pytest.raises(InterruptedRecoveryError) as caught:
        signals.forward_to(StopRequest())
    assert caught.value.signal_exit_code == 143


def arguments(sample: Sample) -> tuple[object, ...]:
    options = ("--now", sample.now_ms, "--format", "json", "--progress", "none")
    return ("recover", "-c", sample.config, *options)


def partition_count(sample: Sample) -> int:
    own = ("__cluster_metadata-0", "remote-log-index-cache")
    return sum(
        path.is_dir() and path.name not in own for log_dir in sample.log_dirs for path in log_dir.iterdir()
    )
