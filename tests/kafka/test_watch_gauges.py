"""`watch` by the gauges of real brokers that recover: what it shows is what they were at that moment."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.brokers.agents import (
    EXPORTER_PORT,
    JOLOKIA_PORT,
    GaugeChange,
    exporter_agent,
    jolokia_agent,
    recorded,
    recorder_agent,
)
from tests.brokers.broker import QUIET_PROPERTIES
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import RECOVERY, start
from tests.servers.s3_server import free_port
from tests.servers.sockets import ESTABLISHED, local_ends

pytestmark = [pytest.mark.java, pytest.mark.broker]

METRICS = f"http://localhost:{EXPORTER_PORT}"
JOLOKIA = f"http://localhost:{JOLOKIA_PORT}/jolokia"
_ONE_THREAD = {"num.recovery.threads.per.data.dir": "1"}
_LOOK_MS = 10_000
"""How long ago the gauges may have been read that a line shows: a scrape takes a while beside a recovery."""


class Watch:
    """`watch` with `--progress json` in a process of its own."""

    def __init__(self, source: str, *arguments: str, inside: Sequence[str] = ()) -> None:
        self.process = start(
            "watch",
            source,
            "--progress",
            "json",
            "--interval",
            "0.1",
            *arguments,
            command=[*inside, *RECOVERY],
        )
        self.lines: list[dict[str, Any]] = []

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """Read on to the next line of that event."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == event and fields.items() <= line.items():
                return line
        raise AssertionError(f"no {event} {fields} but {self.lines[-5:]}")

    def end(self) -> int:
        """Read to the end; the exit code."""
        assert self.process.stderr is not None
        self.lines += map(json.loads, self.process.stderr)
        return self.process.wait(LONGEST_WAIT_SECONDS)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def samples(self) -> list[Shown]:
        """What was shown of each gauge that there was, line by line."""
        return [
            Shown(now_ms=line["now_ms"], log_dir=log_dir["log_dir"], thread_num=thread_num, value=value)
            for line in self.lines
            if line["event"] == "Progress"
            for log_dir in line["log_dirs"]
            for thread_num, value in [
                (None, log_dir["remaining_logs"]),
                *enumerate(log_dir["remaining_segments"]),
            ]
            if value is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A gauge as `watch` has shown it."""

    now_ms: int
    log_dir: str
    thread_num: int | None
    value: int


def was_so(shown: Shown, changes: Sequence[GaugeChange]) -> bool:
    """Whether the gauge had that value at a moment of the last while. A thread without a value is shown as 0."""
    values: set[int | str | None] = set()
    for change in changes:
        if (change.log_dir, change.thread_num) == (shown.log_dir, shown.thread_num):
            if change.now_ms < shown.now_ms - _LOOK_MS:
                values.clear()
            if change.now_ms <= shown.now_ms:
                values.add(0 if change.value in (None, "gone") else change.value)
    return shown.value in (values or {0})


def recovering_broker(
    slow_crashed_dirs: Path,
    root: Path,
    version: str,
    agents: Callable[[Path], list[str]],
    ports: tuple[int, int] | None = None,
) -> Broker:
    """A broker that will recover a copy of the log dirs, with a thread for each."""
    shutil.copytree(slow_crashed_dirs, root)
    work_dir = root / "work"
    return Broker(
        [root / "d1", root / "d2"],
        work_dir=work_dir,
        properties=QUIET_PROPERTIES | _ONE_THREAD,
        version=version,
        ports=ports,
        java_agents=[*agents(work_dir), recorder_agent(work_dir / "gauges.tsv")],
    )


@contextmanager
def held_until_connected(broker: Broker, *ports: int) -> Iterator[None]:
    """Hold the broker until each of the ports has been called: a watch that begins slowly misses a fast recovery."""
    with broker.held():
        yield
        wait_until(
            lambda: connected_ports(broker).issuperset(ports),
            lambda: connected_ports(broker),
            pause_seconds=0.02,
        )


def connected_ports(broker: Broker) -> set[int]:
    """The broker's ports that somebody has called; it may not have accepted yet."""
    return {port for _, port in local_ends(ESTABLISHED, broker.pid)}


@pytest.mark.parametrize(
    ("version", "rules", "exporter", "jolokia"),
    [("4.3.1", "usual", "1.0.1", "2.6.0"), ("4.4.0", "none", "0.20.0", "1.7.2")],
)
def test_what_is_shown_is_what_the_gauges_were(
    slow_crashed_dirs: Path, ram_path: Path, version: str, rules: str, exporter: str, jolokia: str
) -> None:
    def agents(work_dir: Path) -> list[str]:
        return [exporter_agent(work_dir / "rules.json", rules, exporter), jolokia_agent(jolokia)]

    with recovering_broker(slow_crashed_dirs, ram_path / "broker", version, agents) as broker:
        broker.launch()
        broker.wait_for("Jolokia: Agent")
        with ExitStack() as watches:
            with held_until_connected(broker, EXPORTER_PORT, JOLOKIA_PORT):
                by_metrics = watches.enter_context(Watch(METRICS, inside=broker.inside))
                by_jolokia = watches.enter_context(Watch(JOLOKIA, inside=broker.inside))
            assert by_metrics.end() == 0
            assert by_jolokia.end() == 0
        broker.wait_for("Kafka Server started")
        changes = recorded(broker.log_path.parent / "gauges.tsv")
    log_dirs = {str(log_dir) for log_dir in broker.log_dirs}
    for watch in (by_metrics, by_jolokia):
        assert {line["log_dir"] for line in watch.lines if line["event"] == "LogDirStarted"} == log_dirs
        wrong = [shown for shown in watch.samples if not was_so(shown, changes)]
        assert not wrong, (wrong, changes)
        for log_dir in log_dirs:
            logs = [s.value for s in watch.samples if s.log_dir == log_dir and s.thread_num is None]
            assert logs == sorted(logs, reverse=True)
        last = watch.lines[-2]
        assert last["event"] == "Progress"
        assert [(d["finished_logs"] - d["log_count"], d["is_finished"]) for d in last["log_dirs"]] == [
            (0, True)
        ] * 2
    # It was seen while it went on, not only at its end.
    assert {shown.value for shown in by_jolokia.samples if shown.thread_num is None} - {0}
    assert {shown.value for shown in by_jolokia.samples if shown.thread_num == 0} - {0}


def test_a_broker_that_is_killed_and_started_again(slow_crashed_dirs: Path, ram_path: Path) -> None:
    jolokia_port, *ports = (free_port() for _ in range(3))
    source = f"http://localhost:{jolokia_port}/jolokia"

    def agents(_work_dir: Path) -> list[str]:
        return [jolokia_agent(port=jolokia_port)]

    # On free ports: a network of its own would end with the broker.
    with recovering_broker(
        slow_crashed_dirs, ram_path / "broker", "4.3.1", agents, ports=(ports[0], ports[1])
    ) as broker:
        broker.launch()
        broker.wait_for("Jolokia: Agent")
        with ExitStack() as watches:
            with held_until_connected(broker, jolokia_port):
                watch = watches.enter_context(Watch(source))
            watch.until("LogDirStarted")
            broker.kill()
            assert source in watch.until("SourceLost")["text"]
            broker.start()
            watch.until("Remark", text=f"{source}: is back")
            text = "the broker was started again before its recovery was over: counting begins anew"
            watch.until("BrokerRestarted", text=text)
            assert watch.end() == 0
    assert [line["exit_code"] for line in watch.lines if line["event"] == "RunFinished"] == [0]


def test_a_run_of_this_tool(crashed_dirs: Path, ram_path: Path) -> None:
    shutil.copytree(crashed_dirs, ram_path / "data")
    log_dirs = f"{ram_path}/data/d1,{ram_path}/data/d2"
    port = free_port()
    run = start(
        "recover", "--log-dirs", log_dirs, "--threads", "1", "--max-bytes-per-second", "4M", "--progress", "none",
        "--metrics-port", str(port), "--format", "json", stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        curl = ["curl", "-sf", f"http://localhost:{port}/metrics"]
        wait_until(lambda: not subprocess.run(curl, capture_output=True).returncode)
        with Watch(f"http://localhost:{port}") as watch:
            started = [watch.until("LogDirStarted") for _ in range(2)]
            while not (shown := watch.until("Progress"))["scanned_bytes"]:
                pass
            watch.process.send_signal(signal.SIGTERM)
            assert watch.end() == 143
        report = json.loads(run.communicate(timeout=LONGEST_WAIT_SECONDS)[0])
    finally:
        run.kill()
        run.communicate()
    assert report["exitCode"] == 0
    logs = [log for log_dir in report["logDirs"] for log in log_dir["partitions"]]
    assert sum(line["log_count"] for line in started) == len(logs)
    assert sum(line["segment_count"] for line in started) == sum(log["segments"]["recovered"] for log in logs)
    assert shown["bytes_total"] == sum(line["bytes_total"] for line in started) > 0
    assert 0 < shown["remaining_bytes"] < shown["bytes_total"]
    assert shown["log_dirs"][0]["remaining_segments"]
