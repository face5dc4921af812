"""Polynomial arithmetic over GF(2), as CRCs need it: plain Python, for constants and rare joins.

A polynomial of degree below 32 is an int whose bit i is the coefficient of x^i. CRCs keep their bits
*reflected* (bit 31 - i is the coefficient of x^i), because the lowest bit of a byte comes first.
"""

from __future__ import annotations

from typing import Final

CASTAGNOLI: Final = 0x11EDC6F41
"""CRC-32C: record batches, snapshots."""
ZLIB: Final = 0x104C11DB7
"""CRC-32: messages of magic 0 and 1."""


def multiply(a: int, b: int, polynomial: int) -> int:
    """Return a * b modulo *polynomial* (degree 32)."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        b >>= 1
        a <<= 1
        if a >> 32:
            a ^= polynomial
    return product


def power_of_x(exponent: int, polynomial: int) -> int:
    """Return x**exponent modulo *polynomial* in O(log exponent) steps; negative exponents are allowed."""
    result, square = 1, 2
    if exponent < 0:
        exponent, square = -exponent, (polynomial ^ 1) >> 1  # x * ((polynomial - 1) / x) = polynomial - 1 = 1
    while exponent:
        if exponent & 1:
            result = multiply(result, square, polynomial)
        square = multiply(square, square, polynomial)
        exponent >>= 1
    return result


def reflect(value: int, bit_count: int = 32) -> int:
    """Return *value* with the order of its lowest *bit_count* bits reversed."""
    reflected = 0
    for _ in range(bit_count):
        reflected = reflected << 1 | value & 1
        value >>= 1
    return reflected


def shift(crc: int, size_bytes: int, polynomial: int) -> int:
    """Return what the reflected state *crc* becomes when *size_bytes* zero bytes follow."""
    return reflect(multiply(reflect(crc), power_of_x(8 * size_bytes, polynomial), polynomial))


def states_before(crc: int, count: int, polynomial: int) -> list[int]:
    """Return the states that 0, 1, ... *count* - 1 zero bytes turn into the reflected state *crc*."""
    back_one_byte = power_of_x(-8, polynomial)
    state, states = reflect(crc), []
    for _ in range(count):
        states.append(reflect(state))
        state = multiply(state, back_one_byte, polynomial)
    return states


def join(crc_a: int, crc_b: int, size_b_bytes: int, polynomial: int) -> int:
    """Return the CRC of a + b from the CRCs of a and of b: the initial and final inversions cancel out."""
    return shift(crc_a, size_b_bytes, polynomial) ^ crc_b
