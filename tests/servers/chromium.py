"""A headless Chromium, driven by the DevTools protocol over a pipe: no port, no driver, no package.

    with Chromium(folder) as chromium:
        tab = chromium.open("http://127.0.0.1:9999/", width=390, height=844)
        assert tab.value("document.title") == "..."

Chromium reads commands from descriptor 3 and writes answers and events to descriptor 4, each a JSON text that ends with
a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.patience import LONGEST_WAIT_SECONDS

Found = TypeVar("Found")

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_ABOVE_THE_PIPE = 10

_LAUNCH = (
    "import os, sys; _, to_read, to_write, *command = sys.argv; os.dup2(int(to_read), 3); os.dup2(int(to_write), 4); "
    "os.execvp(command[0], command)"
)
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # the pages are our own, and root gets none
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def chromium_program() -> str | None:
    """Return the path of Chromium; None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Chromium:
    """A browser with a new profile in *folder*, until the end of the context."""

    def __init__(self, folder: Path) -> None:
        program = chromium_program()
        assert program is not None, "no Chromium: the test needs machine.CHROMIUM"
        to_read, self._commands = (_high(fd) for fd in os.pipe())
        self._answers, to_write = (_high(fd) for fd in os.pipe())
        command = (sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), program, *_OPTIONS)
        self._process = subprocess.Popen(
            (*command, f"--user-data-dir={folder}", "about:blank"),
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._news = threading.Condition()
        self._results: dict[int, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._last_id = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(LONGEST_WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            os.close(self._commands)
            os.close(self._answers)

    def open(self, url: str, *, width: int, height: int, **options: Any) -> Tab:
        """Open *url* in a tab of this size, pixels of CSS; *options* as in `Tab`."""
        return Tab(self, url, width=width, height=height, **options)

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Return what *method* of the protocol results in."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        data = json.dumps(message | ({} if session is None else {"sessionId": session})).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        answer = self.wait(lambda: self._results.pop(message["id"], None), what=method)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def events(self, session: str, method: str) -> list[dict[str, Any]]:
        """Return what *method* has told so far."""
        with self._news:
            return [
                e["params"] for e in self._events if e.get("sessionId") == session and e["method"] == method
            ]

    def wait(self, look: Callable[[], Found | None], *, what: str) -> Found:
        """Return what *look* finds, asked again at each message of the browser."""
        until_s = time.monotonic() + LONGEST_WAIT_SECONDS
        with self._news:
            while (found := look()) is None:
                assert self._reader.is_alive(), f"{what}: the browser has gone"
                assert self._news.wait(until_s - time.monotonic()), (
                    f"{what}: nothing in {LONGEST_WAIT_SECONDS} seconds"
                )
        return found

    def _read(self) -> None:
        data = b""
        while new := os.read(self._answers, 1 << 16):
            *messages, data = (data + new).split(b"\0")
            with self._news:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._results[message["id"]] = message
                    else:
                        self._events.append(message)
                self._news.notify_all()


class Tab:
    """A page in the browser.

    Args:
        chromium: the browser.
        url: the page.
        width: of the view, pixels of CSS.
        height: likewise.
        scale: pixels of the screen for one of CSS.
        dark: whether the system prefers dark colours.
        script: whether JavaScript may run.
        before: JavaScript to run before that of the page.
    """

    def __init__(
        self,
        chromium: Chromium,
        url: str,
        *,
        width: int,
        height: int,
        scale: float = 1,
        dark: bool = False,
        script: bool = True,
        before: str = "",
    ) -> None:
        self._chromium = chromium
        self._target = chromium.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = chromium.call("Target.attachToTarget", targetId=self._target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
            self.call(f"{domain}.enable")
        self.resize(width, height, scale)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # visible, whatever tab is before it
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)
        chromium.wait(lambda: self.told("Page.loadEventFired") or None, what=url)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_error: object) -> None:
        self._chromium.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return what *method* of the protocol results in for this page."""
        return self._chromium.call(method, self._session, **parameters)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the events *method* of this page."""
        return self._chromium.events(self._session, method)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Give the view another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript *expression* on the page, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return the value of *expression* as soon as it is true."""
        until_s = time.monotonic() + LONGEST_WAIT_SECONDS
        while not (value := self.value(expression)):
            assert time.monotonic() < until_s, f"{expression}: not in {LONGEST_WAIT_SECONDS} seconds"
            time.sleep(0.05)
        return value

    def texts(self, selector: str) -> list[str]:
        """Return the text of each element that *selector* finds."""
        found: list[str] = self.value(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
        )
        return found

    def text(self, selector: str) -> str:
        """Return the text of the one element that *selector* finds."""
        (text,) = self.texts(selector)
        return text

    def requested(self) -> list[str]:
        """Return the URLs that the page has asked for."""
        return [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]

    def answers(self, path: str) -> list[Any]:
        """Return the JSON of each answer to *path* that the page has got so far, as far as the browser keeps them."""
        ended = {event["requestId"] for event in self.told("Network.loadingFinished")}
        ids = [
            event["requestId"]
            for event in self.told("Network.responseReceived")
            if event["response"]["url"].endswith(path) and event["requestId"] in ended
        ]
        return [json.loads(self.call("Network.getResponseBody", requestId=one)["body"]) for one in ids]

    def complaints(self) -> list[str]:
        """Return what went wrong on the page: errors of its script, and what the policy of its server has stopped."""
        errors = [event["exceptionDetails"] for event in self.told("Runtime.exceptionThrown")]
        entries = [event["entry"] for event in self.told("Log.entryAdded")]
        issues = [event["issue"] for event in self.told("Audits.issueAdded")]
        return [
            *(error.get("exception", {}).get("description", error["text"]) for error in errors),
            *(
                entry["text"]
                for entry in entries
                if entry["source"] in ("security", "javascript", "violation")
            ),
            *(json.dumps(issue) for issue in issues),
        ]

    def take_picture(self, form: str = "png", *, whole: bool = False) -> bytes:
        """Return a picture of the view, or of the *whole* page, as PNG or WebP."""
        quality = {} if form == "png" else {"quality": 85}
        picture = self.call("Page.captureScreenshot", format=form, captureBeyondViewport=whole, **quality)
        return base64.b64decode(picture["data"])


def _high(descriptor: int) -> int:
    """Return a copy of *descriptor* that is none of the pipe's own numbers, and close it."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_THE_PIPE)
    finally:
        os.close(descriptor)
