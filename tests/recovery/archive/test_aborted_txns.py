"""Aborted transactions by the indexes of several segments, against Kafka's own way of finding them, batch by batch."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from native.batch_headers import HEADER_ROW_DTYPE
from recovery.archive.records.aborted_txns import AbortedTxns, collect_aborted
from segfmt import byte_layout
from segfmt.errors import FormatError


def index_of(*entries: tuple[int, int, int, int]) -> bytes:
    """Of (producer id, first offset, last offset, last stable offset)."""
    found = np.zeros(len(entries), byte_layout.ABORTED_TXN_DTYPE)
    for place, entry in enumerate(entries):
        found[place] = (0, *entry)
    return found.tobytes()


def batch(base: int, last: int, producer_id: int, *, is_data: bool = True) -> np.ndarray:
    row = np.zeros(1, HEADER_ROW_DTYPE)
    row["base_offset"], row["last_offset"], row["producer_id"], row["magic"] = base, last, producer_id, 2
    row["attributes"] = 0x10 if is_data else 0x30
    return row


def returning(data: bytes) -> Callable[[], bytes]:
    return lambda: data


class TestBatches:
    def test_are_aborted_from_the_first_offset_to_the_marker(self) -> None:
        txns = AbortedTxns(
            np.frombuffer(index_of((7, 10, 20, 0), (7, 40, 50, 0)), byte_layout.ABORTED_TXN_DTYPE)
        )
        data = [batch(5, 9, 7), batch(10, 12, 7), batch(13, 13, 8), batch(19, 19, 7)]
        behind = [batch(20, 20, 7, is_data=False), batch(21, 30, 7), batch(40, 41, 7)]
        rows = np.concatenate([*data, *behind])
        assert txns.are_in(rows).tolist() == [False, True, False, True, False, False, True]

    def test_do_not_go_on_after_a_marker(self) -> None:
        """Also if another transaction begins between."""
        entries = index_of((7, 10, 50, 0), (7, 20, 30, 0), (8, 10, 60, 0))
        txns = AbortedTxns(np.frombuffer(entries, byte_layout.ABORTED_TXN_DTYPE))
        offsets = (5, 15, 30, 40, 50)
        markers = [batch(offset, offset, 7, is_data=False) for offset in offsets]
        rows = np.concatenate([*markers, batch(40, 40, 9, is_data=False), batch(40, 40, 7)])
        assert txns.span_markers(rows).tolist() == [False, True, True, True, False, False, False]

    def test_are_those_that_a_consumer_leaves_out(self) -> None:
        """Random logs of several producers: the same as a consumer's walk with a set of aborting producers."""
        for seed in range(200):
            rng = random.Random(seed)
            rows, entries, expected, first = [], [], [], {}
            offset = 0
            for _ in range(60):
                producer = rng.randrange(3)
                if producer in first and rng.random() < 0.3:
                    if rng.random() < 0.5:
                        entries.append((producer, first[producer], offset, 0))
                    else:
                        expected = [one for one in expected if one[1] != producer or one[0] < first[producer]]
                    rows.append(batch(offset, offset, producer, is_data=False))
                    del first[producer]
                    offset += 1
                    continue
                size = rng.randrange(1, 4)
                first.setdefault(producer, offset)
                expected.append((offset, producer))
                rows.append(batch(offset, offset + size - 1, producer))
                offset += size
            expected = [one for one in expected if one[1] not in first or one[0] < first[one[1]]]
            rng.shuffle(entries)
            table = np.concatenate(rows)
            found = AbortedTxns(np.frombuffer(index_of(*entries), byte_layout.ABORTED_TXN_DTYPE)).are_in(
                table
            )
            assert sorted(table["base_offset"][found].tolist()) == sorted(one[0] for one in expected)


class TestCollecting:
    def test_goes_on_to_later_segments_until_the_last_stable_offset(self) -> None:
        """A marker may lie segments behind; an entry whose last stable offset is far enough ends the search."""
        read: list[int] = []

        def reading(base: int, data: bytes) -> tuple[int, Callable[[], bytes]]:
            def read_it() -> bytes:
                read.append(base)
                return data

            return base, read_it

        indexes = [
            reading(0, index_of((1, 5, 9, 3))),
            reading(100, b""),
            reading(200, index_of((2, 50, 250, 60), (3, 120, 260, 130))),
            reading(300, index_of((4, 301, 310, 320))),
        ]
        found = collect_aborted(indexes, start_offset=0, end_offset=100)
        assert len(found) == 2
        assert read == [0, 100, 200]

    def test_of_a_log_without_end_takes_all(self) -> None:
        indexes = [(0, returning(index_of((1, 5, 9, 50)))), (10, returning(index_of((1, 15, 19, 50))))]
        assert len(collect_aborted(indexes, start_offset=0, end_offset=None)) == 2
        assert len(collect_aborted(indexes, start_offset=10, end_offset=None)) == 1

    @pytest.mark.parametrize("data", [index_of((1, 5, 9, 50))[:-1], index_of((1, 5, 9, 50))])
    def test_a_malformed_index_is_refused(self, data: bytes) -> None:
        with pytest.raises(FormatError):
            collect_aborted([(10, returning(data))], start_offset=10, end_offset=None)
