"""A whole watch of gauges over HTTP: how it ends, and what it makes of a source that goes, is back or says nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.errors import UsageError
from recovery.follow import api, endpoint
from recovery.follow.report import WatchReport
from recovery.stop_request import StopRequest
from recovery.watch.events import Event, LogDirSampled, Remark, RunFinished, RunStarted, SourceLost
from recovery.watch.gauges import Gauges
from recovery.watch.http.status import health
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.recovery.follow.test_endpoint import Answers, serving
from tests.runs.command import assert_one_line, run


def page(logs: int | None, *, state: int = 1, started_s: float = 1.0) -> bytes:
    """A page of jmx_exporter's with *logs* left in one log dir; None: it has no such gauge."""
    lines = [f"kafka_server_kafkaserver_brokerstate {state}.0", f"process_start_time_seconds {started_s}"]
    if logs is not None:
        lines.append(f'kafka_log_logmanager_remaininglogstorecover{{dir="\\"/d\\""}} {logs}.0')
    return "\n".join([*lines, ""]).encode()


class Watching:
    """A watch in a thread of its own; its events so far."""

    def __init__(self, source: str, **options: Any) -> None:
        self.events: list[Event] = []
        self.gauges = Gauges()
        self.stop = StopRequest()
        self.result: WatchReport | UsageError | None = None
        self._thread = threading.Thread(target=self._run, args=(source, options), daemon=True)
        self._thread.start()

    def _run(self, source: str, options: dict[str, Any]) -> None:
        try:
            self.result = recovery.watch_broker(
                source,
                observers=[self.gauges, self.events.append],
                stop=self.stop,
                interval_s=0.02,
                **options,
            )
        except UsageError as error:
            self.result = error

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        wait_until(holds, lambda: self.events, pause_seconds=0.01)

    def has(self, kind: type, **fields: object) -> bool:
        """Whether there was such an event."""
        return any(
            isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
            for event in list(self.events)
        )

    def end(self) -> WatchReport:
        """Wait for its end."""
        self._thread.join(LONGEST_WAIT_SECONDS)
        assert isinstance(self.result, WatchReport), self.result
        return self.result


@contextmanager
def broker(answers: Answers, port: int = 0) -> Iterator[str]:
    """A broker with an exporter; gives the URL."""
    with serving(answers, port) as (host, _):
        yield f"http://{host}"


def test_a_recovery_to_its_end() -> None:
    answers: Answers = {"/metrics": page(3)}
    with broker(answers) as url:
        watching = Watching(url)
        for logs in (2, 1):
            answers["/metrics"] = page(logs)
            watching.until(lambda logs=logs: watching.has(LogDirSampled, remaining_logs=logs))
        answers["/metrics"] = page(None, state=3)
        report = watching.end()
    assert (report.exit_code, report.outcome, report.restarts) == (0, "over", 0)
    [log_dir] = report.values.log_dirs
    assert (log_dir.log_dir, log_dir.finished_logs) == ("/d", log_dir.log_count)
    assert watching.events[-1] == RunFinished(
        exit_code=0, now_ms=watching.events[-1].now_ms, monotonic_s=watching.events[-1].monotonic_s
    )


def test_a_broker_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LOST_S", 0.3)
    with broker({"/metrics": page(3)}) as url:
        watching = Watching(url)
        watching.until(lambda: watching.has(LogDirSampled))
    report = watching.end()
    assert (report.exit_code, report.outcome) == (4, "incomplete")
    assert sum(isinstance(event, SourceLost) for event in watching.events) == 1
    assert watching.has(RunFinished, exit_code=4)


def test_a_broker_that_is_started_again() -> None:
    answers: Answers = {"/metrics": page(3)}
    with broker(answers) as url:
        watching = Watching(url)
        watching.until(lambda: watching.has(LogDirSampled, remaining_logs=3))
        port = int(url.rpartition(":")[2])
    watching.until(lambda: watching.has(SourceLost))
    assert watching.gauges.values().is_source_gone
    assert not health(watching.gauges.values(), 300)["healthy"]
    answers["/metrics"] = page(None, started_s=60.0, state=0)
    with broker(answers, port):
        watching.until(lambda: watching.has(Remark, text=f"{url}/metrics: is back"))
        answers["/metrics"] = page(5, started_s=60.0)
        watching.until(lambda: watching.has(LogDirSampled, remaining_logs=5))
        assert not watching.gauges.values().is_source_gone
        assert health(watching.gauges.values(), 300)["healthy"]
        answers["/metrics"] = page(None, started_s=60.0, state=3)
        report = watching.end()
    assert (report.exit_code, report.restarts) == (0, 1)
    assert sum("is back" in event.text for event in watching.events if isinstance(event, Remark)) == 1


def test_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    watching = Watching(url, forever=True)
    watching.until(lambda: watching.has(SourceLost))
    answers: Answers = {"/metrics": page(2)}
    with broker(answers, port):
        watching.until(lambda: watching.has(LogDirSampled))
        answers["/metrics"] = page(None, state=3)
        watching.until(lambda: watching.has(RunFinished, exit_code=0))
        answers["/metrics"] = page(4, started_s=90.0)
        watching.until(lambda: watching.has(LogDirSampled, remaining_logs=4))
        assert sum(isinstance(event, RunStarted) for event in watching.events) == 2
        watching.stop.request(15)
        assert watching.end().exit_code == 143


def test_a_signal_does_not_wait_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 10 * LONGEST_WAIT_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        watching = Watching(f"http://127.0.0.1:{silent.getsockname()[1]}")
        silent.settimeout(LONGEST_WAIT_SECONDS)
        connection, _ = silent.accept()
        watching.stop.request(15)
        assert watching.end().exit_code == 143
        connection.close()


def test_nothing_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = run("watch", f"http://127.0.0.1:{port}", "--progress", "none")
    assert done.exit_code == 1
    assert_one_line(done, f"http://127.0.0.1:{port}/metrics: Connection refused. Remedy: check the URL")
    with serving({"/metrics": b"node_load1 1.0\n"}) as (host, _):
        done = run("watch", f"http://{host}", "--progress", "none")
    assert done.exit_code == 1
    assert_one_line(done, "of something else than Kafka")
    done = run("watch", "http://", "--progress", "none")
    assert done.exit_code == 1
    assert_one_line(done, "http://: no URL that can be read")


def test_log_dirs_are_of_no_use_beside_gauges(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"leave out -c and --log-dirs"):
        recovery.watch_broker("http://127.0.0.1:9", log_dirs=[str(tmp_path)])


def test_once() -> None:
    answers: Answers = {"/metrics": page(3)}
    with broker(answers) as url:
        done = run("watch", url, "--once", "--progress", "none", "--format", "json")
        assert done.exit_code == 0
        report = json.loads(done.stdout)
        assert (report["outcome"], report["logDirs"][0]["logs"]) == ("running", 3)
        assert report["logDirs"][0]["hadCleanShutdown"] is None
        answers["/metrics"] = page(None, state=0)
        assert run("watch", url, "--once", "--progress", "none").stdout.endswith(": no recovery seen\n")
        answers["/metrics"] = page(None, state=3)
        done = run("watch", url, "--progress", "log")
        assert (done.exit_code, "the recovery is over" in done.stdout) == (0, True)
        assert "no recovery: no log dir has a gauge of one" in done.stderr
