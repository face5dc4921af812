"""An archive in a real S3 server, gone through by a real cluster, of which a worker is lost on the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.archive.stores.stores import open_store
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.recovery.spark.conftest import opened
from tests.recovery.spark.test_archive import run, said
from tests.servers.s3_server import S3Server, in_environment
from tests.servers.spark_cluster import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture
def served(s3_server: S3Server) -> Iterator[S3Server]:
    with in_environment(s3_server.environment()):
        yield s3_server


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def spark_near_s3(own_cluster: StandaloneCluster, served: S3Server) -> Iterator[SparkSession]:
    """A session whose executors know the server as this process does."""
    environment = {f"spark.executorEnv.{name}": value for name, value in served.environment().items()}
    with opened(own_cluster.settings | environment) as spark:
        yield spark


def damaged_sample(into: Path) -> TieredArchive:
    archive = unpack_tiered(into)
    for place, suffix in ((1, ".log"), (4, ".index"), (4, ".timeindex"), (4, ".snapshot")):
        paths = [path for path in sorted(archive.path.rglob(f"*{suffix}")) if path.stat().st_size]
        for path in paths[place::6]:
            data = bytearray(path.read_bytes())
            if suffix == ".log":
                data[len(data) // 3] ^= 0x77
            else:
                data.pop()
            path.write_bytes(data)
    return archive


def test_a_worker_is_lost_and_nothing_else(
    spark_near_s3: SparkSession, own_cluster: StandaloneCluster, served: S3Server, tmp_path: Path
) -> None:
    archive = damaged_sample(tmp_path / "sample")
    topic_configs = json.loads((archive.root / "topic-configs.json").read_text())
    served.upload(archive.path, "archive")
    expected = run(None, archive.path, tmp_path / "expected", topic_configs)
    tracker = spark_near_s3.sparkContext.statusTracker()
    killed_at: list[tuple[int, int]] = []
    is_over = threading.Event()

    def kill_on_the_way() -> None:
        while not is_over.wait(0.02):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            for stage in stages:
                if stage and stage.numTasks >= 10 and stage.numCompletedTasks >= 1 and not killed_at:
                    own_cluster.kill_worker(1)
                    killed_at.append((stage.numCompletedTasks, stage.numTasks))
                    return

    killer = threading.Thread(target=kill_on_the_way, daemon=True)
    killer.start()
    try:
        report = run(
            spark_near_s3, served.url("archive"), served.url("output"), topic_configs, task_bytes=1 << 20
        )
    finally:
        is_over.set()
        killer.join()
    done, count = killed_at[0]
    assert done < count
    stored, there = said(report), said(expected)
    assert there["summary"].pop("partitions") == stored["summary"].pop("partitions") + 2  # empty folders
    assert stored == there
    store = open_store(served.url("output"))
    rebuilt = [row["rebuilt"] for row in report.objects if row["rebuilt"] is not None]
    assert len(rebuilt) > 20
    for key in rebuilt:
        same = tmp_path / "expected" / key.replace(report.run, expected.run)
        assert store.read(key, most_bytes=1 << 20) == same.read_bytes(), key
