"""Sessions that the tool starts by itself."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.errors import UsageError
from recovery.spark.session import open_session
from tests.runs.command import start
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
            _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1] == "kafka-log-recovery: interrupted before anything was read"


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
