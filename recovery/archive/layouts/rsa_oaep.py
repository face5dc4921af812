"""RSA with OAEP padding over SHA3-512, decryption alone: the Aiven plugin's data keys are encrypted with it.

    0x00 | seed xor mask (64) | (hash of the empty label (64) | zeros | 0x01 | message) xor mask

Both masks are MGF1 over SHA3-512. `cryptography` refuses OAEP with SHA-3, so the arithmetic is here; it is slow, and
meant for one key a segment. RFC 8017, 7.1.2.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from segfmt.errors import DecryptionError

_HASH_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RsaPrivateKey:
    """The numbers of a private key; they are not printed."""

    modulus: int
    prime_p: int
    prime_q: int
    exponent_p: int
    exponent_q: int
    coefficient: int

    def __repr__(self) -> str:
        """Return what may be seen of it."""
        return f"RsaPrivateKey({self.modulus.bit_length()} bits)"

    def decrypt(self, number: int) -> int:
        """Return *number* to the private exponent, by the two primes."""
        by_p = pow(number % self.prime_p, self.exponent_p, self.prime_p)
        by_q = pow(number % self.prime_q, self.exponent_q, self.prime_q)
        return by_q + self.prime_q * ((by_p - by_q) * self.coefficient % self.prime_p)


def decrypt_oaep(key: RsaPrivateKey, encrypted: bytes) -> bytes:
    """Return the message in *encrypted*.

    Raises:
        DecryptionError: it was encrypted with another key, or is damaged; which of them is not said.
    """
    size = (key.modulus.bit_length() + 7) // 8
    number = int.from_bytes(encrypted, "big")
    if len(encrypted) != size or size < 2 * _HASH_BYTES + 2 or number >= key.modulus:
        raise DecryptionError(f"{len(encrypted)} bytes are no message to an RSA key of {size} bytes")
    padded = key.decrypt(number).to_bytes(size, "big")
    seed = _xor(padded[1 : 1 + _HASH_BYTES], _mask(padded[1 + _HASH_BYTES :], _HASH_BYTES))
    block = _xor(padded[1 + _HASH_BYTES :], _mask(seed, size - 1 - _HASH_BYTES))
    behind_zeros = block[_HASH_BYTES:].lstrip(b"\x00")
    is_right = hmac.compare_digest(block[:_HASH_BYTES], hashlib.sha3_512(b"").digest())
    is_right &= padded[:1] == b"\x00"
    is_right &= behind_zeros[:1] == b"\x01"
    if not is_right:
        raise DecryptionError("the data key was encrypted with another RSA key, or is damaged")
    return behind_zeros[1:]


def _mask(seed: bytes, size: int) -> bytes:
    """Return *size* bytes of MGF1 over *seed*."""
    count = -(-size // _HASH_BYTES)
    hashes = [hashlib.sha3_512(seed + number.to_bytes(4, "big")).digest() for number in range(count)]
    return b"".join(hashes)[:size]


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
