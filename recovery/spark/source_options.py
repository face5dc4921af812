"""The options of the data source, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys, load_aiven_keys
from recovery.archive.layouts.layouts import AUTO, LAYOUTS
from recovery.archive.layouts.log_windows import MOST_BATCH_BYTES
from recovery.archive.records.read_request import TASK_BYTES, Selection
from recovery.archive.records.record_columns import Corrupt, ReadOptions
from recovery.archive.records.record_schema import Include
from recovery.errors import UsageError
from segfmt.java_text import LONG_MAX

NAMES = (
    "path",
    "layout",
    "include",
    "topic",
    "partition",
    "startOffset",
    "endOffset",
    "startTime",
    "endTime",
    "isolation",
    "corrupt",
    "controlRecords",
    "metadata",
    "aivenKeys",
    "maxBatchBytes",
    "taskBytes",
    "timeIndex",
    "pushFilters",
)
"""The names of the options; Spark accepts them in upper and lower case."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_BATCH_BYTES, _MOST_BATCH_BYTES = 1 << 16, 1 << 30

_Value = TypeVar("_Value", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the options say.

    Attributes:
        path: URL of the archive.
        layout: its name, or auto.
        metadata: URLs of log dirs of the broker that made it.
        takes_filters: whether Spark may push filters down.
    """

    path: str
    layout: str = AUTO
    keys: AivenKeys = NO_KEYS
    metadata: tuple[str, ...] = ()
    read: ReadOptions
    selection: Selection
    takes_filters: bool = False

    @classmethod
    def read_from(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return what *options* say.

        Raises:
            UsageError: an unknown option, or an invalid value.
        """
        reader = _Options(options)
        path = reader.text("path")
        if not path:
            raise UsageError("path: name the archive by .load(URL), or by the option `path`")
        layout = reader.one_of("layout", (AUTO, *LAYOUTS), AUTO)
        isolation = reader.one_of("isolation", ("read_uncommitted", "read_committed"), "read_uncommitted")
        partitions = reader.several("partition")
        topics = reader.several("topic")
        return cls(
            path=path,
            layout=layout,
            keys=reader.keys(),
            metadata=reader.several("metadata"),
            read=ReadOptions(
                include=reader.member("include", Include, Include.RECORDS),
                corrupt=reader.member("corrupt", Corrupt, Corrupt.FAIL),
                is_committed=isolation == "read_committed",
                has_control_records=reader.flag("controlRecords", is_default=False),
                lowest_offset=reader.offset("startOffset"),
                highest_offset=_before(reader.offset("endOffset")),
                lowest_timestamp_ms=reader.time_ms("startTime"),
                highest_timestamp_ms=_before(reader.time_ms("endTime")),
                most_batch_bytes=reader.number(
                    "maxBatchBytes", MOST_BATCH_BYTES, _LEAST_BATCH_BYTES, _MOST_BATCH_BYTES
                ),
            ),
            selection=Selection(
                topics=frozenset(topics) if topics else None,
                partitions=frozenset(map(_partition, partitions)) if partitions else None,
                task_bytes=reader.number("taskBytes", TASK_BYTES, 1, 1 << 40),
                uses_time_index=reader.flag("timeIndex", is_default=True),
            ),
            takes_filters=reader.flag("pushFilters", is_default=False),
        )


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known_names = {name.lower() for name in NAMES}
        for name in options:
            if name.lower() not in known_names:
                raise UsageError(f"{name}: no option of this source; the options are {', '.join(NAMES)}")

    def text(self, name: str) -> str:
        return (self._values.get(name.lower()) or "").strip()

    def several(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> str:
        value = self.text(name) or default
        if value not in values:
            raise UsageError(f"{name}={value}: expected one of {', '.join(values)}")
        return value

    def member(self, name: str, kind: type[_Value], default: _Value) -> _Value:
        names = tuple(value.value for value in kind)
        return kind(self.one_of(name, names, default.value))

    def flag(self, name: str, *, is_default: bool) -> bool:
        return self.one_of(name, ("true", "false"), "true" if is_default else "false") == "true"

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name) or str(default)
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise UsageError(f"{name}={text}: expected a number from {least} to {most}")
        return int(text)

    def offset(self, name: str) -> int | None:
        return self.number(name, 0, 0, LONG_MAX) if self.text(name) else None

    def time_ms(self, name: str) -> int | None:
        """Return a time, in ISO 8601 or in ms since the epoch, rounded up to ms."""
        text = self.text(name)
        if not text or (text.isascii() and text.isdigit()):
            return int(text) if text else None
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{name}={text}: expected a time such as 2026-11-22T06:00:00Z, or ms since the epoch"
            ) from None
        utc = time.replace(tzinfo=time.tzinfo or UTC)
        return -((_EPOCH - utc) // timedelta(milliseconds=1))

    def keys(self) -> AivenKeys:
        pairs = [part.partition("=") for part in self.several("aivenKeys")]
        return load_aiven_keys({key_id: path for key_id, _, path in pairs}) if pairs else NO_KEYS


def _before(end: int | None) -> int | None:
    return None if end is None else end - 1


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"partition={text}: expected numbers separated by commas")
    return int(text)
