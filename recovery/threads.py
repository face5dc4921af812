"""Threads where the system limits them (`ulimit -u`, a cgroup's `pids.max`): fewer do the same work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from recovery.errors import UsageError, WorkerError

MORE_THREADS = "allow more threads (ulimit -u, pids.max)"
"""The remedy if there are too few."""
_Arguments = ParamSpec("_Arguments")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def refuse_wrong_thread_count(thread_count: int | None) -> None:
    """Raise UsageError for fewer than one thread; None leaves the number to the caller's settings."""
    if thread_count is not None and not (isinstance(thread_count, int) and thread_count >= 1):
        raise UsageError(f"--threads {thread_count!r}: expected an integer from 1 on")


def is_started(thread: threading.Thread) -> bool:
    """Start *thread*; return False if the system allows no more."""
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # can't start new thread
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
    """A pool for work done ahead of time: if no thread can be started, the submitting thread does it."""

    _has_threads: bool | None = None

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        """Begin *fn*, or do it now."""
        if self._has_threads is None:
            # If no thread can be started, what was submitted stays in the pool: so submit something harmless first.
            try:
                super().submit(_do_nothing)
            except WorkerError:
                self._has_threads = False
            else:
                self._has_threads = True
        if self._has_threads:
            return super().submit(fn, *args, **kwargs)
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def map_ahead(
        self, work: Callable[[_Item], _Result], items: Iterable[_Item], most: int
    ) -> Iterator[_Result]:
        """Yield the results of *work* in the order of *items*, of which at most *most* are begun ahead.

        An error of an item, or in *items* itself, is raised after the results of those before it. What is waiting when
        the caller stops is not begun any more.
        """
        pending: deque[Future[_Result]] = deque()
        source: Iterator[_Item] | None = iter(items)
        try:
            while True:
                while source is not None and len(pending) < most:
                    try:
                        pending.append(self.submit(work, next(source)))
                    except StopIteration:
                        source = None
                    except Exception as error:
                        failed: Future[_Result] = Future()
                        failed.set_exception(error)
                        pending.append(failed)
                        source = None
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _do_nothing() -> None:
    pass
