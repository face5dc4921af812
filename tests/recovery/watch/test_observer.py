"""The union of events and the notifier: order, times, and what happens to an observer that raises."""

import dataclasses
import logging
import pickle
import subprocess
import sys
import threading
import typing

import pytest

from recovery.watch import events
from recovery.watch.events import UNSTAMPED, BytesScanned, Event, Remark
from recovery.watch.notifier import Notifier
from tests.runs.event_streams import START_MS, checking, one_of_each, restoring, watching


def test_every_event_class_is_in_the_union_and_in_the_sample_runs():
    classes = {
        value
        for value in vars(events).values()
        if isinstance(value, type) and issubclass(value, events.Timed) and value is not events.Timed
    }
    sample_runs = [*one_of_each(), *checking(), *restoring(), *watching()]
    assert classes == set(typing.get_args(Event)) == {type(event) for event in sample_runs}


@pytest.mark.parametrize(
    "event", [*one_of_each(), *checking(), *restoring(), *watching()], ids=lambda event: type(event).__name__
)
def test_events_are_frozen_values_that_pickle(event):
    assert pickle.loads(pickle.dumps(event)) == event
    assert not hasattr(event, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.now_ms = 0


def test_every_observer_gets_every_event_in_order():
    first, second = [], []
    notifier = Notifier([first.append, second.append])
    for event in one_of_each():
        notifier(event)
    assert first == second == one_of_each()


def test_notifier_stamps_what_has_no_time_and_leaves_what_has():
    seen = []
    notifier = Notifier([seen.append], wall_clock_ms=lambda: 123, monotonic_s=lambda: 4.5)
    notifier.notify(Remark(text="x"))
    notifier.notify(Remark(text="x", now_ms=START_MS, monotonic_s=1.0))
    assert [(event.now_ms, event.monotonic_s) for event in seen] == [(123, 4.5), (START_MS, 1.0)]
    assert Remark(text="x").now_ms == UNSTAMPED


def test_default_clocks_are_wall_clock_and_monotonic():
    import time

    seen = []
    Notifier([seen.append]).notify(Remark(text="x"))
    assert abs(seen[0].now_ms - time.time() * 1000) < 60_000
    assert abs(seen[0].monotonic_s - time.monotonic()) < 60


def test_observer_that_raises_is_switched_off_with_a_log_line(caplog):
    seen, calls = [], []

    def breaks(event):
        calls.append(event)
        raise RuntimeError("disk of the dashboard is full")

    notifier = Notifier([breaks, seen.append])
    with caplog.at_level(logging.WARNING, logger="recovery.watch.events"):
        for event in one_of_each():
            notifier(event)
    assert seen == one_of_each(), "the others see the very event that broke it, and all that follow"
    assert len(calls) == 1
    assert notifier.observers == (notifier.observers[0],)
    [record] = caplog.records
    assert "breaks" in record.getMessage()
    assert "disk of the dashboard is full" in record.getMessage()
    assert "RunStarted" in record.getMessage()


def test_all_observers_may_break_and_the_run_goes_on(caplog):
    class Broken:
        def __call__(self, event):
            raise ValueError(event)

    notifier = Notifier([Broken(), Broken()])
    for event in one_of_each():
        notifier(event)
    assert notifier.observers == ()
    assert len(caplog.records) == 2


def test_interrupt_in_an_observer_is_not_swallowed():
    def interrupted(event):
        raise KeyboardInterrupt

    notifier = Notifier([interrupted])
    with pytest.raises(KeyboardInterrupt):
        notifier(Remark(text="x"))


def test_observers_are_called_one_event_at_a_time_from_many_threads():
    inside, overlaps, count = threading.Lock(), [], [0]

    def watches(event):
        if not inside.acquire(blocking=False):
            overlaps.append(event)
            return
        count[0] += 1
        inside.release()

    notifier = Notifier([watches])
    event = BytesScanned(log_dir="/a", partition="t-0", thread_num=0, scanned_bytes=1)
    threads = [threading.Thread(target=lambda: [notifier(event) for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []
    assert count == [8000]


def test_times_never_go_back_however_threads_interleave():
    seen = []
    notifier = Notifier([seen.append])
    work = lambda: [notifier(Remark(text="x")) for _ in range(1000)]  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [event.monotonic_s for event in seen]
    assert times == sorted(times)


def test_an_observer_may_notify_from_inside():
    """A signal handler runs in whatever thread is here."""
    seen = []

    def answers(event):
        if event.text == "ping":
            notifier(Remark(text="pong"))

    notifier = Notifier([answers, seen.append])
    notifier(Remark(text="ping"))
    assert [event.text for event in seen] == ["pong", "ping"]


def test_a_notifier_is_an_observer():
    seen = []
    outer = Notifier([Notifier([seen.append])])
    outer(Remark(text="x", now_ms=5, monotonic_s=1.0))
    assert [event.now_ms for event in seen] == [5]


def test_watching_imports_nothing_heavy_before_it_is_chosen():
    code = (
        "import sys, recovery.watch.events, recovery.watch.gauges, recovery.watch.open; "
        "print(sorted({'rich', 'structlog', 'prometheus_client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
