"""The door to the kernels: `entry` returns one as a function of integers.

A kernel takes int64s, most of them addresses, and returns one. It does not raise, allocate or call. So it is
just machine code, and a process that finds it in the cache needs neither numba nor LLVM, whose import takes longer
than a small recovery. docs/internals/kernels.md explains how; begin with `loader`.
"""

from native.kernels.cache import ENVIRONMENT as CACHE_ENVIRONMENT
from native.kernels.cache import of_this_process as kernel_cache
from native.kernels.kernel import (
    ALL,
    CHECK_LOGS,
    CHECKSUM,
    COMPARE_CHECKSUMS,
    END_SEQUENCES,
    FOLLOW_SEQUENCES,
    JOIN_BYTES,
    JOIN_SEQUENCES,
    LIST_HEADERS,
    LIST_RECORDS,
    PLACE_SEQUENCES,
    REBUILD_SLOTS,
    SCAN,
    WALK_HEADERS,
    WALK_PLAIN_BATCHES,
    WALK_RECORDS,
    Kernel,
)
from native.kernels.loader import (
    ENVIRONMENT,
    Account,
    Origin,
    account,
    before_compiling,
    entry,
    is_numba_alone,
    make_all,
    target,
)

__all__ = [
    "ALL",
    "CACHE_ENVIRONMENT",
    "CHECKSUM",
    "CHECK_LOGS",
    "COMPARE_CHECKSUMS",
    "END_SEQUENCES",
    "ENVIRONMENT",
    "FOLLOW_SEQUENCES",
    "JOIN_BYTES",
    "JOIN_SEQUENCES",
    "LIST_HEADERS",
    "LIST_RECORDS",
    "PLACE_SEQUENCES",
    "REBUILD_SLOTS",
    "SCAN",
    "WALK_HEADERS",
    "WALK_PLAIN_BATCHES",
    "WALK_RECORDS",
    "Account",
    "Kernel",
    "Origin",
    "account",
    "before_compiling",
    "entry",
    "is_numba_alone",
    "kernel_cache",
    "make_all",
    "target",
]
