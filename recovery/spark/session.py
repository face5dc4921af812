"""A Spark session: an embedded one without any set-up, a cluster's, or a Spark Connect session."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from recovery.errors import RecoveryError, UsageError
from recovery.extras import SPARK, load
from recovery.own_process import own_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J: Final = Path(__file__).with_name("embedded-log4j2.properties")
EMBEDDED_MASTER: Final = "local[*,4]"
"""All cores of this machine; a task may fail three times before the job does."""

_SETTINGS: Final = {
    # Spark's web page and progress bar show nothing that the tool does not.
    "spark.ui.showConsoleProgress": "false",
    # Rows of the map hold what producers did: some are large, so a batch has few rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # The fold is small compared with the scan; its tasks are whole partitions.
    "spark.sql.adaptive.enabled": "false",
}
_ONE_RUN: Final = {
    # The JVMs do little here, and only once: their optimizing compiler takes more time than it saves. These are
    # defaults, to which `extraJavaOptions` are added, whoever sets them.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
}
_JAVA: Final = (
    "Spark needs Java 17 or newer, on the PATH or in JAVA_HOME, "
    "and some hundred threads (ulimit -u, pids.max)"
)
_CONNECT_PORT: Final = 15002
_KNOCK_SECONDS: Final = 20
_PROXIES: Final = frozenset({"grpc_proxy", "https_proxy", "http_proxy"})
"""If the environment names a proxy, it is the proxy that connects."""
_EMBEDDED: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG4J}",
}


def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    is_for_one_run: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session that is active, as it is, or a new one.

    Args:
        master: URL of a cluster's master; None: the active session, what spark-submit says, or all cores of this
            machine.
        remote: URL of a Spark Connect server (`sc://host:port`).
        is_for_one_run: whether it serves this run only: its JVMs then compile quickly, with few optimizations.
        settings: further settings of Spark.

    Raises:
        UsageError: a package is not installed, or no session can be opened.
        RecoveryError: raised by a signal handler meanwhile.
    """
    _load_spark(master, remote)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and remote is None:
        return active
    builder = SparkSession.builder.appName("kafka-log-recovery")
    chosen = _SETTINGS | (_ONE_RUN if is_for_one_run else {})
    if remote is not None:
        builder = builder.remote(remote)
        chosen = {key: value for key, value in chosen.items() if key.startswith("spark.sql.")}
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if os.getcwd() != own_folder():
            # Spark starts workers by `python -m`, which looks for modules in the working folder first, whoever's it is.
            os.environ.setdefault("PYTHONSAFEPATH", "1")
        if master is None and not is_submitted():
            master = EMBEDDED_MASTER
        if master is not None:
            builder = builder.master(master)
            if master.startswith("local"):
                chosen |= _EMBEDDED
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        if remote is not None:
            _knock(remote)
        return builder.getOrCreate()
    except RecoveryError:
        raise
    except (
        Exception
    ) as error:  # pyspark's errors have no common class: RuntimeError, PySparkException, Py4JError
        address = remote or master or "spark-submit's master"
        remedy = _JAVA if remote is None else "start a Spark Connect server there, or leave out --remote"
        raise UsageError(f"no Spark session at {address}: {error}. Remedy: {remedy}") from error


def is_submitted() -> bool:
    """Return whether spark-submit has started this program, and so says where the work is done."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _knock(remote: str) -> None:
    """Check that a server listens at *remote*: Spark's client would silently retry for ten minutes.

    Raises:
        OSError: none does.
    """
    server = urlsplit(remote)
    if server.hostname and not any(name.lower() in _PROXIES for name in os.environ):
        socket.create_connection((server.hostname, server.port or _CONNECT_PORT), _KNOCK_SECONDS).close()


def _load_spark(master: str | None, remote: str | None) -> None:
    """Import what a session needs: without it Spark would fail later, with a less helpful message."""
    if remote is not None:
        load(f"--remote {remote}", "pyspark.sql.connect.session", extras=SPARK)  # it checks for all it needs
        return
    use = "--engine spark" if master is None else f"--master {master}"
    load(use, "pyspark.sql", "pyarrow", "pandas", extras=SPARK)
