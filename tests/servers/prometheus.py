"""Debian's Prometheus, its promtool and its node_exporter, on loopback.

with Prometheus(folder, {"recovery": [f"127.0.0.1:{port}"]}) as prometheus:
    prometheus.wait_for("kafka_log_recovery_logs > 0")
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.patience import LONGEST_WAIT_SECONDS
from tests.servers.s3_server import free_port

PROGRAMS = ("prometheus", "promtool", "prometheus-node-exporter")
SCRAPE_INTERVAL = "2s"  # also how long an answer may take


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A server that scrapes *targets* (addresses by job), with the rules in *rule_files*, until the context ends."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Sequence[str]],
        rule_files: Sequence[Path] = (),
        *,
        scrape_interval: str = SCRAPE_INTERVAL,
    ) -> None:
        self._folder = folder
        self._port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "global": {"scrape_interval": scrape_interval, "evaluation_interval": SCRAPE_INTERVAL},
            "rule_files": [str(file) for file in rule_files],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    def __enter__(self) -> Prometheus:
        command = [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        _wait_until_served(self._url("-/ready"), self._process)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[Sample]:
        """The instant vector that *expression* is now."""
        found = self.api("query", query=expression)
        return [Sample(row["metric"], float(row["value"][1])) for row in found["result"]]

    def query_range(self, expression: str, seconds: float) -> list[dict[str, Any]]:
        """The series of *expression* over the last *seconds*, two samples a second."""
        now = time.time()
        found = self.api("query_range", query=expression, start=now - seconds, end=now, step=0.5)
        series: list[dict[str, Any]] = found["result"]
        return series

    def wait_for(self, expression: str) -> list[Sample]:
        """What *expression* is as soon as it is anything."""
        until_s = time.monotonic() + LONGEST_WAIT_SECONDS
        while not (found := self.query(expression)):
            assert time.monotonic() < until_s, f"no data: {expression}"
            time.sleep(0.1)
        return found

    def api(self, path: str, **parameters: object) -> Any:
        """The `data` of an answer of /api/v1/*path*."""
        with urllib.request.urlopen(
            self._url(f"api/v1/{path}?{urllib.parse.urlencode(parameters)}"), timeout=LONGEST_WAIT_SECONDS
        ) as answer:
            return json.load(answer)["data"]

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}/{path}"


@contextmanager
def node_exporter(textfiles: Path) -> Iterator[str]:
    """A node_exporter with nothing but the textfile collector on the folder *textfiles*; gives its address."""
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"]
    command += [f"--collector.textfile.directory={textfiles}", f"--web.listen-address={address}"]
    with (textfiles / "node-exporter.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_served(f"http://{address}/metrics", process)
        yield address
    finally:
        process.kill()
        process.wait()


def promtool(
    *arguments: str | Path, folder: Path | None = None, stdin: bytes | None = None
) -> tuple[int, str]:
    """Run promtool in *folder*; its exit code and all that it printed."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)],
        cwd=folder,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def read_text(url: str) -> str:
    """What is answered at *url*."""
    with urllib.request.urlopen(url, timeout=LONGEST_WAIT_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def _wait_until_served(url: str, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            read_text(url)
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, f"it has ended: {process.args!r}"
            assert time.monotonic() < until_s, f"no answer: {url}"
            time.sleep(0.1)
        else:
            return
