"""The journal's file format: framed records, each with its own checksum. Bytes and values only, no file.

    file    = "KLRJ" version:u32 record...                 numbers are big-endian
    record  = kind:4 length:u32 checksum:u32 payload       length: bytes of the payload
    payload = head_bytes:u32 head body                     head: JSON, a few hundred bytes

    kind    head                 body
    HEAD    {"made_folder": is}  JSON: the run, what it began with, under which configuration. The first record
    SCAN    what was scanned     the arrays of the scan (`recovery/write/scan_record.py`)
    DONE    {"folder": name}     JSON: what the caller says of a partition that is done
    NOTE    {"name": name}       JSON: anything else

The checksum is the CRC-32 of kind, length, payload and the record's position in the file (u64), so the bytes of
a record are valid only where they were written. It is zlib's, which needs no kernel to be compiled: a journal
is also read by commands that read no segment. JSON is ASCII with sorted keys; a byte of a name that is not
UTF-8 is an escaped surrogate, as in Python.

Anybody who may write into the quarantine's folder may write a journal. So nothing in it is executed, no length is
trusted, and the names in it are compared, never opened. A record that is not whole, or not what this version writes,
is a value (None): reading ends there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from recovery.errors import JournalError

SIGNATURE: Final = b"KLRJ"
VERSION: Final = 1
START: Final = struct.Struct(">4sI")
"""The first bytes of the file: signature, version."""
PREFIX: Final = struct.Struct(">4sII")
"""The first bytes of a record: kind, length, checksum."""
MOST_HEAD_BYTES: Final = 64 << 10
_HEAD_SIZE: Final = struct.Struct(">I")
_BEFORE: Final = struct.Struct(">4sI")
_POSITION: Final = struct.Struct(">Q")
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_MOST_PAYLOAD_BYTES: Final = (1 << 32) - 1

Document = Mapping[str, Any]
"""A JSON object."""
Piece = bytes | memoryview
"""Bytes; a view is one-dimensional."""


class RecordKind(Enum):
    """What a record is, as the file spells it."""

    HEADER = b"HEAD"
    SCAN = b"SCAN"
    COMMIT = b"DONE"
    NOTE = b"NOTE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a run began with; another run may resume from its journal only if this still holds.

    Attributes:
        tool_version: of the tool that began.
        log_dir: absolute path.
        configuration: every setting on which bytes depend, those of topics included, by name.
        now_ms: the clock of the run; producers expire by it.
        had_clean_shutdown: whether the marker was there and was not ignored.
        run_folder: name of the run's folder in quarantine; None if it is not known yet.
        folders: `listing_digest` of each partition's folder by its name.
    """

    tool_version: str
    log_dir: str
    configuration: Mapping[str, str]
    now_ms: int
    had_clean_shutdown: bool
    run_folder: str | None = None
    folders: Mapping[str, str] = field(default_factory=dict)


_FIELDS: Final = frozenset(Header.__dataclass_fields__)
_MAPPINGS: Final = ("configuration", "folders")


def encode_start() -> bytes:
    """Return the first bytes of a journal."""
    return START.pack(SIGNATURE, VERSION)


def check_start(start: bytes, path: str) -> bool:
    """Return whether *start*, the first bytes of the file *path*, is whole; False if it is torn.

    Raises:
        JournalError: it is another program's file, or of another version.
    """
    expected = encode_start()
    if start == expected:
        return True
    if len(start) < START.size and expected.startswith(start):
        return False
    if start[: len(SIGNATURE)] == SIGNATURE and len(start) == START.size:
        version = START.unpack(start)[1]
        raise JournalError(
            f"{path}: byte 4: version {version} of the journal, but this tool knows {VERSION}. Remedy: resume with the "
            "version of the tool that began, or begin anew with recover --restart"
        )
    raise JournalError(
        f"{path}: byte 0: not a journal of this tool. Remedy: move the file away, as recover --restart "
        "does with a journal of a recovery"
    )


def encode_payload(head: Document, body: Sequence[Piece]) -> tuple[Piece, ...] | None:
    """Return a record's payload in pieces, those of *body* unchanged; None if it is too large for the format."""
    head_bytes = encode_json(head)
    payload = (_HEAD_SIZE.pack(len(head_bytes)) + head_bytes, *body)
    is_small_enough = len(head_bytes) <= MOST_HEAD_BYTES and sum(map(len, payload)) <= _MOST_PAYLOAD_BYTES
    return payload if is_small_enough else None


def payload_checksum(kind: RecordKind, payload: Sequence[Piece]) -> int:
    """Return the checksum of a record up to the end of its payload; `end_checksum` continues it."""
    checksum = begin_checksum(kind, sum(map(len, payload)))
    for piece in payload:
        checksum = zlib.crc32(piece, checksum)
    return checksum


def begin_checksum(kind: RecordKind, length: int) -> int:
    """Return the checksum of what precedes the payload; `zlib.crc32` continues it with the payload."""
    return zlib.crc32(_BEFORE.pack(kind.value, length))


def end_checksum(checksum: int, position: int) -> int:
    """Return the checksum of a record at *position*, given the one up to the payload's end."""
    return zlib.crc32(_POSITION.pack(position), checksum)


def read_prefix(prefix: bytes) -> tuple[RecordKind, int, int] | None:
    """Return kind, length and checksum; None if these are not the first bytes of a record."""
    if len(prefix) != PREFIX.size:
        return None
    kind, length, checksum = PREFIX.unpack(prefix)
    try:
        return RecordKind(kind), length, checksum
    except ValueError:
        return None


def read_payload(payload: bytes) -> tuple[dict[str, Any], memoryview] | None:
    """Return head and body of *payload*, or of its beginning if that holds the whole head; None if it does not."""
    if len(payload) < _HEAD_SIZE.size:
        return None
    (size,) = _HEAD_SIZE.unpack_from(payload)
    if size > min(MOST_HEAD_BYTES, len(payload) - _HEAD_SIZE.size):
        return None
    end = _HEAD_SIZE.size + size
    head = decode_json(payload[_HEAD_SIZE.size : end])
    return None if head is None else (head, memoryview(payload)[end:])


def encode_header(header: Header) -> bytes:
    """Return the body of the first record."""
    mappings = {name: dict(getattr(header, name)) for name in _MAPPINGS}
    return encode_json({name: getattr(header, name) for name in _FIELDS} | mappings)


def decode_header(body: bytes) -> Header | None:
    """Return the header in *body*; None if it is not one."""
    document = decode_json(body)
    if document is None or set(document) != _FIELDS:
        return None
    run_folder = document["run_folder"]
    is_sound = (
        isinstance(document["tool_version"], str)
        and isinstance(document["log_dir"], str)
        and _is_mapping(document["configuration"], str)
        and type(document["now_ms"]) is int
        and isinstance(document["had_clean_shutdown"], bool)
        and (run_folder is None or is_file_name(run_folder))
        and _is_mapping(document["folders"], str)
    )
    return Header(**document) if is_sound else None


def is_file_name(name: object) -> bool:
    """Whether *name* is a plain file name, not a path that leads elsewhere."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def encode_json(document: Document) -> bytes:
    """Return *document* as JSON, always the same bytes for the same document."""
    return _ENCODER.encode(dict(document)).encode("ascii")


def decode_json(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in *data*; None if there is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _is_mapping(document: object, values: Any) -> bool:  # noqa: ANN401 - a type, or a union of types
    return isinstance(document, dict) and all(isinstance(value, values) for value in document.values())
