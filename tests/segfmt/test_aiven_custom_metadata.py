import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.aiven_custom_metadata import (
    AivenCustomMetadata,
    encode_aiven_custom_metadata,
    read_aiven_custom_metadata,
    read_remote_size,
)
from segfmt.errors import FormatError


@given(
    st.builds(
        AivenCustomMetadata,
        remote_size_bytes=st.none() | st.integers(0, 2**63 - 1),
        object_prefix=st.none() | st.text(max_size=20),
        object_key=st.none() | st.text(max_size=200),
    )
)
def test_custom_metadata_come_back(metadata):
    assert read_aiven_custom_metadata(encode_aiven_custom_metadata(metadata)) == metadata


def test_all_three_fields_have_the_size_that_the_plugin_was_seen_to_write():
    """90 bytes with a topic of three letters and a prefix of six characters."""
    key = "abc-azWoOhPLTY2ie0GUqzeQ_A/0/00000000000000000960-9HqOfWiVQFGS77rn8k-ghw"
    data = encode_aiven_custom_metadata(
        AivenCustomMetadata(remote_size_bytes=152_000, object_prefix="tiers/", object_key=key)
    )
    assert len(data) == 90
    assert data[0] == 3


def test_unknown_tags_are_passed_over():
    assert read_aiven_custom_metadata(b"\x02\x00\x01\x08\x07\x02ab").remote_size_bytes == 4


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\x00\x01\x80", b"\x00\x00", b"\x01\x01\x01\x05", b"\xff" * 9]
)
def test_other_bytes_are_refused(data):
    with pytest.raises(FormatError):
        read_aiven_custom_metadata(data)
    assert read_remote_size(data) is None


def test_without_custom_metadata_nothing_is_known():
    assert read_remote_size(None) is None
