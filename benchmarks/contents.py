"""Contents of batches whose records are compressed, made beforehand: no kernel compresses.

A store of some hundred contents for each codec and size. The generator takes any of them for each batch, so
sizes do not repeat in any order that could be learnt; what changes from batch to batch (offsets, sequences,
timestamps) is in the header or relative to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segfmt.compression import Codec, compress
from segfmt.varint import encode_varint

CONTENT_COUNT = 256
_STORE_BYTES = 64 << 20
_LEAST_CONTENTS = 16
_RECORD_BYTES = 1000
_NULL = encode_varint(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A store of contents.

    Attributes:
        data: uint8, shape (n,): one behind the other.
        rows: int64, shape (m, 3): start and end in *data*, records.
    """

    codec: Codec
    data: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]

    @property
    def least_bytes(self) -> int:
        """The size of the smallest; 0 where there is none."""
        return int((self.rows[:, 1] - self.rows[:, 0]).min()) if self.rows.size else 0

    @property
    def most_bytes(self) -> int:
        """The size of the largest."""
        return int((self.rows[:, 1] - self.rows[:, 0]).max(initial=0))


def make_contents(codec: Codec, least_bytes: int, most_bytes: int, seed: int) -> Contents:
    """Return contents whose compressed sizes are about *least_bytes* to *most_bytes*; none for no codec."""
    if codec is Codec.NONE:
        return Contents(codec=codec, data=np.zeros(0, np.uint8), rows=np.zeros((0, 3), np.int64))
    random = np.random.default_rng([seed, codec])
    count = max(_LEAST_CONTENTS, min(CONTENT_COUNT, _STORE_BYTES // most_bytes))
    parts, rows, position = [], [], 0
    ratio = 2.0
    for target_bytes in random.integers(least_bytes, most_bytes + 1, count).tolist():
        raw, record_count = _records(random, max(1, int(target_bytes * ratio)))
        part = compress(codec, raw)
        ratio = min(20.0, max(0.1, ratio * target_bytes / len(part)))
        parts.append(part)
        rows.append((position, position + len(part), record_count))
        position += len(part)
    return Contents(
        codec=codec, data=np.frombuffer(b"".join(parts), np.uint8).copy(), rows=np.array(rows, np.int64)
    )


def _records(random: np.random.Generator, size_bytes: int) -> tuple[bytes, int]:
    """Return about *size_bytes* of records whose values compress to half, and their count."""
    record_count = max(1, size_bytes // _RECORD_BYTES)
    value_bytes = max(1, size_bytes // record_count - 8)
    records = []
    for number in range(record_count):
        value = random.bytes(-(-value_bytes // 2)).hex().encode()[:value_bytes]
        body = b"\0" + encode_varint(number) * 2 + _NULL + encode_varint(value_bytes) + value + b"\0"
        records.append(encode_varint(len(body)) + body)
    return b"".join(records), record_count
