"""What readings make of answers that real agents gave, and of answers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.follow.gauge_reading import MalformedAnswerError, Reading, read_jolokia, read_metrics

CAPTURES = Path(__file__).parent / "captures"

Gauges = dict[str, tuple[int | None, dict[int, int]]]


def read(name: str) -> Reading:
    """The reading of a captured answer."""
    path = CAPTURES / name
    if path.suffix == ".json":
        return read_jolokia([path.read_bytes()])
    return read_metrics(path.read_text().splitlines())


def gauges(reading: Reading) -> Gauges:
    """The recovery gauges of each log dir."""
    return {
        path: (found.remaining_logs, found.remaining_segments) for path, found in reading.log_dirs.items()
    }


@pytest.mark.parametrize(
    ("name", "broker_state", "expected"),
    [
        ("exporter-1.0.1-usual", 1, {"d1": (5, {0: 2, 1: 2}), "d2": (5, {0: 5, 1: 4})}),
        ("exporter-1.0.1-usual-not-lowercase", 1, {"d1": (3, {0: 5, 1: 1}), "d2": (5, {0: 4, 1: 4})}),
        ("exporter-1.0.1-usual-lowercase-labels", 1, {"d1": (2, {0: 3, 1: 5}), "d2": (3, {0: 0, 1: 4})}),
        ("exporter-1.0.1-none", 1, {"d1": (5, {0: 4, 1: 4}), "d2": (5, {0: 3, 1: 2})}),
        ("exporter-1.0.1-none-lowercase", 1, {"d1": (5, {0: 3, 1: 3}), "d2": (5, {0: 3, 1: 3})}),
        ("exporter-0.20.0-usual", 1, {"d1": (2, {0: 2, 1: 2}), "d2": (3, {0: 2, 1: 0})}),
        ("exporter-0.20.0-none", 2, {"d1": (4, {0: 4, 1: 3}), "d2": (5, {0: 2, 1: 3})}),
        ("strimzi-0.2.0", 2, {"d1": (5, {0: 5, 1: 5}), "d2": (5, {0: 5, 1: 5})}),
    ],
)
def test_pages_of_exporters(name: str, broker_state: int, expected: Gauges) -> None:
    reading = read(f"{name}-recovering.txt")
    assert gauges(reading) == {f"/data/{name}": values for name, values in expected.items()}
    assert reading.broker_state == broker_state
    assert reading.started_s is not None
    assert 1_795_456_000 < reading.started_s < 1_795_458_000
    assert reading.recovering.keys() == reading.log_dirs.keys()


def test_answers_of_jolokia() -> None:
    assert gauges(read("jolokia-2.6.0-recovering.json")) == {
        "/data/d1": (5, {0: 5, 1: 5}),
        "/data/d2": (5, {0: 5, 1: 5}),
    }
    reading = read("jolokia-1.7.2-recovering.json")  # the gauges of the other dir are not registered yet
    assert gauges(reading) == {"/data/d1": (5, {}), "/data/d2": (None, {})}
    assert reading.recovering.keys() == {"/data/d1"}


def test_paths_are_unquoted() -> None:
    assert gauges(read("odd-paths-recovering.json")) == {
        '/data/d 1*"x=?': (3, {0: 3, 1: 4}),
        "/data/d2 e": (3, {0: 3, 1: 4}),
    }
    assert gauges(read("odd-paths-recovering.txt")) == {"/data/d2 e": (3, {0: 4, 1: 5})}


@pytest.mark.parametrize(
    ("name", "log_dirs", "broker_state"),
    [
        ("exporter-1.0.1-usual-before.txt", set(), 0),
        ("exporter-1.0.1-usual-running.txt", {"/data/d1", "/data/d2"}, 3),
        ("jolokia-2.6.0-before.json", {"/data/d1", "/data/d2"}, None),
        ("jolokia-2.6.0-running.json", {"/data/d1", "/data/d2"}, None),
    ],
)
def test_no_gauges_before_and_after(name: str, log_dirs: set[str], broker_state: int | None) -> None:
    reading = read(name)
    assert (reading.recovering, reading.log_dirs.keys(), reading.broker_state) == ({}, log_dirs, broker_state)


def test_other_mbeans_of_jolokia() -> None:
    state = (
        b'{"request":{"mbean":"kafka.server:name=BrokerState,type=KafkaServer","type":"read"},'
        b'"value":{"Value":2},"timestamp":1,"status":200}'
    )
    runtime = (
        b'{"request":{"mbean":"java.lang:type=Runtime","attribute":"StartTime","type":"read"},'
        b'"value":1795457425064,"timestamp":1,"status":200}'
    )
    missing = (
        b'{"request":{"mbean":"kafka.log:type=LogManager,*","type":"read"},"error":"No MBean","status":404}'
    )
    reading = read_jolokia([missing, state, runtime])
    assert (reading.log_dirs, reading.broker_state, reading.started_s) == ({}, 2, 1795457425.064)


def test_offline_log_dirs() -> None:
    lines = [
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="\\"/data/d1\\""} 1.0',
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="\\"/data/d2\\""} 0.0',
    ]
    assert [found.is_offline for found in read_metrics(lines).log_dirs.values()] == [True, False]


def test_a_thread_without_a_value() -> None:
    answer = (
        b'{"request":{"mbean":"kafka.log:type=LogManager,*","type":"read"},"value":{'
        b'"kafka.log:dir=\\"/d\\",name=remainingLogsToRecover,type=LogManager":{"Value":7},'
        b'"kafka.log:dir=\\"/d\\",name=remainingSegmentsToRecover,threadNum=1,type=LogManager":{"Value":2},'
        b'"kafka.log:dir=\\"/d\\",name=remainingSegmentsToRecover,threadNum=0,type=LogManager":{"Value":null}},'
        b'"status":200}'
    )
    assert gauges(read_jolokia([answer])) == {"/d": (7, {1: 2})}
    lines = ['kafka_log_logmanager_remaininglogstorecover{dir="/d"} NaN']
    assert gauges(read_metrics(lines)) == {}


def test_figures_of_this_tool() -> None:
    reading = read_metrics(
        [
            'kafka_log_logmanager_remaininglogstorecover{dir="/d"} 2.0',
            'kafka_log_recovery_remaining_bytes{dir="/d"} 1.0e+06',
            'kafka_log_recovery_finished_logs_total{dir="/d",status="recovered"} 3.0',
            'kafka_log_recovery_run_state{state="waiting"} 0.0',
            'kafka_log_recovery_run_state{state="recovering"} 1.0',
            'kafka_log_recovery_run_state{state="complete"} 0.0',
            "kafka_log_recovery_start_timestamp_seconds 1795457425.1",
            "kafka_log_recovery_elapsed_seconds 12.5",
        ]
    )
    assert (reading.run_state, reading.started_s, reading.elapsed_s) == ("recovering", 1795457425.1, 12.5)
    assert reading.log_dirs["/d"].figures == {"remaining_bytes": 1_000_000}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<!DOCTYPE html>\n<title>Kafka</title>", "no page of metrics, it begins with '<!DOCTYPE html>'"),
        ('{"kafka": 1}', "no page of metrics"),
        ("Welcome to the kafka broker", "no page of metrics, it begins with 'Welcome to the kafka broker'"),
        ("", "a page of metrics, but there is none on it"),
        ("node_load1 0.5\n", "of something else than Kafka"),
        ('kafka_log_logmanager_remaininglogstorecover{dir="/d} 1', "cannot be read"),
        ("kafka_server_kafkaserver_brokerstate three", "cannot be read"),
    ],
)
def test_pages_that_are_none(page: str, words: str) -> None:
    with pytest.raises(MalformedAnswerError, match=words):
        read_metrics(page.split("\n"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>", "not Jolokia's, it begins with"),
        (b"[]", "not Jolokia's"),
        (b'{"status":403,"error":"Reading is not allowed"}', "403: Reading is not allowed"),
        (b'{"status":200,"value":3,"request":{}}', "200"),
    ],
)
def test_answers_that_are_none(answer: bytes, words: str) -> None:
    with pytest.raises(MalformedAnswerError, match=words):
        read_jolokia([answer])
