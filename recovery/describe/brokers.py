"""Log dirs as live brokers describe them, asked one broker after the other with the client library of `client`.

Versions 1 to 5 of DescribeLogDirs: totals come with version 4 (3.3), cordons with version 5 (4.3).

Kafka: LogDirsCommand, KafkaAdminClient.describeLogDirs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recovery import extras
from recovery.describe.api import refuse_unknown_brokers
from recovery.describe.client_config import client_options
from recovery.describe.options import DescribeOptions
from recovery.describe.report import (
    UNKNOWN_BYTES,
    BrokerDescription,
    LogDirDescription,
    LogDirsReport,
    ReplicaDescription,
)
from recovery.errors import UsageError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_JAVA_ERRORS = "org.apache.kafka.common.errors"
_NO_RIGHTS = "ClusterAuthorizationException: the right DESCRIBE on CLUSTER is missing"
_FENCED = "it is fenced: down, or not yet done with its recovery"


def ask_brokers(options: DescribeOptions) -> LogDirsReport:
    """Return what the brokers behind `bootstrap_servers` answer.

    Raises:
        UsageError: a setting of the client, the extra `client` is missing, there is no such broker, or none answers.
    """
    with extras.needed_for("--bootstrap-server", extras=extras.CLIENT):
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError
    servers = [part.strip() for part in (options.bootstrap_servers or "").split(",") if part.strip()]
    arguments = client_options(options.client_config or {})
    with _library_silenced() as last_words:
        try:
            client = KafkaAdminClient(bootstrap_servers=servers, **arguments)
        except (KafkaError, OSError, ValueError) as error:
            raise UsageError(_no_answer(options, last_words, error)) from error
        try:
            brokers, silent = _ask(client, options.brokers)
        except KafkaError as error:
            raise UsageError(_no_answer(options, last_words, error)) from error
        finally:
            client.close()
    if not brokers:
        raise UsageError(
            "; ".join(f"broker {broker}: no answer: {why}" for broker, why in sorted(silent.items()))
        )
    return LogDirsReport(
        brokers=tuple(_only_topics(broker, options.topics) for broker in brokers),
        silent=silent,
        warnings=options.config_notes,
        lists_replicas=options.topics is not None,
    )


def _no_answer(options: DescribeOptions, last_words: Sequence[str], error: Exception) -> str:
    words = last_words[-1] if last_words else _words(error)
    return (
        f"--bootstrap-server {options.bootstrap_servers}: {words}. "
        "Remedy: check host, port and --command-config, and that the broker runs"
    )


def _ask(
    client: KafkaAdminClient, wanted: Sequence[int] | None
) -> tuple[list[BrokerDescription], dict[int, str]]:
    """Return the answers of brokers, and why others gave none."""
    from kafka.errors import KafkaError

    is_fenced = {
        broker["broker_id"]: broker.get("is_fenced", False) for broker in client.describe_cluster()["brokers"]
    }
    refuse_unknown_brokers(wanted, is_fenced)
    answers, silent = [], {}
    for broker in sorted(is_fenced if wanted is None else set(wanted)):
        if is_fenced[broker]:
            silent[broker] = _FENCED
            continue
        try:
            (answer,) = client.describe_log_dirs(brokers=[broker])
        except (KafkaError, OSError) as error:
            silent[broker] = _words(error)
            continue
        if answer["log_dirs"]:
            log_dirs = tuple(map(_read_log_dir, answer["log_dirs"]))
            answers.append(BrokerDescription(broker=broker, log_dirs=log_dirs))
        else:
            silent[broker] = _NO_RIGHTS
    return answers, silent


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _read_log_dir(answer: Mapping[str, Any]) -> LogDirDescription:
    """Return one log dir of an answer of any version."""
    replicas = (
        ReplicaDescription(
            topic=topic["name"],
            partition=partition["partition_index"],
            size_bytes=partition["partition_size"],
            offset_lag=partition["offset_lag"],
            is_future=partition["is_future_key"],
        )
        for topic in answer["topics"]
        for partition in topic["partitions"]
    )
    return LogDirDescription(
        log_dir=answer["log_dir"],
        error=_java_name(answer["error_code"]),
        total_bytes=answer.get("total_bytes", UNKNOWN_BYTES),
        usable_bytes=answer.get("usable_bytes", UNKNOWN_BYTES),
        is_cordoned=answer.get("is_cordoned", False),
        replicas=tuple(sorted(replicas, key=lambda one: (one.topic, one.partition, one.is_future))),
    )


def _java_name(error_code: int) -> str | None:
    """Return the class of the exception with which Kafka's client tells an error, None for no error. Kafka: Errors."""
    if error_code == 0:
        return None
    from kafka.errors import UnknownError, for_code

    kind = for_code(error_code)
    name = (
        "UnknownServer"
        if kind is UnknownError
        else kind.__name__.removesuffix("Error").removesuffix("Failed")
    )
    return f"{_JAVA_ERRORS}.{name}Exception"


def _only_topics(broker: BrokerDescription, topics: Sequence[str] | None) -> BrokerDescription:
    """Return *broker* without the replicas of other topics; as in Kafka's tool, the log dirs stay."""
    if topics is None:
        return broker
    wanted = frozenset(topics)
    return replace(
        broker,
        log_dirs=tuple(
            replace(one, replicas=tuple(replica for replica in one.replicas if replica.topic in wanted))
            for one in broker.log_dirs
        ),
    )


class _LastWords(logging.Handler):
    """Keeps the warnings of the client library: they hold the reason why it gives up, and its errors do not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(" ".join(record.getMessage().split()))


@contextmanager
def _library_silenced() -> Iterator[list[str]]:
    """Keep the client library from printing, and give what it would have printed."""
    logger, handler = logging.getLogger("kafka"), _LastWords()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.texts
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
