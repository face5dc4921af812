"""The kernels that there are, and how they are called: as machine code that an earlier process has compiled.

A kernel takes int64s, most of them addresses, and returns one. It does not raise, allocate or call. So it is
machine code and nothing else, and a process that finds it in the cache (`native.kernel_cache`) needs neither
numba nor LLVM, whose import takes longer than a small recovery.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from native import kernel_cache
from native.cpu import CpuPath
from native.errors import UnlinkableError
from native.machine_code import MachineCode


class Kernel(NamedTuple):
    """A function of a module of kernels.

    Attributes:
        argument_count: how many int64s it takes.
        has_path: it takes a CpuPath in front of them, by which it is compiled.
    """

    module: str
    function: str
    argument_count: int
    has_path: bool = False


CHECKSUM: Final = Kernel("native._crc32c", "checksum_of", 2, has_path=True)
SCAN: Final = Kernel("native._scan_kernel", "scan", 3, has_path=True)
REBUILD_SLOTS: Final = Kernel("native._scan_producers", "rebuild_slots", 5)
WALK_HEADERS: Final = Kernel("native._header_kernel", "walk_headers", 7)
WALK_RECORDS: Final = Kernel("native._record_kernel", "walk_records", 7)
WALK_PLAIN_BATCHES: Final = Kernel("native._record_kernel", "walk_plain_batches", 4)
COMPARE_CHECKSUMS: Final = Kernel("native._checksum_kernel", "compare_checksums", 4, has_path=True)
CHECK_LOGS: Final = Kernel("native._log_kernel", "check_logs", 5, has_path=True)
LIST_RECORDS: Final = Kernel("native._row_kernel", "list_records", 5)
LIST_HEADERS: Final = Kernel("native._row_kernel", "list_headers", 3)
JOIN_BYTES: Final = Kernel("native._row_kernel", "join_bytes", 5)
FOLLOW_SEQUENCES: Final = Kernel("native._sequence_kernel", "follow_sequences", 3)
JOIN_SEQUENCES: Final = Kernel("native._sequence_kernel", "join_sequences", 10)
PLACE_SEQUENCES: Final = Kernel("native._sequence_kernel", "place_sequences", 1)
END_SEQUENCES: Final = Kernel("native._sequence_kernel", "end_sequences", 1)
ALL: Final = (
    CHECKSUM,
    SCAN,
    REBUILD_SLOTS,
    WALK_HEADERS,
    WALK_RECORDS,
    WALK_PLAIN_BATCHES,
    COMPARE_CHECKSUMS,
    CHECK_LOGS,
    LIST_RECORDS,
    LIST_HEADERS,
    JOIN_BYTES,
    FOLLOW_SEQUENCES,
    JOIN_SEQUENCES,
    PLACE_SEQUENCES,
    END_SEQUENCES,
)


class Origin(enum.Enum):
    """Where this process has a kernel from; the last member that holds for one of them is the process's."""

    CACHE = "cache"
    """Another process has compiled it."""
    COMPILED = "compiled"
    """This process has, and has put it into the cache."""
    MEMORY = "memory"
    """This process has, and could not put it into the cache."""


class Account(NamedTuple):
    """What this process had to do for its kernels.

    Attributes:
        origin: where the kernels are from.
        compile_s: how long it has compiled.
        remark: why kernels could not be kept; empty if they could, or none had to be.
    """

    origin: Origin
    compile_s: float
    remark: str


_lock = threading.Lock()
_origins: set[Origin] = set()
_compile_s = 0.0


def account() -> Account:
    """Return what was done so far."""
    origin = next((one for one in reversed(Origin) if one in _origins), Origin.CACHE)
    problem = kernel_cache.of_this_process().problem if origin is Origin.MEMORY else ""
    remark = f"compiled kernels cannot be kept for the next run: {problem}" if problem else ""
    return Account(origin, _compile_s, remark)


@functools.cache
def entry(kernel: Kernel, path: CpuPath | None = None) -> Callable[..., int]:
    """Return *kernel* as a function of its integers, for as long as the process lives.

    It is loaded, or compiled (some seconds) and kept for later processes.

    Args:
        kernel: one of ALL.
        path: a supported one, for a kernel that has a path; otherwise None.
    """
    with _lock:
        return _load(kernel, path)


def _load(kernel: Kernel, path: CpuPath | None) -> Callable[..., int]:
    if os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0"):
        # An index error is an exception, which needs more than machine code.
        return _compile_for_this_process(kernel, path)
    cache = kernel_cache.of_this_process()
    name = kernel.function if path is None else f"{kernel.function}-{path.label}"
    if (kept := cache.read(name)) is not None:
        code = MachineCode.from_bytes(kept)
        _origins.add(Origin.CACHE)
    else:
        try:
            with _compile_clock():
                from native import _compiler

                code = _compiler.compile_kernel(kernel, path)
        except UnlinkableError:
            return _compile_for_this_process(kernel, path)
        _origins.add(Origin.COMPILED if cache.write(name, code.to_bytes()) else Origin.MEMORY)
    return code.load(kernel.argument_count)


def _compile_for_this_process(kernel: Kernel, path: CpuPath | None) -> Callable[..., int]:
    with _compile_clock():
        from native import _compiler

        _origins.add(Origin.MEMORY)
        return _compiler.in_this_process(kernel, path)


@contextlib.contextmanager
def _compile_clock() -> Iterator[None]:
    global _compile_s
    begin_s = time.monotonic()
    try:
        yield
    finally:
        _compile_s += time.monotonic() - begin_s
