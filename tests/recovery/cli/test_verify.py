"""`kafka-log-recovery verify` as a user runs it: streams, exit codes, its documents."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import get_args

import pytest

from recovery.check.finding import REMEDIES, Rule
from recovery.cli.arguments import byte_rate
from tests import ROOT
from tests.documents.json_schema import violations
from tests.documents.texts import section_of, text_of
from tests.logs.samples import Sample, unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import assert_one_line, run, start
from tests.runs.driving import footprint

DOCUMENT = ROOT / "docs/reference/verify.md"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("stopped", tmp_path)


def verify(sample: Sample, *arguments: str, **options: object):
    return run("verify", "-c", sample.config, "--progress", "none", "--format", "json", *arguments, **options)


def test_a_sound_dir(sample: Sample) -> None:
    before = footprint(sample.root)
    done = verify(sample, "--deep")
    assert done.exit_code == 0, done.stdout
    assert done.report["summary"]["damaged"] == 0
    assert footprint(sample.root) == before
    assert done.stderr == ""


def test_damage_has_its_verdict(sample: Sample) -> None:
    log = max(sample.root.rglob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    done = verify(sample)
    assert done.exit_code == 2
    (bad,) = [file for one in done.report["logDirs"] for file in one["files"] if file["valid"] is False]
    assert bad["path"] == str(log)
    assert bad["kind"] == "log"
    assert bad["firstBadPosition"] == 0
    assert bad["remedy"] == REMEDIES[bad["rule"]]
    assert bad["bytesChecked"] == len(data)


def test_the_report_is_as_documented(sample: Sample) -> None:
    schema = json.loads(re.findall(r"^```json\n(.*?)^```$", text_of(DOCUMENT), re.MULTILINE | re.DOTALL)[-1])
    (sample.log_dirs[0] / "lost+found").mkdir()
    shutil.rmtree(sample.log_dirs[1])
    sample.log_dirs[1].mkdir()
    assert violations(verify(sample).report, schema) == []


def test_the_rules_are_those_of_the_document() -> None:
    table = section_of(DOCUMENT, "## Rules") + section_of(
        ROOT / "docs/reference/archive.md", "## Rules of archives"
    )
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert (
        {rule for row in rows for rule in re.findall(r"`([a-z-]+)`", row)}
        == set(REMEDIES)
        == set(get_args(Rule))
    )


def test_the_options_are_those_of_the_document() -> None:
    from recovery.cli.main import build_parser

    text = section_of(DOCUMENT, "## Options of `verify`")
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    help_text = run("verify", "--help").stdout
    assert documented == set(re.findall(r"(?<![\w-])--[a-z-]+", help_text)) - {"--help"}
    assert build_parser().parse_args(["verify", "--log-dirs", "x"]).max_bytes_per_second is None


def test_notes_of_many_files_are_one_line_and_each_with_v(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    command = ("verify", "-c", sample.config, "--progress", "none")
    short, each, quiet = (run(*command, *more).stdout for more in ((), ("-v",), ("-q",)))
    leftovers = [line for line in each.splitlines() if ": leftover: " in line]
    assert len(leftovers) == 70
    assert [line for line in short.splitlines() if "leftover" in line] == leftovers[:1]
    assert "    the same of 69 more files (-v lists them)\n" in short
    assert quiet == ""
    log = max(sample.log_dirs[0].glob("codec-none-0/*.log"))
    log.write_bytes(log.read_bytes()[:200] + b"x" + log.read_bytes()[201:])
    damaged = run(*command, "-q")
    assert (damaged.exit_code, len(damaged.stdout.splitlines())) == (2, 1)
    assert str(log) in damaged.stdout


def test_text_and_progress(sample: Sample) -> None:
    done = run("verify", "-c", sample.config, "--progress", "log")
    assert done.exit_code == 0
    assert "0 damaged, 0 not checked" in done.stdout
    assert "Verifying logs in log dirs" in done.stderr
    assert "Verified 5 logs in" in done.stderr
    assert "Recovering" not in done.stderr


@pytest.mark.parametrize(
    ("text", "rate"), [("1", 1), ("10k", 10240), ("3M", 3 << 20), ("2G", 2 << 30), ("5m", 5 << 20)]
)
def test_rates(text: str, rate: int) -> None:
    assert byte_rate(text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "", "1T", "1.5M", "M"])
def test_what_is_no_rate(sample: Sample, text: str) -> None:
    assert_one_line(run("verify", "-c", sample.config, f"--max-bytes-per-second={text}"), "integer above 0")


def test_errors_are_one_line(tmp_path: Path) -> None:
    done = run("verify", "--log-dirs", str(tmp_path / "none"), "--progress", "none")
    assert_one_line(done, "no such log dir")
    assert done.exit_code == 1
    assert_one_line(run("verify"), "--log-dirs")


def test_one_log_dir_of_two_is_gone(sample: Sample, tmp_path: Path) -> None:
    """A dead disk: the others are checked, and it is not passed over."""
    gone = tmp_path / "gone"
    log_dirs = ",".join(map(str, (gone, *sample.log_dirs)))
    done = run("verify", "--log-dirs", log_dirs, "--progress", "none", "--format", "json")
    assert done.exit_code == 4
    missing, *others = done.report["logDirs"]
    assert missing["logDir"] == str(gone)
    assert missing["error"].startswith("no such log dir. Remedy: check the path")
    assert all(other["error"] is None and other["partitions"] for other in others)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it(sample: Sample, number: int, code: int) -> None:
    arguments = (
        "verify",
        "-c",
        sample.config,
        "--format",
        "json",
        "--progress",
        "log",
        "--max-bytes-per-second",
        "2k",
    )
    with start(*arguments) as process:
        assert process.stderr is not None
        while "Verifying" not in process.stderr.readline():
            pass
        process.send_signal(number)
        output, errors = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == code
    assert json.loads(output)["exitCode"] == code
    assert "Traceback" not in errors


def test_a_dir_that_may_not_be_written(sample: Sample) -> None:
    for folder, _, _ in os.walk(sample.root):
        os.chmod(folder, 0o555)
    try:
        assert verify(sample).exit_code == 0
    finally:
        for folder, _, _ in os.walk(sample.root):
            os.chmod(folder, 0o755)


def test_what_was_ignored_is_a_note(sample: Sample) -> None:
    sample.config.write_text(f"{sample.config.read_text()}\nlog.index.interval.byte=5\n")
    given = ("--topic-config", '{"nope": {}}')
    done = verify(sample, *given)
    assert done.exit_code == 0
    assert [note["text"].split(",")[0] for note in done.report["notes"]] == [
        "log.index.interval.byte is not a setting of a broker",
        "--topic-config: no log of nope lies in the log dirs",
    ]
    text = run("verify", "-c", sample.config, "--progress", "none", *given).stdout
    assert "note: log.index.interval.byte is not a setting of a broker" in text


def test_that_the_metadata_log_is_missing_is_a_note(sample: Sample) -> None:
    shutil.rmtree(sample.log_dirs[0] / "__cluster_metadata-0")
    (note,) = verify(sample).report["notes"]
    assert "gaps in the offsets are judged only in topics that --topic-config names" in note["text"]


def test_a_setting_that_cannot_be_is_refused(sample: Sample) -> None:
    done = verify(sample, "--topic-config", '{"plain": {"cleanup.policy": "bogus"}}')
    assert done.exit_code == 1
    assert "--topic-config, topic plain: cleanup.policy=bogus" in done.stderr
