"""Sessions on every kind of Spark. Each is started once by a process of pytest's that needs it, and ended with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


class LocalSpark:
    """Sessions on `local[2]` that share a context, and so Python workers, which take seconds to start."""

    def __init__(self, work_dir: Path) -> None:
        self._settings = settings(work_dir) | {"spark.master": "local[2]"}
        self._context = ExitStack()
        self._first: SparkSession | None = None

    def session(self) -> SparkSession:
        """A new session: no settings and no views of another test's."""
        if self._first is None:
            self._first = self._context.enter_context(opened(self._settings))
        return self._first.newSession()

    def close(self) -> None:
        """End the context, since there can be no second one in a process."""
        self._first = None
        self._context.close()


@pytest.fixture(scope="module")
def shared_local_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    shared = LocalSpark(tmp_path_factory.mktemp("local"))
    yield shared
    shared.close()


@pytest.fixture(autouse=True)
def close_local_spark(request: pytest.FixtureRequest, shared_local_spark: LocalSpark) -> None:
    """Leave no context to a test that has one of its own, or none."""
    if "local_spark" not in request.fixturenames:
        shared_local_spark.close()


@pytest.fixture
def local_spark(shared_local_spark: LocalSpark) -> SparkSession:
    """A session on `local[2]`."""
    return shared_local_spark.session()


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
