"""Sessions on every kind of Spark. Each is started once by a process of pytest's that needs it, and ended with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.s3_server import in_environment
from tests.servers.spark_cluster import ConnectServer, StandaloneCluster, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITHOUT_THE_PACKAGE = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("recovery", "segfmt", "native"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
"""


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers. Who kills one of them has a cluster of their own."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server."""
    with ConnectServer(tmp_path_factory.mktemp("connect") / "server") as server:
        yield server


@pytest.fixture
def local_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on `local[2]`."""
    with opened(settings(tmp_path_factory.mktemp("local")) | {"spark.master": "local[2]"}) as spark:
        yield spark


@pytest.fixture
def standalone_spark(standalone_cluster: StandaloneCluster) -> Iterator[SparkSession]:
    """A session on the standalone cluster."""
    with opened(standalone_cluster.settings) as spark:
        yield spark


@pytest.fixture
def connect_spark(connect_server: ConnectServer) -> Iterator[SparkSession]:
    """A session of the Spark Connect server's."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    spark = ConnectSession.builder.remote(connect_server.url).create()
    try:
        yield spark
    finally:
        spark.stop()


@pytest.fixture(params=["local", "standalone", "connect"])
def spark(request: pytest.FixtureRequest) -> SparkSession:
    """A session, on each kind of Spark in turn."""
    return request.getfixturevalue(f"{request.param}_spark")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python for executors in which this package is not installed."""
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT_THE_PACKAGE)
    python = tmp_path / "bare-python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(tmp_path))}:"$PYTHONPATH" exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    return python


@contextmanager
def opened(configured: dict[str, str], *, python: str = sys.executable) -> Iterator[SparkSession]:
    """A classic session: one at a time in a process, whose JVM stays. Its workers run *python*."""
    from pyspark.sql import SparkSession as ClassicSession

    builder = ClassicSession.builder.appName("kafka-log-recovery tests")
    for name, value in configured.items():
        builder = builder.config(name, value)
    # Only spark-submit looks at `spark.pyspark.python`; a session takes the first python3 of the PATH without this.
    with in_environment({"PYSPARK_PYTHON": python}):
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
