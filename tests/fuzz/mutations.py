"""Valid bytes made wrong: what hypothesis does to the corpus of a target."""

from __future__ import annotations

from hypothesis import strategies as st

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 13, 14, 49, 61)


@st.composite
def mutated(draw: st.DrawFn, corpus: tuple[bytes, ...], longest_bytes: int) -> bytes:
    """An input of *corpus* after up to six changes."""
    data = bytearray(draw(st.sampled_from(corpus)))
    for _ in range(draw(st.integers(0, 6))):
        _change(draw, data, corpus)
    return bytes(data[:longest_bytes])


def _change(draw: st.DrawFn, data: bytearray, corpus: tuple[bytes, ...]) -> None:
    place = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from(["flip", "byte", "number", "cut", "drop", "insert", "repeat", "splice"]))
    if kind == "flip" and place < len(data):
        data[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "byte" and place < len(data):
        data[place] = draw(st.integers(0, 255))
    elif kind == "number":
        size = draw(st.sampled_from([1, 2, 4, 8]))
        number = draw(st.sampled_from(_NUMBERS)) & (1 << 8 * size) - 1
        data[place : place + size] = number.to_bytes(size, draw(st.sampled_from(["big", "little"])))
    elif kind == "cut":
        del data[place:]
    elif kind == "drop":
        del data[place : place + draw(st.integers(1, 64))]
    elif kind == "insert":
        data[place:place] = draw(st.binary(max_size=20))
    elif kind == "repeat":
        size = draw(st.integers(1, 80))
        data[place:place] = data[place : place + size] * draw(st.sampled_from([1, 2, 5]))
    else:
        data[place:] = draw(st.sampled_from(corpus))[place:]
