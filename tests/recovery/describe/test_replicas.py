"""Which folders of a log dir are replicas, and where their logs end, as their files say."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from recovery.describe import replicas
from recovery.describe.replicas import list_replicas, log_end, replica_bytes
from tests.logs.samples import Sample, unpack


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("stopped", tmp_path)


def one_of(log_dir: Path, name: str) -> replicas.Replica:
    return next(one for one in list_replicas(str(log_dir)).replicas if Path(one.path).name == name)


def largest(log_dir: Path) -> Path:
    """The folder of the log with the most segments."""
    folders = [path for path in log_dir.glob("*-*") if path.name[:2] != "__"]
    return max(folders, key=lambda path: (len(list(path.glob("*.log"))), path.name))


def test_what_is_no_segment_does_not_count(sample: Sample) -> None:
    """A folder has the name of one, an odd name has no offset."""
    folder = largest(sample.log_dirs[0])
    before = one_of(folder.parent, folder.name)
    (folder / f"{9**9:020}.log").mkdir()
    (folder / "odd.log").write_bytes(b"x")
    assert one_of(folder.parent, folder.name) == before


def test_a_folder_that_vanishes_meanwhile(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = largest(sample.log_dirs[0])
    look_at = replicas._look_at

    def meanwhile(path: str, *arguments: Any) -> replicas.Replica:
        if path == str(folder):
            shutil.rmtree(folder, ignore_errors=True)
        return look_at(path, *arguments)

    before = [one.path for one in list_replicas(str(folder.parent)).replicas]
    monkeypatch.setattr(replicas, "_look_at", meanwhile)
    assert [one.path for one in list_replicas(str(folder.parent)).replicas] == [
        path for path in before if path != str(folder)
    ]


def test_a_log_without_batches_ends_where_its_segment_begins(sample: Sample) -> None:
    folder = largest(sample.log_dirs[0])
    base_offset = 10**6
    (folder / f"{base_offset:020}.log").touch()
    assert log_end(one_of(folder.parent, folder.name)) == (base_offset, 0)


def test_a_folder_in_place_of_the_index_is_no_index(sample: Sample) -> None:
    folder = largest(sample.log_dirs[0])
    before = one_of(folder.parent, folder.name)
    end = log_end(before)
    index = (folder / before.active).with_suffix(".index")
    index.unlink(missing_ok=True)
    index.mkdir()
    assert log_end(one_of(folder.parent, folder.name)) == end


def test_an_index_entry_is_used_only_if_it_fits_its_batch(sample: Sample) -> None:
    """One that points to a batch of higher offsets does not: batches may be missing before it."""
    folder = largest(sample.log_dirs[0])
    first = min(folder.glob("*.log"))
    for path in folder.glob("*.*"):
        if path.name[:20] != first.stem:
            path.unlink()
    replica = one_of(folder.parent, folder.name)
    spans = list(replicas._last_batches(replica, 0))
    first.with_suffix(".index").unlink()
    whole = list(replicas._last_batches(replica, 0))
    assert len(whole) > 2
    assert spans[-1] == whole[-1]
    last = whole[-1]
    for offset, expected in (
        (last.base_offset, 1),
        (last.last_offset, 1),
        (last.base_offset - 1, len(whole)),
    ):
        entries = struct.pack(">iiii", whole[0].last_offset, 0, offset, last.position)
        first.with_suffix(".index").write_bytes(entries + bytes(80))
        assert len(list(replicas._last_batches(replica, 0))) == expected


def test_an_index_entry_of_a_batch_before_the_segment_is_not_used(sample: Sample) -> None:
    folder = largest(sample.log_dirs[0])
    first = min(folder.glob("*.log"))
    for path in folder.glob("*.*"):
        if path.name[:20] != first.stem:
            path.unlink()
    first.with_suffix(".index").unlink()
    replica = one_of(folder.parent, folder.name)
    whole = list(replicas._last_batches(replica, 0))
    base_offset = whole[2].base_offset
    (folder / f"{base_offset:020}.index").write_bytes(struct.pack(">ii", 0, whole[1].position) + bytes(80))
    assert len(list(replicas._last_batches(replica, base_offset))) == len(whole)
    (folder / f"{base_offset:020}.index").write_bytes(struct.pack(">ii", 0, whole[2].position) + bytes(80))
    assert len(list(replicas._last_batches(replica, base_offset))) == len(whole) - 2


def test_a_last_zero_of_records_is_no_preallocation(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most records end with a zero: such a segment is not followed to its end."""
    folder = largest(sample.log_dirs[0])
    replica = one_of(folder.parent, folder.name)

    def never(_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(replicas, "log_end", never)
    active = folder / replica.active
    data = active.read_bytes()
    active.write_bytes(data[:-2] + b"\x01\0")
    assert replica_bytes(replica) == replica.closed_bytes + os.path.getsize(active)
