"""The recovery gauges (KIP-831) of a broker and of a run, on copies of the same log dirs: the same MBeans and falls.

A broker's are written down by an agent in its JVM, which reads them through JMX a thousand times a second where the
machine lets it, and whenever a thread has said in the log what it begins; ours are looked at after each event. Ours
have to take every value. A broker's last 0 may be too short to be seen: its gauges go as soon as the last log is
loaded.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import recovery
from recovery.watch.events import Event
from recovery.watch.gauges import Gauges
from tests.brokers import RELEASES, Broker
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
from tests.kafka.conftest import MOST_SEGMENTS
from tests.kafka.test_handoff import UNCLEAN
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import start
from tests.servers.s3_server import free_port

pytestmark = [pytest.mark.java, pytest.mark.broker]

_LOG_MANAGER = "kafka.log:type=LogManager,*"
_THREADS = 2
_BYTES_PER_SECOND = 60 << 20

_SEGMENT = re.compile(r"LogLoader partition=(bench-\d+), dir=([^\]]+)\].* Recovering unflushed segment ")

Fall = tuple[int, ...]
"""The values of a gauge from one that it has risen to down to the last before it rises again."""


@pytest.mark.parametrize(
    ("version", "indexes"),
    [
        (RELEASES["4.3"], "all"),
        (RELEASES["4.3"], "none"),
        (RELEASES["4.3"], "some"),
        (RELEASES["4.4"], "some"),
    ],
)
def test_the_gauges_of_a_run_fall_as_those_of_a_broker(
    crashed_dirs: Path, ram_path: Path, version: str, indexes: str
) -> None:
    theirs, ours = (_copy(crashed_dirs, ram_path / name, indexes) for name in ("theirs", "ours"))
    broker_changes, broker_log = _broker_changes(theirs, version)
    of_broker = _named_alike(broker_changes)
    log_counts, segment_counts = _said_by_broker(broker_log)
    of_run = _named_alike(_run_changes(ours))
    assert of_run.keys() == of_broker.keys() == _expected_gauges(("d1", "d2"))
    for gauge, changes in of_run.items():
        values = [change.value for change in changes]
        assert values[-2:] == [0, "gone"], (gauge, values)
    for log_dir in ("d1", "d2"):
        logs = _numbers(of_run[log_dir, None])
        assert logs == list(range(5, -1, -1))
        assert log_counts[log_dir] == 5
        seen = _numbers(of_broker[log_dir, None])
        assert seen[0] == logs[0]
        assert seen == sorted(set(seen), reverse=True)
        assert len(seen) >= len(logs) - 2
        our_falls, broker_falls = (_falls_of_segments(side, log_dir) for side in (of_run, of_broker))
        tops = Counter(map(_top, our_falls))
        assert tops == Counter(map(_top, broker_falls))
        assert tops == Counter(segment_counts[log_dir].values())
        assert all(fall == tuple(range(fall[0], -1, -1)) for fall in our_falls), our_falls
        assert all(list(fall) == sorted(set(fall), reverse=True) for fall in broker_falls), broker_falls
        assert max(tops) == MOST_SEGMENTS


def _said_by_broker(text: str) -> tuple[dict[str, int], dict[str, Counter[str]]]:
    """What a broker's log says that it recovers, by the name of the log dir: how many logs, and segments of each."""
    segments: dict[str, Counter[str]] = defaultdict(Counter)
    for partition, log_dir in _SEGMENT.findall(text):
        segments[Path(log_dir).name][partition] += 1
    return {Path(log_dir).name: int(count) for count, log_dir in UNCLEAN.findall(text)}, segments


def _top(fall: Fall) -> int:
    return fall[0]


def _expected_gauges(log_dirs: tuple[str, ...]) -> set[tuple[str, int | None]]:
    threads: tuple[int | None, ...] = (None, *range(_THREADS))
    return {(log_dir, thread_num) for log_dir in log_dirs for thread_num in threads}


def _copy(data: Path, root: Path, indexes: str) -> list[Path]:
    shutil.copytree(data, root)
    for number, index in enumerate(sorted(root.glob("d?/bench-*/*.index"))):
        if indexes == "none" or (indexes == "some" and number % 3 == 1):
            index.unlink()
    return [root / "d1", root / "d2"]


def _broker_changes(log_dirs: list[Path], version: str) -> tuple[list[GaugeChange], str]:
    work_dir = log_dirs[0].parent / "work"
    file = work_dir / "gauges.tsv"
    threads = {"num.recovery.threads.per.data.dir": str(_THREADS)}
    with Broker(
        log_dirs,
        work_dir=work_dir,
        properties=QUIET_PROPERTIES | threads,
        version=version,
        java_agents=[recorder_agent(file)],
    ) as broker:
        broker.start()
        wait_until(
            lambda: [change.value for change in recorded(file)][-1:] == ["gone"], lambda: recorded(file)
        )
        return recorded(file), broker.log


def _run_changes(log_dirs: list[Path]) -> list[GaugeChange]:
    """What the gauges of a run show, looked at after each of its events."""
    gauges = Gauges()
    known: dict[tuple[str, int | None], int] = {}
    changes: list[GaugeChange] = []

    def look(event: Event) -> None:
        gauges(event)
        now = dict(_shown(gauges))
        gone = dict.fromkeys(known.keys() - now.keys(), "gone")
        for (log_dir, thread_num), value in (gone | now).items():
            if known.get((log_dir, thread_num)) != value:
                changes.append(
                    GaugeChange(now_ms=event.now_ms, log_dir=log_dir, thread_num=thread_num, value=value)
                )
        known.clear()
        known.update(now)

    report = recovery.recover(
        [str(log_dir) for log_dir in log_dirs],
        config={"num.recovery.threads.per.data.dir": str(_THREADS)},
        max_bytes_per_second=_BYTES_PER_SECOND,
        observers=[look],
    )
    assert report.exit_code == 0
    return changes


def _shown(gauges: Gauges) -> Iterator[tuple[tuple[str, int | None], int]]:
    for log_dir in gauges.values().log_dirs:
        if log_dir.remaining_logs is not None:
            yield (log_dir.log_dir, None), log_dir.remaining_logs
        for thread_num, remaining in enumerate(log_dir.remaining_segments):
            yield (log_dir.log_dir, thread_num), remaining


def _named_alike(changes: list[GaugeChange]) -> dict[tuple[str, int | None], list[GaugeChange]]:
    """The changes of each gauge, by the name of its log dir: the folders above differ."""
    by_gauge = defaultdict(list)
    for change in changes:
        by_gauge[Path(change.log_dir).name, change.thread_num].append(change)
    return dict(by_gauge)


def _numbers(changes: list[GaugeChange]) -> list[int]:
    return [change.value for change in changes if isinstance(change.value, int)]


def _falls_of_segments(of_side: dict[tuple[str, int | None], list[GaugeChange]], log_dir: str) -> list[Fall]:
    """The falls of all threads of a log dir; which thread takes a log is chance."""
    falls: list[list[int]] = []
    for thread_num in range(_THREADS):
        last = -1
        for value in _numbers(of_side[log_dir, thread_num]):
            if value > last:
                falls.append([])
            falls[-1].append(value)
            last = value
    return [tuple(fall) for fall in falls if fall[0] > 0]


def test_the_same_mbeans_and_series(crashed_dirs: Path, ram_path: Path) -> None:
    theirs, ours = (_copy(crashed_dirs, ram_path / name, "all") for name in ("theirs", "ours"))
    of_broker, of_run = _names_of_broker(theirs), _names_of_run(ours)
    assert of_run.mbeans == of_broker.mbeans
    assert of_run.series == of_broker.series
    assert {mbean for mbean in of_broker.mbeans - of_run.mbeans if "ToRecover" in mbean} == set()
    assert {name for name, _ in of_broker.series - of_run.series if "torecover" in name} == set()
    assert len(of_run.series) >= 2 * (1 + _THREADS)


class _Names(NamedTuple):
    """What LogManager's gauges are called during a recovery: as Jolokia has them, and as Prometheus has."""

    mbeans: frozenset[str]
    series: frozenset[tuple[str, frozenset[tuple[str, str]]]]


def _names(get: Callable[[str], str], root: Path) -> _Names:
    """Ask for them until all dirs and threads have shown themselves; without the folder and JMX's quotes."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        assert time.monotonic() < deadline
        mbeans = frozenset(json.loads(get("jolokia")).get("value", {}))
        lines = [line for line in get("metrics").splitlines() if line.startswith("kafka_log_logmanager_")]
        seen = [sum("remainingSegments" in mbean for mbean in mbeans)]
        seen += [sum("remainingsegments" in line for line in lines)]
        if seen == [2 * _THREADS] * 2:
            break
    samples = [
        sample
        for family in text_string_to_metric_families("\n".join(lines).replace(f"{root}/", "/data/"))
        for sample in family.samples
    ]
    return _Names(
        frozenset(mbean.replace(f"{root}/", "/data/") for mbean in mbeans),
        frozenset(
            (sample.name, frozenset((name, text.strip('"')) for name, text in sample.labels.items()))
            for sample in samples
        ),
    )


def _names_of_broker(log_dirs: list[Path]) -> _Names:
    root = log_dirs[0].parent
    with Broker(
        log_dirs,
        work_dir=root / "work",
        properties=QUIET_PROPERTIES | {"num.recovery.threads.per.data.dir": str(_THREADS)},
        java_agents=[jolokia_agent(), exporter_agent(root / "work/rules.json", "usual", only=_LOG_MANAGER)],
    ) as broker:
        broker.launch()
        broker.wait_for("Jolokia: Agent")
        urls = {
            "jolokia": f"http://localhost:{JOLOKIA_PORT}/jolokia/read/{_LOG_MANAGER}",
            "metrics": f"http://localhost:{EXPORTER_PORT}/metrics",
        }

        def get(kind: str) -> str:
            command = [*broker.inside, "curl", "-sg", urls[kind]]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        return _names(get, root)


def _names_of_run(log_dirs: list[Path]) -> _Names:
    port = free_port()
    arguments = ["--log-dirs", ",".join(map(str, log_dirs)), "--threads", str(_THREADS), "--progress", "none"]
    arguments += ["--max-bytes-per-second", "4M", "--metrics-port", str(port)]
    run = start("recover", *arguments)
    paths = {"jolokia": f"jolokia/read/{_LOG_MANAGER}", "metrics": "metrics"}

    def get(kind: str) -> str:
        command = ["curl", "-sg", "--retry", "50", "--retry-connrefused", "--retry-delay", "1"]
        url = f"http://localhost:{port}/{paths[kind]}"
        return subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout

    try:
        return _names(get, log_dirs[0].parent)
    finally:
        run.kill()
        run.communicate()
