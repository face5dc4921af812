"""What the check of a segment takes and returns. Values only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum

from native.producer_sequences import Sequences
from native.raw_scan import RawScan
from recovery.check.finding import Finding
from recovery.check.rules.batches import EpochRun
from recovery.check.rules.indexes import IndexAgreement
from recovery.read.rate_limit import RateLimit
from segfmt import byte_layout


class Tail(Enum):
    """What an unclean end of a segment means."""

    CLOSED = "closed"  # damage
    LIVE = "live"  # the active segment of a live broker: its last batch is being written
    LYING = "lying-marker"  # the active segment of a log dir with a clean-shutdown marker
    UNCLEAN = "unclean-tail"  # an unflushed segment of a log dir without one: recovery cuts it


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """One segment to be read.

    Attributes:
        folder: path of the partition's folder.
        log: the log's name; not always that of the base offset (`.swap`, snapshots of the metadata log).
        next_base_offset: that of the next segment, None for the last one.
        tail: what an unclean end means.
        is_flushed: whether it lies before the recovery point.
        may_be_preallocated: whether its indexes may end in zeros.
        has_indexes: whether there are indexes to check.
        is_tiered: whether it is of tiered storage: a broker has closed it, so its indexes reach to its end.
        index_interval_bytes: of its topic; None if not known.
        snapshot_offsets: offsets inside the segment, ascending, at which the producers' state is needed.
        expiration_ms: a producer that was silent so long may have been forgotten; None: sequences are not followed.
        log_start_offset: that of the log, if it lies in the segment or after it; else 0.
        is_metadata_log: whether it is of `__cluster_metadata`, or one of its snapshots.
    """

    folder: str
    base_offset: int
    log: str
    next_base_offset: int | None
    tail: Tail = Tail.CLOSED
    is_flushed: bool = True
    is_preallocated: bool = False
    may_be_preallocated: bool = False
    has_indexes: bool = True
    is_tiered: bool = False
    index_interval_bytes: int | None = None
    is_deep: bool = False
    snapshot_offsets: tuple[int, ...] = ()
    expiration_ms: int | None = None
    log_start_offset: int = 0
    is_metadata_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What producers did in a part of a segment.

    Attributes:
        scan: the scan of the part.
        snapshot_offset: that of the snapshot at the part's end, None if there is none.
        is_broken: whether bytes after it were skipped, so that nothing is known of producers from there on.
    """

    scan: RawScan
    snapshot_offset: int | None = None
    is_broken: bool = False


@dataclass(slots=True, kw_only=True)
class SegmentResult:
    """What was found in a segment.

    Attributes:
        checked_bytes: by file name.
        sequences: those of producers, if they are followed.
        legacy_count: batches of magic 0 and 1, which are in no epoch run.
        agreements: how far the indexes agree with the log, by file name.
        is_whole: whether the log was read to its end.
    """

    task: SegmentTask
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    epoch_runs: list[EpochRun] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    sequences: Sequences = field(default_factory=Sequences)
    checked_bytes: dict[str, int] = field(default_factory=dict)
    agreements: dict[str, IndexAgreement] = field(default_factory=dict)
    has_compacted: bool = False
    first_offset: int | None = None
    last_offset: int | None = None
    batch_count: int = 0
    legacy_count: int = 0
    max_timestamp_ms: int = byte_layout.NO_TIMESTAMP_MS
    is_whole: bool = True

    @property
    def has_all_batches(self) -> bool:
        """Whether every batch of the log was read: nothing was damaged or skipped."""
        is_damaged = any(finding.file == self.task.log for finding in self.findings)
        return self.is_whole and not is_damaged and not self.gaps

    @property
    def indexes_beyond(self) -> list[str]:
        """The names of the indexes with an entry past the end of the log."""
        return [name for name, agreement in self.agreements.items() if agreement.is_beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How segments are read: shared by all threads.

    Attributes:
        limit: on bytes a second.
        on_bytes: called with the number of bytes of a log that were read, by the thread that read them.
        one_at_a_time: held while a large batch is opened.
    """

    limit: RateLimit
    on_bytes: Callable[[int], None]
    one_at_a_time: AbstractContextManager[object]
