"""Filters of a query as what need not be read. Spark filters each row again, so it is safe to leave out less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

from recovery.archive.records.read_options import ReadOptions
from recovery.archive.records.read_request import Selection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS = frozenset({"offset", "base_offset", "last_offset"})
_TIMESTAMPS = frozenset({"timestamp", "max_timestamp"})
_EQUAL = (datasource.EqualTo, datasource.EqualNullSafe)
_LEAST = (datasource.GreaterThan, datasource.GreaterThanOrEqual)
_MOST = (datasource.LessThan, datasource.LessThanOrEqual)


def narrowed(
    read: ReadOptions, selection: Selection, filters: Iterable[Filter]
) -> tuple[ReadOptions, Selection]:
    """Return *read* and *selection* without what *filters* exclude.

    Topics, partitions, and the ranges of offsets and timestamps.
    """
    for query_filter in filters:
        if (
            not isinstance(query_filter, (*_EQUAL, *_LEAST, *_MOST, datasource.In))
            or len(query_filter.attribute) != 1
        ):
            continue
        name, values = query_filter.attribute[0], _values(query_filter)
        if not values or any(value is None for value in values):
            continue
        if name in ("topic", "partition") and isinstance(query_filter, (*_EQUAL, datasource.In)):
            selection = _chosen(selection, name, values)
        elif name in _OFFSETS:
            lowest = None if isinstance(query_filter, _MOST) else min(values)
            highest = None if isinstance(query_filter, _LEAST) else max(values)
            read = _bounded(read, lowest, highest)
        elif name in _TIMESTAMPS and all(isinstance(value, datetime) and value.tzinfo for value in values):
            times_ms = [(value - _EPOCH) // timedelta(milliseconds=1) for value in values]
            lowest = None if isinstance(query_filter, _MOST) else min(times_ms)
            highest = None if isinstance(query_filter, _LEAST) else max(times_ms)
            read = _timed(read, lowest, highest)
    return read, selection


def _values(query_filter: Any) -> list[Any]:  # noqa: ANN401 - a filter with a value, or with several
    return list(query_filter.value) if isinstance(query_filter, datasource.In) else [query_filter.value]


def _chosen(selection: Selection, name: str, values: list[Any]) -> Selection:
    if name == "topic":
        topics = frozenset(map(str, values))
        return replace(selection, topics=topics if selection.topics is None else topics & selection.topics)
    numbers = frozenset(map(int, values))
    partitions = selection.partitions
    return replace(selection, partitions=numbers if partitions is None else numbers & partitions)


def _bounded(read: ReadOptions, lowest: int | None, highest: int | None) -> ReadOptions:
    lows = [value for value in (read.lowest_offset, lowest) if value is not None]
    highs = [value for value in (read.highest_offset, highest) if value is not None]
    return replace(read, lowest_offset=max(lows, default=None), highest_offset=min(highs, default=None))


def _timed(read: ReadOptions, lowest: int | None, highest: int | None) -> ReadOptions:
    lows = [value for value in (read.lowest_timestamp_ms, lowest) if value is not None]
    highs = [value for value in (read.highest_timestamp_ms, highest) if value is not None]
    return replace(
        read, lowest_timestamp_ms=max(lows, default=None), highest_timestamp_ms=min(highs, default=None)
    )
