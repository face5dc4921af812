"""Quarantine is purged while a broker runs on its log dir."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from recovery.logdir.quarantine_place import INSIDE_FOLDER
from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.logs.quarantine_builder import NEW_RUN, OLD_RUN, RunBuilder
from tests.logs.samples import unpack
from tests.runs.command import run
from tests.runs.driving import log_bytes, quarantine_of


@pytest.mark.java
@pytest.mark.broker
def test_a_broker_does_not_notice_a_purge(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    places = []
    for log_dir in sample.log_dirs:
        # Of a topic that nobody writes to: the metadata log grows, and its links in quarantine would with it.
        segment = min(log_dir.glob("[!_]*-0/*.log"))
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
        assert done.exit_code == 0, done.stdout
        assert [run["status"] for log_dir in done.report["logDirs"] for run in log_dir["runs"]] == [
            "purged"
        ] * len(places)
        assert not any(os.path.lexists(place) for place in places)
        broker.stop()
        assert complaints_about_logs(broker.log, sample.log_dirs) == []
        broker.start()
        assert "since clean shutdown file was found" in broker.log
        broker.stop()
    assert [logs(log_dir) for log_dir in sample.log_dirs] == before


def complaints_about_logs(lines: str, log_dirs: Sequence[Path]) -> list[str]:
    """What a broker does not like of its log dirs; a slow one has other complaints, of requests that time out."""
    of_logs = ("LogDirFailureChannel", "LogManager", "UnifiedLog", "ReplicaManager", *map(str, log_dirs))
    return [line for line in lines.splitlines() if "ERROR" in line and any(word in line for word in of_logs)]


def test_what_counts_as_a_complaint() -> None:
    """Lines of 4.3.1 brokers: one whose log dir failed, one on a slow machine."""
    failed = "[2026-11-21 14:19:06,000] ERROR Error while writing to checkpoint file /data/a/x (LogDirFailureChannel)"
    slow = (
        "[2026-11-21 14:19:06,000] ERROR [BrokerLifecycleManager id=1] Unable to send a heartbeat: timed out"
    )
    assert complaints_about_logs(f"{failed}\n{slow}", [Path("/data/a")]) == [failed]


def logs(log_dir: Path) -> dict[str, bytes]:
    """The logs that a broker loads."""
    return {
        path: data for path, data in log_bytes(log_dir).items() if not path.startswith("__cluster_metadata")
    }
