"""What earlier runs have kept in an output: segments that need not be read again, and files that no run needs any more.

A file is not needed where no row in it is of a log that is still the same object, or if it is of an older version. A
run that has ended removes such files, whatever it has checked of the logs itself. Another run may have found a log
before it was replaced or deleted, and miss the file: it says of that segment that it was not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recovery.archive.check.kept_scans import (
    HEADS,
    SCANS,
    KeptScanError,
    OlderVersionError,
    is_kept_scan,
    keys_below,
    read_scans,
    segments_of,
)
from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.check.survey import SurveyedPartition
from recovery.archive.stores.archived import PartKind
from recovery.archive.stores.segment_table import LETTERS, SegmentTable
from recovery.archive.stores.store import Store
from recovery.errors import error_text
from recovery.problem import Note

Digests = npt.NDArray[np.bytes_]
_NAMED = 5
"""How many files a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownFile:
    """A file of kept scans.

    Attributes:
        prefixes: of the partitions in it.
        logs: int64, shape (n,): of the objects of its logs, ascending.
    """

    prefixes: frozenset[str]
    logs: npt.NDArray[np.int64]


class KnownScans:
    """The kept scans in an output, and which of them stand for segments that exist.

    Args:
        output: of the run; None: nothing is kept.

    Attributes:
        digests: DIGEST_BYTES for each segment whose scan is kept, shape (n,), ascending.
        notes: about files that are not used.
    """

    def __init__(self, output: Store | None) -> None:
        self._output = output
        self._files: dict[str, _KnownFile] = {}
        self._older: list[str] = []
        self._prefixes: set[str] = set()
        self._existing: list[npt.NDArray[np.int64]] = []
        self.notes: tuple[Note, ...] = ()
        digests = [] if output is None else self._read(output)
        self.digests: Digests = np.unique(_digests(b"".join(digests)))

    def _read(self, output: Store) -> list[bytes]:
        found: list[bytes] = []
        refused: list[str] = []
        others: list[str] = []
        for key in keys_below(output, SCANS):
            if not is_kept_scan(key):
                others.append(key)
                continue
            try:
                rows = read_scans(output, key)
            except KeptScanError as error:
                refused.append(f"{key}: {error_text(error)}")
                if isinstance(error, OlderVersionError):
                    self._older.append(key)
                continue
            found += [row.digest for row in rows]
            self._files[key] = _KnownFile(
                prefixes=frozenset(row.prefix for row in rows),
                logs=_unique(log for row in rows for log in _logs(segments_of(row))),
            )
        if refused:
            text = f"{len(refused)} files of kept scans in {output.url} are not used, and their segments are read again"
            self.notes += (_note(text, refused),)
        if others:
            text = f"{len(others)} files in {output.url} are of another version and can be removed"
            self.notes += (_note(text, others),)
        return found

    def without(self, surveyed: SurveyedPartition) -> SurveyedPartition:
        """Return a partition without the work on known segments, and take note of all that it has."""
        self._prefixes.add(surveyed.head.where.prefix)
        self._existing.append(_unique(_logs(surveyed.works.segments)))
        if not len(self.digests):
            return surveyed
        digests = _digests(surveyed.head.digests)
        # Not np.isin: it would sort all known digests again for each partition.
        positions = np.minimum(np.searchsorted(self.digests, digests), len(self.digests) - 1)
        is_known = self.digests[positions] == digests
        return replace(surveyed, works=surveyed.works.take(np.flatnonzero(~is_known).tolist()))

    def remove_unneeded(self, run: bytes, *, is_all: bool) -> None:
        """Remove the files that no run needs any more, once the run has ended. What cannot be removed stays.

        Args:
            run: this one, whose heads nobody else reads.
            is_all: whether it has gone through the whole archive, so that what it has not come by does not exist.
        """
        if self._output is None:
            return
        existing = np.unique(np.concatenate([*self._existing, _unique(())]))
        unneeded = [*self._older, *keys_below(self._output, f"{HEADS}{run.hex()}/")]
        for key, file in self._files.items():
            is_judged = is_all or file.prefixes <= self._prefixes
            if is_judged and not np.isin(file.logs, existing).any():
                unneeded.append(key)
        for key in unneeded:
            with suppress(OSError):
                self._output.remove(key)


def _digests(data: bytes) -> Digests:
    return np.frombuffer(data, f"S{DIGEST_BYTES}")


def _unique(numbers: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.unique(np.fromiter(numbers, np.int64))


def _logs(segments: SegmentTable) -> Iterator[int]:
    """Yield a number for the object of each log, or a segment's first object, which changes with the object."""
    objects, letter, start = segments.objects, LETTERS[PartKind.LOG], 0
    for end in segments.ends:
        at = segments.kinds.find(letter, start, end)
        row = start if at < 0 else at
        if start < end:
            yield hash((objects.prefix, objects.names[row], objects.sizes_bytes[row], objects.versions[row]))
        start = end


def _note(text: str, files: Iterable[str]) -> Note:
    return Note(text=f"{text}: {'; '.join(list(files)[:_NAMED])}")
