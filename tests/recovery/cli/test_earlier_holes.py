"""Missing offsets are told until a run over the log dir has ended and was heard, as a cut is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery.engine.report import CUT_LEDGER
from tests.logs.samples import Sample, unpack
from tests.runs.command import Done, recover, run, run_unheard
from tests.runs.driving import own_leftovers
from tests.runs.paused import start_paused

pytestmark = pytest.mark.long

FOLDER = "plain-1"


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    """Logs that are to be read and have nothing to cut; one of them lacks a segment in the middle."""
    sample = unpack("intact", ram_path)
    for log_dir in sample.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
        (log_dir / "recovery-point-offset-checkpoint").unlink()
    (folder,) = (log_dir / FOLDER for log_dir in sample.log_dirs if (log_dir / FOLDER).is_dir())
    logs = sorted(folder.glob("*.log"))
    for path in folder.glob(f"{logs[2].stem}.*"):
        path.unlink()
    return sample


@pytest.fixture
def expected(sample: Sample) -> list[tuple[int, int]]:
    """What is missing."""
    done = recover(sample, "--dry-run")
    assert done.exit_code == 2
    assert not list(sample.root.rglob(CUT_LEDGER))
    found = told_holes(done)
    assert len(found) == 1
    return found


def told_holes(done: Done) -> list[tuple[int, int]]:
    """First and last offset of all holes that a report tells of, those of earlier runs among them."""
    return [
        (hole["firstOffset"], hole["lastOffset"])
        for log_dir in done.report["logDirs"]
        for one in (*log_dir["earlierCuts"], *log_dir["partitions"])
        for hole in one["holes"]
        if one["partition"] == FOLDER
    ]


def assert_no_leftovers(sample: Sample) -> None:
    for log_dir in sample.log_dirs:
        assert own_leftovers(log_dir) == []


def unheard(sample: Sample, *options: str) -> None:
    run_unheard("recover", "-c", sample.config, "--now", str(sample.now_ms), *options)


def assert_told_once(sample: Sample, expected: list[tuple[int, int]], *options: str) -> None:
    for dry_run in (["--dry-run"], []):
        done = recover(sample, *options, *dry_run)
        assert done.exit_code == 2
        assert told_holes(done) == expected
    again = recover(sample, *options)
    assert again.exit_code == 0
    assert told_holes(again) == []
    assert_no_leftovers(sample)


@pytest.mark.parametrize("options", [(), ("--restart",), ("--quarantine-dir", "elsewhere"), ("--force",)])
def test_nobody_got_the_report(
    sample: Sample, expected: list[tuple[int, int]], options: tuple[str, ...]
) -> None:
    options = tuple(str(sample.root / one) if one == "elsewhere" else one for one in options)
    for _ in range(2):
        unheard(sample, *options)
    if options == ("--force",):  # finds it again each time
        assert told_holes(recover(sample, *options)) == expected
        assert recover(sample).exit_code == 0
    else:
        assert_told_once(sample, expected, *options)


@pytest.mark.parametrize("event", ["PartitionFinished", "LogDirHandedOver"])
def test_killed(sample: Sample, expected: list[tuple[int, int]], event: str) -> None:
    process = start_paused(event, 1, "recover", "-c", sample.config, "--now", sample.now_ms)
    process.kill()
    process.communicate()
    assert_told_once(sample, expected)


def test_in_words(sample: Sample, expected: list[tuple[int, int]]) -> None:
    unheard(sample)
    done = run("recover", "-c", sample.config, "--progress", "json", "--now", str(sample.now_ms))
    assert done.exit_code == 2
    (first, last) = expected[0]
    assert f"/{FOLDER}: found by an earlier run, at 20" in done.stdout
    assert f"offsets {first} to {last} are missing before " in done.stdout
    assert "cut off" not in done.stdout
    (told,) = (
        event
        for line in done.stderr.splitlines()
        if (event := json.loads(line))["event"] == "CutByEarlierRun"
    )
    assert told["partition"] == FOLDER
    assert f"offsets {first} to {last}" in told["text"]


def test_what_is_undone_is_not_told(sample: Sample) -> None:
    unheard(sample)
    assert run("undo", "-c", sample.config).exit_code == 0
    assert_no_leftovers(sample)
