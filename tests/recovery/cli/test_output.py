"""What a run prints: the result alone on standard output, progress on standard error, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from recovery.load.model import CutRule
from recovery.problem import ProblemRule
from tests import ROOT
from tests.documents.json_schema import violations
from tests.logs.samples import SAMPLE_NAMES, Sample, tree_of, unpack
from tests.runs.command import RECOVERY, recover, run, run_unheard
from tests.runs.driving import footprint

KAFKA_LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (INFO|WARN|ERROR) ")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema of the JSON report as docs/reference/report.md prints it."""
    (found,) = re.findall(
        r"```json\n(\{\s*\"\$schema.*?)```", (ROOT / "docs/reference/report.md").read_text(), re.DOTALL
    )
    return dict(json.loads(found))


def test_all_rules_are_in_the_schema_and_explained(schema: dict[str, Any]) -> None:
    page = (ROOT / "docs/reference/report.md").read_text().partition("## Rules")[2].partition("## Schema")[0]
    of_problems, _, of_cuts = page.partition("Of `cuts`")
    for name, rules, explained in (
        ("problem", get_args(ProblemRule), of_problems),
        ("cut", get_args(CutRule), of_cuts),
    ):
        assert schema["$defs"][name]["properties"]["rule"]["enum"] == list(rules)
        assert set(re.findall(r"`([a-z-]+)`", explained)) >= set(rules)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_the_json_report_is_all_of_standard_output_and_is_as_documented(
    name: str, tmp_path: Path, schema: dict[str, Any]
) -> None:
    sample = unpack(name, tmp_path)
    for arguments in (["--dry-run"], []):
        done = recover(sample, *arguments)
        assert done.exit_code == 0
        assert done.stderr == ""
        assert violations(done.report, schema) == []
        assert done.report["dryRun"] == bool(arguments)
        assert done.report["nowMs"] == sample.now_ms


def test_reports_of_cuts_and_refusals_are_as_documented(tmp_path: Path, schema: dict[str, Any]) -> None:
    sample = unpack("crashed", tmp_path)
    tear(sample, "late-0")
    (sample.log_dirs[1] / "lost+found").mkdir()
    done = recover(sample)
    assert done.exit_code == 4
    assert violations(done.report, schema) == []
    first, second = done.report["logDirs"]
    (torn,) = [one for one in first["partitions"] if one["partition"] == "late-0"]
    assert torn["status"] == "truncated"
    assert torn["cuts"][0]["reason"] == "the last batch is torn"
    assert torn["truncatedBytes"] > 0
    assert all(Path(path).exists() for path in torn["quarantined"])
    (refused,) = [one for one in second["partitions"] if one["status"] == "refused"]
    assert refused["partition"] == "lost+found"
    assert (first["cleanShutdownMarker"], second["cleanShutdownMarker"]) == (True, False)


def test_a_violation_of_the_schema_is_seen(tmp_path: Path, schema: dict[str, Any]) -> None:
    report = recover(unpack("intact", tmp_path), "--dry-run").report
    partition = report["logDirs"][0]["partitions"][0]
    for key, wrong in (
        ("status", "fine"),
        ("logEndOffset", "7"),
        ("segments", {}),
        ("cuts", [{}]),
        ("more", 1),
    ):
        found = dict(partition)
        report["logDirs"][0]["partitions"] = [partition | {key: wrong}]
        assert violations(report, schema) != [], key
        partition = found


def test_a_slow_run_that_leaves_the_page_cache_alone_leaves_the_same_files(tmp_path: Path) -> None:
    plain, careful = unpack("crashed", tmp_path / "plain"), unpack("crashed", tmp_path / "careful")
    recover(plain)
    done = recover(careful, "--max-bytes-per-second", "20M", "--drop-cache")
    assert done.exit_code == 0
    assert tree_of(careful.root / "d1") == tree_of(plain.root / "d1")
    read_bytes = sum(one["bytes"]["scanned"] for part in done.report["logDirs"] for one in part["partitions"])
    assert done.report["durationMs"] >= 1000 * (read_bytes - (5 << 20)) / (20 << 20)


class TestExitCodes:
    def test_a_cut_is_2_in_a_dry_run_as_well_and_0_on_request(self, tmp_path: Path) -> None:
        for number, arguments in enumerate((["--dry-run"], ["--dry-run", "--exit-zero-on-truncation"], [])):
            sample = unpack("crashed", tmp_path / str(number))
            tear(sample, "late-0")
            done = recover(sample, *arguments)
            assert done.exit_code == (0 if "--exit-zero-on-truncation" in arguments else 2)
            assert done.report["exitCode"] == 2
        assert recover(sample).exit_code == 0  # nothing is left to cut

    def test_a_refused_partition_is_4_even_where_cuts_count_as_0(self, tmp_path: Path) -> None:
        sample = unpack("intact", tmp_path)
        (sample.log_dirs[0] / "lost+found").mkdir()
        assert recover(sample, "--exit-zero-on-truncation").exit_code == 4


class TestProgress:
    def test_json_lines_parse_and_end_with_the_run(self, tmp_path: Path) -> None:
        done = recover(unpack("crashed", tmp_path), "--progress", "json")
        events = [json.loads(line) for line in done.stderr.splitlines()]
        assert {event["version"] for event in events} == {1}
        assert [events[0]["event"], events[-1]["event"]] == ["RunStarted", "RunFinished"]
        assert events[-1]["exit_code"] == done.report["exitCode"] == 0
        finished = [event["partition"] for event in events if event["event"] == "PartitionFinished"]
        reported = [one["partition"] for log_dir in done.report["logDirs"] for one in log_dir["partitions"]]
        assert sorted(finished) == sorted(reported)

    def test_log_lines_are_the_default_away_from_a_terminal(self, tmp_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        done = run("recover", "-c", sample.config, "--now", str(sample.now_ms))
        assert done.exit_code == 0
        lines = done.stderr.splitlines()
        assert [line for line in lines if not KAFKA_LINE.match(line)] == []
        assert any(
            "Recovering unflushed segment 1126. 0/4 recovered for tiny-batches-0." in line for line in lines
        )
        assert not KAFKA_LINE.search(done.stdout)
        assert done.stdout.startswith("29 recovered (")

    def test_none_prints_nothing(self, tmp_path: Path) -> None:
        assert recover(unpack("crashed-v0-v1", tmp_path), "--progress", "none").stderr == ""


def test_a_dry_run_touches_nothing_and_says_what_is_then_done(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    tear(sample, "late-0")
    found = footprint(tmp_path)
    announced = recover(sample, "--dry-run")
    assert footprint(tmp_path) == found
    done = recover(sample)
    for before, after in zip(partitions(announced.report), partitions(done.report), strict=True):
        for key in (
            "partition",
            "status",
            "actions",
            "pendingDeletions",
            "toQuarantine",
            "cuts",
            "logStartOffset",
            "logEndOffset",
        ):
            assert before[key] == after[key], (before["partition"], key)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_threads_and_settings_are_taken_from_options(threads: str, tmp_path: Path) -> None:
    done = recover(unpack("crashed-v0-v1", tmp_path), "--threads", threads, "--progress", "json")
    assert json.loads(done.stderr.splitlines()[0])["threads_per_dir"] == int(threads)


def test_properties_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    arguments = (
        "--property",
        "num.recovery.threads.per.data.dir=5",
        "--property",
        f"log.dirs={sample.log_dirs[1]}",
    )
    done = recover(sample, *arguments, "--progress", "json")
    assert json.loads(done.stderr.splitlines()[0])["threads_per_dir"] == 5
    assert [log_dir["logDir"] for log_dir in done.report["logDirs"]] == [str(sample.log_dirs[1])]


@pytest.mark.parametrize("as_file", [True, False])
def test_topic_configs_decide_how_indexes_are_built(as_file: bool, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    text = json.dumps({"late": {"index.interval.bytes": 64}})
    if as_file:
        (tmp_path / "topics.json").write_text(text)
        text = str(tmp_path / "topics.json")
    assert recover(sample, "--topic-config", text).exit_code == 0
    entries = sum(path.stat().st_size // 8 for path in sample.root.glob("d?/late-0/*.index"))
    plain = unpack("crashed", tmp_path / "plain")
    recover(plain)
    assert entries > sum(path.stat().st_size // 8 for path in plain.root.glob("d?/late-0/*.index")) > 0


def tear(sample: Sample, folder: str) -> None:
    """Cut into the last batch of a log."""
    log = max(sample.root.glob(f"d?/{folder}/*.log"))
    with log.open("rb+") as opened:
        opened.truncate(log.stat().st_size - 5)


def partitions(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [partition for log_dir in report["logDirs"] for partition in log_dir["partitions"]]


@pytest.mark.parametrize("arguments", [["--version"], ["help", "recover"], ["recover", "--help"]])
def test_help_that_nobody_gets_is_an_error_unless_nobody_wants_it(arguments: list[str]) -> None:
    exit_code, stderr = run_unheard(*arguments)
    assert exit_code == 1
    assert "No space left on device" in stderr
    closed = subprocess.run([*RECOVERY, *arguments], capture_output=True, preexec_fn=lambda: os.close(1))
    assert (closed.returncode, closed.stderr) == (0, b"")


@pytest.mark.parametrize(
    "command", ["recover", "verify", "archive verify", "archive recover", "archive copy"]
)
def test_figures_end_as_the_process_does_where_the_report_is_lost(command: str, ram_path: Path) -> None:
    sample, figures = unpack("stopped", ram_path), ram_path / "figures.prom"
    assert recover(sample, "--force").exit_code == 0
    given = (
        ["-c", sample.config] if command in ("recover", "verify", "archive copy") else [sample.log_dirs[0]]
    )
    output = ["--output", ram_path / "output"] if command in ("archive copy", "archive recover") else []
    exit_code, stderr = run_unheard(*command.split(), *given, *output, "--metrics-textfile", figures)
    assert exit_code == 1
    assert "the run itself is complete, but the report could not be written" in stderr
    text = figures.read_text()
    assert "kafka_log_recovery_exit_code 1.0" in text
    assert 'kafka_log_recovery_run_state{state="complete"} 1.0' in text


@pytest.mark.parametrize("progress", ["log", "json"])
def test_lines_end_as_the_process_does_where_the_report_is_lost(progress: str, ram_path: Path) -> None:
    sample = unpack("crashed", ram_path)
    exit_code, stderr = run_unheard("recover", "-c", sample.config, "--progress", progress)
    assert exit_code == 1
    told = [line for line in stderr.splitlines() if "exit_code" in line]
    if progress == "log":
        assert [line.partition("exit_code=")[2] for line in told] == ["0", "1"]
        assert "The process ended with an error after the run; the report is lost." in told[-1]
    else:
        ends = [json.loads(line) for line in told if '"RunFinished"' in line]
        assert [end["exit_code"] for end in ends] == [0, 1]
