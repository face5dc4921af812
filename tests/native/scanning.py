"""How the tests of the scan of a segment run it, beside its slow twin, and the bytes that they share."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import numpy.typing as npt

from native.cpu_path import CpuPath
from native.raw_scan import RawScan
from native.segment_scan import SegmentScanner
from tests.logs import builders, reference
from tests.logs.builders import data_batch, record_batch

T = builders.BASE_TIMESTAMP_MS


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def scan_segment(data: npt.NDArray[np.uint8], *, start_position: int = 0, **options: Any) -> RawScan:
    """Scan a segment whose bytes are all there.

    *data* is uint8, shape (n,), C-contiguous: the whole file. It is not written and may be read-only.
    *options* are those of `SegmentScanner`.

    Returns:
        The scan; `stop` is CONTROL_PAUSED if a control batch was met that needs decoding.
    """
    scanner = SegmentScanner(size_bytes=data.size, start_position=start_position, **options)
    if not scanner.finished:
        scanner.feed(data[start_position:])
    return scanner.result()


def scan(
    data: bytes,
    cpu_path: CpuPath | None = None,
    *,
    window_bytes: list[int] | None = None,
    slack_bytes: int = 0,
    **options: Any,
) -> reference.Scan:
    """Scan *data* in windows of random sizes of *window_bytes* (whole without), the twin's decoder helping
    out."""
    scanner = SegmentScanner(size_bytes=len(data), cpu_path=cpu_path, **options)
    array, source = as_array(data), random.Random(len(data))
    while not scanner.finished:
        size = len(data) if window_bytes is None else max(scanner.needed_bytes, source.choice(window_bytes))
        slack = min(slack_bytes, scanner.position)
        before = scanner.position
        assert 0 < scanner.needed_bytes <= len(data) - before
        scanner.feed(array[before - slack : before + size], slack)
        if scanner.paused_control:
            batch = data[scanner.control_position : scanner.position]
            scanner.resume_control(*reference.decode_control(batch))
        assert scanner.finished or scanner.position > before or window_bytes is not None
    assert scanner.needed_bytes == 0
    return reference.plain(scanner.result())


def assert_same(data: bytes, cpu_path: CpuPath, **options: Any) -> reference.Scan:
    expected = reference.scan(data, **options)
    for windows in (None, [1, 61, 200, 1000]):
        found = scan(data, cpu_path, window_bytes=windows, **options)
        for field in dataclasses.fields(reference.Scan):
            assert getattr(found, field.name) == getattr(expected, field.name), (field.name, windows)
    return expected


def three_batches() -> tuple[bytes, int, int]:
    """(segment, where its second batch begins and ends)"""
    batches = [
        data_batch(10, 2, producer_id=4, producer_epoch=1, base_sequence=0, leader_epoch=3),
        data_batch(12, 3, producer_id=4, producer_epoch=1, base_sequence=2, leader_epoch=3, value_bytes=400),
        data_batch(15, 1, producer_id=4, producer_epoch=1, base_sequence=5, leader_epoch=3),
    ]
    return b"".join(batches), len(batches[0]), len(batches[0]) + len(batches[1])


def idempotent(offset: int, producer_id: int, epoch: int = 0, **fields: Any) -> bytes:
    return data_batch(offset, producer_id=producer_id, producer_epoch=epoch, **fields)


def odd_marker(offset: int, **fields: Any) -> bytes:
    """A marker whose timestamp delta takes two bytes: not the shape that the kernel decodes."""
    records = builders.control_record(builders.COMMIT, coordinator_epoch=3, timestamp_delta_ms=1000)
    return record_batch(
        base_offset=offset, records=records, control=True, producer_id=6, producer_epoch=2, **fields
    )
