"""Where archives end: found by the end of the last log, whatever the index says, and never after what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.archive_ends import ArchiveEnds
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.read_options import ReadOptions
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.stores.stores import open_store
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import LOG, batch_positions, made_copies, write_archive
from tests.logs.samples import unpack
from tests.runs.readings import read


def ends_of(
    path: Path, *, topic: str = "plain", metadata: tuple[Path, ...] = (), is_committed: bool = False
) -> dict[tuple[str, int], int]:
    store = open_store(str(path))
    layout = layout_of(store)
    selection = Selection(topics=frozenset({topic}))
    options = ReadOptions(is_committed=is_committed)
    request = ReadRequest(
        url=store.url, layout=layout.name, options=options, selection=selection, needs_aborted=is_committed
    )
    with BrokerView(open_store(str(log_dir)) for log_dir in metadata) as broker:
        spans = ArchiveEnds(store, layout, request).find(
            selection, broker if metadata else None, on_seen=lambda _: None, on_note=lambda _: None
        )
        return {span.key[:2]: span.end_offset for span in spans}


def last_offsets(path: Path, topic: str = "plain") -> dict[tuple[str, int], int]:
    rows = read(path, "topic", "partition", "offset", selection=Selection(topics=frozenset({topic})))
    return {(row["topic"], row["partition"]): row["offset"] for row in rows}


@pytest.fixture
def archive(stored_archive: TieredArchive, tmp_path: Path) -> Path:
    """The topic `plain` of the tiered sample."""
    for folder in stored_archive.path.glob("plain-*"):
        shutil.copytree(folder, tmp_path / "archive" / folder.name)
    return tmp_path / "archive"


def test_are_after_the_last_record(archive: Path, stored_archive: TieredArchive) -> None:
    ends = ends_of(archive)
    assert ends == {partition: offset + 1 for partition, offset in last_offsets(archive).items()}
    assert ends == ends_of(archive, metadata=stored_archive.log_dirs)
    assert len(ends) == 2


@pytest.mark.parametrize("damage", ["zeros", "random", "cut"])
def test_do_not_depend_on_the_index(archive: Path, damage: str) -> None:
    expected = ends_of(archive)
    for path in archive.glob("*/*.index"):
        junk = {"zeros": bytes(64), "random": b"\x00\x00\x00\x07\x00\x00\x01\x0b" * 8}
        path.write_bytes(junk.get(damage, path.read_bytes()[:5]))
    assert ends_of(archive) == expected


def test_of_an_upload_under_way_are_before_it(archive: Path) -> None:
    last = max((path for path in archive.glob("plain-0-*/*.log")), key=lambda path: path.name)
    last.with_suffix(".index").unlink()
    assert ends_of(archive)["plain", 0] == int(last.name.partition("-")[0])


def test_of_a_growing_copy_are_after_its_last_whole_batch(tmp_path: Path) -> None:
    folder = next(unpack("intact", tmp_path).root.glob("d?/plain-0"))
    whole = ends_of(folder)["plain", 0]
    assert whole == last_offsets(folder)["plain", 0] + 1
    log = max(folder.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-10])
    cut = ends_of(folder)["plain", 0]
    assert int(log.stem) < cut < whole
    assert cut == last_offsets(folder)["plain", 0] + 1


def test_of_committed_records_are_stable(stored_archive: TieredArchive) -> None:
    whole = ends_of(stored_archive.path, topic="transactions")
    stable = ends_of(stored_archive.path, topic="transactions", is_committed=True)
    assert any(stable[partition] < whole[partition] for partition in whole)
    assert all(stable[partition] <= whole[partition] for partition in whole)


@pytest.mark.parametrize("layout", ["plain", "local-tiered"])
@pytest.mark.parametrize("bit", [0, 10, 40])
def test_a_wrong_base_offset_never_raises_the_end(tmp_path: Path, layout: str, bit: int) -> None:
    copies = made_copies(topic="plain", segments=2)
    written = write_archive(tmp_path / "archive", layout, copies)
    end = ends_of(written.root)["plain", 0]
    assert end == copies[-1].remote.end_offset + 1
    log = written.place(copies[-1], LOG)
    data = bytearray(log.read_bytes())
    before, last, _ = batch_positions(bytes(data))[-3:]
    offset = int.from_bytes(data[last : last + 8])
    data[last : last + 8] = (offset ^ 1 << bit).to_bytes(8)
    log.write_bytes(data)
    assert ends_of(written.root)["plain", 0] == offset
    data[before : before + 8] = bytes(8)  # a single batch after a damaged one proves nothing either
    log.write_bytes(data)
    assert ends_of(written.root)["plain", 0] <= offset
