"""What a line holds, whatever layout and collector it comes from: the message, and when it was logged."""

import json
from datetime import UTC, datetime

import pytest

from recovery.follow.broker_lines import LogDirListed, said_in
from recovery.follow.log_layout import read_line

AT = datetime(2026, 11, 22, 10, 0, 0, 123000, tzinfo=UTC).timestamp()
TEXT = 'Recovering 9 logs from /data/"0" since no clean shutdown file was found'
SAID = LogDirListed(log_dir='/data/"0"', had_clean_shutdown=False, log_count=9)
PLAIN = f"[2026-11-22 10:00:00,123] INFO {TEXT} (kafka.log.LogManager)"
ECS = json.dumps(
    {"@timestamp": "2026-11-22T10:00:00.123Z", "log.level": "INFO", "message": TEXT, "log.logger": "k"}
)

WITHOUT_ZONE = {
    "log4j": PLAIN,
    "log4j in colours": f"\x1b[32m[2026-11-22 10:00:00,123]\x1b[0m \x1b[34mINFO\x1b[m {TEXT} \x1b[1m(kafka.log)\x1b[0m",
    "carriage return": f"{PLAIN}\r",
    "Confluent's": f"[2026-11-22 10:00:00,123] INFO {TEXT} (kafka.log.LogManager:66)",
    "thread and other order": f"INFO [main] 2026-11-22 10:00:00.123 k.l.LogManager - {TEXT}",
    "journalctl": f"Nov 22 11:00:00 host kafka-server-start.sh[4711]: {PLAIN}",
    "systemd and Docker": f"Nov 22 11:00:00 host 0a1b2c[7]: {PLAIN}",
}
WITH_ZONE = {
    "kubectl --timestamps": f"2026-11-22T10:00:00.123000456Z {PLAIN.replace('10:00', '12:00')}",
    "kubectl of several pods": f"[pod/kafka-0/kafka] 2026-11-22T10:00:00.123Z {PLAIN.replace('10:00', '12:00')}",
    "CRI": f"2026-11-22T11:00:00.123000000+01:00 stdout F {PLAIN}",
    "journalctl -o short-iso": f"2026-11-22T11:00:00,123+0100 host kafka[1]: {PLAIN}",
    "a pattern with a zone": f"2026-11-22T04:00:00.123-06:00 INFO {TEXT}",
    "ECS": ECS,
    "ECS behind a stamp": f"2026-11-22T10:00:00.123Z {ECS}",
    "LogstashJsonEventLayoutV1": json.dumps(
        {
            "@version": 1,
            "@timestamp": "2026-11-22T10:00:00.123Z",
            "message": TEXT,
            "level": "INFO",
            "thread_name": "main",
        }
    ),
    "JsonLayout": json.dumps(
        {"instant": {"epochSecond": 1795341600, "nanoOfSecond": 123000000}, "thread": "main", "message": TEXT}
    ),
    "JsonLayout with timeMillis": json.dumps({"timeMillis": 1795341600123, "level": "INFO", "message": TEXT}),
    "GelfLayout": json.dumps(
        {"version": "1.1", "timestamp": 1795341600.123, "short_message": TEXT, "level": 6}
    ),
    "GcpLayout": json.dumps({"timestamp": "2026-11-22T10:00:00.123Z", "severity": "INFO", "message": TEXT}),
    "journalctl -o json": json.dumps(
        {"__REALTIME_TIMESTAMP": "1795341600123000", "MESSAGE": PLAIN, "_PID": "1"}
    ),
    "Docker's json-file": json.dumps(
        {"log": f"{PLAIN}\n", "stream": "stdout", "time": "2026-11-22T10:00:00.123000000Z"}
    ),
    "ECS in json-file": json.dumps({"log": f"{ECS}\n", "stream": "stdout", "time": "2026-11-22T10:00:05Z"}),
}


@pytest.mark.parametrize("line", WITHOUT_ZONE.values(), ids=WITHOUT_ZONE)
def test_local_times(line: str) -> None:
    logged = read_line(line.encode())
    assert said_in(logged.text) == SAID
    assert (logged.time_s, logged.has_zone) == (pytest.approx(AT), False)


@pytest.mark.parametrize("line", WITH_ZONE.values(), ids=WITH_ZONE)
def test_times_with_a_zone(line: str) -> None:
    logged = read_line(line.encode())
    assert said_in(logged.text) == SAID
    assert (logged.time_s, logged.has_zone) == (pytest.approx(AT, abs=2e-6), True)


@pytest.mark.parametrize(
    "line",
    [
        TEXT,
        f"INFO {TEXT}",
        f"[99-99-99] {TEXT}",
        f"2026-13-45 99:00:00 {TEXT}",
        f"{TEXT} 17:00 {{not JSON",
        "{" + TEXT,
        "{" * 10_000 + TEXT,
        json.dumps({"message": TEXT, "timestamp": True, "time": [1], "instant": {}}),
        json.dumps({"message": TEXT, "timestamp": 10**400}),
    ],
)
def test_lines_without_a_time(line: str) -> None:
    logged = read_line(line.encode())
    assert said_in(logged.text) == SAID
    assert logged.time_s is None


def test_deep_json_is_left_alone() -> None:
    nested = TEXT
    for _ in range(30):
        nested = json.dumps({"message": nested[:3000]})
    read_line(nested.encode())
    read_line(b'{"message":' * 30_000 + b"}" * 30_000)


def test_bytes_that_are_not_utf_8_stay_what_they_are() -> None:
    line = (
        b"[2026-11-22 10:00:00,123] INFO Recovering 9 logs from /d\xff since no clean shutdown file was found"
    )
    assert said_in(read_line(line).text) == LogDirListed(
        log_dir="/d\udcff", had_clean_shutdown=False, log_count=9
    )
