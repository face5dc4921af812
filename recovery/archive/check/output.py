"""Where the results of a run go: one prefix, whose content does not depend on which task or attempt wrote it.

    scans/, heads/                              results of segments, for the fold and the next run (`kept_scans`)
    verdicts/<run>/objects/part-<n>.parquet     one row for each object
    verdicts/<run>/partitions/part-<n>.parquet  one row for each partition
    verdicts/<run>/summary.json                the report of the run
    recovered/<key>                            what was rebuilt, where the original would be
    quarantine/<run>/<key>                     what was replaced in place

Objects are written whole or not at all. Two attempts of one task write the same bytes by the same names; those of the
first one stay.
"""

from __future__ import annotations

from recovery.archive.layouts.layout import Layout
from recovery.archive.stores.archived import ArchivedSegment, PartKind, StoredObject
from recovery.archive.stores.store import Store

VERDICTS, RECOVERED, QUARANTINE = "verdicts/", "recovered/", "quarantine/"


class RebuiltOutput:
    """Writes rebuilt parts into the output.

    Args:
        output: the store of the run's results.
        layout: of the archive.
    """

    def __init__(self, output: Store, layout: Layout) -> None:
        self._output = output
        self._layout = layout

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment."""
        key = RECOVERED + key_of(segment, kind, self._layout)
        if not self._output.create(key, data) and not holds(self._output, key, data):
            self._output.replace(key, data)  # left by an earlier run, when the segment was another one
        return StoredObject(key=key, size_bytes=len(data))


class InPlace:
    """Writes rebuilt parts into the archive; what they replace goes to quarantine first.

    Args:
        archive: the store of the archive.
        output: the store of the run's results, with the quarantine.
        layout: of the archive.
        run: name of this run.
    """

    def __init__(self, archive: Store, output: Store, layout: Layout, run: str) -> None:
        self._archive = archive
        self._output = output
        self._layout = layout
        self._run = run

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment."""
        key = key_of(segment, kind, self._layout)
        if holds(self._archive, key, data):
            return StoredObject(key=key, size_bytes=len(data))  # an earlier attempt got this far
        if not self._archive.create(key, data):
            size = self._archive.stat(key).size_bytes
            before = self._archive.read(key, most_bytes=size)
            self._output.create(f"{QUARANTINE}{self._run}/{key}", before)
            self._archive.replace(key, data)
        return StoredObject(key=key, size_bytes=len(data))


def key_of(segment: ArchivedSegment, kind: PartKind, layout: Layout) -> str:
    """Return the key of a part, whether it exists or not."""
    stored = segment.parts.get(kind)
    if stored is not None:
        return stored.key
    folder = next(iter(segment.parts.values())).key.rpartition("/")[0]
    name = layout.name_of(segment, kind)
    return f"{folder}/{name}" if folder else name


def holds(store: Store, key: str, data: bytes) -> bool:
    """Return whether an object exists and has these bytes."""
    try:
        return store.read(key, most_bytes=len(data) + 1) == data
    except FileNotFoundError:
        return False
