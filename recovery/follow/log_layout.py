"""Lines of a log as layouts and collectors print them: what was logged, and when.

A line is text with anything around the message (log4j patterns, `kubectl logs --timestamps`, journalctl, CRI), or one
JSON object (log4j2's JsonTemplateLayout with its templates, ECS, Docker's json-file, `journalctl -o json`), also one
inside the other.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?![\d:])",
)
_STAMP_CHARS = 240
_MESSAGE_KEYS = ("message", "msg", "@message", "MESSAGE", "short_message", "log")
_TIME_KEYS = ("@timestamp", "timestamp", "time", "ts", "instant", "timeMillis", "__REALTIME_TIMESTAMP")
_MOST_NESTED = 4
_MOST_NANOSECONDS = 1e20


class Logged(NamedTuple):
    """What a line holds.

    Attributes:
        text: the message, or the whole line if it is no JSON.
        time_s: when it was logged, seconds since the epoch, None where the line does not say. Without a time zone in
            the line, as if it were UTC.
        has_zone: whether the line gives the time zone.
    """

    text: str
    time_s: float | None
    has_zone: bool


def read_line(line: bytes) -> Logged:
    """Return what *line* holds, whatever its bytes are."""
    text = line.decode("utf-8", "surrogateescape")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    return _read(text.rstrip("\r\n"), 0)


def _read(text: str, depth: int) -> Logged:
    head = text[:_STAMP_CHARS]
    fields = _json_of(text) if depth < _MOST_NESTED and "{" in head else None
    if fields is None:
        return Logged(text, *_stamp(head))
    message = next((fields[key] for key in _MESSAGE_KEYS if isinstance(fields.get(key), str)), None)
    if message is None:
        return Logged(text, *_stamp(head))
    inner = _read(message, depth + 1)
    if inner.has_zone:
        return inner
    time_s = next((value for key in _TIME_KEYS if (value := _time_of(fields.get(key))) is not None), None)
    if time_s is not None:
        return Logged(inner.text, *time_s)
    return inner


def _json_of(text: str) -> dict[str, Any] | None:
    """Return the JSON object that ends *text*, after what a collector has put in front of it."""
    start = text.find("{")
    if not text.rstrip().endswith("}"):
        return None
    try:
        found = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _time_of(value: Any) -> tuple[float, bool] | None:  # noqa: ANN401 - whatever a JSON object holds
    """Return the time that a field gives, and whether it is one of a known zone."""
    match value:
        case str() if value.isdecimal() and len(value) < 20:
            return _scaled(float(value)), True
        case bool():
            return None
        case int() | float() if 0 <= value < _MOST_NANOSECONDS:
            return _scaled(float(value)), True
        case str():
            time_s, has_zone = _stamp(value)
            return None if time_s is None else (time_s, has_zone)
        case {"epochSecond": int(seconds), "nanoOfSecond": int(nanoseconds)}:
            return seconds + nanoseconds / 1e9, True
        case _:
            return None


def _scaled(number: float) -> float:
    """Return a time since the epoch in seconds, whether it is given in seconds, ms, µs or ns."""
    while number > 1e11:
        number /= 1000
    return number


def _stamp(head: str) -> tuple[float | None, bool]:
    """Return the first time in *head* that has a zone, or else the first one."""
    first: float | None = None
    for date, clock, fraction, zone in _STAMP.findall(head):
        try:
            moment = datetime.fromisoformat(f"{date}T{clock}{zone or 'Z'}").astimezone(UTC)
        except ValueError:
            continue
        time_s = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
        if zone:
            return time_s, True
        first = time_s if first is None else first
    return first, False
