"""Which engine goes through an archive: this process or Spark."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from recovery.archive.engine.engine import Engine, RunPlan, RunSize
from recovery.archive.engine.process import ProcessEngine
from recovery.errors import UsageError
from recovery.quantity import bytes_text
from recovery.spark.session import is_submitted
from recovery.stop_request import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO: Final = "auto"
PROCESS: Final = "process"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, PROCESS, SPARK)
MOST_BYTES: Final = 16 << 30
"""Of logs that `auto` reads in this process."""
MOST_SEGMENTS: Final = 15_000
"""Of an archive that `auto` checks in this process: small segments are work for the interpreter, which has one core."""


class EngineChoice:
    """Chooses the engine, once the size of the archive is known.

    Args:
        engine: one of ENGINES.
        cores: how many tasks run at a time; None: as the engine thinks best.
        open_spark: returns the session for Spark.
        is_cluster: whether a session, a master or a server was named: Spark then.

    Raises:
        UsageError: there is no such engine, or a cluster is named for the engine `process`.
    """

    def __init__(
        self, engine: str, *, cores: int | None, open_spark: Callable[[], SparkSession], is_cluster: bool
    ) -> None:
        if engine not in ENGINES:
            raise UsageError(f"--engine {engine}: expected one of {', '.join(ENGINES)}")
        if engine == PROCESS and is_cluster:
            raise UsageError("--engine process does not go with --master, --remote or a session of Spark")
        self._engine = SPARK if engine == AUTO and (is_cluster or _is_within_cluster()) else engine
        self._cores = cores
        self._open_spark = open_spark
        # What was asked for is opened before any work: it may be impossible.
        self._session = open_spark() if self._engine == SPARK else None

    def __call__(self, plan: RunPlan, size: RunSize, stop: StopRequest) -> tuple[Engine, Sequence[str]]:
        """Return the engine for a run of this size, and notes on the choice."""
        notes: list[str] = []
        is_large = size.segment_count > MOST_SEGMENTS or size.log_bytes > MOST_BYTES
        if self._session is None and self._engine == AUTO and is_large:
            missing = missing_for_spark()
            if missing:
                notes.append(
                    f"{size.segment_count} segments, {bytes_text(size.log_bytes)} to be read: checked in one process, "
                    f"although Spark would be faster, because {missing}"
                )
            else:
                self._session = self._open_spark()
        if self._session is None:
            return ProcessEngine(plan, stop, cores=self._cores), notes
        from recovery.spark.engine import SparkEngine

        return SparkEngine(self._session, plan, stop, cores=self._cores), notes


def missing_for_spark() -> str:
    """Return what a local Spark lacks on this machine; empty if nothing does."""
    for package in ("pyspark", "pandas"):
        if not _is_installed(package):
            return f"the package {package} is not installed"
    home = os.environ.get("JAVA_HOME")
    if not (os.access(os.path.join(home, "bin", "java"), os.X_OK) if home else shutil.which("java")):
        return "there is no Java on the PATH or in JAVA_HOME"
    return ""


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def _is_within_cluster() -> bool:
    """Return whether this program was started by spark-submit, or has an active session on a cluster."""
    if is_submitted():
        return True
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return active is not None and not str(active.conf.get("spark.master", "")).startswith("local")
