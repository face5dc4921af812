"""The inventory of an archive: listed here, partition by partition, and compared with what brokers know of it.

Only names and sizes are examined, so no Spark is needed: listing takes the time, and it is done in many concurrent
requests.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from typing import Any

from recovery.archive.copy.findings import CopyFindings
from recovery.archive.inventory.entry import PartitionInventory
from recovery.archive.inventory.expectations import open_expectations
from recovery.archive.inventory.missing_folders import find_missing_folders
from recovery.archive.inventory.report import InventoryReport, segment_row, segment_schema
from recovery.archive.layouts.all_layouts import ArchiveWalk
from recovery.archive.layouts.layouts import refuse_nothing
from recovery.archive.options import ArchiveOptions
from recovery.archive.parquet import to_parquet
from recovery.archive.remote.log_dir_copy import read_log_dir_copy
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import absolute_url, open_store
from recovery.extras import ARCHIVE, load
from recovery.stop_request import StopRequest
from recovery.watch.tally import Tally

_ROWS_IN_A_FILE = 100_000


class SegmentRows:
    """Rows of segments, written to the output in files of a bounded size.

    Args:
        output: where they go.
        prefix: of their keys.
    """

    def __init__(self, output: Store, prefix: str) -> None:
        self._output = output
        self._prefix = prefix
        self._rows: list[dict[str, Any]] = []
        self._files = 0

    def add(self, where: PartitionPrefix, inventory: PartitionInventory) -> None:
        """Add the rows of one partition."""
        self._rows += [segment_row(where, entry) for entry in inventory.entries]
        if len(self._rows) >= _ROWS_IN_A_FILE:
            self.write()

    def write(self) -> None:
        """Write the rows that are pending."""
        if self._rows:
            data = to_parquet(self._rows, segment_schema())
            self._output.create(f"{self._prefix}part-{self._files:05d}.parquet", data)
            self._files += 1
            self._rows = []


def inventory(
    options: ArchiveOptions, *, stop: StopRequest | None = None, tally: Tally | None = None
) -> InventoryReport:
    """Return what an archive holds, and what it should hold; to an output goes a row for each segment, as Parquet.

    Args:
        options: which archive, and which part of it.
        stop: lets another thread end the run.
        tally: counts the segments.

    Raises:
        UsageError: the archive has no known layout, is empty, or has nothing of what is chosen; or a package is
            missing.
        OSError: the archive, or a log dir, cannot be listed.
        InterruptedRecoveryError: *stop* was asked for.
    """
    tally = tally or Tally()
    is_chosen = options.choice()
    started_s = time.monotonic()
    output = None if options.output is None else absolute_url(options.output)
    if output is not None:
        load(f"--output {output}", "pyarrow", extras=ARCHIVE)
    store = options.open(stop)
    copies = CopyFindings(store)
    archive = ArchiveWalk(
        store, options.layout, is_chosen=is_chosen, on_level=copies.look_at, on_unlisted=copies.see_unlisted
    )
    report = InventoryReport(url=store.url, layout=archive.layouts[0].name)
    rows = None
    if output is not None:
        prefix = f"inventory/{uuid.uuid4().hex}/segments/"
        rows = SegmentRows(open_store(output), prefix)
        report.output = f"{output.rstrip('/')}/{prefix.rstrip('/')}"
    with ExitStack() as stack:
        expectations = open_expectations(options.metadata, stack)
        report.has_metadata = bool(options.metadata)
        log_dirs: set[str] = set()
        for layout, walked in archive.partitions():
            if stop is not None:
                stop.check()
            if not layout.is_tiered and walked.parent not in log_dirs:
                log_dirs.add(walked.parent)
                copy = read_log_dir_copy(store, walked.siblings)
                folders = find_missing_folders(copy, walked, is_chosen, copies.folder)
                changed = copies.own_files(walked.partition.where, walked.parent, walked.siblings)
                report.add_findings(walked.parent, (*copy.findings, *changed, *folders))
            if not layout.is_tiered:
                report.add_findings(walked.partition.where.prefix, copies.see(walked.partition))
            inventory = expectations.judge(walked.partition, layout, store)
            _take(report, rows, walked.partition.where, inventory)
            tally.add(len(inventory.entries))
        report.layout = ", ".join(archive.names)
        report.notes = archive.notes
        report.unlisted = archive.unlisted
        for where, missing in expectations.unlisted(archive.tiered, is_chosen=is_chosen):
            _take(report, rows, where, missing)
        if not report.unlisted:
            is_chosen.refuse_missing(store.url)
            if not report.topics:
                refuse_nothing(store, archive.layouts[0])
        report.add_findings("", (*expectations.findings(), *copies.findings(is_chosen)))
    if rows is not None:
        rows.write()
    report.duration_ms = round((time.monotonic() - started_s) * 1000)
    return report


def _take(
    report: InventoryReport,
    rows: SegmentRows | None,
    where: PartitionPrefix,
    inventory: PartitionInventory,
) -> None:
    report.add(where, inventory)
    if rows is not None:
        rows.add(where, inventory)
