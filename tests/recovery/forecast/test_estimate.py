"""`recovery.estimate`: it counts what a recovery then recovers, beside a live broker as well, and touches nothing."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.engine.report import RecoveryReport
from recovery.errors import LogDirOfflineError, UsageError
from recovery.forecast import sample as sampling
from recovery.forecast.report import EstimateReport
from recovery.forecast.survey import LogDirSurvey, survey_log_dirs
from recovery.load.forecast import segments_recovered, segments_recovered_by_reading
from recovery.load.release import Release
from recovery.logdir import inventory, listing
from recovery.logdir.inventory import list_log_dir
from recovery.problem import Problem
from recovery.read.partition_files import PartitionFiles
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT
from tests import ROOT
from tests.documents.texts import section_of
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import run
from tests.runs.driving import footprint, settings_of
from tests.runs.driving import recover as recover_in_process

ENDS_BEFORE_IT_BEGINS = bytes(34)
"""An aborted transaction that ends at offset 0, which no segment after the first can have."""


def estimate(sample: Sample, **changes: Any) -> EstimateReport:
    return recovery.estimate(None, config=sample.properties, topic_configs=sample.topic_configs, **changes)


def counted(report: EstimateReport | RecoveryReport) -> dict[str, tuple[int, int]]:
    """Segments and bytes by log dir: those of an estimate, or those that a run has recovered."""
    if isinstance(report, EstimateReport):
        return {one.log_dir: (one.segment_count, one.size_bytes) for one in report.log_dirs}
    return {
        one.log_dir: (
            sum(partition.recovered_segments for partition in one.partitions),
            sum(partition.recovered_bytes for partition in one.partitions),
        )
        for one in report.log_dirs
    }


@contextmanager
def held_by_another(log_dir: Path) -> Iterator[None]:
    """Let another process hold the lock of *log_dir*, as a broker does."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:  # it must not return into the test, whatever happens
        try:
            descriptor = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            os.write(write_end, b"x")
            signal.pause()
        finally:
            os._exit(0)
    os.read(read_end, 1)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def test_the_options_are_the_documented_ones() -> None:
    names = [field.name for field in fields(recovery.EstimateOptions)]
    assert names == [
        "config",
        "is_config_complete",
        "config_notes",
        "topic_configs",
        "release",
        "sample_bytes",
        "seed",
    ]


@pytest.mark.parametrize("option", ["--log-dirs", "-c"])
def test_without_a_configuration_tiered_storage_is_assumed_as_in_a_recovery(
    tmp_path: Path, option: str
) -> None:
    """The broker has it on; Kafka's default is off, and would let the log begin after its remote part."""
    sample = unpack("tiered", tmp_path)
    where = sample.config if option == "-c" else ",".join(map(str, sample.log_dirs))
    for command in (("estimate", "--sample-bytes", "0"), ("recover", "--dry-run", "--progress", "log")):
        done = run(*command, option, where)
        said = done.stdout + done.stderr
        assert "is forgotten" not in said
        is_assumed = "remote.storage.enable=true, so remote.log.storage.system.enable=true is assumed" in said
        assert is_assumed == (option == "--log-dirs")


def lose_indexes(sample: Sample) -> None:
    """Take indexes away from flushed and unflushed segments, and leave one transaction index wrong."""
    first, second = sample.log_dirs
    for folder in (first / "plain-1", second / "plain-0"):
        logs = sorted(folder.glob("*.log"))
        for log in (logs[0], logs[-1]):
            log.with_suffix(".index").unlink()
    middle = sorted((first / "plain-1").glob("*.log"))[1]
    middle.with_suffix(".txnindex").write_bytes(ENDS_BEFORE_IT_BEGINS)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_indexes", [True, False])
def test_it_counts_what_a_recovery_recovers(tmp_path: Path, is_clean: bool, has_indexes: bool) -> None:
    sample = unpack("stopped", tmp_path)
    if not is_clean:
        for log_dir in sample.log_dirs:
            (log_dir / MARKER).unlink()
    if not has_indexes:
        lose_indexes(sample)
    before = counted(estimate(sample))
    assert before == counted(recover_in_process(sample, dry_run=True))
    assert any(segments for segments, _ in before.values()) == (not is_clean or not has_indexes)


def test_of_unflushed_segments_those_that_a_run_begins_with(tmp_path: Path) -> None:
    """The sample's broker was killed: some batch may be torn, so the bytes are those of the forecast of the run."""
    sample = unpack("crashed", tmp_path)
    shutil.rmtree(sample.log_dirs[0] / "preallocated-0")  # a run counts all of a preallocated segment
    started: dict[str, tuple[int, int]] = {}

    def note(event: Any) -> None:
        if type(event).__name__ == "LogDirStarted":
            started[event.log_dir] = (event.segment_count, event.bytes_total)

    report = estimate(sample)
    recover_in_process(sample, dry_run=True, observers=[note])
    assert counted(report) == started
    assert report.segment_count > 0

    flushed = sample.log_dirs[0] / "codec-none-0" / f"{0:020}.log"
    flushed.with_suffix(".index").unlink()
    before = started[str(sample.log_dirs[0])]
    recover_in_process(sample, dry_run=True, observers=[note])
    assert started[str(sample.log_dirs[0])] == (before[0], before[1] + flushed.stat().st_size)
    assert counted(estimate(sample))[str(sample.log_dirs[0])] == (
        before[0] + 1,
        before[1] + flushed.stat().st_size,
    )


def test_a_recovery_point_in_the_checkpoint_counts(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    before = estimate(sample)
    for log_dir in sample.log_dirs:
        (log_dir / RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    after = estimate(sample)
    logs = [path for log_dir in sample.log_dirs for path in log_dir.glob("*-*/*.log")]
    kept = [
        path
        for path in logs
        if not path.parent.name.startswith("__cluster") and path.parent.name[-6:] != "delete"
    ]
    assert before.segment_count < after.segment_count == len(kept)
    assert any("missing" in note.text for note in after.notes)


@pytest.mark.parametrize("state", ["future", "stray", "delete"])
def test_folders_in_other_states(tmp_path: Path, state: str) -> None:
    sample = unpack("crashed", tmp_path)
    folder = sample.log_dirs[0] / "codec-none-0"
    renamed = folder.with_name(f"{folder.name}.{'0' * 32}-{state}")
    folder.rename(renamed)
    shutil.rmtree(sample.log_dirs[0] / "preallocated-0")
    assert counted(estimate(sample)) == counted_by_names(sample)
    for index in renamed.glob("*.index"):
        index.unlink()
    count = len(list(renamed.glob("*.log")))
    assert count > 4
    assert counted(estimate(sample)) == counted_by_names(sample)
    topics = {topic.topic: topic for topic in estimate(sample).topics}
    assert topics["codec-none"].segment_count == count


def counted_by_names(sample: Sample) -> dict[str, tuple[int, int]]:
    found = {}
    for log_dir in map(str, sample.log_dirs):
        listed = list_log_dir(log_dir, settings_of=settings_of(sample), now_ms=sample.now_ms)
        segments = [segment for task in listed.tasks for segment in segments_recovered(task)]
        found[log_dir] = (len(segments), sum(segment.size_bytes for segment in segments))
    return found


def test_the_swap_of_an_interrupted_cleaning_takes_the_place_of_its_segments(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    folder = sample.log_dirs[0] / "codec-none-0"
    log = sorted(folder.glob("*.log"))[-1]
    size_bytes = log.stat().st_size
    shutil.copy(log, f"{log}.swap")
    log.write_bytes(log.read_bytes()[: size_bytes // 2])
    listed = list_log_dir(str(folder.parent), settings_of=settings_of(sample), now_ms=sample.now_ms)
    task = next(task for task in listed.tasks if task.folder == folder.name)
    assert segments_recovered(task)[-1].size_bytes == size_bytes // 2
    found = segments_recovered_by_reading(task, PartitionFiles(str(folder), task.settings))
    assert (found[-1].file, found[-1].size_bytes) == (f"{log.name}.swap", size_bytes)
    assert found[-1].is_reindexed is False


def test_a_preallocated_segment_counts_with_what_was_written(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    log = sorted((sample.log_dirs[0] / "preallocated-0").glob("*.log"))[-1]
    data = log.read_bytes()
    written_bytes = len(data.rstrip(b"\0"))
    log.write_bytes(data[:written_bytes])
    exact = estimate(sample)
    os.truncate(log, 1 << 30)
    report = estimate(sample)
    assert report.segment_count == exact.segment_count
    assert 0 <= report.size_bytes - exact.size_bytes < 4096
    assert report.log_dirs[0].size_bytes < 1 << 30


def test_it_touches_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    with held_by_another(sample.log_dirs[0]):
        before = footprint(sample.root)
        report = estimate(sample)
        assert footprint(sample.root) == before
    assert [one.is_live for one in report.log_dirs] == [True, False]
    assert report.exit_code == 0
    assert report.sample.read_bytes > 0


def test_it_leaves_no_new_time_of_access_on_segments_and_indexes(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    paths = [
        path
        for log_dir in sample.log_dirs
        for path in log_dir.glob("*-*/*")
        if path.suffix in (".log", ".index")
    ]
    for path in paths:
        os.utime(path, ns=(10**18, path.stat().st_mtime_ns))
    assert estimate(sample).sample.read_bytes > 0
    assert {path.stat().st_atime_ns for path in paths} == {10**18}


def test_what_vanishes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = unpack("crashed", tmp_path)
    first = sample.log_dirs[0]
    victim = sorted((first / "codec-none-0").glob("*.log"))[-1]
    gone = first / "codec-zstd-0"
    look_at, look_into = listing._look_at, inventory.look_into

    def meanwhile(entry: os.DirEntry[str], *arguments: Any, **options: Any) -> None:
        if entry.path == str(victim):
            victim.unlink(missing_ok=True)
        look_at(entry, *arguments, **options)

    def folder_meanwhile(folder: str, *arguments: Any, **options: Any) -> Any:
        if folder == str(gone):
            shutil.rmtree(gone, ignore_errors=True)
        return look_into(folder, *arguments, **options)

    monkeypatch.setattr(listing, "_look_at", meanwhile)
    monkeypatch.setattr(inventory, "look_into", folder_meanwhile)
    report = estimate(sample)
    assert not victim.exists()
    assert not gone.exists()
    assert report.exit_code == 0
    monkeypatch.undo()
    assert counted(report) == counted(estimate(sample))
    victim.touch()
    monkeypatch.setattr(listing, "_look_at", meanwhile)
    with pytest.raises(LogDirOfflineError):  # a recovery holds the lock: nothing vanishes there
        list_log_dir(str(first), settings_of=settings_of(sample), now_ms=sample.now_ms)


def test_segments_that_vanish_before_they_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = unpack("crashed", tmp_path)
    read = sampling._read

    def gone(piece: Any) -> Any:
        raise FileNotFoundError(piece.segment.file)

    monkeypatch.setattr(sampling, "_read", gone)
    report = estimate(sample)
    assert report.segment_count
    assert (report.tool_s, report.broker, report.exit_code) == (None, None, 0)
    assert "nothing was sampled" in report.to_text()
    monkeypatch.setattr(sampling, "_read", read)
    assert estimate(sample).tool_s


def test_a_log_dir_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = unpack("crashed", tmp_path)
    bad, good = map(str, sample.log_dirs)
    scandir = os.scandir

    def denied(path: Any) -> Any:
        if path == bad:
            raise PermissionError(13, "Permission denied", bad)
        return scandir(path)

    whole = estimate(sample)
    monkeypatch.setattr(os, "scandir", denied)
    report = estimate(sample)
    assert report.exit_code == 4
    assert [one.error is not None for one in report.log_dirs] == [True, False]
    assert counted(report) == {bad: (0, 0), good: counted(whole)[good]}
    assert report.to_text().startswith(f"NOT READ {bad}: ")


def test_what_cannot_be_read_is_not_nothing_to_recover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = unpack("crashed", tmp_path)

    def denied(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    lines = estimate(sample).to_text().splitlines()
    assert "A restart has nothing to recover in what could be read; of the rest that is not known." in lines
    assert not any("nothing to recover" in line for line in lines if "could be read" not in line)


def test_what_would_keep_a_broker_from_starting_comes_first(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    first = sample.log_dirs[0]
    (first / "lost+found").mkdir()
    (first / "codec-none-0" / f"{99:020}.txnindex").write_bytes(b"\x7f" + bytes(33))
    (first / "late-0" / "foo.snapshot").touch()
    (first / "own-index-0" / "partition.metadata").write_bytes(b"")
    report = estimate(sample)
    problems = list(map(str, report.log_dirs[0].problems))
    files = (
        "lost+found",
        f"codec-none-0/{99:020}.txnindex",
        "late-0/foo.snapshot",
        "own-index-0/partition.metadata",
    )
    assert sorted(problem.partition(":")[0].partition(" ")[0] for problem in problems) == sorted(files)
    assert all("Remedy: " in problem for problem in problems)
    assert report.to_text().splitlines()[0] == f"PROBLEM {first}: {problems[0]}"
    assert report.exit_code == 0


def surveyed(sample: Sample, known: dict[str, tuple[Problem, ...]] | None = None) -> list[LogDirSurvey]:
    return survey_log_dirs(
        [str(path) for path in sample.log_dirs],
        settings_of=settings_of(sample),
        release=Release.KAFKA_4_3,
        now_ms=sample.now_ms,
        known_problems=known or {},
    )


def test_folders_of_logs_that_may_not_be_listed_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three, one is named. A folder that may be read and not entered is one of them."""
    sample = unpack("crashed", tmp_path)
    first = sample.log_dirs[0]
    closed = sorted(path for path in first.iterdir() if path.is_dir() and path.name[:2] != "__")[:3]
    rights = {str(path): (os.R_OK if number else 0) for number, path in enumerate(closed)}
    scandir, access = os.scandir, os.access

    def denied(path: Any) -> Any:
        if str(path) in rights:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    def allowed(path: Any, mode: int, **options: Any) -> bool:
        return rights[str(path)] & mode == mode if str(path) in rights else access(path, mode, **options)

    monkeypatch.setattr(os, "scandir", denied)
    monkeypatch.setattr(os, "access", allowed)
    report = estimate(sample)
    assert report.exit_code == 4
    error = report.log_dirs[0].error or ""
    assert " and 2 more: may not be read by the user that recover runs as (Permission denied)." in error
    assert " Remedy: run recover as the broker's user, or as root" in error
    assert error.partition(" ")[0] in {path.name for path in closed}


def test_all_logs_and_all_their_files_cost_time(tmp_path: Path) -> None:
    sample = unpack("stopped", tmp_path)
    for path, survey in zip(sample.log_dirs, surveyed(sample), strict=True):
        logs = [one for one in path.iterdir() if one.is_dir() and one.name != "__cluster_metadata-0"]
        assert survey.logs == ()
        assert survey.log_count == len(logs) > 0
        assert survey.file_count == sum(len(os.listdir(log)) for log in logs)


def test_the_same_problem_of_many_files_is_one_line(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    folders = sorted(path.parent for path in sample.log_dirs[0].glob("[!_]*/partition.metadata"))
    for folder in folders:
        (folder / "partition.metadata").write_bytes(b"")
    report = estimate(sample)
    (line,) = (line for line in report.to_text().splitlines() if line.startswith("PROBLEM "))
    assert len(report.log_dirs[0].to_json()["problems"]) == len(folders)
    first = ", ".join(f"{folder.name}/partition.metadata" for folder in folders[:3])
    assert f": {first} and {len(folders) - 3} more: " in line
    assert line.count(". Remedy: ") == 1


def test_problems_that_were_known_before_are_told(tmp_path: Path) -> None:
    sample = unpack("stopped", tmp_path)
    known = Problem(file="meta.properties", rule="another-node", detail="identity", remedy="mend it")
    first, second = surveyed(sample, {str(sample.log_dirs[0]): (known,)})
    assert first.problems == (known,)
    assert second.problems == ()


@pytest.mark.parametrize("kind", ["swap", "cleaned"])
def test_what_a_cleaning_has_left_is_looked_into(tmp_path: Path, kind: str) -> None:
    """A swap is recovered in the place of its segment; with a `.cleaned` of that offset it counts for nothing."""
    sample = unpack("crashed", tmp_path)
    folder = sample.log_dirs[0] / "codec-none-0"
    *_, log = sorted(folder.glob("*.log"))
    size_bytes = log.stat().st_size
    shutil.copy(log, f"{log}.swap")
    if kind == "cleaned":
        shutil.copy(log, f"{log}.cleaned")
    log.write_bytes(log.read_bytes()[: size_bytes // 2])
    (found,) = (one for survey in surveyed(sample) for one in survey.logs if one.folder == str(folder))
    expected = size_bytes if kind == "swap" else size_bytes // 2
    assert found.segments[-1].size_bytes == expected


def test_a_partition_in_two_folders(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    shutil.copytree(sample.log_dirs[0] / "late-0", sample.log_dirs[1] / "late-0")
    assert [len(one.problems) for one in estimate(sample).log_dirs] == [1, 1]
    with held_by_another(sample.log_dirs[0]):  # a broker that runs did not find it: it moves a log
        assert [len(one.problems) for one in estimate(sample).log_dirs] == [0, 0]


def test_the_lock_cannot_be_looked_at(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    (sample.log_dirs[0] / ".lock").unlink(missing_ok=True)
    (sample.log_dirs[0] / ".lock").mkdir()
    report = estimate(sample)
    assert report.exit_code == 4
    assert "whether a broker runs is not known" in (report.log_dirs[0].error or "")
    assert report.log_dirs[0].segment_count > 0
    assert str(report.log_dirs[0].segment_count) in report.to_text()


def test_there_is_nothing_to_recover(tmp_path: Path) -> None:
    report = estimate(unpack("stopped", tmp_path))
    assert report.to_text().startswith("A restart now has nothing to recover: shut down cleanly.")
    assert (report.segment_count, report.topics) == (0, ())
    assert [one.had_clean_shutdown for one in report.log_dirs] == [True, True]
    assert report.tool_s is not None
    assert report.tool_s > 0  # a start still loads the logs


def test_ten_topics_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    log_dir = sample.log_dirs[0]
    for number in range(12):
        shutil.copytree(log_dir / "codec-none-0", log_dir / f"copy{number:02}-0")
    report = estimate(sample)
    sizes = [topic.size_bytes for topic in report.topics]
    assert sizes == sorted(sizes, reverse=True)
    lines = report.to_text().splitlines()
    begin = lines.index("largest topics:")
    assert lines[begin + 11].startswith(f"  and {len(sizes) - 10} more topics: ")
    each = report.to_text(1).splitlines()
    shown = [line.split()[0] for line in each[each.index("largest topics:") + 1 :][: len(sizes)]]
    assert shown == [topic.topic for topic in report.topics]
    assert "more topic" not in report.to_text(1)
    assert report.to_text(-1) == ""


def test_problems_are_counted_from_the_eleventh_on_unless_all_are_asked_for(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    for number in range(12):
        (sample.log_dirs[0] / "late-0" / f"foo{number}.snapshot").touch()
    report = estimate(sample)
    each = report.to_text(1).splitlines()
    problems = [line for line in each if line.startswith("PROBLEM ")]
    count = len(problems)
    assert count > 10
    assert report.to_text().splitlines()[:11] == [
        *problems[:10],
        f"... {count - 10} more problems (-v shows all)",
    ]
    quiet = run("estimate", "-c", sample.config, "--sample-bytes", "0", "-q")
    assert quiet.stdout.splitlines() == report.to_text().splitlines()[:11]


def test_json_has_the_documented_keys(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    report = json.loads(estimate(sample).to_json())
    table = section_of(ROOT / "docs/reference/estimate.md", "## JSON")
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    top = {name.removesuffix("[]") for name in names if not name.startswith(".")}
    assert set(report) == top
    assert set(report["logDirs"][0]) == {
        name[1:].removesuffix("[]") for name in names if name.startswith(".")
    }
    assert set(report["topics"][0]) == {"topic", "logs", "segments", "bytes"}
    assert set(report["sample"]) == {"bytes", "batches", "bytesPerSecond", "cachedBytes"}
    assert set(report["brokerSeconds"]) == {"low", "high"}
    assert report["command"] == "estimate"


def test_the_command_line(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    done = run("estimate", "-c", sample.config, "--format", "json", "--sample-bytes", "0")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.report["toolSeconds"] is None
    assert done.report["brokerSeconds"] is None
    assert done.report["sample"]["bytes"] == 0
    assert done.report["logDirs"][0]["segments"] > 0
    text = run("estimate", "-c", sample.config, "--sample-bytes", "1M").stdout
    assert text.startswith("A restart now has to recover ")
    assert run("estimate", "--log-dirs", tmp_path / "none").exit_code == 1
    assert run("estimate").exit_code == 1


def test_wrong_settings(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    with pytest.raises(UsageError):
        recovery.estimate(list(map(str, sample.log_dirs)), topic_configs={"late": {"segment.bytes": "x"}})
    with pytest.raises(UsageError):
        recovery.estimate(list(map(str, sample.log_dirs)), sample_bytes=-1)
