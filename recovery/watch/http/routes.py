"""Which path answers what; anything else is 404, and another method than GET and HEAD is 405.

    /                        the page (`page`)
    /metrics                 Prometheus' text format (`metrics`)
    /api/v1/status           the figures and the latest notices as JSON (`status`)
    /healthz                 200, or 503 when nothing moves (`status`)
    /jolokia/read/<name>     a broker's gauges by the names of their MBeans (`jolokia`)

An answer is made of one consistent set of figures, at the moment of the request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from recovery.watch.figures import Source
from recovery.watch.gauges import Gauges
from recovery.watch.http.jolokia import MalformedNameError, read
from recovery.watch.http.metrics import CONTENT_TYPE as METRICS_CONTENT_TYPE
from recovery.watch.http.metrics import metrics_text
from recovery.watch.http.page import page
from recovery.watch.http.status import health, status
from recovery.watch.notices import Notices

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_JOLOKIA = "/jolokia/read/"


class Answer(NamedTuple):
    """What is sent back; the length and what every answer has are added by `server`."""

    status: int
    content_type: str
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


class Routes:
    """The answers of one run.

    Args:
        gauges: the figures.
        notices: the latest notices.
        source: whose recovery this is: that of this process, or one that it watches.
        stall_seconds: nothing has moved for so long: `/healthz` answers 503.
        monotonic_s: the clock of the events, so that the rate falls when nothing moves.
    """

    def __init__(
        self,
        gauges: Gauges,
        notices: Notices,
        *,
        source: Source = "run",
        stall_seconds: float = 300,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gauges = gauges
        self._notices = notices
        self._source = source
        self._stall_seconds = stall_seconds
        self._monotonic_s = monotonic_s
        self._answers: dict[str, Callable[[], Answer]] = {
            "/": self._answer_page,
            "/metrics": self._answer_metrics,
            "/api/v1/status": self._answer_status,
            "/healthz": self._answer_health,
        }

    def answer(self, method: str, path: str) -> Answer:
        """Return the answer to *method*, GET for HEAD, at *path*, which has no query and no escapes."""
        answer = partial(self._answer_jolokia, path) if path.startswith(_JOLOKIA) else self._answers.get(path)
        if answer is None:
            there = ", ".join((*self._answers, f"{_JOLOKIA}..."))
            return Answer(HTTPStatus.NOT_FOUND, _TEXT, f"Not found. There is {there}\n".encode())
        if method not in ("GET", "HEAD"):
            allowed = {"Allow": "GET, HEAD"}
            return Answer(
                HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"Only GET and HEAD: nothing is written\n", allowed
            )
        return answer()

    def _answer_page(self) -> Answer:
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", *page())

    def _answer_metrics(self) -> Answer:
        return Answer(
            HTTPStatus.OK, METRICS_CONTENT_TYPE, metrics_text(self._gauges.values(self._monotonic_s()))
        )

    def _answer_status(self) -> Answer:
        now_ms = time.time_ns() // 1_000_000
        values = self._gauges.values(self._monotonic_s())
        found = status(
            values, self._notices, now_ms=now_ms, source=self._source, stall_seconds=self._stall_seconds
        )
        return _json(HTTPStatus.OK, found)

    def _answer_health(self) -> Answer:
        found = health(self._gauges.values(self._monotonic_s()), self._stall_seconds)
        return _json(HTTPStatus.OK if found["healthy"] else HTTPStatus.SERVICE_UNAVAILABLE, found)

    def _answer_jolokia(self, path: str) -> Answer:
        values = self._gauges.values(self._monotonic_s())
        try:
            found = read(path.removeprefix(_JOLOKIA), values, now_s=int(time.time()))
        except MalformedNameError as error:
            return Answer(
                HTTPStatus.BAD_REQUEST, _TEXT, f"400 (Bad Request)\n\n{error}\n".encode("utf-8", "replace")
            )
        return _json(HTTPStatus.OK, found)


def _json(code: int, value: dict[str, Any]) -> Answer:
    return Answer(code, _JSON, json.dumps(value, separators=(",", ":")).encode("ascii"))
