"""What the Aiven plugin has stored, turned back into the bytes of the segment: decrypted, then decompressed.

Each segment has a data key of its own (AES-256) in its manifest, encrypted with the operator's RSA key pair. Each
chunk, and each index that is not empty, is `IV (12) | ciphertext | tag (16)` of AES-GCM; the plaintext of a chunk may
be a zstd frame. Only data that its tag proves is returned, and no chunk is decompressed to more than its size.

Needs the extra `archive`, only for encrypted segments: cryptography for AES-GCM, which it does five times faster than
pycryptodome, and pycryptodome for RSA, because cryptography refuses OAEP with SHA-3.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.errors import UsageError, reason_text
from recovery.extras import ARCHIVE, load, needed_for
from segfmt.aiven_manifest import ENCRYPTION_BYTES, IV_BYTES, AivenEncryption, AivenIndexKind, AivenManifest
from segfmt.compression import Codec, decompress
from segfmt.errors import (
    BufferUnderflowError,
    ContentTooLargeError,
    DecompressionError,
    DecryptionError,
    MissingKeyError,
    WrongKeyError,
)

if TYPE_CHECKING:
    from Crypto.Cipher.PKCS1_OAEP import PKCS1OAEP_Cipher

MOST_CHUNK_BYTES = 512 << 20
"""A larger chunk is not decompressed; the plugin's have 4 MiB by default."""
_DATA_KEY_BYTES = 32
_GIVE_KEY = "--aiven-key ID=FILE, or the option aivenKeys of the data source"


@dataclass(frozen=True, slots=True, kw_only=True)
class RsaPrivateKey:
    """An RSA private key in a form that can be pickled and compared; its repr does not show the key.

    Attributes:
        der: the key, as PKCS #8.
        bits: of its modulus.
    """

    der: bytes = field(repr=False)
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenKeys:
    """The operator's RSA keys, by their ids in manifests.

    They are pickled with the tasks that read the archive, so whoever can see a cluster's tasks can see them.
    """

    by_id: Mapping[str, RsaPrivateKey]


NO_KEYS = AivenKeys(by_id={})


def load_aiven_keys(paths: Mapping[str, str | Path]) -> AivenKeys:
    """Return the keys in the PEM files *paths*, by key id.

    Raises:
        UsageError: a file cannot be read, or holds no RSA private key (PKCS #8, without a password); or the
            packages of the extra are not installed.
    """
    return AivenKeys(by_id={key_id: _load_key(key_id, Path(path)) for key_id, path in paths.items()})


def restore_chunk(data: bytes, manifest: AivenManifest, number: int, keys: AivenKeys = NO_KEYS) -> bytes:
    """Return chunk *number* of the segment.

    Args:
        data: the chunk as it is stored, `stored_bytes` long.
        manifest: of the segment.
        number: 0 for the first chunk.
        keys: for encrypted segments.

    Raises:
        BufferUnderflowError: *data* has another size: the object is cut off.
        MissingKeyError: the segment is encrypted with a key that is not in *keys*, or is another one there.
        DecryptionError: the tag is not that of the bytes: they were changed.
        DecompressionError: *data* is not a zstd frame, or one that holds more or less than the chunk.
        ContentTooLargeError: a compressed chunk of more than `MOST_CHUNK_BYTES`.
    """
    chunk = manifest.chunk(number)
    if manifest.is_compressed and chunk.original_bytes > MOST_CHUNK_BYTES:
        raise ContentTooLargeError(
            f"it has {chunk.original_bytes} bytes, {MOST_CHUNK_BYTES} are decompressed at most"
        )
    if len(data) != chunk.stored_bytes:
        raise BufferUnderflowError(
            f"the object ends after {len(data)} of its {chunk.stored_bytes} bytes",
            position=len(data),
        )
    if manifest.encryption is not None:
        data = _decrypt(data, manifest.encryption, keys)
    if manifest.is_compressed:
        data = decompress(Codec.ZSTD, data, max_bytes=chunk.original_bytes)
    if len(data) != chunk.original_bytes:
        raise DecompressionError(f"it holds {len(data)} bytes, the manifest says {chunk.original_bytes}")
    return data


def restore_index(
    data: bytes, manifest: AivenManifest, kind: AivenIndexKind, keys: AivenKeys = NO_KEYS
) -> bytes | None:
    """Return an index, the snapshot or the leader epochs of the segment; None if there is none.

    Args:
        data: the whole `.indexes` object.
        manifest: of the segment.
        kind: which one.
        keys: for encrypted segments.

    Raises:
        BufferUnderflowError: the object ends within it.
        MissingKeyError, DecryptionError: as `restore_chunk`.
    """
    index = manifest.index(kind)
    if index is None:
        return None
    stored = data[index.position : index.position + index.size_bytes]
    if len(stored) != index.size_bytes:
        raise BufferUnderflowError(
            f"the object ends after {len(stored)} of its {index.size_bytes} bytes", position=len(data)
        )
    if manifest.encryption is None or not stored:
        return stored
    return _decrypt(stored, manifest.encryption, keys)


def _decrypt(data: bytes, encryption: AivenEncryption, keys: AivenKeys) -> bytes:
    key = keys.by_id.get(encryption.key_id)
    if key is None:
        raise MissingKeyError(
            f"encrypted with the RSA key {encryption.key_id!r}, which was not given: {_GIVE_KEY}"
        )
    if len(data) < ENCRYPTION_BYTES:
        raise DecryptionError(f"{len(data)} bytes, encrypted ones have {ENCRYPTION_BYTES} at least")
    with needed_for("an encrypted segment", extras=ARCHIVE):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    try:
        data_key = _data_key(key, encryption.encrypted_data_key)
    except WrongKeyError as error:
        raise WrongKeyError(
            f"the RSA key {encryption.key_id!r} that was given does not open the data key in the manifest: {error}: "
            f"{_GIVE_KEY}"
        ) from error
    cipher = AESGCM(data_key)
    try:
        return cipher.decrypt(data[:IV_BYTES], data[IV_BYTES:], encryption.aad)
    except InvalidTag as error:
        raise DecryptionError(
            "the tag is not that of these bytes with the data key in the manifest: they were changed, or are another "
            "segment's"
        ) from error


@functools.lru_cache(maxsize=64)
def _data_key(key: RsaPrivateKey, encrypted: bytes) -> bytes:
    """Return the data key of a segment; cached, because it takes milliseconds and each chunk needs it."""
    data_key = decrypt_oaep(key, encrypted)
    if len(data_key) != _DATA_KEY_BYTES:
        raise DecryptionError(
            f"the data key in the manifest has {len(data_key)} bytes, {_DATA_KEY_BYTES} are needed"
        )
    return data_key


def decrypt_oaep(key: RsaPrivateKey, encrypted: bytes) -> bytes:
    """Return the message in *encrypted*: RSA, OAEP with SHA3-512 in both places, no label.

    Raises:
        WrongKeyError: it was encrypted with another key, or is damaged; these cannot be told apart.
    """
    with needed_for("an encrypted segment", extras=ARCHIVE):
        cipher = _oaep_cipher(key)
    try:
        return cipher.decrypt(encrypted)
    except ValueError as error:
        raise WrongKeyError("it was encrypted with another RSA key, or is damaged") from error


@functools.lru_cache(maxsize=64)
def _oaep_cipher(key: RsaPrivateKey) -> PKCS1OAEP_Cipher:
    """Return the cipher of *key*; cached, because checking the key takes longer than using it once."""
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from Crypto.PublicKey import RSA

    return PKCS1_OAEP.new(RSA.import_key(key.der), SHA3_512)


def _load_key(key_id: str, path: Path) -> RsaPrivateKey:
    load(f"the RSA key {key_id}={path}", "cryptography", "Crypto", extras=ARCHIVE)
    from Crypto.PublicKey import RSA

    try:
        key = RSA.import_key(path.read_bytes())
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise UsageError(
            f"{path}: no readable RSA private key for {key_id!r}: {reason_text(error)}. Remedy: give a PEM file "
            "(PKCS #8) without password, which this user may read"
        ) from error
    if not key.has_private():
        raise UsageError(f"{path}: the public key of {key_id!r}. Remedy: give the private one")
    return RsaPrivateKey(der=key.export_key("DER", pkcs=8), bits=key.size_in_bits())
