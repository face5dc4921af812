"""Sessions that the tool starts by itself."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.errors import UsageError
from recovery.spark.engine import sentence_of
from recovery.spark.session import _last_line, open_session
from tests import ROOT
from tests.brokers.tiered_broker import TieredArchive
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import run, start
from tests.servers.spark_cluster import settings

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def test_nobody_at_a_remote_is_said_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"sc://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(
            UsageError, match=rf"no Spark session at {url}: .*refused\. Remedy: start a Spark Connect"
        ):
            open_session(remote=url)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_wait_for_a_session(number: signal.Signals, tmp_path: Path) -> None:
    """The server takes the connection and never says a word."""
    (tmp_path / "orders-0").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"sc://127.0.0.1:{silent.getsockname()[1]}"
        process = start("archive", "verify", str(tmp_path), "--remote", url, "--progress", "none")
        silent.accept()[0].close()  # that was only the knock at the door
        with silent.accept()[0]:
            process.send_signal(number)
            _, stderr = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1] == "kafka-log-recovery: interrupted before anything was read"


def test_a_failed_task_is_one_sentence_and_its_stack_is_in_the_log(
    stored_archive: TieredArchive, tmp_path: Path
) -> None:
    (tmp_path / "history").touch()  # where a folder is to be
    where = ("--output", tmp_path, "--master", "local[1]", "--progress", "none")
    done = run("archive", "verify", stored_archive.path, *where, "--spark-log", tmp_path / "spark.log")
    assert done.exit_code == 1
    sentence = (
        rf"Spark gave up the job: NotADirectoryError: \[Errno 20\] Not a directory: '{tmp_path}/history/\w+'"
    )
    assert re.fullmatch(
        rf"kafka-log-recovery: {sentence}\. Remedy: the log of the executors has the stack, .*--spark-log FILE.*\n",
        done.stderr,
    )
    log = (tmp_path / "spark.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "\tat org.apache.spark." in log


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"--spark-log {tmp_path}: Is a directory"):
        open_session(master="local[1]", log=str(tmp_path))


def test_a_jvm_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: class file version 61.0 is needed' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "archive" / "orders-0").mkdir(parents=True)
    where = (tmp_path / "archive", "--engine", "spark", "--progress", "none")
    done = run("archive", "verify", *where, env=os.environ | {"JAVA_HOME": str(tmp_path)})
    said = "no Spark session at local[*,4]: Error: class file version 61.0 is needed. Remedy: Spark needs Java 17"
    assert (done.exit_code, done.stderr.partition(" or newer")[0]) == (1, f"kafka-log-recovery: {said}")


WORKER = """\
An error occurred while calling o75.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 2 in stage 4.0 failed 4 times, most recent \
failure: Lost task 2.3 in stage 4.0 (TID 21): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/lib/pyspark/worker.py", line 3291, in main
    process()
ValueError: the first one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/lib/recovery/archive/stores/local_store.py", line 101, in _write_temporary
    os.fsync(file.fileno())
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:649)
\tat java.base/java.lang.Thread.run(Thread.java:1583)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: the same
\t... 1 more
"""
LOST = """\
Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: ExecutorLostFailure (executor 3 exited).
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2871)
"""
CAUSED = """\
An error occurred while calling o75.collectToPython.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2871)
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.lang.Thread.run(Thread.java:1583)
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORKER.format(error="OSError: [Errno 28] No space left"), "OSError: [Errno 28] No space left"),
        (WORKER.format(error="recovery.errors.UsageError: a.pem: no key"), "a.pem: no key"),
        (WORKER.format(error="numpy.exceptions.AxisError: of two\nlines"), "AxisError: of two lines"),
        (WORKER.format(error="MemoryError"), "MemoryError"),
        (LOST, LOST.splitlines()[0].rstrip(".")),
        (CAUSED, "java.lang.OutOfMemoryError: Java heap space"),
        ("", ""),
    ],
    ids=["worker", "ours", "two-lines", "no-text", "lost", "caused", "nothing"],
)
def test_of_stacks_the_sentence_that_matters_is_left(text: str, sentence: str) -> None:
    assert sentence_of(text) == sentence


@pytest.mark.long
def test_what_is_printed_last_under_spark_submit_is_the_report(
    stored_archive: TieredArchive, tmp_path: Path
) -> None:
    """The script in docs/archives/spark.md, as it stands."""
    script = re.search(
        r"```python\n(# check\.py\n.*?)```", (ROOT / "docs/archives/spark.md").read_text(), re.DOTALL
    )
    assert script is not None
    (tmp_path / "check.py").write_text(script[1])
    submit = [Path(sys.executable).parent / "spark-submit", "--master", "local[1]"]
    quick = ["--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1"]
    arguments = [tmp_path / "check.py", stored_archive.path, tmp_path / "output"]
    ran = subprocess.run(
        [*submit, *quick, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "INFO SparkContext: Running Spark" in ran.stdout  # it has the same stream, and has been at work
    assert re.search(rf"^results: {tmp_path}/output \(run \w+\)\n\Z", ran.stdout, re.MULTILINE)


_COMPILER = {f"spark.{side}.defaultJavaOptions": "-XX:TieredStopAtLevel=1" for side in ("driver", "executor")}


def test_jvms_of_one_run_compile_quickly(tmp_path: Path) -> None:
    spark = open_session(master="local[1]", is_for_one_run=True, settings=settings(tmp_path))
    try:
        context: SparkContext = spark.sparkContext
        once = dict(context.getConf().getAll())
        assert open_session() is spark  # the active one, as it is
    finally:
        spark.stop()
    assert _COMPILER.items() <= once.items()
    given = settings(tmp_path)["spark.executor.extraJavaOptions"]
    assert given in once["spark.executor.extraJavaOptions"]  # options of others stay


def test_what_a_jvm_says_last_is_found_behind_a_long_stack(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        log.write(
            b"java.net.UnknownHostException: nohost\n"
            + b"\tat java.net.InetAddress.x(InetAddress.java:1)\n" * 900
        )
        assert _last_line(log) == "java.net.UnknownHostException: nohost"
        log.write(b"\tat java.net.InetAddress.x(InetAddress.java:1)\n" * 900)
        assert _last_line(log) == ""
