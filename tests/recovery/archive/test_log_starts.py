"""Where logs begin by checkpoints: a line that cannot be right leaves out nothing in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.errors import DamagedSegmentError
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from segfmt.kafka_uuid import read_uuid
from segfmt.partition_metadata import PartitionMetadata, encode_partition_metadata
from tests.logs.archives import WrittenArchive, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.runs.readings import read

COPIES = made_copies(segments=4)
END = COPIES[-1].remote.end_offset + 1
NAMES = ("offset", "fault")


def write_start(log_dir: Path, start_offset: int | str) -> None:
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\nmade 0 {start_offset}\n")


def made(tmp_path: Path, name: str) -> tuple[WrittenArchive, Path, tuple[Path, ...]]:
    """An archive, the log dir with its checkpoint, and what is given as `metadata`."""
    archive = write_archive(tmp_path / "archive", name, COPIES)
    if name == "plain":
        return archive, archive.root, ()
    log_dir = write_archive(tmp_path / "log-dir", "plain", COPIES).root
    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
    return archive, log_dir, (log_dir,)


@pytest.mark.parametrize("name", ["plain", "local-tiered"])
def test_the_line_decides_up_to_the_end_of_the_log(name: str, tmp_path: Path) -> None:
    archive, log_dir, metadata = made(tmp_path, name)
    everything = [row["offset"] for row in read(archive.root, "offset", metadata=metadata)]
    for start_offset in (0, COPIES[1].remote.start_offset + 3, END - 1, END):
        write_start(log_dir, start_offset)
        found = [row["offset"] for row in read(archive.root, "offset", metadata=metadata)]
        assert found == [offset for offset in everything if offset >= start_offset]


@pytest.mark.parametrize("name", ["plain", "local-tiered"])
@pytest.mark.parametrize("start_offset", [END + 1, 5000])
def test_a_line_after_the_end_of_the_log(name: str, start_offset: int, tmp_path: Path) -> None:
    archive, log_dir, metadata = made(tmp_path, name)
    everything = read(archive.root, *NAMES, metadata=metadata)
    write_start(log_dir, start_offset)
    with pytest.raises(
        DamagedSegmentError,
        match=rf"{log_dir}/{LOG_START_OFFSET_CHECKPOINT}: log-start: made-0: log start offset {start_offset}, "
        rf"the log ends at {END}. Remedy: .*corrupt=skip",
    ):
        read(archive.root, *NAMES, metadata=metadata)
    left_out: list[LeftOut] = []
    options = ReadOptions(corrupt=Corrupt.SKIP)
    assert read(archive.root, *NAMES, options=options, metadata=metadata, left_out=left_out) == everything
    assert [one.rule for one in left_out if one.is_damage] == ["log-start"]
    rows = read(archive.root, *NAMES, options=ReadOptions(corrupt=Corrupt.INCLUDE), metadata=metadata)
    assert [row for row in rows if row["fault"] is None] == everything
    assert len(rows) == len(everything) + 1


def test_a_malformed_checkpoint_is_named(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", "plain", COPIES)
    everything = read(archive.root, *NAMES)
    (archive.root / LOG_START_OFFSET_CHECKPOINT).write_text("garbage\n")
    with pytest.raises(
        DamagedSegmentError, match=rf"/{LOG_START_OFFSET_CHECKPOINT}: checkpoint: line 1: .*Remedy: "
    ):
        read(archive.root, *NAMES)
    assert read(archive.root, *NAMES, options=ReadOptions(corrupt=Corrupt.SKIP)) == everything


def test_another_topic_of_the_name_says_nothing(tmp_path: Path) -> None:
    """The log dirs hold a topic that was created anew; the older one is chosen by its id."""
    older, newer = "AAAAAAAAAAAAAAAAAAAAAQ", "BAAAAAAAAAAAAAAAAAAAAQ"
    archive = write_archive(tmp_path / "archive", "plain", COPIES)
    log_dir = write_archive(tmp_path / "log-dir", "plain", COPIES[:1]).root
    for root, topic_id in ((archive.root, older), (log_dir, newer)):
        (root / "made-0" / "partition.metadata").write_bytes(
            encode_partition_metadata(PartitionMetadata(topic_id=read_uuid(topic_id)))
        )
    write_start(log_dir, 20)
    for is_committed in (False, True):
        options = ReadOptions(is_committed=is_committed)
        selection = Selection(topic_ids=frozenset({older}))
        expected = read(archive.root, "offset", options=options)
        assert (
            read(archive.root, "offset", options=options, selection=selection, metadata=(log_dir,))
            == expected
        )
