"""`/jolokia/read` against the agent itself, in a JVM that has the same MBeans."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.watch.gauges import Gauges
from recovery.watch.http.routes import Routes
from recovery.watch.http.server import serve
from recovery.watch.notices import Notices
from tests.brokers.agents import jolokia_agent
from tests.brokers.jars import ORACLE_DIR, compiled
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.event_streams import at, dir_started, log_started, run_started

pytestmark = [pytest.mark.java]

A, B = "/data/a", '/data/b "q" *!,=x?\\'
NAMED = "kafka.log:type=LogManager,name=remainingLogsToRecover,dir=%22!/data!/a%22"
COUNT = "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"
PATHS = [
    "kafka.log:type=LogManager,*",
    "kafka.log:type=LogManager,*/",
    "kafka.log:type=LogManager,*/Value",
    "kafka.log:type=LogManager,*/Nope",
    "kafka.log:type=LogManager,*/Value,Nope",
    "kafka.log:type=LogManager,*/Nope,Nope2",
    "kafka.log:type=LogManager,*/Value/x",
    NAMED,
    f"{NAMED}/Value",
    f"{NAMED}/Nope",
    "kafka.log:name=remainingLogsToRecover,dir=%22!%2Fdata!%2Fa%22,type=LogManager",
    "kafka.log:name=remainingLogsToRecover,dir=%22%2Fdata%2Fa%22,type=LogManager",
    "kafka.log:type=LogManager,name=remainingLogsToRecover,dir=%22!/data!/b%20%5C%22q%5C%22%20%5C*!!,=x%5C%3F%5C%5C%22",
    "kafka.log:type=LogManager,name=remainingLogsToRecover,dir=%22!/data!/%C3%A4%22",
    "kafka.log:type=LogManager,dir=%22!/data!/b*%22,*",
    "kafka.log:dir=%22!/data!/%3F%22,*",
    "kafka.log:dir=%22!/data!/a%5C*%22,*",
    "kafka.log:dir=%22!/data!/b%20%5C%22q%5C%22%20%5C*%22,*",
    "kafka.log:dir=*,*",
    "kafka.log:dir=*",
    "kafka.log:name=remaining*ToRecover,dir=*,type=LogManager",
    "kafka.log:name=remaining%3F%3F%3F%3FToRecover,*",
    "kafka.log:name=remainingSegmentsToRecover,threadNum=*,*/Value",
    "kafka.log:type=LogManager,*,name=remainingLogsToRecover",
    "*:name=remainingLogsToRecover,*",
    "kafka.*:type=LogManager,*",
    "kafka.log:*",
    "kafka.log:type=LogManager",
    "kafka.log:type=LogManager,name=nope",
    "kafka.log:type=LogManager,name=nope,*",
    "kafka.log:type=LogManager,name=,*",
    "kafka.log:type=%22LogManager%22,*",
    "kafka.log:type=Log,name=Size,*",
    "kafka.server:type=KafkaServer,name=BrokerState",
    "kafka.log!/x:type=LogManager",
    COUNT,
    f"{COUNT}/",
    f"{COUNT}/Value",
    f"{COUNT}/Value,Value",
    f"{COUNT}/Value,Nope",
    f"{COUNT}/Value/a",
    f"{COUNT}?ignoreErrors=true",
    "kafka.log:type=LogManager,name=!OfflineLogDirectoryCount",
    "kafka.log",
    "kafka.log:",
    ":type=LogManager",
    "kafka.log:type",
    "kafka.log:ty*pe=LogManager",
    "kafka.log:type=LogManager,type=LogManager",
    "kafka.log:type=LogManager,,*",
    "kafka.log:type=LogManager,",
    "kafka.log:*,*",
    "kafka.log:type=LogManager,name=a:b",
    "kafka.log:type=LogManager,dir=%22!/da%5Cta%22",
    "kafka.log:type=LogManager,*!",
    "",
]


def get(url: str) -> tuple[int, Any]:
    """The status, and the object without its time; None if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=LONGEST_WAIT_SECONDS) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    if status != 200:
        return status, None
    found = json.loads(text)
    return status, {key: found[key] for key in found if key != "timestamp"}


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    gauges = Gauges()
    for event in (run_started(log_dirs=(A, B)), dir_started(A), dir_started(B), log_started(**at(1))):
        gauges(event)
    with serve(Routes(gauges, Notices(), monotonic_s=lambda: 1001.0).answer, 0, "127.0.0.1") as (_, port):
        yield f"http://127.0.0.1:{port}/jolokia/read/"


@pytest.fixture(scope="module")
def theirs(ours: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    beans: Path = tmp_path_factory.mktemp("beans") / "beans.txt"
    values = get(f"{ours}*:*")[1]["value"]
    beans.write_text("".join(f"{name}\t{bean['Value']}\n" for name, bean in values.items()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["java", "-Xmx64m", f"-javaagent:{jolokia_agent(port=port)}", "-cp"]
    command += [str(compiled(ORACLE_DIR / "gauges")), "LogManagerBeans", str(beans)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert any(line == "ready\n" for line in process.stdout)
        yield f"http://127.0.0.1:{port}/jolokia/read/"
        process.communicate("\n", timeout=LONGEST_WAIT_SECONDS)


def test_there_is_something_to_compare(ours: str, theirs: str) -> None:
    values = get(f"{theirs}{PATHS[0]}")[1]["value"]
    assert len(values) >= 9
    assert values['kafka.log:type=LogManager,name=remainingSegmentsToRecover,dir="/data/a",threadNum=0'] == {
        "Value": 3
    }


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_is_that_of_the_agent(ours: str, theirs: str, path: str) -> None:
    assert get(f"{ours}{path}") == get(f"{theirs}{path}")
