"""One segment of an archive becomes the log of a segment.

Bytes are written as they are, but for the leader epoch in batch headers where it is to be another one: no checksum
covers it. Headers are walked on the way; checksums are compared by the recovery that follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np

from native.batch_headers import HeaderRows, WalkEnd, walk_headers
from recovery.archive.layouts.layout import ArchivedFiles
from recovery.archive.restore.copied_source import CHANGED_REMEDY
from recovery.archive.restore.source import SourceSegment
from recovery.errors import DamagedSegmentError, LogDirOfflineError
from recovery.read.file_system import naming
from recovery.read.rate_limit import RateLimit
from recovery.read.windows import Windows
from recovery.stop_request import StopRequest
from recovery.write.durable import new_file, write_fully
from recovery.write.write_back import begin_write_back
from segfmt.filenames import log_name

_EPOCH_POSITION = 12
_RENUMBERED_MAGIC = 2
_RENUMBER = "Remedy: --leader-epochs renumber, which makes all of them 0"
_METADATA = "Remedy: give the brokers' log dirs with --metadata"
RENUMBERED_EPOCH = 0
"""The leader epoch of all batches of a log that is renumbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedSegment:
    """What a segment's log holds.

    Attributes:
        end_offset: of its last batch that was taken; None without one.
        is_cut: whether batches at its end were left to the next segment.
    """

    end_offset: int | None
    is_cut: bool


def fetch_segment(
    files: ArchivedFiles,
    source: SourceSegment,
    path: str,
    *,
    log_dir: str,
    is_renumbered: bool,
    is_tiered: bool,
    highest_epoch: int | None,
    limit: RateLimit,
    stop: StopRequest,
    on_bytes: Callable[[int], None],
) -> FetchedSegment:
    """Write the log of a segment to the new file *path*.

    Args:
        log_dir: in which *path* is.
        is_renumbered: whether all batches get one leader epoch.
        is_tiered: whether it is of tiered storage, where segments of a log that was cut off remain.
        highest_epoch: above which no batch's may be if they are kept; None if any may.
        on_bytes: is told how many bytes were written, window by window.

    Raises:
        DamagedSegmentError: bytes that are no batches, or a batch that only in part belongs to this segment.
        FormatError: its object cannot be restored.
        OSError: it cannot be read.
        LogDirOfflineError: it cannot be written.
        InterruptedRecoveryError: *stop* was asked for.
    """
    name = log_name(source.segment.base_offset)
    fetch = _Fetch(
        source, name, is_renumbered=is_renumbered, is_tiered=is_tiered, highest_epoch=highest_epoch
    )
    with ExitStack() as stack:
        log = stack.enter_context(closing(files.open(name)))
        with of_log_dir(log_dir):
            target = stack.enter_context(new_file(path))
        windows = Windows(log, name=name, limit=limit)
        windows.end_position -= source.zero_bytes
        for window in windows:
            stop.check()
            walk = walk_headers(window.octets, position=window.position, end_position=windows.end_position)
            if walk.end not in (WalkEnd.NEED_BYTES, WalkEnd.FULL) and walk.position < windows.end_position:
                raise DamagedSegmentError(
                    f"{name}: {windows.end_position - walk.position:,} bytes at position {walk.position:,} are no batch"
                )
            size_bytes = fetch.take(window.octets, walk.rows, window.position, walk.position)
            with of_log_dir(log_dir), naming(path):
                write_fully(target, window.octets[:size_bytes].data)
                begin_write_back(target, window.position)
            on_bytes(size_bytes)
            windows.position = walk.position
            if fetch.is_cut:
                break
        if source.sha256 is not None and source.zero_bytes:
            windows.end_position = log.end_position
            for window in windows:
                stop.check()
                fetch.pass_over(window.octets)
                windows.position += window.octets.size
    return fetch.result()


@contextmanager
def of_log_dir(log_dir: str) -> Iterator[None]:
    """Let an error in the block be one of *log_dir*, in which nothing more is done, and not of the archive.

    Raises:
        LogDirOfflineError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise LogDirOfflineError(log_dir, error) from error


class _Fetch:
    def __init__(
        self,
        source: SourceSegment,
        name: str,
        *,
        is_renumbered: bool,
        is_tiered: bool,
        highest_epoch: int | None,
    ) -> None:
        self._is_tiered = is_tiered
        self._highest_epoch = highest_epoch
        self._source = source
        self._name = name
        self._is_renumbered = is_renumbered
        self._end_offset: int | None = None
        self._last_epoch = -1
        self.is_cut = False
        self._fault: DamagedSegmentError | None = None
        self._sha256 = hashlib.sha256()

    def take(
        self, octets: np.ndarray[tuple[int], np.dtype[np.uint8]], rows: HeaderRows, start: int, end: int
    ) -> int:
        """Note the batches of a window, renumber them, and return how many of its bytes are kept."""
        until = self._source.until_offset
        kept = rows
        if until is not None and len(rows) and int(rows["last_offset"][-1]) >= until:
            self.is_cut = True
            kept = rows[rows["last_offset"] < until]
            following = rows[len(kept)]
            if not len(kept) and self._end_offset is None and int(following["base_offset"]) >= until:
                raise DamagedSegmentError(
                    f"{self._name}: its first batch has offset {int(following['base_offset'])}, and the next segment "
                    f"begins at {until}: it is the log of another segment"
                )
            if int(following["base_offset"]) < until:
                raise DamagedSegmentError(
                    f"{self._name}: the batch at position {int(following['position'])} has offsets "
                    f"{int(following['base_offset'])} to {int(following['last_offset'])}, and the next segment begins "
                    f"at {until}"
                )
            end = int(following["position"])
        if self._source.sha256 is not None:
            self._sha256.update(octets[: end - start].data)
        if len(kept):
            self._note(kept)
        if self._is_renumbered:
            _renumber(octets, kept, start)
        return end - start

    def pass_over(self, octets: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        """Note bytes of the archived log that are left out."""
        self._sha256.update(octets.data)

    def _note(self, rows: HeaderRows) -> None:
        epochs = rows["leader_epoch"][rows["magic"] >= _RENUMBERED_MAGIC]
        if len(epochs) and not self._is_renumbered:
            highest = int(epochs.max())
            if self._highest_epoch is not None and highest > self._highest_epoch:
                self._fault = self._fault or DamagedSegmentError(
                    f"{self._name}: leader epoch {highest} of a batch is above the cluster's, {self._highest_epoch}. "
                    f"{_RENUMBER}"
                )
        if len(epochs) and (self._is_tiered or not self._is_renumbered):
            if (np.diff(epochs) < 0).any() or int(epochs[0]) < self._last_epoch:
                self._fault = self._fault or DamagedSegmentError(
                    f"{self._name}: the leader epochs of its batches go back: it is of a log that was cut off. "
                    + (_METADATA if self._is_tiered else _RENUMBER)
                )
            self._last_epoch = int(epochs[-1])
        self._end_offset = int(rows["last_offset"][-1])

    def result(self) -> FetchedSegment:
        """Return what was taken. What is wrong with its leader epochs counts only if the bytes are right."""
        if self._source.sha256 not in (None, self._sha256.hexdigest()):
            raise DamagedSegmentError(
                f"{self._name}: its bytes are not those that were copied, by their SHA-256. {CHANGED_REMEDY}"
            )
        if self._fault is not None:
            raise self._fault
        return FetchedSegment(end_offset=self._end_offset, is_cut=self.is_cut)


def _renumber(octets: np.ndarray[tuple[int], np.dtype[np.uint8]], rows: HeaderRows, start: int) -> None:
    """Set the leader epoch in the headers of batches; messages of magic 0 and 1 have none."""
    positions = rows["position"][rows["magic"] >= _RENUMBERED_MAGIC] - start + _EPOCH_POSITION
    for number, octet in enumerate(RENUMBERED_EPOCH.to_bytes(4, "big")):
        octets[positions + number] = octet
