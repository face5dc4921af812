"""Kafka's own classes for the metadata of tiered storage, asked many questions in one JVM.

See tests/oracle/remote/RemoteLogOracle.java for the questions and answers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any

from tests.brokers.jars import class_path, remote_log_classes

_PROGRAM = "org.apache.kafka.server.log.remote.metadata.storage.RemoteLogOracle"


def ask_kafka(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Kafka's answers to *requests*, in their order."""
    asked = [json.dumps(request) for request in requests]
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
    done = subprocess.run(
        ["java", *options, "-cp", class_path(after=[remote_log_classes()]), _PROGRAM],
        input="".join(line + "\n" for line in asked),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.split("\n") if line.startswith("{")]
    if done.returncode != 0 or len(lines) != len(asked):
        raise RuntimeError(
            f"{len(lines)} answers to {len(asked)} questions, exit {done.returncode}:\n{done.stderr[-4000:]}"
        )
    return [json.loads(line) for line in lines]
