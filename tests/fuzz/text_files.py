"""Targets: file names, checkpoints, properties, the marker, and the Java text below them."""

from __future__ import annotations

import re
import unicodedata

from segfmt import checkpoint, filenames, java_text, meta_properties, partition_metadata
from segfmt.clean_shutdown import encode_clean_shutdown, read_clean_shutdown
from segfmt.errors import FormatError
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.properties import encode_properties, read_properties
from tests.fuzz.choices import Choices
from tests.fuzz.targets import Target

_FOLDERS = (
    "orders-0",
    "a.b-12",
    "t-3.0123456789abcdef0123456789abcdef-delete",
    "t-+0",
    "-1",
    "t--7",
    "lost+found",
)
_NAMES = (
    "00000000000000000012.log",
    "+5.index.swap",
    "12.timeindex.deleted",
    "x.txnindex.cleaned",
    ".log",
    "٣.snapshot",
)
_SNAPSHOT_NAMES = (
    "00000000000000000012-0000000003.checkpoint",
    "00000000000000000012-0000000003.checkpoint.part",
)


def _java_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse, bits in ((java_text.parse_int, 32), (java_text.parse_long, 64)):
        assert parse(text) == _number_twin(text, bits)
    tokens = java_text.split_white_space(text)
    assert not any(set(java_text.WHITE_SPACE) & set(token) for token in tokens)
    try:
        lines = list(java_text.read_lines(data))
    except UnicodeDecodeError:
        return
    assert lines == re.split(r"\r\n|[\r\n]", re.sub(r"(?:\r\n|[\r\n])\Z", "", text)) or not data


def _number_twin(text: str, bits: int) -> int | None:
    """Integer.parseInt by way of Python's own int()."""
    match = re.fullmatch(r"[+-]?(.+)", text, re.DOTALL)
    if match is None or any(c > "\uffff" or unicodedata.decimal(c, None) is None for c in match[1]):
        return None
    digits = "".join(str(unicodedata.decimal(c)) for c in match[1]).lstrip("0")[:30] or "0"
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _kafka_uuid(data: bytes) -> None:
    if len(data) == 16:
        data = format_uuid(read_uuid(format_uuid(_uuid(data)))).encode()
    try:
        uuid = read_uuid(data.decode("latin-1"))
    except FormatError:
        return
    assert read_uuid(format_uuid(uuid)) == uuid


def _uuid(data: bytes):
    from uuid import UUID

    return UUID(bytes=data)


_MARKED = re.compile(r"[^ \t\n\x0b\f\r]+-[^ \t\n\x0b\f\r]+\.[^ \t\n\x0b\f\r]+-(?:delete|future|stray)")
"""Kafka's own pattern; its search takes a time that grows with the third power of the name."""


def _filenames(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    kind = filenames.file_kind(name)
    assert (kind is filenames.FileKind.DELETED) <= name.endswith(".deleted")
    try:
        offset = filenames.read_offset(name)
        for make in (filenames.log_name, filenames.offset_index_name, filenames.snapshot_name):
            assert filenames.read_offset(make(offset)) == offset
    except FormatError:
        pass
    try:
        folder = filenames.read_folder_name(name)
    except FormatError:
        return
    is_marked = folder.state is not filenames.FolderState.CURRENT
    assert is_marked == bool(len(name) < 100 and _MARKED.fullmatch(name)) or len(name) >= 100
    assert filenames.read_log_folder_name(name) in (folder, None)
    made = filenames.folder_name(folder.topic, folder.partition, unique_id="0" * 32, state=folder.state)
    again = filenames.read_folder_name(made)
    assert (again.partition, again.state) == (folder.partition, folder.state)
    assert folder.topic.startswith(again.topic)


def _snapshot_names(data: bytes) -> None:
    try:
        found = filenames.read_kraft_snapshot_name(data.decode("utf-8", "surrogateescape"))
    except FormatError:
        return
    if found is not None and found.end_offset >= 0 and found.epoch >= 0:
        again = filenames.read_kraft_snapshot_name(
            filenames.kraft_snapshot_name(found.end_offset, found.epoch)
        )
        assert again is not None
        assert (again.end_offset, again.epoch) == (found.end_offset, found.epoch)


def _offset_checkpoint(data: bytes) -> None:
    try:
        offsets = checkpoint.read_offset_checkpoint(data)
    except FormatError:
        return
    again = checkpoint.read_offset_checkpoint(checkpoint.encode_offset_checkpoint(offsets))
    assert list(again.items()) == list(offsets.items())


def _epoch_checkpoint(data: bytes) -> None:
    try:
        entries = checkpoint.read_leader_epoch_checkpoint(data)
    except FormatError:
        return
    assert (
        checkpoint.read_leader_epoch_checkpoint(checkpoint.encode_leader_epoch_checkpoint(entries)) == entries
    )


def _clean_shutdown(data: bytes) -> None:
    epoch = read_clean_shutdown(data)
    if epoch is not None:
        assert read_clean_shutdown(encode_clean_shutdown(epoch)) == epoch


def _partition_metadata(data: bytes) -> None:
    try:
        found = partition_metadata.read_partition_metadata(data)
    except FormatError:
        return
    encoded = partition_metadata.encode_partition_metadata(found)
    assert partition_metadata.read_partition_metadata(encoded) == found


def _properties(data: bytes) -> None:
    try:
        found = read_properties(data)
    except FormatError:
        return
    assert read_properties(encode_properties(found)) == found


def _meta_properties(data: bytes) -> None:
    try:
        found = meta_properties.read_meta_properties(data)
    except FormatError:
        return
    assert meta_properties.read_meta_properties(meta_properties.encode_meta_properties(found)) == found


def _made_properties(data: bytes) -> None:
    """Any text survives: keys and values made of the bytes, surrogates included."""
    choices = Choices(data)
    made = {}
    while not choices.is_exhausted:
        key, value = (choices.take(choices.below(16)).decode("utf-16-le", "replace") for _ in range(2))
        odd = choices.pick(["", "\ud800", "\\", " ", ":", "=", "#", "!", "\t", "\n"])
        made[key + odd] = odd + value + odd
    assert read_properties(encode_properties(made)) == made


def _texts(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


TARGETS = [
    Target(name="java_text", run=_java_text, more_seeds=lambda: _texts("-12", "٣٤", "a b\r\nc\rd\n")),
    Target(name="kafka_uuid", run=_kafka_uuid, more_seeds=lambda: _texts("Ql39DSphRbO0LGsT-wh4cQ")),
    Target(name="filenames", run=_filenames, more_seeds=lambda: _texts(*_NAMES, *_FOLDERS)),
    Target(name="snapshot_names", run=_snapshot_names, more_seeds=lambda: _texts(*_SNAPSHOT_NAMES)),
    Target(name="offset_checkpoint", run=_offset_checkpoint, seeds=("recovery-point-offset-checkpoint",)),
    Target(name="epoch_checkpoint", run=_epoch_checkpoint, seeds=("leader-epoch-checkpoint",)),
    Target(
        name="clean_shutdown",
        run=_clean_shutdown,
        seeds=("kafka_cleanshutdown",),
        more_seeds=lambda: _texts('{"brokerEpoch":"7"}', '{"brokerEpoch":1.5e3}'),
    ),
    Target(name="partition_metadata", run=_partition_metadata, seeds=("partition.metadata",)),
    Target(
        name="properties",
        run=_properties,
        seeds=("meta.properties",),
        more_seeds=lambda: _texts("a\\u0041 : b\\\n  c\n#x\n!y\\\nk\\=v=\\t"),
    ),
    Target(name="made_properties", run=_made_properties),
    Target(
        name="meta_properties",
        run=_meta_properties,
        seeds=("meta.properties",),
        more_seeds=lambda: _texts("version=0\nbroker.id=3\n"),
    ),
]
