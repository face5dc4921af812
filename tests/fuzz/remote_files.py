"""Targets: metadata, names and manifests of tiered storage."""

from __future__ import annotations

import base64
import json

from recovery.archive.layouts.aiven_cipher import restore_chunk
from recovery.archive.remote.log_batches import LoggedBatch, read_batches
from recovery.check.finding import Finding
from segfmt.aiven_chunks import FixedChunks, encode_chunk_sizes, variable_chunks
from segfmt.aiven_custom_metadata import (
    AivenCustomMetadata,
    encode_aiven_custom_metadata,
    read_aiven_custom_metadata,
)
from segfmt.aiven_manifest import AivenManifest, encode_aiven_manifest, read_aiven_manifest
from segfmt.compression import Codec, compress
from segfmt.errors import FormatError
from segfmt.record import read_records
from segfmt.remote_log_metadata import encode_remote_log_metadata, read_remote_log_metadata
from segfmt.remote_names import read_aiven_key, read_local_tiered_file, read_local_tiered_folder
from tests.fuzz.seal import seal_batches
from tests.fuzz.targets import GOLDEN, Target, assert_within
from tests.logs.memory_log import MemoryLog


def _remote_log_metadata(data: bytes) -> None:
    try:
        record = read_remote_log_metadata(data)
    except FormatError as error:
        assert_within(error, data)
        return
    assert read_remote_log_metadata(encode_remote_log_metadata(record)) == record


def _aiven_manifest(data: bytes) -> None:
    """The bytes as they are, and as the packed list of chunk sizes of a manifest that is whole."""
    document = json.loads((GOLDEN / "aiven-zstd.rsm-manifest").read_text())
    frame = base64.b64encode(compress(Codec.ZSTD, data)).decode()
    document["chunkIndex"]["transformedChunks"] = frame
    for candidate in (data, json.dumps(document).encode()):
        try:
            manifest = read_aiven_manifest(candidate)
        except FormatError as error:
            assert_within(error, candidate)
            continue
        assert read_aiven_manifest(encode_aiven_manifest(manifest)) == manifest
        _check_chunks(manifest)


def _check_chunks(manifest: AivenManifest) -> None:
    """The first and the last chunks lie where they must, whatever their number."""
    count = manifest.chunk_count
    ends = {number for number in (0, 1, count - 2, count - 1) if 0 <= number < count}
    for number in ends:
        chunk = manifest.chunk(number)
        assert 0 < chunk.original_bytes <= manifest.chunks.original_chunk_bytes
        assert chunk.stored_bytes > 0
        assert manifest.chunk_of(chunk.original_position + chunk.original_bytes - 1) == chunk
        if number == count - 1:
            assert chunk.original_position + chunk.original_bytes == manifest.original_size_bytes
            assert chunk.stored_position + chunk.stored_bytes == manifest.stored_log_bytes


def _aiven_custom_metadata(data: bytes) -> None:
    try:
        metadata = read_aiven_custom_metadata(data)
    except FormatError as error:
        assert_within(error, data)
        return
    assert read_aiven_custom_metadata(encode_aiven_custom_metadata(metadata)) == metadata


def _aiven_chunk(data: bytes) -> None:
    """The bytes as a chunk that holds 3000 bytes; compressed, and as they are."""
    stored = len(data) or 1
    fixed = FixedChunks(
        original_chunk_bytes=3000, original_size_bytes=3000, stored_chunk_bytes=3000, final_stored_bytes=3000
    )
    listed = variable_chunks(original_chunk_bytes=3000, original_size_bytes=3000, stored_sizes=[stored])
    for chunks, is_compressed in ((fixed, False), (listed, True)):
        manifest = AivenManifest(chunks=chunks, indexes=(), is_compressed=is_compressed)
        try:
            content = restore_chunk(data, manifest, 0)
        except FormatError:
            continue
        assert len(content) == 3000
        assert is_compressed or content == data


def _log_batches(data: bytes) -> None:
    """As they are, and with the checksums right; in windows of any size, and the values against the plain reader."""
    for candidate in (data, seal_batches(data)):
        damage: list[Finding] = []
        batches = list(read_batches(MemoryLog(candidate), damage.append))
        positions = [batch.position for batch in batches]
        assert positions == sorted(set(positions))
        for batch in batches:
            assert candidate[batch.position : batch.position + len(batch.data)] == batch.data
            _check_values(batch)
        assert all(one.position is not None and 0 <= one.position <= len(candidate) for one in damage)
        assert damage or sum(len(batch.data) for batch in batches) == len(candidate)


def _check_values(batch: LoggedBatch) -> None:
    try:
        expected = [(one.offset, one.value) for one in read_records(batch.data, max_bytes=1 << 20)]
    except FormatError:
        expected = None
    try:
        values = batch.values(most_bytes=1 << 20)
    except FormatError:
        values = None
    assert values == expected


def _remote_names(data: bytes) -> None:
    name = data.decode("utf-8", "replace")
    for found in (read_local_tiered_folder(name), read_local_tiered_file(name), read_aiven_key(name)):
        assert found is None or str(found) == name


def _names() -> list[bytes]:
    segment = b"00000000000000000960-9HqOfWiVQFGS77rn8k-ghw"
    topic_id = b"azWoOhPLTY2ie0GUqzeQ_A"
    return [segment + b".log", b"t-0-" + topic_id, b"t-" + topic_id + b"/0/" + segment + b".rsm-manifest"]


TARGETS = [
    Target(
        name="aiven_custom_metadata",
        run=_aiven_custom_metadata,
        more_seeds=lambda: [
            encode_aiven_custom_metadata(
                AivenCustomMetadata(remote_size_bytes=1 << 40, object_prefix="t/", object_key="k")
            )
        ],
        longest_bytes=256,
    ),
    Target(
        name="aiven_chunk",
        run=_aiven_chunk,
        more_seeds=lambda: [
            bytes(3000),
            compress(Codec.ZSTD, bytes(3000)),
            compress(Codec.ZSTD, bytes(1 << 24)),
        ],
    ),
    Target(
        name="log_batches",
        run=_log_batches,
        instruments=("segfmt", "recovery.archive"),
        seeds=("batch-none.bin", "batch-zstd.bin", "marker-abort.bin", "cluster-metadata.log"),
        longest_bytes=8192,
    ),
    Target(
        name="aiven_manifest",
        run=_aiven_manifest,
        seeds=("aiven-plain.rsm-manifest", "aiven-zstd.rsm-manifest"),
        more_seeds=lambda: [encode_chunk_sizes([70000, 70001, 70600, 9]), b"PFA1"],
        longest_bytes=2048,
    ),
    Target(
        name="remote_log_metadata",
        run=_remote_log_metadata,
        seeds=("remote-segment.bin", "remote-update.bin"),
        longest_bytes=1024,
    ),
    Target(name="remote_names", run=_remote_names, more_seeds=_names, longest_bytes=128),
]
