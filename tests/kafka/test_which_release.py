"""Which release is found in the log dirs of real brokers, and that brokers of both start on what is left for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import KAFKA_VERSION, RELEASES
from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import Sample
from tests.runs.command import Done, recover

pytestmark = [pytest.mark.java, pytest.mark.broker]

NEWER_VERSION = RELEASES["4.4"]


def lived(sample: Sample, work: Path, version: str, *, is_killed: bool = True) -> str:
    """Start a broker of *version* on the log dirs, and kill or stop it; return its log."""
    with broker_of(sample, work, version) as broker:
        broker.start()
        broker.kill() if is_killed else broker.stop()
        return broker.log


def found(sample: Sample, *options: str) -> Done:
    return recover(sample, "--dry-run", *options)


def test_an_upgrade_and_a_downgrade_are_followed(
    crashed_copy: Callable[[str, Path], Sample], tmp_path: Path
) -> None:
    sample = crashed_copy(KAFKA_VERSION, tmp_path / "crashed")
    assert found(sample).report["release"]["name"] == "4.3"
    assert recover(sample).report["release"] == {
        "name": "4.3",
        "origin": "broker 1 registered with metadata.version up to 30",
    }
    assert "Skipping recovery of" in lived(sample, tmp_path / "upgraded", NEWER_VERSION)
    assert found(sample).report["release"] == {
        "name": "4.4",
        "origin": "broker 1 registered with metadata.version up to 33",
    }
    assert recover(sample, "--release", "4.3").exit_code == 0
    assert "Skipping recovery of" in lived(sample, tmp_path / "downgraded", KAFKA_VERSION, is_killed=False)
    assert found(sample).report["release"]["name"] == "4.3"


def test_without_the_log_of_a_controller_nothing_is_known(
    crashed_copy: Callable[[str, Path], Sample], tmp_path: Path
) -> None:
    sample = crashed_copy(KAFKA_VERSION, tmp_path / "crashed")
    for log_dir in sample.log_dirs:
        shutil.rmtree(log_dir / "__cluster_metadata-0", ignore_errors=True)
    release = found(sample, "--topic-config", "{}").report["release"]
    assert release == {"name": "unknown", "origin": "no metadata log says which broker ran last"}


def test_a_cluster_that_an_older_release_cannot_load_is_refused(
    crashed_copy: Callable[[str, Path], Sample], tmp_path: Path
) -> None:
    sample = crashed_copy(NEWER_VERSION, tmp_path / "crashed")
    done = found(sample, "--release", "4.3")
    assert done.exit_code == 1
    assert "the cluster's metadata.version is 33" in done.stderr
    assert "Remedy: --release 4.4" in done.stderr
