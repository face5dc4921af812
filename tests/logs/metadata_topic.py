"""A metadata topic as it lies in a log dir: records put into batches, batches into segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from native.crc32c import crc32c_of_bytes
from recovery.archive.remote.remote_metadata import RemoteMetadata
from segfmt.compression import Codec, compress
from segfmt.record import Record, encode_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch
from segfmt.remote_log_metadata import TOPIC, RemoteLogMetadata, RemoteSegment, encode_remote_log_metadata


def metadata_batch(values: Sequence[bytes], offset: int, *, codec: Codec = Codec.NONE) -> bytes:
    """A batch with these values from *offset* on."""
    records = [Record(offset=offset + n, timestamp_ms=1, value=value) for n, value in enumerate(values)]
    header = RecordBatchHeader(
        base_offset=offset,
        attributes=codec,
        last_offset_delta=len(values) - 1,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        record_count=len(values),
    )
    payload = encode_records(records, base_offset=offset, base_timestamp_ms=1)
    return encode_record_batch(header, compress(codec, payload), crc32c=crc32c_of_bytes)


def write_metadata(
    log_dir: Path,
    records: Sequence[RemoteLogMetadata | bytes],
    *,
    partition: int = 0,
    batch_records: int = 3,
    segment_batches: int = 4,
    codec: Codec = Codec.NONE,
) -> list[Path]:
    """Write *records* below *log_dir*; return the segments."""
    values = [one if isinstance(one, bytes) else encode_remote_log_metadata(one) for one in records]
    folder = log_dir / f"{TOPIC}-{partition}"
    folder.mkdir(parents=True)
    batches = [
        metadata_batch(values[start : start + batch_records], start, codec=codec)
        for start in range(0, len(values), batch_records)
    ]
    logs = []
    for first in range(0, max(1, len(batches)), segment_batches):
        path = folder / f"{first * batch_records:020d}.log"
        path.write_bytes(b"".join(batches[first : first + segment_batches]))
        logs.append(path)
    return logs


def segments_of(metadata: RemoteMetadata, topic_id: UUID, partition: int) -> list[RemoteSegment]:
    """The segments of a partition that are not deleted, by their start offsets."""
    found = metadata.cache(topic_id, partition).segments.values()
    return sorted(found, key=lambda one: (one.start_offset, one.end_offset, one.segment_id.bytes))
