"""A log as windows of whole batches with a verdict on each checksum, and the bad stretches between them.

Memory is bounded: a window has 4 MiB, or one batch of as many bytes as the caller allows. No length field makes this
allocate memory for bytes that are not there.

After damage, reading resumes at the next sound batch that is found: by the bad batch's own length, by the lengths
after it, or by an entry of the offset index. A piece of the log that cannot be restored is damage as well.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native.batch_checksums import compare_checksums
from native.batch_headers import HeaderRows, HeaderWalk, WalkEnd, walk_headers
from recovery.archive.layouts.holed_log import ChunkError, HoledLog
from recovery.check.finding import Rule
from recovery.read.batch_probe import BatchSearch, has_right_crc, is_zero_range
from recovery.read.opened_log import OpenedLog
from recovery.read.windows import Window, Windows

MOST_BATCH_BYTES = 128 << 20
"""Of one batch, as stored in the log and decompressed, unless the caller allows other sizes."""


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """Whole batches.

    Attributes:
        octets: uint8, shape (n,); begins with the first batch. Valid only until the next window is asked for.
        rows: of its batches, at least one.
        is_valid: bool, shape (n,): whether their checksums are right.
    """

    octets: npt.NDArray[np.uint8]
    rows: HeaderRows
    is_valid: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BadStretch:
    """Bytes in which no batch can be recognised.

    Attributes:
        is_damage: False for what a killed broker leaves at the end of the last segment.
    """

    position: int
    end_position: int
    rule: Rule
    detail: str
    is_damage: bool = True


class LogWindows:
    """The windows of one log.

    Args:
        log: opened; the caller closes it.
        base_offset: of the segment; no batch below it is looked for after damage.
        index_positions: returns the positions in the offset index; called only after damage.
        is_last: no segment follows, so a batch cut off at its end, or zeros, is not damage.
        most_batch_bytes: a longer batch is not read.
        position: of a batch to begin with.
    """

    def __init__(
        self,
        log: OpenedLog,
        *,
        base_offset: int,
        index_positions: Callable[[], Sequence[int]] = tuple,
        is_last: bool = False,
        most_batch_bytes: int = MOST_BATCH_BYTES,
        position: int = 0,
    ) -> None:
        self._log = HoledLog(log)
        self._position = position
        self._end = log.end_position
        self._base_offset = base_offset
        self._index_positions = index_positions
        self._is_last = is_last
        self._most_batch_bytes = most_batch_bytes
        self._stretch: BadStretch | None = None
        self._sound = BatchSearch(self._log, most_batch_bytes=most_batch_bytes)

    def __iter__(self) -> Iterator[BatchWindow | BadStretch]:
        """Yield windows and stretches in order of position.

        Raises:
            OSError: the log cannot be read, or became shorter.
        """
        windows = Windows(self._log, most_batch_bytes=self._most_batch_bytes)
        windows.position = self._position
        for window in windows:
            resume_at: int | None
            if window.large_bytes:
                resume_at = self._pass_over_large(window.position, window.large_bytes)
            else:
                walk = walk_headers(window.octets, position=window.position, end_position=self._end)
                resume_at = yield from self._compare(window, walk.rows)
                if resume_at is None:
                    resume_at = self._end_walk(walk)
            if self._stretch is not None:
                yield self._stretch
                self._stretch = None
            windows.position = resume_at

    def _compare(self, window: Window, rows: HeaderRows) -> Generator[BatchWindow, None, int | None]:
        """Yield the batches whose lengths can be relied on; return where to resume after bad ones, None without any.

        A batch whose checksum is wrong has the right length if a sound batch, or the end of the log, follows.
        """
        if not len(rows):
            return None
        octets = window.octets
        is_valid = compare_checksums(octets, rows)
        is_doubtful = ~is_valid
        is_doubtful[:-1] &= ~is_valid[1:]
        for number in np.flatnonzero(~is_valid).tolist():
            is_doubtful[number] |= self._hole_in_batch(rows[number]) is not None
        if not is_doubtful.any():
            yield BatchWindow(octets, rows, is_valid)
            return None
        bad = int(np.argmax(is_doubtful))
        if bad:
            yield BatchWindow(octets, rows[:bad], is_valid[:bad])
        position = int(rows["position"][bad])
        resume_at = position + int(rows["size_bytes"][bad])
        if resume_at == self._end or self._sound.is_sound(resume_at, base_offset=self._base_offset):
            if self._hole_in_batch(rows[bad]) is not None:
                self._note(position, resume_at, "checksum", "checksum mismatch")
                return resume_at
            yield BatchWindow(
                octets[position - window.position :], rows[bad : bad + 1], is_valid[bad : bad + 1]
            )
            return resume_at
        return self._search(position, "checksum", "checksum mismatch", rows[bad + 1 :])

    def _hole_in_batch(self, row: np.void) -> ChunkError | None:
        position = int(row["position"])
        return self._log.hole_in(position, position + int(row["size_bytes"]))

    def _pass_over_large(self, position: int, size_bytes: int) -> int:
        if not has_right_crc(self._log, position, size_bytes):
            return self._search(position, "checksum", "checksum mismatch")
        detail = f"a batch of {size_bytes} bytes, {self._most_batch_bytes} are allowed"
        self._note(position, position + size_bytes, "too-large", detail)
        return position + size_bytes

    def _end_walk(self, walk: HeaderWalk) -> int:
        """Return where to resume after the batches of a window."""
        position, left = walk.position, self._end - walk.position
        if walk.end in (WalkEnd.NEED_BYTES, WalkEnd.FULL) or not left:
            return position
        if walk.end is WalkEnd.END:
            detail = f"{left} bytes that are not a batch"
            self._note(position, self._end, "trailing-bytes", detail, is_damage=not self._is_last)
            return self._end
        if walk.end is WalkEnd.TORN:
            return self._search(position, "torn-batch", "the batch reaches beyond the end of the log")
        return self._search(position, "batch-length", "an impossible batch length")

    def _search(self, position: int, rule: Rule, detail: str, rest: HeaderRows | None = None) -> int:
        """Note damage at *position*, and return where the next sound batch begins; the end of the log without one."""
        sound, searched = self._find(position, rest), position
        # A hole may be larger than what one search covers.
        while sound is None and self._log.end_of_holes(position) > searched:
            searched = self._log.end_of_holes(position)
            sound = self._find(searched - 1, None)
        resume_at = self._end if sound is None else sound
        is_damage = True
        if resume_at == self._end and self._is_last and rule != "checksum":
            is_damage = rule != "torn-batch" and not is_zero_range(self._log, position, self._end)
        self._note(position, resume_at, rule, detail, is_damage=is_damage)
        return resume_at

    def _find(self, position: int, rest: HeaderRows | None) -> int | None:
        return self._sound.find(position, rest, self._index_positions, base_offset=self._base_offset)

    def _note(
        self, position: int, end_position: int, rule: Rule, detail: str, *, is_damage: bool = True
    ) -> None:
        """Note a bad stretch; if a part of it cannot be restored, that is the reason."""
        hole = self._log.hole_in(position, end_position)
        if hole is None:
            self._stretch = BadStretch(position, end_position, rule, detail, is_damage)
        else:
            self._stretch = BadStretch(position, end_position, "chunk", str(hole))
