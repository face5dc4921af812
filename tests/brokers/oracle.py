"""The oracle: Kafka's own LogManager loads and cleanly closes log dirs, thousands of them in one JVM.

See tests/oracle/src/RecoveryOracle.java for what it does as a broker does and what it leaves out.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.brokers.broker import quick_start
from tests.brokers.jars import KAFKA_VERSION, KafkaUnavailableError, class_path, oracle_classes, release_of

LONGEST_LOAD_SECONDS = 300
"""Longer than that nobody waits: the oracle is broken."""
_LOOK_SECONDS, _MOST_LOOKS = 0.05, 20
"""A JVM hangs that is asleep at so many looks in turn: nothing in the oracle waits for a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleOutcome:
    """What a broker does with these log dirs: `loaded`, or some dirs `offline`, or `fatal` (it halts), or `hangs`."""

    outcome: Literal["loaded", "offline", "fatal", "hangs"]
    offline_dirs: tuple[str, ...]
    failed_logs: tuple[str, ...]  # paths of the partition folders whose load threw
    error: str | None  # "class: message", causes behind " <- "
    duration_ms: float
    log: tuple[str, ...]  # the broker's log lines, only when asked for


class _HangError(Exception):
    pass


class Oracle:
    """One JVM with the LogManager of Kafka *version* that answers `load` requests; a context manager.

    Attributes:
        release: of that version, "4.3".
    """

    def __init__(self, *, version: str = KAFKA_VERSION, heap: str = "1g") -> None:
        self.release = release_of(version)
        if shutil.which("java") is None:
            raise KafkaUnavailableError("the oracle needs Java 17, no java on the PATH")
        options = [f"-Xmx{heap}", *quick_start(version)]
        path = class_path(version, after=[oracle_classes(version)])
        self._command = ["java", *options, "-cp", path, "RecoveryOracle"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._jvm = self._start()
        self._unread = b""
        self._requests = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(
        self,
        log_dirs: Sequence[str | os.PathLike[str]],
        *,
        now_ms: int,
        properties: Mapping[str, str] | None = None,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        run_deletes: bool = False,
        log: bool = False,
        may_hang: bool = False,
        longest_seconds: float = LONGEST_LOAD_SECONDS,
    ) -> OracleOutcome:
        """Load *log_dirs* as a broker with these *properties* starts at *now_ms*, then close them cleanly.

        Args:
            log_dirs: the whole `log.dirs`, changed in place.
            now_ms: the broker's clock, which stands still.
            properties: server.properties; `log.dirs` and `log.cleaner.enable` in it are ignored.
            topic_configs: overrides per topic, as in the broker's metadata.
            run_deletes: also do what comes `file.delete.delay.ms` later (unlink `.deleted`, `-delete`).
            log: also return the broker's log lines.
            may_hang: return `hangs`, and begin with a new JVM, where nothing goes on any more (a broker that opens a
                FIFO waits for ever).
            longest_seconds: no answer after that time is an error.
        """
        self._requests += 1
        request = {
            "id": self._requests,
            "log_dirs": [str(Path(log_dir).absolute()) for log_dir in log_dirs],
            "now_ms": now_ms,
            "properties": dict(properties or {}),
            "topic_configs": {topic: dict(configs) for topic, configs in (topic_configs or {}).items()},
            "run_deletes": run_deletes,
            "log": log,
        }
        assert self._jvm.stdin is not None
        self._jvm.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            answer = json.loads(self._read_line(may_hang, longest_seconds))
        except _HangError:
            self._start_again()
            return OracleOutcome(
                outcome="hangs",
                offline_dirs=(),
                failed_logs=(),
                error="waits for ever",
                duration_ms=_MOST_LOOKS * _LOOK_SECONDS * 1000,
                log=(),
            )
        if answer["id"] != self._requests or answer["outcome"] == "refused":
            raise RuntimeError(f"the oracle refused {request}: {answer}")
        return OracleOutcome(
            outcome=answer["outcome"],
            offline_dirs=tuple(answer["offline_dirs"]),
            failed_logs=tuple(answer["failed_logs"]),
            error=answer.get("error"),
            duration_ms=answer["duration_ms"],
            log=tuple(answer.get("log", ())),
        )

    @property
    def pid(self) -> int:
        """The pid of the JVM."""
        return self._jvm.pid

    def close(self) -> None:
        """End the JVM."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.close()
        try:
            self._jvm.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.wait()
        self._jvm.stdout.close()
        self._errors.close()

    def _start_again(self) -> None:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.kill()
        self._jvm.wait()
        self._jvm.stdin.close()
        self._jvm.stdout.close()
        self._unread = b""
        self._jvm = self._start()

    def _read_line(self, may_hang: bool, longest_seconds: float) -> bytes:
        assert self._jvm.stdout is not None
        while b"\n" not in self._unread:
            self._wait(may_hang, longest_seconds)
            data = os.read(self._jvm.stdout.fileno(), 1 << 16)
            if not data:
                self._errors.seek(0)
                printed = self._errors.read()[-4000:].decode(errors="replace")
                self._jvm.kill()
                raise RuntimeError(f"the oracle died:\n{printed}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _wait(self, may_hang: bool, longest_seconds: float) -> None:
        """Wait until there is something to read."""
        look_seconds = _LOOK_SECONDS if may_hang else longest_seconds
        end_s = time.monotonic() + longest_seconds
        looks_asleep = 0
        while not select.select([self._jvm.stdout], [], [], look_seconds)[0]:
            if time.monotonic() >= end_s:
                raise RuntimeError(f"the oracle has not answered within {longest_seconds} s")
            looks_asleep = looks_asleep + 1 if self._sleeps() else 0
            if looks_asleep == _MOST_LOOKS:
                raise _HangError

    def _sleeps(self) -> bool:
        """Whether no thread of the JVM runs, could run if there were a core for it, or waits for a disk."""
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # this thread has ended
                if stat.read_bytes().rpartition(b")")[2].split()[0] != b"S":
                    return False
        return True
