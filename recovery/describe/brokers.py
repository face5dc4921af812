"""Log dirs as live brokers describe them, asked one broker after the other with the client library of `client`.

Versions 1 to 5 of DescribeLogDirs: totals come with version 4 (3.3), cordons with version 5 (4.3).

Kafka: LogDirsCommand, KafkaAdminClient.describeLogDirs.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recovery import extras
from recovery.describe.api import refuse_unknown_brokers
from recovery.describe.client_config import OPTION, client_options
from recovery.describe.options import DescribeOptions
from recovery.describe.report import (
    UNKNOWN_BYTES,
    BrokerDescription,
    LogDirDescription,
    LogDirsReport,
    ReplicaDescription,
)
from recovery.errors import UsageError
from recovery.watch.tally import Tally

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_JAVA_ERRORS = "org.apache.kafka.common.errors"
_ATTEMPTS, _PAUSE_SECONDS = 10, 0.5
_ATTEMPT = re.compile(r"^Bootstrap (?:connection|attempt) to \S+ failed: (.*?)(?: \(backoff [^()]*\))?$")
_ERRNO = re.compile(r"(?:\w+Error: )?\[?(?:Errno )?(\d{1,3})\]? E[A-Z]+")
_NO_RIGHTS = "ClusterAuthorizationException: the right DESCRIBE on CLUSTER is missing"
_SERVER = re.compile(r"(\[[^\]]+\]|[^:\s]+)(:\d{1,5})?|[0-9a-fA-F]*(:[0-9a-fA-F]*){2,}")
"""A host or an address with a port or, as the client library takes it, without."""
_FENCED = "it is fenced: down, or not yet done with its recovery"


def ask_brokers(options: DescribeOptions, tally: Tally) -> LogDirsReport:
    """Return what the brokers behind `bootstrap_servers` answer; *tally* counts them.

    Raises:
        UsageError: a setting of the client, the extra `client` is missing, there is no such broker, or none answers.
    """
    with extras.needed_for("--bootstrap-server", extras=extras.CLIENT):
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError
    servers = [part.strip() for part in (options.bootstrap_servers or "").split(",") if part.strip()]
    for server in servers or [""]:
        if not _SERVER.fullmatch(server):
            raise UsageError(f"--bootstrap-server {server or 'without a name'}: expected HOST:PORT,...")
    arguments = client_options(options.client_config or {})
    with _library_silenced() as warnings:
        try:
            client = KafkaAdminClient(bootstrap_servers=servers, **arguments)
        except (KafkaError, OSError, ValueError) as error:
            raise UsageError(_no_answer(options, warnings, error)) from error
        try:
            brokers, silent = _ask(client, options.brokers, tally)
        except KafkaError as error:
            raise UsageError(_no_answer(options, warnings, error)) from error
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


def _no_answer(options: DescribeOptions, warnings: Sequence[str], error: Exception) -> str:
    """Return why nobody answers, which the library says in the warnings about its attempts alone."""
    reasons = [match[1] for text in warnings if (match := _ATTEMPT.search(text))]
    reason = next((text for text in reasons if "uthentication" in text), (*reasons, _words(error))[0])
    reason = _ERRNO.sub(lambda match: os.strerror(int(match[1])), reason)
    if reason.endswith("socket disconnected"):
        reason += " (as after a wrong password, or by another protocol)"
    return (
        f"--bootstrap-server {options.bootstrap_servers}: {reason}. "
        f"Remedy: check host, port and {OPTION}, and that the broker runs"
    )


def _ask(
    client: KafkaAdminClient, wanted: Sequence[int] | None, tally: Tally
) -> tuple[list[BrokerDescription], dict[int, str]]:
    """Return the answers of brokers, and why others gave none."""
    listed = _list_brokers(client)
    refuse_unknown_brokers(wanted, listed)
    asked = sorted(listed if wanted is None else set(wanted))
    tally.expect(len(asked))
    answers, silent = [], {}
    for broker in asked:
        answer = _answer_of(client, broker, listed[broker])
        if isinstance(answer, str):
            silent[broker] = answer
        else:
            answers.append(BrokerDescription(broker=broker, log_dirs=answer))
        tally.add()
    return answers, silent


def _answer_of(
    client: KafkaAdminClient, broker: int, listed: Mapping[str, Any]
) -> tuple[LogDirDescription, ...] | str:
    """Return the log dirs of a broker, or why it gives no answer."""
    from kafka.errors import KafkaError

    if listed.get("is_fenced"):
        return _FENCED
    try:
        (answer,) = client.describe_log_dirs(brokers=[broker])
    except (KafkaError, OSError) as error:
        return f"{listed['host']}:{listed['port']}: {_words(error)}"
    return tuple(map(_read_log_dir, answer["log_dirs"])) or _NO_RIGHTS


def _list_brokers(client: KafkaAdminClient) -> dict[int, Mapping[str, Any]]:
    """Return all brokers that any of them knows of, by id. The one that is asked may be down: then others are."""
    from kafka.errors import RetriableError

    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return {broker["broker_id"]: broker for broker in client.describe_cluster()["brokers"]}
        except KeyError:
            # kafka-python 3.0.12 cannot read version 0 of the answer, of Kafka 2.8 to 3.6; it has the metadata already
            known = client._manager.cluster.brokers()
            return {broker.node_id: {"host": broker.host, "port": broker.port} for broker in known}
        except RetriableError:
            if not attempts_left:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError  # the last attempt returns or raises


def _words(error: Exception) -> str:
    if type(error).__name__ == "NodeNotReadyError":  # the library waits before it tries once more
        return "no connection"
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


class _Warnings(logging.Handler):
    """Keeps the warnings of the client library: they hold the reason why it gives up, which its errors do not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(" ".join(record.getMessage().split()))


@contextmanager
def _library_silenced() -> Iterator[list[str]]:
    """Keep the client library from printing, and give what it would have printed."""
    logger, handler = logging.getLogger("kafka"), _Warnings()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.texts
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
