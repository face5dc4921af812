"""Which of the CRC-32C kernels this machine can run.

A kernel compiled for a feature that the code generator does not have ends the process ("Cannot select"), and
no handler can catch that. So the question is put to the code generator itself, before anything is compiled:
its feature string follows NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX, which the flags of the
host do not.

Importing this module imports nothing heavy; asking for the supported paths imports numba.
"""

from __future__ import annotations

import enum
import functools

from native.errors import UnsupportedCpuPathError


class CpuPath(enum.IntEnum):
    """The ways to compute a CRC-32C, slowest first."""

    PORTABLE = 0
    """Tables; runs everywhere."""
    SSE42_PCLMUL = 1
    """crc32q and 128-bit carry-less multiplication: x86-64 since 2010."""
    AVX512_VPCLMUL = 2
    """512-bit carry-less multiplication: Ice Lake, Zen 4 and later."""


_NEEDED_FEATURES = {
    CpuPath.PORTABLE: frozenset[str](),
    CpuPath.SSE42_PCLMUL: frozenset({"+sse4.2", "+crc32", "+pclmul"}),
    # avx512* and vpclmulqdq go on and off separately (NUMBA_ENABLE_AVX=0 leaves vpclmulqdq on): ask for each.
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
    from native import _jit

    features = _jit.target_features()
    return tuple(path for path in CpuPath if _NEEDED_FEATURES[path] <= features)


def choose(forced: CpuPath | None = None) -> CpuPath:
    """Return the path to use: *forced*, or the fastest there is.

    Args:
        forced: a path that must be taken, for tests and for the command line.

    Raises:
        UnsupportedCpuPathError: the CPU, or what numba was told about it, lacks what *forced* needs.
    """
    if forced is None:
        return supported()[-1]
    if forced not in supported():
        names = ", ".join(path.name for path in supported())
        missing = ", ".join(sorted(feature[1:] for feature in _missing_features(forced)))
        raise UnsupportedCpuPathError(
            f"CPU path {forced.name} cannot be used: this CPU (as numba sees it) lacks {missing}; "
            f"possible: {names}"
        )
    return forced


def named(name: str) -> CpuPath:
    """Return the path called *name*, in any case, with `-` or `_` (for a command line or its environment).

    Raises:
        UnsupportedCpuPathError: there is no such path.
    """
    try:
        return CpuPath[name.strip().upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(path.name.lower().replace("_", "-") for path in CpuPath)
        raise UnsupportedCpuPathError(f"no CPU path is called {name!r}; there are: {names}") from None


def _missing_features(path: CpuPath) -> frozenset[str]:
    from native import _jit

    return _NEEDED_FEATURES[path] - _jit.target_features()
