"""The verdicts of a part of an archive: counted, written to the output, and those kept that a report shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from recovery.archive.check.logs.sound_logs import SoundLogs
from recovery.archive.check.output import HISTORY, OBJECTS, PARTITIONS
from recovery.archive.check.summary import Summary
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.check.verdict_rows import (
    object_row,
    object_schema,
    partition_row,
    partition_schema,
    run_columns,
    sound_table,
)
from recovery.archive.parquet import to_parquet
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Store

MOST_OBJECTS: Final = 10_000
"""Rows of bad objects in a report: those with the lowest keys, so that it does not depend on how work was divided."""
MOST_NOTED: Final = 1_000
"""The same of sound objects with notes."""
_ROWS_IN_A_FILE: Final = 200_000

Row = dict[str, Any]


@dataclass(slots=True)
class LowestRows:
    """The rows with the lowest keys among all that were added.

    Attributes:
        most: how many are kept.
        total: how many were added.
    """

    most: int
    total: int = 0
    _rows: list[Row] = field(default_factory=list)

    def add(self, rows: Iterable[Row], *, total: int | None = None) -> None:
        """Add *rows*; of *total*, if the others are known to be further back."""
        before = len(self._rows)
        self._rows += rows
        self.total += len(self._rows) - before if total is None else total
        if len(self._rows) >= 2 * self.most:
            self._shorten()

    def rows(self) -> list[Row]:
        """Return the rows, sorted by key."""
        self._shorten()
        return self._rows

    def _shorten(self) -> None:
        self._rows.sort(key=lambda row: row["key"])
        del self._rows[self.most :]


@dataclass(slots=True)
class FoldResult:
    """What a report needs to know of some partitions.

    Attributes:
        summary: all counts.
        objects: rows of objects that are not sound, or were rebuilt.
        noted: rows of sound objects with notes.
    """

    summary: Summary = field(default_factory=Summary)
    objects: LowestRows = field(default_factory=lambda: LowestRows(MOST_OBJECTS))
    noted: LowestRows = field(default_factory=lambda: LowestRows(MOST_NOTED))

    def merge(self, other: FoldResult) -> None:
        """Add what is known of other partitions."""
        self.summary.merge(other.summary)
        self.objects.add(other.objects.rows(), total=other.objects.total)
        self.noted.add(other.noted.rows(), total=other.noted.total)


class Verdicts:
    """Takes the verdicts of one task of the fold.

    Args:
        output: where they are written; None: they are not.
        run: name of the run.
        began_ms: when it began, in ms since the epoch.
        task: number of the task, the same in each attempt; its files are named by it.
    """

    def __init__(self, output: Store | None, run: str, *, began_ms: int, task: int) -> None:
        self._output = output
        self._run = run
        self._began_ms = began_ms
        self._folder = f"{HISTORY}{run}/"
        self._task = task
        self._files = 0
        self._objects: list[Row] = []
        self._sound: list[tuple[PartitionPrefix, SoundLogs]] = []
        self._partitions: list[Row] = []
        self._row_count = 0
        self.result = FoldResult()

    def add(self, partition: PartitionVerdict) -> None:
        """Take the verdict of one partition."""
        self.result.summary.add(partition)
        objects = [object_row(partition, judged) for judged in partition.objects]
        for row in objects:
            if row["valid"] is not True or row["rebuilt"] is not None:
                self.result.objects.add([row])
            elif row["findings"]:
                self.result.noted.add([row])
        if self._output is None:
            return
        self._objects += objects
        self._sound += [(partition.head.where, sound) for sound in partition.sound]
        self._partitions.append(partition_row(partition))
        self._row_count += len(objects) + sum(map(len, partition.sound))
        if self._row_count >= _ROWS_IN_A_FILE:
            self.close()

    def close(self) -> None:
        """Write the rows that are pending."""
        if self._output is None or not self._partitions:
            return
        name = f"part-{self._task:05d}-{self._files:03d}.parquet"
        run = run_columns(self._run, self._began_ms)
        objects = to_parquet(self._objects, object_schema(), sound_table(self._sound), constants=run)
        self._output.create(f"{self._folder}{OBJECTS}/{name}", objects)
        partitions = to_parquet(self._partitions, partition_schema(), constants=run)
        self._output.create(f"{self._folder}{PARTITIONS}/{name}", partitions)
        self._objects, self._sound, self._partitions = [], [], []
        self._row_count = 0
        self._files += 1
