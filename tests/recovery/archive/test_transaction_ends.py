"""Transactions that end after what a task reads: which task reads what, and what is requested, changes no row.

Copies of made logs, in which a transaction is open over each seam, and a real broker's archive with its log dirs.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recovery.archive.records import run_transactions
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from segfmt import byte_layout
from segfmt.transaction_index import ENTRY_BYTES, Entries
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import (
    INDEXES,
    LOG,
    TXN_INDEX,
    MadeLog,
    SegmentCopy,
    WrittenArchive,
    batch_positions,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

TASKS = Selection(), Selection(task_segments=1), Selection(task_segments=2)
ALL_LAYOUTS = ["plain", "local-tiered", "aiven"]


def offsets(root: Path, corrupt: Corrupt = Corrupt.FAIL, **others: Any) -> list[int]:
    limits = {name: others.pop(name) for name in [*others] if name.startswith(("highest", "lowest"))}
    options = ReadOptions(is_committed=True, corrupt=corrupt, **limits)
    return [row["offset"] for row in read(root, "offset", options=options, **others)]


def entries_of(copy: SegmentCopy) -> Entries:
    return np.frombuffer(copy.files[TXN_INDEX], byte_layout.ABORTED_TXN_DTYPE)


def first_with_abort(copies: Sequence[SegmentCopy]) -> int:
    """The number of the first segment in which a transaction is aborted that begins in the one before."""
    return next(number for number, copy in enumerate(copies) if TXN_INDEX in copy.files)


def metadata_of(archive: WrittenArchive, log_dir: Path) -> tuple[Path, ...]:
    log_dir.mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
    return (log_dir,)


def remove_the_segment(archive: WrittenArchive, copy: SegmentCopy) -> None:
    for part in archive.parts(copy):
        path = archive.place(copy, part)
        if path.name != "leader-epoch-checkpoint":
            path.unlink()


def flip_the_marker(archive: WrittenArchive, copy: SegmentCopy) -> None:
    data = bytearray(copy.files[LOG])
    (entry,) = entries_of(copy)
    position = next(
        position
        for position in batch_positions(copy.files[LOG])
        if int.from_bytes(data[position : position + 8], "big") == entry["last_offset"]
    )
    data[position + 40] ^= 1
    archive.place(copy, LOG).write_bytes(data)
    archive.place(copy, TXN_INDEX).unlink()


@pytest.mark.parametrize(
    ("layout", "damage"),
    [*product(ALL_LAYOUTS, [remove_the_segment]), *product(["plain", "local-tiered"], [flip_the_marker])],
)
def test_the_end_is_damaged_or_missing(layout: str, damage: Any, tmp_path: Path) -> None:
    """Also if it is just after what is requested."""
    copies = made_copies(segments=5)
    archive = write_archive(tmp_path / "archive", layout, copies)
    number = first_with_abort(copies)
    damage(archive, copies[number])
    last, begin = copies[number - 1].remote.end_offset, int(entries_of(copies[number])["first_offset"][0])
    for tasks, corrupt in product(TASKS, Corrupt):
        for highest in (None, last):
            with pytest.raises(DamagedSegmentError, match="Remedy: ") as error:
                offsets(archive.root, corrupt, selection=tasks, highest_offset=highest)
            if highest is not None or corrupt is not Corrupt.FAIL:
                assert ": transaction-state: " in str(error.value)
        assert max(offsets(archive.root, corrupt, selection=tasks, highest_offset=begin - 1)) == begin - 1


def test_the_last_segments_are_missing(tmp_path: Path) -> None:
    """As the metadata topic says; without it the archive ends with the transaction open, and its snapshot says so."""
    copies = made_copies(segments=5)
    archive = write_archive(tmp_path / "archive", "aiven", copies)
    metadata = metadata_of(archive, tmp_path / "log-dir")
    number = first_with_abort(copies)
    begin = int(entries_of(copies[number])["first_offset"][0])
    for copy in copies[number:]:
        remove_the_segment(archive, copy)
    for tasks, corrupt in product(TASKS, (Corrupt.SKIP, Corrupt.INCLUDE)):
        with pytest.raises(DamagedSegmentError, match=": transaction-state: "):
            offsets(archive.root, corrupt, selection=tasks, metadata=metadata)
        assert max(offsets(archive.root, corrupt, selection=tasks)) < begin


def test_lost_indexes_of_aiven_segments_are_replaced_by_the_markers(tmp_path: Path) -> None:
    copies = made_copies(segments=5)
    archive = write_archive(tmp_path / "archive", "aiven", copies)
    sound, number = offsets(archive.root), first_with_abort(copies)
    last = copies[number - 1].remote.end_offset
    archive.place(copies[number], INDEXES).unlink()
    for tasks in TASKS:
        assert offsets(archive.root, selection=tasks) == sound
        up_to = offsets(archive.root, selection=tasks, highest_offset=last)
        assert up_to == [offset for offset in sound if offset <= last]


def test_an_index_without_an_entry(stored_archive: TieredArchive, tmp_path: Path) -> None:
    """Of a transaction that begins in an earlier segment, and so in another task or within what is requested."""
    (folder,) = stored_archive.path.glob("transactions-0-*")
    archive = tmp_path / "archive"
    shutil.copytree(folder, archive / folder.name)
    read_it = {"metadata": stored_archive.log_dirs}
    tried = 0
    for path in sorted((archive / folder.name).glob("*.txnindex")):
        data, base_offset = path.read_bytes(), int(path.name[:20])
        entries = np.frombuffer(data, byte_layout.ABORTED_TXN_DTYPE)
        if len(entries) < 2 or entries["first_offset"][0] >= base_offset or tried == 3:
            continue
        tried += 1
        path.write_bytes(data[ENTRY_BYTES:])
        for selection, highest in product(TASKS, (None, base_offset - 1)):
            with pytest.raises(DamagedSegmentError, match=r": transaction-index-missing: .*Remedy: "):
                offsets(archive, selection=selection, highest_offset=highest, **read_it)
        path.write_bytes(data)
    assert tried == 3


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
@pytest.mark.parametrize("field", ["first_offset", "last_offset"])
def test_an_entry_that_goes_on_after_another_marker(field: str, layout: str, tmp_path: Path) -> None:
    """Of an earlier transaction of the producer, or its own; a task may read the segment with the marker alone."""
    copies = made_copies(segments=8)
    archive = write_archive(tmp_path / "archive", layout, copies)
    metadata = metadata_of(archive, tmp_path / "log-dir")
    asked: dict[str, Any] = {"metadata": metadata}
    copy = [copy for copy in copies if TXN_INDEX in copy.files][1]
    entries = entries_of(copy).copy()
    if field == "first_offset":
        entries[field] = 3
    else:
        entries[field] += 1_000
        asked["lowest_offset"] = copy.remote.start_offset
    archive.rewrite(copy, TXN_INDEX, entries.tobytes())
    for tasks, corrupt in product(TASKS, Corrupt):
        with pytest.raises(DamagedSegmentError, match=r": transaction-index-entry: .*Remedy: "):
            offsets(archive.root, corrupt, selection=tasks, **asked)


def test_the_end_is_in_a_segment_that_is_too_old(tmp_path: Path) -> None:
    """It is passed over because of its timestamps; how the transaction ended is compared all the same."""
    owner, log, copies = made_copies()[0].owner, MadeLog(random.Random(4)), []
    for number, shift_ms in enumerate((10_000_000, 0, -10_000_000, 10_000_000)):
        log._timestamp_ms += shift_ms
        copies.append(log.roll(owner, 8, number))
    assert first_with_abort(copies) == 2
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    asked: dict[str, Any] = {
        "metadata": metadata_of(archive, tmp_path / "log-dir"),
        "lowest_timestamp_ms": copies[0].remote.max_timestamp_ms - 4000,
    }
    begin = int(entries_of(copies[2])["first_offset"][0])
    for tasks in TASKS:
        assert begin not in offsets(archive.root, selection=tasks, **asked)
    entries = entries_of(copies[2]).copy()
    entries["producer_id"] += 1
    archive.rewrite(copies[2], TXN_INDEX, entries.tobytes())
    for tasks in TASKS:
        with pytest.raises(DamagedSegmentError, match=": transaction-index-missing: "):
            offsets(archive.root, selection=tasks, **asked)


class LongTransaction(MadeLog):
    """A log with one transaction, which ends in the last segment."""

    is_last = False

    def _append_data(self, base: int, producer_id: int) -> None:
        first = self._txn_first_offset
        super()._append_data(base, producer_id if first < 0 else self.idempotent)
        if first >= 0:
            self._txn_first_offset = first

    def _end_transaction(self, base: int) -> None:
        if self.is_last:
            super()._end_transaction(base)
        else:
            self._append_data(base, self.idempotent)


def test_a_transaction_over_many_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots between tell that it goes on, so that their logs are not read once more for each task."""
    owner, log, copies = made_copies()[0].owner, LongTransaction(random.Random(4)), []
    log._txns = 1
    for number in range(8):
        log.is_last = number == 7
        copies.append(log.roll(owner, 8, number))
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    metadata = metadata_of(archive, tmp_path / "log-dir")
    (entry,) = entries_of(copies[7])
    assert entry["first_offset"] < copies[1].remote.start_offset
    opened: list[int] = []
    windows_of = run_transactions.opened_windows

    def noting(files: Any, base_offset: int, *, is_last: bool) -> Any:
        opened.append(base_offset)
        return windows_of(files, base_offset, is_last=is_last)

    monkeypatch.setattr(run_transactions, "opened_windows", noting)
    last = copies[0].remote.end_offset
    sound = offsets(archive.root, selection=TASKS[1], metadata=metadata)
    assert entry["first_offset"] not in sound
    assert opened == [copies[7].remote.start_offset]
    assert offsets(archive.root, highest_offset=last, metadata=metadata) == [o for o in sound if o <= last]
    entries = entries_of(copies[7]).copy()
    entries["producer_id"] += 1
    archive.rewrite(copies[7], TXN_INDEX, entries.tobytes())
    for tasks, highest in product(TASKS, (None, last)):
        with pytest.raises(DamagedSegmentError, match=": transaction-index-missing: "):
            offsets(archive.root, selection=tasks, highest_offset=highest, metadata=metadata)


@pytest.mark.parametrize("most_known", [0, 4])
def test_segments_outside_the_lineage_end_nothing(
    most_known: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader whose segment was cut off has aborted the transaction, the next one has committed it."""
    monkeypatch.setattr("recovery.archive.records.planned_partition.MOST_AFTER", most_known)
    owner, old = made_copies(topic="fork")[0].owner, MadeLog(random.Random(3))
    shared = old.roll(owner, 8, 0)
    new = deepcopy(old)
    old._txns = 1
    lost = old.roll(owner, 14, 0)
    new.lead(1)
    kept = [new.roll(owner, 8, 0) for _ in range(4)]
    for number, copy in enumerate(kept):
        segment_id = replace(copy.remote, broker_id=2, segment_id=_other_id(copy, number))
        kept[number] = replace(copy, remote=segment_id)
    copies = [shared, lost, *kept]
    archive = write_archive(tmp_path / "archive", "local-tiered", copies)
    metadata = metadata_of(archive, tmp_path / "log-dir")
    sound = offsets(archive.root, metadata=metadata)
    seam, without = shared.remote.end_offset, next(copy for copy in kept if TXN_INDEX in copy.files)
    assert seam in sound
    archive.place(without, TXN_INDEX).unlink()
    for tasks in TASKS:
        assert offsets(archive.root, selection=tasks, metadata=metadata) == sound
        up_to = offsets(archive.root, selection=tasks, metadata=metadata, highest_offset=seam)
        assert up_to == [offset for offset in sound if offset <= seam]


def _other_id(copy: SegmentCopy, number: int) -> Any:
    return type(copy.remote.segment_id)(int=copy.remote.segment_id.int ^ (number + 1))
