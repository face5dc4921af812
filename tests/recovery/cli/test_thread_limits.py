"""A system that allows few threads, or none: the work is done by fewer, and that is a note."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack
from tests.recovery.cli.test_owners import GROUP, OWNER, give_away
from tests.runs.command import Done, run
from tests.runs.driving import own_leftovers
from tests.servers.machine import OTHER_USERS, OTHERS_FILES, needs

pytestmark = [pytest.mark.long, needs(OTHERS_FILES, OTHER_USERS)]

LIMITED = f"""
import encodings.idna, os, resource, sys
import difflib
import recovery, recovery.cli.main, recovery.watch.open
import recovery.watch.http.routes, recovery.watch.http.server, recovery.watch.textfile
import recovery.engine.process, recovery.check.api
# The interpreter may lie where that user cannot reach it: all that a run loads is loaded before.
recovery.recover(sys.argv.pop(1).split(","), dry_run=True)
recovery.check.api.verify(sys.argv.pop(1).split(","))
recovery.cli.main.build_parser()
import recovery.spark.archive, recovery.archive.stores.local_store, recovery.archive.remote.log_dir_copy
limit = int(sys.argv.pop(1))
os.setgroups([])
os.setgid({GROUP})
os.setuid({OWNER})
resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
sys.exit(recovery.cli.main.main(sys.argv[1:]))
"""


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    sample = unpack("crashed", ram_path)
    os.chmod(ram_path, 0o755)
    give_away(sample.root, OWNER, GROUP)
    return sample


def run_limited(sample: Sample, limit: int, *arguments: str, command: str = "recover") -> Done:
    log_dirs = ",".join(map(str, sample.log_dirs))
    now = ("--now", str(sample.now_ms)) if command == "recover" else ()
    return run(
        *(command, "-c", str(sample.config), *now, "--format", "json", "--progress", "none"),
        *arguments,
        command=(sys.executable, "-c", LIMITED, log_dirs, log_dirs, str(limit)),
        cwd="/",
    )


def notes_of(done: Done) -> list[str]:
    return [note["text"] for log_dir in done.report["logDirs"] for note in log_dir["notes"]]


@pytest.mark.parametrize("limit", [1, 2, 3, 6])
def test_fewer_threads_do_the_same(sample: Sample, limit: int, tmp_path: Path) -> None:
    done = run_limited(sample, limit, "--threads", "8")
    assert done.exit_code == 0, done
    assert done.stderr == ""
    assert "started: the system allows no more" in str(notes_of(done))
    whole = unpack("crashed", tmp_path)
    assert run("recover", "-c", whole.config, "--now", str(whole.now_ms), "--progress", "none").exit_code == 0
    for mine, theirs in zip(whole.log_dirs, sample.log_dirs, strict=True):
        assert differences(tree_of(mine), tree_of(theirs)) == []
        assert own_leftovers(theirs) == []
        assert (theirs / MARKER).exists()


def test_threads_are_started_as_needed(sample: Sample) -> None:
    done = run_limited(sample, 1000, "--threads", "32768")
    assert done.exit_code == 0, done
    assert notes_of(done) == []


def test_processes_that_cannot_be_started(sample: Sample) -> None:
    done = run_limited(sample, 1, "--processes", "always")
    assert done.exit_code == 0, done
    assert done.stderr == ""
    assert sum("no process can be started" in note for note in notes_of(done)) == 2
    assert all((log_dir / MARKER).exists() for log_dir in sample.log_dirs)


def test_metrics_need_a_thread(sample: Sample) -> None:
    done = run_limited(sample, 1, "--metrics-port", "0")
    assert done.exit_code == 1
    assert done.stderr.startswith("kafka-log-recovery: Cannot serve metrics")
    assert len(done.stderr.splitlines()) == 1


def test_without_a_thread_that_draws_there_are_log_lines(sample: Sample) -> None:
    program = (
        "import sys, threading\n"
        "def start(thread): raise RuntimeError('no more')\n"
        "threading.Thread.start = start\n"
        "from recovery.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ("recover", "-c", sample.config, "--dry-run", "--progress", "bar")
    done = run(*arguments, command=(sys.executable, "-c", program))
    assert done.exit_code == 0, done
    assert "WARN" in done.stderr
    assert "no thread started: the system allows no more" in done.stderr


@pytest.mark.parametrize("limit", [1, 4])
def test_verify_makes_do_with_fewer_as_well(sample: Sample, limit: int) -> None:
    done = run_limited(sample, limit, command="verify")
    assert "Traceback" not in done.stderr
    assert done.exit_code == (1 if limit == 1 else run("verify", "-c", sample.config).exit_code), done


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_an_archive_is_listed_by_fewer_as_well(sample: Sample, limit: int) -> None:
    log_dirs = ",".join(map(str, sample.log_dirs))
    command = (sys.executable, "-c", LIMITED, log_dirs, log_dirs, str(limit))
    arguments = ("archive", "inventory", sample.root, "--format", "json")
    done = run(*arguments, command=command, cwd="/")
    assert done.stderr == ""
    wanted = run(*arguments)
    assert done.exit_code == wanted.exit_code == 0
    assert done.report | {"durationMs": 0} == wanted.report | {"durationMs": 0}
