"""A copied log with a segment missing is refused before a byte is written, wherever something tells of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoredPartition
from recovery.archive.restore.run import restore
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Level
from recovery.engine.options import RecoverOptions
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from tests.logs.samples import Sample, read_properties, tree_of, unpack

NAME = "plain-1"
MIDDLE, LAST = f"{30:020}", f"{97:020}"


@pytest.fixture
def target(tmp_path: Path) -> Sample:
    """The broker of the sample `intact`, which has lost the partition."""
    sample = unpack("intact", tmp_path / "target")
    for log_dir in sample.log_dirs:
        shutil.rmtree(log_dir / NAME, ignore_errors=True)
    return sample


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The log dir of the sample that has the partition: a copy, in which segments are missing."""
    sample = unpack("intact", tmp_path / "source")
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    assert [log.stem for log in sorted((log_dir / NAME).glob("*.log"))][1:3:1] == [MIDDLE, f"{64:020}"]
    return log_dir


def restored(
    target: Sample,
    copy: Path,
    *,
    dry_run: bool = False,
    topic_configs: dict[str, dict[str, str]] | None = None,
) -> RestoredPartition:
    config = read_properties(target.config.read_text())
    report = restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(copy), partitions=(NAME,)),
            broker=RecoverOptions(
                config=config,
                is_config_complete=True,
                dry_run=dry_run,
                topic_configs=topic_configs or {},
                now_ms=target.now_ms,
            ),
        )
    )
    (one,) = report.partitions
    assert report.exit_code == (4 if one.status == "refused" else 0)
    return one


def _without(copy: Path, stem: str) -> None:
    for path in (copy / NAME).glob(f"{stem}.*"):
        path.unlink()


def _lose_the_middle(copy: Path) -> str:
    _without(copy, MIDDLE)
    return "offsets 30 to 63 are in no segment of the archive"


def _empty_the_middle(copy: Path) -> str:
    (copy / NAME / f"{MIDDLE}.log").write_bytes(b"")
    return "offsets 30 to 63 are in no segment of the archive"


def _lose_the_last(copy: Path) -> str:
    _without(copy, LAST)
    return "its last offset is 96, and "


def _empty_the_last(copy: Path) -> str:
    (copy / NAME / f"{LAST}.log").write_bytes(b"")
    return "its last offset is 96, and "


@pytest.mark.parametrize("lose", [_lose_the_middle, _empty_the_middle, _lose_the_last, _empty_the_last])
def test_it_is_refused_by_name(target: Sample, copy: Path, lose: Callable[[Path], str]) -> None:
    reason = lose(copy)
    before = [tree_of(log_dir, ignore=(".lock",)) for log_dir in target.log_dirs]
    for dry_run in (True, False):
        one = restored(target, copy, dry_run=dry_run)
        assert one.status == "refused"
        assert one.reasons[0].startswith(reason)
        assert "Remedy: " in one.reasons[0]
    assert [tree_of(log_dir, ignore=(".lock",)) for log_dir in target.log_dirs] == before


def test_a_compacted_log_has_gaps(target: Sample, copy: Path) -> None:
    _lose_the_middle(copy)
    one = restored(target, copy, topic_configs={"plain": {"cleanup.policy": "compact"}})
    assert (one.status, one.segments) == ("restored", 3)


def test_a_log_that_was_cleaned_has_gaps(target: Sample, copy: Path) -> None:
    _lose_the_middle(copy)
    (copy / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({("plain", 1): 64}))
    assert restored(target, copy).status == "restored"


def test_committed_offsets_that_are_gone_are_told(target: Sample, copy: Path) -> None:
    """The high watermark is what a recovery leaves: once the rest agrees, the loss is a warning."""
    _lose_the_last(copy)
    checkpoint = copy / "recovery-point-offset-checkpoint"
    lines = read_offset_checkpoint(checkpoint.read_bytes())
    checkpoint.write_bytes(encode_offset_checkpoint(lines | {("plain", 1): 97}))
    for path in (copy / NAME).glob("*107.snapshot"):
        path.unlink()
    one = restored(target, copy)
    assert (one.status, one.log_end_offset) == ("restored", 97)
    assert any(text.startswith("offsets 97 to 106 were committed") for text in one.warnings)


@pytest.mark.parametrize("checkpoint", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_what_the_target_had_more_is_told(target: Sample, copy: Path, checkpoint: str) -> None:
    """An older copy of a log whose disk is gone; in another cluster the lines are those of another topic."""
    for log_dir in target.log_dirs:
        for path in log_dir.glob("*-offset-checkpoint"):
            path.write_bytes(encode_offset_checkpoint({}))
    path = target.log_dirs[1] / checkpoint
    path.write_bytes(encode_offset_checkpoint({("plain", 1): 107}))
    assert not [text for text in restored(target, copy, dry_run=True).warnings if "had offsets" in text]
    path.write_bytes(encode_offset_checkpoint({("plain", 1): 200}))
    for dry_run in (True, False):
        texts = [text for text in restored(target, copy, dry_run=dry_run).warnings if "had offsets" in text]
        assert texts == [
            f"this broker's log had offsets 107 to 199, by {path}, and they are not in the archive. Remedy: where "
            "another replica has them, let that lead instead"
        ]


def test_a_log_start_that_cannot_be_read_is_no_missing_one(target: Sample, copy: Path) -> None:
    """A broker would begin with the first segment, and deleted records would be back without a word."""
    checkpoint = copy / "log-start-offset-checkpoint"
    checkpoint.write_text("junk\n")
    for dry_run in (True, False):
        (reason,) = restored(target, copy, dry_run=dry_run).reasons
        assert reason.startswith(
            f"{checkpoint.name}: line 1: 'junk' is not an int32, so where the log begins"
        )
    checkpoint.unlink()
    assert restored(target, copy).status == "restored"


@pytest.mark.parametrize(
    "name",
    ["cleaner-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"],
)
def test_what_a_checkpoint_does_not_tell_is_said(target: Sample, copy: Path, name: str) -> None:
    (copy / name).write_text("junk\n")
    one = restored(target, copy)
    assert one.status == "restored"
    assert [text for text in one.warnings if text.startswith(f"{name}: line 1: 'junk' is not an int32, so ")]


def test_a_folder_that_cannot_be_listed_is_one_partition(
    target: Sample, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalStore.list_level

    def list_level(self: LocalStore, prefix: str) -> Level:
        if prefix == "transactions-0/":
            raise PermissionError(13, "Permission denied", prefix)
        return real(self, prefix)

    names = [NAME, next(path.name for path in sorted(copy.iterdir()) if path.name == "transactions-0")]
    monkeypatch.setattr(LocalStore, "list_level", list_level)
    report = restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(copy), partitions=tuple(names)),
            broker=RecoverOptions(
                config=read_properties(target.config.read_text()),
                is_config_complete=True,
                now_ms=target.now_ms,
            ),
        )
    )
    assert {f"{one.topic}-{one.partition}": one.status for one in report.partitions} == {
        NAME: "restored",
        "transactions-0": "refused",
    }
    assert report.exit_code == 4
