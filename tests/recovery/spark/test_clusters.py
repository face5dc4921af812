"""Real Spark in all its forms runs our kernels in its workers, and survives what is done to it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from native.crc32c import crc32c
from tests import ROOT
from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.spark.checksums import SCHEMA, checksums, slow_checksums
from tests.servers.spark_cluster import StandaloneCluster
from tests.servers.spark_versions import OLDEST, environment_of_oldest_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def logs(stored_archive: TieredArchive) -> list[str]:
    return sorted(str(path) for path in stored_archive.path.rglob("*.log"))


def frame_of(spark: SparkSession, paths: list[str], tasks: int) -> DataFrame:
    return spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks)


def expected_of(paths: list[str]) -> list[tuple[str, int, int]]:
    read = ((path, np.fromfile(path, dtype=np.uint8)) for path in paths)
    return [(path, data.size, crc32c(data)) for path, data in read]


@pytest.mark.every_spark
def test_tasks_run_the_kernels(spark: SparkSession, logs: list[str]) -> None:
    rows = frame_of(spark, logs, 8).mapInArrow(checksums, SCHEMA).collect()
    assert sorted((row.path, row.bytes, row.crc32c) for row in rows) == expected_of(logs)
    assert os.getpid() not in {row.pid for row in rows}
    assert {row.prefix for row in rows} == {sys.prefix}


def test_a_job_goes_on_when_a_worker_is_lost(
    standalone_spark: SparkSession, standalone_cluster: StandaloneCluster, logs: list[str]
) -> None:
    tracker = standalone_spark.sparkContext.statusTracker()

    def kill_when_two_tasks_are_done() -> None:
        done = 0
        while done < 2:
            time.sleep(0.05)
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = max(
                (stage.numCompletedTasks for stage in stages if stage and stage.numTasks == 12), default=0
            )
        standalone_cluster.kill_worker(1)

    killer = threading.Thread(target=kill_when_two_tasks_are_done)
    killer.start()
    rows = frame_of(standalone_spark, logs[:40], 12).mapInArrow(slow_checksums, SCHEMA).collect()
    killer.join()
    assert sorted((row.path, row.bytes, row.crc32c) for row in rows) == expected_of(logs[:40])
    standalone_cluster.master.wait_for("Removing worker")
    assert len(list(standalone_cluster.work_dir.glob("work-2-*/app-*/*/stderr"))) > 0  # an executor was lost
    standalone_cluster.replace_worker(1)


@pytest.mark.every_spark
def test_the_version_is_the_one_that_was_asked_for(local_spark: SparkSession) -> None:
    wanted = os.environ.get("WANTED_SPARK")
    assert wanted is None or local_spark.version == wanted


@pytest.mark.oldest_spark
def test_the_oldest_spark_does_the_same(tmp_path: Path) -> None:
    """The tests with the marker `every_spark` once more, but on a cluster, with the oldest supported pyspark."""
    # pyspark 4.1 leaves sockets to the garbage collector, which Python warns of.
    options = ["-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-p", "no:cacheprovider"]
    options.append(f"--basetemp={tmp_path / 't'}")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "every_spark", "-k", "not standalone", *options]
    ran = subprocess.run(
        [*command, "tests/recovery/spark"],
        cwd=ROOT,
        env=environment_of_oldest_spark() | {"WANTED_SPARK": OLDEST},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-4000:]
