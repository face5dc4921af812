"""The rows between map and fold, kept on disk, so that memory does not grow with an archive."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter, itemgetter

import numpy as np

from recovery.archive.check.scan_rows import ScanRow
from recovery.archive.check.unnamed_file import UnnamedFile


class RowSpool(UnnamedFile):
    """Rows, from any thread; of each, three numbers stay in memory."""

    def __init__(self) -> None:
        super().__init__("what was found in segments waits")
        self._places: dict[str, array[int]] = {}

    def prefixes(self) -> list[str]:
        """Return the prefixes of partitions with rows, sorted."""
        return sorted(self._places)

    def add(self, row: ScanRow) -> None:
        """Keep a row.

        Raises:
            OSError: there is no room for it.
        """
        data = pickle.dumps(tuple(row), protocol=5)
        position = self.append(data)
        with self._lock:
            places = self._places.setdefault(row.prefix, array("q"))
            places.extend((row.base_offset, position, len(data)))

    def rows_of(self, prefix: str) -> Iterator[ScanRow]:
        """Yield the rows of one partition, sorted by base offset and segment; no further ones may come meanwhile."""
        with self._lock:
            places = np.array(self._places[prefix], np.int64).reshape(-1, 3)
        in_order = places[np.argsort(places[:, 0], kind="stable")].tolist()
        for _, same_offset in groupby(in_order, key=itemgetter(0)):
            rows = [self._read(position, size_bytes) for _, position, size_bytes in same_offset]
            yield from sorted(rows, key=attrgetter("id_or_file"))

    def _read(self, position: int, size_bytes: int) -> ScanRow:
        return ScanRow(*pickle.loads(self.read(position, size_bytes)))
