"""What a broker makes of a log whose folder has vanished: an empty one, without a word of what was there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import recovery
from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import unpack
from tests.runs.command import recover

pytestmark = pytest.mark.broker

NAME = "codec-none-0"


def test_a_broker_begins_with_an_empty_log(ram_path: Path) -> None:
    sample = unpack("crashed", ram_path)
    log_dirs = [*map(str, sample.log_dirs)]
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    shutil.rmtree(log_dir / NAME)
    done = recover(sample)
    assert done.exit_code == 0
    (note,) = (one for one in done.report["notes"] if NAME in one["text"])
    assert note["level"] == "warning"
    rules = {finding.rule for file in recovery.verify(log_dirs).damaged for finding in file.findings}
    assert rules == {"missing-log"}
    with broker_of(sample, ram_path / "work") as broker:
        broker.start()
        assert f"Created log for partition {NAME} in {log_dir / NAME}" in broker.log
        assert not [line for line in broker.log.splitlines() if NAME in line and "WARN" in line]
        broker.stop()
    assert [path.stat().st_size for path in (log_dir / NAME).glob("*.log")] == [0]
