"""Whole runs over log dirs: trouble in one dir, a request to stop, refusals, threads. No Java."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from recovery.engine import log_dir_handoff, log_dir_run, partition_run
from recovery.engine.api import recover
from recovery.engine.report import CUT_LEDGER, RecoveryReport
from recovery.errors import LogDirLockedError
from recovery.load.model import LogSettings
from recovery.problem import Problem
from recovery.read import partition_files as source
from recovery.stop_request import StopRequest
from recovery.watch.events import (
    BytesScanned,
    CorruptionFound,
    Event,
    IndexFileProblem,
    LogDirHandedOver,
    PartitionFinished,
    RunFinished,
    SegmentRecovered,
)
from recovery.write import apply
from recovery.write.space import SpaceLedger
from tests.logs.samples import MARKER, differences, tree_of
from tests.patience import LONGEST_WAIT_SECONDS
from tests.recovery.load.memory import METADATA, Folded, name, partition
from tests.recovery.load.test_partition import flipped, segment, three_segments
from tests.recovery.logdir.test_lock import other_process
from tests.runs.driving import footprint, log_bytes, lost_batches, own_leftovers, quarantine_of
from tests.runs.engine_run import run_engine

SETTINGS = LogSettings(index_interval_bytes=100, segment_index_bytes=4096)
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def log_dir(path: Path, **partitions: dict[str, bytes]) -> Path:
    """A log dir; `t_0` is the folder t-0."""
    path.mkdir(parents=True)
    for folder, files in partitions.items():
        (path / folder.replace("_", "-")).mkdir()
        for file, data in files.items():
            (path / folder.replace("_", "-") / file).write_bytes(data)
    return path


def run(*dirs: Path, **options: object) -> RecoveryReport:
    return run_engine(dirs, lambda topic: SETTINGS, **({"now_ms": 0} | options))


def damaged() -> dict[str, bytes]:
    files = three_segments()
    return files | {name(10): flipped(files[name(10)], 400)}


def checkpoint(path: Path) -> dict[str, int]:
    lines = path.read_text().splitlines()[2:]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, lines)}


class TestPlainRun:
    def test_a_folder_that_waits_for_its_deletion_is_left_alone_in_a_clean_dir(self, tmp_path: Path) -> None:
        """Nothing is said to be cut there: a segment without an index would be, in an unclean dir."""
        files = damaged()
        del files[name(10, ".index")]
        path = log_dir(tmp_path / "d", **{"t_0.0011_delete": files})
        (path / MARKER).write_bytes(b"")
        before, events = tree_of(path / "t-0.0011-delete"), []
        (partition,) = run(path, observers=(events.append,)).partitions
        assert tree_of(path / "t-0.0011-delete") == before
        assert (partition.status, partition.cuts, partition.warnings) == ("unchanged", (), ())
        assert (partition.recovered_segments, partition.recovered_bytes) == (0, 0)
        assert not [event for event in events if isinstance(event, CorruptionFound | IndexFileProblem)]

    @pytest.mark.parametrize("is_refused", [False, True])
    def test_a_missing_index_is_reported_before_the_cut_and_no_cut_of_a_refused_partition(
        self, tmp_path: Path, monkeypatch, is_refused: bool
    ) -> None:
        """The broker says why it recovers a segment, and then does. What is refused stays as it is."""
        files = damaged()
        del files[name(10, ".index")]
        path = log_dir(tmp_path / "d", t_0=files)
        (path / MARKER).write_bytes(b"")
        if is_refused:
            full = Problem(file="d", position=None, rule="space", detail="too little space", remedy="none")
            monkeypatch.setattr(SpaceLedger, "reserve", lambda *_, **__: (full,))
        events: list[Event] = []
        (partition,) = run(path, dry_run=True, observers=(events.append,)).partitions
        assert partition.status == ("refused" if is_refused else "truncated")
        kinds = [type(event) for event in events]
        reported = [kind for kind in kinds if kind in (IndexFileProblem, CorruptionFound)]
        assert reported == [IndexFileProblem] + [CorruptionFound] * (not is_refused)

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_backup_by_hard_links_is_cut_as_well_and_a_warning_says_so(
        self, tmp_path: Path, dry_run: bool
    ) -> None:
        path = log_dir(tmp_path / "d", t_0=damaged())
        backup = tmp_path / "backup"
        shutil.copytree(path, backup, copy_function=os.link)
        (partition,) = run(path, dry_run=dry_run).partitions
        assert partition.warnings == (f"{name(10)} has 1 other name (hard links), and is cut there as well",)
        cut_bytes = len(damaged()[name(10)]) - (backup / "t-0" / name(10)).stat().st_size
        assert (cut_bytes == 0) == dry_run

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_dry_run_hands_nothing_over(self, tmp_path: Path, dry_run: bool) -> None:
        events: list[Event] = []
        path = log_dir(tmp_path / "d", t_0=three_segments())
        run(path, dry_run=dry_run, observers=(events.append,))
        assert any(isinstance(event, LogDirHandedOver) for event in events) is not dry_run

    def test_a_crashed_dir_is_handed_over(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments(), t_1=damaged())
        report = run(one)
        assert report.exit_code == 2
        assert [(partition.folder, partition.status) for partition in report.partitions] == [
            ("t-0", "recovered"),
            ("t-1", "truncated"),
        ]
        assert json.loads((one / MARKER).read_text()) == {"version": 0, "brokerEpoch": -1}
        assert checkpoint(one / RECOVERY_POINTS) == {"t-0": 30, "t-1": 14}
        for folder, files in (("t-0", three_segments()), ("t-1", damaged())):
            left = {path.name: path.read_bytes() for path in (one / folder).iterdir()}
            assert left == Folded(files).tree
        assert own_leftovers(one) == []

    @pytest.mark.parametrize("thread_count", [1, 2, 3, 8, 20])
    def test_any_number_of_threads_leaves_the_same_bytes(self, tmp_path: Path, thread_count: int) -> None:
        partitions = {
            f"t_{number}": damaged() if number % 3 == 0 else three_segments() for number in range(9)
        }
        partitions["large_0"] = partition({base: segment(base, 40) for base in range(0, 800, 40)})
        one = log_dir(tmp_path / "one", **partitions)
        many = log_dir(tmp_path / "many", **partitions)
        run(one, thread_count=1)
        run(many, thread_count=thread_count)
        assert differences(tree_of(one), tree_of(many)) == []

    def test_a_partition_of_many_segments_is_scanned_by_all_threads(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        busy, together = set(), threading.Barrier(3)
        scan = source.PartitionFiles.scan

        def meet(files: source.PartitionFiles, request: object) -> object:
            thread = threading.current_thread().name
            if thread not in busy:
                busy.add(thread)
                together.wait(timeout=LONGEST_WAIT_SECONDS)  # only if three threads scan at the same time
            return scan(files, request)

        monkeypatch.setattr(source.PartitionFiles, "scan", meet)
        one = log_dir(tmp_path / "d1", t_0=partition({base: segment(base) for base in range(0, 100, 10)}))
        assert run(one, thread_count=3).exit_code == 0
        assert len(busy) == 3

    def test_mapped_and_read_segments_end_alike(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(source, "LEAST_MAPPED_BYTES", 0)
        mapped = log_dir(tmp_path / "mapped", t_0=damaged())
        read = log_dir(tmp_path / "read", t_0=damaged())
        run(mapped)
        monkeypatch.setattr(log_dir_run, "is_local", lambda path: False)
        monkeypatch.setattr(source, "MappedFile", lambda *_: pytest.fail("mapped"))
        run(read)
        assert differences(tree_of(mapped), tree_of(read)) == []

    def test_an_empty_log_dir(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1")
        assert run(one).exit_code == 0
        assert (one / MARKER).exists()

    @pytest.mark.parametrize("handoff", ["recovery-point", "none"])
    def test_other_handoffs_leave_no_marker(self, tmp_path: Path, handoff: str) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments())
        report = run(one, handoff=handoff)
        assert report.exit_code == 0
        assert not (one / MARKER).exists()
        assert not report.log_dirs[0].marker
        assert (one / RECOVERY_POINTS).exists() == (handoff == "recovery-point")

    def test_the_metadata_log_is_looked_for_once_the_locks_are_held(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments())
        (one / RECOVERY_POINTS).write_text("0\n0\n")
        answers = []

        def find(_log_dirs: Iterable[str]) -> None:
            with other_process(one / ".lock") as answer:
                answers.append(answer)

        monkeypatch.setattr("recovery.engine.api.find_metadata_folder", find)
        assert recover([str(one)]).log_dirs[0].status == "recovered"
        assert answers == ["refused"]

    def test_a_marker_is_gone_before_anything_in_its_dir_changes(self, tmp_path: Path, monkeypatch) -> None:
        one = log_dir(tmp_path / "d1", t_0=Folded(three_segments()).tree)
        (one / MARKER).write_text('{"version":0,"brokerEpoch":5}')
        (one / "t-0" / name(99, ".snapshot")).write_bytes(b"stale")
        apply_partition = partition_run.apply_partition

        def look(*arguments: object, **more: object) -> object:
            assert not (one / MARKER).exists()
            return apply_partition(*arguments, **more)

        monkeypatch.setattr(partition_run, "apply_partition", look)
        report = run(one)
        assert report.log_dirs[0].had_clean_shutdown
        assert json.loads((one / MARKER).read_text()) == {"version": 0, "brokerEpoch": -1}

    def test_an_unchanged_clean_dir_keeps_its_marker_and_its_epoch(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments())
        run(one)
        (one / MARKER).write_text('{"version":0,"brokerEpoch":5}')
        before = footprint(one / "t-0")
        report = run(one)
        assert report.log_dirs[0].status == "unchanged"
        assert (one / MARKER).read_text() == '{"version":0,"brokerEpoch":5}'
        assert footprint(one / "t-0") == before


class TestRefusals:
    def test_the_refused_partition_is_left_and_the_others_are_recovered(self, tmp_path: Path) -> None:
        bad = three_segments() | {"leader-epoch-checkpoint": b"7\n0\n"}
        one = log_dir(tmp_path / "d1", t_0=three_segments(), t_1=bad)
        (one / RECOVERY_POINTS).write_text("0\n2\nt 0 3\nt 1 4\n")
        before = footprint(one / "t-1")
        report = run(one)
        assert report.exit_code == 4
        assert footprint(one / "t-1") == before
        assert report.log_dirs[0].status == "partial"
        assert [partition.status for partition in report.partitions] == ["recovered", "refused"]
        assert not (one / MARKER).exists()
        assert checkpoint(one / RECOVERY_POINTS) == {"t-0": 30, "t-1": 4}

    def test_a_foreign_folder_is_left_and_costs_the_marker(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments())
        (one / "lost+found").mkdir()
        report = run(one)
        assert report.exit_code == 4
        assert not (one / MARKER).exists()
        assert any("lost+found" in reason for partition in report.partitions for reason in partition.reasons)

    def test_a_partition_in_two_dirs_is_refused_in_both(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments(), t_1=three_segments())
        two = log_dir(tmp_path / "d2", t_0=three_segments())
        before = [footprint(path / "t-0") for path in (one, two)]
        report = run(one, two)
        assert report.exit_code == 4
        assert [footprint(path / "t-0") for path in (one, two)] == before
        assert [(partition.folder, partition.status) for partition in report.partitions] == [
            ("t-0", "refused"),
            ("t-1", "recovered"),
            ("t-0", "refused"),
        ]

    def test_a_lock_that_is_held_changes_nothing(self, tmp_path: Path) -> None:
        one, two = (log_dir(tmp_path / path, t_0=three_segments()) for path in ("d1", "d2"))
        with other_process(two / ".lock"):
            before = footprint(tmp_path)
            with pytest.raises(LogDirLockedError) as raised:
                run(one, two)
            assert footprint(tmp_path) == before
        assert raised.value.exit_code == 3

    def test_a_metadata_log_dir_is_locked_too(self, tmp_path: Path) -> None:
        one, metadata = log_dir(tmp_path / "d1", t_0=three_segments()), log_dir(tmp_path / "metadata")
        with other_process(metadata / ".lock"), pytest.raises(LogDirLockedError):
            run(one, locked_dirs=[str(metadata)])
        assert run(one, locked_dirs=[str(metadata)]).exit_code == 0
        assert list(metadata.iterdir()) == []


class TestTroubleInOneDir:
    """An I/O error takes its log dir offline; the others go on."""

    @pytest.fixture
    def dirs(self, tmp_path: Path) -> list[Path]:
        partitions = {"t_0": damaged(), "t_1": three_segments()}
        return [
            log_dir(tmp_path / path, **{f"{path}{folder}": files for folder, files in partitions.items()})
            for path in ("a", "b", "c")
        ]

    def check(self, dirs: list[Path], report: RecoveryReport, before: dict[str, bytes], words: str) -> None:
        bad = dirs[1]
        assert report.exit_code == 4
        assert [one.status for one in report.log_dirs] == ["recovered", "offline", "recovered"]
        assert words in str(report.log_dirs[1].error)
        assert [(one / MARKER).exists() for one in dirs] == [True, False, True]
        assert {partition.status for partition in report.log_dirs[1].partitions} >= {"failed"}
        assert lost_batches(before, bad) == []

    @pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
    def test_while_reading(self, dirs: list[Path], error: int, monkeypatch) -> None:
        scan = source.PartitionFiles.scan

        def fail(files: source.PartitionFiles, request: object) -> object:
            if files._folder.startswith(str(dirs[1])):
                raise OSError(error, os.strerror(error), files._folder)
            return scan(files, request)

        monkeypatch.setattr(source.PartitionFiles, "scan", fail)
        before, found = log_bytes(dirs[1]), footprint(dirs[1] / "bt-0")
        report = run(*dirs)
        self.check(dirs, report, before, os.strerror(error))
        assert footprint(dirs[1] / "bt-0") == found
        assert {partition.status for partition in report.log_dirs[1].partitions} == {"failed"}

    @pytest.mark.parametrize(("call", "file"), [("scan", name(10, ".log")), ("read", "bt-1")])
    def test_too_little_memory_refuses_the_partition(
        self, dirs: list[Path], call: str, file: str, monkeypatch
    ) -> None:
        really = getattr(source.PartitionFiles, call)

        def fail(files: source.PartitionFiles, wanted: object) -> object:
            is_meant = call == "read" or wanted.part.file == file
            if is_meant and files._folder == str(dirs[1] / "bt-1"):
                raise MemoryError
            return really(files, wanted)

        monkeypatch.setattr(source.PartitionFiles, call, fail)
        found = footprint(dirs[1] / "bt-1")
        report = run(*dirs)
        assert report.exit_code == 4
        refused = {one.folder: one for one in report.partitions if one.status == "refused"}
        assert list(refused) == ["bt-1"]
        (problem,) = refused["bt-1"].problems
        assert (problem.file, problem.detail) == (file, "there is too little memory to read it")
        assert footprint(dirs[1] / "bt-1") == found
        assert [(one / MARKER).exists() for one in dirs] == [True, False, True]

    @pytest.mark.parametrize("call", ["fsync", "rename"])
    def test_while_writing_and_the_next_run_comes_to_the_same_end(
        self, dirs: list[Path], tmp_path: Path, call: str, monkeypatch
    ) -> None:
        expected = shutil.copytree(dirs[1], tmp_path / "expected")
        run(expected)
        really = getattr(os, call)

        def fail(first: object, *more: object) -> object:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            if path.startswith(f"{dirs[1]}/"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return really(first, *more)

        before = log_bytes(dirs[1])
        with monkeypatch.context() as patched:
            patched.setattr(os, call, fail)
            report = run(*dirs)
        self.check(dirs, report, before, "No space left on device")
        run(dirs[1])
        assert own_leftovers(dirs[1]) == []
        live = {path: data for path, data in tree_of(dirs[1]).items() if not path.endswith(".deleted")}
        wanted = {path: data for path, data in tree_of(expected).items() if not path.endswith(".deleted")}
        assert differences(wanted, live) == []

    def test_while_handing_over(self, dirs: list[Path], monkeypatch) -> None:
        apply_partition = log_dir_handoff.apply_partition

        def fail(path: str, *arguments: object, **more: object) -> object:
            if path == str(dirs[1]):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return apply_partition(path, *arguments, **more)

        monkeypatch.setattr(log_dir_handoff, "apply_partition", fail)
        report = run(*dirs)
        assert [one.status for one in report.log_dirs] == ["recovered", "offline", "recovered"]
        assert not (dirs[1] / MARKER).exists()

    def test_a_dir_that_cannot_be_listed(self, dirs: list[Path]) -> None:
        shutil.rmtree(dirs[1])
        report = run(*dirs)
        assert [one.status for one in report.log_dirs] == ["recovered", "offline", "recovered"]
        assert report.exit_code == 4

    def test_a_malformed_checkpoint_takes_its_dir_offline_untouched(self, dirs: list[Path]) -> None:
        (dirs[1] / RECOVERY_POINTS).write_text("1\n0\n")
        before = footprint(dirs[1] / "bt-0")
        report = run(*dirs)
        assert [one.status for one in report.log_dirs] == ["recovered", "offline", "recovered"]
        assert "Remedy: move the file away" in str(report.log_dirs[1].error)
        assert footprint(dirs[1] / "bt-0") == before

    def test_all_dirs_offline_is_exit_code_1(self, dirs: list[Path]) -> None:
        for one in dirs:
            (one / RECOVERY_POINTS).write_text("1\n0\n")
        assert run(*dirs).exit_code == 1

    def test_a_bug_is_not_taken_for_trouble(self, dirs: list[Path], monkeypatch) -> None:
        def fail(*_args: object, **_options: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(partition_run, "fold_checked", fail)
        told: list[Event] = []
        with pytest.raises(ZeroDivisionError):
            run(*dirs, observers=[told.append])
        assert isinstance(told[-1], RunFinished)
        assert not any((one / MARKER).exists() for one in dirs)
        with other_process(dirs[0] / ".lock") as answer:
            assert answer == "held"


class TestStopRequest:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    @pytest.mark.parametrize("event", [BytesScanned, SegmentRecovered, PartitionFinished])
    @pytest.mark.parametrize("thread_count", [1, 3])
    def test_the_run_ends_without_a_marker_and_the_next_one_goes_on(
        self, tmp_path: Path, number: int, code: int, event: type[Event], thread_count: int
    ) -> None:
        partitions = {"t_0": damaged(), "t_1": three_segments(), "t_2": damaged()}
        one = log_dir(tmp_path / "d1", **partitions)
        undisturbed = log_dir(tmp_path / "undisturbed", **partitions)
        run(undisturbed)
        before, stop = log_bytes(one), StopRequest()

        def press(told: Event) -> None:
            if isinstance(told, event):
                stop.request(number)

        report = run(one, thread_count=thread_count, stop=stop, observers=[press])
        assert report.exit_code == code
        assert report.log_dirs[0].status == "interrupted"
        assert not (one / MARKER).exists()
        assert own_leftovers(one) in ([], [CUT_LEDGER])  # it has not ended: the next run tells of its cuts
        assert lost_batches(before, one) == []
        with other_process(one / ".lock") as answer:
            assert answer == "held"
        (one / ".lock").unlink()
        assert run(one).exit_code in (0, 2)
        live = {path: data for path, data in tree_of(one).items() if not path.endswith(".deleted")}
        wanted = {path: data for path, data in tree_of(undisturbed).items() if not path.endswith(".deleted")}
        assert differences(wanted, live) == []

    def test_asked_before_the_first_byte_nothing_is_done(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=damaged())
        before, stop = tree_of(one), StopRequest()
        stop.request(signal.SIGTERM)
        assert run(one, stop=stop).exit_code == 143
        assert tree_of(one) == before
        assert not quarantine_of(one).exists()

    def test_asked_when_all_is_done_there_is_no_hand_over(self, tmp_path: Path) -> None:
        one, stop = log_dir(tmp_path / "d1", t_0=damaged()), StopRequest()

        def press(told: Event) -> None:
            if isinstance(told, PartitionFinished):
                stop.request(signal.SIGTERM)

        assert run(one, stop=stop, observers=[press]).exit_code == 143
        assert not (one / MARKER).exists()
        assert not (one / RECOVERY_POINTS).exists()

    def test_a_real_signal(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=damaged())
        script = """
import os, signal, sys
from recovery.stop_request import StopRequest
from recovery.load.model import LogSettings
from tests.runs.engine_run import run_engine
stop = StopRequest()
signal.signal(signal.SIGTERM, lambda number, frame: stop.request(number))
press = lambda event: os.kill(os.getpid(), signal.SIGTERM)
report = run_engine([sys.argv[1]], lambda topic: LogSettings(), now_ms=0, stop=stop, observers=[press])
sys.exit(report.exit_code)
"""
        child = subprocess.run(
            [sys.executable, "-c", script, str(one)], capture_output=True, timeout=LONGEST_WAIT_SECONDS
        )
        assert child.returncode == 143, child.stderr
        assert not (one / MARKER).exists()


class TestDryRun:
    def test_it_changes_nothing_and_takes_no_lock_file(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=damaged())
        before = footprint(tmp_path)
        report = run(one, dry_run=True)
        assert footprint(tmp_path) == before
        assert report.exit_code == 2
        assert report.log_dirs[0].marker
        assert report.partitions[0].actions

    def test_it_is_refused_beside_a_broker(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=damaged())
        with other_process(one / ".lock"), pytest.raises(LogDirLockedError):
            run(one, dry_run=True)


class TestQuarantineDir:
    def test_what_is_saved_goes_where_the_operator_says(self, tmp_path: Path) -> None:
        one = log_dir(tmp_path / "d1", t_0=damaged())
        before, place = log_bytes(one), tmp_path / "elsewhere"
        report = run(one, quarantine_dir=str(place))
        assert not quarantine_of(one).exists()
        assert lost_batches(before, one, place) == []
        assert all(Path(path).is_relative_to(place) for path in report.partitions[0].quarantined)
        assert str(report.log_dirs[0].quarantine).startswith(str(place))

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_nothing_changed_nothing_created(self, tmp_path: Path, is_clean: bool) -> None:
        one = log_dir(tmp_path / "d1", t_0=three_segments())
        run(one, handoff="clean-shutdown" if is_clean else "none")
        run(one, handoff="clean-shutdown" if is_clean else "none", quarantine_dir=str(tmp_path / "elsewhere"))
        assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("seed", range(8))
def test_threads_and_dirs_by_chance(tmp_path: Path, seed: int) -> None:
    """Random log dirs: one thread in one dir at a time, and all at once, end alike."""
    rng = random.Random(seed)
    layout = {}
    for path in ("d1", "d2", "d3"):
        partitions = {}
        for number in range(rng.randint(0, 5)):
            files = partition({base: segment(base, 10) for base in range(0, 10 * rng.randint(1, 8), 10)})
            if rng.random() < 0.5:
                log = rng.choice(sorted(file for file in files if file.endswith(".log")))
                files[log] = flipped(files[log], rng.randrange(21, len(files[log])))
            partitions[f"{path}_{number}"] = files
        layout[path] = partitions
    one = [log_dir(tmp_path / "one" / path, **partitions) for path, partitions in layout.items()]
    all_at_once = [log_dir(tmp_path / "all" / path, **partitions) for path, partitions in layout.items()]
    for path in one:
        run(path, thread_count=1)
    run(*all_at_once, thread_count=4)
    for path, other in zip(one, all_at_once, strict=True):
        assert differences(tree_of(path), tree_of(other)) == []


def test_the_metadata_file_is_left_alone(tmp_path: Path) -> None:
    one = log_dir(tmp_path / "d1", t_0=three_segments())
    inode = (one / "t-0" / "partition.metadata").stat().st_ino
    run(one)
    assert (one / "t-0" / "partition.metadata").read_bytes() == METADATA
    assert (one / "t-0" / "partition.metadata").stat().st_ino == inode


def test_threads_take_turns_often_during_a_run_alone(tmp_path: Path) -> None:
    before_s = sys.getswitchinterval()
    seen_s: set[float] = set()
    run(log_dir(tmp_path / "d1", t_0=damaged()), observers=[lambda _: seen_s.add(sys.getswitchinterval())])
    assert min(seen_s) < before_s
    assert sys.getswitchinterval() == before_s


def test_what_a_failed_write_has_cut_by_then_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments behind a cut are renamed before it."""

    def failing(path: str, _size_bytes: int, **_found: int | None) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    files = damaged()
    one = log_dir(tmp_path / "d1", t_0=files, t_1=three_segments())
    monkeypatch.setattr(apply, "truncate", failing)
    events: list[Event] = []
    result = run(one, observers=(events.append,))
    (report,) = result.log_dirs
    assert report.status == "offline"
    partition = next(one for one in report.partitions if one.folder == "t-0")
    assert (partition.status, [cut.file for cut in partition.losses]) == ("failed", [name(20)])
    assert partition.truncated_bytes == len(files[name(20)])
    assert [Path(path).read_bytes() for path in partition.quarantined] == [files[name(20)]]
    assert Path(partition.quarantined[0]).parents[1] == Path(str(report.quarantine))
    assert f"CUT {one}/t-0: " in result.to_text()
    told = [event for event in events if isinstance(event, PartitionFinished) and event.partition == "t-0"]
    assert [(event.status, event.truncated_bytes) for event in told] == [("failed", len(files[name(20)]))]
