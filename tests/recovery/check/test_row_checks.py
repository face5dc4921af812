"""The row of a log's segments: who has the verdict where offsets are missing, and who has to tell of a cut end."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.check.finding import Finding
from recovery.check.rules.indexes import IndexAgreement
from recovery.check.rules.neighbours import find_cut_ends, find_gaps, find_lossy_swaps, find_no_segment
from recovery.check.task import SegmentResult, SegmentTask
from segfmt.filenames import log_name, offset_index_name, snapshot_name


def segment(
    base: int, last: int | None, *, first: int | None = None, swap: bool = False, **fields: Any
) -> SegmentResult:
    """A segment of 500 bytes with the offsets from *base*, or *first*, to *last*."""
    name = log_name(base, ".swap") if swap else log_name(base)
    task = SegmentTask(folder="/x", base_offset=base, log=name, next_base_offset=None)
    return SegmentResult(
        task=task,
        first_offset=None if last is None else base if first is None else first,
        last_offset=last,
        checked_bytes={name: 500},
        **fields,
    )


def verdicts(findings: list[Finding]) -> list[tuple[str, str, int | None]]:
    return [(one.file, one.rule, one.position) for one in findings]


class TestGaps:
    def test_a_whole_row(self) -> None:
        assert find_gaps([segment(0, 9), segment(10, 19), segment(20, None)], [], ()) == []

    def test_missing_at_the_end_of_a_segment(self) -> None:
        found = find_gaps([segment(0, 7), segment(10, 19)], [], ())
        assert verdicts(found) == [(log_name(0), "offset-gap", 500)]

    def test_an_empty_segment(self) -> None:
        found = find_gaps([segment(0, 9), segment(10, None), segment(20, 29)], [], [snapshot_name(10)])
        assert verdicts(found) == [(log_name(10), "offset-gap", 500)]

    @pytest.mark.parametrize("trace", [snapshot_name(10), offset_index_name(10)])
    def test_a_missing_segment_that_has_left_a_file(self, trace: str) -> None:
        found = find_gaps([segment(0, 9), segment(20, 29)], [], [trace])
        assert verdicts(found) == [(log_name(10), "offset-gap", None)]
        assert "the file is missing: offsets 10 to 19" in found[0].detail

    def test_a_segment_that_ends_before_it_begins_is_not_missing(self) -> None:
        """It has the batches of an earlier one, and the trace is its own."""
        names = [log_name(10), offset_index_name(10)]
        found = find_gaps([segment(0, 9), segment(10, 9), segment(20, 29)], [], names)
        assert verdicts(found) == [(log_name(10), "offset-gap", 500)]

    def test_a_missing_first_batch(self) -> None:
        for row in ([segment(0, 9, first=3)], [segment(0, 9), segment(10, 19, first=13)]):
            found = find_gaps(row, [], ())
            assert verdicts(found) == [(row[-1].task.log, "offset-gap", 0)]

    def test_nothing_is_missing_that_a_swap_has(self) -> None:
        row = [segment(0, 9), segment(30, 39)]
        swaps = [segment(20, 29, swap=True), segment(10, 19, swap=True)]
        assert find_gaps(row, swaps, ()) == []
        assert len(find_gaps(row, swaps[:1], ())) == 1

    def test_what_was_not_read_to_its_end_is_not_judged(self) -> None:
        assert find_gaps([segment(0, 7, is_whole=False), segment(10, 19, first=12)], [], ()) == []


class TestSwaps:
    @pytest.mark.parametrize(
        ("swap", "is_lossy"),
        [
            (segment(0, 9, swap=True), False),
            (segment(0, 8, swap=True), True),
            (segment(0, 9, first=1, swap=True), True),
            (segment(0, None, swap=True), True),
            (segment(10, 12, swap=True), False),
            (segment(10, 12, first=11, swap=True), True),
        ],
    )
    def test_what_replaces_more_than_it_has(self, swap: SegmentResult, is_lossy: bool) -> None:
        found = find_lossy_swaps([segment(0, 9)], [swap])
        assert verdicts(found) == ([(swap.task.log, "swap", None)] if is_lossy else [])


class TestEnds:
    @pytest.mark.parametrize(
        ("of_segment", "beyond", "is_found"),
        [
            ((), (), False),
            (("a.index",), (), False),
            ((), ("b.snapshot",), False),
            (("a.index", "a.timeindex"), (), True),
            (("a.index",), ("b.snapshot",), True),
            ((), ("b.snapshot", "c"), True),
        ],
    )
    def test_one_witness_is_none(
        self, of_segment: tuple[str, ...], beyond: tuple[str, ...], is_found: bool
    ) -> None:
        agreement = IndexAgreement(is_beyond=True, contradicts=True)
        found = find_cut_ends([segment(0, 9, agreements=dict.fromkeys(of_segment, agreement))], beyond)
        assert verdicts(found) == ([(log_name(0), "cut-end", 500)] if is_found else [])

    def test_the_log_s_end_is_that_of_its_last_segment(self) -> None:
        found = find_cut_ends([segment(0, 9), segment(10, 19)], ("a", "b"))
        assert verdicts(found) == [(log_name(10), "cut-end", 500)]

    def test_damage_is_not_said_twice(self) -> None:
        assert find_cut_ends([segment(0, 9, is_whole=False)], ("a", "b")) == []

    def test_no_segment(self) -> None:
        assert find_no_segment(7, has_traces=True).severity == "damage"
        found = find_no_segment(7, has_traces=False)
        assert (found.file, found.severity) == (log_name(7), "note")
