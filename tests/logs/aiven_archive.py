"""Segments as the Aiven plugin stores them: cut, compressed, encrypted; with keys of the tests' own.

The plugin itself is in no registry. What it stores plain and compressed is held against real objects of it
(sample_logs/aiven.tar.xz); the encryption follows the same description, and OAEP is held against OpenSSL.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from recovery.archive.remote.remote_metadata import read_remote_metadata
from recovery.archive.stores.local_store import LocalStore
from segfmt.aiven_chunks import FixedChunks, variable_chunks
from segfmt.aiven_manifest import (
    AivenEncryption,
    AivenIndexKind,
    AivenIndexSlice,
    AivenManifest,
    encode_aiven_manifest,
)
from segfmt.compression import Codec, compress
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState
from segfmt.remote_names import LocalTieredFolder, RemoteFileName, format_aiven_folder
from tests.logs.metadata_topic import segments_of
from tests.segfmt.golden_files import golden

KEY_ID = "tests-key"
_INDEXES = {
    AivenIndexKind.OFFSET: ".index",
    AivenIndexKind.TIMESTAMP: ".timeindex",
    AivenIndexKind.PRODUCER_SNAPSHOT: ".snapshot",
    AivenIndexKind.LEADER_EPOCH: ".leader_epoch_checkpoint",
    AivenIndexKind.TRANSACTION: ".txnindex",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenObjects:
    """The three objects of a segment, by their suffixes, and the manifest as a value."""

    manifest: AivenManifest
    log: bytes
    indexes: bytes

    def by_suffix(self) -> dict[str, bytes]:
        """What lies in the store."""
        return {
            ".log": self.log,
            ".indexes": self.indexes,
            ".rsm-manifest": encode_aiven_manifest(self.manifest),
        }


@cache
def private_key_pem() -> bytes:
    """The RSA key that `encrypted` segments need, under the id KEY_ID."""
    return json.loads(golden("rsa-oaep-sha3.json"))["private_key_pem"].encode()


def write_private_key(folder: Path) -> Path:
    """Write the key below *folder*."""
    path = folder / "aiven-key.pem"
    path.write_bytes(private_key_pem())
    return path


def aiven_objects(
    log: bytes,
    indexes: Mapping[AivenIndexKind, bytes],
    *,
    segment: RemoteSegment | None,
    chunk_bytes: int = 64 << 10,
    is_compressed: bool = False,
    is_encrypted: bool = False,
    seed: int = 1,
) -> AivenObjects:
    """The objects of a segment; of one seed always the same."""
    rng = random.Random(seed)
    data_key, aad = rng.randbytes(32), rng.randbytes(32)

    def transformed(content: bytes, *, may_compress: bool) -> bytes:
        if may_compress and is_compressed:
            content = compress(Codec.ZSTD, content)
        if is_encrypted:
            iv = rng.randbytes(12)
            content = iv + AESGCM(data_key).encrypt(iv, content, aad)
        return content

    pieces = [log[start : start + chunk_bytes] for start in range(0, len(log), chunk_bytes)]
    stored = [transformed(piece, may_compress=True) for piece in pieces]
    slices, stored_indexes = [], b""
    for kind in AivenIndexKind:
        if kind in indexes:
            content = transformed(indexes[kind], may_compress=False) if indexes[kind] else b""
            slices.append(AivenIndexSlice(kind=kind, position=len(stored_indexes), size_bytes=len(content)))
            stored_indexes += content
    sizes = [len(piece) for piece in stored]
    if is_compressed:
        chunks = variable_chunks(
            original_chunk_bytes=chunk_bytes, original_size_bytes=len(log), stored_sizes=sizes
        )
    else:
        added = 28 if is_encrypted else 0
        chunks = FixedChunks(
            original_chunk_bytes=chunk_bytes,
            original_size_bytes=len(log),
            stored_chunk_bytes=chunk_bytes + added,
            final_stored_bytes=sizes[-1] if sizes else 0,
        )
    encryption = None
    if is_encrypted:
        encrypted = encrypt_oaep(data_key, rng.randbytes(64))
        encryption = AivenEncryption(key_id=KEY_ID, encrypted_data_key=encrypted, aad=aad)
    manifest = AivenManifest(
        chunks=chunks,
        indexes=tuple(slices),
        is_compressed=is_compressed,
        encryption=encryption,
        segment=segment,
    )
    return AivenObjects(manifest=manifest, log=b"".join(stored), indexes=stored_indexes)


def encrypt_oaep(message: bytes, seed: bytes, pem: bytes | None = None) -> bytes:
    """*message* for the holder of the key: RSA, OAEP with SHA3-512 in both places, no label."""
    numbers = public_numbers(pem or private_key_pem())
    size = (numbers.n.bit_length() + 7) // 8
    block = hashlib.sha3_512(b"").digest() + bytes(size - len(message) - 130) + b"\x01" + message
    padded = pad_oaep(b"\x00", seed, block)
    return pow(int.from_bytes(padded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


@cache
def public_numbers(pem: bytes) -> RSAPublicNumbers:
    return load_pem_private_key(pem, None).public_key().public_numbers()


def pad_oaep(first: bytes, seed: bytes, block: bytes) -> bytes:
    """*seed* and *block*, each masked by the other."""
    block = _xor(block, _mask(seed, len(block)))
    return first + _xor(seed, _mask(block, len(seed))) + block


def _mask(seed: bytes, size: int) -> bytes:
    blocks = (hashlib.sha3_512(seed + bytes([0, 0, 0, number])).digest() for number in range(256))
    mask = b""
    while len(mask) < size:
        mask += next(blocks)
    return mask[:size]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def finished_segments(
    root: Path, log_dirs: Sequence[Path], topics: Collection[str]
) -> Iterator[tuple[RemoteSegment, dict[str, bytes]]]:
    """The segments of *topics* that a broker had archived below *root*, with their files by suffix."""
    with read_remote_metadata([LocalStore(str(log_dir)) for log_dir in log_dirs]) as metadata:
        for owner in metadata.partitions():
            folder = LocalTieredFolder(topic=owner.topic, partition=owner.partition, topic_id=owner.topic_id)
            for segment in segments_of(metadata, owner.topic_id, owner.partition):
                if owner.topic in topics and segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED:
                    stem = f"{segment.start_offset:020d}-{format_uuid(segment.segment_id)}"
                    paths = (root / "remote/kafka-tiered-storage" / str(folder)).glob(f"{stem}.*")
                    yield segment, {path.name.removeprefix(stem): path.read_bytes() for path in paths}


def store_segment(root: Path, segment: RemoteSegment, files: dict[str, bytes], **options: bool | int) -> None:
    """Store a segment below *root* as the plugin would, with the *options* of `aiven_objects`."""
    indexes = {kind: files[suffix] for kind, suffix in _INDEXES.items() if suffix in files}
    objects = aiven_objects(files[".log"], indexes, segment=segment, chunk_bytes=5000, **options)
    folder = root / format_aiven_folder(segment.owner.topic, segment.owner.topic_id, segment.owner.partition)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, data in objects.by_suffix().items():
        name = RemoteFileName(start_offset=segment.start_offset, segment_id=segment.segment_id, suffix=suffix)
        (folder / str(name)).write_bytes(data)
