"""xxHash32 in plain Python: the checksum inside LZ4 frames. Slow; frame descriptors have a dozen bytes."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_PRIME_1 = 2654435761
_PRIME_2 = 2246822519
_PRIME_3 = 3266489917
_PRIME_4 = 668265263
_PRIME_5 = 374761393
_STRIPE_BYTES = 16


def xxhash32(data: bytes | memoryview, seed: int = 0) -> int:
    """Return the xxHash32 of *data*, 0 <= hash < 2**32."""
    view = memoryview(data).cast("B")
    position = 0
    if len(view) >= _STRIPE_BYTES:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while position <= len(view) - _STRIPE_BYTES:
            for lane in range(4):
                word = int.from_bytes(view[position : position + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * _PRIME_2, 13) * _PRIME_1 & _MASK
                position += 4
        digest = sum(_rotate(value, turn) for value, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = seed + _PRIME_5
    digest += len(view)
    for position in range(position, len(view) - 3, 4):  # noqa: B020 - goes on where the stripes end
        word = int.from_bytes(view[position : position + 4], "little")
        digest = _rotate(digest + word * _PRIME_3, 17) * _PRIME_4
    for octet in view[len(view) - len(view) % 4 :]:
        digest = _rotate(digest + octet * _PRIME_5, 11) * _PRIME_1
    digest &= _MASK
    digest = (digest ^ digest >> 15) * _PRIME_2 & _MASK
    digest = (digest ^ digest >> 13) * _PRIME_3 & _MASK
    return digest ^ digest >> 16


def _rotate(value: int, turn: int) -> int:
    value &= _MASK
    return (value << turn | value >> (32 - turn)) & _MASK
