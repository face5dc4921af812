# mypy: ignore-errors
# ^ kernels: numba infers their types, mypy cannot follow it
"""The kernel that compares the checksums of many batches, so that small ones cost no call each.

Kafka: DefaultRecordBatch.isValid, LegacyRecord.isValid.
"""

from __future__ import annotations

import numpy as np

from native import _crc32
from native._crc32c import checksum
from native._jit import kernel
from native._memory import load_be32, rows_at, store_u8
from native.batch_headers import HEADER_ROW_DTYPE
from segfmt import byte_layout

_LOW_32 = np.int64(0xFFFFFFFF)


@kernel
def compare_checksums(path, address, rows_address, row_count, flags_address):
    """Flag each batch whose checksum is right; the first batch is at *address*.

    Args:
        rows_address: of *row_count* HEADER_ROW_DTYPE, of batches that are entirely in memory.
        flags_address: of as many bytes. Written: 1 for a right checksum, 0 for a wrong one.

    Returns:
        How many are wrong.
    """
    rows = rows_at(rows_address, row_count, HEADER_ROW_DTYPE)
    wrong = np.int64(0)
    for number in range(row_count):
        row = rows[number]
        at = address + row.position - rows[0].position
        if row.magic >= byte_layout.MAGIC_V2:
            stored = load_be32(at + byte_layout.BATCH_CRC_POSITION) & _LOW_32
            start = np.int64(byte_layout.ATTRIBUTES_POSITION)
            computed = checksum(path, at + start, row.size_bytes - start)
        else:
            stored = load_be32(at + byte_layout.MESSAGE_CRC_POSITION) & _LOW_32
            start = np.int64(byte_layout.MESSAGE_CRC_START_POSITION)
            computed = _crc32.checksum(at + start, row.size_bytes - start)
        is_wrong = np.int64(stored != computed)
        store_u8(flags_address + number, 1 - is_wrong)
        wrong += is_wrong
    return wrong
