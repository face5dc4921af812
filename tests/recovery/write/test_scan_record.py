"""Scans as bytes and back, and bytes that are no scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.raw_scan import RawScan, TxnEventKind
from recovery.load.model import FileStat, Original, ScanMode, ScanRequest
from recovery.write.journal_format import decode_json, encode_json
from recovery.write.scan_record import ARRAYS, decode_scan, encode_scan, is_scan_key, scan_key
from tests.logs.scan_strategies import assert_same_scan, requests, scans
from tests.logs.strategies import segments
from tests.native.scanning import scan_segment

REQUEST = ScanRequest(part=Original(file="a.log", size_bytes=1000), base_offset=5)


def a_scan(**changes: Any) -> RawScan:
    found = {name: np.zeros((2, *shape), dtype) for name, (dtype, shape) in ARRAYS.items()}
    found["txn_events"]["kind"] = TxnEventKind.BEGIN
    integers = dict.fromkeys(RawScan._fields[:9], 1) | {"stop_detail": (1, 2), "producer_end_offset": 3}
    return RawScan(**(integers | found | changes))


def encoded(scan: RawScan) -> tuple[dict[str, Any], bytes]:
    head, pieces = encode_scan(scan)
    return head, b"".join(pieces)


def decoded(head: Any, body: bytes, request: ScanRequest = REQUEST) -> RawScan | None:
    return decode_scan(head, memoryview(body), request)


@given(st.data())
def test_a_scan_comes_back_as_it_was(data: st.DataObject) -> None:
    request = data.draw(requests())
    scan = data.draw(scans(request.part.size_bytes))
    head, body = encoded(scan)
    assert_same_scan(decoded(decode_json(encode_json(head)), body, request), scan)


@settings(max_examples=50)
@given(segments())
def test_scans_of_segments_come_back(segment: tuple[int, bytes]) -> None:
    """Whatever the kernel says of a segment is taken for a scan of it."""
    base_offset, content = segment
    scan = scan_segment(np.frombuffer(content, np.uint8), base_offset=base_offset)
    head, body = encoded(scan)
    request = ScanRequest(part=Original(file="a.log", size_bytes=len(content)), base_offset=base_offset)
    assert_same_scan(decoded(head, body, request), scan)


class TestDamage:
    def test_the_intact_one_is_read(self) -> None:
        assert decoded(*encoded(a_scan())) is not None

    @pytest.mark.parametrize("name", ["valid_bytes", "stop_position"])
    @pytest.mark.parametrize("value", [-1, 1001])
    def test_a_position_outside_the_segment(self, name: str, value: int) -> None:
        assert decoded(*encoded(a_scan(**{name: value}))) is None

    @pytest.mark.parametrize("value", [None, "1", 1.0, True, [1], 1 << 63, -(1 << 63) - 1])
    def test_what_is_no_64_bit_integer(self, value: object) -> None:
        head, body = encoded(a_scan())
        for name in (name for name in head if name not in ("rows", "stop_detail")):
            assert decoded(head | {name: value}, body) is None, name
        assert decoded(head | {"stop_detail": [1, value]}, body) is None

    @pytest.mark.parametrize("details", [None, [], [1], [1, 2, 3], {"1": 2}, 1])
    def test_details_that_are_not_two(self, details: object) -> None:
        head, body = encoded(a_scan())
        assert decoded(head | {"stop_detail": details}, body) is None

    def test_a_stop_that_there_is_not(self) -> None:
        head, body = encoded(a_scan())
        assert decoded(head | {"stop": 99}, body) is None

    @pytest.mark.parametrize("count", [-1, 0, 1, 3, 1 << 62, 1 << 64, True, None, "2"])
    def test_row_counts_that_do_not_fit_the_bytes(self, count: object) -> None:
        head, body = encoded(a_scan())
        for name in ARRAYS:
            assert decoded(head | {"rows": head["rows"] | {name: count}}, body) is None, name

    @pytest.mark.parametrize("rows", [None, [], {}, {"producers": 2}])
    def test_rows_of_other_arrays(self, rows: object) -> None:
        head, body = encoded(a_scan())
        assert decoded(head | {"rows": rows}, body) is None

    def test_a_body_of_every_other_length(self) -> None:
        head, body = encoded(a_scan())
        assert all(decoded(head, body[:size]) is None for size in range(len(body)))
        assert decoded(head, body + b"\0") is None

    @pytest.mark.parametrize(
        ("field", "value"), [("producer", -1), ("producer", 2), ("kind", 0), ("kind", 6)]
    )
    def test_an_event_of_nobody_or_of_no_kind(self, field: str, value: int) -> None:
        scan = a_scan()
        scan.txn_events[field][1] = value
        assert decoded(*encoded(scan)) is None

    def test_epochs_without_their_positions(self) -> None:
        assert decoded(*encoded(a_scan(epoch_positions=np.zeros(1, np.int64)))) is None


class TestKey:
    STAT = FileStat(size_bytes=1000, mtime_ns=7, inode=8)

    def test_everything_that_a_scan_depends_on_is_in_it(self) -> None:
        keys = [
            scan_key("t-0", REQUEST, self.STAT),
            scan_key("t-1", REQUEST, self.STAT),
            *(
                scan_key("t-0", ScanRequest(part=part, base_offset=5), self.STAT)
                for part in (
                    Original(file="b.log", size_bytes=1000),
                    Original(file="a.log", size_bytes=999),
                    Original(file="a.log", size_bytes=1000, origin_position=1),
                )
            ),
            scan_key("t-0", ScanRequest(part=REQUEST.part, base_offset=6), self.STAT),
            scan_key("t-0", ScanRequest(part=REQUEST.part, base_offset=5, start_position=1), self.STAT),
            scan_key("t-0", ScanRequest(part=REQUEST.part, base_offset=5, mode=ScanMode.INDEX), self.STAT),
            *(
                scan_key("t-0", REQUEST, FileStat(size_bytes=size, mtime_ns=mtime, inode=inode))
                for size, mtime, inode in ((999, 7, 8), (1000, 6, 8), (1000, 7, 9))
            ),
        ]
        assert len({encode_json(key) for key in keys}) == len(keys)
        assert all(is_scan_key(key) for key in keys)

    def test_the_place_in_the_walk_is_not(self) -> None:
        later = ScanRequest(part=REQUEST.part, base_offset=5, ordinal=3, count=4)
        assert scan_key("t-0", later, self.STAT) == scan_key("t-0", REQUEST, self.STAT)

    @pytest.mark.parametrize("found", [None, [], "x", {"a": None}, {"a": 1.5}, {"a": []}, {"a": True}])
    def test_what_is_none(self, found: object) -> None:
        assert not is_scan_key(found)
