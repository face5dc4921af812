"""Where the gauges of a broker are read over HTTP: a page of metrics, or a Jolokia agent.

One look is one reading, or `NoReadingError`, which says why there is none: nobody answers, something else does, or not
in time. Nothing is sent but GET. Proxies of the environment are not used: what is watched is near.
"""

from __future__ import annotations

import base64
import codecs
import http.client
import ssl
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from recovery.errors import UsageError
from recovery.follow.gauge_reading import (
    BROKER_STATE,
    LOG_MANAGER,
    START_TIME,
    MalformedAnswerError,
    Reading,
    read_jolokia,
    read_metrics,
)

ANSWER_S = 10.0
"""How long an answer may take: as long as Prometheus waits for one if it is told nothing else."""
MOST_BYTES = 256 << 20
_LINE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_ACCEPT = "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1"


class NoReadingError(Exception):
    """There is no reading; the message says where and why."""


def endpoint_of(source: str) -> Endpoint:
    """Return the endpoint of a URL, `http://HOST:PORT[/PATH]`; its path ends with `/jolokia` if it is an agent's.

    Raises:
        UsageError: it is no such URL.
    """
    try:
        parts = urlsplit(source)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise UsageError(
            f"{source}: no URL that can be read. Remedy: http://HOST:PORT/metrics or http://HOST:PORT/jolokia"
        )
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/")
    if path.rpartition("/")[2] == "jolokia":
        return _Jolokia(_Client(f"{parts.scheme}://{host}{path}", _credentials(parts)))
    query = f"?{parts.query}" if parts.query else ""
    return _Metrics(
        _Client(f"{parts.scheme}://{host}{parts.path if path else '/metrics'}{query}", _credentials(parts))
    )


def _credentials(parts: SplitResult) -> str | None:
    """Return the header for user and password in the URL."""
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


@dataclass(frozen=True, slots=True)
class _Client:
    """Asks one server."""

    url: str
    authorization: str | None

    def get(self, path: str = "") -> Iterator[bytes]:
        """Yield the body of an answer, piece by piece. Raises: NoReadingError."""
        url = self.url + path
        try:
            request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
            if self.authorization is not None:
                request.add_unredirected_header("Authorization", self.authorization)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            deadline_s = time.monotonic() + ANSWER_S
            with opener.open(request, timeout=ANSWER_S) as response:
                yield from _pieces(response, deadline_s)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoReadingError(f"{url}: HTTP {error.code}{_hint(error)}") from error
        except urllib.error.URLError as error:
            raise NoReadingError(f"{url}: {_why(error.reason)}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoReadingError(f"{url}: {_why(error)}") from error


@dataclass(frozen=True, slots=True)
class Endpoint(ABC):
    """One place to read from."""

    client: _Client

    @property
    def url(self) -> str:
        """What is asked for, without a password."""
        return self.client.url

    def read(self) -> Reading:
        """Look once. Raises: NoReadingError."""
        try:
            return self._reading()
        except MalformedAnswerError as error:
            raise NoReadingError(f"{self.url}: {error}") from error

    @abstractmethod
    def _reading(self) -> Reading:
        """Look once. Raises: MalformedAnswerError, NoReadingError."""


class _Metrics(Endpoint):
    """A page in Prometheus' text format: jmx_exporter's, Strimzi's reporter's, this tool's."""

    __slots__ = ()

    def _reading(self) -> Reading:
        return read_metrics(_lines(self.client.get()))


class _Jolokia(Endpoint):
    """A Jolokia agent in the broker's JVM, 1.x or 2.x; or this tool, which has the MBeans of LogManager alone."""

    __slots__ = ()

    def _reading(self) -> Reading:
        answers = [self._ask(LOG_MANAGER)]
        answers += filter(None, (self._ask_more(mbean) for mbean in (BROKER_STATE, START_TIME)))
        return read_jolokia(answers)

    def _ask(self, mbean: str) -> bytes:
        return b"".join(self.client.get(f"/read/{quote(mbean, safe=':=,*./')}"))

    def _ask_more(self, mbean: str) -> bytes | None:
        """Return the answer, None if there is none: an agent may be told to show some MBeans alone."""
        try:
            answer = self._ask(mbean)
            read_jolokia([answer])
        except (NoReadingError, MalformedAnswerError):
            return None
        return answer


def _pieces(response: http.client.HTTPResponse, deadline_s: float) -> Iterator[bytes]:
    """Yield what comes, but neither for ever nor without end."""
    count = 0
    while piece := response.read1(_PIECE_BYTES):
        count += len(piece)
        if count > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB, which is no page of metrics")
        yield piece
        if time.monotonic() > deadline_s:
            raise TimeoutError


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        yield from lines
        if len(rest) > _LINE_BYTES:
            raise MalformedAnswerError(f"it is no page of metrics, it begins with {rest[:40]!r}")
    yield rest


def _hint(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return ": it wants to know who asks. Remedy: http://USER:PASSWORD@HOST:PORT/..."
    if 300 <= error.code < 400:
        return ": it redirects in a circle, or to what is no HTTP"
    return f" {error.reason}"


def _why(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:.0f} s"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return "what answers there does not speak HTTP. Remedy: if it speaks TLS, https://HOST:PORT/..."
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}; SSL_CERT_FILE may name a bundle of CAs"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS with what answers there ({error.reason}). Remedy: if it speaks plain HTTP, http://HOST:PORT/..."
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
