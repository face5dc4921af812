"""What holds of the events of every run, whatever lies in its log dirs and however it ends.

The events are replayed into what observers make of them: the gauges, the JSON lines and the log lines. Rules are
stated in words of KIP-831 and of the report, not in those of the code that keeps them.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.engine.report import LogDirReport, RecoveryReport
from recovery.watch.events import (
    Event,
    LogDirOffline,
    LogDirStarted,
    PartitionFinished,
    PartitionStarted,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
)
from recovery.watch.figures import GaugeValues, LogDirValues
from recovery.watch.gauges import Gauges
from recovery.watch.json_lines import JsonLines
from recovery.watch.log_lines import LogLines

_UNFLUSHED_LINE = re.compile(r"Recovering unflushed segment (-?\d+)\. (\d+)/(\d+) recovered for ")
_GROWING = (
    "finished_logs", "finished_segments", "recovered_segments", "recovered_bytes", "scanned_bytes",
    "truncated_bytes", "truncated_batches",
)  # fmt: skip
_REPORTED = ("recovered_segments", "recovered_bytes", "truncated_bytes", "truncated_batches", "scanned_bytes")


@dataclass(kw_only=True)
class _Log:
    """A log that a thread works on."""

    started: PartitionStarted
    begun: list[SegmentRecoveryStarted] = field(default_factory=list)
    recovered: list[SegmentRecovered] = field(default_factory=list)
    finished: PartitionFinished | None = None


def broken_rules(
    events: Sequence[Event],
    report: RecoveryReport,
    *,
    reads_all_once: bool = True,
) -> list[str]:
    """Return in words which rules the events of a recovery break; *report* is what it has returned.

    Args:
        reads_all_once: whether it read what the report counts and nothing else: no interrupted run has read for it,
            and no helper has read ahead, beyond a cut.
    """
    told = list(_order(events))
    splits = _splits(events, report)
    told += _replay(events, splits)
    for place, log in _logs(events).items():
        told += _segments(log, is_split=place in splits)
    told += _sums(events, report, reads_all_once=reads_all_once)
    told += _lines(events, report)
    return told


def _order(events: Sequence[Event]) -> Iterator[str]:
    kinds = [type(event) for event in events]
    if kinds[:1] != [RunStarted] or kinds[-1:] != [RunFinished]:
        yield f"the run begins with {kinds[:1]} and ends with {kinds[-1:]}"
    for kind in (RunStarted, RunFinished):
        if kinds.count(kind) != 1:
            yield f"{kinds.count(kind)} times {kind.__name__}"
    listed = max((i for i, kind in enumerate(kinds) if kind is LogDirStarted), default=-1)
    if PartitionStarted in kinds[:listed]:
        yield "a log is begun before all log dirs are listed"


def _logs(events: Sequence[Event]) -> dict[tuple[str, str], _Log]:
    """Return what was told of each log, by log dir and folder."""
    logs: dict[tuple[str, str], _Log] = {}
    for event in events:
        match event:
            case PartitionStarted():
                assert (event.log_dir, event.partition) not in logs, f"{event.partition} is begun twice"
                logs[event.log_dir, event.partition] = _Log(started=event)
            case SegmentRecoveryStarted():
                logs[event.log_dir, event.partition].begun.append(event)
            case SegmentRecovered():
                logs[event.log_dir, event.partition].recovered.append(event)
            case PartitionFinished():
                log = logs[event.log_dir, event.partition]
                assert log.finished is None, f"{event.partition} is finished twice"
                log.finished = event
    return logs


def _splits(events: Sequence[Event], report: RecoveryReport) -> set[tuple[str, str]]:
    """Return log dir and folder of the logs with a segment that is split: a broker begins with its segments anew.

    Of logs that are refused, or that were in hand when a signal came, the report does not say: there it shows in y,
    which is another one than before, or than was announced if the split came while the log was loaded.
    """
    ended = {
        (log.log_dir, log.folder) for log in report.partitions if log.status not in ("refused", "failed")
    }
    begun_anew = {
        place
        for place, log in _logs(events).items()
        if place not in ended
        and log.begun
        and {event.count for event in log.begun} != {log.started.unflushed_segment_count}
    }
    return begun_anew | {
        (log.log_dir, log.folder)
        for log in report.partitions
        if any("split, its offsets" in text for text in log.warnings)
    }


def _segments(log: _Log, *, is_split: bool) -> Iterator[str]:
    """Rules for the segments of one log: each once, counted x/y, and down to 0."""
    name, announced = log.started.partition, log.started.unflushed_segment_count
    for told in ([] if is_split else log.begun, log.recovered):
        bases = [event.base_offset for event in told]
        if len(set(bases)) != len(bases):
            yield f"{name}: a segment is told twice: {bases}"
    unflushed = {event.base_offset for event in log.begun}
    expected = list(range(len(log.begun)))
    if [event.ordinal for event in log.begun] != expected and not is_split:
        yield f"{name}: x is {[event.ordinal for event in log.begun]}, not {expected}"
    if not is_split:
        if {event.count for event in log.begun} - {announced}:
            yield f"{name}: y is {[event.count for event in log.begun]}, {announced} were announced"
        remaining = announced or 0
        for event in log.recovered:
            is_last = event.valid_bytes < event.size_bytes and event.remaining_segments == 0
            remaining -= event.base_offset in unflushed
            if event.remaining_segments != remaining and not is_last:
                yield f"{name}: {event.remaining_segments} segments remain after {event.base_offset}, not {remaining}"
    if any(event.thread_num != log.started.thread_num for event in (*log.begun, *log.recovered)):
        yield f"{name}: another thread than its own tells of its segments"
    finished = log.finished
    if finished is None:
        return
    if finished.status in ("unchanged", "recovered", "truncated"):
        missing = unflushed - {event.base_offset for event in log.recovered}
        if missing and not is_split:
            yield f"{name}: begun and not recovered: {missing}"
        if log.recovered and log.recovered[-1].remaining_segments and not is_split:
            yield f"{name}: {log.recovered[-1].remaining_segments} segments remain at its end"
    if log.recovered and (finished.recovered_segments, finished.recovered_bytes) != (
        len(log.recovered),
        sum(event.valid_bytes for event in log.recovered),
    ):
        yield f"{name}: {len(log.recovered)} segments told as recovered, {finished.recovered_segments} finished"


def _replay(events: Sequence[Event], splits: Collection[tuple[str, str]]) -> Iterator[str]:
    """Rules for the gauges after each event: what falls, what grows, by how much, and when they are there."""
    gauges = Gauges()
    before: GaugeValues | None = None
    for event in events:
        gauges(event)
        values = gauges.values()
        for log_dir in values.log_dirs:
            old = (
                next((one for one in before.log_dirs if one.log_dir == log_dir.log_dir), None)
                if before
                else None
            )
            if old is not None:
                yield from _step(event, old, log_dir, splits)
        before = values
    for log_dir in gauges.values().log_dirs:
        if log_dir.remaining_logs is not None or log_dir.remaining_segments:
            yield f"{log_dir.log_dir}: the gauges are still there after the run"


def _step(
    event: Event, old: LogDirValues, new: LogDirValues, splits: Collection[tuple[str, str]]
) -> Iterator[str]:
    where = f"{new.log_dir}: after {type(event).__name__}"
    for name in _GROWING:
        if getattr(new, name) < getattr(old, name):
            yield f"{where}: {name} falls from {getattr(old, name)} to {getattr(new, name)}"
    is_listed = isinstance(event, LogDirStarted) and event.log_dir == new.log_dir
    if new.remaining_bytes > old.remaining_bytes and not is_listed:
        yield f"{where}: remaining_bytes rise from {old.remaining_bytes} to {new.remaining_bytes}"
    if new.finished_segments > new.segment_count and not is_listed:
        yield f"{where}: {new.finished_segments} of {new.segment_count} segments"
    if old.remaining_logs is not None and new.remaining_logs is not None:
        yield from _logs_step(where, event, old.remaining_logs, new.remaining_logs)
        if (new.log_dir, getattr(event, "partition", None)) in splits:
            return
        changes = zip(old.remaining_segments, new.remaining_segments, strict=True)
        for thread_num, (was, now) in enumerate(changes):
            yield from _thread_step(f"{where}: thread {thread_num}", event, was, now)
    elif old.remaining_logs is not None and not isinstance(event, RunFinished):
        yield f"{where}: the gauges are gone before the run is over"


def _logs_step(where: str, event: Event, was: int, now: int) -> Iterator[str]:
    if now == was:
        return
    if isinstance(event, LogDirOffline):
        if now:
            yield f"{where}: {now} logs remain"
    elif not isinstance(event, PartitionFinished) or now != was - 1:
        yield f"{where}: remaining logs go from {was} to {now}"


def _thread_step(where: str, event: Event, was: int, now: int) -> Iterator[str]:
    """A thread's gauge is put at the begin of a log, falls by one, and to 0 at a cut and at the end."""
    if now == was or (now == 0 and isinstance(event, PartitionFinished | LogDirOffline)):
        return
    if isinstance(event, PartitionStarted):
        if now != (event.unflushed_segment_count or 0):
            yield f"{where}: {now} segments at the begin of a log"
        return
    is_cut = isinstance(event, SegmentRecovered) and event.valid_bytes < event.size_bytes
    if not isinstance(event, SegmentRecovered) or (now != was - 1 and not (is_cut and now == 0)):
        yield f"{where}: remaining segments go from {was} to {now}"


def _sums(events: Sequence[Event], report: RecoveryReport, *, reads_all_once: bool) -> Iterator[str]:
    """The last figures are those of the report, by log dir."""
    gauges = Gauges()
    for event in events:
        gauges(event)
    for values in gauges.values().log_dirs:
        log_dir = next(one for one in report.log_dirs if one.log_dir == values.log_dir)
        expected = _reported(log_dir)
        if log_dir.status == "interrupted":  # logs that were in hand are in no report
            finished = [
                event
                for event in events
                if isinstance(event, PartitionFinished) and event.log_dir == values.log_dir
            ]
            found = {name: sum(getattr(event, name) or 0 for event in finished) for name in _REPORTED[:4]}
            expected = {name: expected[name] for name in found}
            earlier = log_dir.earlier_cuts
            found["truncated_bytes"] += sum(cut.truncated_bytes for cut in earlier)
            found["truncated_batches"] += sum(cut.truncated_batches for cut in earlier)
            less = [name for name in found if getattr(values, name) < expected[name]]
            if less:
                yield f"{values.log_dir}: interrupted, and {less} are less than reported"
        else:
            found = {name: getattr(values, name) for name in _REPORTED}
            if not reads_all_once:
                found.pop("scanned_bytes"), expected.pop("scanned_bytes")
        if found != expected:
            wrong = {name: (found[name], expected[name]) for name in found if found[name] != expected[name]}
            yield f"{values.log_dir} ({log_dir.status}): (told, reported) are {wrong}"


def _reported(log_dir: LogDirReport) -> dict[str, int]:
    """Return the sums of a log dir from the JSON of its report."""
    document = log_dir.to_json()
    logs, earlier = document["partitions"], document["earlierCuts"]
    return {
        "recovered_segments": sum(log["segments"]["recovered"] for log in logs),
        "recovered_bytes": sum(log["bytes"]["recovered"] for log in logs),
        "truncated_bytes": sum(one["truncatedBytes"] for one in (*logs, *earlier)),
        "truncated_batches": sum(one["truncatedBatches"] for one in (*logs, *earlier)),
        "scanned_bytes": sum(log["bytes"]["scanned"] for log in logs),
    }


def _lines(events: Sequence[Event], report: RecoveryReport) -> Iterator[str]:
    """JSON lines and log lines say the same as the events, and end with the same figures."""
    gauges, json_text, log_text = Gauges(), io.StringIO(), io.StringIO()
    observers = (gauges, JsonLines(json_text, gauges), LogLines(log_text, gauges))
    for event in events:
        for observer in observers:
            observer(event)
    objects: list[dict[str, Any]] = [json.loads(line) for line in json_text.getvalue().splitlines()]
    begun = [event for event in events if isinstance(event, SegmentRecoveryStarted)]
    wanted = [(event.base_offset, event.ordinal, event.count) for event in begun]
    in_log = [tuple(map(int, found)) for found in _UNFLUSHED_LINE.findall(log_text.getvalue())]
    in_json = [
        (line["base_offset"], line["ordinal"], line["count"])
        for line in objects
        if line["event"] == "SegmentRecoveryStarted"
    ]
    if not in_log == in_json == wanted:
        yield f"unflushed segments in log lines {in_log}, in JSON lines {in_json}, told {wanted}"
    if [line["event"] for line in objects[-2:]] != ["Progress", "RunFinished"]:
        yield f"the last JSON lines are {[line['event'] for line in objects[-2:]]}"
        return
    if objects[-1]["exit_code"] != report.exit_code:
        yield f"exit code {objects[-1]['exit_code']}, reported {report.exit_code}"
    last = objects[-2]
    for name in _REPORTED:
        if last[name] != sum(log_dir[name] for log_dir in last["log_dirs"]):
            yield f"Progress: {name} is not the sum of the log dirs"
