"""Java agents that show a broker's gauges: Jolokia's, jmx_exporter's, and one of ours that writes down each value.

A broker gets them by `Broker(java_agents=...)`. Those of HTTP listen on loopback, in the broker's own network where it
has one: `Broker.inside` is a block that reaches it.
"""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.jars import ORACLE_DIR, compiled, maven_artifact
from tests.servers.build_cache import cached

JOLOKIA_PORT, EXPORTER_PORT = 28778, 29404
JOLOKIA_VERSIONS = {
    "2.6.0": "org.jolokia:jolokia-agent-jvm:2.6.0:jar:javaagent",
    "1.7.2": "org.jolokia:jolokia-jvm:1.7.2:jar",
}
EXPORTER_VERSIONS = ("1.0.1", "0.20.0")

_VALUE = "><>Value"
_PATTERNS = (
    (r"kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)" + _VALUE, {"$4": "$5", "$6": "$7"}),
    (r"kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)" + _VALUE, {"$4": "$5"}),
    (r"kafka.(\w+)<type=(.+), name=(.+)" + _VALUE, {}),
)
_USUAL_RULES = [
    {"pattern": pattern, "name": "kafka_$1_$2_$3", "type": "GAUGE", "labels": labels}
    for pattern, labels in _PATTERNS
]
RULES = {
    "usual": {"lowercaseOutputName": True, "rules": _USUAL_RULES},
    "usual-not-lowercase": {"rules": _USUAL_RULES},
    "usual-lowercase-labels": {
        "lowercaseOutputName": True,
        "lowercaseOutputLabelNames": True,
        "rules": _USUAL_RULES,
    },
    "log-manager": {
        "lowercaseOutputName": True,
        "includeObjectNames": ["kafka.log:type=LogManager,*"],
        "rules": _USUAL_RULES,
    },
    "none": {},
    "none-lowercase": {"lowercaseOutputName": True, "lowercaseOutputLabelNames": True},
}
"""Configurations of jmx_exporter: the rules for gauges that its examples for Kafka have; none gives default names."""

_MBEAN = re.compile(r"name=remaining(Logs|Segments)ToRecover")
_DIR = re.compile(r'dir="((?:[^"\\]|\\.)*)"')
_THREAD = re.compile(r"threadNum=(\d+)")


def jolokia_agent(version: str = "2.6.0", port: int = JOLOKIA_PORT) -> str:
    """The argument of `-javaagent:` for Jolokia's agent, at http://127.0.0.1:PORT/jolokia."""
    return f"{maven_artifact(JOLOKIA_VERSIONS[version])}=port={port},host=127.0.0.1"


def exporter_agent(
    config: Path, rules: str, version: str = "1.0.1", port: int = EXPORTER_PORT, only: str = "*:*"
) -> str:
    """The argument of `-javaagent:` for jmx_exporter, at http://127.0.0.1:PORT/metrics; writes *config*.

    Args:
        only: the MBeans to export. All of a broker's take seconds beside a recovery.
    """
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(RULES[rules] | {"includeObjectNames": [only]}))  # JSON is YAML
    jar = maven_artifact(f"io.prometheus.jmx:jmx_prometheus_javaagent:{version}")
    return f"{jar}=127.0.0.1:{port}:{config}"


def recorder_agent(file: Path) -> str:
    """The argument of `-javaagent:` for the agent that writes each value of the recovery gauges to *file*."""
    return f"{_recorder_jar()}={file}"


@functools.cache
def _recorder_jar() -> Path:
    classes = compiled(ORACLE_DIR / "gauges")

    def pack(into: Path) -> None:
        with zipfile.ZipFile(into / "recorder.jar", "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nPremain-Class: GaugeRecorder\n\n")
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes))

    return cached("gauge-recorder", [], [str(classes)], pack) / "recorder.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeChange:
    """A gauge has another value.

    Attributes:
        log_dir: without quotes.
        thread_num: None: remainingLogsToRecover; else remainingSegmentsToRecover of that thread.
        value: None: the gauge is there and null; "gone": it is not there any more.
    """

    now_ms: int
    log_dir: str
    thread_num: int | None
    value: int | str | None


def recorded(file: Path) -> list[GaugeChange]:
    """What the agent has written to *file*, in order."""
    return list(_changes(file.read_text()))


def _changes(text: str) -> Iterator[GaugeChange]:
    for line in text.splitlines():
        now_ms, mbean, value = line.split("\t")
        log_dir, thread = _DIR.search(mbean), _THREAD.search(mbean)
        assert _MBEAN.search(mbean), line
        assert log_dir, line
        yield GaugeChange(
            now_ms=int(now_ms),
            log_dir=re.sub(r"\\(.)", r"\1", log_dir[1]),
            thread_num=int(thread[1]) if thread else None,
            value={"null": None, "gone": "gone"}[value] if not value.isdigit() else int(value),
        )
