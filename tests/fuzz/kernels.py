"""Targets: the scan and the checksum of every CPU path, between pages that must not be touched, against slow twins."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from native import cpu
from native.cpu_path import CpuPath
from native.crc32c import crc32c
from native.log_checks import LOG_ROW_DTYPE, check_logs
from native.segment_scan import SegmentScanner
from tests.fuzz.choices import Choices
from tests.fuzz.guard_pages import GuardedPages
from tests.fuzz.records import BATCHES, MESSAGES
from tests.fuzz.seal import seal_batches
from tests.fuzz.targets import GOLDEN, Target
from tests.logs import builders, reference
from tests.native.log_verify import assert_as_verified

LONGEST_BYTES = 8192
_MOST_SLACK = 256


@functools.cache
def _pages() -> GuardedPages:
    return GuardedPages(2 * LONGEST_BYTES + _MOST_SLACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    data: bytes
    options: dict[str, Any]
    window_bytes: tuple[int, ...]
    slack: int
    at_start: bool


def _case(choices: Choices, *, is_sealed: bool) -> _Case:
    options: dict[str, Any] = {
        "base_offset": choices.pick([0, 100, -7, 1 << 40, -(1 << 63), (1 << 63) - 5]),
        "index_interval_bytes": choices.pick([0, 100, 700, 4096]),
        "max_index_entries": choices.pick([1310720, 0, 1, 3]),
        "max_time_index_entries": choices.pick([873813, 1, 2, 5]),
        "check_crc": not choices.is_rare(4),
        "build_index": not choices.is_rare(6),
    }
    windows = tuple(choices.pick([61, 1, 17, 200, 1000, LONGEST_BYTES]) for _ in range(2))
    slack, at_start = choices.pick([0, 1, 64, _MOST_SLACK]), choices.is_rare(2)
    data = choices.rest()
    return _Case(
        data=seal_batches(data) if is_sealed else data,
        options=options,
        window_bytes=windows,
        slack=slack,
        at_start=at_start,
    )


CASE_HEADER = bytes(11)
"""Zeros for the decisions of `_case`; the bytes of the log follow."""


def scan_guarded(case: _Case, path: CpuPath, *, in_windows: bool) -> reference.Scan:
    """Scan the case's log, each window between pages that cannot be touched."""
    data, turn = case.data, 0
    scanner = SegmentScanner(size_bytes=len(data), cpu_path=path, **case.options)
    while not scanner.finished:
        before, needed = scanner.position, scanner.needed_bytes
        assert 0 < needed <= len(data) - before
        size = max(needed, case.window_bytes[turn % 2]) if in_windows else len(data)
        window = _pages().place(data[before : before + size], slack=case.slack, at_start=case.at_start)
        scanner.feed(window, case.slack)
        turn += 1
        if scanner.paused_control:
            batch = data[scanner.control_position : scanner.position]
            scanner.resume_control(*reference.decode_control(batch))
        assert scanner.finished or scanner.position > before or scanner.needed_bytes > needed
    return reference.plain(scanner.result())


def _scan(data: bytes, *, is_sealed: bool) -> None:
    case = _case(Choices(data), is_sealed=is_sealed)
    expected = reference.scan(case.data, **case.options)
    for path in cpu.supported():
        for in_windows in (False, True):
            found = scan_guarded(case, path, in_windows=in_windows)
            for field in fields(reference.Scan):
                left, right = getattr(found, field.name), getattr(expected, field.name)
                assert left == right, f"{path.name}, windows {in_windows}: {field.name} {left}, twin {right}"


def _scan_of_bytes(data: bytes) -> None:
    _scan(data, is_sealed=False)


def _scan_of_batches(data: bytes) -> None:
    _scan(data, is_sealed=True)


def _sound_logs(data: bytes) -> None:
    """What the kernel calls sound the ordinary check finds nothing in, and every path says the same."""
    case = _case(Choices(data), is_sealed=True)
    base = max(0, case.options["base_offset"])
    following = min(base + 5, 2**63 - 1) if case.at_start else None
    found = []
    for path in cpu.supported():
        logs = np.zeros(1, LOG_ROW_DTYPE)
        logs["size_bytes"], logs["base_offset"] = len(case.data), base
        logs["next_base_offset"] = -1 if following is None else following
        window = _pages().place(case.data, slack=case.slack, at_start=case.at_start)
        assert check_logs(window, logs, slack=case.slack, cpu_path=path) == logs["is_sound"][0]
        found.append(logs[0])
    assert len({bool(one["is_sound"]) for one in found}) == 1
    if found[0]["is_sound"]:
        for one in found:
            assert_as_verified(one, (case.data, base, following))


def _checksums(data: bytes) -> None:
    expected = reference.crc32c(data)
    for path in cpu.supported():
        for at_start in (False, True):
            view = _pages().place(data, at_start=at_start)
            assert crc32c(view, cpu_path=path) == expected, path.name
    choices = Choices(data)
    half = choices.below(len(data) + 1)
    view = _pages().place(data[half:])
    assert crc32c(view, reference.crc32c(data[:half])) == expected


def _logs() -> list[bytes]:
    def golden(name: str) -> bytes:
        return (GOLDEN / name).read_bytes()

    whole = [b"".join(map(golden, BATCHES)), b"".join(map(golden, MESSAGES))]
    producer = [
        builders.data_batch(i, producer_id=i % 3, producer_epoch=0, base_sequence=i, transactional=i % 2 == 0)
        for i in range(6)
    ]
    markers = [builders.marker_batch(6 + i, producer_id=i) for i in range(3)]
    whole += [
        b"".join([*producer, *markers]),
        b"".join(producer) + bytes(100),
        builders.data_batch(5, magic=3),
    ]
    return [CASE_HEADER + log for log in whole if len(log) < LONGEST_BYTES]


_INSTRUMENTS = ("tests.logs.reference", "native.segment_scan")

TARGETS = [
    Target(
        name="scan_of_bytes",
        run=_scan_of_bytes,
        instruments=_INSTRUMENTS,
        more_seeds=_logs,
        longest_bytes=LONGEST_BYTES,
    ),
    Target(
        name="scan_of_batches",
        run=_scan_of_batches,
        instruments=_INSTRUMENTS,
        more_seeds=_logs,
        longest_bytes=LONGEST_BYTES,
    ),
    Target(
        name="sound_logs",
        run=_sound_logs,
        instruments=("native.log_checks", "recovery.check.segment", "recovery.check.rules.batches"),
        more_seeds=_logs,
        longest_bytes=LONGEST_BYTES,
    ),
    Target(
        name="kernel_checksum",
        run=_checksums,
        instruments=("tests.logs.reference",),
        more_seeds=lambda: [bytes(range(256)) * n for n in (1, 5, 31)],
        longest_bytes=LONGEST_BYTES,
    ),
]
