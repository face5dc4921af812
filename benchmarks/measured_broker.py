"""A real broker that recovers log dirs, and what it says it took."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generate import TOPIC
from tests.brokers.broker import QUIET_PROPERTIES, Broker, BrokerError

LONGEST_LOAD_SECONDS = 3600
# What kafka-server-start.sh gives a broker beside its heap (KAFKA_JVM_PERFORMANCE_OPTS).
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
DEFAULT_HEAP = "1g"
"""KAFKA_HEAP_OPTS."""

_LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms")
_COMPLETED = re.compile(r"Completed load of Log\(.*?topic=([^,]+), partition=(\d+),.*?logEndOffset=(\d+)\)")
_RECOVERING = re.compile(rf"partition={TOPIC}-\d+, .*?Recovering unflushed segment")
_MAPS_OF_A_JVM = 4000
_FILES_OF_A_JVM = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What a broker logged of its recovery.

    Attributes:
        seconds: its "Loaded N logs in T ms".
        segments: "Recovering unflushed segment" lines of generated partitions.
        log_end_offsets: of generated partitions, by folder.
    """

    seconds: float
    logs: int
    segments: int
    log_end_offsets: dict[str, int]


class MeasuredBroker(Broker):
    """A 4.3.1 broker with the JVM options that Kafka's own start script sets; the suites' start faster."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        work_dir: Path,
        recovery_threads: int,
        heap: str = DEFAULT_HEAP,
    ) -> None:
        threads = {"num.recovery.threads.per.data.dir": str(recovery_threads)}
        super().__init__(log_dirs, work_dir=work_dir, properties=QUIET_PROPERTIES | threads, heap=heap)

    def recover(self, *, until_running: bool = False) -> BrokerLoad:
        """Start on the log dirs, wait until they are loaded, and end the broker by SIGKILL.

        Args:
            until_running: wait until the broker serves, and stop it cleanly.
        """
        self.launch()
        try:
            self._wait_until_loaded()
            if until_running:
                self.wait_for(
                    "RECOVERY to RUNNING", "Kafka Server started", wait_seconds=LONGEST_LOAD_SECONDS
                )
                self.stop(wait_seconds=LONGEST_LOAD_SECONDS)
        finally:
            self.kill()
        log = self.log
        found = _LOADED.search(log)
        assert found is not None
        ends = {
            f"{topic}-{partition}": int(end)
            for topic, partition, end in _COMPLETED.findall(log)
            if topic == TOPIC
        }
        return BrokerLoad(
            seconds=int(found[2]) / 1000,
            logs=int(found[1]),
            segments=len(_RECOVERING.findall(log)),
            log_end_offsets=ends,
        )

    def _wait_until_loaded(self) -> None:
        """Read on in the broker's log until it says so; each line once, for the machine is being measured."""
        deadline = time.monotonic() + LONGEST_LOAD_SECONDS
        unread = ""
        with self.log_path.open(errors="replace") as log:
            while not _LOADED.search(unread):
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise BrokerError(f"the broker did not load its logs:\n{self.log[-6000:]}")
                time.sleep(0.2)
                unread = unread.rpartition("\n")[2] + log.read()

    def _java(
        self, main_class: str, *arguments: str, after: Sequence[Path] = (), version: str | None = None
    ) -> list[str]:
        command = super()._java(main_class, *arguments, after=after, version=version)
        if main_class != "kafka.Kafka":
            return command
        kept = [option for option in command[1:] if not option.startswith(("-X", "-server"))]
        return [command[0], f"-Xmx{self._heap}", f"-Xms{self._heap}", *JVM_OPTIONS, *kept]


def make_room_for(segments: int) -> None:
    """Let this process and the brokers that it starts open *segments* segments at once.

    A broker holds each segment's `.log` open and, where it was recovered, both its indexes mapped.

    Raises:
        BrokerError: the machine does not let a process have so many mappings or open files.
    """
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    if maps < 2 * segments + _MAPS_OF_A_JVM:
        raise BrokerError(
            f"a broker with {segments} recovered segments needs {2 * segments + _MAPS_OF_A_JVM} mappings, "
            f"vm.max_map_count is {maps}. Remedy: as root, sysctl -w vm.max_map_count=262144; or fewer segments"
        )
    needed = segments + _FILES_OF_A_JVM
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))
        except (OSError, ValueError) as error:
            raise BrokerError(
                f"a broker with {segments} segments needs {needed} open files, the limit is {hard}. Remedy: raise "
                f"the hard limit (ulimit -Hn, with CAP_SYS_RESOURCE); or {hard - _FILES_OF_A_JVM} segments in all "
                "(--partitions, --segments); or --no-broker"
            ) from error
    elif soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
