"""CRC-32C: every path against RFC 3720 and crcmod, at every alignment, next to pages that do not exist."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native import _gf2
from native.cpu_path import CpuPath
from native.crc32c import crc32c
from segfmt.crc32c import crc32c as plain_crc32c
from tests.logs.reference import crc32c as reference_crc32c
from tests.native.scanning import as_array
from tests.native.ticking import TICKS, most_ticks_within

RFC_3720_VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
        ),
        0xD9963A56,
    ),
    (b"123456789", 0xE3069283),
]


NO_ACCESS = 0  # PROT_NONE


@pytest.mark.parametrize(("data", "expected"), RFC_3720_VECTORS)
def test_rfc_3720_vectors(data: bytes, expected: int, cpu_path: CpuPath) -> None:
    assert crc32c(as_array(data), cpu_path=cpu_path) == expected
    assert plain_crc32c(data) == expected


def test_empty_buffer_leaves_the_checksum(cpu_path: CpuPath) -> None:
    assert crc32c(as_array(b""), cpu_path=cpu_path) == 0
    assert crc32c(as_array(b""), 0x12345678, cpu_path=cpu_path) == 0x12345678


def test_every_length_around_blocks_and_chunks(cpu_path: CpuPath) -> None:
    data = random.Random(3).randbytes(12_500)
    for size in [*range(1, 1900), *range(5_700, 5_900), *range(6_500, 6_600), *range(11_500, 12_400, 7)]:
        assert crc32c(as_array(data)[:size], cpu_path=cpu_path) == reference_crc32c(data[:size]), size


def test_random_lengths_and_alignments(cpu_path: CpuPath) -> None:
    source = random.Random(4)
    data = source.randbytes(200_000)
    array = as_array(data)
    for _ in range(400):
        start = source.randrange(128)
        end = start + source.choice([source.randrange(1, 5_000), source.randrange(1, 150_000)])
        assert crc32c(array[start:end], cpu_path=cpu_path) == reference_crc32c(data[start:end]), (start, end)


@settings(max_examples=60)
@given(a=st.binary(max_size=700), b=st.binary(max_size=700))
def test_checksum_of_joined_buffers_is_extended(a: bytes, b: bytes, cpu_path: CpuPath) -> None:
    whole = crc32c(as_array(a + b), cpu_path=cpu_path)
    assert crc32c(as_array(b), crc32c(as_array(a), cpu_path=cpu_path), cpu_path=cpu_path) == whole
    assert plain_crc32c(b, plain_crc32c(a)) == whole == reference_crc32c(a + b)


@settings(max_examples=60)
@given(crc=st.integers(0, 2**32 - 1), size=st.integers(0, 10_000))
def test_zero_bytes_can_be_taken_back(crc: int, size: int) -> None:
    forward = _gf2.shift(crc, size, _gf2.CASTAGNOLI)
    assert _gf2.shift(forward, -size, _gf2.CASTAGNOLI) == crc


@pytest.fixture
def island() -> Iterator[np.ndarray]:
    """Two pages that can be read, with pages on both sides that cannot."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 6 * page)
    array = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    inside = array[2 * page : 4 * page]
    inside[:] = np.frombuffer(random.Random(5).randbytes(2 * page), np.uint8)
    for start in (0, 4 * page):
        assert protect(array.ctypes.data + start, 2 * page, NO_ACCESS) == 0
    yield inside
    for start in (0, 4 * page):
        assert protect(array.ctypes.data + start, 2 * page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_nothing_outside_of_the_buffer_is_touched(island: np.ndarray, cpu_path: CpuPath) -> None:
    data = island.tobytes()
    for size in [*range(1, 600), *range(600, len(data), 251), len(data)]:
        assert crc32c(island[:size], cpu_path=cpu_path) == reference_crc32c(data[:size])
        assert crc32c(island[-size:], cpu_path=cpu_path) == reference_crc32c(data[-size:])


def test_gil_is_released(cpu_path: CpuPath) -> None:
    data = np.zeros(64 << 20, np.uint8)
    crc32c(data[:1], cpu_path=cpu_path)
    assert most_ticks_within(lambda: crc32c(data, cpu_path=cpu_path)) >= TICKS
