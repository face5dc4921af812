"""Threads where the system may allow no more of them (`ulimit -u`, a cgroup's `pids.max`): fewer do the same work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from recovery.errors import UsageError, WorkerError

MORE_THREADS = "allow more threads (ulimit -u, pids.max)"
"""The remedy where there are too few."""
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def refuse_wrong_thread_count(thread_count: int | None) -> None:
    """Raise UsageError where so many threads are none; None leaves the number to somebody else."""
    if thread_count is not None and thread_count < 1:
        raise UsageError(f"--threads {thread_count}: expected at least 1")


def is_started(thread: threading.Thread) -> bool:
    """Start *thread*; return False where the system allows no more of them."""
    try:
        thread.start()
    except RuntimeError:  # can't start new thread
        return False
    return True


def start_threads(count: int, work: Callable[[int], None], *, name: str) -> list[threading.Thread]:
    """Return threads that do *work*, each with its number: *count* of them, or as many as the system allows."""
    threads: list[threading.Thread] = []
    for number in range(count):
        thread = threading.Thread(target=work, args=(number,), name=f"{name}-{number}")
        if not is_started(thread):
            break
        threads.append(thread)
    return threads


class ThreadPool(ThreadPoolExecutor):
    """A pool that makes do with fewer threads."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                raise WorkerError(f"{error}. Remedy: {MORE_THREADS}") from error


class PoolAhead(ThreadPool):
    """A pool for what is done ahead of time: where there is no thread, it is done by whoever submits it."""

    _has_threads: bool | None = None

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        """Begin *fn*, or do it now."""
        if self._has_threads is None:
            # What was submitted stays in the pool when no thread can be started: this is nothing to do twice.
            try:
                super().submit(_do_nothing)
            except WorkerError:
                self._has_threads = False
            else:
                self._has_threads = True
        if self._has_threads:
            return super().submit(fn, *args, **kwargs)
        done: Future[_Result] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def _do_nothing() -> None:
    pass
