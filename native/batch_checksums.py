"""Whether the checksums of many batches are right, in one call.

Kafka: DefaultRecordBatch.isValid, LegacyRecord.isValid.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from native import cpu, kernels
from native.address import address_of
from native.batch_headers import HeaderRows
from native.cpu_path import CpuPath


def compare_checksums(
    window: npt.NDArray[np.uint8], rows: HeaderRows, *, cpu_path: CpuPath | None = None
) -> npt.NDArray[np.bool_]:
    """Return for each batch whether its stored checksum is that of its bytes; bool, shape (n,).

    Args:
        window: uint8, C-contiguous; its first byte is that of the batch of ``rows[0]``. Not written.
        rows: of batches that are entirely in *window*, shape (n,).
        cpu_path: how to compute CRC-32C; the fastest way by default.
    """
    flags = np.zeros(len(rows), np.bool_)
    if len(rows):
        rows = np.ascontiguousarray(rows)
        compare = kernels.entry(kernels.COMPARE_CHECKSUMS, cpu.choose(cpu_path))
        compare(address_of(window), address_of(rows), len(rows), address_of(flags))
    return flags
