"""The only place that knows numba's flags: what a kernel is, and where its machine code is kept.

`kernel`: called from Python. The GIL is released, so that threads scan side by side; machine code is cached
on disk, because compiling the scan takes a second or two and the command line starts often; division by zero
does not raise (error_model="numpy"), because a kernel that cannot raise has no exception paths in its loop.

Neither counts references (_nrt=False): a kernel allocates nothing, its caller keeps the arrays alive, and
each array handed to an inlined function would otherwise cost a pair of locked additions and the vector
registers.

`inlined`: called by kernels only. It is inlined always: a call would put the vector registers on the stack.

Traps that are avoided here (each was seen):

* A kernel made in a factory never hits the cache of an earlier process: kernels are module-level functions.
* numba judges a cached kernel by its own file only; edited constants in an imported module are not noticed.
  The cache folder is therefore named by a digest of all sources that a kernel is made of and of the
  compiler's versions.
* Nor does it notice NUMBA_BOUNDSCHECK, which the digest therefore contains as well.
* Cached kernels are pickles: a folder that someone else can write to is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numba.core.config
from numba.core.registry import cpu_target

import segfmt.layout

_config: Any = numba.core.config  # its settings come and go with the environment; no type knows them
_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile *function* on its first call; keep the machine code for later processes if possible."""
    folder = _cache_folder()
    if folder is None:
        return numba.njit(**_FLAGS)(function)
    with _numba_cache_dir(folder):
        return numba.njit(cache=True, **_FLAGS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Make *function* callable from kernels, inlined wherever it is called."""
    return numba.njit(forceinline=True, **_FLAGS)(function)


INLINED_OVERLOAD = {"forceinline": True, **_FLAGS}
"""`jit_options` of a `numba.extending.overload` whose body is to be inlined like `inlined`."""


@cache
def target_features() -> frozenset[str]:
    """Return what the code generator compiles for, as LLVM writes it: `+sse4.2`, `-avx512f`, ..."""
    _triple, _cpu_name, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(features.split(","))


@cache
def _source_digest() -> str:
    versions = f"numba {numba.__version__} llvmlite {llvmlite.__version__} bounds {_config.BOUNDSCHECK}"
    digest = hashlib.sha256(versions.encode())
    sources = [*sorted(Path(__file__).parent.glob("*.py")), Path(segfmt.layout.__file__)]
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _cache_folder() -> Path | None:
    """Return the folder for machine code, or None where there is none that is ours alone to write."""
    if _config.CACHE_DIR:  # NUMBA_CACHE_DIR: somebody has chosen
        root = Path(_config.CACHE_DIR)
    elif os.environ.get("XDG_CACHE_HOME"):
        root = Path(os.environ["XDG_CACHE_HOME"]) / "kafka-log-recovery"
    else:
        root = Path("~/.cache/kafka-log-recovery").expanduser()
    folder = root / f"kernels-{_source_digest()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # RuntimeError: no home
        return None
    ours_alone = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return folder if ours_alone and os.access(folder, os.W_OK) else None


@contextlib.contextmanager
def _numba_cache_dir(folder: Path) -> Iterator[None]:
    """Let the kernel made inside keep its code in *folder*, and nobody else's."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before
