"""Which release is found in the log dirs of real brokers, and that brokers of both start on what is left for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native.crc32c import crc32c_of_bytes
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.producer_snapshot import MOST_ENTRIES, encode_producer_snapshot
from tests.brokers import KAFKA_VERSION, RELEASES
from tests.brokers.broker import BrokerError
from tests.brokers.sample_brokers import broker_of, copy_of
from tests.logs.samples import NEWEST_NAME, Sample, unpack
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
        "origin": "node 1 registered with metadata.version up to 30",
    }
    assert "Skipping recovery of" in lived(sample, tmp_path / "upgraded", NEWER_VERSION)
    assert found(sample).report["release"] == {
        "name": "4.4",
        "origin": "node 1 registered with metadata.version up to 33",
    }
    assert recover(sample, "--release", "4.3").exit_code == 0
    assert "Skipping recovery of" in lived(sample, tmp_path / "downgraded", KAFKA_VERSION, is_killed=False)
    assert found(sample).report["release"]["name"] == "4.3"


def test_an_upgrade_that_fails_at_its_start_is_noticed(
    crashed_copy: Callable[[str, Path], Sample], tmp_path: Path
) -> None:
    """No broker of the new release has registered: it dies while it loads the logs. Its controller has."""
    sample = crashed_copy(KAFKA_VERSION, tmp_path / "crashed")
    assert recover(sample).exit_code == 0
    # Segments are rolled by time: on a busy machine the first abort is in a later one.
    indexes = sorted(sample.root.glob("d?/transactions-*/*.txnindex"))
    aborts = next(path for path in indexes if path.stat().st_size)
    aborts.write_bytes(b"\x00\xff" + aborts.read_bytes()[2:])
    with (
        broker_of(sample, tmp_path / "failing", NEWER_VERSION) as broker,
        pytest.raises(BrokerError, match="the broker ended before"),
    ):
        broker.start()
    assert "Unexpected aborted transaction version 255" in broker.log  # the error has its end alone
    release = found(sample).report["release"]
    assert release == {"name": "4.4", "origin": "node 1 registered with metadata.version up to 33"}
    assert recover(sample, "--repair").exit_code == 0
    assert "Skipping recovery of" in lived(sample, tmp_path / "repaired", NEWER_VERSION)


def test_a_broker_starts_on_what_is_left_of_the_damage_of_each_rule(tmp_path: Path) -> None:
    ours = unpack(NEWEST_NAME, tmp_path / "ours")
    assert recover(ours).exit_code == 0
    with broker_of(copy_of(ours, tmp_path / "sound"), tmp_path / "sound-work", NEWER_VERSION) as broker:
        broker.start()
        sound = broker.read_all()
    index = next(ours.root.glob("d?/codec-lz4-0/00000000000000000000.index"))
    index.write_bytes(index.read_bytes() + b"rest")
    for snapshot in index.parent.glob("*.snapshot"):
        snapshot.unlink()
    entries = np.zeros(MOST_ENTRIES + 1, PRODUCER_ENTRY_DTYPE)
    entries["producer_id"] = np.arange(len(entries))
    entries["current_txn_first_offset"] = -1
    last = max(ours.root.glob("d?/many-producers-0/*.snapshot"))
    last.write_bytes(encode_producer_snapshot(entries, crc32c=crc32c_of_bytes))
    aborts = next(ours.root.glob("d?/transactions-1/00000000000000000000.txnindex"))
    aborts.write_bytes(b"\x00\x01" + aborts.read_bytes()[2:])
    halted = copy_of(ours, tmp_path / "halted")
    with (
        broker_of(halted, tmp_path / "halted-work", NEWER_VERSION) as broker,
        pytest.raises(BrokerError, match="the broker ended before"),
    ):
        broker.start()
    assert "Unexpected aborted transaction version 1" in broker.log
    done = recover(ours)
    refused = [one["partition"] for one in partitions_of(done) if one["status"] == "refused"]
    assert (done.exit_code, refused) == (4, ["transactions-1"])
    assert recover(ours, "--repair").exit_code == 0
    with broker_of(ours, tmp_path / "work", NEWER_VERSION) as broker:
        broker.start()
        assert broker.log.count("Skipping recovery of") == len(ours.log_dirs)
        assert broker.read_all() == sound


def partitions_of(done: Done) -> list[dict[str, Any]]:
    return [one for log_dir in done.report["logDirs"] for one in log_dir["partitions"]]


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
