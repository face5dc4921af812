"""Faults between a client and a real S3 server: a proxy that passes requests on, or answers some of them itself.

It leaves the Host header as the client has signed it, so that the server accepts what is passed on. Clients find it by
`S3Server.environment(endpoint=proxy.endpoint)`.
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from tests.servers.s3_server import BUCKET, S3Server

_ERRORS = {
    403: "AccessDenied",
    404: "NoSuchKey",
    500: "InternalError",
    503: "SlowDown",
}
_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a client."""

    method: str
    key: str  # within the bucket; "" for a listing
    attempt: int  # from 1 on, by method and key


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is answered in place of the server's answer.

    Args:
        status: an S3 error of that status; 0: the server's own answer, of which only a part arrives.
        sent_share: how much of the body arrives before the connection is closed.
    """

    status: int = 0
    sent_share: float = 1.0


THROTTLED = Fault(status=503)
FORBIDDEN = Fault(status=403)
BROKEN_OFF = Fault(sent_share=0.5)

Rule = Callable[[Request], Fault | None]


class FaultyProxy:
    """A proxy before an S3 server; *rule* says of each request what happens to it (None: nothing)."""

    def __init__(self, server: S3Server, rule: Rule) -> None:
        self.requests: Counter[str] = Counter()  # by method
        self.faults = 0
        self._server, self._rule = server, rule
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Count a request and ask the rule about it."""
        key = unquote(urlsplit(path).path).removeprefix(f"/{BUCKET}").lstrip("/")
        with self._counting:
            self._attempts[method, key] += 1
            self.requests[method] += 1
            request = Request(method=method, key=key, attempt=self._attempts[method, key])
        fault = self._rule(request)
        if fault is not None:
            with self._counting:
                self.faults += 1
        return fault

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy, port = self, self._server.port

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = (
                True  # head and body are two packets, and the second would wait for 40 ms
            )

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                fault = proxy.fault_for(self.command, self.path)
                if fault is not None and fault.status:
                    self._refuse(fault.status)
                else:
                    self._pass_on(body, fault)

            def log_message(self, *args: object) -> None:
                pass

            def _refuse(self, status: int) -> None:
                text = f"<Error><Code>{_ERRORS[status]}</Code><Message>a fault of the test</Message></Error>"
                content = b"" if self.command == "HEAD" else text.encode()
                self._head(status, [("Content-Type", "application/xml")], len(content))
                self.wfile.write(content)

            def _pass_on(self, body: bytes, fault: Fault | None) -> None:
                upstream = http.client.HTTPConnection("127.0.0.1", port)
                try:
                    upstream.request(self.command, self.path, body=body or None, headers=dict(self.headers))
                    answer = upstream.getresponse()
                    content = answer.read()
                finally:
                    upstream.close()
                kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OF_ONE_CONNECTION]
                length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(content)
                self._head(answer.status, kept, length)
                if fault is not None:
                    content = content[: int(len(content) * fault.sent_share)]
                    self.close_connection = True
                self.wfile.write(content)

            def _head(self, status: int, headers: list[tuple[str, str]], length: int | str | None) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.answer)
        return Handler
