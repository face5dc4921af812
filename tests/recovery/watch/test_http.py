"""The HTTP server: what each path answers, and that no peer can be in its way or in that of a run."""

import contextlib
import http.client
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from recovery.errors import UsageError
from recovery.watch.events import Remark, RunFinished, SourceLost
from recovery.watch.gauges import Gauges
from recovery.watch.http import server
from recovery.watch.http.routes import Answer, Routes
from recovery.watch.http.server import MAX_CONNECTIONS, serve
from recovery.watch.notices import LATEST_COUNT, Notices
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
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
from tests.servers.sockets import ESTABLISHED, LISTENING, local_ends

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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_WAIT_SECONDS)
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
        assert found["notice_count"] == len(found["notices"]) == 6
        assert found["notices"][1:3] == [
            {
                "level": "warning",
                "text": "loses offsets 20 to 47 (at most 28 records), 477 bytes, 4 batches: CRC mismatch",
                "log_dir": A,
                "partition": "t-0",
            },
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
            served.tell(run_started(command="watch"), SourceLost(text="gone", **at(1)))
            assert served.json("/api/v1/status")[1]["is_source_gone"] is True
            assert "kafka_log_recovery_watched_source_up 0.0" in served.ask("/metrics")[2].decode()
            assert served.json("/healthz")[0] == 503
            served.tell(Remark(text="is back", **at(2)))
            assert served.json("/api/v1/status")[1]["is_source_gone"] is False
            assert "kafka_log_recovery_watched_source_up 1.0" in served.ask("/metrics")[2].decode()
            assert served.json("/healthz")[0] == 200


class TestJolokia:
    """What of it needs no agent to compare with; tests/kafka/test_jolokia.py has one."""

    READ = "/jolokia/read/kafka.log:type=LogManager"

    def test_the_names_are_those_of_the_kip(self, served):
        served.tell(run_started(log_dirs=(A,)), dir_started(), log_started())
        status, found = served.json(f"{self.READ},name=remaining*,*")
        assert (status, found["status"]) == (200, 200)
        assert found["value"] == {
            'kafka.log:type=LogManager,name=remainingLogsToRecover,dir="/data/a"': {"Value": 2},
            'kafka.log:type=LogManager,name=remainingSegmentsToRecover,dir="/data/a",threadNum=0': {
                "Value": 3
            },
            'kafka.log:type=LogManager,name=remainingSegmentsToRecover,dir="/data/a",threadNum=1': {
                "Value": 0
            },
        }
        one = f"{self.READ},name=remainingLogsToRecover,dir=%22!/data!/a%22"
        assert served.json(one)[1]["value"] == {"Value": 2}
        assert served.json(f"{one}/Value")[1]["value"] == 2

    def test_what_is_not_there_is_an_error_object(self, served):
        served.tell(run_started(), dir_started(), RunFinished(exit_code=0, **at(1)))
        status, found = served.json(f"{self.READ},name=remainingLogsToRecover,*")
        assert (status, found["status"]) == (200, 404)
        assert found["error_type"] == "javax.management.InstanceNotFoundException"

    def test_what_is_no_name_is_a_bad_request(self, served):
        assert served.ask("/jolokia/read/nonsense")[0] == 400

    @pytest.mark.parametrize("path", ["/jolokia", "/jolokia/read", "/jolokia/write/x", "/jolokia/exec/x"])
    def test_nothing_else_of_the_agent_is_there(self, served, path):
        assert served.ask(path)[0] == 404
        assert served.ask(f"{self.READ},*", "POST")[0] == 405


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
            ("archive copy", (dir_started(),), "copying"),
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
        with pytest.raises(UsageError, match=rf"{host} port {port}: .* Remedy: .*--metrics-host") as raised:
            serve(Routes(Gauges(), Notices()).answer, port, host).__enter__()
        assert "attempting" not in str(raised.value)


def _listening_addresses(port: int) -> set[str]:
    """Return the addresses at which somebody listens on *port*, as the kernel writes them."""
    return {address for address, found in local_ends(LISTENING) if found == port}


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LONGEST_WAIT_SECONDS)


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a reset fails the test."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def sent(port: int, request: bytes) -> bytes:
    connection = connected(port)
    connection.sendall(request)
    return rest_of(connection)


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def established(port: int) -> int:
    """Connections to *port* that the server has not closed, by the kernel's table."""
    return [found for _, found in local_ends(ESTABLISHED)].count(port)


GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class TestRequests:
    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (GET, 200),
            (b"\r\n\r\n" + GET, 200),
            (b"GET /healthz HTTP/1.0\n\n", 200),
            (b"GET /healthz\r\n\r\n", 200),
            (GET.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\nX: \xff\xfe\r\n\r\n"), 200),
            (b"POST /healthz HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + bytes(60000), 405),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
            (b"\x00" * 30000, 400),
            (b"hello\r\n\r\n", 400),
            (b"GET /healthz HTTP/x.y\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 505),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
            (b"GET //[ HTTP/1.1\r\n\r\n", 404),
            (b"GET http://[/ HTTP/1.1\r\n\r\n", 400),
            (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, 431),
            (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\n: : :\r\n \r\n\tx\r\n\r\n", 200),
        ],
    )
    def test_anything_is_answered_and_the_connection_closed(self, served, request_, status):
        connection = connected(served.port)
        with contextlib.suppress(ConnectionError):  # it need not read all of it
            connection.sendall(request_)
        answer = connection.recv(65536)
        connection.close()
        assert status_of(answer) == status
        assert served.ask("/healthz")[0] == 200

    def test_of_several_in_one_go_the_first_is_answered(self, served):
        answer = sent(served.port, GET * 20)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close" in answer

    def test_the_answer_is_not_lost_when_more_has_come_than_was_read(self, served):
        answer = sent(served.port, GET + b"x" * (16 << 10))
        assert status_of(answer) == 200

    def test_a_request_may_come_byte_by_byte(self, served):
        connection = connected(served.port)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(GET)):
            connection.sendall(GET[i : i + 1])
        assert status_of(rest_of(connection)) == 200

    def test_head_has_no_body(self, served):
        answer = sent(served.port, GET.replace(b"GET", b"HEAD"))
        assert status_of(answer) == 200
        assert answer.endswith(b"\r\n\r\n")

    def test_a_head_is_too_long_in_pieces_as_well(self, served):
        connection = connected(served.port)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 16000)
        time.sleep(0.2)
        connection.sendall(b"x" * 4000 + b"\r\n\r\n")
        assert status_of(rest_of(connection)) == 431

    def test_a_peer_may_close_its_half_after_a_whole_request_alone(self, served, monkeypatch):
        monkeypatch.setattr(server, "REQUEST_S", 600)
        for request, wanted in ((GET, 200), (GET[:-1], None)):
            connection = connected(served.port)
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = rest_of(connection)
            assert (status_of(answer) if answer else None) == wanted

    def test_an_answer_that_fails_is_an_error_of_the_server_and_the_next_is_served(self):
        def answer(_method, path):
            if path == "/broken":
                raise RuntimeError("a defect")
            return Answer(200, "text/plain", b"fine")

        with serve(answer, 0, "127.0.0.1") as (_, port):
            assert status_of(sent(port, b"GET /broken HTTP/1.1\r\n\r\n")) == 500
            assert status_of(sent(port, GET)) == 200


class TestPeers:
    def test_many_silent_ones_take_no_thread_and_few_sockets_and_a_scraper_is_answered(
        self, served, monkeypatch
    ):
        monkeypatch.setattr(server, "REQUEST_S", LONGEST_WAIT_SECONDS)
        with contextlib.ExitStack() as silent:
            for _ in range(200):
                silent.enter_context(connected(served.port))
            for _ in range(3):
                assert served.ask("/metrics")[0] == 200
            assert [thread.name for thread in threading.enumerate()].count("http") == 1
            # What the kernel has let in late is not counted until the server takes it.
            wait_until(lambda: 0 < established(served.port) <= MAX_CONNECTIONS)

    @pytest.mark.parametrize("drip", [b"", b"x"])
    def test_one_that_does_not_get_to_the_end_of_its_request_is_dropped(self, monkeypatch, drip):
        monkeypatch.setattr(server, "REQUEST_S", 0.2)
        with serving() as served:
            connection = connected(served.port)
            connection.sendall(b"GET / HTTP/1.1\r\n")
            connection.settimeout(0.02)
            while True:
                try:
                    connection.sendall(drip)
                    assert connection.recv(100) == b""
                    break
                except TimeoutError:
                    continue
                except ConnectionError:  # it had sent more after the end
                    break
            connection.close()

    @pytest.mark.parametrize("asks_on", [False, True])
    def test_one_that_does_not_take_its_answer_is_dropped_and_others_are_served(self, monkeypatch, asks_on):
        monkeypatch.setattr(server, "ANSWER_S", 0.5)
        large = Answer(200, "text/plain", bytes(32 << 20))
        small = Answer(200, "text/plain", b"fine")
        with serve(lambda _, path: large if path == "/large" else small, 0, "127.0.0.1") as (_, port):
            slow = connected(port)
            slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            assert slow.recv(1)
            assert status_of(sent(port, GET)) == 200
            while established(port):
                if asks_on:
                    with contextlib.suppress(ConnectionError):
                        slow.send(GET)
                assert slow.recv(1)
            slow.close()
            assert status_of(sent(port, GET)) == 200

    def test_one_that_takes_its_answer_slowly_gets_all_of_it(self, monkeypatch):
        monkeypatch.setattr(server, "REQUEST_S", 0.2)
        large = Answer(200, "text/plain", bytes(32 << 20))
        with serve(lambda *_: large, 0, "127.0.0.1") as (_, port), connected(port) as slow:
            slow.sendall(GET)
            taken = len(slow.recv(1000))
            time.sleep(0.5)
            taken += len(rest_of(slow))
        assert taken > 32 << 20

    def test_one_that_talks_on_after_its_answer_is_dropped(self, monkeypatch):
        monkeypatch.setattr(server, "CLOSE_S", 60)
        with serving() as served, connected(served.port) as connection:
            connection.sendall(GET)
            assert status_of(connection.recv(65536)) == 200
            with pytest.raises(ConnectionError):
                connection.sendall(bytes(64 << 20))

    def test_ones_that_are_reset_at_any_moment_do_no_harm(self, served):
        for request in (b"", b"G", GET, GET * 100):
            for _ in range(20):
                connection = connected(served.port)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(request)
                connection.close()
        assert served.ask("/healthz")[0] == 200

    def test_no_descriptor_is_left_for_a_while(self, served, monkeypatch):
        """The peers are another process, so that the descriptors of this one are the server's."""
        monkeypatch.setattr(server, "REQUEST_S", 600)  # the silent ones do not go by themselves
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        program = (
            "import socket, sys, urllib.request\n"
            "port = int(sys.argv[1])\n"
            "silent = [socket.create_connection(('127.0.0.1', port)) for _ in range(40)]\n"
            "print(urllib.request.urlopen(f'http://127.0.0.1:{port}/healthz', timeout=600).status)\n"
        )
        peers = subprocess.Popen(
            [sys.executable, "-c", program, str(served.port)], stdout=subprocess.PIPE, text=True
        )
        try:
            used = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, hard))
            said = peers.communicate(timeout=LONGEST_WAIT_SECONDS)[0]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert said == "200\n"
        assert served.ask("/healthz")[0] == 200

    def test_the_end_does_not_wait_for_anybody(self):
        with serving() as served:
            silent = [connected(served.port) for _ in range(20)]
            for connection in silent:
                connection.sendall(b"GET / HTT")
        for connection in silent:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
            connection.close()
