"""The yardstick: read files as fast as the machine does it, and add up their words.

No recovery can be faster, as every byte must be seen. Two ways, because which of them wins depends on the
size of the page cache's folios: mapped, and `pread` into a buffer of 1 MiB.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from native._jit import in_process

BUFFER_BYTES = 1 << 20


@in_process
def _sum_words(words):  # noqa: ANN001, ANN202  # numba infers the types
    """Return the sum of *words*, uint64, shape (n,)."""
    total = np.uint64(0)
    for i in range(words.size):
        total += words[i]
    return total


def sum_mapped(path: Path) -> int:
    """Return the sum of a file's words, read through a mapping; up to seven bytes at the end are left out."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        words = np.frombuffer(mapping, np.uint64, count=len(mapping) // 8)
        total = int(_sum_words(words))
        del words
        mapping.close()
    return total


def sum_read(path: Path) -> int:
    """Return the same sum, read with `pread`."""
    buffer = np.zeros(BUFFER_BYTES, np.uint8)
    total, position = 0, 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while count := os.preadv(descriptor, [buffer.data], position):
            total += int(_sum_words(buffer[: count // 8 * 8].view(np.uint64)))
            position += count
    finally:
        os.close(descriptor)
    return total & (1 << 64) - 1


def read_files(
    dirs: Sequence[Sequence[Path]], threads: int, sum_of: Callable[[Path], int]
) -> tuple[float, int]:
    """Read the files of each dir with *threads* threads of its own; return (seconds, sum of all words)."""
    queues = [deque(files) for files in dirs]
    totals: list[int] = []

    def work(files: deque[Path]) -> None:
        while files:
            try:
                path = files.popleft()
            except IndexError:
                return
            totals.append(sum_of(path))

    workers = [threading.Thread(target=work, args=(files,)) for files in queues for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    assert len(totals) == sum(len(files) for files in dirs)
    return seconds, sum(totals) & (1 << 64) - 1


def warm_up() -> None:
    """Compile the kernel."""
    words = np.zeros(1, np.uint64)
    _sum_words(words)
    words.flags.writeable = False
    _sum_words(words)
