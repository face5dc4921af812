"""What the driver does for an archive of very many segments before the first task: CPU a segment, and memory.

    python -m benchmarks.archive_survey [--what survey|read-plan] [--layout local-tiered|plain|aiven]
                                        [--segments 1000000] [--partitions 1000] [--json FILE]

The archive is made up as it is listed: five objects a segment (three of Aiven's plugin), log sizes of a log-normal
distribution. `survey` is all that `archive verify` does before its first task: names are taken apart, the inventory
taken, work spooled to disk, packed into tasks, pickled. `read-plan` is what the data source does: segments are chosen,
divided into tasks, pickled. Making up the objects counts, too. Exit code 1: above 60 s or 1 GB.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import numpy as np

from recovery.archive.check.packing import pack
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.survey import SurveyedPartition, survey
from recovery.archive.check.survey_spool import SurveySpool
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.layouts import LAYOUTS, make_layout
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level
from segfmt.kafka_uuid import format_uuid

MOST_SECONDS = 60.0
MOST_BYTES = 1_000_000_000
_TASK_BYTES = 4 << 30
_SUFFIXES = {
    "local-tiered": (".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex"),
    "plain": (".index", ".log", ".snapshot", ".timeindex", ".txnindex"),
    "aiven": (".indexes", ".log", ".rsm-manifest"),
}
_TOPIC_ID = format_uuid(UUID(int=1 << 100))


class MadeUpStore(LocalStore):
    """An archive that is nowhere.

    Args:
        layout: what it calls things.
        partitions: how many.
        segments: of each of them.
    """

    def __init__(self, layout: str, partitions: int, segments: int) -> None:
        super().__init__("/nowhere")
        self._layout = layout
        self._partitions = partitions
        self._suffixes = _SUFFIXES[layout]
        random = np.random.default_rng(1)
        sizes = random.lognormal(mean=19.0, sigma=1.0, size=segments)
        self._sizes = np.minimum(sizes, 1 << 30).astype(np.int64).tolist()
        self._ids = [
            "" if layout == "plain" else f"-{format_uuid(UUID(bytes=random.bytes(16)))}"
            for _ in range(segments)
        ]
        self._versions = [
            [random.bytes(16).hex() for _ in range(segments * len(self._suffixes))] for _ in range(2)
        ]

    def list_level(self, prefix: str) -> Level:
        """Return made up partitions, and of each of them made up segments."""
        if not prefix or prefix == f"orders-{_TOPIC_ID}/":
            return Level(prefixes=sorted(self._folders(prefix)), objects=ObjectTable())
        rows = []
        versions = iter(self._versions[len(prefix) % 2])
        for number, (one, size) in enumerate(zip(self._ids, self._sizes, strict=True)):
            for suffix in self._suffixes:
                size_bytes = size if suffix == ".log" else 1000
                rows.append((f"{number * 1000:020d}{one}{suffix}", size_bytes, next(versions)))
        return Level(prefixes=(), objects=ObjectTable.of_rows(prefix, rows))

    def _folders(self, prefix: str) -> Iterator[str]:
        if self._layout == "aiven" and not prefix:
            return iter((f"orders-{_TOPIC_ID}/",))
        name = {
            "local-tiered": f"orders-{{}}-{_TOPIC_ID}/",
            "plain": "orders-{}/",
            "aiven": f"{prefix}{{}}/",
        }[self._layout]
        return map(name.format, range(self._partitions))


def measured_survey(store: MadeUpStore, layout: Layout) -> dict[str, float]:
    """Survey and pack; return counts and CPU seconds."""
    started_s = time.process_time()
    tasks = largest = 0
    with SurveySpool() as spool:
        for partition in survey(store, layout, ScanOptions(url=store.url, layout=layout.name)):
            assert isinstance(partition, SurveyedPartition)
            spool.add(partition)
        surveyed_s = time.process_time()
        for task in pack(spool, task_bytes=_TASK_BYTES):
            pickle.dumps(task, protocol=5)
            tasks += 1
            largest = max(largest, task.log_bytes)
        return {
            "segments": spool.segment_count,
            "log_bytes": spool.log_bytes,
            "tasks": tasks,
            "largest_task_of_mean": largest * tasks / max(1, spool.log_bytes),
            "survey_cpu_us_a_segment": (surveyed_s - started_s) / spool.segment_count * 1e6,
            "pack_cpu_us_a_segment": (time.process_time() - surveyed_s) / spool.segment_count * 1e6,
        }


def measured_read_plan(store: MadeUpStore, layout: Layout) -> dict[str, float]:
    """Plan the reading of all records; return counts and CPU seconds."""
    from recovery.archive.records.read_options import ReadOptions
    from recovery.archive.records.read_plan import plan_reads
    from recovery.archive.records.read_request import ReadRequest, Selection
    from recovery.spark.data_source import Task

    wanted = ReadRequest(
        url=store.url,
        layout=layout.name,
        options=ReadOptions(),
        selection=Selection(),
        needs_aborted=True,
    )
    started_s = time.process_time()
    segments = 0
    tasks = []
    for runs in plan_reads(store, layout, wanted):
        segments += sum(len(run.segments) for run in runs)
        tasks.append(Task(layout.name, runs))
    return {
        "segments": segments,
        "tasks": len(tasks),
        "task_bytes_a_segment": sum(len(task.value) for task in tasks) / segments,
        "plan_cpu_us_a_segment": (time.process_time() - started_s) / segments * 1e6,
    }


MEASURED: dict[str, Callable[[MadeUpStore, Layout], dict[str, float]]] = {
    "survey": measured_survey,
    "read-plan": measured_read_plan,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--what", choices=MEASURED, default="survey")
    parser.add_argument("--layout", choices=LAYOUTS, default="local-tiered")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    store = MadeUpStore(options.layout, options.partitions, options.segments // options.partitions)
    started_s = time.monotonic()
    found = MEASURED[options.what](store, make_layout(options.layout))
    found["wall_s"] = time.monotonic() - started_s
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["wall_s"] > MOST_SECONDS or found["peak_rss_bytes"] > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
