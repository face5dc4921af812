"""Which transactions of a run of segments were aborted: by their transaction indexes, or by the markers in their logs.

An index file is missing where nothing was aborted, and where it was lost. So only if each segment has one, or a broker
has said that it has none to keep, the indexes are taken, and compared with the markers as the logs are read. Else the
markers are looked up in the logs before their records are rows. What is open after the run ends in later segments,
which are looked into for that alone: what a run says of its transactions does not depend on where other runs begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from native.batch_headers import HeaderRows
from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import ArchivedFiles
from recovery.archive.layouts.log_windows import BatchWindow
from recovery.archive.records.aborted_txns import AbortedTxns, are_transactional, collect_aborted
from recovery.archive.records.batch_heads import Fault
from recovery.archive.records.foreign_logs import begins_elsewhere, is_foreign
from recovery.archive.records.log_markers import TransactionWalk
from recovery.archive.records.log_tails import LogTails
from recovery.archive.records.read_request import MOST_EARLIER, PlannedSegment, SegmentRun
from recovery.archive.records.run_files import RunFiles, opened_windows
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.check.finding import REMEDIES, Rule
from recovery.errors import DamagedSegmentError
from segfmt import byte_layout
from segfmt.errors import FormatError, MissingKeyError
from segfmt.transaction_index import Entries, view_transaction_index

_READ_ON = "read with isolation=read_uncommitted and without `aborted`"


@dataclass(slots=True)
class RunTransactions:
    """The transactions of a run.

    Attributes:
        run: the segments.
        files: of the run.
        tails: of the logs of the archive.
        highest_offset: the last one that is requested, None for no bound.
    """

    run: SegmentRun
    files: RunFiles
    tails: LogTails
    highest_offset: int | None = None
    _aborted: AbortedTxns | None = None
    _walk: TransactionWalk = field(default_factory=TransactionWalk)
    _has_grown: bool = False
    _has_skipped: bool = False
    _is_indexed: bool = field(init=False)

    def __post_init__(self) -> None:
        self._is_indexed = self.run.has_txn_indexes

    def of_segment(self, number: int, segment: ArchivedSegment) -> SegmentTransactions:
        """Return the transactions of one segment: that of the run with this number, or one that is read after it."""
        return SegmentTransactions(self, number, segment)

    def aborted(self, number: int) -> AbortedTxns:
        """Return the aborted transactions that reach into the segments from *number* on.

        Raises:
            DamagedSegmentError: an index is malformed, or contradicts the log; or damage hides how a transaction ended.
            MissingKeyError: a segment is encrypted with a key that was not given.
            OSError: a segment cannot be read.
        """
        if self._aborted is None:
            self._is_indexed = self._is_indexed and not self._goes_on_before()
            if self._is_indexed:
                self._aborted = self._indexed()
            else:
                entries = [view_transaction_index(self.run.local_aborted), *self._of_logs(number)]
                self._aborted = AbortedTxns(np.concatenate(entries))
        return self._aborted

    def _goes_on_before(self) -> bool:
        """Return whether the rest of an earlier segment follows one of the first of the run.

        The index of that one may have what was aborted here, and has more than belongs to the run: the markers tell.
        """
        first = range(min(MOST_EARLIER, len(self.run.segments)))
        return any(
            any(self.tails.rests(self.run.earlier(number), planned, self.tails.of(planned).end_offset))
            for number, planned in ((number, self.run.segments[number]) for number in first)
            if self.tails.has_rests(planned)
        )

    def check(
        self, number: int, segment: ArchivedSegment, octets: npt.NDArray[np.uint8], rows: HeaderRows
    ) -> None:
        """Compare the markers in *rows*, sound batches in order, with the indexes, and with what is said to be open.

        Raises:
            DamagedSegmentError: they contradict each other.
        """
        if not self._is_indexed and self.run.open_txns is None:
            return
        found = self._walk.take(octets, int(rows["position"][0]), rows)
        if self._is_indexed:
            self._compare(segment, self.aborted(number), found, rows)
        self._compare_open(segment, rows)

    def check_end(self, number: int) -> None:
        """Compare what is open after the partition's last segment, which was read to its end, with what is said of it.

        Raises:
            DamagedSegmentError: they contradict each other.
        """
        said = self._said_open()
        if said is None:
            return
        begins, segment = self._walk.begins, self.run.segments[number].segment
        for producer_id, begin in begins.items():
            told = said.get(producer_id, begin + 1)
            if told > begin or (told < begin and producer_id in self._walk.ended):
                detail = f"producer {producer_id} has an open transaction from offset {begin} on"
                self._contradict_snapshot(segment, detail)
        for producer_id in said.keys() & (self._walk.ended - begins.keys()):
            detail = f"producer {producer_id} has no open transaction after its last marker"
            self._contradict_snapshot(segment, detail)
        if self._has_skipped:
            return
        for producer_id, begin in self.run.open_before:
            if producer_id not in self._walk.ended and said.get(producer_id) != begin:
                detail = (
                    f"the transaction of producer {producer_id} from offset {begin} on does not end in it"
                )
                self._contradict_snapshot(segment, detail)

    def finish(self, end_offset: int | None) -> None:
        """Compare how the transactions end that are open after the run with the indexes.

        Args:
            end_offset: after the last segment of the run; None if that was not read to its end.

        Raises:
            DamagedSegmentError: they contradict each other; or segments are missing in which they may end.
        """
        walk, last = self._walk, len(self.run.segments) - 1
        walk.begins = self._concerned(walk)
        if not self._is_indexed or not walk.begins:
            return
        planned, earlier = self.run.segments[last], deque(self.run.earlier(last), MOST_EARLIER)
        if end_offset is None:
            _exhaust(self._of_ends(planned, earlier, walk, start=walk.end_offset))
        else:
            walk.end_offset = max(walk.end_offset, end_offset)
            earlier.append(planned)
        _exhaust(self._of_following(earlier, walk))

    def pass_over(self, number: int, end_offset: int) -> None:
        """Look up in a segment that is not read how the transactions end that are open before it, and compare.

        Args:
            number: of the segment.
            end_offset: of the segment.

        Raises:
            DamagedSegmentError: see `finish`.
        """
        if self._is_indexed and self._walk.begins:
            planned = self.run.segments[number]
            _exhaust(self._of_log(planned, self._walk, end=planned.end_offset, is_inside=False))
        self._walk.end_offset = max(self._walk.end_offset, end_offset)
        self._walk.ended.clear()
        self._has_skipped = True

    def skip(self) -> None:
        """Note that batches are passed over, among them perhaps the markers of open transactions."""
        self._walk.skip()
        self._has_skipped = True

    def pass_gap(self, number: int, offset: int) -> None:
        """Note that segments are missing from *offset* on, and with them their indexes.

        Raises:
            DamagedSegmentError: transactions are open there.
        """
        self._has_skipped = True
        self._pass_damage(self.run.segments[number].segment, self._walk, f"offset {offset}")

    # -- snapshots -------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Note that a log has grown since it was listed, so that what is open now is another question."""
        self._has_grown = True

    def _said_open(self) -> dict[int, int] | None:
        """Return where the transactions begin that are said to be open at the archive's end; None if nothing is."""
        return None if self._has_grown or self.run.open_txns is None else dict(self.run.open_txns)

    def _compare_open(self, segment: ArchivedSegment, rows: HeaderRows) -> None:
        said = self._said_open()
        if not said:
            return
        is_marker = are_transactional(rows) & (rows["attributes"] & byte_layout.CONTROL_MASK != 0)
        for row in rows[is_marker]:
            producer_id, offset = int(row["producer_id"]), int(row["base_offset"])
            if said.get(producer_id, offset) < offset:
                begin = said[producer_id]
                detail = f"the transaction of producer {producer_id} from offset {begin} on ends at {offset}"
                self._contradict_snapshot(segment, detail)

    def _contradict_snapshot(self, segment: ArchivedSegment, detail: str) -> None:
        raise DamagedSegmentError(
            f"{self.files.name_of(segment)}: snapshot-content: the last producer snapshot contradicts this log: "
            f"{detail}. Remedy: rebuild the snapshot by `archive recover`, or {_READ_ON}"
        )

    # -- indexes ---------------------------------------------------------------------------------------------

    def _indexed(self) -> AbortedTxns:
        current = self.run.segments[0].segment

        def read(segment: ArchivedSegment) -> Callable[[], bytes]:
            def read_it() -> bytes:
                nonlocal current
                current = segment
                return self.files.txn_index(segment)

            return read_it

        try:
            return collect_aborted(
                ((segment.base_offset, read(segment)) for segment in self.files.indexed()),
                start_offset=current.base_offset,
                end_offset=self.run.segments[-1].end_offset,
                known=self.run.local_aborted,
            )
        except MissingKeyError:
            raise
        except FormatError as error:
            raise self._malformed(current, error) from error

    def _malformed(self, segment: ArchivedSegment, error: FormatError) -> DamagedSegmentError:
        rule: Rule = "transaction-index-entry"
        remedy = "rebuild it by `archive recover`"
        if isinstance(error, ChunkError):
            rule, remedy = "chunk", REMEDIES["chunk"]
        return DamagedSegmentError(
            f"{self.files.name_of(segment)}: {rule}: the transaction index of this segment is malformed: {error}. "
            f"Remedy: {remedy}, or {_READ_ON}"
        )

    # -- logs ------------------------------------------------------------------------------------------------

    def _of_logs(self, number: int) -> Iterator[Entries]:
        """Yield what was aborted in the run's segments from *number* on, and after it what was open at its end."""
        walk = TransactionWalk()
        earlier = deque(self.run.earlier(number), MOST_EARLIER)
        for planned in self.run.segments[number:]:
            self._pass_seam(planned.segment, walk)
            yield from self._of_log(planned, walk, end=planned.end_offset)
            yield from self._of_rests(earlier, planned, walk)
        yield from self._of_following(earlier, walk)

    def _of_following(self, earlier: deque[PlannedSegment], walk: TransactionWalk) -> Iterator[Entries]:
        """Yield what was aborted of the transactions that are open after the run, as the segments after it show."""
        walk.begins = self._concerned(walk)
        for planned in self.files.following() if walk.begins else ():
            self._pass_seam(planned.segment, walk)
            if self._all_go_on(planned, walk):
                earlier.append(planned)
            else:
                yield from self._of_ends(planned, earlier, walk)
            if not walk.begins:
                return

    def _of_ends(
        self,
        planned: PlannedSegment,
        earlier: deque[PlannedSegment],
        walk: TransactionWalk,
        *,
        start: int = 0,
    ) -> Iterator[Entries]:
        """Yield what was aborted of the transactions that are open, in a segment and up to the next one."""
        yield from self._of_log(planned, walk, start=start, end=planned.end_offset, is_inside=False)
        yield from self._of_rests(earlier, planned, walk, is_inside=False)

    def _concerned(self, walk: TransactionWalk) -> dict[int, int]:
        """Return what is open and requested, but for what is known to be open at the archive's end."""
        stable, said = self.run.last_stable_offset, self._said_open() or {}
        return {
            producer_id: begin
            for producer_id, begin in walk.begins.items()
            if (self.highest_offset is None or begin <= self.highest_offset)
            and (stable is None or begin < stable)
            and said.get(producer_id, begin + 1) > begin
        }

    def _all_go_on(self, planned: PlannedSegment, walk: TransactionWalk) -> bool:
        """Return whether nothing that is open ends in a segment, by its snapshot; only where indexes tell the rest."""
        if not self._is_indexed or planned.end_offset is None:
            return False
        begins = self.files.open_after(planned.segment) or {}
        if any(begins.get(producer_id, begin + 1) > begin for producer_id, begin in walk.begins.items()):
            return False
        walk.end_offset = max(walk.end_offset, planned.end_offset)
        return True

    def _of_rests(
        self,
        earlier: deque[PlannedSegment],
        planned: PlannedSegment,
        walk: TransactionWalk,
        *,
        is_inside: bool = True,
    ) -> Iterator[Entries]:
        """Yield what was aborted in the rests of *earlier* segments that follow the end of one, the next of these."""
        start = max(walk.end_offset, planned.segment.base_offset)
        if is_inside or walk.begins:
            for rest in self.tails.rests(earlier, planned, start):
                yield from self._of_log(
                    rest.planned, walk, start=rest.start, end=rest.end, is_inside=is_inside
                )
        earlier.append(planned)

    def _pass_seam(self, segment: ArchivedSegment, walk: TransactionWalk) -> None:
        """Judge whether a segment, and the end of the one before it, are there."""
        is_missing = (
            bool(walk.begins) and segment.base_offset > walk.end_offset and not self.files.is_compacted()
        )
        if is_missing or PartKind.LOG not in segment.parts:
            self._pass_damage(segment, walk, f"offset {walk.end_offset}")

    def _of_log(
        self,
        planned: PlannedSegment,
        walk: TransactionWalk,
        *,
        start: int = 0,
        end: int | None,
        is_inside: bool = True,
    ) -> Iterator[Entries]:
        segment = planned.segment
        if not segment.log_bytes:
            return
        files = self.files.described(segment)
        if isinstance(files, Fault):
            self._pass_damage(segment, walk, str(files))
            return
        with opened_windows(files, segment.base_offset, is_last=True) as windows:
            said, is_first = self._said_of(segment), True
            for window in windows:
                if not isinstance(window, BatchWindow):
                    if window.is_damage:
                        self._pass_bad(segment, walk, f"byte {window.position}")
                    continue
                if is_first and self._is_foreign(planned, files, window):
                    self._pass_bad(segment, walk, "byte 0")
                    return
                is_first = False
                for sound in self._sound_rows(segment, window, walk):
                    rows = sound[sound["base_offset"] >= start]
                    if end is not None:
                        rows = rows[rows["base_offset"] < end]
                    if not len(rows):
                        continue
                    before = dict(walk.begins)
                    found = walk.take(window.octets, int(window.rows["position"][0]), rows)
                    if said is not None and is_inside:
                        self._compare(segment, said, found, rows)
                    elif said is not None:
                        self._compare_ends(segment, said.entries, found, before, walk)
                    yield found[found["first_offset"] >= 0]
                    if not is_inside:
                        walk.begins = dict(before.items() & walk.begins.items())
                        if not walk.begins:
                            return

    def _is_foreign(self, planned: PlannedSegment, files: ArchivedFiles, window: BatchWindow) -> bool:
        base_offset = planned.segment.base_offset
        is_doubtful = begins_elsewhere(base_offset, window.rows) or any(
            self.files.wrong_sizes(planned, files)
        )
        return is_doubtful and is_foreign(files, base_offset)

    def _sound_rows(
        self, segment: ArchivedSegment, window: BatchWindow, walk: TransactionWalk
    ) -> Iterator[HeaderRows]:
        """Yield the batches between the bad ones, each of which may end what is open before it."""
        start = 0
        for bad in np.flatnonzero(~window.is_valid).tolist():
            yield window.rows[start:bad]
            self._pass_bad(segment, walk, f"byte {window.rows['position'][bad]}")
            start = bad + 1
        yield window.rows[start:]

    def _said_of(self, segment: ArchivedSegment) -> AbortedTxns | None:
        """Return the entries with which the markers of a segment are compared, None if it may have lost them."""
        if self._is_indexed:
            return self.aborted(0)
        try:
            data = self.files.txn_index(segment)
            return AbortedTxns(view_transaction_index(data)) if data else None
        except MissingKeyError:
            raise
        except FormatError as error:
            raise self._malformed(segment, error) from error

    def _pass_bad(self, segment: ArchivedSegment, walk: TransactionWalk, place: str) -> None:
        """Pass bad batches: if markers are among them, a transaction index tells, and is not compared."""
        if self._is_indexed:
            walk.skip()
        else:
            self._pass_damage(segment, walk, place)

    def _pass_damage(self, segment: ArchivedSegment, walk: TransactionWalk, place: str) -> None:
        """Pass what is damaged or missing, and with it what could say how transactions ended."""
        begins = sorted((begin, producer_id) for producer_id, begin in self._concerned(walk).items())
        walk.skip()
        if begins:
            (begin, producer_id), others = begins[0], len(begins) - 1
            raise DamagedSegmentError(
                f"{self.files.name_of(segment)}: {place}: transaction-state: what is damaged or missing here hides how "
                f"the transaction of producer {producer_id} ended, which is open from offset {begin} on"
                f"{f', and {others} more' if others else ''}, and no transaction index says it. Remedy: "
                f"{REMEDIES['transaction-state']}, or {_READ_ON}"
            )

    # -- both ------------------------------------------------------------------------------------------------

    def _compare(self, segment: ArchivedSegment, said: AbortedTxns, found: Entries, rows: HeaderRows) -> None:
        """Compare what an index has *said* with what was *found* of aborts in *rows*, and with all markers there."""
        indexed = said.entries
        for row in rows[said.span_markers(rows)][:1]:
            producer_id, offset = int(row["producer_id"]), int(row["base_offset"])
            detail = f"a transaction of producer {producer_id} goes on after its marker at offset {offset}"
            self._contradict(segment, "transaction-index-entry", detail)
        lowest, highest = int(rows["base_offset"].min()), int(rows["last_offset"].max())
        is_own = (indexed["last_offset"] >= lowest) & (indexed["last_offset"] <= highest)
        begins = {
            (int(entry["producer_id"]), int(entry["last_offset"])): int(entry["first_offset"])
            for entry in indexed[is_own]
        }
        for entry in found:
            producer_id, last, first = (
                int(entry[name]) for name in ("producer_id", "last_offset", "first_offset")
            )
            begin = begins.pop((producer_id, last), None)
            if begin is None and first >= 0:
                self._contradict(segment, "transaction-index-missing", _without_entry(producer_id, last))
            if begin is not None and begin > first >= 0:
                detail = f"first offset {begin}, the transaction of producer {producer_id} begins at {first}"
                self._contradict(segment, "transaction-index-entry", detail)
        for producer_id, last in begins:
            detail = f"no abort marker of producer {producer_id} at offset {last}"
            self._contradict(segment, "transaction-index-entry", detail)

    def _compare_ends(
        self,
        segment: ArchivedSegment,
        indexed: Entries,
        found: Entries,
        before: dict[int, int],
        walk: TransactionWalk,
    ) -> None:
        """Compare the entries of an index with how transactions ended that were open *before*, as far as they did."""
        for producer_id, begin in before.items() - walk.begins.items():
            own = indexed[indexed["producer_id"] == producer_id]
            is_of_it = (found["producer_id"] == producer_id) & (found["first_offset"] == begin)
            lasts = found["last_offset"][is_of_it].tolist()
            if not lasts:
                covers = own[(own["first_offset"] <= begin) & (own["last_offset"] >= begin)]
                if len(covers):
                    last = int(covers["last_offset"][0])
                    detail = f"no abort marker of producer {producer_id} at offset {last}"
                    self._contradict(segment, "transaction-index-entry", detail)
                continue
            firsts = own["first_offset"][own["last_offset"] == lasts[0]].tolist()
            if not firsts:
                self._contradict(segment, "transaction-index-missing", _without_entry(producer_id, lasts[0]))
            elif firsts[0] > begin:
                detail = (
                    f"first offset {firsts[0]}, the transaction of producer {producer_id} begins at {begin}"
                )
                self._contradict(segment, "transaction-index-entry", detail)

    def _contradict(self, segment: ArchivedSegment, rule: Rule, detail: str) -> None:
        if not self.files.is_compacted():
            raise DamagedSegmentError(
                f"{self.files.name_of(segment)}: {rule}: the transaction index of this segment contradicts its log: "
                f"{detail}. Remedy: restore both from another copy, or {_READ_ON}"
            )


@dataclass(frozen=True, slots=True)
class SegmentTransactions:
    """The transactions of one segment of a run."""

    _of_run: RunTransactions
    _number: int
    _segment: ArchivedSegment

    def aborted(self) -> AbortedTxns:
        """Return the aborted transactions that reach into it; see `RunTransactions.aborted`."""
        return self._of_run.aborted(self._number)

    def check(self, octets: npt.NDArray[np.uint8], rows: HeaderRows) -> None:
        """Compare its markers with its index; see `RunTransactions.check`."""
        self._of_run.check(self._number, self._segment, octets, rows)

    def skip(self) -> None:
        """Note that batches are passed over."""
        self._of_run.skip()


def _exhaust(found: Iterator[Entries]) -> None:
    """Go through what is yielded by comparing it."""
    for _ in found:
        pass


def _without_entry(producer_id: int, last_offset: int) -> str:
    return (
        f"the abort of producer {producer_id} at offset {last_offset} has no entry: it is read as committed"
    )
