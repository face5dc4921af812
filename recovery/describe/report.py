"""What is known of the log dirs of brokers, and its two forms.

JSON is the line that kafka-log-dirs prints, with `totalBytes`, `usableBytes` and `isCordoned` in each log dir:

    {"version":1,"brokers":[{"broker":1,"logDirs":[{"logDir":"/d","error":null,"totalBytes":100,"usableBytes":50,
     "isCordoned":false,"partitions":[{"partition":"t-0","size":1,"offsetLag":0,"isFuture":false}]}]}]}

Kafka: LogDirsCommand.formatAsJson, DescribeLogDirsResponse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.printable import printable
from recovery.quantity import bytes_text

UNKNOWN_BYTES = -1
"""Total or usable bytes that are not known: the log dir is offline, or the broker is older than 3.3."""

UNKNOWN_LAG = -1
"""Offset lag where the partition has no current log here. Kafka: DescribeLogDirsResponse.INVALID_OFFSET_LAG."""

STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"
FULL_FRACTION = 0.01
"""A log dir counts as full if less than this part of its volume is usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica in one log dir.

    Attributes:
        size_bytes: of its `.log` files.
        offset_lag: of a future replica, offsets behind the current one; else 0; -1: not known.
        is_future: whether it will replace the replica in another log dir.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool

    def to_json(self) -> dict[str, Any]:
        """Return the object of this replica."""
        return {
            "partition": f"{self.topic}-{self.partition}",
            "size": self.size_bytes,
            "offsetLag": self.offset_lag,
            "isFuture": self.is_future,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log dir.

    Attributes:
        log_dir: as the broker spells it.
        error: class name of the exception that a broker reports; None if the log dir is online.
        cause: what is behind it, in words; empty if only the broker knows.
        total_bytes, usable_bytes: of the whole volume, the same for all log dirs on it; -1: not known.
        is_cordoned: whether it gets no new replicas.
        replicas: by topic and partition.
    """

    log_dir: str
    error: str | None = None
    cause: str = ""
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES
    is_cordoned: bool = False
    replicas: tuple[ReplicaDescription, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether the volume has hardly any room left."""
        return self.total_bytes > 0 and 0 <= self.usable_bytes < self.total_bytes * FULL_FRACTION

    @property
    def state(self) -> str:
        """`offline`, `full`, `cordoned`, `full, cordoned` or `online`."""
        if self.error is not None:
            return "offline"
        words = ["full"] * self.is_full + ["cordoned"] * self.is_cordoned
        return ", ".join(words) or "online"

    def to_json(self) -> dict[str, Any]:
        """Return the object of this log dir."""
        return {
            "logDir": self.log_dir,
            "error": self.error,
            "totalBytes": self.total_bytes,
            "usableBytes": self.usable_bytes,
            "isCordoned": self.is_cordoned,
            "partitions": [replica.to_json() for replica in self.replicas],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """One broker, -1 if nothing says which it is, and its log dirs in the order of its settings or of its answer."""

    broker: int
    log_dirs: tuple[LogDirDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirsReport:
    """What `log-dirs --describe` has found.

    Attributes:
        brokers: by id.
        silent: why a broker gave no answer, by its id.
        warnings: a sentence each.
        lists_replicas: whether the text names every replica, and not only the future ones.
    """

    brokers: tuple[BrokerDescription, ...]
    silent: Mapping[int, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    lists_replicas: bool = False

    @property
    def exit_code(self) -> int:
        """0, or 4 if a broker gave no answer or a log dir is offline."""
        is_offline = any(log_dir.error is not None for log_dir in self.log_dirs)
        return 4 if self.silent or is_offline else 0

    @property
    def log_dirs(self) -> Iterator[LogDirDescription]:
        """The log dirs of all brokers."""
        for broker in self.brokers:
            yield from broker.log_dirs

    @property
    def complaints(self) -> list[str]:
        """What the JSON has no place for: brokers without an answer, why log dirs are offline, warnings."""
        lines = [f"broker {broker}: no answer: {why}" for broker, why in sorted(self.silent.items())]
        lines += [f"{one.log_dir}: offline: {one.cause}" for one in self.log_dirs if one.cause]
        return [*lines, *(f"warning: {warning}" for warning in self.warnings)]

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        report = {
            "version": 1,
            "brokers": [
                {"broker": broker.broker, "logDirs": [one.to_json() for one in broker.log_dirs]}
                for broker in self.brokers
            ],
        }
        return json.dumps(report, separators=(",", ":"))

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for people: problems, a table of log dirs, one of replicas.

        Args:
            verbosity: -1: what is offline, full or without an answer; 0: all log dirs; 1: each replica as well.
        """
        log_dirs = self._log_dir_rows(_FULL if verbosity < 0 else _ONLINE)
        lines = [*self.complaints, *(_table(_LOG_DIR_HEADS, log_dirs) if log_dirs or verbosity >= 0 else ())]
        if verbosity >= 0 and (replicas := self._replica_rows(is_each=self.lists_replicas or verbosity > 0)):
            lines += ["", *_table(_REPLICA_HEADS, replicas)]
        return "\n".join(map(printable, lines))

    def _log_dir_rows(self, least_urgent: int) -> list[tuple[str, ...]]:
        rows = [
            (_urgency(one), (str(broker.broker), one.state, *_figures(one), one.log_dir))
            for broker in self.brokers
            for one in broker.log_dirs
        ]
        rows.sort(key=lambda row: row[0])
        return [row for urgency, row in rows if urgency <= least_urgent]

    def _replica_rows(self, *, is_each: bool) -> list[tuple[str, ...]]:
        rows = [
            (broker.broker, one.log_dir, replica)
            for broker in self.brokers
            for one in broker.log_dirs
            for replica in one.replicas
            if replica.is_future or is_each
        ]
        rows.sort(key=lambda row: (row[2].topic, row[2].partition, row[2].is_future, row[0]))
        return [
            (
                f"{replica.topic}-{replica.partition}",
                str(broker),
                "future" if replica.is_future else "current",
                bytes_text(replica.size_bytes),
                "-" if replica.offset_lag == UNKNOWN_LAG else f"{replica.offset_lag:,}",
                log_dir,
            )
            for broker, log_dir, replica in rows
        ]


_LOG_DIR_HEADS = ("broker", "state", ">replicas", ">size", ">usable", ">of", ">usable %", "log dir")
_REPLICA_HEADS = ("partition", "broker", "replica", ">size", ">offset lag", "log dir")
"""Heads of columns; after `>` their cells stand at the right. Paths, which may be too long for a screen, come last."""


_OFFLINE, _FULL, _CORDONED, _ONLINE = range(4)


def _urgency(log_dir: LogDirDescription) -> int:
    """Return where *log_dir* goes: problems first."""
    if log_dir.error is not None:
        return _OFFLINE
    return _FULL if log_dir.is_full else _CORDONED if log_dir.is_cordoned else _ONLINE


def _figures(log_dir: LogDirDescription) -> tuple[str, ...]:
    if log_dir.error is not None:
        return ("-",) * 5
    size_bytes = sum(replica.size_bytes for replica in log_dir.replicas)
    room = ("-",) * 3
    if log_dir.total_bytes >= 0 and log_dir.usable_bytes >= 0:
        percent = 100 * log_dir.usable_bytes / log_dir.total_bytes if log_dir.total_bytes else 0
        room = (bytes_text(log_dir.usable_bytes), bytes_text(log_dir.total_bytes), f"{percent:.1f}")
    return (f"{len(log_dir.replicas):,}", bytes_text(size_bytes), *room)


def _table(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as their longest cell."""
    names = tuple(head.removeprefix(">") for head in heads)
    lines = [names, *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if head.startswith(">") else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
