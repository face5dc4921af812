"""Whole Kafka brokers on loopback: formatted, started, stopped, killed, asked by Kafka's clients and tools.

Each broker runs in a network namespace of its own where the machine allows it (root on Linux), so that ports
never collide; else on free loopback ports. A broker is one combined KRaft node, ended by its own pid.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers.jars import (
    KAFKA_VERSION,
    ORACLE_DIR,
    class_path,
    clock_jar,
    kafka_jars,
    oracle_classes,
    tools_version_of,
)
from tests.patience import LONGEST_WAIT_SECONDS
from tests.servers.build_cache import cached
from tests.servers.s3_server import free_port

# What keeps a broker from writing to its logs of its own accord, so that its tree can be compared.
QUIET_PROPERTIES = {
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "9000000",
    "log.initial.task.delay.ms": "9000000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2147483647",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "2147483647",
    "producer.id.expiration.check.interval.ms": "2147483647",
    "offsets.retention.check.interval.ms": "9223372036854775807",
    "offsets.retention.minutes": "2147483647",
    "metadata.max.idle.interval.ms": "0",
}
# A broker that a busy machine keeps from its heartbeats for some seconds keeps its partitions all the same.
NEVER_FENCED = {"broker.session.timeout.ms": "3600000"}
_MINIMAL_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that follows a killed one waits until that one's session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_CLIENT_PORT, _CONTROLLER_PORT = 29092, 29093
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_TOPIC_RESOURCE = 2
_NEVER_CLOSED = re.compile(r"^__cluster_metadata-0$|^remote-log-index-cache$|-delete$|-stray$")
_COMPLAINT = re.compile(
    r"mismatch|exception|corrupt|isvalid: false|monoton|non-consecutive|could not", re.IGNORECASE
)
_RUNNING = "RECOVERY to RUNNING"
_STARTED = "Kafka Server started"
_TIERING_READY = "Initialized topic-based RLMM resources successfully"


class BrokerError(RuntimeError):
    """A broker or one of its tools did not do what it was asked; the message ends with what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReads:
    """What Kafka's consumer read of one partition at one isolation level."""

    beginning_offset: int
    end_offset: int  # read_committed: the last stable offset
    records: int
    bytes: int
    crc32c: int  # over offset, timestamp, key, value, headers of every record


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedSegments:
    """What DumpLogSegments said: its whole output, and the lines in it that are complaints."""

    output: str
    complaints: tuple[str, ...]


class Broker:
    """One Kafka broker on given log dirs.

    Args:
        log_dirs: its `log.dirs`; made when missing.
        work_dir: where its server.properties and its log go.
        properties: server.properties over the minimum of a combined node; listeners and log.dirs are set.
        version: a released Kafka version.
        now_ms: the time the broker believes it is when it starts; None: the machine's clock.
        plugins: folders of classes for the broker itself.
        ports: of loopback, of the listener for clients and of the controller, where it is one of several nodes, whose
            roles the properties tell; None: it is a cluster by itself, with ports of its own.
        kept_classes: a file to be made of the broker's classes when it stops; None: it is started with such a file.
        java_agents: arguments of `-javaagent:` for the broker itself (tests/brokers/agents.py).
    """

    def __init__(
        self,
        log_dirs: Sequence[str | os.PathLike[str]],
        *,
        work_dir: Path,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        now_ms: int | None = None,
        heap: str = "1g",
        plugins: Sequence[Path] = (),
        ports: tuple[int, int] | None = None,
        kept_classes: Path | None = None,
        java_agents: Sequence[str] = (),
    ) -> None:
        self.log_dirs = tuple(Path(log_dir).absolute() for log_dir in log_dirs)
        self.log_path = work_dir / "broker.log"
        self.config = work_dir / "broker.properties"
        self.version = version
        self._heap = heap
        self._now_ms = now_ms
        self._plugins = tuple(plugins)
        self._kept_classes = kept_classes
        self._java_agents = tuple(java_agents)
        self._isolated = ports is None and can_isolate()
        self._process: subprocess.Popen[bytes] | None = None
        if ports is None:
            ports = (_CLIENT_PORT, _CONTROLLER_PORT) if self._isolated else (free_port(), free_port())
        self.bootstrap_servers = f"localhost:{ports[0]}"
        self.bootstrap_controllers = f"localhost:{ports[1]}"
        all_properties = _MINIMAL_PROPERTIES | dict(properties or {})
        self._roles = all_properties["process.roles"].split(",")
        all_properties |= _network_properties(*ports, self._roles)
        all_properties.pop("log.dir", None)
        all_properties["log.dirs"] = ",".join(map(str, self.log_dirs))
        work_dir.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{key}={value}\n" for key, value in all_properties.items()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def runs(self) -> bool:
        """Whether its JVM was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the running JVM."""
        if self._process is None:
            raise BrokerError("this broker is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything the broker printed since it was last started."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def format(
        self,
        cluster_id: str = "c2FtcGxlLWxvZ3MtMDAwMQ",
        *,
        ignore_formatted: bool = False,
        release: str | None = None,
    ) -> None:
        """Write meta.properties and the metadata snapshot of a new one-node cluster (kafka-storage).

        *release*: whose metadata.version the cluster begins with; None: the newest that this version knows.
        """
        arguments = ["format", "-t", cluster_id, "-c", str(self.config)]
        arguments += ["--release-version", release] if release else []
        arguments += ["--standalone"] if "controller" in self._roles else []
        self._run_java("kafka.tools.StorageTool", *arguments, *(["-g"] if ignore_formatted else []))

    def start(self, *, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """Start the broker, and wait until it is RUNNING."""
        self.launch()
        self.wait_until_running(wait_seconds=wait_seconds)

    def wait_until_running(self, *, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """Wait until the broker that was launched is RUNNING and its tiered storage, if it has one, is ready."""
        lines = [_RUNNING, _STARTED] if "broker" in self._roles else [_STARTED]
        if (
            "broker" in self._roles
            and "remote.log.storage.system.enable=true" in self.config.read_text().splitlines()
        ):
            # A broker that is stopped before that hangs for minutes.
            lines.append(_TIERING_READY)
        try:
            self.wait_for(*lines, wait_seconds=wait_seconds)
        except BrokerError:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the broker and do not wait."""
        if self.runs:
            raise BrokerError("this broker is already running")
        command = self._java("kafka.Kafka", str(self.config))
        if self._isolated:
            # exec all the way: the pid of the child is the pid of the JVM.
            command = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def wait_for(self, *lines: str, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """Wait until all *lines* have appeared in the broker's log."""
        deadline = time.monotonic() + wait_seconds
        while not all(line in self.log for line in lines):
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"the broker ended before {lines}:\n{self.log[-6000:]}")
            if time.monotonic() > deadline:
                raise BrokerError(f"no {lines} within {wait_seconds} s:\n{self.log[-6000:]}")
            time.sleep(0.05)

    def wait_for_end(self, *, wait_seconds: float = LONGEST_WAIT_SECONDS) -> int:
        """Wait until the broker has ended by itself; its exit code."""
        if self._process is None:
            raise BrokerError("this broker was not started")
        return self._process.wait(timeout=wait_seconds)

    def stop(self, *, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """SIGTERM: a clean shutdown."""
        os.kill(self.pid, signal.SIGTERM)
        try:
            self.wait_for_end(wait_seconds=wait_seconds)
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"the broker did not stop:\n{self.log[-6000:]}") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """SIGSTOP: it keeps its locks and ports, and writes nothing of its own until the block is left."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            # The signal comes back at once, while threads inside a system call still finish it.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def inside(self) -> list[str]:
        """What a command begins with that is to reach the broker's ports."""
        return ["nsenter", "-t", str(self.pid), "-n"] if self._isolated else []

    def run_tool(self, main_class: str, *arguments: str, after: Sequence[Path] = ()) -> str:
        """Run a Java program, Kafka's or ours, where the broker's ports can be reached; what it printed."""
        return self._run_java(main_class, *arguments, after=after, inside=True)

    def tool_command(
        self, main_class: str, *arguments: str, after: Sequence[Path] = (), version: str | None = None
    ) -> list[str]:
        """The command that runs a Java program where the broker's ports can be reached.

        Args:
            main_class: Kafka's, or one of ours in *after*.
            arguments: of the program.
            after: folders of classes.
            version: the Kafka release that its clients come from; None: the broker's own.
        """
        command = self._java(main_class, *arguments, after=after, version=version)
        return [*self.inside, *command]

    def read_all(self) -> dict[str, dict[str, TopicReads]]:
        """Read everything with Kafka's consumer: isolation level -> `topic-partition` -> what was read."""
        printed = self.run_tool("ReadCounts", self.bootstrap_servers, after=[oracle_classes()])
        levels = json.loads(printed.splitlines()[-1])
        return {
            level: {name: TopicReads(**counts) for name, counts in partitions.items()}
            for level, partitions in levels.items()
        }

    def offsets(self, time: int = -1) -> dict[str, int]:
        """`topic:partition` -> offset, by GetOffsetShell (-1 latest, -2 earliest, -4 earliest local)."""
        arguments = ["--bootstrap-server", self.bootstrap_servers, "--time", str(time)]
        printed = self.run_tool("org.apache.kafka.tools.GetOffsetShell", *arguments)
        rows = (line.rpartition(":") for line in printed.splitlines() if line.count(":") >= 2)
        return {name: int(offset) for name, _, offset in rows if offset.lstrip("-").isdigit()}

    def _java(
        self, main_class: str, *arguments: str, after: Sequence[Path] = (), version: str | None = None
    ) -> list[str]:
        version = version or self.version
        if main_class.startswith(("org.apache.kafka.tools.", "kafka.admin.")):
            version = tools_version_of(version)
        legacy = version.startswith("3.")
        config = ORACLE_DIR / ("broker-log4j.properties" if legacy else "broker-log4j2.properties")
        is_broker = main_class == "kafka.Kafka"
        options = [f"-Xmx{self._heap if is_broker else '512m'}"]
        options.append(
            f"-Dlog4j.configuration=file:{config}" if legacy else f"-Dlog4j2.configurationFile={config}"
        )
        options.append(f"-Doracle.log.level={'INFO' if is_broker else 'ERROR'}")
        before: tuple[Path, ...] = ()
        if is_broker:
            after = [*self._plugins, *after]
            options += [f"-javaagent:{agent}" for agent in self._java_agents]
        if is_broker and self._now_ms is not None:
            options.append(f"-Doracle.now.ms={self._now_ms}")
            before = (clock_jar(),)
        if self._kept_classes is None:
            options += quick_start(version, before)
        elif is_broker:
            options += [*_JAVA_OPTIONS, f"-XX:ArchiveClassesAtExit={self._kept_classes}"]
        path = class_path(version, before=before, after=after)
        return ["java", *options, "-cp", path, main_class, *arguments]

    def _run_java(
        self, main_class: str, *arguments: str, after: Sequence[Path] = (), inside: bool = False
    ) -> str:
        make_command = self.tool_command if inside else self._java
        command = make_command(main_class, *arguments, after=after)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=LONGEST_WAIT_SECONDS
            )
        except subprocess.TimeoutExpired as error:  # a consumer waits for ever for records that a broker lost
            raise BrokerError(f"{main_class} did not end; the broker:\n{self.log[-4000:]}") from error
        if done.returncode != 0:
            raise BrokerError(
                f"{main_class} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done.stdout


def dump_segments(paths: Sequence[Path], *options: str) -> DumpedSegments:
    """Run DumpLogSegments on *paths* (`.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`)."""
    command = ["java", "-Xmx512m", *quick_start(), "-Doracle.log.level=ERROR"]
    command += [f"-Dlog4j2.configurationFile={ORACLE_DIR / 'broker-log4j2.properties'}", "-cp", class_path()]
    command += ["org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, paths))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    return DumpedSegments(output=output, complaints=_complaints(output, done.returncode))


def sanity_check_indexes(log_dirs: Sequence[Path], *, against_logs: bool = False) -> DumpedSegments:
    """`DumpLogSegments --index-sanity-check` on every offset and time index below *log_dirs*.

    Args:
        log_dirs: cleanly closed log dirs; what a clean shutdown does not close and trim is left out
            (`__cluster_metadata-0`, folders that end in `-delete` or `-stray`).
        against_logs: `--verify-index-only` instead, which compares each entry with the log.
    """
    folders = (path for log_dir in log_dirs for path in log_dir.iterdir() if path.is_dir())
    logs = (folder for folder in folders if not _NEVER_CLOSED.search(folder.name))
    paths = sorted(path for log in logs for path in log.iterdir() if path.suffix in (".index", ".timeindex"))
    return dump_segments(paths, "--verify-index-only" if against_logs else "--index-sanity-check")


def topic_configs_of(log_dir: Path) -> dict[str, dict[str, str]]:
    """The topic overrides in the `__cluster_metadata-0` of *log_dir*, as DumpLogSegments decodes them."""
    metadata_log = sorted((log_dir / "__cluster_metadata-0").glob("*.log"))
    dumped = dump_segments(metadata_log, "--cluster-metadata-decoder").output
    names: dict[str, str] = {}
    configs: dict[str, dict[str, str]] = {}
    for payload in re.findall(r"payload: (\{.*\})", dumped):
        record = json.loads(payload)
        data = record["data"]
        if record["type"] == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif record["type"] == "REMOVE_TOPIC_RECORD":
            configs.pop(names[data["topicId"]], None)
        elif record["type"] == "CONFIG_RECORD" and data["resourceType"] == _TOPIC_RESOURCE:
            configs.setdefault(data["resourceName"], {})[data["name"]] = data["value"]
    return configs


@functools.cache
def quick_start(version: str = KAFKA_VERSION, before: tuple[Path, ...] = ()) -> tuple[str, ...]:
    """Options of a JVM that lives for seconds: it maps Kafka's classes as another broker has left them in a file.

    Args:
        version: of Kafka.
        before: the jars before Kafka's on the class path; the file is for that path alone, but folders may follow it.
    """
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr

    def keep(into: Path) -> None:
        now_ms = int(time.time() * 1000) if before else None
        kept = into / "classes.jsa"
        with (
            tempfile.TemporaryDirectory() as folder,
            Broker(
                [Path(folder) / "logs"],
                work_dir=Path(folder),
                version=version,
                now_ms=now_ms,
                kept_classes=kept,
            ) as broker,
        ):
            broker.format()
            broker.start()
            broker.stop()

    # Of jars with another date the JVM takes nothing.
    more = [java, class_path(version, before=before), str(kafka_jars(version).stat().st_mtime_ns)]
    kept = cached(f"kept-classes-{version}", [], more, keep) / "classes.jsa"
    # What does not fit is not used; the JVM's warning of that would stand in the output of tools.
    return *_JAVA_OPTIONS, f"-XX:SharedArchiveFile={kept}", "-Xlog:cds*=off", "-Xlog:class+path=off"


@functools.cache
def can_isolate() -> bool:
    """Whether a process can be given a network namespace of its own here."""
    if any(shutil.which(command) is None for command in ("unshare", "nsenter", "ip")):
        return False
    return (
        subprocess.run(
            ["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, check=False
        ).returncode
        == 0
    )


def _complaints(output: str, return_code: int) -> tuple[str, ...]:
    found = [f"exit code {return_code}"] if return_code != 0 else []
    lines = (line for line in output.splitlines() if not line.startswith("Dumping "))
    return (*found, *(line for line in lines if _COMPLAINT.search(line)))


def _network_properties(client_port: int, controller_port: int, roles: Sequence[str]) -> dict[str, str]:
    places = {
        "broker": f"PLAINTEXT://localhost:{client_port}",
        "controller": f"CONTROLLER://localhost:{controller_port}",
    }
    listeners = ",".join(places[role] for role in roles)
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
    }
