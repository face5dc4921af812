"""The only place that knows numba's flags: what a kernel is.

The GIL is released, so that threads scan in parallel; division by zero does not raise (error_model="numpy"),
because a kernel that cannot raise has no exception paths in its loop; and references are not counted
(_nrt=False): a kernel allocates nothing, its caller keeps the memory alive, and each array passed to an
inlined function would otherwise cost a pair of locked additions and the vector registers.

NUMBA_BOUNDSCHECK=1 overrides `boundscheck`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}

INLINED_OVERLOAD = {"forceinline": True, **FLAGS}
"""`jit_options` of a `numba.extending.overload` whose body is to be inlined like `inlined`."""


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark *function* as one that `native.kernels` lists: int64s in, an int64 out.

    The function itself is unchanged; it is compiled to machine code unless an earlier process has done so.
    """
    return function


def inlined(function: Callable[..., Any]) -> Any:
    """Make *function* callable from kernels, inlined wherever it is called.

    Always inlined, because a call would spill the vector registers to the stack.
    """
    return numba.njit(forceinline=True, **FLAGS)(function)


def in_process(function: Callable[..., Any]) -> Any:
    """Compile *function* for this process alone, for callers that pass arrays and can wait some seconds."""
    return numba.njit(**FLAGS)(function)
