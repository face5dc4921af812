"""Quarantine is purged while a broker runs on its log dir."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.quarantine import INSIDE_FOLDER
from tests.cli.command import run
from tests.kafka import Broker
from tests.kafka_broker import QUIET_PROPERTIES
from tests.recovery.driving import log_bytes, quarantine_of
from tests.recovery.quarantine_builder import NEW_RUN, OLD_RUN, RunBuilder
from tests.samples import unpack


@pytest.mark.java
@pytest.mark.broker
def test_a_broker_does_not_notice_a_purge(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    places = []
    for log_dir in sample.log_dirs:
        segment = min(log_dir.glob("*-0/*.log"))
        places += [quarantine_of(log_dir), log_dir / INSIDE_FOLDER]
        for root, name in zip(places[-2:], (OLD_RUN, NEW_RUN), strict=True):
            RunBuilder(root, name, log_dir).save(f"{segment.parent.name}/{segment.name}", link=segment)
    before = [logs(log_dir) for log_dir in sample.log_dirs]
    with Broker(
        sample.log_dirs,
        work_dir=tmp_path / "work",
        properties=dict(sample.properties) | QUIET_PROPERTIES,
        now_ms=sample.now_ms,
    ) as broker:
        broker.start()
        refused = run("recover", "-c", sample.config)
        assert refused.exit_code == 3
        done = run("quarantine", "purge", "--all", "-c", sample.config, "--format", "json")
        assert done.exit_code == 0, done.stderr
        assert [run["status"] for log_dir in done.report["logDirs"] for run in log_dir["runs"]] == [
            "purged"
        ] * len(places)
        assert not any(os.path.lexists(place) for place in places)
        broker.stop()
        assert "ERROR" not in broker.log
        broker.start()
        assert "since clean shutdown file was found" in broker.log
        broker.stop()
    assert [logs(log_dir) for log_dir in sample.log_dirs] == before


def logs(log_dir: Path) -> dict[str, bytes]:
    """The logs that a broker loads."""
    return {
        path: data for path, data in log_bytes(log_dir).items() if not path.startswith("__cluster_metadata")
    }
