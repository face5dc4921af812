"""What a broker dies of, as the command line tells it: all reasons, the remedy, the options that act on them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from recovery.engine.report import CUT_LEDGER
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import arguments_of, assert_one_line, recover, run, run_unheard
from tests.runs.driving import footprint, log_bytes, lost_batches, own_leftovers, quarantine_of
from tests.servers.file_systems import read_only
from tests.servers.machine import MOUNTS, needs

PARTITION = "old-v0-0"


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed-v0-v1", ram_path)


@pytest.fixture
def folder(sample: Sample) -> Path:
    """A partition that is broken in three ways, beside a foreign folder."""
    path = sample.log_dirs[0] / PARTITION
    (path / "foo.log").write_bytes(b"12345")
    (path / "x.snapshot").write_bytes(b"")
    (path / "leader-epoch-checkpoint").write_text("nonsense")
    (sample.log_dirs[0] / "backup").mkdir()
    return path


def untouched(folder: Path) -> dict[str, tuple[int, ...]]:
    return footprint(folder)


def test_all_reasons_are_in_the_text(sample: Sample, folder: Path) -> None:
    found = untouched(folder)
    for options in (["--dry-run"], []):
        done = recover(sample, "--format", "text", *options)
        assert done.exit_code == 4
        lines = done.stdout.splitlines()
        refused = f"REFUSED {sample.log_dirs[0] / PARTITION}: "
        (place,) = (number for number, line in enumerate(lines) if line.startswith(refused))
        reasons = [lines[place].removeprefix(refused), *lines[place + 1 : place + 3]]
        files = ["leader-epoch-checkpoint", "foo.log", "x.snapshot"]
        assert [line.split()[0].rstrip(":") for line in reasons] == files
        assert all("Remedy: " in line for line in reasons)
        assert any(line.startswith(f"REFUSED {sample.log_dirs[0]}/backup: its name is") for line in lines)
        assert "4 of 4 problems can be repaired: recover --repair moves files away" in lines
    assert untouched(folder) == found
    assert not (sample.log_dirs[0] / MARKER).exists()
    assert (sample.log_dirs[1] / MARKER).exists()


def test_all_reasons_are_in_the_json(sample: Sample, folder: Path) -> None:
    report = recover(sample, "--dry-run").report
    partitions = {one["partition"]: one for log_dir in report["logDirs"] for one in log_dir["partitions"]}
    problems = partitions[PARTITION]["problems"]
    assert [(problem["file"], problem["repairable"]) for problem in problems] == [
        ("leader-epoch-checkpoint", True),
        ("foo.log", True),
        ("x.snapshot", True),
    ]
    assert len(partitions[PARTITION]["reasons"]) == 3
    assert all(
        set(problem) == {"file", "position", "rule", "detail", "remedy", "repairable"} for problem in problems
    )


def test_repair_is_announced_and_done(sample: Sample, folder: Path) -> None:
    before = log_bytes(sample.log_dirs[0])
    found = untouched(sample.log_dirs[0] / PARTITION)
    announced = recover(sample, "--repair", "--dry-run")
    assert untouched(sample.log_dirs[0] / PARTITION) == found
    done = recover(sample, "--repair")
    assert announced.exit_code == done.exit_code == 0
    first = done.report["logDirs"][0]
    moves = [line for line in first["actions"] if line.startswith("move ")]
    assert [line.split()[1] for line in moves] == [
        "backup", *(f"{PARTITION}/{name}" for name in ("leader-epoch-checkpoint", "foo.log", "x.snapshot")),
    ]  # fmt: skip
    assert moves == [line for line in announced.report["logDirs"][0]["actions"] if line.startswith("move ")]
    assert lost_batches(before, sample.log_dirs[0]) == []
    assert Path(first["quarantine"]).parent == quarantine_of(sample.log_dirs[0])
    assert (Path(first["quarantine"]) / PARTITION / "foo.log").read_bytes() == b"12345"
    assert (sample.log_dirs[0] / MARKER).exists()


def test_repair_tells_what_it_moves_on_standard_error(sample: Sample, folder: Path) -> None:
    done = run("recover", "-c", sample.config, "--repair", "--progress", "log", "--now", str(sample.now_ms))
    assert f"move {PARTITION}/foo.log to quarantine" in done.stderr
    assert f"REPAIRED {sample.log_dirs[0]}: move {PARTITION}/foo.log to quarantine" in done.stdout


def test_force_ignores_the_marker(ram_path: Path) -> None:
    sample = unpack("stopped", ram_path)
    log = max((sample.log_dirs[1] / "plain-0").glob("*.log"))
    os.truncate(log, log.stat().st_size - 5)
    plain = recover(sample, "--dry-run")
    assert plain.exit_code == 2
    (hole,) = (
        hole for log_dir in plain.report["logDirs"] for one in log_dir["partitions"] for hole in one["holes"]
    )
    assert (hole["before"], hole["isHidden"]) == (log.name, True)
    assert "the clean-shutdown marker is wrong" in str(plain.report)
    text = run("recover", "-c", sample.config, "--dry-run", "--now", str(sample.now_ms), "--progress", "log")
    assert "the clean-shutdown marker is wrong" in text.stderr
    assert "the clean-shutdown marker is wrong" in text.stdout
    forced = recover(sample, "--force")
    assert forced.exit_code == 2
    assert "the clean-shutdown marker is wrong" not in str(forced.report)
    assert [log_dir["hadCleanShutdown"] for log_dir in forced.report["logDirs"]] == [True, True]


def test_a_pipe_for_a_lock_is_not_waited_for(sample: Sample) -> None:
    (sample.log_dirs[0] / ".lock").unlink(missing_ok=True)
    os.mkfifo(sample.log_dirs[0] / ".lock")
    for options in (["--dry-run"], []):
        done = recover(sample, *options)
        assert done.exit_code == 4
        assert done.report["logDirs"][0]["status"] == "offline"
        assert ".lock" in done.report["logDirs"][0]["error"]


def test_a_metadata_log_dir_that_is_no_place_for_a_lock(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    os.mkfifo(tmp_path / "metadata" / ".lock")
    done = recover(sample, "--property", f"metadata.log.dir={tmp_path / 'metadata'}")
    assert done.exit_code == 3
    assert_one_line(done, "metadata.log.dir", "Nothing was changed")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_what_lies_in_the_way_of_a_checkpoint_is_told_before_and_the_logs_are_recovered(
    sample: Sample, make: object, name: str
) -> None:
    make(sample.log_dirs[0] / f"{name}.tmp")
    announced, done = recover(sample, "--dry-run"), recover(sample)
    for one in (announced, done):
        (first, *_) = one.report["logDirs"]
        assert first["status"] == ("partial" if make is os.mkdir else "recovered")
        assert any(
            (found["file"], found["remedy"]) == (f"{name}.tmp", "move it away") for found in first["problems"]
        )
    assert announced.exit_code == done.exit_code == 4
    repaired = recover(sample, "--repair")
    assert repaired.exit_code == 0
    assert not (sample.log_dirs[0] / f"{name}.tmp").exists()


def test_a_folder_where_a_new_file_is_made_ready(sample: Sample) -> None:
    folder = next(
        path for path in sample.log_dirs[0].iterdir() if path.is_dir() and not path.name.startswith("__")
    )
    name = "00000000000000000000.index.recovery-tmp"
    (folder / name).mkdir()
    announced, done = recover(sample, "--dry-run"), recover(sample)
    for one in (announced, done):
        assert one.exit_code == 4
        (refused,) = (
            part
            for log_dir in one.report["logDirs"]
            for part in log_dir["partitions"]
            if part["status"] == "refused"
        )
        assert (refused["partition"], refused["problems"][0]["file"]) == (folder.name, name)
    assert recover(sample, "--repair").exit_code == 0


@needs(MOUNTS)
def test_a_partition_that_is_mounted_read_only(sample: Sample) -> None:
    folder = sample.log_dirs[0] / PARTITION
    with read_only(folder):
        announced, done = recover(sample, "--dry-run"), recover(sample)
    for one in (announced, done):
        assert one.exit_code == 4
        ends = {part["partition"]: part for part in one.report["logDirs"][0]["partitions"]}
        refused = ends.pop(PARTITION)
        assert (refused["status"], refused["problems"][0]["file"]) == ("refused", PARTITION)
        assert "mounted read-only" in refused["problems"][0]["detail"]
        assert "refused" not in {part["status"] for part in ends.values()}
    assert recover(sample).exit_code == 0


@needs(MOUNTS)
def test_log_dirs_that_are_mounted_read_only(sample: Sample) -> None:
    """A snapshot, say: a dry run looks at them without a lock, and a real run says why it cannot do anything."""
    told = recover(sample, "--dry-run").report
    with read_only(sample.root):
        announced = recover(sample, "--dry-run")
        done = recover(sample)
        text = run("recover", "-c", sample.config, "--progress", "none")
        undone = run("undo", "-c", sample.config)
    assert announced.exit_code == 0
    for log_dir, before in zip(announced.report["logDirs"], told["logDirs"], strict=True):
        assert log_dir["partitions"] == before["partitions"]
        assert ["looked at without a lock" in warning for warning in log_dir["warnings"]] == [True]
    assert done.exit_code == text.exit_code == 1
    for one in done.report["logDirs"]:
        assert (one["status"], [problem["file"] for problem in one["problems"]]) == (
            "offline",
            [one["logDir"]],
        )
    first, *others = text.stdout.splitlines()
    log_dirs = ", ".join(map(str, sample.log_dirs))
    assert first.startswith(f"OFFLINE {log_dirs}: the file system is mounted read-only (")
    assert "Remedy: " in first
    assert not any(line.startswith("OFFLINE ") for line in others)
    assert undone.exit_code == 3
    assert "the file system is mounted read-only" in undone.stderr
    assert "Errno" not in text.stdout + undone.stderr


def test_segments_that_are_one_file_by_two_names(ram_path: Path) -> None:
    """What is cut in one is cut in the other: of one log in another partition, of two segments of one partition."""
    sample = unpack("crashed", ram_path)
    log_dir = next(one for one in sample.log_dirs if (one / "late-1").exists())
    other = log_dir / "other-0"
    shutil.copytree(log_dir / "late-1", other)
    (other / "partition.metadata").unlink()
    first = min(path.name for path in other.glob("*.log"))
    (other / first).unlink()
    (other / first).hardlink_to(log_dir / "late-1" / first)
    doubled = log_dir / "transactions-0"
    segments = sorted(doubled.glob("*.log"))
    segments[-1].unlink()
    segments[-1].hardlink_to(segments[0])
    before = log_bytes(log_dir)
    for options in (["--dry-run"], []):
        done = recover(sample, *options)
        assert done.exit_code == 4
        parts = next(one for one in done.report["logDirs"] if one["logDir"] == str(log_dir))["partitions"]
        refused = {one["partition"]: one["problems"] for one in parts if one["status"] == "refused"}
        assert set(refused) == {"late-1", "other-0", "transactions-0"}
        (problem,) = refused["late-1"]
        assert problem["file"] == first
        assert f"the same file as {other / first} (hard links)" in problem["detail"]
        linked = {one["file"] for one in refused["transactions-0"] if "hard links" in one["detail"]}
        assert linked == {segments[0].name, segments[-1].name}
    after = log_bytes(log_dir)
    assert all(after[name] == before[name] for name in before if name.split("/")[0] in refused)
    copy = (other / first).read_bytes()
    (other / first).unlink()
    (other / first).write_bytes(copy)
    parts = [part for one in recover(sample).report["logDirs"] for part in one["partitions"]]
    assert [one["partition"] for one in parts if one["status"] == "refused"] == ["transactions-0"]


def test_what_a_repair_has_moved_is_told_until_somebody_hears_it(sample: Sample, folder: Path) -> None:
    run_unheard(*arguments_of(sample, "--repair"))
    moved = ("backup", f"{PARTITION}/foo.log", f"{PARTITION}/leader-epoch-checkpoint")
    for options, is_told in ((["--dry-run"], True), ([], True), ([], False)):
        done = recover(sample, *options)
        assert done.exit_code == 0
        notes = [note["text"] for note in done.report["logDirs"][0]["notes"]]
        told = [name for name in moved if any(note.startswith(f"{name}: moved to ") for note in notes)]
        assert told == (list(moved) if is_told else [])
    assert own_leftovers(sample.log_dirs[0]) == []


def test_what_is_moved_back_is_not_told(sample: Sample, folder: Path) -> None:
    run_unheard(*arguments_of(sample, "--repair"))
    assert run("undo", "-c", sample.config).exit_code == 0
    assert not (sample.log_dirs[0] / CUT_LEDGER).exists()


def test_the_remedy_for_a_malformed_partition_metadata_is_all_that_is_to_be_written(ram_path: Path) -> None:
    sample = unpack("crashed", ram_path)
    path = sample.log_dirs[0] / "codec-none-0" / "partition.metadata"
    before = path.read_text()
    path.write_text("garbage\n")
    done = recover(sample)
    assert done.exit_code == 4
    (problem,) = (
        one for log_dir in done.report["logDirs"] for one in log_dir["partitions"] if one["problems"]
    )
    (remedy,) = (one["remedy"] for one in problem["problems"])
    lines = re.fullmatch(
        r"write the two lines '(.*)' and '(.*)' into it, or copy it from another replica", remedy
    )
    assert lines is not None, remedy
    path.write_text("".join(f"{line}\n" for line in lines.groups()))  # as an editor ends them
    assert path.read_text().splitlines() == before.splitlines()
    assert recover(sample).exit_code == 0
