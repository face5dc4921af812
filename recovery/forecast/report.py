"""What an estimate says: the numbers of each log dir and topic, the exit code, and the two ways of printing them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recovery.errors import without_path
from recovery.forecast.cost import Span
from recovery.printable import printable
from recovery.problem import Note, Problem
from recovery.problem_text import problem_texts
from recovery.quantity import bytes_text, count_text, duration_text, rate_text

_MOST_SHOWN = 10
"""Problems, and topics, unless more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEstimate:
    """What a restart would do with one log dir.

    Attributes:
        is_live: whether a broker, or a recovery, holds its lock.
        log_count: the logs that a broker would load.
        logs_to_recover: those of which at least one segment is recovered.
        segment_count, size_bytes: what is recovered, each segment counted once.
        threads: `num.recovery.threads.per.data.dir` at the next start.
        tool_s: seconds of `recover` for this dir alone; None if nothing was measured.
        broker: seconds of a broker for this dir alone; None likewise.
        problems: what would keep a broker from starting, or take the dir offline.
        error: what could not be read, and so is not counted; None for nothing.
    """

    log_dir: str
    is_live: bool
    had_clean_shutdown: bool
    log_count: int
    logs_to_recover: int
    segment_count: int
    size_bytes: int
    threads: int
    tool_s: float | None
    broker: Span | None
    problems: tuple[Problem, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object of this log dir in the JSON report."""
        return {
            "logDir": self.log_dir,
            "live": self.is_live,
            "hadCleanShutdown": self.had_clean_shutdown,
            "logs": self.log_count,
            "logsToRecover": self.logs_to_recover,
            "segments": self.segment_count,
            "bytes": self.size_bytes,
            "threads": self.threads,
            "toolSeconds": _rounded(self.tool_s),
            "brokerSeconds": _span_json(self.broker),
            "problems": list(map(str, self.problems)),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEstimate:
    """What a restart would recover of one topic, in all log dirs."""

    topic: str
    log_count: int
    segment_count: int
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the object of this topic in the JSON report."""
        return {
            "topic": self.topic,
            "logs": self.log_count,
            "segments": self.segment_count,
            "bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSummary:
    """What was read for the estimate.

    Attributes:
        read_bytes: in whole batches.
        cached_bytes: of these, in the page cache before.
        bytes_per_second: read and checked by one thread; None if nothing was read.
    """

    read_bytes: int
    batch_count: int
    cached_bytes: int
    bytes_per_second: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the object of the sample in the JSON report."""
        rate = self.bytes_per_second
        return {
            "bytes": self.read_bytes,
            "batches": self.batch_count,
            "bytesPerSecond": None if rate is None else round(rate),
            "cachedBytes": self.cached_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """What a restart would have to recover now, and how long that takes.

    Attributes:
        now_ms: when it was looked at, ms since 1970.
        topics: those with something to recover, largest first.
        tool_s: seconds of `recover`, from its start to its end; None if nothing was measured.
        broker: seconds of a broker's `Loaded N logs`; None likewise.
        notes: what was assumed, ignored or missing.
    """

    now_ms: int
    duration_ms: int
    log_dirs: tuple[LogDirEstimate, ...]
    topics: tuple[TopicEstimate, ...]
    sample: SampleSummary
    tool_s: float | None
    broker: Span | None
    notes: tuple[Note, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 if a log dir, or a part of one, could not be read; else 0."""
        return 4 if any(one.error is not None for one in self.log_dirs) else 0

    @property
    def segment_count(self) -> int:
        """Segments of all log dirs that would be recovered."""
        return sum(one.segment_count for one in self.log_dirs)

    @property
    def size_bytes(self) -> int:
        """Bytes of these segments."""
        return sum(one.size_bytes for one in self.log_dirs)

    def to_json(self) -> str:
        """Return the report as JSON."""
        report = {
            "version": 1,
            "command": "estimate",
            "exitCode": self.exit_code,
            "nowMs": self.now_ms,
            "durationMs": self.duration_ms,
            "logDirs": [one.to_json() for one in self.log_dirs],
            "topics": [topic.to_json() for topic in self.topics],
            "sample": self.sample.to_json(),
            "toolSeconds": _rounded(self.tool_s),
            "brokerSeconds": _span_json(self.broker),
            "notes": [note.to_json() for note in self.notes],
        }
        return json.dumps(report, indent=2)

    def to_text(self, verbosity: int = 0) -> str:
        """Return the report for people: problems, the total and its time, log dirs, topics, sample, notes.

        Args:
            verbosity: -1: problems alone; 0: the first of them, and the largest topics; 1: each of both.
        """
        most = sys.maxsize if verbosity > 0 else _MOST_SHOWN
        lines = self._problem_lines(most)
        if verbosity >= 0:
            lines += [*self._total_lines(), "", *map(_log_dir_line, self.log_dirs)]
            lines += [*self._topic_lines(most), *self._sample_lines()]
        lines += [f"note: {note.text}" for note in self.notes if note.is_told_always or verbosity >= 0]
        return "\n".join(map(printable, lines))

    def _problem_lines(self, most: int) -> list[str]:
        unread = [
            f"NOT READ {one.log_dir}: {without_path(one.error, one.log_dir)}"
            for one in self.log_dirs
            if one.error is not None
        ]
        problems = [line for one in self.log_dirs for line in _log_dir_problems(one)]
        if len(problems) > most:
            problems[most:] = [f"... {len(problems) - most:,} more problems (-v shows all)"]
        return [*unread, *problems]

    def _total_lines(self) -> list[str]:
        if not self.segment_count:
            read = [one for one in self.log_dirs if one.error is None]
            if len(read) < len(self.log_dirs):
                return [
                    "A restart has nothing to recover in what could be read; of the rest that is not known."
                ]
            why = ": shut down cleanly" if read and all(one.had_clean_shutdown for one in read) else ""
            return [f"A restart now has nothing to recover{why}."]
        to_recover = sum(one.logs_to_recover for one in self.log_dirs)
        logs = sum(one.log_count for one in self.log_dirs)
        lines = [
            f"A restart now has to recover {bytes_text(self.size_bytes)} in "
            f"{count_text(self.segment_count, 'segment')} of {count_text(to_recover, 'log')} ({logs:,} in all)."
        ]
        if self.tool_s is None or self.broker is None:
            return [*lines, "How long that takes is not known: nothing was sampled."]
        span = f"{duration_text(self.broker.low_s)} to {duration_text(self.broker.high_s)}"
        return [
            *lines,
            f"  with kafka-log-recovery recover, before the broker starts: about {duration_text(self.tool_s)}",
            f"  by a broker of 4.3 itself, while it starts: {span}",
        ]

    def _topic_lines(self, most: int) -> list[str]:
        if not self.topics:
            return []
        shown, others = self.topics[:most], self.topics[most:]
        width = max(len(printable(topic.topic)) for topic in shown)
        lines = ["", "largest topics:", *(f"  {topic.topic:<{width}}  {_amount(topic)}" for topic in shown)]
        if others:
            rest = TopicEstimate(
                topic="",
                log_count=sum(topic.log_count for topic in others),
                segment_count=sum(topic.segment_count for topic in others),
                size_bytes=sum(topic.size_bytes for topic in others),
            )
            lines.append(f"  and {count_text(len(others), 'more topic')}: {_amount(rest)}")
        return lines

    def _sample_lines(self) -> list[str]:
        sample = self.sample
        if not sample.read_bytes:
            return []
        share = sample.cached_bytes / sample.read_bytes
        where = "all of it" if share == 1 else f"{100 * share:.0f} % of it"
        return [
            "",
            f"sample: {bytes_text(sample.read_bytes)} in {count_text(sample.batch_count, 'batch', 'batches')}, "
            f"{rate_text(sample.bytes_per_second)} by one thread; {where} was in the page cache, as it "
            "will be at a restart of the broker, but not of the machine",
        ]


def _log_dir_problems(one: LogDirEstimate) -> Iterator[str]:
    for text in problem_texts(one.problems, one.log_dir):
        yield f"PROBLEM {one.log_dir}: {without_path(text, one.log_dir)}"


def _log_dir_line(one: LogDirEstimate) -> str:
    if one.error is not None and not one.log_count:
        return f"{one.log_dir}: not read"
    if one.is_live:
        state = "in use, as if its process died now"
    else:
        state = "shut down cleanly" if one.had_clean_shutdown else "stopped, not cleanly"
    line = (
        f"{one.log_dir} ({state}): {bytes_text(one.size_bytes)} in {count_text(one.segment_count, 'segment')}, "
        f"{one.logs_to_recover:,} of {count_text(one.log_count, 'log')}, {count_text(one.threads, 'thread')}"
    )
    if not one.segment_count or one.tool_s is None or one.broker is None:
        return line
    span = f"{duration_text(one.broker.low_s)} to {duration_text(one.broker.high_s)}"
    return f"{line}; recover about {duration_text(one.tool_s)}, a broker {span}"


def _amount(topic: TopicEstimate) -> str:
    size, segments = bytes_text(topic.size_bytes), count_text(topic.segment_count, "segment")
    return f"{size} in {segments} of {count_text(topic.log_count, 'log')}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _span_json(span: Span | None) -> dict[str, float] | None:
    return None if span is None else {"low": round(span.low_s, 3), "high": round(span.high_s, 3)}
