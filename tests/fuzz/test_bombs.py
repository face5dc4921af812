"""Small inputs that announce or hold much: refused in time and memory that go with the input.

Found by looking for what a fuzzer with inputs of some kilobytes cannot reach.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable

import cramjam
import pytest

from segfmt.compression import Codec, compress, decompress
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import DecompressionError, FileNameError, FormatError
from segfmt.filenames import read_folder_name
from segfmt.message_set import base_offset
from segfmt.metadata_log import read_metadata_log
from tests.fuzz.budget import Budget
from tests.fuzz.children import in_child
from tests.fuzz.targets import Target
from tests.logs import builders, reference

_CONTENT = bytes(200 << 20)


def within_budget(work: Callable[[], object]) -> None:
    """Do *work* in a child, within five seconds and 256 MB."""
    target = Target(name="bomb", run=lambda data: work() if data else None)
    outcome = in_child(lambda _: Budget(target).run(b"x"))
    assert outcome.error is None, outcome.error


@pytest.fixture(scope="module")
def bombs() -> dict[Codec, bytes]:
    """200 MB of zeros in some kilobytes."""
    deflated = zlib.compressobj(9, wbits=31)
    return {
        Codec.GZIP: deflated.compress(_CONTENT) + deflated.flush(),
        Codec.LZ4: compress(Codec.LZ4, _CONTENT),
        Codec.ZSTD: bytes(cramjam.zstd.compress(_CONTENT)),
    }


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_control_batch_that_explodes_is_not_opened(codec: Codec, bombs: dict[Codec, bytes]) -> None:
    batch = builders.record_batch(records=bombs[codec], control=True, codec=codec, producer_id=1)

    def work() -> None:
        with pytest.raises(DecompressionError):
            read_end_transaction_marker(batch)

    within_budget(work)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_message_set_that_explodes_is_not_opened(codec: Codec, bombs: dict[Codec, bytes]) -> None:
    wrapper = builders.message(5, attributes=codec, value=bombs[codec])

    def work() -> None:
        with pytest.raises(DecompressionError):
            base_offset(wrapper)

    within_budget(work)


@pytest.mark.parametrize("control", [False, True])
def test_metadata_that_explodes_is_not_opened(control: bool, bombs: dict[Codec, bytes]) -> None:
    batch = builders.record_batch(records=bombs[Codec.ZSTD], control=control, codec=Codec.ZSTD)

    def work() -> None:
        with pytest.raises(FormatError):
            read_metadata_log(batch, crc32c=reference.crc32c)

    within_budget(work)


def test_message_set_of_many_messages_is_not_kept() -> None:
    inner = [builders.message(offset, value=b"") for offset in range(100_000)]
    wrapper = builders.compressed_message(inner, offset=99_999)

    def work() -> None:
        assert base_offset(wrapper) == 0

    within_budget(work)


def test_snappy_block_that_announces_two_gigabytes_takes_no_memory() -> None:
    """The library takes it at once, and where there is none the process is aborted."""
    block = b"\xff\xff\xff\xff\x07a"

    def work() -> None:
        with pytest.raises(DecompressionError, match="2147483647 bytes is too much"):
            decompress(Codec.SNAPPY, block)

    within_budget(work)


def test_densest_snappy_block_is_read() -> None:
    content = bytes(1 << 20)
    block = bytes(cramjam.snappy.compress_raw(content))
    assert len(content) / len(block) > 20
    assert decompress(Codec.SNAPPY, block) == content


def test_many_small_gzip_members_take_time_by_their_number() -> None:
    members = b"".join(gzip.compress(bytes([n]), mtime=0) for n in range(256)) * 1000
    assert len(members) > 5_000_000

    def work() -> None:
        assert decompress(Codec.GZIP, members) == bytes(range(256)) * 1000

    within_budget(work)


def test_folder_name_of_many_dots_and_dashes_is_judged_at_once() -> None:
    name = "-." * 50_000 + " -delete"

    def work() -> None:
        with pytest.raises(FileNameError):
            read_folder_name(name)
        with pytest.raises(FileNameError, match=re.escape("neither topic-partition")):
            read_folder_name("-." * 50_000 + "-stray")

    within_budget(work)
