"""Tasks that hang are begun a second time elsewhere, and what both attempts write is there once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.archive.check.report import ArchiveReport
from recovery.plan.actions import TEMPORARY_SUFFIX
from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.spark.conftest import opened
from tests.recovery.spark.test_archive import expected, run, said, tiered, topic_configs, tree_of
from tests.runs.goings import recovered_in
from tests.servers.spark_cluster import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

__all__ = ["expected", "tiered", "topic_configs"]  # fixtures

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.2",
}


def python_workers(below: int) -> list[int]:
    """The pids of Spark's Python processes below the process *below*."""
    parents, is_python = {}, {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]
                )
                is_python[int(entry.name)] = b"pyspark.daemon" in Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
    found = {below}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return [pid for pid in found if is_python.get(pid)]


@contextmanager
def hanging_once_a_task_is_done(spark: SparkSession, worker_pid: int) -> Iterator[list[int]]:
    """Let the Python processes of a worker hang from its first tasks on until the block is left."""
    tracker = spark.sparkContext.statusTracker()
    hanging: list[int] = []
    is_over = threading.Event()

    def hang() -> None:
        while not hanging and not is_over.wait(0.02):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if any(one and one.numTasks >= 10 and one.numCompletedTasks >= 1 for one in stages):
                hanging.extend(python_workers(worker_pid))
                for pid in hanging:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)

    watcher = threading.Thread(target=hang, daemon=True)
    watcher.start()
    try:
        yield hanging
    finally:
        is_over.set()
        watcher.join()
        for pid in hanging:
            with suppress(ProcessLookupError):  # Spark ends a worker that it has given up
                os.kill(pid, signal.SIGCONT)


def speculative_tasks(spark: SparkSession) -> int:
    """How many tasks were begun a second time because they took so long."""
    store = spark.sparkContext._jsc.sc().statusStore()
    count = 0
    for stage in range(100):
        try:
            tasks = store.taskList(stage, 0, 10_000)
        except Exception:  # no such stage
            break
        count += sum(tasks.apply(place).speculative() for place in range(tasks.length()))
    return count


def test_what_two_attempts_write_is_there_once(
    standalone_cluster: StandaloneCluster,
    tiered: TieredArchive,
    topic_configs: dict[str, dict[str, str]],
    expected: ArchiveReport,
    tmp_path: Path,
) -> None:
    output = tmp_path / "output"
    with opened(standalone_cluster.settings | SPECULATION) as spark:
        with hanging_once_a_task_is_done(spark, standalone_cluster.workers[1].pid) as hanging:
            report = run(spark, tiered.path, output, topic_configs, task_bytes=1 << 20)
            assert hanging
            assert speculative_tasks(spark) > 0
        again = run(spark, tiered.path, output, topic_configs, task_bytes=1 << 20)  # the late ones write, too
    assert said(report) == said(expected)
    rebuilt = tree_of(recovered_in(expected.output))
    for one in (report, again):
        tree = tree_of(output / "recovered" / one.run)
        # Spark may end a late attempt while it writes
        assert {name: data for name, data in tree.items() if not name.endswith(TEMPORARY_SUFFIX)} == rebuilt
    assert said(again)["objects"] == said(report)["objects"]
    assert again.known_segments == report.summary.segments
