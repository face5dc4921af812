"""The kernels behind rows: checksums of many batches, records in parts, bytes put together."""

from __future__ import annotations

import numpy as np
import pytest

from native.address import address_of
from native.batch_checksums import compare_checksums
from native.batch_headers import walk_headers
from native.cpu_path import CpuPath
from native.record_rows import RECORD_ROW_DTYPE, UNIT_DTYPE, UnitKind, join_bytes, list_records
from native.record_walk import RecordFault
from tests.logs import builders


def window_of(*batches: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(batches), np.uint8)


class TestChecksums:
    def test_say_of_each_batch_whether_it_is_sound(self, cpu_path: CpuPath) -> None:
        batches = [
            builders.data_batch(0, 3),
            builders.message(3, magic=0, value=b"old"),
            builders.message(4, magic=1, value=b"v" * 100),
            builders.data_batch(5, 1, value_bytes=5000),
        ]
        window = window_of(*batches)
        rows = walk_headers(window, position=0, end_position=window.size).rows
        assert compare_checksums(window, rows, cpu_path=cpu_path).tolist() == [True] * 4
        for place, row in enumerate(rows):
            damaged = window.copy()
            damaged[int(row["position"] + row["size_bytes"]) - 1] ^= 1
            expected = [number != place for number in range(4)]
            assert compare_checksums(damaged, rows, cpu_path=cpu_path).tolist() == expected

    def test_of_nothing(self) -> None:
        assert (
            compare_checksums(window_of(), walk_headers(window_of(), position=0, end_position=0).rows).size
            == 0
        )


def units_of(bodies: list[np.ndarray], counts: list[int]) -> np.ndarray:
    units = np.zeros(len(bodies), UNIT_DTYPE)
    for unit, body, count in zip(units, bodies, counts, strict=True):
        unit["address"], unit["size_bytes"] = address_of(body), body.size
        unit["record_count"], unit["kind"], unit["base_sequence"] = count, UnitKind.RECORDS, -1
    return units


class TestListing:
    @pytest.mark.parametrize("most_rows", [1, 2, 3, 7, 100])
    def test_comes_in_parts_and_loses_nothing(self, most_rows: int) -> None:
        counts = [3, 0, 5, 1, 12, 2]
        bodies = [
            np.frombuffer(
                b"".join(builders.record(offset_delta=n, value=b"%d" % n) for n in range(count)), np.uint8
            )
            for count in counts
        ]
        units = units_of(bodies, counts)
        parts = list(list_records(units, most_rows=most_rows))
        rows = np.concatenate([part.rows for part in parts])
        assert all(part.fault is RecordFault.SOUND for part in parts)
        assert max(len(part.rows) for part in parts) <= most_rows
        assert rows["unit"].tolist() == [place for place, count in enumerate(counts) for _ in range(count)]
        assert rows["offset"].tolist() == [n for count in counts for n in range(count)]

    @pytest.mark.parametrize("most_rows", [1, 2, 100])
    def test_of_a_bad_unit_there_is_no_row(self, most_rows: int) -> None:
        """Although its first records are sound, and however few are listed at a time."""
        good = np.frombuffer(b"".join(builders.record(offset_delta=n) for n in range(4)), np.uint8)
        bad = good.copy()
        bad[-1] = 0x7F  # the header count of the last record
        parts = list(list_records(units_of([good, bad, good], [4, 4, 4]), most_rows=most_rows))
        assert [part.bad_unit for part in parts if part.fault is not RecordFault.SOUND] == [1]
        assert {int(unit) for part in parts for unit in part.rows["unit"]} == {0, 2}
        assert sum(len(part.rows) for part in parts) == 8

    @pytest.mark.parametrize("count", [1, 2])
    def test_bytes_behind_the_last_record_are_a_fault(self, count: int) -> None:
        body = np.frombuffer(
            b"".join(builders.record(offset_delta=n) for n in range(count)) + b"\0", np.uint8
        )
        (part,) = list_records(units_of([body], [count]), most_rows=10)
        assert (part.fault, len(part.rows)) == (RecordFault.BYTES_LEFT, 0)


@pytest.mark.parametrize("alignment", range(4))
def test_bytes_are_joined_whatever_their_sizes(alignment: int) -> None:
    source = np.frombuffer(np.random.default_rng(1).bytes(4096), np.uint8)
    sizes = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 64, 200, 0, 1000]
    rows = np.zeros(len(sizes), RECORD_ROW_DTYPE)
    starts = [alignment + 13 * n for n in range(len(sizes))]
    rows["value_address"] = address_of(source) + np.array(starts)
    rows["value_bytes"] = sizes
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    expected = b"".join(
        source[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)
    )
    assert join_bytes(rows, "value", offsets).tobytes() == expected
