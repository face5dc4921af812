"""Surveying and packing an archive of very many segments on the driver: CPU a segment, and memory.

    python -m benchmarks.archive_survey [--segments 1000000] [--partitions 1000] [--json FILE]

The archive is made up as it is listed: LocalTieredStorage, five objects a segment, log sizes of a log-normal
distribution. All that `archive verify` does before its first task is done: names are taken apart, the inventory taken,
work spooled to disk, packed into tasks, pickled. Making up the objects counts, too. Exit code 1: above 60 s or 1 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from uuid import UUID

import numpy as np

from recovery.archive.archived import StoredObject
from recovery.archive.layouts import make_layout
from recovery.archive.local_store import LocalStore
from recovery.archive.packing import pack
from recovery.archive.scanned import ScanOptions
from recovery.archive.store import Level
from recovery.archive.survey import SurveyedPartition, survey
from recovery.archive.survey_spool import SurveySpool
from segfmt.kafka_uuid import format_uuid

MOST_SECONDS = 60.0
MOST_BYTES = 1_000_000_000
_TASK_BYTES = 4 << 30
_SUFFIXES = (".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex")
_TOPIC_ID = format_uuid(UUID(int=1 << 100))


class MadeUpStore(LocalStore):
    """An archive that is nowhere.

    Args:
        partitions: how many.
        segments: of each of them.
    """

    def __init__(self, partitions: int, segments: int) -> None:
        super().__init__("/nowhere")
        self._partitions = partitions
        self._segments = segments
        random = np.random.default_rng(1)
        sizes = random.lognormal(mean=19.0, sigma=1.0, size=segments)
        self._sizes = np.minimum(sizes, 1 << 30).astype(np.int64).tolist()
        self._ids = [format_uuid(UUID(bytes=random.bytes(16))) for _ in range(segments)]

    def list_level(self, prefix: str) -> Level:
        """Return made up partitions, and of each of them made up segments."""
        if not prefix:
            folders = (f"orders-{number}-{_TOPIC_ID}/" for number in range(self._partitions))
            return Level(prefixes=sorted(folders), objects=())
        objects = [
            StoredObject(
                key=f"{prefix}{number * 1000:020d}-{one}{suffix}",
                size_bytes=size if suffix == ".log" else 1000,
                version="0123456789abcdef0123456789abcdef",
            )
            for number, (one, size) in enumerate(zip(self._ids, self._sizes, strict=True))
            for suffix in _SUFFIXES
        ]
        return Level(prefixes=(), objects=objects)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    store = MadeUpStore(options.partitions, options.segments // options.partitions)
    started_s, cpu_s = time.monotonic(), time.process_time()
    tasks = 0
    with SurveySpool() as spool:
        layout = make_layout("local-tiered")
        for partition in survey(store, layout, ScanOptions(url=store.url, layout=layout.name)):
            assert isinstance(partition, SurveyedPartition)
            spool.add(partition)
        surveyed_cpu_s = time.process_time() - cpu_s
        largest = 0
        for task in pack(spool, task_bytes=_TASK_BYTES):
            tasks += 1
            largest = max(largest, task.log_bytes)
        found = {
            "segments": spool.segment_count,
            "log_bytes": spool.log_bytes,
            "tasks": tasks,
            "largest_task_of_mean": largest * tasks / max(1, spool.log_bytes),
            "wall_s": time.monotonic() - started_s,
            "survey_cpu_us_a_segment": surveyed_cpu_s / spool.segment_count * 1e6,
            "pack_cpu_us_a_segment": (time.process_time() - cpu_s - surveyed_cpu_s)
            / spool.segment_count
            * 1e6,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["wall_s"] > MOST_SECONDS or found["peak_rss_bytes"] > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
