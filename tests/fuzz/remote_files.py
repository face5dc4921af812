"""Targets: metadata, names and manifests of tiered storage."""

from __future__ import annotations

import base64
import json

from segfmt.aiven_chunks import encode_chunk_sizes
from segfmt.aiven_manifest import (
    AivenManifest,
    encode_aiven_manifest,
    read_aiven_manifest,
)
from segfmt.compression import Codec, compress
from segfmt.errors import FormatError
from segfmt.remote_log_metadata import encode_remote_log_metadata, read_remote_log_metadata
from segfmt.remote_names import read_aiven_key, read_local_tiered_file, read_local_tiered_folder
from tests.fuzz.targets import GOLDEN, Target, assert_within


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
