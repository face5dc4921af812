"""`--metrics-port`: scraped over HTTP while the command line runs."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.logs.samples import Sample, unpack
from tests.runs.command import run
from tests.runs.paused import resume, start_paused

REMAINING_LOGS = "kafka_log_logmanager_remaininglogstorecover"
REMAINING_SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"
OWN = "kafka_log_recovery_"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def start_scrapable(sample: Sample, event: str, nth: int) -> tuple[subprocess.Popen[str], str]:
    options = ("--metrics-port", "0", "--progress", "log", "--threads", "3", "--now", sample.now_ms)
    process = start_paused(event, nth, "recover", "-c", sample.config, *options)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
    assert found, line
    return process, found.group()


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
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
