"""Pools where the system allows few threads, or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from recovery.archive.stores.object_store import _errors
from recovery.errors import WorkerError
from recovery.threads import PoolAhead, ThreadPool
from tests.patience import LONGEST_WAIT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def failing() -> None:
    raise OSError("no such prefix")


@pytest.mark.usefixtures("no_threads")
class TestWithoutThreads:
    def test_a_pool_says_what_to_do(self) -> None:
        with (
            ThreadPool(2) as pool,
            pytest.raises(WorkerError, match=r"can't start new thread\. Remedy: allow more threads"),
        ):
            pool.submit(print)

    def test_what_was_to_be_done_ahead_is_done_at_once_and_once(self) -> None:
        done: list[int] = []
        with PoolAhead(2) as pool:
            for number in range(3):
                pool.submit(done.append, number)
                assert done == list(range(number + 1))

    def test_an_error_is_that_of_the_result(self) -> None:
        with PoolAhead(2) as pool:
            future = pool.submit(failing)
        with pytest.raises(OSError, match="no such prefix"):
            future.result()

    def test_a_spark_job_goes_on_unwatched(self) -> None:
        from types import SimpleNamespace
        from typing import cast

        from recovery.spark.watch import watched_tasks
        from recovery.stop_request import StopRequest

        context = SimpleNamespace(setJobGroup=lambda *_: None, statusTracker=lambda: None)
        spark = cast("SparkSession", SimpleNamespace(sparkContext=context))
        told: list[int] = []
        with watched_tasks(spark, told.append, StopRequest()):
            pass
        assert told == []


def test_with_threads_it_is_done_by_them() -> None:
    with PoolAhead(2, thread_name_prefix="ahead") as pool:
        name = pool.submit(lambda: threading.current_thread().name).result()
    assert name.startswith("ahead")


def test_a_library_that_gets_no_thread_panics_and_that_has_a_remedy() -> None:
    panic = type("PanicException", (BaseException,), {})  # as that of pyo3, which is no Exception
    with (
        pytest.raises(WorkerError, match=r"s3://b/key: OS can't spawn .* Remedy: allow more threads"),
        _errors("s3://b", "key"),
    ):
        raise panic("OS can't spawn worker thread: Resource temporarily unavailable")
    with pytest.raises(panic), _errors("s3://b", "key"):
        raise panic("something else")


class TestMapAhead:
    def test_results_are_in_order_and_begun_ahead(self) -> None:
        both = threading.Barrier(2, timeout=LONGEST_WAIT_SECONDS)
        with PoolAhead(2) as pool:
            assert list(pool.map_ahead(lambda number: (both.wait(), -number)[1], range(6), 2)) == [
                -number for number in range(6)
            ]

    def test_errors_come_after_the_results_before_them(self) -> None:
        def items() -> Iterator[int]:
            yield from (1, 2)
            raise OSError("no such prefix")

        done: list[int] = []
        with PoolAhead(2) as pool:
            with pytest.raises(OSError, match="no such prefix"):
                done.extend(pool.map_ahead(abs, items(), 8))
            assert done == [1, 2]
            with pytest.raises(ZeroDivisionError):
                done.extend(pool.map_ahead(lambda number: 1 // number, (1, 0, 0, 1), 8))
            assert done == [1, 2, 1]

    def test_at_most_so_many_items_are_taken_ahead(self) -> None:
        taken: list[int] = []

        def items() -> Iterator[int]:
            for number in range(100):
                taken.append(number)
                yield number

        with PoolAhead(2) as pool:
            results = pool.map_ahead(abs, items(), 3)
            assert next(results) == 0
            assert taken == [0, 1, 2]
            assert next(results) == 1
            assert taken == [0, 1, 2, 3]
