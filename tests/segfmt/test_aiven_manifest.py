import base64
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.aiven_chunks import (
    FixedChunks,
    chunk_count,
    encode_chunk_sizes,
    read_chunk_sizes,
    variable_chunks,
)
from segfmt.aiven_manifest import (
    AivenEncryption,
    AivenIndexKind,
    AivenIndexSlice,
    AivenManifest,
    encode_aiven_manifest,
    read_aiven_manifest,
)
from segfmt.compression import Codec, compress
from segfmt.errors import FormatError, MalformedManifestError, UnsupportedManifestError
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import RemoteSegmentState
from tests.logs.remote_segments import OWNERS, SEGMENTS
from tests.segfmt.golden_files import golden

PLAIN = golden("aiven-plain.rsm-manifest")
ZSTD = golden("aiven-zstd.rsm-manifest")
SIZES = st.integers(0, 2**31 - 1)


def changed(data, path, value):
    """The manifest *data* with the member at *path* set, or removed where *value* is `...`."""
    document = json.loads(data)
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize("data", [PLAIN, ZSTD])
def test_a_manifest_of_the_plugin_comes_back(data):
    assert encode_aiven_manifest(read_aiven_manifest(data)) == data


def test_a_manifest_with_chunks_of_one_size():
    manifest = read_aiven_manifest(PLAIN)
    assert (manifest.original_size_bytes, manifest.chunk_count) == (1042471, 4)
    assert (manifest.stored_log_bytes, manifest.stored_indexes_bytes) == (1042471, 760)
    assert not manifest.is_compressed
    assert manifest.encryption is None
    last = manifest.chunk(3)
    assert (last.original_position, last.original_bytes) == (786432, 256039)
    assert (last.stored_position, last.stored_bytes) == (786432, 256039)
    assert manifest.chunk_of(786431).number == 2
    assert manifest.chunk_of(1042470) == last
    assert manifest.index(AivenIndexKind.TRANSACTION) is None
    assert manifest.index(AivenIndexKind.LEADER_EPOCH) == AivenIndexSlice(
        kind=AivenIndexKind.LEADER_EPOCH, position=752, size_bytes=8
    )
    segment = manifest.segment
    assert segment.owner.topic == "ava"
    assert format_uuid(segment.owner.topic_id) == "DzJaxf4LT9eAWI3gf1NUQQ"
    assert format_uuid(segment.segment_id) == "Ql39DSphRbO0LGsT-wh4cQ"
    assert (segment.start_offset, segment.end_offset, segment.size_bytes) == (960, 1919, 1042471)
    assert [tuple(entry) for entry in segment.leader_epochs] == [(0, 960)]
    assert segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED
    assert segment.has_no_transactions


def test_a_manifest_with_chunks_of_several_sizes():
    manifest = read_aiven_manifest(ZSTD)
    assert manifest.is_compressed
    assert manifest.chunk_count == 4
    assert manifest.stored_log_bytes == 151652
    assert [manifest.chunk(n).stored_position for n in range(4)] == manifest_positions(manifest)
    assert sum(manifest.chunk(n).original_bytes for n in range(4)) == manifest.original_size_bytes


def manifest_positions(manifest):
    sizes = [manifest.chunk(n).stored_bytes for n in range(manifest.chunk_count)]
    return [sum(sizes[:n]) for n in range(len(sizes))]


@pytest.mark.parametrize("number", [-1, 4])
def test_there_is_no_other_chunk(number):
    with pytest.raises(IndexError):
        read_aiven_manifest(PLAIN).chunk(number)


@given(st.lists(SIZES, max_size=50) | st.lists(st.integers(10**6, 10**6 + 300), max_size=50))
def test_a_list_of_sizes_comes_back(sizes):
    assert read_chunk_sizes(encode_chunk_sizes(sizes), len(sizes)) == sizes


def test_a_list_of_sizes_as_the_plugin_packs_it():
    """From its documentation: a base, one byte each, the last in full."""
    assert encode_chunk_sizes(
        [1000000, 1000010, 1000020, 7]
    ).hex() == "00000004000f42400100 0a1400000007".replace(" ", "")
    assert encode_chunk_sizes([5]).hex() == "0000000100000005"
    assert encode_chunk_sizes([]).hex() == "00000000"
    assert read_chunk_sizes(bytes.fromhex("00000003 00000005 00 00000001".replace(" ", "")), 3) == [5, 5, 1]


@pytest.mark.parametrize(
    ("packed", "count"),
    [
        ("", 0),
        ("000000", 0),
        ("00000001", 1),
        ("00000002", 1),
        ("0000000000", 0),
        ("000000020000000005", 2),  # a width of five bytes
        ("00000002000000000100000005", 2),  # the delta missing
        ("0000000200000000ff00000005", 2),  # a negative width
        ("0000000280000000010000000005", 2),  # a negative size
        ("ffffffff", -1),
    ],
)
def test_a_list_that_cannot_be_is_refused(packed, count):
    with pytest.raises(MalformedManifestError):
        read_chunk_sizes(bytes.fromhex(packed), count)


@st.composite
def manifests(draw):
    chunk_bytes = draw(st.integers(1, 5000))
    size_bytes = draw(st.integers(0, min(50000, 1000 * chunk_bytes)))  # hypothesis makes no longer lists
    is_compressed, is_encrypted = draw(st.booleans()), draw(st.booleans())
    added = 28 if is_encrypted else 0
    count = chunk_count(size_bytes, chunk_bytes)
    if is_compressed:
        sizes = draw(st.lists(st.integers(1 + added, 2**31 - 1), min_size=count, max_size=count))
        chunks = variable_chunks(
            original_chunk_bytes=chunk_bytes, original_size_bytes=size_bytes, stored_sizes=sizes
        )
    else:
        last = size_bytes - (count - 1) * chunk_bytes + added if count else 0
        chunks = FixedChunks(
            original_chunk_bytes=chunk_bytes,
            original_size_bytes=size_bytes,
            stored_chunk_bytes=chunk_bytes + added,
            final_stored_bytes=last,
        )
    slices, position = [], 0
    for kind in list(AivenIndexKind)[: draw(st.integers(4, 5))]:
        size = draw(st.just(0) | st.integers(29, 1000))
        slices.append(AivenIndexSlice(kind=kind, position=position, size_bytes=size))
        position += size
    encryption = st.builds(
        AivenEncryption,
        key_id=st.text("abc-/ .", min_size=1).filter(str.strip),
        encrypted_data_key=st.binary(min_size=1, max_size=300),
        aad=st.binary(max_size=40),
    )
    segment = draw(st.none() | st.tuples(SEGMENTS, OWNERS))
    if segment is not None:
        segment = replace(
            segment[0],
            owner=replace(segment[1], partition=abs(segment[1].partition) % 2**31),
            size_bytes=size_bytes,
            custom_metadata=None,
            state=RemoteSegmentState.COPY_SEGMENT_FINISHED,
        )
    return AivenManifest(
        chunks=chunks,
        indexes=tuple(slices),
        is_compressed=is_compressed,
        encryption=draw(encryption) if is_encrypted else None,
        segment=segment,
    )


@given(manifests(), st.integers(0, 49999))
def test_a_manifest_comes_back_and_its_chunks_are_the_segment(manifest, position):
    assert read_aiven_manifest(encode_aiven_manifest(manifest)) == manifest
    chunks = [manifest.chunk(number) for number in range(manifest.chunk_count)]
    for before, after in pairwise(chunks):
        assert after.original_position == before.original_position + before.original_bytes
        assert after.stored_position == before.stored_position + before.stored_bytes
    assert sum(chunk.original_bytes for chunk in chunks) == manifest.original_size_bytes
    assert sum(chunk.stored_bytes for chunk in chunks) == manifest.stored_log_bytes
    if position < manifest.original_size_bytes:
        chunk = manifest.chunk_of(position)
        assert 0 <= position - chunk.original_position < chunk.original_bytes
    else:
        with pytest.raises(IndexError):
            manifest.chunk_of(position + manifest.chunks.original_chunk_bytes)


INDEX = "segmentIndexes."
SEGMENT = "remoteLogSegmentMetadata."


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("version", ..., "version: missing"),
        ("version", 1, "version: 1 is no string"),
        ("chunkIndex", None, "chunkIndex: None is no object"),
        ("chunkIndex.type", "other", "neither fixed nor variable"),
        ("chunkIndex.originalChunkSize", 0, "no whole number from 1"),
        ("chunkIndex.originalChunkSize", 1.5, "no whole number"),
        ("chunkIndex.originalChunkSize", True, "no whole number"),
        ("chunkIndex.originalFileSize", -1, "no whole number from 0"),
        ("chunkIndex.originalFileSize", 2**31, "no whole number"),
        ("chunkIndex.originalFileSize", 10**400, "more than 64 bits"),
        ("chunkIndex.transformedChunkSize", 262143, "chunk 0 of 262144 bytes cannot be stored in 262143"),
        ("chunkIndex.finalTransformedChunkSize", 0, "chunk 3 of 256039 bytes cannot be stored in 0"),
        ("chunkIndex.originalFileSize", 1042470, "chunk 3"),
        ("compression", "false", "neither true nor false"),
        (INDEX + "offset", ..., "segmentIndexes.offset: missing"),
        (INDEX + "offset.size", -5, "segmentIndexes.offset.size"),
        (INDEX + "timestamp.position", 503, "timestamp: begins at 503"),
        (INDEX + "transaction", [], "is no object"),
        ("encryption", "x", "encryption: 'x' is no object"),
        ("encryption", {"dataKey": "k", "aad": ""}, "not '<key id>:<base64>'"),
        ("encryption", {"dataKey": " :AAAA", "aad": ""}, "not '<key id>:<base64>'"),
        ("encryption", {"dataKey": "k:", "aad": ""}, "no bytes"),
        ("encryption", {"dataKey": "k:AA:A", "aad": ""}, "not base64"),
        ("encryption", {"dataKey": "k:AAAA", "aad": 7}, "aad: 7 is no string"),
        ("encryption", {"dataKey": "k:AAAA", "aad": ""}, "cannot be stored"),
        (SEGMENT + "remoteLogSegmentId.id", "short", "not a UUID"),
        (SEGMENT + "remoteLogSegmentId.topicIdPartition.topicPartition.partition", -1, "no whole number"),
        (SEGMENT + "remoteLogSegmentId.topicIdPartition.topicPartition.topic", "\ud800", "surrogate"),
        (SEGMENT + "endOffset", 959, "no whole number from 960"),
        (SEGMENT + "segmentLeaderEpochs", {}, "without a leader epoch"),
        (SEGMENT + "segmentLeaderEpochs", {"x": 1}, "is no leader epoch"),
        (SEGMENT + "segmentLeaderEpochs", {"2147483648": 1}, "is no leader epoch"),
    ],
)
def test_what_cannot_be_is_refused_and_named(path, value, words):
    with pytest.raises(MalformedManifestError) as caught:
        read_aiven_manifest(changed(PLAIN, path, value))
    assert words in str(caught.value)


@pytest.mark.parametrize("path", ["remoteLogSegmentMetadata", INDEX + "transaction"])
def test_what_may_be_missing_is_missing(path):
    manifest = read_aiven_manifest(changed(PLAIN, path, ...))
    assert manifest.chunk_count == 4


def test_members_that_nobody_knows_are_passed_over():
    assert read_aiven_manifest(changed(PLAIN, "new", {"a": [1]})) == read_aiven_manifest(PLAIN)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff{}", b"null", b'"x"', b"{" * 100_000, b"[" * 200_000, b'{"a":' * 50_000, b"NaN"],
)
def test_garbage_is_refused(data):
    with pytest.raises(MalformedManifestError) as caught:
        read_aiven_manifest(data)
    assert 0 <= caught.value.position <= len(data)


def test_a_manifest_that_is_too_long_is_refused():
    with pytest.raises(MalformedManifestError, match="at most"):
        read_aiven_manifest(PLAIN + b" " * (16 << 20))


def test_other_versions_and_modes_are_refused_as_such():
    with pytest.raises(UnsupportedManifestError, match="version '2'"):
        read_aiven_manifest(changed(PLAIN, "version", "2"))
    with pytest.raises(UnsupportedManifestError, match="iceberg"):
        read_aiven_manifest(b"PFA1" + bytes(100))


def with_list(packed, **sizes):
    data = ZSTD
    for name, value in sizes.items():
        data = changed(data, f"chunkIndex.{name}", value)
    frame = base64.b64encode(compress(Codec.ZSTD, packed)).decode()
    return changed(data, "chunkIndex.transformedChunks", frame)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (with_list(bytes(100 << 20)), "exceeds 29 bytes"),
        (with_list(encode_chunk_sizes([5, 5, 5])), "3 chunk sizes where the segment has 4"),
        (with_list(encode_chunk_sizes([5, 5, 0, 5])), "chunk 2"),
        (with_list(b"", originalChunkSize=1, originalFileSize=2**31 - 1), "2147483647 chunks"),
        (changed(ZSTD, "chunkIndex.transformedChunks", "AAAA"), "zstd"),
        (changed(ZSTD, "chunkIndex.transformedChunks", "?"), "not base64"),
        (changed(ZSTD, "compression", False), "cannot be stored"),
    ],
)
def test_lists_of_chunks_that_cannot_be_are_refused(data, words):
    """A bomb is given up at the size that the list can have."""
    with pytest.raises(MalformedManifestError) as caught:
        read_aiven_manifest(data)
    assert words in str(caught.value)


@given(st.data())
def test_changed_bytes_are_a_manifest_or_a_format_error(data):
    value = bytearray(data.draw(st.sampled_from([PLAIN, ZSTD])))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(value) - 1))
        value[position : position + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(b'0-9"{}[],:xe.')
        ).to_bytes()
    try:
        manifest = read_aiven_manifest(bytes(value))
    except FormatError:
        return
    assert read_aiven_manifest(encode_aiven_manifest(manifest)) == manifest
