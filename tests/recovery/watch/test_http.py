"""The HTTP server: what each path answers, and that no peer can be in its way or in that of a run."""

import http.client
import json
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.errors import UsageError
from recovery.watch.events import Remark, RunFinished
from recovery.watch.gauges import Gauges
from recovery.watch.http.routes import Routes
from recovery.watch.http.server import serve
from recovery.watch.notices import LATEST_COUNT, Notices
from tests.runs.event_streams import (
    A,
    B,
    at,
    dir_started,
    log_finished,
    log_started,
    one_of_each,
    run_started,
    scanned,
    segment_recovered,
)

LOGS = "kafka_log_logmanager_remaininglogstorecover"


class Served:
    """A server, its observers, and the clock that its figures go by."""

    def __init__(self, port: int, gauges: Gauges, notices: Notices) -> None:
        self.port = port
        self.observers = (gauges, notices)
        self.monotonic_s = 1000.0

    def tell(self, *events):
        for event in events:
            for observer in self.observers:
                observer(event)

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, headers, body = self.ask(path)
        assert headers["Content-Type"] == "application/json"
        return status, json.loads(body)


@contextmanager
def serving(host="127.0.0.1", **options):
    gauges, notices = Gauges(), Notices()
    found = Served(0, gauges, notices)
    routes = Routes(gauges, notices, monotonic_s=lambda: found.monotonic_s, **options)
    with serve(routes.answer, 0, host) as (_, found.port):
        yield found


@pytest.fixture
def served():
    with serving() as found:
        yield found


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "content_type"),
        [
            ("/", "text/html; charset=utf-8"),
            ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
            ("/api/v1/status", "application/json"),
            ("/healthz", "application/json"),
        ],
    )
    def test_get_and_head_are_answered_and_nothing_else(self, served, path, content_type):
        status, headers, body = served.ask(path)
        assert (status, headers["Content-Type"]) == (200, content_type)
        assert int(headers["Content-Length"]) == len(body) > 0
        status, headers, body = served.ask(path, "HEAD")
        assert (status, headers["Content-Type"], body) == (200, content_type, b"")
        assert int(headers["Content-Length"]) > 0
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"):
            status, headers, _ = served.ask(path, method)
            assert (status, headers["Allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        "path",
        ["/favicon.ico", "/metrics/", "/Metrics", "/metrics%2F", "/api/v1/status/x", "/healthz2", "/%00"],
    )
    def test_what_is_not_there_is_not_found(self, served, path):
        assert [served.ask(path, method)[0] for method in ("GET", "HEAD", "POST")] == [404, 404, 404]

    @pytest.mark.parametrize("path", ["/metrics?name=x", "/metric%73", "http://127.0.0.1/metrics"])
    def test_a_path_may_be_written_otherwise(self, served, path):
        assert b"run_state" in served.ask(path)[2]


def test_metrics_are_there_before_the_first_event_and_until_the_context_ends():
    with serving() as served:
        text = served.ask("/metrics")[2].decode()
        assert 'kafka_log_recovery_run_state{state="waiting"} 1.0' in text
        assert LOGS not in text
        served.tell(run_started(), dir_started())
        assert f'{LOGS}{{dir="/data/a"}} 2.0' in served.ask("/metrics")[2].decode()
        served.tell(log_finished())
        assert f'{LOGS}{{dir="/data/a"}} 1.0' in served.ask("/metrics")[2].decode()
        served.tell(RunFinished(exit_code=0, **at(1)))
        assert LOGS not in served.ask("/metrics")[2].decode()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", served.port), timeout=1).close()


class TestStatus:
    def test_before_the_first_event(self, served):
        status, found = served.json("/api/v1/status")
        assert status == 200
        assert found["now_ms"] > 1_700_000_000_000
        assert {key: found[key] for key in ("version", "source", "state", "log_dirs", "notices")} == {
            "version": 1,
            "source": "run",
            "state": "waiting",
            "log_dirs": [],
            "notices": [],
        }
        assert found["last_progress_ms"] is None
        assert found["notice_count"] == 0

    def test_in_the_middle(self, served):
        served.tell(run_started(), dir_started(), dir_started(B), log_started(), scanned(300, **at(0.2)))
        served.tell(segment_recovered(2, **at(0.3)))
        found = served.json("/api/v1/status")[1]
        a, b = found["log_dirs"]
        assert (a["log_dir"], a["remaining_logs"], a["remaining_segments"]) == (A, 2, [2, 0])
        assert a["threads"] == [
            {"thread_num": 0, "partition": "t-0", "remaining_segments": 2},
            {"thread_num": 1, "partition": None, "remaining_segments": 0},
        ]
        assert [thread["partition"] for thread in b["threads"]] == [None, None]
        assert found["last_progress_ms"] == at(0.3)["now_ms"]
        assert found["scanned_bytes"] == 300

    def test_at_the_end_with_what_went_wrong(self, served):
        served.tell(*one_of_each())
        found = served.json("/api/v1/status")[1]
        assert (found["state"], found["exit_code"]) == ("incomplete", 4)
        assert [log_dir["threads"] for log_dir in found["log_dirs"]] == [[], []]
        assert found["log_dirs"][0]["partitions"] == {"truncated": 1, "refused": 1}
        assert found["notice_count"] == len(found["notices"]) == 7
        assert found["notices"][1:4] == [
            {
                "level": "warning",
                "text": "00000000000000000020.log: cut to 123 bytes, the next offset is 25: CRC mismatch",
                "log_dir": A,
                "partition": "t-0",
            },
            {"level": "warning", "text": "1 segment dropped", "log_dir": A, "partition": "t-0"},
            {"level": "error", "text": "refused: no", "log_dir": A, "partition": "t-1"},
        ]
        assert found["notices"][-1]["partition"] is None

    def test_the_latest_notices_are_kept_and_all_are_counted(self, served):
        served.tell(*(Remark(text=str(i), level="warning", **at(0)) for i in range(LATEST_COUNT + 5)))
        found = served.json("/api/v1/status")[1]
        assert [notice["text"] for notice in found["notices"]] == [str(i) for i in range(5, LATEST_COUNT + 5)]
        assert found["notice_count"] == LATEST_COUNT + 5

    def test_names_of_any_bytes_come_back_as_they_are(self, served):
        odd = '/data/"q"\\\n\udcff<script>\u2028'
        served.tell(run_started(log_dirs=(odd,)), dir_started(odd), log_started(odd, log_dir=odd))
        (log_dir,) = served.json("/api/v1/status")[1]["log_dirs"]
        assert (log_dir["log_dir"], log_dir["threads"][0]["partition"]) == (odd, odd)

    def test_the_source_is_that_of_the_command(self):
        with serving(source="watch") as served:
            assert served.json("/api/v1/status")[1]["source"] == "watch"


class TestHealth:
    def test_a_run_that_has_not_begun_is_healthy(self, served):
        served.monotonic_s = 9999.0
        wanted = {"healthy": True, "state": "waiting", "seconds_without_progress": None}
        assert served.json("/healthz") == (200, wanted)

    @pytest.mark.parametrize(
        ("command", "events", "state"),
        [
            ("recover", (), "listing"),
            ("recover", (dir_started(),), "recovering"),
            ("verify", (dir_started(),), "verifying"),
        ],
    )
    def test_one_that_works_is_until_nothing_has_moved_for_too_long(self, served, command, events, state):
        served.tell(run_started(command=command), *events)
        served.monotonic_s = 1299.9
        assert served.json("/healthz") == (
            200,
            {"healthy": True, "state": state, "seconds_without_progress": 299.9},
        )
        served.monotonic_s = 1300.0
        assert served.json("/healthz") == (
            503,
            {"healthy": False, "state": state, "seconds_without_progress": 300.0},
        )
        served.tell(Remark(text="still here", **at(299)))
        assert served.json("/healthz")[0] == 503, "a remark is not progress"
        served.tell(scanned(1, **at(299.5)))
        assert served.json("/healthz") == (
            200,
            {"healthy": True, "state": state, "seconds_without_progress": 0.5},
        )

    def test_one_that_is_over_is_healthy_however_it_ended(self, served):
        served.tell(run_started(), dir_started(), RunFinished(exit_code=4, **at(1)))
        served.monotonic_s = 9999.0
        wanted = {"healthy": True, "state": "incomplete", "seconds_without_progress": None}
        assert served.json("/healthz") == (200, wanted)

    def test_the_time_is_that_of_the_option(self):
        with serving(stall_seconds=2) as served:
            served.tell(run_started())
            served.monotonic_s = 1001.0
            assert served.json("/healthz")[0] == 200
            served.monotonic_s = 1003.0
            assert served.json("/healthz")[0] == 503


class TestAddresses:
    def test_a_port_that_cannot_exist_is_a_usage_error(self):
        with pytest.raises(UsageError, match="port 70000"):
            serve(Routes(Gauges(), Notices()).answer, 70000, "127.0.0.1").__enter__()

    def test_listens_on_loopback_only(self, served):
        # Another process may have the port at another loopback address; at all addresses nobody beside us can.
        assert "0100007F" in (found := _listening_addresses(served.port))
        assert not any(set(address) == {"0"} for address in found)

    def test_port_in_use_is_a_usage_error_that_names_it(self, served):
        with pytest.raises(UsageError, match=f"127.0.0.1 port {served.port}"):
            serve(Routes(Gauges(), Notices()).answer, served.port, "127.0.0.1").__enter__()

    @pytest.mark.parametrize(
        ("host", "port"),
        [("192.0.2.1", 0), ("2001:db8::1", 0), ("no.such.host.invalid", 0)],
    )
    def test_what_cannot_be_listened_on_is_a_usage_error(self, host, port):
        with pytest.raises(UsageError, match=rf"{host} port {port}: .* Remedy: .*--metrics-host"):
            serve(Routes(Gauges(), Notices()).answer, port, host).__enter__()


def _listening_addresses(port: int) -> set[str]:
    """Return the addresses at which somebody listens on *port*, as the kernel writes them."""
    listening = "0A"
    rows = [
        line.split()
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == listening and row[1].endswith(f":{port:04X}")}
