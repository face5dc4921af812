"""A real Prometheus scrapes a run, what the run leaves in node_exporter's hands, and a broker that recovers by itself.

The run reads a copy of the broker's log dirs, slowed down so that its ETA is no guess, with one batch damaged.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generate import Shape, generate
from tests.brokers import Broker
from tests.brokers.agents import exporter_agent
from tests.brokers.broker import QUIET_PROPERTIES
from tests.deploy.test_dashboard import DASHBOARD, PANELS, targets
from tests.deploy.test_rules import RULES, metric_names
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import start
from tests.servers.machine import PROMETHEUS, needs
from tests.servers.prometheus import Prometheus, node_exporter, promtool, read_text
from tests.servers.s3_server import free_port

pytestmark = [
    pytest.mark.java,
    pytest.mark.broker,
    pytest.mark.prometheus,
    pytest.mark.long,
    needs(PROMETHEUS),
]

_BYTES_PER_SECOND = "25000000"
_LOGS = 20
_STARTS = 5
_SCRAPES = 8
"""Of a broker's load, with which its gauges go; on a slow machine an answer takes longer, and so does the load."""
_RANGE_S = 300.0
_RUN, _TEXTFILE, _BROKER = "run", "textfile", "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """What there is after a run and a broker's load, both over.

    Attributes:
        prometheus: has scraped the run as job `run`, node_exporter as `textfile`, the broker as `broker`.
        log_dirs: those of the run, and those of the broker.
        metrics: what the run answered at /metrics while it recovered.
        textfile: what it has left.
        exporter: what node_exporter answers.
    """

    prometheus: Prometheus
    log_dirs: dict[str, set[str]]
    metrics: str
    textfile: Path
    exporter: str


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    root = tmp_path_factory.mktemp("scraped")
    brokers, runs = root / "broker's", root / "run's"
    generate(brokers, Shape(bytes_total=400 << 20, batch_bytes=170, dirs=1, partitions=_LOGS, segments=3))
    shutil.copytree(brokers, runs)
    _damage(sorted(runs.glob("d1/bench-*/*.log"))[0])
    exporter, metrics = free_port(), free_port()
    textfile = root / "textfiles" / "kafka-log-recovery.prom"
    textfile.parent.mkdir()
    broker = Broker(
        [brokers / "d1"],
        work_dir=root / "work",
        properties=QUIET_PROPERTIES | {"num.recovery.threads.per.data.dir": "1"},
        ports=(free_port(), free_port()),
        java_agents=[exporter_agent(root / "work" / "rules.json", "log-manager", port=exporter)],
    )
    with broker, node_exporter(textfile.parent) as node:
        jobs = {_RUN: f"127.0.0.1:{metrics}", _TEXTFILE: node, _BROKER: f"127.0.0.1:{exporter}"}
        targets_by_job = {job: [at] for job, at in jobs.items()}
        interval_ms = min(max(_load_ms(broker) // _SCRAPES, 500), 3000)
        with Prometheus(
            root / "prometheus", targets_by_job, [RULES], scrape_interval=f"{interval_ms}ms"
        ) as prometheus:
            _load_in_sight(broker, prometheus)
            run = _start(runs, metrics, textfile)
            try:
                prometheus.wait_for('kafka_log_recovery_run_eta_seconds{job="run"}')
                seen = read_text(f"http://127.0.0.1:{metrics}/metrics")
                assert run.wait(LONGEST_WAIT_SECONDS) == 2  # cut
            finally:
                run.kill()
                run.communicate()
            prometheus.wait_for('kafka_log_recovery_exit_code{job="textfile"}')
            yield Scraped(
                prometheus=prometheus,
                log_dirs={_RUN: _log_dirs(runs), _BROKER: _log_dirs(brokers)},
                metrics=seen,
                textfile=textfile,
                exporter=read_text(f"http://{node}/metrics"),
            )


def test_every_query_of_every_panel_has_data(scraped: Scraped) -> None:
    empty = [
        (title, target["expr"]) for title, target in targets() if not _series(scraped, target["expr"], ".*")
    ]
    assert not empty


def test_every_panel_of_a_section_has_data_of_its_source(scraped: Scraped) -> None:
    second = next(p for p in DASHBOARD["panels"] if p["type"] == "row" and "KIP-831" in p["title"])
    for panel in PANELS:
        is_ours = panel["gridPos"]["y"] < second["gridPos"]["y"]
        for target in panel["targets"]:
            for job in (_RUN, _TEXTFILE) if is_ours else (_BROKER,):
                is_in_time = job == _RUN or "eta" not in target["expr"]  # the file is written every 5 s
                assert _series(scraped, target["expr"], job) or not is_in_time, (panel["title"], job)


def test_one_legend_holds_for_quoted_and_unquoted_log_dirs(scraped: Scraped) -> None:
    quoted = _series(scraped, 'kafka_log_logmanager_remaininglogstorecover{job=~"$job"}', _BROKER)
    assert {series["metric"]["dir"] for series in quoted} == {f'"{d}"' for d in scraped.log_dirs[_BROKER]}
    by_dir = [target["expr"] for title, target in targets() if title in _BY_DIR]
    assert len(by_dir) == len(_BY_DIR)
    for expression in by_dir:
        for job, log_dirs in scraped.log_dirs.items():
            assert {s["metric"]["dir"] for s in _series(scraped, expression, job)} == log_dirs


_BY_DIR = ("Logs left to recover", "Segments left in the logs at hand")


def test_the_variables_offer_jobs_and_instances(scraped: Scraped) -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert asked
        found = scraped.prometheus.api(
            f"label/{asked[2]}/values", **{"match[]": asked[1].replace("$job", ".*")}
        )
        assert len(found) == len((_RUN, _TEXTFILE, _BROKER))


def test_a_cut_is_an_alert_that_outlives_the_run(scraped: Scraped) -> None:
    groups = scraped.prometheus.api("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert {rule["health"] for rule in rules.values()} == {"ok"}
    scraped.prometheus.wait_for(
        'ALERTS{alertname="KafkaLogRecoveryCut", job="textfile", alertstate="firing"}'
    )
    scraped.prometheus.wait_for('absent(up{job="run"} == 1)')
    firing = scraped.prometheus.query('ALERTS{alertstate="firing"}')
    assert {sample.labels["alertname"] for sample in firing} == {"KafkaLogRecoveryCut"}


def test_promtool_would_only_write_labels_of_kafkas_in_another_way(scraped: Scraped) -> None:
    """They are those of the MBeans: logDirectory, threadNum."""
    for text in (scraped.metrics, scraped.textfile.read_text()):
        exit_code, printed = promtool("check", "metrics", stdin=text.encode())
        assert exit_code in (0, 3), printed
        said = [
            line.partition(" label names should be written in 'snake_case'") for line in printed.splitlines()
        ]
        assert all(name.startswith("kafka_log_logmanager_") and what for name, what, _ in said), printed


def test_node_exporter_shows_the_whole_file(scraped: Scraped) -> None:
    """The values are the same; the order of labels and the way to print a number are node_exporter's."""
    left, shown = _samples(scraped.textfile.read_text()), _samples(scraped.exporter)
    assert left.items() <= shown.items()
    names = {name for name, _ in left}
    gone = {
        name for name in metric_names() if ("remaining" in name and "logmanager" in name) or "eta" in name
    }
    assert metric_names() - names <= gone | {
        "kafka_log_recovery_bytes_per_second",
        "kafka_log_recovery_watched_source_up",  # of `watch` alone
        *(f"kafka_server_brokertopicmetrics_buildremotelogaux{one}_total" for one in _OF_RESTORE),
    }
    assert shown["node_textfile_scrape_error", frozenset()] == 0


_OF_RESTORE = ("staterequests", "stateerrors")
"""Counted by topic, so that a recovery has no sample of them."""


def _series(scraped: Scraped, expression: str, job: str) -> list[dict[str, Any]]:
    return scraped.prometheus.query_range(
        expression.replace("$job", job).replace("$instance", ".*"), _RANGE_S
    )


def _samples(text: str) -> dict[tuple[str, frozenset[str]], float]:
    lines = (re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in text.splitlines())
    return {
        (line[1], frozenset(re.findall(r'\w+="(?:[^"\\]|\\.)*"', line[2] or ""))): float(line[3])
        for line in lines
        if line
    }


def _load_ms(broker: Broker) -> int:
    """Have the broker load once, and return how long that takes here."""
    broker.launch()
    broker.wait_for("Kafka Server started")
    found = re.search(r"Loaded \d+ logs in (\d+)ms", broker.log)
    assert found
    return int(found[1])


def _load_in_sight(broker: Broker, prometheus: Prometheus) -> None:
    """Start the broker until scrapes have seen its gauges fall. Killed, it has everything to recover again."""
    remaining = f'kafka_log_logmanager_remaininglogstorecover{{job="{_BROKER}"}}'
    for _ in range(_STARTS):
        broker.kill()
        broker.launch()
        broker.wait_for("Kafka Server started")
        if prometheus.query(f"deriv({remaining}[5m]) < 0"):
            return
    pytest.fail(f"{_STARTS} loads, and too few scrapes of each")


def _start(root: Path, port: int, textfile: Path) -> subprocess.Popen[str]:
    arguments = ["recover", "--log-dirs", ",".join(sorted(_log_dirs(root))), "--threads", "1"]
    arguments += ["--max-bytes-per-second", _BYTES_PER_SECOND, "--progress", "none", "--format", "json"]
    return start(*arguments, "--metrics-port", str(port), "--metrics-textfile", str(textfile))


def _log_dirs(root: Path) -> set[str]:
    return {str(root / "d1")}


def _damage(log: Path) -> None:
    with log.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"damage")
