"""A whole broker starts on what each deliberate difference leaves (docs/reference/differences.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from segfmt.record_batch import walk_batches
from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.logs.samples import Sample, unpack
from tests.runs.driving import recover

pytestmark = [pytest.mark.java, pytest.mark.broker]


def start(sample: Sample, work_dir: Path) -> str:
    """Start and stop a broker on the sample; what it has logged."""
    properties = dict(sample.properties) | QUIET_PROPERTIES
    with Broker(sample.log_dirs, work_dir=work_dir, properties=properties, now_ms=sample.now_ms) as broker:
        broker.start()
        broker.stop()
    return broker.log


def put_out_of_order(log: Path) -> None:
    """Exchange the second batch of a segment with the last one."""
    data = log.read_bytes()
    batches = [data[one.position : one.position + one.size_bytes] for one in walk_batches(data)]
    batches[1], batches[-1] = batches[-1], batches[1]
    log.write_bytes(b"".join(batches))


def test_a_broker_starts_on_an_obstacle_a_batch_out_of_order_a_link_and_an_odd_name(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path / "sample")
    first = sample.log_dirs[0]
    put_out_of_order(max((first / "codec-none-0").glob("*.log")))
    linked = max((first / "late-0").glob("*.log"))
    linked.rename(first / linked.name)
    linked.symlink_to(Path("..") / linked.name)
    (first / "codec-zstd-0" / f"{1800:020d}.snapshot").unlink(missing_ok=True)
    (first / "codec-zstd-0" / f"{1800:020d}.snapshot").mkdir()
    shutil.copytree(first / "shapes-0", first / "a b-0")
    report = recover(sample)
    status = {partition.folder: partition.status for partition in report.partitions}
    assert report.exit_code == 4
    assert [status[name] for name in ("late-0", "codec-zstd-0", "a b-0")] == ["refused"] * 3
    assert [cut.reason for one in report.partitions for cut in one.cuts if one.folder == "codec-none-0"] == [
        "a batch whose offset is out of order"
    ]
    log = start(sample, tmp_path / "work")
    assert f"logs from {sample.log_dirs[1]} since clean shutdown file was found" in log
    assert f"logs from {first} since no clean shutdown file was found" in log


def test_a_broker_starts_on_a_folder_that_waits_for_its_deletion(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path / "sample")
    first = sample.log_dirs[0]
    (first / "plain-1").rename(first / f"plain-1.{'0a' * 16}-delete")
    report = recover(sample)
    assert {log_dir.status for log_dir in report.log_dirs} == {"recovered", "unchanged"}
    status = {partition.folder: partition.status for partition in report.partitions}
    assert status[f"plain-1.{'0a' * 16}-delete"] == "unchanged"
    log = start(sample, tmp_path / "work")
    assert f"logs from {first} since clean shutdown file was found" in log
    assert f"Recovering {len(status)} logs" not in log
