"""A log dir of very many small segments, as an archive of low traffic has: every one of them sound, with its indexes.

All segments hold the same batches, moved to offsets of their own: a batch's checksum does not cover its base offset.
"""

from __future__ import annotations

from pathlib import Path

from segfmt.checkpoint import encode_leader_epoch_checkpoint
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, log_name, offset_index_name, time_index_name
from tests.logs.builders import BASE_TIMESTAMP_MS, data_batch

_RECORDS = 8
_PARTITION_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def make_small_segments(log_dir: Path, *, count: int, segment_bytes: int, a_partition: int = 1000) -> int:
    """Make *count* segments of about *segment_bytes* below *log_dir*; return the bytes of their logs."""
    value_bytes = max(1, (segment_bytes - 61) // _RECORDS - 12)
    batch = data_batch(0, _RECORDS, value_bytes=value_bytes, leader_epoch=0)
    time_entry = BASE_TIMESTAMP_MS.to_bytes(8, "big") + (_RECORDS - 1).to_bytes(4, "big")
    for first in range(0, count, a_partition):
        folder = log_dir / f"small-{first // a_partition}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_bytes(_PARTITION_METADATA)
        (folder / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint([(0, 0)]))
        for number in range(min(a_partition, count - first)):
            base = number * _RECORDS
            (folder / log_name(base)).write_bytes(base.to_bytes(8, "big") + batch[8:])
            (folder / offset_index_name(base)).write_bytes(b"")
            (folder / time_index_name(base)).write_bytes(time_entry)
    return count * len(batch)
