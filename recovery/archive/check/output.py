"""Where the results of a run go: one prefix, whose content does not depend on which task or attempt wrote it.

    scans/, heads/                              results of segments, for the fold and the next run (`kept_scans`)
    history/<run>/objects/part-<n>.parquet      one row for each object
    history/<run>/partitions/part-<n>.parquet   one row for each partition
    history/<run>/summary.json                  the report of the run, once it has ended
    verdicts/objects.parquet                    the rows of objects of the last run that has ended
    partitions/partitions.parquet               its rows of partitions
    recovered/<run>/<key>                       what was rebuilt, where the original would be
    quarantine/<run>/<key>                      what was replaced in place

Objects are written whole or not at all. Two attempts of one task write the same bytes by the same names; those of the
first one stay.
"""

from __future__ import annotations

from recovery.archive.layouts.layout import PartitionLayouts
from recovery.archive.parquet import joined
from recovery.archive.stores.archived import ArchivedSegment, PartKind, StoredObject
from recovery.archive.stores.store import Store

HISTORY, RECOVERED, QUARANTINE = "history/", "recovered/", "quarantine/"
SUMMARY = "summary.json"
"""The report of a run, in its folder in `history/`."""
OBJECTS, PARTITIONS = "objects", "partitions"
"""The kinds of rows: names of folders in `history/<run>/`, and of the files of the last run."""
_LATEST = {OBJECTS: "verdicts/objects.parquet", PARTITIONS: "partitions/partitions.parquet"}
_MOST_PART_BYTES = 1 << 31
# A verdict says them with the key of the object.
_UNLISTED = (
    "the object exists, but the list or listing of the archive does not have it. "
    "Remedy: run `archive recover` with a list that does"
)
_CHANGED = "the object is not the one that was listed and judged. Remedy: run `archive recover` again"


class RebuiltOutput:
    """Writes rebuilt parts into the output.

    Args:
        archive: the store of the archive.
        output: the store of the run's results.
        layouts: of the archive's partitions.
        run: name of this run.
    """

    def __init__(self, archive: Store, output: Store, layouts: PartitionLayouts, run: str) -> None:
        self._archive = archive
        self._output = output
        self._layouts = layouts
        self._run = run

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment.

        Raises:
            OSError: it cannot be written, or the archive has another object there than the one that was listed.
        """
        part_key = key_of(segment, kind, self._layouts)
        _refuse_unlisted(self._archive, part_key, segment.parts.get(kind))
        key = f"{RECOVERED}{self._run}/{part_key}"
        self._output.create(key, data)  # an earlier attempt has written the same
        return StoredObject(key=key, size_bytes=len(data))


class InPlace:
    """Writes rebuilt parts into the archive; what they replace goes to quarantine first.

    Args:
        archive: the store of the archive.
        output: the store of the run's results, with the quarantine.
        layouts: of the archive's partitions.
        run: name of this run.
    """

    def __init__(self, archive: Store, output: Store, layouts: PartitionLayouts, run: str) -> None:
        self._archive = archive
        self._output = output
        self._layouts = layouts
        self._run = run

    def __call__(self, segment: ArchivedSegment, kind: PartKind, data: bytes) -> StoredObject:
        """Write a part of a segment.

        Raises:
            OSError: it cannot be written, or the archive has another object there than the one that was listed.
        """
        key = key_of(segment, kind, self._layouts)
        if holds(self._archive, key, data):
            return StoredObject(key=key, size_bytes=len(data))  # an earlier attempt got this far
        before = _refuse_unlisted(self._archive, key, segment.parts.get(kind))
        if before is not None:
            replaced = self._archive.read(key, most_bytes=before.size_bytes)
            self._output.create(f"{QUARANTINE}{self._run}/{key}", replaced)
            self._archive.replace(key, data)
        elif not self._archive.create(key, data):
            raise OSError(_UNLISTED)
        return StoredObject(key=key, size_bytes=len(data))


def _refuse_unlisted(archive: Store, key: str, listed: StoredObject | None) -> StoredObject | None:
    """Return what the archive has under *key*, None if there is nothing.

    Args:
        archive: the store of the archive.
        key: of a part that is to be rebuilt.
        listed: what was judged; None: the part was not listed.

    Raises:
        OSError: another object than the one that was judged is there: it was not read, and may be evidence.
    """
    try:
        present = archive.stat(key)
    except FileNotFoundError:
        return None
    if listed is None:
        raise OSError(_UNLISTED)
    known = (listed.size_bytes, listed.version or present.version)
    if (present.size_bytes, present.version) != known:
        raise OSError(_CHANGED)
    return present


def key_of(segment: ArchivedSegment, kind: PartKind, layouts: PartitionLayouts) -> str:
    """Return the key of a part, whether it exists or not."""
    stored = segment.parts.get(kind)
    if stored is not None:
        return stored.key
    folder = next(iter(segment.parts.values())).key.rpartition("/")[0]
    name = layouts.at(f"{folder}/").name_of(segment, kind)
    return f"{folder}/{name}" if folder else name


def holds(store: Store, key: str, data: bytes) -> bool:
    """Return whether an object exists and has these bytes."""
    try:
        return store.read(key, most_bytes=len(data) + 1) == data
    except FileNotFoundError:
        return False


def publish(output: Store, run: str) -> None:
    """Put the verdicts of a run that has ended in the place of those of the run before, each kind of rows at once.

    A file is replaced as a whole: a reader sees the rows of one run, whenever a run is killed, and when two end at a
    time. It is written part by part, so that memory does not grow with the archive.

    Raises:
        OSError: the output cannot be read or written.
    """
    for kind, latest in _LATEST.items():
        parts = output.list_level(f"{HISTORY}{run}/{kind}/").objects
        output.replace(latest, joined(output.read(part.key, most_bytes=_MOST_PART_BYTES) for part in parts))
