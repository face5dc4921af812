"""`archive metrics` and `archive retention` of very many remote segments: time by the clock, and peak memory.

    python -m benchmarks.tiering --scratch DIR [--segments 1000000] [--partitions 1000] [--expired 0.01] [--json FILE]

A log dir is made with a metadata topic that announces and finishes each segment, and with a replica of each partition,
which has an empty active segment. Then both run as commands. Exit code 1: above 180 s or 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

from segfmt.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from segfmt.partition_metadata import PartitionMetadata, encode_partition_metadata
from segfmt.remote_log_metadata import (
    RemotePartition,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
    encode_remote_log_metadata,
    metadata_partition,
)
from tests.logs.metadata_topic import metadata_batch

MOST_SECONDS = 180.0
MOST_BYTES = 1_000_000_000
_METADATA_PARTITIONS = 50
_SEGMENT_RECORDS, _SEGMENT_BYTES = 10_000, 100 << 20
_BATCH_RECORDS = 100
_TOPIC = RemotePartition(topic="bench", topic_id=UUID(int=1 << 100), partition=0)


def make_log_dir(log_dir: Path, segments: int, partitions: int) -> None:
    """Make a log dir that knows *segments* in each of so many *partitions*."""
    values: dict[int, list[bytes]] = {number: [] for number in range(_METADATA_PARTITIONS)}
    for partition in range(partitions):
        owner = RemotePartition(topic=_TOPIC.topic, topic_id=_TOPIC.topic_id, partition=partition)
        _make_replica(log_dir / f"{owner.topic}-{partition}", owner, segments * _SEGMENT_RECORDS)
        written = values[metadata_partition(owner, _METADATA_PARTITIONS)]
        for number in range(segments):
            written += [
                encode_remote_log_metadata(one) for one in _copy(owner, partition * segments + number, number)
            ]
    starts = {(_TOPIC.topic, partition): 0 for partition in range(partitions)}
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(starts))
    for number, written in values.items():
        folder = log_dir / f"__remote_log_metadata-{number}"
        folder.mkdir(parents=True)
        with open(folder / f"{0:020}.log", "wb") as log:
            for start in range(0, len(written), _BATCH_RECORDS):
                log.write(metadata_batch(written[start : start + _BATCH_RECORDS], start))


def _copy(owner: RemotePartition, identity: int, number: int) -> tuple[RemoteSegment, RemoteSegmentUpdate]:
    start, now_ms = number * _SEGMENT_RECORDS, 1_700_000_000_000 + number * 60_000
    segment_id = UUID(int=(identity + 1) << 32)
    announced = RemoteSegment(
        owner=owner,
        segment_id=segment_id,
        start_offset=start,
        end_offset=start + _SEGMENT_RECORDS - 1,
        broker_id=1,
        max_timestamp_ms=now_ms,
        event_timestamp_ms=now_ms,
        leader_epochs=(LeaderEpochEntry(0, start),),
        size_bytes=_SEGMENT_BYTES,
        has_no_transactions=True,
    )
    return announced, RemoteSegmentUpdate(
        owner=owner,
        segment_id=segment_id,
        broker_id=1,
        event_timestamp_ms=now_ms + 1000,
        state=RemoteSegmentState.COPY_SEGMENT_FINISHED,
    )


def _make_replica(folder: Path, owner: RemotePartition, log_end_offset: int) -> None:
    folder.mkdir(parents=True)
    (folder / f"{log_end_offset:020}.log").touch()
    (folder / "partition.metadata").write_bytes(
        encode_partition_metadata(PartitionMetadata(version=0, topic_id=owner.topic_id))
    )
    (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint([LeaderEpochEntry(0, 0)]))


def measure(log_dir: Path, action: str, kept_bytes: int) -> dict[str, float]:
    """Return time and peak memory of `archive ACTION` where *kept_bytes* of each partition are to be kept."""
    settings = json.dumps(
        {_TOPIC.topic: {"remote.storage.enable": True, "retention.bytes": kept_bytes, "retention.ms": -1}}
    )
    command = [sys.executable, "-m", "recovery", "archive", action, "--metadata", str(log_dir)]
    started_s = time.monotonic()
    process = subprocess.Popen(
        [*command, "--topic-config", settings, "--format", "json"], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):
        raise RuntimeError(f"archive {action}: exit code {process.returncode}")
    return {
        "wall_s": time.monotonic() - started_s,
        "cpu_s": usage.ru_utime,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--expired", type=float, default=0.01, help="which part of them retention deletes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    log_dir = options.scratch / f"tiering-{os.getpid()}"
    try:
        segments = options.segments // options.partitions
        make_log_dir(log_dir, segments, options.partitions)
        kept_bytes = round(segments * (1 - options.expired)) * _SEGMENT_BYTES
        found = {action: measure(log_dir, action, kept_bytes) for action in ("metrics", "retention")}
    finally:
        shutil.rmtree(log_dir, ignore_errors=True)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(
        any(one["wall_s"] > MOST_SECONDS or one["peak_rss_bytes"] > MOST_BYTES for one in found.values())
    )


if __name__ == "__main__":
    sys.exit(main())
