"""Targets: metadata, names and manifests of tiered storage."""

from __future__ import annotations

from segfmt.errors import FormatError
from segfmt.remote_log_metadata import encode_remote_log_metadata, read_remote_log_metadata
from segfmt.remote_names import read_aiven_key, read_local_tiered_file, read_local_tiered_folder
from tests.fuzz.targets import Target, assert_within


def _remote_log_metadata(data: bytes) -> None:
    try:
        record = read_remote_log_metadata(data)
    except FormatError as error:
        assert_within(error, data)
        return
    assert read_remote_log_metadata(encode_remote_log_metadata(record)) == record


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
        name="remote_log_metadata",
        run=_remote_log_metadata,
        seeds=("remote-segment.bin", "remote-update.bin"),
        longest_bytes=1024,
    ),
    Target(name="remote_names", run=_remote_names, more_seeds=_names, longest_bytes=128),
]
