"""How many tasks of a Spark job are finished, while it runs: from the status tracker, or from Connect."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from recovery.stop_request import StopRequest
from recovery.threads import is_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERVAL_S = 0.5


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session is one of Spark Connect, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def watched_tasks(
    spark: SparkSession, on_finished: Callable[[int], None], stop: StopRequest
) -> Iterator[None]:
    """Within the context, call *on_finished* from another thread with how many tasks have finished so far.

    If the system allows no more threads, nothing is reported, and a stop waits for the end of the job.

    Raises:
        InterruptedRecoveryError: *stop* was asked for; the job was cancelled.
    """
    watched = _watched_over_connect if is_connect(spark) else _watched_here
    try:
        yield from watched(spark, on_finished, stop)
    except Exception:
        stop.check()  # the job was cancelled, which Spark reports as an error of its own
        raise


def _watched_here(
    spark: SparkSession, on_finished: Callable[[int], None], stop: StopRequest
) -> Iterator[None]:
    context = spark.sparkContext
    group = uuid.uuid4().hex
    context.setJobGroup(group, "kafka-log-recovery")
    tracker = context.statusTracker()
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_INTERVAL_S):
            count = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in () if info is None else info.stageIds:
                    stage_info = tracker.getStageInfo(stage)
                    count += 0 if stage_info is None else stage_info.numCompletedTasks
            on_finished(count)
            if stop.is_made:
                context.cancelJobGroup(group)

    with _polled(poll, is_over, name="spark-progress"):
        yield


def _watched_over_connect(
    spark: Any,  # noqa: ANN401 - Connect's own session
    on_finished: Callable[[int], None],
    stop: StopRequest,
) -> Iterator[None]:
    def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ANN401, ARG001 - Connect calls it by these names
        on_finished(sum(stage.num_completed_tasks for stage in stages or ()))

    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_INTERVAL_S):
            if stop.is_made:
                spark.interruptAll()

    spark.registerProgressHandler(handler)
    try:
        with _polled(poll, is_over, name="spark-stop"):
            yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _polled(poll: Callable[[], None], is_over: threading.Event, *, name: str) -> Iterator[None]:
    """Run *poll* in a thread within the context, at whose end *is_over* is set; not if no thread can be started."""
    thread = threading.Thread(target=poll, name=name, daemon=True)
    is_polled = is_started(thread)
    try:
        yield
    finally:
        is_over.set()
        if is_polled:
            thread.join()
