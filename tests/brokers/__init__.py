"""The real Kafka for tests: its jars, the oracle, and whole brokers."""

from tests.brokers.broker import Broker, DumpedSegments, TopicReads
from tests.brokers.jars import KAFKA_VERSION, RELEASES, KafkaUnavailableError, kafka_jars
from tests.brokers.oracle import Oracle, OracleOutcome

__all__ = [
    "KAFKA_VERSION",
    "RELEASES",
    "Broker",
    "DumpedSegments",
    "KafkaUnavailableError",
    "Oracle",
    "OracleOutcome",
    "TopicReads",
    "kafka_jars",
]
