"""Spark's own Kafka source, whose jars are not in pyspark: from Maven, into the cache.

4.2.0 is the newest that is published; it runs on Spark 4.3 as well.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from tests.brokers import KafkaUnavailableError
from tests.servers.build_cache import cached

_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


@functools.cache
def kafka_connector() -> tuple[Path, ...]:
    """The jars to add to a session (`ADD JAR`)."""

    def fetch(into: Path) -> None:
        for jar in _JARS:
            command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={into}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise KafkaUnavailableError(f"Maven could not fetch {jar}:\n{done.stdout[-3000:]}")

    return tuple(sorted(cached("kafka-connector", [], list(_JARS), fetch).glob("*.jar")))
