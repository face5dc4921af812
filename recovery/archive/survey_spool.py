"""What was surveyed, kept on disk until it is worked on: the driver's memory does not grow with the archive."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from recovery.archive.record import decode_record, encode_record
from recovery.archive.survey import SurveyedPartition

_LENGTH_BYTES = 8


class SurveySpool:
    """Surveyed partitions in a temporary file, in their order.

    Attributes:
        partition_count, segment_count, log_bytes: of all of them.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="kafka-log-recovery-")  # noqa: SIM115 - closed on exit
        self.partition_count = 0
        self.segment_count = 0
        self.log_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, partition: SurveyedPartition) -> None:
        """Keep one more partition."""
        record = zlib.compress(encode_record(partition), 1)
        self._file.write(len(record).to_bytes(_LENGTH_BYTES, "big"))
        self._file.write(record)
        self.partition_count += 1
        self.segment_count += len(partition.works)
        self.log_bytes += partition.log_bytes

    def __iter__(self) -> Iterator[SurveyedPartition]:
        self._file.seek(0)
        while head := self._file.read(_LENGTH_BYTES):
            yield decode_record(zlib.decompress(self._file.read(int.from_bytes(head, "big"))))
