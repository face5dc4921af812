"""What becomes of a log that is there, and of a log start that this broker knows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.restore.report import RestoredPartition
from segfmt import byte_layout
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT, log_name
from segfmt.record_batch import walk_batches
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.recovery.archive.restore.test_restore import LOST, one_of, restored, trees, with_losses

NAME = "codecs-0"
END = 2086


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return with_losses(tmp_path)


def empty_folder(archive: TieredArchive, *names: str) -> Path:
    """Make the partition's folder with empty files of these names, as of its topic."""
    folder = archive.root / LOST[NAME] / NAME
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    shutil.copy(archive.root.parent / "lost" / LOST[NAME] / NAME / "partition.metadata", folder)
    return folder


def both(archive: TieredArchive, *, is_aux: bool) -> RestoredPartition:
    """What a dry run foretells, and a run then says; both must say the same."""
    said = [
        one_of(restored(archive, names=[NAME], is_aux=is_aux, broker={"dry_run": dry_run}), NAME)
        for dry_run in (True, False)
    ]
    assert said[0].status == said[1].status
    assert said[0].reasons == said[1].reasons
    return said[1]


def begin_at(archive: TieredArchive, offset: int) -> Path:
    """Let the broker's checkpoint say that the log begins there."""
    path = archive.root / LOST[NAME] / LOG_START_OFFSET_CHECKPOINT
    lines = read_offset_checkpoint(path.read_bytes())
    path.write_bytes(encode_offset_checkpoint(lines | {("codecs", 0): offset}))
    return path


@pytest.mark.parametrize("is_aux", [False, True])
def test_offsets_are_not_used_a_second_time(archive: TieredArchive, is_aux: bool) -> None:
    """An empty log may begin behind the archive's end: its records were deleted, or its first part is not archived."""
    folder = empty_folder(archive, log_name(END + 1))
    before = trees(archive)
    one = both(archive, is_aux=is_aux)
    assert one.status == "refused"
    (reason,) = one.reasons
    assert reason.startswith(
        f"{folder} is empty, and its next offset is {END + 1}; restored it would be {END}, "
    )
    assert trees(archive) == before
    folder.rename(archive.root / "moved-out")
    assert both(archive, is_aux=is_aux).status == "restored"


def test_an_empty_log_at_the_archives_end_is_replaced(archive: TieredArchive) -> None:
    empty_folder(archive, log_name(END))
    one = both(archive, is_aux=False)
    assert (one.status, one.log_end_offset) == ("restored", END)


def test_an_empty_log_with_a_name_that_says_no_offset_is_replaced(archive: TieredArchive) -> None:
    """A broker would not start with it."""
    empty_folder(archive, "copy of it.log")
    assert both(archive, is_aux=False).status == "restored"


def test_an_empty_log_is_no_auxiliary_state(archive: TieredArchive) -> None:
    """Without producers, leader epochs and log start, a broker would serve nothing and delete what is archived."""
    folder = empty_folder(archive, log_name(END))
    assert both(archive, is_aux=True).status == "restored"
    assert (folder / f"{END:020}.snapshot").is_file()
    assert both(archive, is_aux=True).status == "unchanged"


def test_records_that_a_compaction_was_about_to_put_in_place_are_records(archive: TieredArchive) -> None:
    folder = empty_folder(archive, log_name(31))
    (folder / f"{log_name(0)}.swap").write_bytes(b"records")
    one = both(archive, is_aux=False)
    assert one.status == "refused"
    assert "has records" in one.reasons[0]


@pytest.mark.parametrize("is_aux", [False, True])
def test_deleted_records_stay_deleted_up_to_the_archives_end(archive: TieredArchive, is_aux: bool) -> None:
    path = begin_at(archive, END)
    one = both(archive, is_aux=is_aux)
    assert (one.status, one.log_start_offset, one.log_end_offset) == ("restored", END, END)
    assert any(text.startswith(f"offsets 0 to {END - 1} are left out: ") for text in one.warnings)
    assert any("a broker deletes them from remote storage" in text for text in one.warnings) == is_aux
    assert read_offset_checkpoint(path.read_bytes())["codecs", 0] == END


@pytest.mark.parametrize("is_aux", [False, True])
def test_a_log_that_begins_behind_the_archive_is_refused(archive: TieredArchive, is_aux: bool) -> None:
    path = begin_at(archive, END + 1)
    one = both(archive, is_aux=is_aux)
    assert one.status == "refused"
    assert "Remedy: take that line out, and one off the number of lines at the top, if" in one.reasons[0]
    lines = read_offset_checkpoint(path.read_bytes())
    assert lines["codecs", 0] == END + 1
    text = path.read_text().replace(f"codecs 0 {END + 1}\n", "")
    path.write_text(text.replace(f"0\n{len(lines)}\n", f"0\n{len(lines) - 1}\n", 1))
    assert both(archive, is_aux=is_aux).status == "restored"


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        (None, "unchanged"),
        (byte_layout.PARTITION_LEADER_EPOCH_POSITION, "unchanged"),  # as one that was renumbered
        (byte_layout.BATCH_CRC_POSITION, "refused"),
        (byte_layout.ATTRIBUTES_POSITION, "refused"),
    ],
)
def test_a_log_of_other_records_is_not_taken_for_the_archived_one(
    tmp_path: Path, changed: int | None, status: str
) -> None:
    """Another log of one segment has the same name, and may be larger: one that a broker has begun anew, say."""
    archive = unpack_tiered(tmp_path)
    output = str(tmp_path / "copy")
    copy(CopyOptions(output=output, log_dirs=tuple(map(str, archive.log_dirs))))
    (path,) = archive.root.glob("*/__transaction_state-0/*.log")
    data = path.read_bytes()
    *_, last = walk_batches(data)
    other = bytearray(data)
    if changed is not None:
        other[last.position + changed + 1] ^= 1
    path.write_bytes(bytes(other) + data[last.position :])  # a broker has gone on
    name = "__transaction_state-0"
    for dry_run in (True, False):
        one = one_of(restored(archive, url=output, names=[name], broker={"dry_run": dry_run}), name)
        assert one.status == status, one.reasons
