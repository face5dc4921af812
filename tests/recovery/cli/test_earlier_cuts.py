"""A cut is told: by the run that made it, or by the next ones, until one of them has ended and was heard."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.engine.report import CUT_LEDGER
from recovery.engine.resume import RunJournal
from recovery.quantity import count_text, exact_bytes_text
from tests.faults.states import MADE_STATES
from tests.faults.told import Cuts, told_cuts
from tests.logs.samples import MARKER, Sample, tree_of, unpack, write_tree
from tests.runs.command import RECOVERY, Done, arguments_of, recover, run, run_unheard, start
from tests.runs.driving import own_leftovers
from tests.runs.paused import resume, start_paused

pytestmark = pytest.mark.long


def two_log_dirs(folder: Path) -> Sample:
    """Two log dirs, each with a partition whose first segment is torn."""
    source = unpack("crashed", folder)
    root = folder / "two"
    root.mkdir()
    state = MADE_STATES["two log dirs"]
    state.make({"crashed": source}, root)
    text = source.config.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("log.dirs", "metadata.log.dir"))]
    log_dirs = tuple(state.paths(root))
    (root / "server.properties").write_text(
        "\n".join([*lines, f"log.dirs={','.join(map(str, log_dirs))}", ""])
    )
    return Sample(
        name="two",
        root=root,
        log_dirs=log_dirs,
        properties=source.properties,
        topic_configs=source.topic_configs,
        now_ms=source.now_ms,
    )


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return two_log_dirs(ram_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cuts]:
    """What there is to be cut."""
    done = recover(two_log_dirs(tmp_path_factory.mktemp("expected")), "--dry-run")
    assert done.exit_code == 2
    found = told_cuts(done.report)
    assert len(found) == 3
    return found


def sums_of(cuts: Cuts) -> tuple[int, int]:
    """Bytes and batches."""
    return sum(size_bytes for _, _, size_bytes in cuts), sum(cuts.values())


def assert_told_once(sample: Sample, expected: dict[str, Cuts], *options: object) -> None:
    """The next run tells of everything, a dry run as well; the one after it of nothing."""
    for _ in range(2):
        told = recover(sample, "--dry-run", *map(str, options))
        assert told.exit_code == 2
        assert told_cuts(told.report) == expected
    done = recover(sample, *map(str, options))
    assert done.exit_code == 2
    assert told_cuts(done.report) == expected
    for log_dir in done.report["logDirs"]:
        for cut in log_dir["earlierCuts"]:
            assert Path(cut["quarantine"]).is_dir()
            assert cut["timeMs"] > 1_700_000_000_000
    again = recover(sample, *map(str, options))
    assert again.exit_code == 0
    assert not told_cuts(again.report)
    for log_dir in sample.log_dirs:
        assert own_leftovers(log_dir) == []


@pytest.mark.parametrize(
    "options", [(), ("--restart",), ("--quarantine-dir", "elsewhere"), ("--processes", "always")]
)
@pytest.mark.parametrize("number", [1, 2])
def test_killed_behind_a_hand_over(
    sample: Sample, expected: dict[str, Cuts], options: tuple[str, ...], number: int
) -> None:
    process = start_paused("LogDirHandedOver", number, *arguments_of(sample))
    process.kill()
    process.communicate()
    options = tuple(str(sample.root / one) if one == "elsewhere" else one for one in options)
    assert_told_once(sample, expected, *options)


def logs_of(log_dir: Path) -> dict[str, object]:
    """The files of its logs, without those that wait for their removal."""
    return {name: file for name, file in tree_of(log_dir).items() if "/" in name and ".deleted" not in name}


@pytest.mark.parametrize(
    ("event", "number"), [*(("PartitionFinished", number) for number in range(1, 4)), ("LogDirHandedOver", 1)]
)
def test_killed_with_quarantine_elsewhere(
    sample: Sample, expected: dict[str, Cuts], event: str, number: int
) -> None:
    """The next run, which does not look there, ends what was begun: the commands that it names put all back."""
    before = {log_dir: tree_of(log_dir) for log_dir in sample.log_dirs}
    elsewhere = ("--quarantine-dir", str(sample.root / "elsewhere"))
    # One thread, so that the next run finds different things to do, down to the hand-over alone
    process = start_paused(event, number, *arguments_of(sample, *elsewhere, "--threads", "1"))
    process.kill()
    process.communicate()
    # One log dir may have come to its end before the other was held: of that, an undo takes the run back already.
    ended = [
        log_dir
        for log_dir in sample.log_dirs
        if (log_dir / MARKER).exists()
        and not os.path.exists(RunJournal(str(log_dir), quarantine_dir=elsewhere[1], dry_run=True).path)
    ]
    dry = recover(sample, "--dry-run", "--format", "text")
    assert "EARLIER " in dry.stdout
    undo = [
        line.partition("kafka-log-recovery undo ")[2] for line in dry.stdout.splitlines() if " undo " in line
    ]
    assert undo == [shlex.join(["--log-dirs", str(log_dir), *elsewhere]) for log_dir in ended]
    found = [logs_of(log_dir) for log_dir in sample.log_dirs]
    done = recover(sample, "--format", "text")
    assert done.exit_code == 2
    # How far each of the log dirs had come is a matter of luck: what is only handed over has a command of its own
    has_changed = {logs_of(log_dir) != logs for log_dir, logs in zip(sample.log_dirs, found, strict=True)}
    commands = [
        line.partition("kafka-log-recovery ")[2] for line in done.stdout.splitlines() if " undo " in line
    ]
    assert len(commands) == 1 + len(has_changed)
    # In a log dir of which both have changed something, only in this order
    assert sum("; after that, this puts it back: " in line for line in done.stdout.splitlines()) == 1
    for command in commands:
        undone = run(*shlex.split(command))
        assert undone.exit_code == 0, undone.stderr
    assert {log_dir: tree_of(log_dir) for log_dir in sample.log_dirs} == before


@pytest.mark.parametrize("options", [(), ("--restart",), ("--quarantine-dir", "elsewhere")])
def test_killed_behind_a_partition(
    sample: Sample, expected: dict[str, Cuts], options: tuple[str, ...]
) -> None:
    process = start_paused("PartitionFinished", 1, *arguments_of(sample))
    process.kill()
    process.communicate()
    options = tuple(str(sample.root / one) if one == "elsewhere" else one for one in options)
    assert_told_once(sample, expected, *options)


def test_terminated(sample: Sample, expected: dict[str, Cuts]) -> None:
    """It has said what it had cut, and that it has not ended."""
    process = start_paused("LogDirHandedOver", 1, *arguments_of(sample))
    process.send_signal(signal.SIGTERM)
    code, _, _ = resume(process)
    assert code == 143
    assert_told_once(sample, expected)


def test_a_full_device(sample: Sample, expected: dict[str, Cuts]) -> None:
    code, stderr = run_unheard(*arguments_of(sample))
    assert code == 1
    assert "the report could not be written" in stderr
    assert_told_once(sample, expected)


def test_a_file_that_did_not_come_to_the_disk(sample: Sample, expected: dict[str, Cuts]) -> None:
    failing = """
import errno, os, sys
fsync = os.fsync
def fails_for_the_report(descriptor):
    if descriptor == 1:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    fsync(descriptor)
os.fsync = fails_for_the_report
from recovery.cli.main import main
sys.exit(main())
"""
    with open(sample.root / "report.json", "w") as report:
        process = start(*arguments_of(sample), command=(sys.executable, "-c", failing), stdout=report)
        _, stderr = process.communicate()
    assert process.returncode == 1
    assert "the report could not be written" in stderr
    assert_told_once(sample, expected)


@pytest.fixture(params=[False, True], ids=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """With and without PYTHONUNBUFFERED, which images of containers set: Python's own print then writes what it can."""
    return {**os.environ, "PYTHONUNBUFFERED": "1" if request.param else ""}


def start_on_full_pipe(sample: Sample, environment: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    """Start a run whose output is a pipe that is full, and waits for nobody; wait until it has its report to write."""
    read, write = os.pipe2(os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    process = start(*arguments_of(sample), stdout=write, env=environment)
    os.close(write)
    while not all((log_dir / MARKER).exists() for log_dir in sample.log_dirs):
        time.sleep(0.01)
    return process, read


def test_a_full_pipe_that_is_read_in_the_end(
    sample: Sample, expected: dict[str, Cuts], environment: dict[str, str]
) -> None:
    process, read = start_on_full_pipe(sample, environment)
    os.set_blocking(read, True)
    with open(read, "rb") as pipe:
        report = pipe.read().lstrip(b"\0")
    process.communicate()
    assert process.returncode == 2
    assert told_cuts(json.loads(report)) == expected
    assert recover(sample).exit_code == 0


def test_a_signal_while_nobody_reads(
    sample: Sample, expected: dict[str, Cuts], environment: dict[str, str]
) -> None:
    process, read = start_on_full_pipe(sample, environment)
    while process.poll() is None:  # one that comes before the report is begun is too late to end the run
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate()
    os.close(read)
    assert process.returncode == 143
    assert "the report was only written in part" in stderr
    assert_told_once(sample, expected)


def test_a_closed_output(sample: Sample, expected: dict[str, Cuts]) -> None:
    command = ("sh", "-c", '"$@" >&-', "sh", *RECOVERY)
    assert run(*arguments_of(sample, "--exit-zero-on-truncation"), command=command).exit_code == 0
    assert_told_once(sample, expected)


def test_a_reader_who_has_gone(sample: Sample, expected: dict[str, Cuts]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = start(*arguments_of(sample), stdout=write)
    os.close(write)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "the report could not be written: Broken pipe" in stderr
    assert_told_once(sample, expected)


def test_an_equal_cut_of_other_records(sample: Sample) -> None:
    """A broker has written as much again where a run that nobody heard had cut, and was torn at the same byte."""
    before = {log_dir: tree_of(log_dir) for log_dir in sample.log_dirs}
    run_unheard(*arguments_of(sample))
    for log_dir, tree in before.items():
        ledger = (log_dir / CUT_LEDGER).read_bytes()
        shutil.rmtree(log_dir)
        write_tree(tree, log_dir)
        (log_dir / CUT_LEDGER).write_bytes(ledger)
    done = recover(sample)
    assert done.exit_code == 2
    for log_dir in done.report["logDirs"]:
        cut = {one["partition"]: one["cuts"] for one in log_dir["partitions"] if one["cuts"]}
        assert {one["partition"]: one["cuts"] for one in log_dir["earlierCuts"]} == cut != {}


def test_a_second_run_that_was_not_heard_either(sample: Sample, expected: dict[str, Cuts]) -> None:
    for _ in range(2):
        run_unheard(*arguments_of(sample))
    killed = start_paused("LogDirHandedOver", 1, *arguments_of(sample))
    killed.kill()
    killed.communicate()
    assert_told_once(sample, expected)


def test_what_was_not_told_is_not_purged(sample: Sample, expected: dict[str, Cuts]) -> None:
    run_unheard(*arguments_of(sample))
    purged = run("quarantine", "purge", "-c", sample.config, "--all")
    assert purged.exit_code == 4
    assert "has not been reported yet" in purged.stdout
    assert_told_once(sample, expected)
    assert run("quarantine", "purge", "-c", sample.config, "--all").exit_code == 0


def test_what_is_taken_back_is_not_told(sample: Sample) -> None:
    run_unheard(*arguments_of(sample))
    assert run("undo", "-c", sample.config).exit_code == 0
    for log_dir in sample.log_dirs:
        assert own_leftovers(log_dir) == []
    done = recover(sample)
    assert done.exit_code == 2
    assert [one["earlierCuts"] for one in done.report["logDirs"]] == [[], []]


def test_told_in_words_and_figures(sample: Sample, expected: dict[str, Cuts]) -> None:
    run_unheard(*arguments_of(sample))
    done = run("recover", "-c", sample.config, "--progress", "json", "--now", str(sample.now_ms))
    assert done.exit_code == 2
    events = [json.loads(line) for line in done.stderr.splitlines()]
    told = [event for event in events if event["event"] == "CutByEarlierRun"]
    wanted = {Path(name).name: sums_of(cuts) for name, cuts in expected.items()}
    assert {one["partition"]: (one["truncated_bytes"], one["truncated_batches"]) for one in told} == wanted
    *_, progress = (event for event in events if event["event"] == "Progress")
    assert progress["truncated_bytes"] == sum(size for size, _ in wanted.values())
    for partition, (size, batches) in wanted.items():
        (line,) = (one for one in done.stdout.splitlines() if f"/{partition}: cut by an earlier run" in one)
        assert line.startswith("EARLIER ")
        told, counted = f", {exact_bytes_text(size)}", count_text(batches, "batch", "batches")
        assert line.endswith((f"{told}, {counted}", f"{told}, at least {counted}") if batches else told)
    assert f"    kept in {sample.root}" in done.stdout


def test_the_ledger_is_the_brokers_users(sample: Sample) -> None:
    if os.geteuid() == 0:
        for path in [sample.root, *sample.root.rglob("*")]:
            os.chown(path, 12345, 23456)
    run_unheard(*arguments_of(sample))
    for log_dir in sample.log_dirs:
        found, of_dir = (log_dir / CUT_LEDGER).stat(), log_dir.stat()
        assert (found.st_uid, found.st_gid) == (of_dir.st_uid, of_dir.st_gid)
        assert stat.S_IMODE(found.st_mode) == 0o640


@pytest.mark.parametrize(
    ("plant", "exit_code"),
    [
        (lambda path: path.write_bytes(b"\xff\x00rubbish\n"), 2),
        (lambda path: path.write_bytes(b'{"partition": 7}\n'), 2),
        (lambda path: path.write_bytes(b"[" * 100_000 + b"\n"), 2),
        (lambda path: path.write_bytes(b'{"version": 1, "partition": "torn'), 0),
        (lambda path: path.symlink_to("/etc/passwd"), 4),
        (lambda path: os.mkfifo(path), 4),
    ],
)
def test_what_somebody_else_has_put_there(
    ram_path: Path, plant: Callable[[Path], object], exit_code: int
) -> None:
    sample = unpack("intact", ram_path)
    assert recover(sample).exit_code == 0
    plant(sample.log_dirs[0] / CUT_LEDGER)
    done: Done = recover(sample)
    assert done.exit_code == (1 if exit_code == 4 and len(sample.log_dirs) == 1 else exit_code)
    if exit_code == 4:
        assert CUT_LEDGER in done.stdout
    if exit_code == 2:
        assert recover(sample).exit_code == 0


@pytest.mark.parametrize("moved", ["log dir", "both", "quarantine is gone"])
def test_what_was_moved_since_is_found_or_missed(sample: Sample, moved: str) -> None:
    """What is typed as it is printed puts all back; where it cannot, nothing is promised."""
    log_dir = sample.log_dirs[0]
    before = logs_of(log_dir)
    options = ("--format", "text", "--progress", "none", "--now", str(sample.now_ms))
    assert run_unheard("recover", "--log-dirs", log_dir, *options)[0] == 1
    quarantine, place = (
        one.with_name(f"{one.name}.quarantine") for one in (log_dir, log_dir.with_name("e1"))
    )
    if moved == "quarantine is gone":
        shutil.rmtree(quarantine)
    else:
        log_dir = log_dir.rename(log_dir.with_name("e1"))
    if moved == "both":
        quarantine.rename(place)
    text = run("recover", "--dry-run", "--log-dirs", log_dir, *options).stdout
    (command,) = [line for line in text.splitlines() if " undo " in line] or [""]
    if moved == "quarantine is gone":
        assert f"    was kept in {quarantine}/" in text
        assert "which is not there any more\n" in text
        assert command == ""
        return
    assert f"    kept in {quarantine if moved == 'log dir' else place}/" in text
    moves, _, undo = command.partition(": ")[2].rpartition("kafka-log-recovery ")
    assert (moves == "") == (moved == "both")
    subprocess.run(["sh", "-ec", f"{moves}true"], check=True)
    assert run(*shlex.split(undo)).exit_code == 0
    assert logs_of(log_dir) == before
