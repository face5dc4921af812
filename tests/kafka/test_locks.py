"""Never beside a live broker: `recover` and a real broker keep each other out of the log dirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import LOCK, MARKER, Sample, unpack
from tests.runs.command import assert_one_line, recover
from tests.runs.driving import footprint
from tests.runs.paused import resume, start_paused

pytestmark = [pytest.mark.java, pytest.mark.broker]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sample, Broker]]:
    root = tmp_path_factory.mktemp("live")
    sample = unpack("intact", root)
    with broker_of(sample, root / "work") as broker:
        broker.start()
        yield sample, broker


@pytest.mark.parametrize(
    "arguments",
    [[], ["--dry-run"], ["--handoff", "none"], ["--log-dirs", "second"]],
    ids=lambda value: " ".join(value),
)
def test_nothing_is_changed_while_a_broker_runs(arguments: list[str], live: tuple[Sample, Broker]) -> None:
    sample, broker = live
    arguments = [str(sample.log_dirs[1]) if argument == "second" else argument for argument in arguments]
    with broker.held():
        found = footprint(sample.root)
        done = recover(sample, *arguments)
        assert footprint(sample.root) == found
    assert done.exit_code == 3
    assert_one_line(done, LOCK, "a broker runs on this log dir")


def test_a_broker_does_not_start_while_a_recovery_runs_and_does_afterwards(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    options = ("--now", sample.now_ms, "--progress", "none")
    process = start_paused("PartitionFinished", 5, "recover", "-c", sample.config, *options)
    try:
        with broker_of(sample, tmp_path / "work") as broker:
            broker.launch()
            assert broker.wait_for_end() != 0
            assert f"Failed to acquire lock on file {LOCK} in {sample.log_dirs[0]}" in broker.log
            assert not any((log_dir / MARKER).exists() for log_dir in sample.log_dirs)
            exit_code, _, _ = resume(process)
            assert exit_code == 0
            broker.start()
            assert "Skipping recovery of 15 logs" in broker.log
    finally:
        process.kill()
