"""CRC-32C (Castagnoli) of small buffers, in plain Python.

One table, one byte per step: obvious and slow (some MB/s). It serves what is small and rare, such as producer
snapshots; whole segments are left to the `native` package, which this one may not import.

Kafka: org.apache.kafka.common.utils.Crc32C.
"""

from __future__ import annotations

from typing import Final

REVERSED_POLYNOMIAL: Final = 0x82F63B78
"""x^32 + x^28 + ... + 1 (0x1EDC6F41), its bits reversed: the CRC takes the lowest bit first."""


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (REVERSED_POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return tuple(entries)


_TABLE: Final = _table()


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC-32C of *data*.

    Args:
        data: any buffer of bytes.
        crc: the CRC-32C of the bytes before *data*: ``crc32c(b, crc32c(a)) == crc32c(a + b)``.

    Returns:
        The checksum, 0 <= crc < 2**32.
    """
    state = crc ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF
