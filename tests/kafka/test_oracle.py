"""The oracle ends as a broker would, takes all that changes bytes, and can be asked thousands of times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers import Oracle
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack

pytestmark = pytest.mark.java

DAY_MS = 86_400_000


def load(oracle: Oracle, sample: Sample, **changes: object) -> object:
    arguments = {
        "now_ms": sample.now_ms,
        "properties": sample.properties,
        "topic_configs": sample.topic_configs,
    } | changes
    return oracle.load(sample.log_dirs, **arguments)


def partition(sample: Sample, name: str) -> Path:
    return next(sample.root.glob(f"d?/{name}"))


def test_an_unclean_load_ends_as_a_clean_shutdown(ram_path: Path, oracle: Oracle) -> None:
    sample = unpack("crashed", ram_path)
    outcome = load(oracle, sample, log=True)
    assert outcome.outcome == "loaded"
    assert outcome.error is None
    assert any("Recovering unflushed segment" in line for line in outcome.log)
    for log_dir in sample.log_dirs:
        assert (log_dir / MARKER).exists()
        assert not (log_dir / ".lock").exists()
    left = tree_of(sample.root, ignore=["d2"])
    assert load(oracle, sample, log=False).outcome == "loaded"
    again = differences(left, tree_of(sample.root, ignore=["d2"]))
    # Kafka changes folders that wait for their deletion at every load.
    assert [line for line in again if "-delete/" not in line] == []


def test_a_broker_that_would_halt_is_fatal_and_the_next_dirs_load(ram_path: Path, oracle: Oracle) -> None:
    damaged = unpack("intact", ram_path / "damaged")
    (damaged.log_dirs[0] / "plain-1" / "abc.log").write_bytes(b"")
    outcome = load(oracle, damaged)
    assert outcome.outcome == "fatal"
    assert "NumberFormatException" in outcome.error
    assert outcome.failed_logs == (str(damaged.log_dirs[0] / "plain-1"),)
    assert not any((log_dir / ".lock").exists() for log_dir in damaged.log_dirs)
    assert load(oracle, unpack("intact", ram_path / "sound")).outcome == "loaded"


def test_a_dir_that_fails_is_offline_and_the_other_is_closed(ram_path: Path, oracle: Oracle) -> None:
    sample = unpack("crashed", ram_path)
    partition(sample, "late-0").joinpath("leader-epoch-checkpoint").write_text("7\n0\n")
    outcome = load(oracle, sample)
    offline = partition(sample, "late-0").parent
    assert not (offline / "transactions-1").exists()  # see the test below
    (online,) = set(sample.log_dirs) - {offline}
    assert outcome.outcome == "offline"
    assert outcome.offline_dirs == (str(offline),)
    assert (online / MARKER).exists()
    assert not (offline / MARKER).exists()


def test_an_open_transaction_in_a_dir_that_has_failed_is_fatal(ram_path: Path, oracle: Oracle) -> None:
    sample = unpack("crashed", ram_path)
    log_dir = partition(sample, "transactions-1").parent
    (log_dir / "recovery-point-offset-checkpoint").write_text("1\n0\n")  # read, and failed, before any log
    outcome = load(oracle, sample)
    assert outcome.outcome == "fatal"
    assert "already offline due to a previous IO exception" in outcome.error
    assert outcome.failed_logs == (str(log_dir / "transactions-1"),)


def test_one_dir_that_fails_alone_is_offline(ram_path: Path, oracle: Oracle) -> None:
    sample = unpack("crashed-v0-v1", ram_path)
    log_dir = sample.log_dirs[0]
    (log_dir / "recovery-point-offset-checkpoint").write_text("1\n0\n")
    outcome = oracle.load([log_dir], now_ms=sample.now_ms)
    assert (outcome.outcome, outcome.offline_dirs) == ("offline", (str(log_dir),))
    assert not (log_dir / MARKER).exists()


def test_topic_configs_change_the_index(ram_path: Path, oracle: Oracle) -> None:
    sizes = {}
    for interval_bytes in ("64", "4096"):
        sample = unpack("crashed", ram_path / interval_bytes)
        configs = dict(sample.topic_configs)
        configs["late"] = dict(configs["late"]) | {"index.interval.bytes": interval_bytes}
        load(oracle, sample, topic_configs=configs)
        sizes[interval_bytes] = partition(sample, "late-0").joinpath("0" * 20 + ".index").stat().st_size
    assert sizes["64"] > sizes["4096"] > 0


def test_the_clock_decides_which_producers_have_expired(ram_path: Path, oracle: Oracle) -> None:
    trees = []
    for days in (0, -4):
        sample = unpack("crashed", ram_path / str(days))
        load(oracle, sample, now_ms=sample.now_ms + days * DAY_MS)
        trees.append(tree_of(partition(sample, "out-of-order-0")))
    changed = differences(*trees)
    assert changed
    assert all(".snapshot" in line for line in changed)


def test_pending_deletes_wait_unless_they_are_run(ram_path: Path, oracle: Oracle) -> None:
    left = {}
    for run_deletes in (False, True):
        sample = unpack("crashed", ram_path / str(run_deletes))
        first = partition(sample, "late-1") / ("0" * 20 + ".log")
        with first.open("r+b") as file:
            file.truncate(first.stat().st_size - 1)
        load(oracle, sample, run_deletes=run_deletes)
        left[run_deletes] = {
            "late": len([path for path in first.parent.iterdir() if path.name.endswith(".deleted")]),
            "folders": len(list(sample.root.glob("d?/*-delete"))),
        }
    assert left[False]["late"] > 3
    assert left[False]["folders"] == 1
    assert left[True] == {"late": 0, "folders": 0}


def test_hundreds_of_loads_leave_no_files_and_no_threads_open(ram_path: Path, oracle: Oracle) -> None:
    def open_count() -> tuple[int, int]:
        process = f"/proc/{oracle.pid}"
        return len(os.listdir(f"{process}/fd")), len(os.listdir(f"{process}/task"))

    sample = unpack("stopped", ram_path)
    bad = sample.log_dirs[0] / "stranger"
    load(oracle, sample)
    files, threads = open_count()
    for turn in range(150):
        if turn % 3 == 0:
            bad.mkdir()
        outcome = load(oracle, sample)
        assert outcome.outcome == ("fatal" if turn % 3 == 0 else "loaded"), outcome.error
        if turn % 3 == 0:
            bad.rmdir()
    files_now, threads_now = open_count()
    assert files_now < files + 20
    assert threads_now < threads + 5


def test_a_request_that_makes_no_sense_is_an_error_here(ram_path: Path, oracle: Oracle) -> None:
    with pytest.raises(RuntimeError, match="refused"):
        oracle.load([ram_path], now_ms=0, properties={"log.index.interval.bytes": "many"})
