import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.errors import FormatError, MalformedCheckpointError
from segfmt.kafka_uuid import ONE_UUID, ZERO_UUID, format_uuid, read_uuid
from segfmt.partition_metadata import PartitionMetadata, encode_partition_metadata, read_partition_metadata
from tests.segfmt.golden_files import golden

ID = "Ql39DSphRbO0LGsT-wh4cQ"


@given(st.uuids(), st.integers(0, 2**31 - 1))
def test_round_trip(topic_id, version):
    metadata = PartitionMetadata(topic_id=topic_id, version=version)
    assert read_partition_metadata(encode_partition_metadata(metadata)) == metadata


def test_golden():
    data = golden("partition.metadata")
    assert encode_partition_metadata(read_partition_metadata(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        f"version: 0\ntopic_id: {ID}",
        f"version: 0\r\ntopic_id: {ID}\r\nmore",
        f"version: 7\nx: {ID}==",
        f"v:\t+0: \ny:   {ID}\n",
    ],
)
def test_tolerated_shapes(data):
    assert format_uuid(read_partition_metadata(data.encode()).topic_id) == ID


@pytest.mark.parametrize(
    "data",
    [
        b"version:0\ntopic_id: " + ID.encode(),
        b"version: x\ntopic_id: " + ID.encode(),
        b"version: 0 \ntopic_id: " + ID.encode(),
        b"version: -1\ntopic_id: " + ID.encode(),
        b"version: 0: 1\ntopic_id: " + ID.encode(),
        b"\n",
        b"version: 0\n\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\n" + ID.encode(),
        b"version: 0\n\xff",
    ],
)
def test_shapes_that_take_the_dir_offline(data):
    with pytest.raises(MalformedCheckpointError) as caught:
        read_partition_metadata(data)
    assert caught.value.takes_dir_offline


@pytest.mark.parametrize(
    ("data", "kafka"),
    [
        (b"", "NullPointerException"),
        (b"version: 0", "NullPointerException"),
        (b"version: 0\n", "NullPointerException"),
        (b"version: 0\ntopic_id: Ql39", "IllegalArgumentException"),
        (b"version: 0\ntopic_id: " + ID.encode() + b" ", "IllegalArgumentException"),
        (b"version: 0\ntopic_id: " + ID.encode() + b"=", "IllegalArgumentException"),
        (b"version: 0\ntopic_id: " + b"!" * 22, "IllegalArgumentException"),
    ],
)
def test_shapes_that_kill_the_broker(data, kafka):
    with pytest.raises(MalformedCheckpointError) as caught:
        read_partition_metadata(data)
    assert not caught.value.takes_dir_offline
    assert caught.value.kafka == kafka


def test_cut_anywhere_is_refused():
    data = golden("partition.metadata")
    for end in range(len(data)):
        with pytest.raises(MalformedCheckpointError):
            read_partition_metadata(data[:end])


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data):
    try:
        read_partition_metadata(data)
    except FormatError:
        return


def test_uuids():
    assert format_uuid(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(ONE_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_uuid("AAAAAAAAAAAAAAAAAAAAAR") == ONE_UUID  # unused bits are ignored
