"""What live brokers answer, whatever their release, and what is said of those that do not; the client is a stand-in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import recovery
from recovery.describe import brokers
from recovery.describe.report import UNKNOWN_BYTES
from recovery.errors import UsageError
from recovery.watch.tally import Count
from tests.recovery.watch.test_tally import counting

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of the library's own start
    import kafka
    from kafka.errors import ClusterAuthorizationFailedError, KafkaConnectionError, NodeNotReadyError

PARTITIONS = [
    {"partition_index": 1, "partition_size": 20, "offset_lag": 5, "is_future_key": True},
    {"partition_index": 1, "partition_size": 30, "offset_lag": 0, "is_future_key": False},
    {"partition_index": 0, "partition_size": 10, "offset_lag": 0, "is_future_key": False},
]
OLD = {"error_code": 0, "log_dir": "/d", "topics": [{"name": "t", "partitions": PARTITIONS}]}
NEW = OLD | {"total_bytes": 1000, "usable_bytes": 400, "is_cordoned": True}


class Cluster:
    """Brokers by id, and what each answers: log dirs, or an error."""

    def __init__(
        self, answers: Mapping[int, list[dict[str, Any]] | Exception], *, fenced: tuple[int, ...] = ()
    ) -> None:
        self.answers = answers
        self.fenced = fenced
        self.failures: list[Exception] = []
        self.asked: list[int] = []
        self.is_closed = False
        self._manager = SimpleNamespace(
            cluster=SimpleNamespace(
                brokers=lambda: [
                    SimpleNamespace(node_id=one, host=f"kafka-{one}", port=9092) for one in answers
                ]
            )
        )

    def __call__(self, **_: Any) -> Cluster:
        return self

    def describe_cluster(self) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop()
        return {
            "brokers": [
                {"broker_id": one, "host": f"kafka-{one}", "port": 9092, "is_fenced": one in self.fenced}
                for one in self.answers
            ]
        }

    def describe_log_dirs(self, *, brokers: list[int]) -> list[dict[str, Any]]:
        (one,) = brokers
        self.asked.append(one)
        answer = self.answers[one]
        if isinstance(answer, Exception):
            raise answer
        return [{"log_dirs": answer}]

    def close(self) -> None:
        self.is_closed = True


def ask(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, **options: Any) -> recovery.LogDirsReport:
    monkeypatch.setattr(kafka, "KafkaAdminClient", cluster)
    monkeypatch.setattr(brokers, "_PAUSE_SECONDS", 0)
    try:
        return recovery.describe_log_dirs(bootstrap_servers="kafka-1:9092", **options)
    finally:
        assert cluster.is_closed


def test_answers_of_all_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    report = ask(monkeypatch, Cluster({2: [NEW], 1: [OLD]}))
    assert [one.broker for one in report.brokers] == [1, 2]
    old, new = (one.log_dirs[0] for one in report.brokers)
    assert (old.total_bytes, old.usable_bytes, old.is_cordoned) == (UNKNOWN_BYTES, UNKNOWN_BYTES, False)
    assert (new.log_dir, new.total_bytes, new.usable_bytes, new.is_cordoned) == ("/d", 1000, 400, True)
    found = [(one.partition, one.size_bytes, one.offset_lag, one.is_future) for one in new.replicas]
    assert found == [(0, 10, 0, False), (1, 30, 0, False), (1, 20, 5, True)]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, None),
        (56, "KafkaStorageException"),
        (57, "LogDirNotFoundException"),
        (-1, "UnknownServerException"),
    ],
)
def test_errors_have_the_names_of_kafkas_client(
    monkeypatch: pytest.MonkeyPatch, code: int, name: str | None
) -> None:
    report = ask(monkeypatch, Cluster({1: [NEW | {"error_code": code}]}))
    (log_dir,) = report.log_dirs
    assert log_dir.error == (None if name is None else f"org.apache.kafka.common.errors.{name}")


def test_brokers_that_give_no_answer_are_named_and_the_others_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(
        {1: [NEW], 2: KafkaConnectionError("gone away"), 3: [], 4: [NEW], 5: OSError("no route")}, fenced=(4,)
    )
    counts: list[Count] = []
    report = ask(monkeypatch, cluster, tally=counting(counts))
    assert [(count.done, count.total) for count in counts] == [(done, 5) for done in range(1, 6)]
    assert [one.broker for one in report.brokers] == [1]
    assert cluster.asked == [1, 2, 3, 5]
    assert sorted(report.silent) == [2, 3, 4, 5]
    assert report.silent[2].startswith("kafka-2:9092: ")
    assert "gone away" in report.silent[2]
    assert "DESCRIBE on CLUSTER" in report.silent[3]
    assert "fenced" in report.silent[4]
    assert "no route" in report.silent[5]


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"broker 1: no answer: .*; broker 2: no answer: it is fenced"):
        ask(monkeypatch, Cluster({1: OSError("x"), 2: [NEW]}, fenced=(2,)))


def test_only_the_brokers_and_topics_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    other = NEW | {"topics": [{"name": "other", "partitions": PARTITIONS}]}
    cluster = Cluster({1: [NEW], 2: [other, NEW]})
    report = ask(monkeypatch, cluster, brokers=[2], topics=["t"])
    assert cluster.asked == [2]
    assert [len(one.replicas) for one in report.log_dirs] == [0, 3]
    with pytest.raises(UsageError, match=r"--broker-list: no broker 7. Remedy: choose from 1, 2"):
        ask(monkeypatch, Cluster({1: [NEW], 2: [NEW]}), brokers=[7])


def test_a_broker_that_is_down_is_asked_again_through_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: [NEW]})
    cluster.failures = [NodeNotReadyError()] * 9
    assert len(ask(monkeypatch, cluster).brokers) == 1
    cluster = Cluster({1: [NEW]})
    cluster.failures = [NodeNotReadyError()] * 10
    with pytest.raises(UsageError, match=r"--bootstrap-server kafka-1:9092: .*Remedy: check host, port"):
        ask(monkeypatch, cluster)
    cluster = Cluster({1: [NEW]})
    cluster.failures = [ClusterAuthorizationFailedError()]
    with pytest.raises(UsageError, match="Remedy: "):
        ask(monkeypatch, cluster)


def test_an_old_answer_that_the_library_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: [OLD], 3: [OLD]})
    cluster.failures = [KeyError("brokers")]
    assert [one.broker for one in ask(monkeypatch, cluster).brokers] == [1, 3]


@pytest.mark.parametrize("servers", ["", " ", ",", "localhost:abc", "localhost:", "a:9092,b:c"])
def test_servers_that_cannot_be_are_refused(servers: str) -> None:
    with pytest.raises(UsageError, match=r"--bootstrap-server .*: expected HOST:PORT"):
        recovery.describe_log_dirs(bootstrap_servers=servers)
