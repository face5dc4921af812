r"""What the gauges of somebody else's recovery say at one moment: read from a page of metrics, or from Jolokia.

Both are brought to one form: name and names of labels in small letters, a value. Then the same rules apply, whoever
shows the MBeans `kafka.log:type=LogManager,name=remainingLogsToRecover,dir="/d"` and the like, under whatever names:

    kafka_log_logmanager_remaininglogstorecover{dir="\"/d\""}                     jmx_exporter, the usual rules
    kafka_log_LogManager_remainingLogsToRecover{dir="\"/d\""}                     the same with case
    kafka_log_LogManager_Value{name="remainingLogsToRecover",dir="\"/d\"",}       no rules
    kafka_log_logmanager_remaininglogstorecover{dir="/d"}                         Strimzi's reporter; this tool

A path with quotes is quoted by JMX (ObjectName.quote), and unquoted here.

Pure: nothing is opened, no clock is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LOG_MANAGER = "kafka.log:type=LogManager,*"
BROKER_STATE = "kafka.server:type=KafkaServer,name=BrokerState"
START_TIME = "java.lang:type=Runtime/StartTime"
"""What to read from a Jolokia agent. Not all of Runtime: its boot class path is an error."""

RUNNING = 3
"""Of a broker's state: it serves, so its logs are loaded. Before that it may still load them. Kafka: BrokerState."""

_OWN_PREFIX = "kafka_log_recovery_"
_OWN_STATE = "kafka_log_recovery_run_state"
_OWN_ELAPSED = "kafka_log_recovery_elapsed_seconds"
_START_SECONDS = ("process_start_time_seconds", "kafka_log_recovery_start_timestamp_seconds")
_WANTED = re.compile(
    r"remaining_?(logs|segments)_?to_?recover|logmanager|broker_?state|kafka_log_recovery_|process_start_time_seconds",
    re.IGNORECASE,
)
_SAMPLE = re.compile(r"\s*[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{.*\})?\s+\S+(\s+\S+)?(\s+#.*)?\s*")
_OF_KAFKA = re.compile(r"kafka|^jmx_|^jvm_", re.IGNORECASE)
_MBEAN_KEY = re.compile(r'([^=,]+)=("(?:[^"\\]|\\.)*"|[^,]*)')
_ESCAPED = re.compile(r"\\(.)")


class MalformedAnswerError(ValueError):
    """This is no page of metrics, or no answer of Jolokia's; the message says what it is instead."""


class Sample(NamedTuple):
    """A value, as a page of metrics has it: name and names of labels in small letters."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True, kw_only=True)
class LogDirReading:
    """What is known of one log dir.

    Attributes:
        remaining_logs: remainingLogsToRecover; None: there is no such gauge.
        remaining_segments: remainingSegmentsToRecover by thread number, without threads that have recovered nothing.
        is_offline: logDirectoryOffline.
        figures: of this tool alone: the value of each `kafka_log_recovery_*{dir=...}` by what follows in its name.
    """

    remaining_logs: int | None = None
    remaining_segments: dict[int, int] = field(default_factory=dict)
    is_offline: bool = False
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Reading:
    """What is known of a broker, or of a run of this tool.

    Attributes:
        log_dirs: by path.
        broker_state: kafka.server:type=KafkaServer,name=BrokerState; None: not shown.
        run_state: of this tool alone: see `recovery.watch.figures.RunState`.
        started_s: when the process, or the run of this tool, was started, seconds since the epoch; None: not shown.
        elapsed_s: of this tool alone: how long it has been running.
    """

    log_dirs: dict[str, LogDirReading] = field(default_factory=dict)
    broker_state: int | None = None
    run_state: str | None = None
    started_s: float | None = None
    elapsed_s: float | None = None

    @property
    def recovering(self) -> dict[str, LogDirReading]:
        """The log dirs that have recovery gauges: all of a broker's while it loads its logs, none before and after."""
        return {
            path: log_dir for path, log_dir in self.log_dirs.items() if log_dir.remaining_logs is not None
        }


def read_metrics(lines: Iterable[str]) -> Reading:
    """Return what a page in Prometheus' text format, or in OpenMetrics', says.

    Args:
        lines: of the page. Those that are of no use are passed over as they come: a broker may show 100,000 of them.

    Raises:
        MalformedAnswerError: it is no such page, or one that has nothing to do with Kafka.
    """
    wanted: list[str] = []
    is_of_kafka, has_samples = False, False
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        if not has_samples and not _SAMPLE.fullmatch(line):
            raise MalformedAnswerError(f"it is no page of metrics, it begins with {line.strip()[:40]!r}")
        has_samples = True
        is_of_kafka = is_of_kafka or _OF_KAFKA.search(line) is not None
        if _WANTED.search(line):
            wanted.append(line)
    if not is_of_kafka:
        what = "of something else than Kafka" if has_samples else "but there is none on it"
        raise MalformedAnswerError(f"a page of metrics, {what}")
    return _reading(_samples(wanted))


def read_jolokia(answers: Iterable[bytes]) -> Reading:
    """Return what Jolokia's answers to `read` requests say together.

    An answer that there is no such MBean says nothing: a broker registers them one after the other.

    Raises:
        MalformedAnswerError: one of them is not Jolokia's, or an error other than that.
    """
    return _reading(sample for answer in answers for sample in _jolokia_samples(answer))


def _samples(lines: list[str]) -> Iterator[Sample]:
    from prometheus_client.parser import (
        text_string_to_metric_families,
    )  # slow to import: for HTTP sources alone

    for line in lines:
        try:
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    yield _normal(sample.name, sample.labels, sample.value)
        except ValueError as error:
            raise MalformedAnswerError(
                f"a line of the metrics cannot be read: {line.strip()[:120]!r}"
            ) from error


def _normal(name: str, labels: Mapping[str, str], value: float) -> Sample:
    """Return the sample in small letters, the property `name` of an MBean that is exported by no rules in its name."""
    name = name.lower()
    labels = {label.lower(): text for label, text in labels.items()}
    if name.endswith("_value"):
        name = name.removesuffix("_value")
        if "name" in labels:
            name = f"{name}_{labels['name'].lower()}"
    return Sample(name, labels, float(value))


def _jolokia_samples(answer: bytes) -> Iterator[Sample]:
    try:
        parsed = json.loads(answer)
    except ValueError as error:
        raise MalformedAnswerError(f"it is not Jolokia's, it begins with {answer.strip()[:40]!r}") from error
    if not isinstance(parsed, dict) or "status" not in parsed:
        raise MalformedAnswerError(f"it is not Jolokia's: {answer.strip()[:80]!r}")
    if parsed["status"] == 404:
        return
    value, request = parsed.get("value"), parsed.get("request", {})
    asked = str(request.get("mbean"))
    if "attribute" in request and not isinstance(value, dict):
        value = {str(request["attribute"]): value}
    if parsed["status"] != 200 or not isinstance(value, dict):
        raise MalformedAnswerError(f"Jolokia says {parsed['status']}: {parsed.get('error', 'no more')}")
    beans = value if "*" in asked else {asked: value}
    for mbean, attributes in beans.items():
        if isinstance(attributes, dict):
            yield from _mbean_samples(mbean, attributes)


def _mbean_samples(mbean: str, attributes: Mapping[str, object]) -> Iterator[Sample]:
    """Return the numbers of an MBean under the names that the usual rules give them."""
    domain, _, properties = mbean.partition(":")
    labels = dict(_MBEAN_KEY.findall(properties))
    kind, name = labels.pop("type", ""), labels.pop("name", "")
    for attribute, value in attributes.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            if attribute == "StartTime":
                yield Sample("process_start_time_seconds", {}, value / 1000)
            elif attribute == "Value":
                yield _normal(f"{domain.replace('.', '_')}_{kind}_{name}", labels, value)


def _reading(samples: Iterable[Sample]) -> Reading:
    reading = Reading()
    for name, labels, value in samples:
        if math.isnan(value):
            continue
        if name in _START_SECONDS:
            reading.started_s = value
        elif name == _OWN_ELAPSED:
            reading.elapsed_s = value
        elif name == _OWN_STATE:
            if value:
                reading.run_state = labels.get("state")
        elif name.replace("_", "").endswith("kafkaserverbrokerstate"):
            reading.broker_state = int(value)
        elif path := labels.get("dir") or labels.get("logdirectory"):
            log_dir = reading.log_dirs.setdefault(_unquoted(path), LogDirReading())
            _take(log_dir, name, labels, value)
    return reading


def _take(log_dir: LogDirReading, name: str, labels: Mapping[str, str], value: float) -> None:
    gauge = name.replace("_", "")
    if gauge.endswith("remaininglogstorecover"):
        log_dir.remaining_logs = int(value)
    elif gauge.endswith("remainingsegmentstorecover"):
        if labels.get("threadnum", "").isdecimal():
            log_dir.remaining_segments[int(labels["threadnum"])] = int(value)
    elif gauge.endswith("logdirectoryoffline"):
        log_dir.is_offline = bool(value)
    elif name.startswith(_OWN_PREFIX) and len(labels) == 1:
        log_dir.figures[name.removeprefix(_OWN_PREFIX)] = value


def _unquoted(path: str) -> str:
    r"""Return the path in a quoted one. Java: ObjectName.unquote, where a backslash precedes ", *, ?, \ and n."""
    if len(path) < 2 or not path.startswith('"') or not path.endswith('"'):
        return path
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], path[1:-1])
