"""The options of Spark's own Kafka source, so that a job for a topic reads its archive.

They mean what they mean there. Whoever chooses partitions by `subscribe`, `subscribePattern` or `assign` also gets the
columns of that source. What connects to a broker means nothing here and is ignored.

Spark: KafkaSourceProvider, KafkaOffsetReaderAdmin, JsonUtils.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from recovery.archive.records.offset_limits import EARLIEST, LATEST, OffsetLimits, TopicPartition
from recovery.errors import UsageError
from recovery.spark.option_reader import OptionReader
from segfmt.java_text import LONG_MAX

CHOICES: Final = ("subscribe", "subscribePattern", "assign")
STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Of several the first one counts, as in Spark."""
ISOLATION: Final = "kafka.isolation.level"
NAMES: Final = (
    *CHOICES,
    *STARTS,
    *ENDS,
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    ISOLATION,
)
_IGNORED: Final = (
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_OURS: Final = (
    (CHOICES, ("topic", "partition")),
    (STARTS, ("startOffset", "startTime")),
    (ENDS, ("endOffset", "endTime")),
    ((ISOLATION,), ("isolation",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaChoice:
    """Which partitions are read, from where to where; None for what the options do not say.

    Attributes:
        topics: by `subscribe`.
        pattern: by `subscribePattern`: the whole name of a topic.
        assigned: by `assign`.
        starts, ends: of reading.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    assigned: frozenset[TopicPartition] | None = None
    starts: OffsetLimits | None = None
    ends: OffsetLimits | None = None


def is_ignored(name: str) -> bool:
    """Return whether an option of Spark's Kafka source means nothing for an archive."""
    lowered = name.lower()
    return lowered in {one.lower() for one in _IGNORED} or (
        lowered.startswith("kafka.") and lowered != ISOLATION
    )


def read_choice(reader: OptionReader) -> KafkaChoice | None:
    """Return what is chosen by Kafka's options, None if they choose no partitions.

    Raises:
        UsageError: an invalid value, or options of both styles for one thing.
    """
    _refuse_both_styles(reader)
    given = [name for name in CHOICES if reader.text(name)]
    if not given:
        lost = [name for name in (*STARTS, *ENDS, "includeHeaders") if reader.text(name)]
        if lost:
            raise UsageError(
                f"{lost[0]}: belongs to subscribe, subscribePattern and assign: give one of them, or use startOffset, "
                "endOffset, startTime and endTime"
            )
        return None
    if len(given) > 1:
        raise UsageError(f"{', '.join(given)}: give one of them")
    topics, pattern = reader.several("subscribe"), reader.text("subscribePattern")
    return KafkaChoice(
        topics=frozenset(topics) if topics else None,
        pattern=_pattern(pattern) if pattern else None,
        assigned=_assigned(reader.text("assign")) if reader.text("assign") else None,
        starts=_starts(reader),
        ends=_limits(reader, ENDS, needs_match=False),
    )


def _refuse_both_styles(reader: OptionReader) -> None:
    for theirs, ours in _OURS:
        both = [next((name for name in names if reader.text(name)), None) for names in (theirs, ours)]
        if None not in both:
            raise UsageError(f"{both[0]} and {both[1]} say the same in two styles: give one of them")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"subscribePattern={text}: not a regular expression of Python: {error}") from None
    return text


def _starts(reader: OptionReader) -> OffsetLimits | None:
    strategy = reader.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return _limits(reader, STARTS, needs_match=strategy == "error")


def _limits(reader: OptionReader, names: tuple[str, str, str], *, needs_match: bool) -> OffsetLimits | None:
    everywhere, by_time, by_offset = names
    if text := reader.text(everywhere):
        time_ms = _long(everywhere, text, least=0)
        return OffsetLimits(option=everywhere, everywhere=time_ms, are_times=True, needs_match=needs_match)
    if text := reader.text(by_time):
        times = _by_partition(by_time, text, least=0)
        return OffsetLimits(option=by_time, by_partition=times, are_times=True, needs_match=needs_match)
    text = reader.text(by_offset)
    if not text:
        return None
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if word is not None:
        return OffsetLimits(option=by_offset, everywhere=word)
    return OffsetLimits(option=by_offset, by_partition=_by_partition(by_offset, text, least=EARLIEST))


def _by_partition(option: str, text: str, *, least: int) -> Mapping[TopicPartition, int]:
    """Return the values in `{"orders":{"0":23,"1":-1}}`."""
    shape = f'{option}={text}: expected JSON such as {{"orders":{{"0":23,"1":42}}}}'
    values: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(text, shape).items():
        if not isinstance(partitions, dict):
            raise UsageError(shape)
        for number, value in partitions.items():
            if not number.isascii() or not number.isdigit():
                raise UsageError(shape)
            values[topic, int(number)] = _long(option, str(value), least=least)
    if not values:
        raise UsageError(shape)
    return values


def _assigned(text: str) -> frozenset[TopicPartition]:
    shape = f'assign={text}: expected JSON such as {{"orders":[0,1]}}'
    assigned = set()
    for topic, partitions in _json_object(text, shape).items():
        if not isinstance(partitions, list) or not all(type(number) is int for number in partitions):
            raise UsageError(shape)
        assigned |= {(topic, number) for number in partitions}
    if not assigned:
        raise UsageError(shape)
    return frozenset(assigned)


def _json_object(text: str, shape: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise UsageError(shape) from None
    if not isinstance(value, dict):
        raise UsageError(shape)
    return value


def _long(option: str, text: str, *, least: int) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or not least <= int(text) <= LONG_MAX:
        raise UsageError(f"{option}: {text}: expected a number from {least} to {LONG_MAX}")
    return int(text)
