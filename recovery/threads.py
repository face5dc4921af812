"""Threads where the system may allow no more of them (`ulimit -u`, a cgroup's `pids.max`): fewer do the same work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from recovery.errors import WorkerError


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
                raise WorkerError(f"{error}. Remedy: allow more threads (ulimit -u, pids.max)") from error
