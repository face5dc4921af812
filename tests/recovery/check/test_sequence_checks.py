"""Producers' sequences over a log: what is said of them, where, and where nothing is said."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import crcmod.predefined
import numpy as np
import pytest

from native.producer_sequences import MOST_BREAKS
from recovery.check.api import verify
from recovery.check.finding import Finding
from segfmt.byte_layout import BASE_SEQUENCE_POSITION, LOG_OVERHEAD_BYTES, PRODUCER_ENTRY_DTYPE
from segfmt.filenames import log_name, offset_index_name, snapshot_name, time_index_name
from segfmt.producer_snapshot import encode_producer_snapshot
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.builders import BASE_TIMESTAMP_MS, data_batch, marker_batch
from tests.logs.samples import SAMPLE_NAMES, unpack
from tests.runs.goings import gone_through
from tests.runs.verifying import held_lock, verified

RULES = ("sequence-gap", "producer-epoch")
DAY_MS = 86_400_000
_crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def batch(offset: int, sequence: int, *, epoch: int = 0, producer_id: int = 7, **fields: Any) -> bytes:
    return data_batch(offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def make_log(log_dir: Path, *segments: Sequence[bytes]) -> Path:
    """Make the log `orders-0` of *segments*, whose names are the base offsets of their first batches."""
    folder = log_dir / "orders-0"
    folder.mkdir(parents=True)
    for batches in segments:
        base_offset = struct.unpack_from(">q", batches[0])[0]
        (folder / log_name(base_offset)).write_bytes(b"".join(batches))
    return folder


def said_of(log_dir: Path, **options: Any) -> list[Finding]:
    """What `verify` says of sequences."""
    report = verify([str(log_dir)], topic_configs={"orders": {}} | options.pop("topics", {}), **options)
    return [found for file in report.files for found in file.findings if found.rule in RULES]


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_of_what_brokers_leave_nothing_is_said(name: str, tmp_path: Path) -> None:
    """Several epochs of a producer, aborted transactions, logs whose start was moved."""
    report = verified(unpack(name, tmp_path))
    assert [found for file in report.files for found in file.findings if found.rule in RULES] == []


class TestWhatIsSaid:
    def test_names_batch_producer_and_sequences(self, tmp_path: Path) -> None:
        first, last = batch(0, 3), batch(1, 5)
        make_log(tmp_path, [first, last])
        (found,) = said_of(tmp_path)
        assert (found.file, found.position, found.severity) == (log_name(0), len(first), "note")
        assert found.detail.startswith("producer 7, epoch 0: sequence 5 follows 3; records may be missing")

    def test_of_a_new_epoch(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(0, 3), batch(1, 4, epoch=1)])
        (found,) = said_of(tmp_path)
        assert found.rule == "sequence-gap"
        assert "producer 7, epoch 1: its epoch begins with sequence 4, not 0" in found.detail

    def test_of_an_epoch_that_goes_back(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(0, 3, epoch=2), marker_batch(1, producer_id=7, producer_epoch=1)])
        (found,) = said_of(tmp_path)
        assert found.rule == "producer-epoch"
        assert "producer 7, epoch 1: its epoch was 2 before" in found.detail

    def test_behind_a_marker_of_a_higher_epoch(self, tmp_path: Path) -> None:
        marker = marker_batch(1, producer_id=7, producer_epoch=1)
        make_log(tmp_path / "a", [batch(0, 3), marker, batch(2, 0, epoch=1)])
        make_log(tmp_path / "b", [batch(0, 3), marker, batch(2, 4, epoch=1)])
        assert said_of(tmp_path / "a") == []
        assert [found.rule for found in said_of(tmp_path / "b")] == ["sequence-gap"]

    def test_over_segments(self, tmp_path: Path) -> None:
        other = batch(2, 0, producer_id=8)
        make_log(tmp_path, [batch(0, 3), batch(1, 4)], [other], [batch(3, 5), batch(4, 7)], [batch(5, 9)])
        assert [(found.file, found.position) for found in said_of(tmp_path)] == [
            (log_name(3), len(batch(3, 5))),
            (log_name(5), 0),
        ]

    def test_over_windows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        batches = [batch(offset, offset + offset // 40) for offset in range(100)]
        make_log(tmp_path, batches)
        whole = said_of(tmp_path)
        assert [found.position for found in whole] == [len(b"".join(batches[:at])) for at in (40, 80)]
        monkeypatch.setattr("recovery.read.windows.WINDOW_BYTES", 250)
        assert said_of(tmp_path) == whole

    def test_so_many_times(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(offset, 2 * offset) for offset in range(100)])
        found = said_of(tmp_path)
        assert len(found) == MOST_BREAKS
        assert found[-1].detail.endswith(f". {99 - MOST_BREAKS} more like this follow in the log")

    def test_it_is_no_damage(self, tmp_path: Path) -> None:
        make_log(tmp_path / "d", [batch(0, 3), batch(1, 5)])
        report = verify([str(tmp_path / "d")], topic_configs={"orders": {}})
        assert not any(found.rule in RULES for file in report.damaged for found in [file.first])

    def test_beside_a_live_broker_over_segments(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A second look reads but the segments from the snapshot before damage on; what the others say stays known."""
        monkeypatch.setattr("recovery.check.second_look._WAIT_S", 0)
        damaged = bytearray(batch(3, 7))
        damaged[-1] ^= 1
        last = [batch(2, 6), bytes(damaged), batch(4, 8)]
        folder = make_log(tmp_path, [batch(0, 3)], [batch(1, 0, producer_id=8)], last)
        for base_offset in range(3):
            (folder / offset_index_name(base_offset)).touch()
            (folder / time_index_name(base_offset)).write_bytes(struct.pack(">qi", BASE_TIMESTAMP_MS, 0))
        entry = np.array([(7, 0, 3, 0, 0, BASE_TIMESTAMP_MS, -1, -1)], PRODUCER_ENTRY_DTYPE)
        snapshot = encode_producer_snapshot(entry, crc32c=_crc32c)
        (folder / snapshot_name(1)).write_bytes(snapshot)
        with held_lock(tmp_path):
            assert [found.file for found in said_of(tmp_path)] == [log_name(2)]


class TestWhatIsNotSaid:
    def test_where_the_broker_had_forgotten(self, tmp_path: Path) -> None:
        def log(silence_ms: int) -> list[bytes]:
            return [batch(0, 3), batch(1, 9, base_timestamp_ms=BASE_TIMESTAMP_MS + silence_ms)]

        make_log(tmp_path / "a", log(DAY_MS))
        make_log(tmp_path / "b", log(DAY_MS - 1))
        assert said_of(tmp_path / "a") == []
        assert len(said_of(tmp_path / "b")) == 1
        assert said_of(tmp_path / "b", config={"producer.id.expiration.ms": "1000"}) == []

    def test_in_topics_that_are_compacted_or_not_known(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(0, 3), batch(1, 5)])
        assert said_of(tmp_path, topics={"orders": {"cleanup.policy": "compact"}}) == []
        assert [found.rule for file in verify([str(tmp_path)]).files for found in file.findings].count(
            "sequence-gap"
        ) == 0

    def test_where_batches_are_gone(self, tmp_path: Path) -> None:
        """Offsets are missing, and that is said."""
        make_log(tmp_path / "inside", [batch(0, 3), batch(2, 5)])
        make_log(tmp_path / "between", [batch(0, 3)], [batch(2, 5)])
        damaged = bytearray(batch(1, 4))
        damaged[-1] ^= 1
        make_log(tmp_path / "damaged", [batch(0, 3), bytes(damaged), batch(2, 6)])
        for log_dir in tmp_path.iterdir():
            assert said_of(log_dir) == [], log_dir

    def test_below_the_log_start(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(0, 3), batch(1, 5), batch(2, 7), batch(3, 9)])
        assert len(said_of(tmp_path)) == 3
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
        assert [found.position for found in said_of(tmp_path)] == [3 * len(batch(0, 3))]


class TestArchives:
    def test_a_copy_says_the_same(self, tmp_path: Path) -> None:
        make_log(tmp_path, [batch(0, 3), batch(1, 5)], [batch(2, 6)], [batch(3, 9), batch(4, 9)])
        (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5\n")
        (verdict,) = gone_through(tmp_path, topic_configs={"orders": {}})
        found = [one for each in verdict.objects for one in each.verdict.findings if one.rule in RULES]
        assert sorted(found, key=str) == sorted(said_of(tmp_path), key=str)
        assert len(found) == 3

    def test_nothing_is_said_of_tiered_storage(self, stored_archive: TieredArchive) -> None:
        assert sequence_notes(stored_archive.path, stored_archive.log_dirs) == {}

    def test_over_segments_of_tiered_storage(self, stored_archive: TieredArchive, tmp_path: Path) -> None:
        """A producer's first batch in a segment gets another sequence, under a right checksum."""
        copied = Path(shutil.copytree(stored_archive.path, tmp_path / "archive"))
        expected: dict[str, list[str]] = {}
        for folder in sorted(copied.rglob("txn-0-*")):
            path = sorted(folder.glob("*.log"))[1]
            expected[path.name] = ["sequence-gap"]
            raise_sequence(path)
        found = sequence_notes(copied, stored_archive.log_dirs)
        assert {Path(key).name: rules[:1] for key, rules in found.items()} == expected


def sequence_notes(archive: Path, log_dirs: Sequence[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for verdict in gone_through(archive, metadata=log_dirs):
        for one in verdict.objects:
            for each in one.verdict.findings:
                if each.rule in RULES:
                    found.setdefault(one.verdict.path, []).append(each.rule)
    return found


def raise_sequence(path: Path) -> None:
    """Raise the sequence of the first data batch with a producer in the log at *path*."""
    data, at = bytearray(path.read_bytes()), 0
    while True:
        size = LOG_OVERHEAD_BYTES + struct.unpack_from(">i", data, at + 8)[0]
        sequence = struct.unpack_from(">i", data, at + BASE_SEQUENCE_POSITION)[0]
        if sequence >= 0:
            break
        at += size
    struct.pack_into(">i", data, at + BASE_SEQUENCE_POSITION, sequence + 1)
    struct.pack_into(">I", data, at + 17, _crc32c(bytes(data[at + 21 : at + size])))
    path.write_bytes(data)
