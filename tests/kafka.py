"""The real Kafka for tests: its jars, the oracle, and whole brokers."""

from tests.kafka_broker import Broker, DumpedSegments, TopicReads
from tests.kafka_jars import KAFKA_VERSION, KafkaUnavailableError, kafka_jars, missing_commands
from tests.kafka_oracle import Oracle, OracleOutcome

__all__ = [
    "KAFKA_VERSION",
    "Broker",
    "DumpedSegments",
    "KafkaUnavailableError",
    "Oracle",
    "OracleOutcome",
    "TopicReads",
    "kafka_jars",
    "missing_commands",
]
