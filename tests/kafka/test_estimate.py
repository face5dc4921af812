"""`estimate` beside a live broker, and after its death, against what the broker and `recover` then recover."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.broker import QUIET_PROPERTIES, Broker
from tests.brokers.sample_brokers import OTHER_VERSIONS, broker_of, copy_of, crash_broker
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import recover, run
from tests.runs.driving import footprint

pytestmark = [pytest.mark.java, pytest.mark.broker]

IN_TURN = re.compile(
    r"\[LogLoader partition=\S+, dir=(\S+)\] Recovering unflushed segment (\d+)\..*? for (\S+)\."
)
REINDEXED = re.compile(
    r"Could not find offset index file corresponding to log file (\S+\.log), recovering segment"
)
FOUND_CORRUPT = re.compile(r"Found a corrupted index file corresponding to log file (\S+\.log)")
METADATA = "__cluster_metadata-0"
ENDS_BEFORE_IT_BEGINS = bytes(34)


def estimate(sample: Sample, *arguments: str) -> dict[str, Any]:
    done = run("estimate", "-c", sample.config, "--format", "json", *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return done.report


def counted(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {one["logDir"]: (one["segments"], one["bytes"]) for one in report["logDirs"]}


def recovered(sample: Sample) -> dict[str, tuple[int, int]]:
    """Segments and bytes that `recover` recovers, by log dir."""
    return {
        one["logDir"]: (
            sum(partition["segments"]["recovered"] for partition in one["partitions"]),
            sum(partition["bytes"]["recovered"] for partition in one["partitions"]),
        )
        for one in recover(sample).report["logDirs"]
    }


def said(broker: Broker) -> dict[str, dict[Path, int]]:
    """Bytes of each `.log` that a broker says it recovers, by log dir; as they are on disk."""
    log = broker.log
    paths = {
        Path(log_dir) / partition / f"{int(base):020}.log"
        for log_dir, base, partition in IN_TURN.findall(log)
    }
    paths |= {Path(path) for path in REINDEXED.findall(log) + FOUND_CORRUPT.findall(log)}
    found: dict[str, dict[Path, int]] = {str(log_dir): {} for log_dir in broker.log_dirs}
    for path in paths:
        if path.parent.name != METADATA:  # a node loads it before, and in any case
            found[str(path.parent.parent)][path] = path.stat().st_size
    return found


def totals(found: dict[str, dict[Path, int]]) -> dict[str, tuple[int, int]]:
    return {log_dir: (len(sizes), sum(sizes.values())) for log_dir, sizes in found.items()}


def lose_indexes(sample: Sample) -> None:
    """Of the first segments, which are flushed, and of the last; and leave a transaction index wrong."""
    first, second = sample.log_dirs
    for folder in (first / "plain-1", second / "plain-0"):
        logs = sorted(folder.glob("*.log"))
        for log in (logs[0], logs[-1]):
            log.with_suffix(".index").unlink()
    sorted((first / "plain-1").glob("*.log"))[1].with_suffix(".txnindex").write_bytes(ENDS_BEFORE_IT_BEGINS)


@pytest.mark.parametrize("is_clean", [True, False])
def test_segments_and_bytes_of_a_broker_that_is_killed(ram_path: Path, is_clean: bool) -> None:
    sample = unpack("stopped", ram_path / "sample")
    with broker_of(sample, ram_path / "broker") as broker:
        broker.start()
        with broker.held():  # it writes checkpoints of its own accord
            before = [footprint(log_dir) for log_dir in sample.log_dirs]
            beside = estimate(sample)
            assert [footprint(log_dir) for log_dir in sample.log_dirs] == before
        assert counted(estimate(sample)) == counted(beside)
        assert all(one["live"] and not one["hadCleanShutdown"] for one in beside["logDirs"])
        if is_clean:
            broker.stop()
        else:
            broker.kill()
            assert counted(estimate(sample)) == counted(beside)
            assert all(segments > 1 for segments, _ in counted(beside).values())
            lose_indexes(sample)
        dead = estimate(sample)
        assert all(not one["live"] and one["hadCleanShutdown"] is is_clean for one in dead["logDirs"])
        assert recovered(copy_of(sample, ram_path / "copy")) == {
            log_dir.replace(str(sample.root), str(ram_path / "copy")): counts
            for log_dir, counts in counted(dead).items()
        }
        broker.start()
        assert totals(said(broker)) == counted(dead)
        assert is_clean == (sum(segments for segments, _ in counted(dead).values()) == 0)


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_other_releases(tmp_path: Path, version: str) -> None:
    sample = crash_broker(version, tmp_path)
    expected = counted(estimate(sample))
    with Broker(
        sample.log_dirs,
        work_dir=tmp_path / "again",
        properties=dict(sample.properties) | QUIET_PROPERTIES,
        version=version,
    ) as broker:
        broker.start()
        assert {key: count for key, (count, _) in totals(said(broker)).items()} == {
            key: count for key, (count, _) in expected.items()
        }


def test_threads_are_those_that_a_restart_begins_with(ram_path: Path) -> None:
    """A number that was set at run time counts from the next snapshot of the metadata log on, and a note says so.

    That a broker does so is shown in tests/kafka/test_config_broker.py, with a setting that leaves traces.
    """
    sample = unpack("stopped", ram_path / "sample")
    for log_dir in sample.log_dirs:
        (log_dir / MARKER).unlink()
    with broker_of(sample, ram_path / "broker") as broker:
        broker.start()
        alter = ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config"]
        setting = "num.recovery.threads.per.data.dir=4"  # at most twice as many
        broker.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, *alter, setting
        )
        report = estimate(sample)
    assert {one["threads"] for one in report["logDirs"]} == {2}
    assert any("set to 4 at run time" in note["text"] for note in report["notes"])
