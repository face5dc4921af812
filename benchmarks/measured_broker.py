"""A real broker that recovers log dirs, and what it says it took."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generate import TOPIC
from tests.kafka_broker import QUIET_PROPERTIES, Broker, BrokerError

LONGEST_LOAD_SECONDS = 3600
# What kafka-server-start.sh gives a broker (KAFKA_HEAP_OPTS, KAFKA_JVM_PERFORMANCE_OPTS).
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

_LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms")
_COMPLETED = re.compile(r"Completed load of Log\(.*?topic=([^,]+), partition=(\d+),.*?logEndOffset=(\d+)\)")
_RECOVERING = re.compile(rf"partition={TOPIC}-\d+, .*?Recovering unflushed segment")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What a broker logged of its recovery.

    Attributes:
        seconds: its "Loaded N logs in T ms".
        segments: "Recovering unflushed segment" lines of generated partitions.
        log_end_offsets: by folder.
    """

    seconds: float
    logs: int
    segments: int
    log_end_offsets: dict[str, int]


class MeasuredBroker(Broker):
    """A 4.3.1 broker with the JVM options that Kafka's own start script sets; the suites' start faster."""

    def __init__(self, log_dirs: Sequence[Path], *, work_dir: Path, recovery_threads: int) -> None:
        threads = {"num.recovery.threads.per.data.dir": str(recovery_threads)}
        super().__init__(log_dirs, work_dir=work_dir, properties=QUIET_PROPERTIES | threads)

    def recover(self, *, until_running: bool = False) -> BrokerLoad:
        """Start on the log dirs, wait until they are loaded, and end the broker by SIGKILL.

        Args:
            until_running: wait until the broker serves, and stop it cleanly.
        """
        self.launch()
        try:
            self._wait_until_loaded()
            if until_running:
                self.wait_for("RECOVERY to RUNNING", "Kafka Server started")
                self.stop()
        finally:
            self.kill()
        found = _LOADED.search(self.log)
        assert found is not None
        ends = {f"{topic}-{partition}": int(end) for topic, partition, end in _COMPLETED.findall(self.log)}
        return BrokerLoad(
            seconds=int(found[2]) / 1000,
            logs=int(found[1]),
            segments=len(_RECOVERING.findall(self.log)),
            log_end_offsets=ends,
        )

    def _wait_until_loaded(self) -> None:
        deadline = time.monotonic() + LONGEST_LOAD_SECONDS
        while not _LOADED.search(self.log):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise BrokerError(f"the broker did not load its logs:\n{self.log[-6000:]}")
            time.sleep(0.2)  # not more often: the machine is being measured

    def _java(
        self, main_class: str, *arguments: str, before: Sequence[Path] = (), version: str | None = None
    ) -> list[str]:
        command = super()._java(main_class, *arguments, before=before, version=version)
        if main_class != "kafka.Kafka":
            return command
        kept = [option for option in command[1:] if not option.startswith(("-X", "-server"))]
        return [command[0], *JVM_OPTIONS, *kept]
