"""Rows of committed transactions alone, where what says how they ended is lost, damaged, or contradicts the log.

Copies of made logs, in which a transaction is open over each seam, and a real broker's archive with its log dirs.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native.crc32c import crc32c_of_bytes
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from segfmt import byte_layout
from segfmt.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import (
    LOG,
    SNAPSHOT,
    MadeLog,
    batch_positions,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.recovery.archive.test_nested_segments import part_of
from tests.runs.readings import read

COMMITTED = ReadOptions(is_committed=True)
MODES = [ReadOptions(is_committed=True, corrupt=corrupt) for corrupt in Corrupt]
EMPTY_SNAPSHOT = encode_producer_snapshot(np.zeros(0, byte_layout.PRODUCER_ENTRY_DTYPE))


def offsets(root: Path, options: ReadOptions = COMMITTED, **others: Any) -> list[int]:
    return [row["offset"] for row in read(root, "offset", options=options, **others)]


def batches_of(log: bytes) -> list[bytes]:
    return [log[start:end] for start, end in pairwise(batch_positions(log))]


def is_marker(batch: bytes) -> bool:
    return bool(struct.unpack_from(">h", batch, 21)[0] & byte_layout.CONTROL_MASK)


def change_marker(log: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The log with its first marker changed."""
    batches = batches_of(log)
    number = next(number for number, batch in enumerate(batches) if is_marker(batch))
    batches[number] = change(batches[number])
    return b"".join(batches)


def flip(batch: bytes) -> bytes:
    return batch[:30] + bytes([batch[30] ^ 1]) + batch[31:]


def with_open(snapshot: bytes, first_offset: int) -> bytes:
    """A snapshot in which the open transaction begins at another offset."""
    entries = read_producer_snapshot(snapshot, crc32c=crc32c_of_bytes).copy()
    entries["current_txn_first_offset"][entries["current_txn_first_offset"] >= 0] = first_offset
    return encode_producer_snapshot(entries)


@pytest.mark.parametrize("layout", ["plain", "local-tiered", "aiven"])
@pytest.mark.parametrize("content", ["earlier", "empty", "begins too low"])
def test_the_last_snapshot_contradicts_the_log(layout: str, content: str, tmp_path: Path) -> None:
    copies = made_copies(segments=5)
    archive = write_archive(tmp_path / "archive", layout, copies)
    sound = offsets(archive.root)
    assert sound[-1] < copies[-1].remote.end_offset
    contents = {
        "earlier": copies[2].files[SNAPSHOT],
        "empty": EMPTY_SNAPSHOT,
        "begins too low": with_open(copies[-1].files[SNAPSHOT], sound[-1] - 3),
    }
    archive.rewrite(copies[-1], SNAPSHOT, contents[content])
    for options in MODES:
        with pytest.raises(DamagedSegmentError, match=r": snapshot-content: .*Remedy: "):
            offsets(archive.root, options)


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
@pytest.mark.parametrize("task_segments", [1, 500])
def test_the_last_snapshot_forgets_a_transaction(layout: str, task_segments: int, tmp_path: Path) -> None:
    """One that was begun in an earlier segment: another task reads that."""
    copies = made_copies(segments=5)
    last = part_of(copies[4], 0, 3)  # neither the end of the transaction, nor a batch of it
    archive = write_archive(tmp_path / "archive", layout, [*copies[:4], last])
    selection = Selection(task_segments=task_segments)
    archive.rewrite(last, SNAPSHOT, copies[3].files[SNAPSHOT])
    rows = read(archive.root, "offset", options=COMMITTED, selection=selection)
    assert rows[-1]["offset"] < last.remote.start_offset
    archive.rewrite(last, SNAPSHOT, EMPTY_SNAPSHOT)
    for options in MODES:
        with pytest.raises(DamagedSegmentError, match=r": snapshot-content: .*Remedy: "):
            read(archive.root, "offset", options=options, selection=selection)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda log: change_marker(log, flip),
    "zeroed": lambda log: change_marker(log, lambda marker: bytes(len(marker))),
    "removed": lambda log: change_marker(log, lambda _: b""),
}


@pytest.mark.parametrize("layout", ["plain", "local-tiered"])
@pytest.mark.parametrize("name", [*DAMAGES, "no log"])
def test_damage_hides_the_end_of_a_transaction(layout: str, name: str, tmp_path: Path) -> None:
    """Without the snapshot that would tell, the query fails in every mode; with it, by the damage or not at all."""
    copies = made_copies(segments=4)
    archive = write_archive(tmp_path / "archive", layout, copies)
    archive.place(copies[-1], SNAPSHOT).unlink()
    assert max(offsets(archive.root)) > copies[-1].remote.start_offset  # the log alone tells as well
    log = archive.place(copies[-1], LOG)
    if name == "no log":
        log.unlink()
    else:
        log.write_bytes(DAMAGES[name](log.read_bytes()))
    for options in MODES:
        with pytest.raises(DamagedSegmentError, match=r": transaction-state: .*Remedy: "):
            offsets(archive.root, options)


class TestLogDirs:
    """What was open at the archive's end ended on the broker."""

    @pytest.fixture
    def archive(self, stored_archive: TieredArchive) -> Path:
        return stored_archive.path

    @pytest.fixture
    def log_dirs(self, stored_archive: TieredArchive, tmp_path: Path) -> tuple[Path, ...]:
        return tuple(
            Path(shutil.copytree(log_dir, tmp_path / log_dir.name)) for log_dir in stored_archive.log_dirs
        )

    @staticmethod
    def rows(archive: Path, log_dirs: tuple[Path, ...], options: ReadOptions = COMMITTED) -> list[object]:
        return [
            tuple(row.values())
            for row in read(archive, "topic", "partition", "offset", options=options, metadata=log_dirs)
        ]

    def test_of_replicas_the_newest_counts_whatever_their_order(
        self, archive: Path, log_dirs: tuple[Path, ...], tmp_path: Path
    ) -> None:
        sound = self.rows(archive, log_dirs)
        older = tuple(Path(shutil.copytree(one, tmp_path / "older" / one.name)) for one in log_dirs)
        for folder in (folder for one in older for folder in one.glob("transactions-*")):
            log = max(folder.glob("*.log"))
            data = log.read_bytes()
            log.write_bytes(data[: batch_positions(data)[0]])
        assert self.rows(archive, older) != sound
        assert self.rows(archive, (*older, *log_dirs)) == sound
        assert self.rows(archive, (*log_dirs, *older)) == sound

    @pytest.mark.parametrize("change", ["lost", "short", "other producer"])
    def test_the_markers_tell_and_not_the_transaction_indexes(
        self, change: str, archive: Path, log_dirs: tuple[Path, ...]
    ) -> None:
        sound = self.rows(archive, log_dirs)
        changed = 0
        for log_dir in log_dirs:
            for path in log_dir.glob("transactions-*/*.txnindex"):
                data = path.read_bytes()
                contents = {
                    "lost": b"",
                    "short": data[:-34],
                    "other producer": data[:9] + b"\x7f" + data[10:],
                }
                path.write_bytes(contents[change])
                if change == "lost":
                    path.unlink()
                changed += 1
        assert changed > 1
        assert self.rows(archive, log_dirs) == sound

    def test_damage_in_their_logs_hides_the_end(self, archive: Path, log_dirs: tuple[Path, ...]) -> None:
        log = max(path for log_dir in log_dirs for path in log_dir.glob("transactions-0/*.log"))
        sound = log.read_bytes()
        markers = [span for span in pairwise(batch_positions(sound)) if is_marker(sound[slice(*span)])]
        assert len(markers) > 2
        for start, end in markers:
            log.write_bytes(sound[:start] + flip(sound[start:end]) + sound[end:])
            with pytest.raises(
                DamagedSegmentError, match=rf"^{re.escape(str(log))}: .*: transaction-state: "
            ):
                self.rows(archive, log_dirs)

    def test_their_log_ends_before_the_archive(self, tmp_path: Path) -> None:
        """An older copy of a log dir does not take rows away."""
        copies = made_copies(segments=5)
        archive = write_archive(tmp_path / "archive", "local-tiered", copies)
        log_dir = write_archive(tmp_path / "log-dir", "plain", copies[:3]).root
        write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
        assert offsets(archive.root, metadata=(log_dir,)) == offsets(archive.root)


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
def test_segments_that_are_too_old_may_hold_the_markers(layout: str, tmp_path: Path) -> None:
    """Timestamps need not ascend: a transaction that ends in a segment that is passed over is no contradiction."""
    owner, rng = made_copies()[0].owner, random.Random(4)
    log, copies = MadeLog(rng), []
    for number, shift_ms in enumerate((10_000_000, -10_000_000, 10_000_000, 0)):
        log._timestamp_ms += shift_ms
        copies.append(log.roll(owner, 8, number))
    archive = write_archive(tmp_path / "archive", layout, copies)
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
    options = replace(COMMITTED, lowest_timestamp_ms=copies[0].remote.max_timestamp_ms - 4000)
    expected = offsets(archive.root, options, selection=Selection(uses_time_index=False))
    assert set(range(copies[1].remote.start_offset, copies[1].remote.end_offset)).isdisjoint(expected)
    assert offsets(archive.root, options, metadata=(log_dir,)) == expected


@pytest.mark.parametrize("damage", ["marker", "length"])
def test_damage_in_the_log_in_which_a_transaction_begins(damage: str, tmp_path: Path) -> None:
    """It begins and ends in one log; or begins after a batch whose length is wrong, where the index leads to it."""
    copies = made_copies(segments=4, batches=12)
    log_bytes = [copy.files[LOG] for copy in copies]
    archive = write_archive(tmp_path / "archive", "plain", copies)
    for path in archive.root.rglob("*.txnindex"):
        path.unlink()
    names, skip = ("offset", "aborted"), ReadOptions(corrupt=Corrupt.SKIP)
    sound = {row["offset"]: row["aborted"] for row in read(archive.root, *names)}
    if damage == "marker":
        # Without the segments before it, all of the log is one window.
        joined = b"".join([batches_of(log_bytes[0])[-1], log_bytes[1]])
        path = archive.place(copies[0], LOG)
        path.write_bytes(b"".join([*batches_of(log_bytes[0])[:-1], change_marker(joined, flip)]))
        for kind in ("log", "index", "timeindex"):
            path.with_name(f"{copies[1].remote.start_offset:020d}.{kind}").unlink()
        with pytest.raises(DamagedSegmentError, match=r": transaction-state: .*Remedy: "):
            read(archive.root, *names, options=skip)
        return
    for number, copy in enumerate(copies):
        path = archive.place(copy, LOG)
        batches = batches_of(log_bytes[number])
        for place in range(1, len(batches) - 2):
            broken = batches[place][:11] + bytes([batches[place][11] ^ 1]) + batches[place][12:]
            path.write_bytes(b"".join([*batches[:place], broken, *batches[place + 1 :]]))
            try:
                rows = read(archive.root, *names, options=skip)
            except DamagedSegmentError:
                continue
            assert {row["offset"]: row["aborted"] for row in rows}.items() <= sound.items()
        path.write_bytes(log_bytes[number])
