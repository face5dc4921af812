"""Kernels as functions, as an earlier process has compiled them; numba is imported only if none has."""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from native.cpu_path import CpuPath, Target
from native.errors import UnknownKernelsError, UnlinkableError
from native.kernels import cache
from native.kernels.kernel import ALL, Kernel
from native.kernels.machine_code import MachineCode

ENVIRONMENT: Final = "KAFKA_LOG_RECOVERY_KERNELS"
"""With `numba`, numba alone compiles, keeps and calls what this process needs, without our cache and linker."""


class Origin(enum.Enum):
    """Where this process got a kernel from; of all its kernels' origins, the last member is the process's."""

    CACHE = "cache"
    """Another process compiled it."""
    COMPILED = "compiled"
    """This process compiled it and put it into the cache."""
    MEMORY = "memory"
    """This process compiled it and could not put it into the cache, or was told to leave the cache alone."""


class Account(NamedTuple):
    """What this process had to do for its kernels.

    Attributes:
        origin: where the kernels came from.
        compile_s: seconds spent compiling.
        remark: why kernels could not be kept; empty if they could, or if none had to be.
    """

    origin: Origin
    compile_s: float
    remark: str


_lock = threading.Lock()
_origins: set[Origin] = set()
_compile_s = 0.0


def _tell_nobody() -> None:
    pass


_listener: Callable[[], None] = _tell_nobody


def before_compiling(listener: Callable[[], None]) -> None:
    """Let *listener* be called once, when this process begins to compile, which takes some seconds."""
    global _listener
    _listener = listener


def account() -> Account:
    """Return what has been done so far."""
    origin = next((one for one in reversed(Origin) if one in _origins), Origin.CACHE)
    is_for_want_of_cache = origin is Origin.MEMORY and not is_numba_alone()
    problem = cache.of_this_process().problem if is_for_want_of_cache else ""
    remark = (
        f"compiled kernels cannot be kept for the next run: {problem}. Remedy: name a folder that this user may write "
        f"to in {cache.ENVIRONMENT}, or compile into one beforehand with `warm --kernel-cache FOLDER`"
        if problem
        else ""
    )
    return Account(origin, _compile_s, remark)


@functools.cache
def entry(kernel: Kernel, path: CpuPath | None = None) -> Callable[..., int]:
    """Return *kernel* as a function of its integers, for as long as the process lives.

    It is loaded, or compiled (some seconds) and kept for later processes.

    Args:
        kernel: one of ALL.
        path: a supported one, for a kernel that has a path; otherwise None.

    Raises:
        UnknownKernelsError: the environment asks for an unknown kind of kernels.
    """
    with _lock:
        return _load(kernel, path)


def make_all(path: CpuPath) -> None:
    """Load or compile all kernels, so that later processes find them.

    Args:
        path: a supported one, for the kernels that have a path.

    Raises:
        UnknownKernelsError: as `entry`.
    """
    for kernel in ALL:
        entry(kernel, path if kernel.has_path else None)


@functools.cache
def target() -> Target:
    """Return what the code generator of this process generates code for; it is kept with the machine code.

    Raises:
        UnknownKernelsError: as `entry`.
    """
    kept_kernels = None if is_numba_alone() else cache.of_this_process()
    if kept_kernels is not None and (kept := kept_kernels.read("target")) is not None:
        return Target(*kept.decode().split("\n"))
    from native.kernels import compiler

    asked = compiler.target()
    if kept_kernels is not None:
        kept_kernels.write("target", "\n".join(asked).encode())
    return asked


def is_numba_alone() -> bool:
    """Return whether the environment leaves compiling to numba: no kernel is kept then.

    Raises:
        UnknownKernelsError: it asks for an unknown kind of kernels.
    """
    wanted = os.environ.get(ENVIRONMENT, "")
    if wanted not in ("", "numba"):
        raise UnknownKernelsError(f"{ENVIRONMENT}: {wanted!r} is none of: numba")
    # When bounds are checked, an index error is an exception, which needs more than machine code.
    return wanted == "numba" or os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")


def _load(kernel: Kernel, path: CpuPath | None) -> Callable[..., int]:
    if is_numba_alone():
        return _compile_for_this_process(kernel, path)
    kept_kernels = cache.of_this_process()
    name = kernel.function if path is None else f"{kernel.function}-{path.label}"
    if (kept := kept_kernels.read(name)) is not None:
        code = MachineCode.from_bytes(kept)
        _origins.add(Origin.CACHE)
    else:
        try:
            with _compile_clock():
                from native.kernels import compiler

                code = compiler.compile_kernel(kernel, path)
        except UnlinkableError:
            return _compile_for_this_process(kernel, path)
        _origins.add(Origin.COMPILED if kept_kernels.write(name, code.to_bytes()) else Origin.MEMORY)
    return code.load(kernel.argument_count)


def _compile_for_this_process(kernel: Kernel, path: CpuPath | None) -> Callable[..., int]:
    with _compile_clock():
        from native.kernels import compiler

        _origins.add(Origin.MEMORY)
        return compiler.in_this_process(kernel, path)


@contextlib.contextmanager
def _compile_clock() -> Iterator[None]:
    global _compile_s, _listener
    listener, _listener = _listener, _tell_nobody
    listener()
    begin_s = time.monotonic()
    try:
        yield
    finally:
        _compile_s += time.monotonic() - begin_s
