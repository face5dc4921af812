# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""CRC-32 as zlib has it: the checksum of messages of magic 0 and 1.

Kafka: org.apache.kafka.common.utils.Checksums, LegacyRecord.computeChecksum.
"""

from __future__ import annotations

import numpy as np

from native import _gf2, _slicing
from native._jit import inlined

_TABLES = _slicing.tables(_gf2.ZLIB)
_ALL_ONES = np.uint64(0xFFFFFFFF)


@inlined
def checksum(address, size):
    """Return the CRC-32 of *size* bytes at *address*, int64, 0 <= checksum < 2**32."""
    return np.int64(_slicing.advance(_TABLES, _ALL_ONES, address, size) ^ _ALL_ONES)
