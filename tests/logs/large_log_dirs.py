"""Log dirs that take a while: a sample's partitions many times over, and some segments of many megabytes.

The copies are real logs under other topics' names; the large ones repeat one batch at rising offsets, which
its checksum does not cover.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from tests.logs.builders import data_batch
from tests.logs.samples import Sample, unpack

_COPIED = (
    "codec-none-0",
    "transactions-1",
    "late-0",
    "tiny-batches-0",
    "own-index-0",
    "preallocated-0",
)
_RECORDS_PER_BATCH = 100


def make_large(into: Path, *, copies: int = 20, large_partitions: int = 4, segment_mib: int = 24) -> Sample:
    """The sample `crashed` with *copies* of some of its logs and some of three large segments."""
    sample = unpack("crashed", into)
    originals = [
        log_dir / name for log_dir in sample.log_dirs for name in _COPIED if (log_dir / name).exists()
    ]
    for number in range(copies):
        original = originals[number % len(originals)]
        topic, _, partition = original.name.rpartition("-")
        shutil.copytree(original, sample.log_dirs[number % 2] / f"{topic}-copy-{number}-{partition}")
    for number in range(large_partitions):
        write_large(sample.log_dirs[number % 2] / f"large-{number}", segment_mib << 20)
    return sample


def write_large(folder: Path, segment_bytes: int) -> None:
    """Write a log of three segments of about this size into a new *folder*."""
    batch = data_batch(0, _RECORDS_PER_BATCH, value_bytes=640)
    folder.mkdir(parents=True)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    offset = 0
    for _ in range(3):
        with (folder / f"{offset:020}.log").open("wb") as log:
            for _ in range(segment_bytes // len(batch)):
                log.write(struct.pack(">q", offset) + batch[8:])
                offset += _RECORDS_PER_BATCH
