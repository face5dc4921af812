"""Hypothesis strategies: scans with anything in them that their types allow, and what they are scans of."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from native.raw_scan import RawScan, Stop, TxnEventKind
from recovery.load.model import FileStat, Original, ScanMode, ScanRequest
from recovery.write.scan_record import ARRAYS

INT64 = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([-1, 0, 1, 1 << 31, 1 << 40, (1 << 63) - 1])
)
FOLDERS = st.one_of(
    st.sampled_from(["t-0", "t-1", "o\udcffdd-3", "ü-0", 'q"\\-7']), st.text(min_size=1, max_size=20)
)


@st.composite
def arrays(draw: st.DrawFn, name: str, row_count: int) -> np.ndarray:
    dtype, row_shape = ARRAYS[name]
    size_bytes = row_count * dtype.itemsize * int(np.prod(row_shape, dtype=int))
    data = bytearray(draw(st.binary(min_size=size_bytes, max_size=size_bytes)))
    found = np.frombuffer(data, dtype).reshape((row_count, *row_shape)).copy()
    for field in (field for field, (kind, *_) in (dtype.fields or {}).items() if kind.kind == "b"):
        found[field] = np.frombuffer(found[field].tobytes(), np.uint8) & 1
    return found


@st.composite
def requests(draw: st.DrawFn) -> ScanRequest:
    return ScanRequest(
        part=Original(
            file=draw(FOLDERS) + ".log",
            size_bytes=draw(st.integers(0, 1 << 40)),
            origin_position=draw(st.integers(0, 1 << 40)),
        ),
        base_offset=draw(INT64),
        start_position=draw(st.integers(0, 1 << 40)),
        mode=draw(st.sampled_from(ScanMode)),
        ordinal=draw(st.integers(0, 9)),
        count=draw(st.integers(0, 9)),
    )


@st.composite
def file_stats(draw: st.DrawFn) -> FileStat:
    size_bytes, mtime_ns, inode = (draw(st.integers(0, (1 << 63) - 1)) for _ in range(3))
    return FileStat(size_bytes=size_bytes, mtime_ns=mtime_ns, inode=inode)


@st.composite
def scans(draw: st.DrawFn, part_bytes: int) -> RawScan:
    rows = {name: draw(st.sampled_from([0, 0, 1, 2, 7])) for name in ARRAYS}
    rows["epoch_positions"] = rows["epochs"]
    if not rows["producers"]:
        rows["txn_events"] = 0
    found: dict[str, Any] = {name: draw(arrays(name, count)) for name, count in rows.items()}
    events = found["txn_events"]
    for row in range(len(events)):
        events[row]["kind"] = draw(st.sampled_from(TxnEventKind))
        events[row]["producer"] = draw(st.integers(0, rows["producers"] - 1))
    return RawScan(
        stop=draw(st.sampled_from(Stop)),
        valid_bytes=draw(st.integers(0, part_bytes)),
        stop_position=draw(st.integers(0, part_bytes)),
        stop_detail=(draw(INT64), draw(INT64)),
        batch_count=draw(st.integers(0, 1 << 40)),
        legacy_batch_count=draw(st.integers(0, 1 << 40)),
        last_offset=draw(INT64),
        max_timestamp_ms=draw(INT64),
        max_timestamp_offset=draw(INT64),
        producer_end_offset=draw(INT64),
        **found,
    )


@st.composite
def scanned_segments(draw: st.DrawFn) -> tuple[str, ScanRequest, FileStat, RawScan]:
    request = draw(requests())
    return draw(FOLDERS), request, draw(file_stats()), draw(scans(request.part.size_bytes))


def assert_same_scan(found: RawScan | None, expected: RawScan) -> None:
    assert found is not None
    for name, value in expected._asdict().items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype, name
            assert other.shape == value.shape, name
            assert other.tobytes() == value.tobytes(), name
            assert other.flags.writeable
            assert other.flags.owndata
        else:
            assert other == value, name
            assert type(other) is type(value), name
