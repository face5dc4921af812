"""Bytes, rates and times as text for people. For displays only; reports carry plain numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size_bytes: float) -> str:
    """Return *size_bytes* in a binary unit: "512 B", "1.50 KiB", "12.3 GiB", "123 GiB"."""
    value = float(size_bytes)
    for unit in _BYTE_UNITS:
        # 999.5 would be printed as "1000".
        if abs(value) < 999.5 or unit == _BYTE_UNITS[-1]:
            break
        value /= 1024
    if unit == "B" or abs(value) >= 99.95:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}" if abs(value) >= 9.995 else f"{value:.2f} {unit}"


def exact_bytes_text(size_bytes: int) -> str:
    """Return *size_bytes* to the byte: "15,417 bytes", from 1 MiB on "1.20 MiB (1,258,291 bytes)"."""
    exact = f"{size_bytes:,} byte{'' if size_bytes == 1 else 's'}"
    return exact if size_bytes < 1 << 20 else f"{bytes_text(size_bytes)} ({exact})"


def time_text(time_ms: int) -> str:
    """Return a moment to the second: "2026-11-12T14:19:06Z"."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return *count* things: "1 segment", "2,000 segments"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def partitions_text(names: Sequence[str], most: int | None) -> str:
    """Return partitions by name: "plain-0", "23 partitions (a-0, a-1, b-0 and 20 more)"; all of them without *most*."""
    if len(names) == 1:
        return names[0]
    return f"{len(names):,} partitions ({listed_text(names, most)})"


def listed_text(names: Sequence[str], most: int | None) -> str:
    """Return *names* as text, and how many there are beyond the first *most*: "a, b, c and 1,200 more"."""
    shown = names[:most]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def rate_text(bytes_per_second: float | None) -> str:
    """Return a rate as "1.20 GiB/s"; a dash if it is unknown."""
    return "-" if bytes_per_second is None else f"{bytes_text(bytes_per_second)}/s"


def duration_text(seconds: float) -> str:
    """Return a time as "12s", "3m 05s", "1h 02m", "2d 03h": rounded up, so that "0s" means none."""
    whole_seconds = max(int(-(-seconds // 1)), 0)
    if whole_seconds < 60:
        return f"{whole_seconds}s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60}m {whole_seconds % 60:02d}s"
    minutes = whole_seconds // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    return f"{minutes // (24 * 60)}d {minutes // 60 % 24:02d}h"


def offsets_text(log_start_offset: int, log_end_offset: int) -> str:
    """Return which offsets a log has: the last one is before its end."""
    if log_end_offset <= log_start_offset:
        return f"empty, the next offset is {log_end_offset}"
    return f"offsets {log_start_offset} to {log_end_offset - 1}"
