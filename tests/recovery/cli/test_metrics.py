"""`--metrics-port` and `--metrics-textfile`: seen from outside while the command line runs, and after it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.logs.samples import Sample, unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.recovery.cli.test_output import tear
from tests.runs.command import arguments_of, run, start
from tests.runs.paused import resume, start_paused

REMAINING_LOGS = "kafka_log_logmanager_remaininglogstorecover"
REMAINING_SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"
OWN = "kafka_log_recovery_"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def start_scrapable(sample: Sample, event: str, nth: int, *more: object) -> tuple[subprocess.Popen[str], str]:
    options = ("--metrics-port", "0", "--progress", "log", "--threads", "3", "--now", sample.now_ms)
    process = start_paused(event, nth, "recover", "-c", sample.config, *options, *more)
    return process, served_at(process)


def served_at(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+:\d+/metrics", line)
    assert found, line
    return found.group()


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=LONGEST_WAIT_SECONDS) as answer:
        return samples_of(answer.read().decode())


def samples_of(text: str) -> Samples:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def total(samples: Samples, name: str) -> float:
    return sum(value for (found, _), value in samples.items() if found == name)


def test_the_gauges_are_there_before_the_first_byte_is_read(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process, url = start_scrapable(sample, "LogDirStarted", 2)
    samples = scrape(url)
    assert resume(process)[0] == 0
    assert [samples[REMAINING_LOGS, (("dir", str(log_dir)),)] for log_dir in sample.log_dirs] == [15, 14]
    for log_dir in sample.log_dirs:
        for thread_num in "012":
            assert samples[REMAINING_SEGMENTS, (("dir", str(log_dir)), ("threadNum", thread_num))] == 0
    assert total(samples, f"{OWN}scanned_bytes_total") == 0
    assert total(samples, f"{OWN}remaining_bytes") == total(samples, f"{OWN}bytes") > 1_000_000


def test_the_gauges_fall_while_logs_are_recovered(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process, url = start_scrapable(sample, "PartitionFinished", 10)
    samples = scrape(url)
    assert resume(process)[0] == 0
    # Told of the tenth one, the observers wait: no later event has been counted.
    assert total(samples, REMAINING_LOGS) == 19
    assert total(samples, f"{OWN}finished_logs_total") == 10
    # Small logs are done together, when they are on disk: others may all have been read by then.
    assert 0 < total(samples, f"{OWN}scanned_bytes_total") <= total(samples, f"{OWN}bytes")
    assert samples[f"{OWN}run_state", (("state", "recovering"),)] == 1


def test_the_gauges_are_gone_and_our_own_stay_when_the_run_is_over(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process, url = start_scrapable(sample, "RunFinished", 1)
    samples = scrape(url)
    assert resume(process)[0] == 0
    assert not {name for name, _ in samples} & {REMAINING_LOGS, REMAINING_SEGMENTS}
    assert samples[f"{OWN}exit_code", ()] == 0
    assert samples[f"{OWN}run_state", (("state", "complete"),)] == 1
    assert total(samples, f"{OWN}finished_logs_total") == 29


def test_standard_output_has_the_result_alone(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    done = run("recover", "-c", sample.config, "--metrics-port", "0", "--dry-run", "--format", "json")
    assert done.exit_code == 0
    assert done.report["logDirs"]
    assert "Serving metrics at http://127.0.0.1:" in done.stderr


def test_they_are_served_until_the_process_ends_however_long_the_report_takes(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    reading, writing = os.pipe()
    filled = b"x" * fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    os.write(writing, filled)
    process = start(*arguments_of(sample, "--metrics-port", "0", "--progress", "log"), stdout=writing)
    os.close(writing)
    url = served_at(process)
    assert process.stderr is not None
    for line in process.stderr:
        if "exit_code" in line:
            break
    assert scrape(url)[f"{OWN}exit_code", ()] == 0
    assert scrape(url)[f"{OWN}run_state", (("state", "complete"),)] == 1
    assert process.poll() is None
    with open(reading, "rb") as stream:
        report = json.loads(stream.read()[len(filled) :])
    assert report["exitCode"] == process.wait(LONGEST_WAIT_SECONDS) == 0
    process.communicate()


def test_200_silent_connections_do_not_change_a_run_and_do_not_hold_it_up(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    process, url = start_scrapable(sample, "PartitionFinished", 3)
    port = int(url.split(":")[2].split("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    for connection in silent[::2]:
        connection.send(b"GET /metr")
    assert total(scrape(url), f"{OWN}finished_logs_total") == 3
    threads = Path(f"/proc/{process.pid}/task")
    names = [(thread / "comm").read_text() for thread in threads.iterdir()]
    assert len(names) < 20, names
    code, _, stderr = resume(process)
    assert code == 0
    assert "rror" not in stderr
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    ("host", "at", "is_open"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("::1", "[::1]", False),
        ("0.0.0.0", "0.0.0.0", True),
        ("::", "[::]", True),
    ],
)
def test_an_address_that_others_may_reach_is_a_warning(
    tmp_path: Path, host: str, at: str, is_open: bool
) -> None:
    sample = unpack("intact", tmp_path)
    process, url = start_scrapable(sample, "LogDirStarted", 1, "--metrics-host", host, "--dry-run")
    assert url.startswith(f"http://{at}:")
    port = url.split(":")[-1].split("/")[0]
    for loopback in ["127.0.0.1"] * ("." in host or is_open) + ["[::1]"] * (":" in host):
        assert scrape(f"http://{loopback}:{port}/metrics")
    assert process.stderr is not None
    assert ("WARN Whoever reaches that address can read" in process.stderr.readline()) is is_open
    assert resume(process)[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_file_ends_with_an_interrupted_run(tmp_path: Path, number: int, code: int) -> None:
    sample = unpack("crashed", tmp_path)
    file = tmp_path / "recovery.prom"
    process, _ = start_scrapable(sample, "PartitionFinished", 3, "--metrics-textfile", file)
    process.send_signal(number)
    assert resume(process)[0] == code
    samples = samples_of(file.read_text())
    assert samples[f"{OWN}exit_code", ()] == code
    assert samples[f"{OWN}run_state", (("state", "interrupted"),)] == 1
    assert total(samples, f"{OWN}finished_logs_total") >= 3


def test_a_file_says_how_a_run_ended_that_has_not_begun(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    file = tmp_path / "recovery.prom"
    with open(sample.log_dirs[0] / ".lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = run(*arguments_of(sample, "--metrics-textfile", file))
    assert done.exit_code == 3
    samples = samples_of(file.read_text())
    assert samples[f"{OWN}exit_code", ()] == 3
    assert samples[f"{OWN}run_state", (("state", "failed"),)] == 1


def test_a_file_outlives_a_run_and_has_what_was_cut(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    tear(sample, "late-0")
    file = tmp_path / "recovery.prom"
    done = run(*arguments_of(sample, "--metrics-textfile", file))
    samples = samples_of(file.read_text())
    assert samples[f"{OWN}exit_code", ()] == done.exit_code == 2
    cut = sum(
        partition["truncatedBytes"] for one in done.report["logDirs"] for partition in one["partitions"]
    )
    assert total(samples, f"{OWN}truncated_bytes_total") == cut > 0
