"""Readings over HTTP from servers that answer well, late, with something else or not at all."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from recovery.errors import UsageError
from recovery.follow import endpoint
from recovery.follow.endpoint import NoReadingError, endpoint_of
from tests.patience import LONGEST_WAIT_SECONDS

CAPTURES = Path(__file__).parent / "captures"
PAGE = (CAPTURES / "exporter-1.0.1-usual-recovering.txt").read_bytes()
LOG_MANAGER = (CAPTURES / "jolokia-2.6.0-recovering.json").read_bytes()
STATE = (
    b'{"request":{"mbean":"kafka.server:name=BrokerState,type=KafkaServer"},"value":{"Value":1},"status":200}'
)

Answers = dict[str, bytes | tuple[int, str]]
"""By path: a body, or a status with a location."""


class _Handler(http.server.BaseHTTPRequestHandler):
    answers: Answers
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Authorization"]))
        answer = self.answers.get(self.path, (404, ""))
        if isinstance(answer, tuple):
            self.send_response(answer[0])
            self.send_header("Location", answer[1])
            answer = b""
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@contextmanager
def serving(answers: Answers, port: int = 0) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server; gives host and port, and the paths that it was asked for."""
    seen: list[tuple[str, str | None]] = []
    handler = type("Handler", (_Handler,), {"answers": answers, "seen": seen})
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def talking(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of one connection that says anything; gives host and port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                say(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("path", ["", "/", "/metrics", "/any/page", "/metrics?name[]=kafka_log"])
def test_a_page_of_metrics(path: str) -> None:
    asked = path if path.strip("/") else "/metrics"
    with serving({asked: PAGE}) as (host, seen):
        found = endpoint_of(f"http://{host}{path}")
        assert found.url == f"http://{host}{asked}"
        assert found.read().recovering["/data/d1"].remaining_logs == 5
        assert seen == [(asked, None)]


def test_proxies_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving({"/metrics": PAGE}) as (host, _):
        assert endpoint_of(f"http://{host}").read().recovering


@pytest.mark.parametrize("base", ["/jolokia", "/jolokia/", "/actuator/jolokia"])
def test_jolokia(base: str) -> None:
    reads = base.rstrip("/") + "/read/"
    with serving(
        {
            f"{reads}kafka.log:type=LogManager,*": LOG_MANAGER,
            f"{reads}kafka.server:type=KafkaServer,name=BrokerState": STATE,
            f"{reads}java.lang:type=Runtime/StartTime": b'{"status":500,"error":"not supported"}',
        }
    ) as (host, seen):
        reading = endpoint_of(f"http://{host}{base}").read()
        assert reading.recovering["/data/d2"].remaining_segments == {0: 5, 1: 5}
        assert (reading.broker_state, reading.started_s) == (1, None)
        assert len(seen) == 3


def test_user_and_password_go_to_that_server_alone() -> None:
    with serving({"/metrics": PAGE}) as (other, seen_by_other):
        with serving({"/metrics": (302, f"http://{other}/metrics")}) as (host, seen):
            found = endpoint_of(f"http://me:s%40cret@{host}")
            assert "cret" not in found.url
            assert found.read().recovering
            assert seen == [("/metrics", "Basic bWU6c0BjcmV0")]
        assert seen_by_other == [("/metrics", None)]


@pytest.mark.parametrize(
    ("answers", "path", "words"),
    [
        ({}, "/metrics", "HTTP 404 Not Found"),
        ({"/metrics": (503, "")}, "", "HTTP 503"),
        ({"/metrics": (401, "")}, "", "Remedy: http://USER:PASSWORD@HOST:PORT"),
        ({"/metrics": (302, "/metrics")}, "", "redirects in a circle"),
        ({"/metrics": (302, "file:///etc/hostname")}, "", "HTTP 302"),
        ({"/metrics": b"<html>"}, "", "no page of metrics"),
        ({"/metrics": b"go_info 1\n"}, "", "something else than Kafka"),
        ({"/metrics": b"x" * (3 << 20)}, "", "no page of metrics"),
        ({"/metrics": LOG_MANAGER}, "", "no page of metrics"),
        ({}, "/jolokia", "HTTP 404"),
        ({"/jolokia/read/kafka.log:type=LogManager,*": PAGE}, "/jolokia", "not Jolokia's"),
        (
            {"/jolokia/read/kafka.log:type=LogManager,*": json.dumps({"status": 403}).encode()},
            "/jolokia",
            "Jolokia says 403",
        ),
    ],
)
def test_servers_that_answer_with_something_else(answers: Answers, path: str, words: str) -> None:
    with serving(answers) as (host, _), pytest.raises(NoReadingError, match=words) as caught:
        endpoint_of(f"http://{host}{path}").read()
    assert str(caught.value).startswith(f"http://{host}/")


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NoReadingError, match="no answer within"):
            endpoint_of(f"http://127.0.0.1:{port}").read()
    with pytest.raises(NoReadingError, match="Connection refused"):
        endpoint_of(f"http://127.0.0.1:{port}").read()
    with pytest.raises(NoReadingError, match="no-such-host"):
        endpoint_of("http://no-such-host.invalid:1/metrics").read()


def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        with suppress(OSError):
            for _ in range(100):
                connection.sendall(b"kafka_x 1\n")
                threading.Event().wait(0.05)

    def flood(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"kafka_x 1\n" * 300_000)

    with monkeypatch.context() as patched:
        patched.setattr(endpoint, "ANSWER_S", 0.5)
        with talking(drip) as host, pytest.raises(NoReadingError, match="no answer within"):
            endpoint_of(f"http://{host}").read()
    monkeypatch.setattr(endpoint, "ANSWER_S", LONGEST_WAIT_SECONDS)
    monkeypatch.setattr(endpoint, "MOST_BYTES", 1 << 20)
    with talking(flood) as host, pytest.raises(NoReadingError, match="more than 1 MiB"):
        endpoint_of(f"http://{host}").read()


@pytest.mark.parametrize(
    ("scheme", "said", "words"),
    [
        ("http", b"SSH-2.0-OpenSSH_9\r\n", "does not speak HTTP. Remedy: .*https://"),
        ("https", b"HTTP/1.0 400 Bad Request\r\n\r\n", "no TLS .* Remedy: .*http://"),
        ("http", b"", "closed connection"),
    ],
)
def test_a_server_that_speaks_something_else(scheme: str, said: bytes, words: str) -> None:
    with (
        talking(lambda connection: connection.sendall(said)) as host,
        pytest.raises(NoReadingError, match=words),
    ):
        endpoint_of(f"{scheme}://{host}").read()


@pytest.mark.parametrize(
    "source", ["http://", "http://:80", "http://h:x/metrics", "http://h:99999", "ftp://h/metrics"]
)
def test_what_is_no_url(source: str) -> None:
    with pytest.raises(UsageError, match="Remedy: http://HOST:PORT/metrics"):
        endpoint_of(source)
