"""The manifest of a segment that the Aiven plugin has stored, `<stem>.rsm-manifest`: JSON, one object.

    version                   "1"
    chunkIndex                type "fixed": originalChunkSize, originalFileSize, transformedChunkSize,
                              finalTransformedChunkSize; type "variable": originalChunkSize, originalFileSize,
                              transformedChunks, base64 of a zstd frame, see `aiven_chunks`
    segmentIndexes            offset, timestamp, producerSnapshot, leaderEpoch, transaction (or null): position and
                              size in `<stem>.indexes`
    compression               whether each chunk is a zstd frame
    encryption                missing, or dataKey "<key id>:<base64>" and aad, base64: each chunk, and each index that
                              is not empty, is IV (12 bytes), AES-GCM ciphertext, tag (16 bytes)
    remoteLogSegmentMetadata  what Kafka told the plugin about the segment; the plugin never reads it back

Other members are ignored. The manifest is uploaded last, so if it is there the segment is complete. In the plugin's
Iceberg mode the object is a Puffin file instead: it is recognised, and refused.
"""

from __future__ import annotations

import base64
import enum
import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from segfmt.aiven_chunks import (
    MAX_BYTES,
    MAX_LISTED_CHUNKS,
    AivenChunk,
    AivenChunks,
    FixedChunks,
    VariableChunks,
    chunk_count,
    encode_chunk_sizes,
    find_chunk,
    most_packed_bytes,
    read_chunk_sizes,
    variable_chunks,
)
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.compression import Codec, compress, decompress
from segfmt.errors import FormatError, MalformedManifestError, UnsupportedManifestError
from segfmt.java_text import LONG_MAX, LONG_MIN
from segfmt.json_fields import JsonObject, read_json_object
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import RemotePartition, RemoteSegment, RemoteSegmentState

MAX_MANIFEST_BYTES = 16 << 20
"""A longer one is refused; a manifest of 2**20 chunks has less than half of that."""
IV_BYTES = 12
TAG_BYTES = 16
ENCRYPTION_BYTES = IV_BYTES + TAG_BYTES
"""What encryption adds to a chunk or an index."""

_VERSION = "1"
_PUFFIN_MAGIC = b"PFA1"
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,9})")
_MAX_INT = 2**31 - 1


class AivenIndexKind(enum.Enum):
    """The contents of the `.indexes` object, in order; the value is the member of the manifest."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenIndexSlice:
    """Where one index lies in the `.indexes` object, as stored: with what encryption adds."""

    kind: AivenIndexKind
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenEncryption:
    """How the chunks are encrypted.

    Attributes:
        key_id: of the RSA key pair that the data key is encrypted with.
        encrypted_data_key: RSA, OAEP.
        aad: what the tags of AES-GCM cover besides the ciphertext.
    """

    key_id: str
    encrypted_data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenManifest:
    """One manifest.

    Attributes:
        chunks: where the pieces of the segment are.
        indexes: in the order of their kinds; no transaction index if the segment had none.
        is_compressed: whether each chunk is a zstd frame.
        encryption: None if nothing is encrypted.
        segment: what Kafka told the plugin; None if the manifest does not say. Its size is that of the segment,
            its state that of a finished copy.
    """

    chunks: AivenChunks
    indexes: tuple[AivenIndexSlice, ...]
    is_compressed: bool
    encryption: AivenEncryption | None = None
    segment: RemoteSegment | None = None

    @property
    def original_size_bytes(self) -> int:
        """Bytes of the segment."""
        return self.chunks.original_size_bytes

    @property
    def stored_log_bytes(self) -> int:
        """Bytes that the `.log` object must have."""
        return self.chunks.stored_position(self.chunks.count)

    @property
    def stored_indexes_bytes(self) -> int:
        """Bytes that the `.indexes` object must have."""
        return max((one.position + one.size_bytes for one in self.indexes), default=0)

    @property
    def chunk_count(self) -> int:
        """How many chunks there are."""
        return self.chunks.count

    def chunk(self, number: int) -> AivenChunk:
        """Return chunk *number*; raises IndexError if there is none."""
        return find_chunk(self.chunks, number)

    def chunk_of(self, original_position: int) -> AivenChunk:
        """Return the chunk that holds that byte of the segment; raises IndexError past its end."""
        return find_chunk(self.chunks, original_position // self.chunks.original_chunk_bytes)

    def index(self, kind: AivenIndexKind) -> AivenIndexSlice | None:
        """Return where an index is, None if there is none."""
        return next((one for one in self.indexes if one.kind is kind), None)


def read_aiven_manifest(data: bytes) -> AivenManifest:
    """Return what the manifest *data* says.

    Raises:
        UnsupportedManifestError: another version, or a Puffin file (Iceberg mode).
        MalformedManifestError: garbage, a member that is missing or of another type, sizes that contradict each
            other or that no segment has.
    """
    if data.startswith(_PUFFIN_MAGIC):
        raise UnsupportedManifestError(
            "a Puffin file: the plugin ran with segment.format=iceberg, and the records lie in Iceberg data files, "
            "which are not read here; read the table with an Iceberg engine"
        )
    if len(data) > MAX_MANIFEST_BYTES:
        raise MalformedManifestError(f"{len(data)} bytes, a manifest has {MAX_MANIFEST_BYTES} at most")
    document = read_json_object(data)
    version = document.text("version")
    if version != _VERSION:
        raise UnsupportedManifestError(f"version {version[:80]!r} of a manifest, expected {_VERSION!r}")
    chunks = _read_chunks(document.child("chunkIndex"))
    is_compressed = document.flag("compression")
    encryption = _read_encryption(document.child("encryption")) if document.has("encryption") else None
    _check_stored_sizes(chunks, is_compressed=is_compressed, is_encrypted=encryption is not None)
    segment = None
    if document.has("remoteLogSegmentMetadata"):
        segment = _read_segment(document.child("remoteLogSegmentMetadata"), chunks.original_size_bytes)
    return AivenManifest(
        chunks=chunks,
        indexes=_read_indexes(document.child("segmentIndexes"), is_encrypted=encryption is not None),
        is_compressed=is_compressed,
        encryption=encryption,
        segment=segment,
    )


def _read_chunks(index: JsonObject) -> AivenChunks:
    kind = index.text("type")
    chunk_bytes = index.integer("originalChunkSize", 1, MAX_BYTES)
    size_bytes = index.integer("originalFileSize", 0, MAX_BYTES)
    if kind == "fixed":
        return FixedChunks(
            original_chunk_bytes=chunk_bytes,
            original_size_bytes=size_bytes,
            stored_chunk_bytes=index.integer("transformedChunkSize", 0, MAX_BYTES),
            # a segment without chunks has no last one
            final_stored_bytes=index.integer("finalTransformedChunkSize", 0, MAX_BYTES) if size_bytes else 0,
        )
    if kind != "variable":
        raise index.error("type", f"{kind[:80]!r} is neither fixed nor variable")
    count = chunk_count(size_bytes, chunk_bytes)
    if count > MAX_LISTED_CHUNKS:
        raise index.error("originalChunkSize", f"{count} chunks, at most {MAX_LISTED_CHUNKS} are read")
    frame = _base64(index, "transformedChunks")
    try:
        packed = decompress(Codec.ZSTD, frame, max_bytes=most_packed_bytes(count))
    except FormatError as error:
        raise index.error("transformedChunks", str(error)) from error
    return variable_chunks(
        original_chunk_bytes=chunk_bytes,
        original_size_bytes=size_bytes,
        stored_sizes=read_chunk_sizes(packed, count),
    )


def _check_stored_sizes(chunks: AivenChunks, *, is_compressed: bool, is_encrypted: bool) -> None:
    """Refuse sizes that no transformation yields: without compression only encryption changes a size."""
    added_bytes = ENCRYPTION_BYTES if is_encrypted else 0
    last = chunks.count - 1
    numbers = range(chunks.count) if isinstance(chunks, VariableChunks) else {0, last} if last >= 0 else ()
    for number in numbers:
        chunk = find_chunk(chunks, number)
        content_bytes = chunk.stored_bytes - added_bytes
        if content_bytes <= 0 or (not is_compressed and content_bytes != chunk.original_bytes):
            raise MalformedManifestError(
                f"chunkIndex: chunk {number} of {chunk.original_bytes} bytes cannot be stored in {chunk.stored_bytes}"
            )


def _read_indexes(indexes: JsonObject, *, is_encrypted: bool) -> tuple[AivenIndexSlice, ...]:
    slices: list[AivenIndexSlice] = []
    for kind in AivenIndexKind:
        if kind is AivenIndexKind.TRANSACTION and not indexes.has(kind.value):
            continue
        place = indexes.child(kind.value)
        size_bytes = place.integer("size", 0, MAX_BYTES)
        if is_encrypted and 0 < size_bytes <= ENCRYPTION_BYTES:
            raise place.error(
                "size", f"{size_bytes} bytes, encrypted ones have {ENCRYPTION_BYTES + 1} or more"
            )
        position = place.integer("position", 0, MAX_BYTES)
        slices.append(AivenIndexSlice(kind=kind, position=position, size_bytes=size_bytes))
    end = 0
    for one in sorted(slices, key=lambda one: (one.position, one.size_bytes)):
        if one.size_bytes and one.position < end:
            raise indexes.error(one.kind.value, f"begins at {one.position}, within the index before it")
        end = max(end, one.position + one.size_bytes)
    return tuple(slices)


def _read_encryption(encryption: JsonObject) -> AivenEncryption:
    key_id, colon, _ = encryption.text("dataKey").partition(":")
    if not colon or not key_id.strip():
        raise encryption.error("dataKey", "is not '<key id>:<base64>'")
    data_key = _base64(encryption, "dataKey", behind=len(key_id) + 1)
    if not data_key:
        raise encryption.error("dataKey", "has no bytes after the key id")
    return AivenEncryption(key_id=key_id, encrypted_data_key=data_key, aad=_base64(encryption, "aad"))


def _base64(fields: JsonObject, name: str, *, behind: int = 0) -> bytes:
    text = fields.text(name)[behind:]
    try:
        # Java's decoder does not require padding
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise fields.error(name, f"not base64: {error}") from error


def _uuid(fields: JsonObject, name: str) -> UUID:
    try:
        return read_uuid(fields.text(name))
    except FormatError as error:
        raise fields.error(name, str(error)) from error


def _read_segment(metadata: JsonObject, size_bytes: int) -> RemoteSegment:
    names = metadata.child("remoteLogSegmentId")
    owner = names.child("topicIdPartition")
    partition = owner.child("topicPartition")
    start_offset = metadata.integer("startOffset", 0, LONG_MAX)
    return RemoteSegment(
        owner=RemotePartition(
            topic=partition.text("topic"),
            topic_id=_uuid(owner, "topicId"),
            partition=partition.integer("partition", 0, _MAX_INT),
        ),
        segment_id=_uuid(names, "id"),
        start_offset=start_offset,
        end_offset=metadata.integer("endOffset", start_offset, LONG_MAX),
        broker_id=metadata.integer("brokerId", -_MAX_INT - 1, _MAX_INT, default=-1),
        max_timestamp_ms=metadata.integer("maxTimestampMs", LONG_MIN, LONG_MAX, default=-1),
        event_timestamp_ms=metadata.integer("eventTimestampMs", LONG_MIN, LONG_MAX, default=-1),
        leader_epochs=_read_epochs(metadata),
        size_bytes=size_bytes,
        state=RemoteSegmentState.COPY_SEGMENT_FINISHED,
        has_no_transactions=metadata.flag("txnIdxEmpty", default=False),
    )


def _read_epochs(metadata: JsonObject) -> tuple[LeaderEpochEntry, ...]:
    epochs = metadata.child("segmentLeaderEpochs")
    found: list[LeaderEpochEntry] = []
    for name in epochs.members:
        if _INT.fullmatch(name) is None or not -_MAX_INT - 1 <= int(name) <= _MAX_INT:
            raise epochs.error(name[:80], "is no leader epoch")
        found.append(LeaderEpochEntry(int(name), epochs.integer(name, LONG_MIN, LONG_MAX)))
    if not found:
        raise metadata.error("segmentLeaderEpochs", "a segment without a leader epoch")
    return tuple(sorted(found))


def encode_aiven_manifest(manifest: AivenManifest) -> bytes:
    """Return *manifest* as the plugin writes it, members in its order; the zstd frame of a list may differ."""
    slices = {one.kind: {"position": one.position, "size": one.size_bytes} for one in manifest.indexes}
    document: dict[str, Any] = {
        "version": _VERSION,
        "chunkIndex": _chunk_members(manifest.chunks),
        "segmentIndexes": {kind.value: slices.get(kind) for kind in AivenIndexKind},
        "compression": manifest.is_compressed,
    }
    if manifest.encryption is not None:
        data_key = base64.b64encode(manifest.encryption.encrypted_data_key).decode("ascii")
        document["encryption"] = {
            "dataKey": f"{manifest.encryption.key_id}:{data_key}",
            "aad": base64.b64encode(manifest.encryption.aad).decode("ascii"),
        }
    if manifest.segment is not None:
        document["remoteLogSegmentMetadata"] = _segment_members(manifest.segment)
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _chunk_members(chunks: AivenChunks) -> dict[str, Any]:
    sizes = {
        "originalChunkSize": chunks.original_chunk_bytes,
        "originalFileSize": chunks.original_size_bytes,
    }
    if isinstance(chunks, FixedChunks):
        return {
            "type": "fixed",
            **sizes,
            "transformedChunkSize": chunks.stored_chunk_bytes,
            "finalTransformedChunkSize": chunks.final_stored_bytes,
        }
    frame = compress(Codec.ZSTD, encode_chunk_sizes(chunks.stored_sizes))
    return {"type": "variable", **sizes, "transformedChunks": base64.b64encode(frame).decode("ascii")}


def _segment_members(segment: RemoteSegment) -> dict[str, Any]:
    owner = segment.owner
    if owner is None:
        raise MalformedManifestError("a segment of no partition has no manifest")
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": format_uuid(owner.topic_id),
                "topicPartition": {"topic": owner.topic, "partition": owner.partition},
            },
            "id": format_uuid(segment.segment_id),
        },
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp_ms,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in segment.leader_epochs},
        "txnIdxEmpty": segment.has_no_transactions,
    }
