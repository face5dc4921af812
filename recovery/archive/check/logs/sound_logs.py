"""Sound logs as columns: a segment of a few kilobytes costs less to read than a row to write.

Only what the fold needs of a sound log to check that the next one continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.stores.segment_table import SegmentTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundLogs:
    """Segments of one partition whose logs are sound.

    Attributes:
        segments: as they were listed.
        digests: of the segments, DIGEST_BYTES each.
        log_bytes: of each log as a broker has it; int64, shape (n,), as the following ones.
        first_offsets: base offset of the first batch; -1 without one, or if it is not in the header.
        last_offsets: of the last batch, -1 without one.
        batch_counts: of each log.
        has_compacted: whether a batch holds fewer records than offsets; bool, shape (n,).
    """

    segments: SegmentTable
    digests: bytes
    log_bytes: npt.NDArray[np.int64]
    first_offsets: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    batch_counts: npt.NDArray[np.int64]
    has_compacted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.segments)

    def take(self, rows: Sequence[int]) -> Self:
        """Return those in *rows*, in their order."""
        if len(rows) == len(self):
            return self
        digests = [self.digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] for row in rows]
        chosen = np.asarray(rows, np.int64)
        return type(self)(
            segments=self.segments.take(rows),
            digests=b"".join(digests),
            log_bytes=self.log_bytes[chosen],
            first_offsets=self.first_offsets[chosen],
            last_offsets=self.last_offsets[chosen],
            batch_counts=self.batch_counts[chosen],
            has_compacted=self.has_compacted[chosen],
        )
