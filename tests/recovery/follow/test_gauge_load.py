"""Readings of gauges, one after the other, as events: what is told when they appear, fall, rise and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from recovery.follow.gauge_load import SETTLED_S, GaugeLoad
from recovery.follow.gauge_reading import LogDirReading, Reading
from recovery.watch.events import (
    BrokerRestarted,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirSampled,
    LogDirStarted,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.gauges import Gauges
from recovery.watch.notifier import Notifier

STARTED_S = 1_795_457_425.0
A, B = "/data/a", "/data/b"


def broker(
    a: int | None = None, b: int | None = None, *, state: int | None = 1, started_s: float | None = STARTED_S
) -> Reading:
    """A broker with so many logs left in its two log dirs; None: no such gauge."""
    log_dirs = {
        path: LogDirReading(remaining_logs=logs, remaining_segments={} if logs is None else {0: logs % 3})
        for path, logs in ((A, a), (B, b))
    }
    return Reading(log_dirs=log_dirs, broker_state=state, started_s=started_s)


def own(state: str, remaining_logs: int | None = None, /, **figures: float) -> Reading:
    """A run of this tool with one log dir."""
    log_dir = LogDirReading(remaining_logs=remaining_logs, figures=figures)
    return Reading(log_dirs={A: log_dir}, run_state=state, started_s=STARTED_S)


def events(*readings: Reading, load: GaugeLoad | None = None, interval_s: float = 1.0) -> list[Event]:
    """What is told of readings, one a second."""
    load = load or GaugeLoad()
    return [
        event for second, reading in enumerate(readings) for event in load.take(reading, second * interval_s)
    ]


def told(found: Iterable[Event]) -> list[object]:
    """Events in short: logs left, exit codes, the words of remarks and restarts, else types."""
    short: list[object] = []
    for event in found:
        match event:
            case LogDirSampled():
                short.append((event.log_dir, event.remaining_logs))
            case RunFinished():
                short.append(event.exit_code)
            case Remark() | BrokerRestarted():
                short.append(event.text)
            case _:
                short.append(type(event))
    return short


def test_a_load_from_its_begin_to_its_end() -> None:
    found = events(broker(), broker(3, 1), broker(3, 1), broker(2, 0), broker(0, 0), broker(state=3))
    assert told(found) == [
        "the broker does not load its logs yet",
        RunStarted,
        LogDirStarted,
        (A, 3),
        LogDirStarted,
        (B, 1),
        (A, 2),
        (B, 0),
        LogDirFinished,
        (A, 0),
        LogDirFinished,
        0,
    ]
    assert found[1] == RunStarted(log_dirs=(A, B), threads_per_dir=0, command="watch")
    gauges = Gauges()
    for event in found:
        Notifier([gauges])(event)
    values = gauges.values()
    assert values.state == "complete"
    assert [(log_dir.log_count, log_dir.finished_logs) for log_dir in values.log_dirs] == [(3, 3), (1, 1)]


def test_a_run_of_this_tool_has_begun_before_it_was_watched() -> None:
    load = GaugeLoad()
    found = list(load.take(replace(own("recovering", 2), elapsed_s=90.0), 1000.0))
    gauges = Gauges()
    for event in found:
        Notifier([gauges], monotonic_s=lambda: 1000.0)(event)
    assert (gauges.values(1000.0).elapsed_seconds, gauges.values().started_ms) == (90.0, STARTED_S * 1000)
    assert gauges.values(1000.0).seconds_without_progress == 0


def test_nothing_is_told_while_nothing_moves() -> None:
    load = GaugeLoad()
    events(broker(3, 1), load=load)
    assert events(*[broker(3, 1)] * 5, load=load) == []


def test_gauges_that_go_before_the_last_log_was_seen_to_end() -> None:
    found = told(events(broker(3, 1), broker(1, 0), broker(state=2)))
    assert found[-2:] == [LogDirFinished, 0]
    assert found.count(LogDirFinished) == 2


def test_a_log_dir_whose_gauge_is_registered_later() -> None:
    found = told(events(broker(3), broker(3, 2), broker(2, 2)))
    assert found == [RunStarted, LogDirStarted, (A, 3), LogDirStarted, (B, 2), (A, 2)]


@pytest.mark.parametrize("again", [broker(7, 1, started_s=STARTED_S + 60), broker(7, 1, started_s=None)])
def test_a_broker_that_is_started_again(again: Reading) -> None:
    found = told(events(broker(7, 2), broker(5, 1), again))
    assert "counting begins anew" in str(found[7])
    assert found[8:] == [RunStarted, LogDirStarted, (A, 7), LogDirStarted, (B, 1)]


def test_a_broker_that_is_started_again_and_is_not_so_far_yet() -> None:
    later_s = STARTED_S + 60
    early = Reading(started_s=later_s)
    found = told(events(broker(7, 2), early, broker(6, 2, started_s=later_s), broker(started_s=later_s)))
    assert "counting begins anew" in str(found[5])
    assert found[6] == "the broker does not load its logs yet"
    assert found[7:9] == [RunStarted, LogDirStarted]
    assert found[-1] == 0


def test_a_start_time_that_is_not_always_shown() -> None:
    found = told(events(broker(7), broker(6, started_s=None), broker(5, started_s=STARTED_S + 60)))
    assert found[:4] == [RunStarted, LogDirStarted, (A, 7), (A, 6)]
    assert "counting begins anew" in str(found[4])


def test_a_second_load_after_the_first_is_over() -> None:
    load = GaugeLoad()
    events(broker(2, 2), broker(state=3), broker(state=3), load=load)
    found = told(events(broker(4, 4, started_s=STARTED_S + 60), load=load))
    assert found[:2] == ["the broker was started again", RunStarted]


def test_a_broker_that_recovers_nothing() -> None:
    assert len(events(broker(state=0), broker(state=1), broker(state=2))) == 1
    found = told(events(broker(state=0), broker(state=1), broker(state=2), broker(state=3), broker(state=3)))
    assert found == [
        "the broker does not load its logs yet",
        RunStarted,
        "no recovery: no log dir has a gauge of one, and the broker runs",
        0,
    ]


def test_a_broker_that_shows_no_state_is_given_time() -> None:
    seconds = int(SETTLED_S)
    assert len(events(*[broker(state=None)] * seconds)) == 1
    assert told(events(*[broker(state=None)] * (seconds + 1)))[-1] == 0
    load = GaugeLoad()
    events(*[broker(state=None)] * (seconds - 1), load=load)
    assert told(events(broker(4, 4, state=None), load=load))[0] == RunStarted
    assert len(events(*[Reading()] * 100)) == 1  # no log dirs: the JVM has just been started
    assert len(events(*[own("listing")] * 100)) == 1


def test_a_log_dir_that_goes_offline() -> None:
    offline = broker(2, 2)
    offline.log_dirs[B].is_offline = True
    found = events(broker(3, 2), offline, offline, broker(state=3))
    assert [type(event) for event in found].count(LogDirOffline) == 1
    assert [event.log_dir for event in found if isinstance(event, LogDirFinished)] == [A]


@pytest.mark.parametrize(
    ("state", "exit_code"), [("complete", 0), ("incomplete", 0), ("interrupted", 4), ("failed", 4)]
)
def test_a_run_of_this_tool(state: str, exit_code: int) -> None:
    figures = {
        "logs": 9.0,
        "segments": 30.0,
        "bytes": 500.0,
        "remaining_bytes": 80.0,
        "log_dir_finished": 0.0,
    }
    found = events(
        own("listing"), own("recovering", 4, **figures), own("recovering", 0, **figures), own(state)
    )
    assert found[2] == LogDirStarted(
        log_dir=A, had_clean_shutdown=None, log_count=9, segment_count=30, bytes_total=500
    )
    sampled = found[3]
    assert isinstance(sampled, LogDirSampled)
    assert (sampled.remaining_bytes, sampled.scanned_bytes) == (80, None)
    assert told(found)[-1] == exit_code
    assert (LogDirFinished in told(found)) == (exit_code == 0)
