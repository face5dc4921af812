"""What stops a broker though its logs can be recovered: a PROBLEM of a log dir, and exit code 4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import Sample, unpack
from tests.runs.command import recover

pytestmark = pytest.mark.broker


def without_meta_properties(sample: Sample) -> None:
    (sample.log_dirs[1] / "meta.properties").unlink()


def with_metadata_elsewhere(sample: Sample) -> None:
    (sample.log_dirs[1] / "__cluster_metadata-0").mkdir()


def with_a_wrong_checkpoint(sample: Sample) -> None:
    (sample.log_dirs[1] / "replication-offset-checkpoint").write_text("nonsense")


@pytest.mark.parametrize(
    ("obstruct", "line"),
    [
        (without_meta_properties, "No `meta.properties` found in"),
        (with_metadata_elsewhere, "Found unexpected metadata location"),
        (with_a_wrong_checkpoint, "Stopping serving logs in dir"),
    ],
)
def test_a_broker_does_not_use_what_was_recovered(
    obstruct: Callable[[Sample], None], line: str, ram_path: Path
) -> None:
    sample = unpack("crashed", ram_path)
    obstruct(sample)
    done = recover(sample)
    assert done.exit_code == 4
    first, second = done.report["logDirs"]
    assert (first["problems"], len(second["problems"])) == ([], 1)
    assert second["status"] == "recovered"
    with broker_of(sample, ram_path / "work") as broker:
        broker.launch()
        if line.startswith("Stopping"):
            broker.wait_for(line)
        else:
            assert broker.wait_for_end() != 0
            assert line in broker.log
