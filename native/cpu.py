"""Which of the CRC-32C kernels this machine can run.

A kernel compiled for a feature that the code generator does not have aborts the process ("Cannot select"), and
no handler can catch that. So the code generator itself is asked before anything is compiled: its feature string
follows NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX, which the flags of the host do not. The answer
is kept with the machine code.

Importing this module imports nothing heavy; asking for the supported paths imports numba if no earlier process
has asked.
"""

from __future__ import annotations

import functools
import os
from typing import Final

from native import kernels
from native.cpu_path import CpuPath
from native.errors import UnsupportedCpuPathError

ENVIRONMENT: Final = "KAFKA_LOG_RECOVERY_CPU_PATH"
"""Environment variable that names the path of a process, unless its caller forces one."""

_NEEDED_FEATURES = {
    CpuPath.PORTABLE: frozenset[str](),
    CpuPath.SSE42_PCLMUL: frozenset({"+sse4.2", "+crc32", "+pclmul"}),
    # avx512* and vpclmulqdq are switched separately (NUMBA_ENABLE_AVX=0 leaves vpclmulqdq on): ask for each.
    CpuPath.AVX512_VPCLMUL: frozenset(
        {
            "+sse4.2",
            "+crc32",
            "+pclmul",
            "+bmi2",
            "+vpclmulqdq",
            "+avx512f",
            "+avx512bw",
            "+avx512dq",
            "+avx512vl",
        }
    ),
}


@functools.cache
def supported() -> tuple[CpuPath, ...]:
    """Return the paths that the code generator of this process can compile, slowest first; never empty."""
    return tuple(path for path in CpuPath if not _missing_features(path))


def choose(forced: CpuPath | None = None) -> CpuPath:
    """Return the path to use: *forced*, or the one that the environment names, or the fastest supported.

    Args:
        forced: a path that must be taken, for tests.

    Raises:
        UnsupportedCpuPathError: the CPU, or what numba was told about it, lacks what that path needs; or
            the environment names a path that does not exist.
    """
    if forced is None:
        return default()
    if forced not in supported():
        names = ", ".join(path.name for path in supported())
        missing = ", ".join(sorted(feature[1:] for feature in _missing_features(forced)))
        raise UnsupportedCpuPathError(
            f"CPU path {forced.name} cannot be used: this CPU (as numba sees it) lacks {missing}; "
            f"possible: {names}"
        )
    return forced


@functools.cache
def default() -> CpuPath:
    """Return the path to use if none is forced."""
    wanted = os.environ.get(ENVIRONMENT)
    if not wanted:
        return supported()[-1]
    try:
        return choose(named(wanted))
    except UnsupportedCpuPathError as error:
        raise UnsupportedCpuPathError(f"{ENVIRONMENT}: {error}") from None


def named(name: str) -> CpuPath:
    """Return the path called *name*, in any case, with `-` or `_` (for a command line or its environment).

    Raises:
        UnsupportedCpuPathError: there is no such path.
    """
    try:
        return CpuPath[name.strip().upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(path.label for path in CpuPath)
        raise UnsupportedCpuPathError(f"no CPU path is called {name!r}; there are: {names}") from None


def _missing_features(path: CpuPath) -> frozenset[str]:
    return _NEEDED_FEATURES[path] - frozenset(kernels.target().features.split(","))
