"""A process for each log dir: the same bytes and the same story as with threads, whoever is killed. No Java."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.engine import pool
from recovery.engine.job import LogDirJob
from recovery.engine.pool import Pool, wants_processes
from recovery.engine.report import RecoveryReport
from recovery.errors import LogDirLockedError, WorkerError
from recovery.logdir.lock import LogDirLocks
from recovery.stop_request import StopRequest
from recovery.watch.events import (
    BytesScanned,
    Event,
    LogDirOffline,
    PartitionFinished,
    PartitionStarted,
    Remark,
    RunFinished,
)
from tests.logs.samples import MARKER, differences, tree_of, unpack
from tests.recovery.engine.test_engine import damaged, log_dir, run, three_segments
from tests.runs.driving import log_bytes, lost_batches, own_leftovers, quarantine_of, recover

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from recovery.load.model import LogSettings
from tests.runs.engine_run import run_engine
settings = LogSettings(index_interval_bytes=100, segment_index_bytes=4096)
run_engine(sys.argv[1:], lambda topic: settings, now_ms=0, processes="always")
"""
"""What `run` does, in a process that can be killed."""


def dirs(root: Path) -> list[Path]:
    """Two log dirs with damage in each."""
    return [
        log_dir(root / "d1", t_0=damaged(), t_1=three_segments()),
        log_dir(root / "d2", u_0=damaged(), u_1={"no-offset.log": b""}, u_2=three_segments()),
    ]


def many_dirs(root: Path, *, count: int) -> list[Path]:
    """Two log dirs of *count* logs each, every one of them damaged."""
    return [
        log_dir(root / path, **{f"{topic}_{number}": damaged() for number in range(count)})
        for path, topic in (("d1", "t"), ("d2", "u"))
    ]


def kept_of(path: Path) -> dict[str, bytes]:
    """The tree without what the first run has deleted: for the second one it is a pending deletion."""
    return {name: data for name, data in tree_of(path).items() if not name.endswith(".deleted")}


def workers() -> list[int]:
    """The pids of this process's workers."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] if b"recovery.engine.worker" in command else []
    return found


def log_size(path: Path) -> int:
    """How many bytes the live segments have."""
    return sum(log.stat().st_size for log in path.glob("*/*.log"))


class Killer:
    """Kills the first worker that it sees, once the run has begun."""

    def __init__(self, number: int = signal.SIGKILL) -> None:
        self._number = number
        self._thread = threading.Thread(target=self._run)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Remark) and event.text.startswith("one process"):
            self._thread.start()

    def _run(self) -> None:
        while not (found := workers()):
            time.sleep(0.001)
        os.kill(found[0], self._number)


def summary(report: RecoveryReport) -> list[object]:
    """What does not depend on the clock, or on where the log dirs are."""
    return [
        (one.status, one.marker, one.needed_bytes, [
            (of.folder, of.status, of.log_end_offset, of.truncated_bytes, of.actions, of.reasons, of.warnings)
            for of in one.partitions
        ])
        for one in report.log_dirs
    ]  # fmt: skip


@pytest.mark.parametrize("processes", ["never", "always"])
def test_a_run_has_one_name_in_all_log_dirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    """Whenever something is first saved there."""
    began_ns = time.time_ns() - 3600 * 10**9
    monkeypatch.setattr("recovery.engine.run.time.time_ns", lambda: began_ns)
    paths = dirs(tmp_path)
    run(*paths, processes=processes)
    (name,) = {run_folder.name for path in paths for run_folder in quarantine_of(path).iterdir()}
    assert name == time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began_ns / 10**9))


class TestTheSame:
    def test_as_with_threads_on_what_a_broker_has_left(self, tmp_path: Path) -> None:
        told: dict[str, list[Event]] = {"never": [], "always": []}
        reports, samples = {}, {}
        for processes, events in told.items():
            samples[processes] = sample = unpack("crashed", tmp_path / processes)
            reports[processes] = recover(sample, processes=processes, observers=[events.append])
        assert summary(reports["always"]) == summary(reports["never"])
        assert reports["always"].exit_code == reports["never"].exit_code
        for threads, other in zip(samples["never"].log_dirs, samples["always"].log_dirs, strict=True):
            assert differences(tree_of(threads), tree_of(other)) == []
            assert own_leftovers(other) == []
        assert _story(told["always"]) == _story(told["never"])
        assert isinstance(told["always"][-1], RunFinished)

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_what_is_refused_before_a_worker_is_asked(self, tmp_path: Path, dry_run: bool) -> None:
        """A foreign folder, and a partition in both log dirs: the worker gets the refusals with its task."""
        ends = {}
        for processes in ("never", "always"):
            sample = unpack("crashed", tmp_path / processes)
            (sample.log_dirs[0] / "lost+found").mkdir()
            (moved,) = sample.log_dirs[0].glob("own-index-0")
            shutil.copytree(moved, sample.log_dirs[1] / moved.name)
            report = recover(sample, processes=processes, dry_run=dry_run)
            assert [one.status for one in report.log_dirs] == ["partial", "partial"]
            ends[processes] = [(one.folder, one.status, one.log_end_offset) for one in report.partitions]
            refused = [name for name, status, _ in ends[processes] if status == "refused"]
            assert sorted(refused) == ["lost+found", "own-index-0", "own-index-0"]
        assert ends["always"] == ends["never"]

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_damage_is_cut_saved_and_told(self, tmp_path: Path, dry_run: bool) -> None:
        threads, processes = dirs(tmp_path / "threads"), dirs(tmp_path / "processes")
        before = {path: (log_bytes(path), tree_of(path)) for path in processes}
        expected = run(*threads, dry_run=dry_run, processes="never")
        report = run(*processes, dry_run=dry_run, processes="always")
        assert summary(report) == summary(expected)
        assert report.exit_code == 4
        for one, other in zip(threads, processes, strict=True):
            assert differences(tree_of(one), tree_of(other)) == []
            assert lost_batches(before[other][0], other) == []
            assert not dry_run or tree_of(other) == before[other][1]

    def test_the_phases_are_those_of_the_workers(self, tmp_path: Path) -> None:
        report = run(*many_dirs(tmp_path, count=60), processes="always")
        assert {"inventory", "scan", "fold", "plan", "write", "hand-over"} == {
            one.phase for one in report.phases
        }
        assert sum(one.cpu_ms for one in report.phases if one.phase == "fold") > 0


def _story(events: Iterable[Event]) -> Counter[object]:
    """Each event without times and without who did it; bytes summed up: who reads how much at once is chance."""
    story: Counter[object] = Counter()
    for event in events:
        if isinstance(event, BytesScanned):
            story[Path(event.log_dir).name, event.partition] += event.scanned_bytes
        elif isinstance(event, PartitionFinished):
            story[Path(event.log_dir).name, event.partition, event.status, event.log_end_offset] += 1
        elif not isinstance(event, Remark):
            story[type(event).__name__] += 1
    return story


class TestInterrupted:
    """A run that was interrupted with threads is gone on with by processes, or not."""

    @pytest.fixture
    def paths(self, tmp_path: Path) -> list[Path]:
        paths, stop = many_dirs(tmp_path / "interrupted", count=20), StopRequest()

        def press(told: Event) -> None:
            if isinstance(told, PartitionFinished):
                stop.request(signal.SIGTERM)

        assert run(*paths, thread_count=1, stop=stop, observers=[press]).exit_code == 143
        return paths

    @pytest.mark.parametrize("dry_run", [True, False])
    @pytest.mark.parametrize("restart", [True, False])
    def test_what_is_done_is_read_again_after_restart_alone(
        self, paths: list[Path], tmp_path: Path, dry_run: bool, restart: bool
    ) -> None:
        events = events_of(paths, dry_run=dry_run, restart=restart)
        to_read = [event.recover_bytes for event in events if isinstance(event, PartitionStarted)]
        assert len(to_read) == 40
        assert (0 in to_read) == (not restart)
        if not dry_run:
            fresh = many_dirs(tmp_path / "fresh", count=20)
            run(*fresh)
            for path, expected in zip(paths, fresh, strict=True):
                assert differences(kept_of(expected), kept_of(path)) == []


def events_of(paths: list[Path], **options: object) -> list[Event]:
    """What a run with processes tells."""
    events: list[Event] = []
    run(*paths, processes="always", observers=[events.append], **options)
    return events


class TestKilled:
    def test_the_dir_of_a_killed_worker_is_offline_and_the_other_is_done(self, tmp_path: Path) -> None:
        paths, events, undisturbed = dirs(tmp_path / "a"), [], dirs(tmp_path / "b")
        before = {path: log_bytes(path) for path in paths}
        report = run(*paths, processes="always", observers=[events.append, Killer()])
        one, other = sorted(report.log_dirs, key=lambda found: found.status)
        assert (one.status, other.status) in [("offline", "partial"), ("offline", "recovered")]
        assert "SIGKILL" in str(one.error)
        assert {found.status for found in one.partitions} <= {"failed", "refused"}
        assert [event.log_dir for event in events if isinstance(event, LogDirOffline)] == [one.log_dir]
        assert report.exit_code == 4
        assert not (Path(one.log_dir) / MARKER).exists()
        run(*paths, processes="always")
        run(*undisturbed)
        for path, expected in zip(paths, undisturbed, strict=True):
            assert differences(kept_of(expected), kept_of(path)) == []
            assert lost_batches(before[path], path) == []
            assert own_leftovers(path) == []

    def test_what_a_killed_worker_has_cut_is_in_the_report(self, tmp_path: Path) -> None:
        paths = many_dirs(tmp_path, count=300)
        before = {path: log_size(path) for path in paths}

        def kill_all(event: Event) -> None:
            if isinstance(event, PartitionFinished) and event.truncated_bytes:
                for pid in workers():
                    os.kill(pid, signal.SIGKILL)

        report = run(*paths, processes="always", observers=[kill_all], acknowledge=False)
        assert [one.status for one in report.log_dirs] == ["offline", "offline"]
        for one in report.log_dirs:
            assert one.earlier_cuts == ()
            told = sum(partition.truncated_bytes for partition in one.partitions)
            assert told == before[Path(one.log_dir)] - log_size(Path(one.log_dir))
            for partition in one.partitions:
                assert len(partition.quarantined) == len(partition.losses)
        assert any(partition.losses for partition in report.partitions)

    def test_a_worker_that_is_told_to_stop_ends_the_run(self, tmp_path: Path) -> None:
        """Who tells one of the processes to stop means the run."""
        paths = many_dirs(tmp_path, count=400)
        report = run(*paths, processes="always", observers=[Killer(signal.SIGTERM)])
        assert report.exit_code == 143
        assert {one.status for one in report.log_dirs} == {"interrupted"}
        assert not any((path / MARKER).exists() for path in paths)

    def test_workers_end_with_their_parent_and_the_next_run_goes_on(self, tmp_path: Path) -> None:
        paths, undisturbed = (many_dirs(tmp_path / name, count=120) for name in ("killed", "undisturbed"))
        before = {path: log_bytes(path) for path in paths}
        parent = subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, paths)])
        while not any((quarantine_of(path)).exists() for path in paths):  # they are at work
            assert parent.poll() is None
            time.sleep(0.01)
        parent.kill()
        parent.wait()
        _until_free(paths)
        assert not any((path / MARKER).exists() for path in paths)
        run(*paths, processes="always")
        run(*undisturbed)
        for path, expected in zip(paths, undisturbed, strict=True):
            assert differences(tree_of(expected), tree_of(path)) == []
            assert lost_batches(before[path], path) == []
            assert own_leftovers(path) == []

    def test_asked_to_end_before_it_begins_nothing_is_touched(self, tmp_path: Path) -> None:
        paths, stop = dirs(tmp_path), StopRequest()
        before = [tree_of(path) for path in paths]
        stop.request(signal.SIGINT)
        assert run(*paths, processes="always", stop=stop).exit_code == 130
        assert [tree_of(path) for path in paths] == before


def _until_free(paths: list[Path]) -> None:
    """Wait until nobody holds the locks: the kernel ends the workers a moment after their parent."""
    for _ in range(1000):
        try:
            with LogDirLocks([str(path) for path in paths], dry_run=True):
                return
        except LogDirLockedError:
            time.sleep(0.01)
    pytest.fail("the locks are still held")


class TestWhoWorks:
    def job(self, file_count: int) -> LogDirJob:
        task = _Task(files=dict.fromkeys(range(file_count)))
        return _Job(inventory=_Inventory(tasks=(task,)))  # type: ignore[return-value]  # what is asked for

    @pytest.mark.parametrize(
        ("file_counts", "processes", "expected"),
        [
            ((10, 10), "auto", False),
            ((9_000, 9_000), "auto", True),
            ((9_000, 10), "auto", False),
            ((9_000, 10, 2_000), "auto", True),
            ((9_000, 10, 1_999), "auto", False),
            ((90_000,), "auto", False),
            ((9_000, 9_000), "never", False),
            ((10,), "always", True),
            ((), "auto", False),
            ((), "always", False),
        ],
    )
    def test_many_files_in_two_log_dirs(
        self, file_counts: tuple[int, ...], processes: pool.Processes, expected: bool, monkeypatch
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        assert wants_processes([self.job(count) for count in file_counts], processes) == expected

    def test_one_cpu_is_one_process(self, monkeypatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        assert not wants_processes([self.job(9_000)] * 2, "auto")

    def test_a_limit_on_bytes_a_second_is_kept_by_one_process(self, tmp_path: Path) -> None:
        events: list[Event] = []
        run(*dirs(tmp_path), processes="always", max_bytes_per_second=1 << 40, observers=[events.append])
        assert not _are_processes(events)

    def test_locks_that_cannot_be_shared_make_one_process(self, tmp_path: Path, monkeypatch) -> None:
        events: list[Event] = []
        monkeypatch.setattr(LogDirLocks, "inheritable", None)
        run(*dirs(tmp_path), processes="always", observers=[events.append])
        assert not _are_processes(events)

    def test_they_are_told_of(self, tmp_path: Path) -> None:
        events: list[Event] = []
        run(*dirs(tmp_path), processes="always", observers=[events.append])
        assert _are_processes(events)


def _are_processes(events: list[Event]) -> bool:
    return any(isinstance(event, Remark) and event.text.startswith("one process") for event in events)


class _Task:
    def __init__(self, files: dict[int, None]) -> None:
        self.files = files


class _Inventory:
    def __init__(self, tasks: tuple[_Task, ...]) -> None:
        self.tasks = tasks


class _Job:
    def __init__(self, inventory: _Inventory) -> None:
        self.inventory = inventory


def test_a_defect_is_told_with_its_traceback(tmp_path: Path, monkeypatch) -> None:
    really_run = Pool.run_in_processes

    def with_defect(of: Pool, jobs: list[LogDirJob], locks: Iterable[int]) -> object:
        return really_run(of, [replace(job, thread_count="two") for job in jobs], locks)

    monkeypatch.setattr(Pool, "run_in_processes", with_defect)
    events: list[Event] = []
    with pytest.raises(WorkerError, match=r"(?s)Traceback.*log_dir_run.*TypeError"):
        run(*dirs(tmp_path), processes="always", observers=[events.append])
    assert isinstance(events[-1], RunFinished)
    with LogDirLocks([str(tmp_path / "d1"), str(tmp_path / "d2")], dry_run=True):
        pass  # nobody is left behind
