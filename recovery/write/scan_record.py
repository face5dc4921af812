"""The scan of a segment as bytes: what was scanned, and the `RawScan` itself. Opens nothing.

    key     which segment, which bytes of it, how; and which file it was: size, mtime, ctime, inode
    scan    the integers of the scan, and how many rows each array has
    body    the arrays, one after another, little-endian, in the order of ARRAYS

Bytes are checked against the dtypes and shapes that `native.raw_scan` declares. If they do not fit, or could not come
from a scan of the segment, they do not count as a scan: None.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from native.raw_scan import PRODUCER_DTYPE, TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE, RawScan, Stop, TxnEventKind
from recovery.load.model import FileStat, ScanRequest
from recovery.write.journal_format import Document
from segfmt.java_text import LONG_MAX, LONG_MIN

ARRAYS: Final[dict[str, tuple[np.dtype[Any], tuple[int, ...]]]] = {
    "offset_index": (np.dtype("<i4"), (2,)),
    "time_index": (TIME_INDEX_ROW_DTYPE, ()),
    "epochs": (np.dtype("<i8"), (2,)),
    "epoch_positions": (np.dtype("<i8"), ()),
    "producers": (PRODUCER_DTYPE, ()),
    "txn_events": (TXN_EVENT_DTYPE, ()),
}
"""The arrays of a scan in the order of the file: dtype, and the shape of a row."""

_INTEGERS: Final = (
    "stop",
    "valid_bytes",
    "stop_position",
    "batch_count",
    "legacy_batch_count",
    "last_offset",
    "max_timestamp_ms",
    "max_timestamp_offset",
    "producer_end_offset",
    "txns_in_order",
    "settled_txn_count",
    "first_settled_offset",
    "last_settled_offset",
    "gap_count",
)
_POSITIONS: Final = ("valid_bytes", "stop_position")
_COUNTS: Final = ("batch_count", "legacy_batch_count", "settled_txn_count", "gap_count")


def scan_key(folder: str, request: ScanRequest, stat: FileStat) -> dict[str, Any]:
    """Return what a scan depends on, besides the settings of the log; if all of it is the same, so is the scan."""
    return {
        "folder": folder,
        "file": request.part.file,
        "base_offset": request.base_offset,
        "start_position": request.start_position,
        "mode": request.mode.value,
        "part_bytes": request.part.size_bytes,
        "origin_position": request.part.origin_position,
        "size_bytes": stat.size_bytes,
        "mtime_ns": stat.mtime_ns,
        "ctime_ns": stat.ctime_ns,
        "inode": stat.inode,
    }


def is_scan_key(key: object) -> bool:
    """Whether *key* may be a `scan_key`: a flat object of strings and integers."""
    return isinstance(key, dict) and all(type(value) in (str, int) for value in key.values())


def encode_scan(scan: RawScan) -> tuple[dict[str, Any], list[memoryview]]:
    """Return the integers of *scan* for the head of its record, and its arrays, as bytes, for the body.

    The arrays are not copied: they must not be modified while the record is written.
    """
    head: dict[str, Any] = {name: int(getattr(scan, name)) for name in _INTEGERS}
    head["stop_detail"] = [int(detail) for detail in scan.stop_detail]
    arrays = {name: np.ascontiguousarray(getattr(scan, name), dtype) for name, (dtype, _) in ARRAYS.items()}
    head["rows"] = {name: len(array) for name, array in arrays.items()}
    return head, [array.reshape(-1).view(np.uint8).data for array in arrays.values()]


def decode_scan(head: Document, body: memoryview, request: ScanRequest) -> RawScan | None:
    """Return the scan in a record's *head* and *body*, None if *request* could not have given it.

    The arrays are writable copies.
    """
    integers = _integers(head)
    arrays = _arrays(head.get("rows"), body)
    if integers is None or arrays is None or len(arrays["epochs"]) != len(arrays["epoch_positions"]):
        return None
    if any(not 0 <= integers[name] <= request.part.size_bytes for name in _POSITIONS):
        return None
    if any(integers[name] < 0 for name in _COUNTS) or not _are_events_sound(arrays):
        return None
    first, second = head["stop_detail"]
    in_order = bool(integers.pop("txns_in_order"))
    try:
        stop = Stop(integers.pop("stop"))
    except ValueError:
        return None
    return RawScan(
        stop=stop,
        stop_detail=(first, second),
        txns_in_order=in_order,
        **integers,  # type: ignore[arg-type]  # by name
        **arrays,  # type: ignore[arg-type]  # by name
    )


def _integers(head: Document) -> dict[str, int] | None:
    details = head.get("stop_detail")
    if not isinstance(details, list) or len(details) != 2:
        return None
    values = [*(head.get(name) for name in _INTEGERS), *details]
    if any(type(value) is not int or not LONG_MIN <= value <= LONG_MAX for value in values):
        return None
    return {name: head[name] for name in _INTEGERS}


def _arrays(rows: object, body: memoryview) -> dict[str, np.ndarray[Any, np.dtype[Any]]] | None:
    if not isinstance(rows, dict) or set(rows) != set(ARRAYS):
        return None
    arrays = {}
    position = 0
    for name, (dtype, row_shape) in ARRAYS.items():
        count = rows[name]
        if type(count) is not int or count < 0:
            return None
        size = count * dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
        if size > len(body) - position:
            return None
        array = np.frombuffer(body[position : position + size], dtype)
        arrays[name] = array.reshape((count, *row_shape)).astype(dtype.newbyteorder("="), copy=True)
        position += size
    return arrays if position == len(body) else None


def _are_events_sound(arrays: dict[str, np.ndarray[Any, np.dtype[Any]]]) -> bool:
    """Whether each event has a kind and a producer that exist."""
    events, producer_count = arrays["txn_events"], len(arrays["producers"])
    kinds = np.array([kind.value for kind in TxnEventKind], np.uint8)
    is_of_producer = (events["producer"] >= 0) & (events["producer"] < producer_count)
    return bool(np.isin(events["kind"], kinds).all() and is_of_producer.all())
