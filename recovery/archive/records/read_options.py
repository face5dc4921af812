"""What to read of segments, and what to do about damage: values that need no Arrow."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES
from recovery.archive.records.record_schema import Include


class Corrupt(enum.Enum):
    """How to treat records that cannot be read, or are not to be trusted; the value is the option's."""

    FAIL = "fail"
    """An error that names the object, the position, the rule and the remedy."""
    SKIP = "skip"
    """They are left out; each batch is reported to `on_left_out`."""
    INCLUDE = "include"
    """They are rows with `fault` set; what cannot be read is one row with null key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read of segments.

    Attributes:
        corrupt: for records; batches are always listed, with their faults.
        lost: for offsets that are missing; None: as `corrupt`.
        is_committed: leave out what a consumer with isolation.level=read_committed does not see.
        has_control_records: include the records of control batches, which no consumer sees.
        lowest_offset, highest_offset: records with other offsets are left out, as are batches with none of these.
        lowest_timestamp_ms, highest_timestamp_ms: the same for the timestamps of records, and the greatest timestamps
            of batches. With either, records and batches without a timestamp are left out.
        most_batch_bytes: a larger batch, stored or decompressed, counts as one that cannot be read.
    """

    include: Include = Include.RECORDS
    corrupt: Corrupt = Corrupt.FAIL
    lost: Corrupt | None = None
    is_committed: bool = False
    has_control_records: bool = False
    lowest_offset: int | None = None
    highest_offset: int | None = None
    lowest_timestamp_ms: int | None = None
    highest_timestamp_ms: int | None = None
    most_batch_bytes: int = MOST_BATCH_BYTES
