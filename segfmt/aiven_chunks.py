"""Where the chunks of a segment lie in an object of the Aiven plugin.

A segment is cut into pieces of one size, the last one shorter. Each piece by itself is compressed, encrypted or left
as it is, and the results are stored back to back. If all chunks are stored in one size (nothing is compressed), the
index has that size and the last one's; else it has a packed list of sizes:

    count i32 | nothing, for 0
              | size i32, for 1
              | base i32, width i8, (size minus base) of all but the last in width bytes each, last size i32

Positions in the segment are called "original" here, those in the object "stored".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from segfmt.errors import MalformedManifestError

MAX_BYTES = 2**31 - 1
"""Of a segment, and of a chunk: the plugin counts in a Java int."""
MAX_LISTED_CHUNKS = 1 << 20
"""A longer list is refused: chunks have 4 MiB by default, segments 2 GiB at most."""
_MAX_WIDTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenChunk:
    """One chunk: where it is in the segment, and where in the object."""

    number: int
    original_position: int
    original_bytes: int
    stored_position: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedChunks:
    """Chunks that are stored in one size.

    Attributes:
        original_chunk_bytes: of every chunk but the last, above 0.
        original_size_bytes: of the segment.
        stored_chunk_bytes: of every chunk but the last.
        final_stored_bytes: of the last chunk.
    """

    original_chunk_bytes: int
    original_size_bytes: int
    stored_chunk_bytes: int
    final_stored_bytes: int

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return chunk_count(self.original_size_bytes, self.original_chunk_bytes)

    def stored_position(self, number: int) -> int:
        """Return where chunk *number* begins; for the number of chunks, the end of the object."""
        if number < self.count or number == 0:
            return number * self.stored_chunk_bytes
        return (number - 1) * self.stored_chunk_bytes + self.final_stored_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChunks:
    """Chunks that each have a size of their own.

    Attributes:
        original_chunk_bytes: of every chunk but the last, above 0.
        original_size_bytes: of the segment.
        stored_positions: where each chunk begins in the object, and after them its end.
    """

    original_chunk_bytes: int
    original_size_bytes: int
    stored_positions: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return len(self.stored_positions) - 1

    @property
    def stored_sizes(self) -> list[int]:
        """Bytes of each chunk."""
        return [end - start for start, end in pairwise(self.stored_positions)]

    def stored_position(self, number: int) -> int:
        """Return where chunk *number* begins; for the number of chunks, the end of the object."""
        return self.stored_positions[number]


AivenChunks = FixedChunks | VariableChunks


def variable_chunks(
    *, original_chunk_bytes: int, original_size_bytes: int, stored_sizes: Sequence[int]
) -> VariableChunks:
    """Return the chunks that are stored with these sizes."""
    return VariableChunks(
        original_chunk_bytes=original_chunk_bytes,
        original_size_bytes=original_size_bytes,
        stored_positions=tuple(accumulate(stored_sizes, initial=0)),
    )


def chunk_count(original_size_bytes: int, original_chunk_bytes: int) -> int:
    """Return how many chunks a segment of that size has."""
    return -(-original_size_bytes // original_chunk_bytes)


def find_chunk(chunks: AivenChunks, number: int) -> AivenChunk:
    """Return chunk *number*, from 0 to below their count.

    Raises:
        IndexError: there is no such chunk.
    """
    if not 0 <= number < chunks.count:
        raise IndexError(f"chunk {number} of {chunks.count}")
    original_position = number * chunks.original_chunk_bytes
    stored_position = chunks.stored_position(number)
    return AivenChunk(
        number=number,
        original_position=original_position,
        original_bytes=min(chunks.original_chunk_bytes, chunks.original_size_bytes - original_position),
        stored_position=stored_position,
        stored_bytes=chunks.stored_position(number + 1) - stored_position,
    )


def most_packed_bytes(count: int) -> int:
    """Return how many bytes a packed list of *count* sizes has at most."""
    return 13 + _MAX_WIDTH * count


def read_chunk_sizes(packed: bytes, count: int) -> list[int]:
    """Return the sizes that *packed* lists.

    Args:
        packed: the list, decompressed.
        count: how many there must be.

    Raises:
        MalformedManifestError: another count, or bytes that do not fit it.
    """
    stated = int.from_bytes(packed[:4], "big", signed=True)
    if len(packed) < 4 or stated != count:
        raise MalformedManifestError(f"a list of {stated} chunk sizes where the segment has {count} chunks")
    if count <= 1:
        expected_bytes, width, base = 4 + 4 * count, 0, 0
    else:
        width = int.from_bytes(packed[8:9], "big", signed=True)
        base = int.from_bytes(packed[4:8], "big", signed=True)
        expected_bytes = 9 + (count - 1) * width + 4
    if not 0 <= width <= _MAX_WIDTH or len(packed) != expected_bytes:
        raise MalformedManifestError(
            f"a list of {count} chunk sizes, {width} bytes each, in {len(packed)} bytes"
        )
    sizes = [
        base + int.from_bytes(packed[start : start + width], "big", signed=width == _MAX_WIDTH)
        for start in range(9, expected_bytes - 4, width or 1)
    ]
    if count > 1 and width == 0:
        sizes = [base] * (count - 1)
    if count:
        sizes.append(int.from_bytes(packed[-4:], "big", signed=True))
    if any(not 0 <= size <= MAX_BYTES for size in sizes):
        raise MalformedManifestError("a chunk size that is negative or above 2 GiB")
    return sizes


def encode_chunk_sizes(sizes: Sequence[int]) -> bytes:
    """Return the packed list of *sizes*, in as few bytes as the plugin takes."""
    count = len(sizes).to_bytes(4, "big")
    if not sizes:
        return count
    last = sizes[-1].to_bytes(4, "big")
    if len(sizes) == 1:
        return count + last
    base = min(sizes[:-1])
    width = max(1, -(-max(size - base for size in sizes[:-1]).bit_length() // 8))
    packed = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return count + base.to_bytes(4, "big") + bytes([width]) + packed + last
