"""A Spark session: an embedded one without any set-up, a cluster's, or a Spark Connect session."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from urllib.parse import urlsplit

from recovery.errors import RecoveryError, UsageError, reason_text
from recovery.extras import SPARK, load
from recovery.own_process import own_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "kafka-log-recovery"
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
_TAIL_BYTES: Final = 1 << 16
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
    log: str | None = None,
) -> SparkSession:
    """Return the session that is active, as it is, or a new one.

    Args:
        master: URL of a cluster's master; None: the active session, what spark-submit says, or all cores of this
            machine.
        remote: URL of a Spark Connect server (`sc://host:port`).
        is_for_one_run: whether it serves this run only: its JVMs then compile quickly, with few optimizations.
        settings: further settings of Spark.
        log: path of a file to which a JVM that is started here prints, and the Python workers below it; "-": standard
            output and standard error; None: nothing of it is kept.

    Raises:
        UsageError: a package is not installed, no session can be opened, or *log* cannot be written.
        RecoveryError: raised by a signal handler meanwhile.
    """
    _load_spark(master, remote)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and remote is None:
        return active
    builder = SparkSession.builder.appName(_NAME)
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
    chosen |= dict(settings or {})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    said = ""
    try:
        if remote is not None:
            _knock(remote)
        elif master is not None and log != "-":
            with _opened_log(log) as file:
                try:
                    _start_jvm(chosen | {"spark.master": master, "spark.app.name": _NAME}, file)
                except Exception:
                    said = _last_line(file)
                    raise
        spark = builder.getOrCreate()
    except RecoveryError:
        raise
    except (
        Exception
    ) as error:  # pyspark's errors have no common class: RuntimeError, PySparkException, Py4JError
        address = remote or master or "spark-submit's master"
        if remote is not None:
            remedy = "start a Spark Connect server there, or leave out --remote"
        else:
            remedy = (
                _JAVA
                if address.startswith("local")
                else f"check the address and that its master runs; {_JAVA}"
            )
        raise UsageError(f"no Spark session at {address}: {said or error}. Remedy: {remedy}") from error
    if master is None and remote is None and not spark.conf.get("spark.log.level", ""):
        # spark-submit's JVM goes on printing after this program has ended, and the report is to be the last.
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start_jvm(settings: Mapping[str, str], log: BinaryIO) -> None:
    """Start the JVM of a session that prints to *log*: what it says at its start no setting of Spark's turns off.

    One that runs already stays as it is.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]  # so it is
    SparkContext(conf=conf, gateway=gateway)


def _opened_log(path: str | None) -> BinaryIO:
    """Return the file to which a JVM prints; without a path one that has no name.

    Raises:
        UsageError: it cannot be written.
    """
    if path is None:
        return cast(BinaryIO, tempfile.TemporaryFile(prefix=f"{_NAME}-"))
    try:
        return open(path, "a+b")
    except OSError as error:
        why = reason_text(error)
        raise UsageError(
            f"--spark-log {path}: {why}. Remedy: name a file that this user may write to"
        ) from error


def _last_line(log: BinaryIO) -> str:
    """Return what a JVM that could not be started has said last, without its stack."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    is_cut = log.tell() > 0
    lines = [line.rstrip() for line in log.read().decode(errors="replace").splitlines()][is_cut:]
    # Last of all, Spark's script stumbles over what the JVM has not said.
    meant = (
        line
        for line in reversed(lines)
        if line and not line.startswith("\t") and "CMD: bad array" not in line
    )
    return next(meant, "")


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
