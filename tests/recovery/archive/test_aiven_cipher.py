import base64
import hashlib
import json
import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest

from native.crc32c import crc32c_of_bytes
from recovery.archive.layouts.aiven_cipher import (
    NO_KEYS,
    AivenKeys,
    decrypt_oaep,
    load_aiven_keys,
    restore_chunk,
    restore_index,
)
from recovery.errors import UsageError
from segfmt.aiven_chunks import variable_chunks
from segfmt.aiven_manifest import AivenIndexKind, read_aiven_manifest
from segfmt.checkpoint import read_leader_epoch_checkpoint
from segfmt.compression import Codec, compress
from segfmt.errors import (
    BufferUnderflowError,
    ContentTooLargeError,
    DecompressionError,
    DecryptionError,
    FormatError,
    MissingKeyError,
)
from segfmt.offset_index import view_offset_index
from segfmt.producer_snapshot import read_producer_snapshot
from segfmt.record_batch import check_record_batch, walk_batches
from segfmt.remote_names import read_aiven_key
from segfmt.time_index import view_time_index
from tests.logs.aiven_archive import (
    KEY_ID,
    aiven_objects,
    encrypt_oaep,
    pad_oaep,
    private_key_pem,
    public_numbers,
    write_private_key,
)
from tests.logs.samples import unpack_aiven
from tests.segfmt.golden_files import golden

VECTOR = json.loads(golden("rsa-oaep-sha3.json"))
LOG = random.Random(3).randbytes(100_000) + bytes(100_001)
INDEXES = {
    AivenIndexKind.OFFSET: b"offsets!" * 5,
    AivenIndexKind.TIMESTAMP: b"timestamps!!" * 3,
    AivenIndexKind.PRODUCER_SNAPSHOT: b"",
    AivenIndexKind.LEADER_EPOCH: b"0\n1\n0 0\n",
    AivenIndexKind.TRANSACTION: bytes(34),
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> AivenKeys:
    return load_aiven_keys({KEY_ID: write_private_key(tmp_path_factory.mktemp("keys"))})


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_aiven(tmp_path_factory.mktemp("samples"))


def chunks_of(log, manifest):
    places = [manifest.chunk(number) for number in range(manifest.chunk_count)]
    return [log[one.stored_position : one.stored_position + one.stored_bytes] for one in places]


def restored(log, manifest, keys=NO_KEYS):
    pieces = enumerate(chunks_of(log, manifest))
    return b"".join(restore_chunk(data, manifest, number, keys) for number, data in pieces)


# -- what the plugin itself has stored ------------------------------------------------


@pytest.mark.parametrize("root", ["plain", "zstd"])
def test_every_segment_of_the_plugin_comes_back(sample, root):
    """Names, sizes, batches with their checksums and offsets, indexes, snapshot and epochs all agree."""
    paths = sorted((sample / root).rglob("*.rsm-manifest"))
    assert len(paths) == 3
    next_offset = 0
    for path in paths:
        key = read_aiven_key(path.relative_to(sample / root).as_posix())
        manifest = read_aiven_manifest(path.read_bytes())
        segment = manifest.segment
        assert (key.topic, key.topic_id, key.partition) == (
            segment.owner.topic,
            segment.owner.topic_id,
            segment.owner.partition,
        )
        assert (key.file.start_offset, key.file.segment_id) == (segment.start_offset, segment.segment_id)
        stored, indexes = path.with_suffix(".log").read_bytes(), path.with_suffix(".indexes").read_bytes()
        assert (len(stored), len(indexes)) == (manifest.stored_log_bytes, manifest.stored_indexes_bytes)
        log = restored(stored, manifest)
        assert len(log) == segment.size_bytes
        next_offset = check_log(log, segment, next_offset)
        check_indexes(log, indexes, manifest)
    assert next_offset == 2879


def check_log(log, segment, next_offset):
    """Follow the batches to the end, their checksums included; return the offset behind them."""
    assert segment.start_offset == next_offset
    end = 0
    timestamps = []
    for place in walk_batches(log):
        header = check_record_batch(log, place.position, crc32c=crc32c_of_bytes)
        assert header.base_offset == next_offset
        next_offset, end = header.last_offset + 1, place.position + place.size_bytes
        timestamps.append(header.max_timestamp_ms)
    assert end == len(log)
    assert (next_offset - 1, max(timestamps)) == (segment.end_offset, segment.max_timestamp_ms)
    return next_offset


def check_indexes(log, indexes, manifest):
    segment = manifest.segment
    slices = {kind: restore_index(indexes, manifest, kind) for kind in AivenIndexKind}
    assert slices.pop(AivenIndexKind.TRANSACTION) is None
    assert sum(map(len, slices.values())) == len(indexes)
    offsets = view_offset_index(slices[AivenIndexKind.OFFSET])
    batches = {place.position for place in walk_batches(log)}
    assert len(offsets) > 10
    assert {int(position) for position in offsets["position"]} <= batches
    times = view_time_index(slices[AivenIndexKind.TIMESTAMP])
    assert int(times["timestamp_ms"][-1]) == segment.max_timestamp_ms
    assert len(read_producer_snapshot(slices[AivenIndexKind.PRODUCER_SNAPSHOT])) == 1
    epochs = read_leader_epoch_checkpoint(slices[AivenIndexKind.LEADER_EPOCH])
    assert epochs[0].epoch == segment.leader_epochs[0].epoch


# -- encrypted, compressed -----------------------------------------------------------


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("log", [LOG, LOG[:65536], LOG[:131072], LOG[:1], b""], ids=len)
def test_what_is_stored_comes_back(keys, is_compressed, is_encrypted, log):
    objects = aiven_objects(
        log, INDEXES, segment=None, is_compressed=is_compressed, is_encrypted=is_encrypted
    )
    manifest = read_aiven_manifest(objects.by_suffix()[".rsm-manifest"])
    assert manifest == objects.manifest
    assert manifest.stored_log_bytes == len(objects.log)
    assert manifest.stored_indexes_bytes == len(objects.indexes)
    assert restored(objects.log, manifest, keys) == log
    for kind, content in INDEXES.items():
        assert restore_index(objects.indexes, manifest, kind, keys) == content


def test_any_change_of_an_encrypted_chunk_is_noticed(keys):
    objects = aiven_objects(LOG[:3000], INDEXES, segment=None, is_encrypted=True)
    for position in (0, 11, 12, 1000, len(objects.log) - 1):
        data = bytearray(objects.log)
        data[position] ^= 1
        with pytest.raises(DecryptionError, match="the tag is not"):
            restore_chunk(bytes(data), objects.manifest, 0, keys)
    data = bytearray(objects.indexes)
    data[3] ^= 1
    with pytest.raises(DecryptionError, match="the tag is not"):
        restore_index(bytes(data), objects.manifest, AivenIndexKind.OFFSET, keys)


def test_chunks_that_change_places_are_not_the_segment(keys):
    """Encrypted chunks of one size: GCM says nothing of the order, but a plain copy has the wrong last size."""
    objects = aiven_objects(LOG[:100], INDEXES, segment=None, chunk_bytes=64, is_encrypted=True)
    first, last = chunks_of(objects.log, objects.manifest)
    with pytest.raises(BufferUnderflowError):
        restore_chunk(last, objects.manifest, 0, keys)
    assert restore_chunk(first, objects.manifest, 0, keys) == LOG[:64]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_chunk_that_is_cut_off_is_refused(keys, is_compressed):
    objects = aiven_objects(LOG, INDEXES, segment=None, is_compressed=is_compressed, is_encrypted=True)
    for data in (b"", objects.log[:100]):
        with pytest.raises(BufferUnderflowError):
            restore_chunk(data, objects.manifest, 0, keys)
    with pytest.raises(BufferUnderflowError):
        restore_index(objects.indexes[:-1], objects.manifest, AivenIndexKind.TRANSACTION, keys)


def test_without_the_key_nothing_is_said_of_the_bytes():
    objects = aiven_objects(LOG, INDEXES, segment=None, is_encrypted=True)
    data = chunks_of(objects.log, objects.manifest)[0]
    with pytest.raises(MissingKeyError, match=f"RSA key '{KEY_ID}'"):
        restore_chunk(data, objects.manifest, 0)


def test_a_bomb_is_given_up_at_the_size_of_the_chunk():
    """A chunk of 64 KiB that holds 300 MB: nothing of that size is ever made."""
    bomb = compress(Codec.ZSTD, bytes(300 << 20))
    objects = aiven_objects(LOG, INDEXES, segment=None, is_compressed=True)
    chunks = objects.manifest.chunks
    manifest = replace(
        objects.manifest, chunks=replace(chunks, stored_positions=(0, len(bomb), *[10**6] * 3))
    )
    with pytest.raises(ContentTooLargeError):
        restore_chunk(bomb, manifest, 0)


def test_a_chunk_of_a_size_that_nobody_uses_is_not_decompressed():
    """A manifest that says so would have a task make all of it."""
    bomb = compress(Codec.ZSTD, bytes(1 << 20))
    chunks = variable_chunks(
        original_chunk_bytes=2**31 - 1, original_size_bytes=2**31 - 1, stored_sizes=[len(bomb)]
    )
    objects = aiven_objects(LOG, INDEXES, segment=None, is_compressed=True)
    with pytest.raises(ContentTooLargeError, match="decompressed at most"):
        restore_chunk(bomb, replace(objects.manifest, chunks=chunks), 0)


def test_a_chunk_that_holds_less_than_it_says_is_refused():
    frame = compress(Codec.ZSTD, bytes(100))
    objects = aiven_objects(LOG, INDEXES, segment=None, is_compressed=True)
    chunks = objects.manifest.chunks
    manifest = replace(
        objects.manifest, chunks=replace(chunks, stored_positions=(0, len(frame), *[10**6] * 3))
    )
    with pytest.raises(DecompressionError, match="100 bytes, the manifest says 65536"):
        restore_chunk(frame, manifest, 0)


# -- keys ----------------------------------------------------------------------------


def test_oaep_is_that_of_openssl(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text(VECTOR["private_key_pem"])
    (key,) = load_aiven_keys({"k": path}).by_id.values()
    data_key = bytes.fromhex(VECTOR["data_key"])
    assert decrypt_oaep(key, base64.b64decode(VECTOR["encrypted"])) == data_key


@pytest.mark.parametrize("size", [0, 1, 32, 256 - 130])
def test_oaep_comes_back_for_each_length(keys, size):
    message = random.Random(size).randbytes(size)
    encrypted = encrypt_oaep(message, bytes(range(64)))
    assert decrypt_oaep(keys.by_id[KEY_ID], encrypted) == message


def test_a_damaged_data_key_is_refused(keys):
    key = keys.by_id[KEY_ID]
    encrypted = encrypt_oaep(bytes(32), bytes(64))
    said = set()
    for position in range(0, 256, 5):
        data = bytearray(encrypted)
        data[position] ^= 0x40
        try:
            decrypt_oaep(key, bytes(data))
        except DecryptionError as error:
            said.add(str(error).split(" ")[0])
        else:
            pytest.fail(f"byte {position} is not covered")
    assert said == {"it"}
    for data in (b"", encrypted[:-1], encrypted + b"\x00", b"\xff" * 256):
        with pytest.raises(DecryptionError):
            decrypt_oaep(key, data)


def test_every_part_of_the_padding_is_looked_at(keys):
    """The first byte, the hash of the label, and the byte before the message."""
    key = keys.by_id[KEY_ID]
    size, seed = 256, bytes(range(64))
    label = hashlib.sha3_512(b"").digest()
    for first, label_hash, mark, is_right in (
        (0, label, 1, True),
        (1, label, 1, False),
        (0, label[:-1] + b"\x00", 1, False),
        (0, label, 2, False),
    ):
        block = label_hash + bytes(size - 32 - 130) + bytes([mark]) + b"m" * 32
        padded = pad_oaep(bytes([first]), seed, block)
        modulus = public_numbers(private_key_pem()).n
        encrypted = pow(int.from_bytes(padded, "big"), 65537, modulus).to_bytes(size, "big")
        if is_right:
            assert decrypt_oaep(key, encrypted) == b"m" * 32
        else:
            with pytest.raises(DecryptionError, match="another RSA key"):
                decrypt_oaep(key, encrypted)


def test_a_data_key_of_another_length_is_refused(keys):
    objects = aiven_objects(LOG[:10], INDEXES, segment=None, is_encrypted=True)
    short = replace(objects.manifest.encryption, encrypted_data_key=encrypt_oaep(bytes(16), bytes(64)))
    with pytest.raises(DecryptionError, match="16 bytes"):
        restore_chunk(objects.log, replace(objects.manifest, encryption=short), 0, keys)


def test_keys_are_not_printed_and_travel(keys):
    assert repr(keys) == f"AivenKeys(by_id={{'{KEY_ID}': RsaPrivateKey(bits=2048)}})"
    assert pickle.loads(pickle.dumps(keys)) == keys


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"garbage",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "public",
        "ec",
    ],
)
def test_a_file_that_holds_no_rsa_key_is_a_usage_error(tmp_path, content):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path = tmp_path / "key.pem"
    if content == "public":
        public = serialization.load_pem_private_key(private_key_pem(), None).public_key()
        content = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    elif content == "ec":
        content = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="key"):
        load_aiven_keys({"k": path})


def test_random_bytes_are_a_chunk_or_a_format_error(keys):
    rng = random.Random(5)
    for is_compressed in (False, True):
        for is_encrypted in (False, True):
            objects = aiven_objects(
                LOG[:5000], INDEXES, segment=None, is_compressed=is_compressed, is_encrypted=is_encrypted
            )
            for _ in range(200):
                data = bytearray(objects.log)
                for _ in range(rng.randrange(1, 4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                try:
                    content = restore_chunk(bytes(data), objects.manifest, 0, keys)
                except FormatError:
                    continue
                assert len(content) == 5000
