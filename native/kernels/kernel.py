"""The list of all kernels: where each is, and how it is called."""

from __future__ import annotations

from typing import Final, NamedTuple


class Kernel(NamedTuple):
    """A function of a module of kernels.

    Attributes:
        argument_count: how many int64s it takes.
        has_path: whether it takes a CpuPath before them, for which it is compiled.
    """

    module: str
    function: str
    argument_count: int
    has_path: bool = False


CHECKSUM: Final = Kernel("native._crc32c", "checksum_of", 2, has_path=True)
SCAN: Final = Kernel("native._scan_kernel", "scan", 3, has_path=True)
REBUILD_SLOTS: Final = Kernel("native._scan_producers", "rebuild_slots", 5)
WALK_HEADERS: Final = Kernel("native._header_kernel", "walk_headers", 7)
WALK_RECORDS: Final = Kernel("native._record_kernel", "walk_records", 7)
WALK_PLAIN_BATCHES: Final = Kernel("native._record_kernel", "walk_plain_batches", 4)
COMPARE_CHECKSUMS: Final = Kernel("native._checksum_kernel", "compare_checksums", 4, has_path=True)
CHECK_LOGS: Final = Kernel("native._log_kernel", "check_logs", 5, has_path=True)
LIST_RECORDS: Final = Kernel("native._row_kernel", "list_records", 5)
LIST_HEADERS: Final = Kernel("native._row_kernel", "list_headers", 3)
JOIN_BYTES: Final = Kernel("native._row_kernel", "join_bytes", 5)
FOLLOW_SEQUENCES: Final = Kernel("native._sequence_kernel", "follow_sequences", 3)
JOIN_SEQUENCES: Final = Kernel("native._sequence_kernel", "join_sequences", 10)
PLACE_SEQUENCES: Final = Kernel("native._sequence_kernel", "place_sequences", 1)
END_SEQUENCES: Final = Kernel("native._sequence_kernel", "end_sequences", 1)
ALL: Final = (
    CHECKSUM,
    SCAN,
    REBUILD_SLOTS,
    WALK_HEADERS,
    WALK_RECORDS,
    WALK_PLAIN_BATCHES,
    COMPARE_CHECKSUMS,
    CHECK_LOGS,
    LIST_RECORDS,
    LIST_HEADERS,
    JOIN_BYTES,
    FOLLOW_SEQUENCES,
    JOIN_SEQUENCES,
    PLACE_SEQUENCES,
    END_SEQUENCES,
)
