"""Where the chains of consecutive segments in tiered storage end, and which chain a segment continues.

After a change of leader several segments may cover the same offsets; each such history is a chain of its own. Offsets
that no chain reaches are a gap, and so are those that the logs of a segment's own history do not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recovery.archive.remote.lineage import OffsetRange, subtract_ranges
from recovery.check.finding import Finding, Severity
from segfmt.filenames import log_name


class ChainEnds:
    """The ends of a partition's chains, while its segments come in by base offset.

    Args:
        gone: first and last offsets of what is deleted or below the log start: if it is missing, that is not a gap.

    Attributes:
        offsets: after the last segment of each chain, in the order of the chains' starts; None if not known.
    """

    def __init__(self, gone: Iterable[tuple[int, int]]) -> None:
        self._gone = [OffsetRange(start_offset=first, end_offset=last) for first, last in gone]
        self._is_end_known = True
        self.offsets: list[int | None] = []

    def find(self, base_offset: int, is_of: Callable[[int], bool] = lambda _: True) -> int | None:
        """Return the number of the chain that a segment at *base_offset* continues, None without one.

        Args:
            base_offset: of the segment.
            is_of: whether it has the history of the chain with a number. If no chain that ends there has the same
                history, the segment is another leader's if other segments also have offsets after its start; else it
                is taken for the next one.
        """
        numbers = [number for number, end in enumerate(self.offsets) if end == base_offset]
        chain_number = next(filter(is_of, numbers), None)
        if (
            chain_number is None
            and numbers
            and max(end for end in self.offsets if end is not None) == base_offset
        ):
            return numbers[0]
        return chain_number

    def begin(self, base_offset: int, history_end: int | None = None) -> Finding | None:
        """Begin a chain that continues no other; return the finding about its first segment's log.

        Args:
            base_offset: of the segment.
            history_end: where the logs of its own history end, None if none is there or that is not known.
        """
        ends = [end for end in self.offsets if end is not None]
        self.offsets.append(base_offset)
        if ends and max(ends) < base_offset and self._is_end_known:
            return self._gap(max(ends), base_offset)
        if history_end is not None and history_end < base_offset:
            return self._gap(history_end, base_offset, ": only logs of another leader have them")
        if ends and max(ends) > base_offset:
            detail = (
                f"it begins at {base_offset}, and offsets up to {max(ends) - 1} are in other segments, too"
            )
            return Finding(
                file=log_name(base_offset), position=None, rule="overlap", detail=detail, severity="note"
            )
        return None

    def reach(self, number: int, end_offset: int | None) -> None:
        """Move the end of chain *number* to the end of its next segment."""
        self.offsets[number] = end_offset
        self._is_end_known = end_offset is not None

    def _gap(self, start: int, base: int, but: str = "") -> Finding:
        """Return the finding about offsets that are missing before the segment at *base*."""
        missing = subtract_ranges(OffsetRange(start_offset=start, end_offset=base - 1), self._gone)
        detail = f"offsets {start} to {base - 1} are missing before this segment{but}"
        if not missing:
            detail += f"{';' if but else ':'} they are deleted, or below the log start"
        severity: Severity = "damage" if missing else "note"
        return Finding(
            file=log_name(base), position=None, rule="offset-gap", detail=detail, severity=severity
        )
