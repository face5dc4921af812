"""An archive checked by Spark: the map in waves of tasks, the fold by partition.

The results of segments go from the scan to the fold through the output, if there is one; else through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from recovery.archive.check.kept_scans import kept_keys
from recovery.archive.engine.engine import RunPlan, TaskSizes
from recovery.archive.engine.verdicts import MOST_OBJECTS, FoldResult
from recovery.archive.stores.stores import open_store
from recovery.errors import RecoveryError, UsageError
from recovery.spark import tasks
from recovery.spark.watch import is_connect, watched_tasks
from recovery.stop_request import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECT_CORES = 8
_MOST_CHARACTERS = 500
_LOG = "the log of the executors has the stack, and so has --spark-log FILE, where Spark runs on this machine"


class ExecutorError(RecoveryError):
    """A task failed for a reason outside the archive: an executor without the package, or out of memory."""

    exit_code = 1


class SparkEngine:
    """The engine for large archives, on one machine or a cluster.

    Args:
        spark: the session that does the work.
        plan: what the tasks have in common.
        stop: cancels the job in hand.
        cores: how many tasks run at a time; None: what Spark says (8 with Spark Connect, which does not say).
    """

    sizes = TaskSizes(tasks_a_core=3, least_bytes=32 << 20, most_bytes=4 << 30)

    def __init__(
        self, spark: SparkSession, plan: RunPlan, stop: StopRequest, *, cores: int | None = None
    ) -> None:
        self.cores = _core_count(spark) if cores is None else cores
        self._spark = spark
        self._plan = plan
        self._stop = stop
        self._output = plan.options.output
        self._scans: list[DataFrame] = []
        self._rebuilt: list[DataFrame] = []
        self._loaded: DataFrame | None = None

    def close(self) -> None:
        """Give back what Spark keeps of the scans."""
        for frame in (*self._scans, *self._rebuilt):
            frame.unpersist()

    def scan(self, pickled: Sequence[bytes], on_finished: Callable[[int], None]) -> None:
        """Scan the segments of a wave of tasks."""
        count = len(pickled)
        frame = self._spark.range(0, count, 1, count).mapInArrow(
            partial(tasks.scan, self._plan, tuple(pickled)), tasks.SCAN_DDL
        )
        if self._output is None:
            frame = frame.persist()
            self._scans.append(frame)
        with self._job(on_finished):
            frame.agg({"log_bytes": "sum"}).collect()

    def rebuild(self) -> None:
        """Judge all partitions by their scans, and rebuild the indexes that may be."""
        works = self._by_partition(self._scan_rows()).mapInArrow(
            partial(tasks.judge, self._plan), tasks.REBUILD_DDL
        )
        rebuilt = (
            works.repartition(self._fold_tasks)
            .mapInArrow(partial(tasks.rebuild, self._plan), tasks.SCAN_DDL)
            .persist()
        )
        self._rebuilt.append(rebuilt)
        with self._job():
            rebuilt.agg({"log_bytes": "sum"}).collect()

    def fold(self) -> Iterator[FoldResult]:
        """Judge all partitions."""
        rows = self._scan_rows()
        for rebuilt in self._rebuilt:
            rows = rows.union(rebuilt)
        found = self._by_partition(rows).mapInArrow(partial(tasks.fold, self._plan), tasks.FOLD_DDL)
        lowest = (
            found.repartition(1)
            .selectExpr("*", "row_number() OVER (PARTITION BY kind ORDER BY key) AS place")
            .where(f"kind = '{tasks.SUMMARY}' OR place <= {MOST_OBJECTS}")
        )
        with self._job():
            results = lowest.collect()
        yield tasks.folded(results)

    @property
    def _fold_tasks(self) -> int:
        return self.sizes.tasks_a_core * self.cores

    def _by_partition(self, rows: DataFrame) -> DataFrame:
        """Return *rows* with those of each partition together, in their order."""
        return rows.repartition(self._fold_tasks, "prefix").sortWithinPartitions(
            "prefix", "base_offset", "segment_id"
        )

    def _scan_rows(self) -> DataFrame:
        """Return the rows of all scans; what is kept in the output is listed once."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> DataFrame:
        if self._output is None:
            frame = self._scans[0]
            for other in self._scans[1:]:
                frame = frame.union(other)
            return frame
        keys = kept_keys(open_store(self._output), self._plan.run)
        count = max(1, min(len(keys), self._fold_tasks))
        return self._spark.range(0, len(keys), 1, count).mapInArrow(
            partial(tasks.load_scans, self._output, keys), tasks.SCAN_DDL
        )

    @contextmanager
    def _job(self, on_finished: Callable[[int], None] = lambda _: None) -> Iterator[None]:
        """Run a job in the block: watched, cancelled if the run is to stop, its errors ours."""
        with _spark_errors(), watched_tasks(self._spark, on_finished, self._stop):
            yield


def _core_count(spark: SparkSession) -> int:
    return _CONNECT_CORES if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn what Spark raises for a failed job into an error with a remedy."""
    try:
        yield
    except RecoveryError:
        raise
    except Exception as error:
        text = str(error)
        if "ModuleNotFoundError" in text and "recovery" in text:
            raise UsageError(
                "the executors have no kafka-log-recovery: install it in their Python environment "
                "(docs/archives/spark.md: what executors need)"
            ) from error
        if not type(error).__module__.startswith(("pyspark", "py4j", "grpc")):
            raise
        raise ExecutorError(f"Spark gave up the job: {sentence_of(text)}. Remedy: {_LOG}") from error


def sentence_of(text: str) -> str:
    """Return the sentence that matters of what Spark says of a failed job, without the stacks of Python and the JVM.

    Of a task that raised it is the text of its error, else the first line of the last cause.
    """
    _, traceback, rest = text.rpartition("Traceback (most recent call last):\n")
    if traceback:
        lines = rest.splitlines()
        first = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), 0)
        said = list(takewhile(lambda line: line.strip() and not line.startswith("\tat "), lines[first:]))
        kind, _, message = " ".join(said).partition(": ")
        name = kind.rpartition(".")[2]
        sentence = message if kind.startswith("recovery.") else f"{name}: {message}" if message else name
    else:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        causes = [line for line in lines if line.startswith("Caused by: ")]
        sentence = (causes or lines or [text])[-1 if causes else 0].removeprefix("Caused by: ")
    return sentence.strip().rstrip(".")[:_MOST_CHARACTERS]
