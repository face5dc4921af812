"""An HTTP server that cannot be in the way of a run: one thread, few connections, deadlines, bounded memory.

The standard library's servers take a thread for each connection, which a silent peer keeps, from a system that may
allow only so many. Here one thread waits for all connections at once, gives each a deadline for its request, its answer
and its end, and drops the oldest when there are too many: 200 peers that say nothing cost 64 sockets, and a
scraper is answered between them. What a request says is read by the standard library.

Each connection is for one request. Requests that follow on it are thrown away: proxies, scrapers and browsers open
another one, as after any `Connection: close`.
"""

from __future__ import annotations

import contextlib
import io
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from threading import Thread
from urllib.parse import unquote, urlsplit

from recovery.errors import UsageError, error_text
from recovery.threads import MORE_THREADS, is_started
from recovery.version import VERSION
from recovery.watch.http.routes import Answer

MAX_CONNECTIONS = 64
MAX_REQUEST_BYTES = 16 << 10
REQUEST_S = 5.0
ANSWER_S = 30.0
CLOSE_S = 2.0
"""How long a peer may take to send its request, to take the answer, and to close."""
_BACKLOG = 1024
"""Connections that wait to be accepted, in the kernel: beyond them a scraper that connects waits for a second."""
_RECEIVE_BYTES = 16 << 10
_PAUSE_S = 0.2

AnswerTo = Callable[[str, str], Answer]
"""The answer to a method at a path."""


class _Request(BaseHTTPRequestHandler):
    """One request that has been received, parsed and answered in memory."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def __init__(self, received: bytes, answer_to: AnswerTo) -> None:
        # Not the base's, which would take a socket and wait for it.
        self.rfile = io.BufferedReader(io.BytesIO(received))
        self.wfile = self._answered = io.BytesIO()
        self._answer_to = answer_to

    def answered(self) -> bytes:
        """Return all that is to be sent."""
        self.raw_requestline = self.rfile.readline()
        if self.parse_request():
            self._answer()
        return self._answered.getvalue()

    def refused(self, status: HTTPStatus) -> bytes:
        """Return what is to be sent instead of an answer."""
        self.requestline, self.request_version, self.command = "", self.protocol_version, ""
        self.send_error(status)
        return self._answered.getvalue()

    def _answer(self) -> None:
        try:
            answer = self._answer_to(self.command, unquote(urlsplit(self.path).path))
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        self.send_response(answer.status)
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        fixed = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}
        for name, value in (headers | fixed | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Return who answers."""
        return f"kafka-log-recovery/{VERSION}"

    def handle_expect_100(self) -> bool:
        """Do not ask for a body, which nothing here takes."""
        return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Print nothing: whose request fails is told by the answer."""


class _Connection:
    """A connection on its way: receiving, then sending, then waiting for the peer to close."""

    __slots__ = ("deadline_s", "received", "socket", "unsent")

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self.socket = connection
        self.deadline_s = deadline_s
        self.received = bytearray()
        self.unsent: memoryview | None = None


class _Server:
    """Serves until `stop`; everything but that belongs to its own thread."""

    def __init__(self, listener: socket.socket, answer_to: AnswerTo) -> None:
        self._answer_to = answer_to
        self._listener = listener
        self._listener.setblocking(False)
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._accepts_from_s = 0.0
        # A daemon: a process that ends in another way than expected does not wait for it.
        self.thread = Thread(target=self._serve, name="http", daemon=True)

    def stop(self) -> None:
        """End the thread, if it was started, and close everything."""
        self._waker.send(b"\0")
        if self.thread.ident is not None:
            self.thread.join()
        for connection in [*self._connections]:
            self._drop(connection)
        for one in (self._selector, self._listener, self._waker, self._woken):
            one.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout_s()):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._connections:
                    self._advance(key.data)
            now_s = time.monotonic()
            for connection in [one for one in self._connections if one.deadline_s <= now_s]:
                self._drop(connection)
            self._resume_accepting(now_s)

    def _timeout_s(self) -> float | None:
        """Return how long to wait at most; for ever while there is nobody to wait for."""
        deadlines_s = [connection.deadline_s for connection in self._connections]
        if self._accepts_from_s:
            deadlines_s.append(self._accepts_from_s)
        return max(min(deadlines_s) - time.monotonic(), 0) if deadlines_s else None

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except ConnectionError:  # gone before its turn
            return
        except OSError:  # no descriptor is left, and the run may need the next one
            for connection in [one for one in self._connections if one.unsent is None]:
                self._drop(connection)
            self._selector.unregister(self._listener)
            self._accepts_from_s = time.monotonic() + _PAUSE_S
            return
        accepted.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection = _Connection(accepted, time.monotonic() + REQUEST_S)
        self._connections[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _resume_accepting(self, now_s: float) -> None:
        if self._accepts_from_s and self._accepts_from_s <= now_s:
            self._accepts_from_s = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _advance(self, connection: _Connection) -> None:
        """Do what can be done for *connection* without waiting."""
        try:
            if connection.unsent is None:
                self._receive(connection)
            elif connection.unsent:
                self._send(connection)
            else:
                self._discard(connection)
        except BlockingIOError:
            return
        except OSError:  # the peer is gone
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        received = connection.socket.recv(_RECEIVE_BYTES)
        connection.received += received
        answer = _answer(connection.received, self._answer_to)
        if answer is None:
            if not received:  # the peer has closed, or half closed, and its request is not whole
                self._drop(connection)
            return
        connection.received.clear()
        connection.unsent = memoryview(answer)
        connection.deadline_s = time.monotonic() + ANSWER_S
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        assert connection.unsent is not None  # else it is still receiving
        connection.unsent = connection.unsent[connection.socket.send(connection.unsent) :]
        if connection.unsent:
            return
        # Closed at once, with bytes of the peer unread, it would be reset, and the peer might lose the answer.
        connection.socket.shutdown(socket.SHUT_WR)
        connection.deadline_s = time.monotonic() + CLOSE_S
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _discard(self, connection: _Connection) -> None:
        """Throw away what still comes, up to the end or to as much as a request may have."""
        connection.received += connection.socket.recv(_RECEIVE_BYTES) or bytes(MAX_REQUEST_BYTES)
        if len(connection.received) >= MAX_REQUEST_BYTES:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection]
        self._selector.unregister(connection.socket)
        connection.socket.close()


def _answer(received: bytearray, answer_to: AnswerTo) -> bytes | None:
    """Return all that is to be sent to a peer that has sent *received*; None while its request is not whole."""
    request = received.lstrip(b"\r\n")
    if request and not request[:1].isalpha():  # TLS, or anything else
        return _Request(b"", answer_to).refused(HTTPStatus.BAD_REQUEST)
    head = request[:MAX_REQUEST_BYTES]
    if b"\r\n\r\n" in head or b"\n\n" in head:
        try:
            return _Request(bytes(request), answer_to).answered()
        except Exception:  # a defect here must not leave everybody else without answers
            return _Request(b"", answer_to).refused(HTTPStatus.INTERNAL_SERVER_ERROR)
    if len(received) >= MAX_REQUEST_BYTES:
        return _Request(b"", answer_to).refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return None


@contextmanager
def serve(answer_to: AnswerTo, port: int, host: str) -> Iterator[tuple[str, int]]:
    """Serve while the context is open; gives the address as a number, and the port, a free one for *port* 0.

    Raises:
        UsageError: the host is not of this machine, the port is in use or may not be used, or there is no thread.
    """
    with contextlib.ExitStack() as stack:
        listener = _listen(host, port)
        stack.callback(listener.close)
        server = _Server(listener, answer_to)
        stack.callback(server.stop)
        if not is_started(server.thread):
            raise UsageError(
                f"Cannot serve metrics: no thread can be started. Remedy: {MORE_THREADS}, or leave out --metrics-port"
            )
        yield listener.getsockname()[:2]


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise UsageError(f"Cannot serve metrics at {host} port {port}: expected a port from 0 to 65535")
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, (ip, _, *scope) = infos[0]
        is_dual = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(
            (ip, port, *scope), family=family, dualstack_ipv6=is_dual, backlog=_BACKLOG
        )
    except (OSError, UnicodeError) as error:
        reason, _, _ = error_text(error).partition(" (while attempting")  # Python adds the address
        raise UsageError(
            f"Cannot serve metrics at {host} port {port}: {reason}. Remedy: choose another "
            "--metrics-port, or an address of this machine as --metrics-host"
        ) from error


def url_of(host: str, port: int) -> str:
    """Return the URL of a server, without a path."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether nobody but this machine reaches *host*, an address."""
    return ip_address(host.partition("%")[0]).is_loopback
