"""Bytes that wait on disk: the same bytes, no name, and memory where there is no disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from recovery.load.log_reader import LogReader
from recovery.load.model import LogSettings, Original, ScanRequest
from recovery.load.segments import without_tables
from recovery.load.tree import PartitionTree
from recovery.read.spool import LEAST_BYTES, Spool, SpooledBytes
from tests.logs.builders import data_batch
from tests.recovery.load import memory


def test_large_ones_lie_on_disk_without_a_name(tmp_path: Path) -> None:
    first, second = os.urandom(LEAST_BYTES), os.urandom(LEAST_BYTES + 7)
    before = tmp_path.stat().st_mtime_ns
    spool = Spool(str(tmp_path))
    kept = [spool.keep(first), spool.keep(b"small"), spool.keep(second)]
    assert [bytes(one) for one in kept] == [first, b"small", second]
    assert [len(one) for one in kept] == [LEAST_BYTES, 5, LEAST_BYTES + 7]
    assert [isinstance(one, SpooledBytes) for one in kept] == [True, False, True]
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns == before
    spool.close()


def test_of_a_dry_run_they_lie_among_the_temporary_files() -> None:
    spool = Spool(None)
    data = os.urandom(LEAST_BYTES)
    kept = spool.keep(data)
    assert isinstance(kept, SpooledBytes)
    assert bytes(kept) == data
    spool.close()


def test_they_stay_in_memory_where_there_is_no_place(tmp_path: Path) -> None:
    assert Spool(str(tmp_path / "missing")).keep(bytes(LEAST_BYTES)) == bytes(LEAST_BYTES)


def test_they_stay_in_memory_where_the_disk_is_nearly_full(tmp_path: Path, monkeypatch) -> None:
    found = list(os.statvfs(tmp_path))
    found[4] = (4 * LEAST_BYTES - 1) // found[1]  # f_bavail, in f_frsize
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(found))
    spool = Spool(str(tmp_path))
    assert isinstance(spool.keep(bytes(LEAST_BYTES)), bytes)
    spool.close()


def test_what_is_asked_for_after_the_end_is_an_error(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    kept = spool.keep(bytes(LEAST_BYTES))
    spool.close()
    with pytest.raises(ValueError, match="closed"):
        bytes(kept)


def test_a_segment_keeps_no_tables_of_its_scan() -> None:
    source = memory.MemorySource(
        {memory.name(0): b"".join(data_batch(at, value_bytes=5000) for at in range(50))},
        LogSettings(),
    )
    size = len(source.files[memory.name(0)])
    asked = ScanRequest(part=Original(file=memory.name(0), size_bytes=size), base_offset=0)
    scan = source.scan(asked)
    kept = without_tables(scan)
    assert len(scan.offset_index) > 10
    assert all(value.base is None and not value.size for value in kept if isinstance(value, np.ndarray))
    assert (kept.batch_count, kept.last_offset) == (50, 49)


def test_a_reader_remembers_scans_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(data_batch(at, value_bytes=5000) for at in range(50))
    source = memory.MemorySource({memory.name(0): data}, LogSettings())
    asked = ScanRequest(part=Original(file=memory.name(0), size_bytes=len(data)), base_offset=0)
    made: list[ScanRequest] = []
    scan = source.scan
    monkeypatch.setattr(source, "scan", lambda request: (made.append(request), scan(request))[1])

    def read_twice() -> int:
        made.clear()
        reader = LogReader(PartitionTree({}, source), source, str)
        for _ in range(2):
            reader.recovery_scan(asked)
        return len(made)

    assert read_twice() == 1
    monkeypatch.setattr("recovery.load.log_reader._MOST_KEPT_BYTES", 100)
    assert read_twice() == 2
