"""The marker of a clean shutdown vouches for all logs beside it: it is at the output only while it may."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from recovery.archive.copy.file_copy import CopyJob, CopyOutcome, FileCopier
from recovery.archive.copy.manifest import read_document
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from recovery.errors import UsageError
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.faults.bad_sector import bad_sector
from tests.logs.samples import tree_of, unpack
from tests.runs.command import run

LEFT_OUT = (
    f"so the copy has no {CLEAN_SHUTDOWN_FILE}: a broker, or recover, recovers its logs as after a crash"
)


class Place:
    """A log dir that was shut down cleanly, and an output."""

    def __init__(self, root: Path) -> None:
        self.log_dir = unpack("stopped", root).log_dirs[0]
        self.output = root / "copy"
        self.folder = self.output / self.log_dir.name
        self.log = max((self.log_dir / "plain-1").glob("*.log"), key=lambda path: path.stat().st_size)
        self.marker = self.log_dir / CLEAN_SHUTDOWN_FILE

    def copy(self, **more: object) -> CopyReport:
        return copy(CopyOptions(output=str(self.output), log_dirs=(str(self.log_dir),), **more))  # type: ignore[arg-type]  # by name

    def run_broker(self, *, is_clean: bool) -> None:
        """As after a broker has run on the log dir, and appended to a log."""
        self.log.write_bytes(self.log.read_bytes() + self.log.read_bytes()[:100])
        for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT):
            data = (self.log_dir / name).read_bytes() if (self.log_dir / name).exists() else b"x"
            (self.log_dir / name).unlink(missing_ok=True)
            if is_clean or name != CLEAN_SHUTDOWN_FILE:
                (self.log_dir / name).write_bytes(data)

    @property
    def has_marker(self) -> bool:
        return (self.folder / CLEAN_SHUTDOWN_FILE).exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_is_not_there_while_a_file_is_not(place: Place) -> None:
    with bad_sector(place.log, 0):
        report = place.copy()
    assert (report.exit_code, place.has_marker) == (4, False)
    assert report.warnings == [f"{place.log_dir}: not all of it was copied as it is, {LEFT_OUT}"]
    (one,) = report.log_dirs
    assert (one.left_files, one.left_bytes) == (0, 0)
    shutil.copytree(place.output, place.output.parent / "used")
    done = run("recover", "--log-dirs", str(place.output.parent / "used" / place.log_dir.name))
    assert "Skipping recovery" not in done.stderr
    unfinished = read_document(LocalStore(str(place.output))).unfinished
    assert unfinished == {f"{place.log_dir.name}/plain-1/"}

    report = place.copy()
    assert (report.exit_code, report.warnings, place.has_marker) == (0, [], True)
    assert report.log_dirs[0].files == 2
    again = place.copy()
    assert (again.log_dirs[0].files, again.log_dirs[0].left_files) == (0, 0)
    names = {name for name in tree_of(place.log_dir) if not name.endswith((".lock", "/"))}
    assert again.log_dirs[0].skipped_files == len(names)


def test_one_of_before_goes_first_and_the_new_one_comes_last(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.copy()
    place.run_broker(is_clean=True)
    real, sent = FileCopier.copy, []

    def send(self: FileCopier, job: CopyJob) -> CopyOutcome | None:
        sent.append((job.file.path, place.has_marker, place.log_dir.name + "/" in unfinished()))
        return real(self, job)

    def unfinished() -> frozenset[str]:
        return read_document(LocalStore(str(place.output))).unfinished

    monkeypatch.setattr(FileCopier, "copy", send)
    assert place.copy().exit_code == 0
    assert {had_marker for _, had_marker, _ in sent} == {False}
    assert sent[-1] == (str(place.marker), False, False)
    assert place.has_marker


def test_one_of_before_that_cannot_be_removed_does_not_keep_the_rest_from_being_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bucket that lets nothing be deleted."""

    def refuse(_self: LocalStore, key: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), key)

    place.copy()
    place.run_broker(is_clean=True)
    monkeypatch.setattr(LocalStore, "remove", refuse)
    with bad_sector(place.log_dir / RECOVERY_POINT_CHECKPOINT, 0):
        report = place.copy()
    (warning,) = report.warnings
    assert report.exit_code == 4
    assert warning.startswith(
        f"{place.folder}/{CLEAN_SHUTDOWN_FILE}: of before, and cannot be removed: {os.strerror(errno.EACCES)}. Remedy: "
    )
    assert (place.folder / "plain-1" / place.log.name).read_bytes() == place.log.read_bytes()
    report = place.copy()
    assert (report.exit_code, report.warnings) == (0, [])
    assert (place.folder / CLEAN_SHUTDOWN_FILE).stat().st_mtime_ns > place.marker.stat().st_mtime_ns
    place.marker.unlink()
    assert place.copy().warnings == [warning]


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_that_is_interrupted_leaves_none(
    place: Place, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    place.copy()
    place.run_broker(is_clean=True)
    with monkeypatch.context() as patch:
        patch.setattr(FileCopier, "copy", lambda _self, _job: None)
        report = place.copy(restart=restart)
    assert not place.has_marker
    assert CLEAN_SHUTDOWN_FILE not in (place.output / "kafka-log-recovery-copy.jsonl").read_text()
    assert report.log_dirs[0].left_files >= 2
    place.copy()
    assert place.has_marker


def test_one_that_somebody_has_removed_at_the_output_vouches_for_nothing_any_more(place: Place) -> None:
    place.copy()
    (place.folder / CLEAN_SHUTDOWN_FILE).unlink()
    place.run_broker(is_clean=False)
    assert place.copy().exit_code == 0
    assert CLEAN_SHUTDOWN_FILE not in (place.output / "kafka-log-recovery-copy.jsonl").read_text()
    place.marker.write_bytes(b"x")
    report = place.copy(topics=("deleted-records",))
    assert not place.has_marker
    assert any(LEFT_OUT in text for text in report.warnings)
    assert place.copy().exit_code == 0
    assert place.has_marker


def test_it_stays_as_long_as_nothing_is_to_be_sent(place: Place) -> None:
    place.copy()
    before = (place.folder / CLEAN_SHUTDOWN_FILE).stat()
    with bad_sector(place.log, 0):
        report = place.copy()
        assert (report.exit_code, report.warnings) == (0, [])
        assert (place.folder / CLEAN_SHUTDOWN_FILE).stat().st_ino == before.st_ino
        os.utime(place.log)
        assert place.copy().exit_code == 4
    assert not place.has_marker


def test_one_of_chosen_partitions_does_not_vouch_for_others(place: Place) -> None:
    place.copy(topics=("deleted-records",))
    assert place.has_marker
    with bad_sector(place.log, 0):
        assert place.copy().exit_code == 4
    assert not place.has_marker
    assert place.copy().exit_code == 0
    assert place.has_marker


def test_one_of_chosen_partitions_does_not_vouch_for_older_ones(place: Place) -> None:
    place.copy()
    place.run_broker(is_clean=True)
    place.copy(topics=("deleted-records",))
    assert place.has_marker
    with bad_sector(place.log, 0):
        assert place.copy().exit_code == 4
    assert not place.has_marker


def test_it_does_not_vouch_for_what_is_written_to_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FileCopier._send

    def send(self: FileCopier, job: CopyJob, *arguments: object) -> CopyOutcome:
        if job.file.path == str(place.log):
            os.utime(place.log)
        return real(self, job, *arguments)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(FileCopier, "_send", send)
    report = place.copy()
    assert not place.has_marker
    assert report.warnings[-1].endswith(LEFT_OUT)


def test_it_does_not_vouch_for_other_partitions_of_before_a_crash(place: Place) -> None:
    data = place.marker.read_bytes()
    place.marker.unlink()
    (place.log_dir / CLEANER_OFFSET_CHECKPOINT).unlink()
    place.copy()
    before = tree_of(place.folder)
    place.marker.write_bytes(data)
    place.run_broker(is_clean=True)
    (place.log_dir / CLEANER_OFFSET_CHECKPOINT).write_bytes(b"0\n0\n")
    report = place.copy(topics=("deleted-records",))
    assert tree_of(place.folder) == before
    assert [LEFT_OUT in warning for warning in report.warnings] == [False, True]
    assert report.warnings[1].endswith("Remedy: copy all of it")
    assert place.copy().warnings == []
    assert place.has_marker


def test_checkpoints_that_could_not_be_read_before_come_with_other_partitions(place: Place) -> None:
    with bad_sector(place.log_dir / RECOVERY_POINT_CHECKPOINT, 0):
        assert place.copy(topics=("plain",)).exit_code == 4
    place.copy(topics=("deleted-records",))
    assert (place.folder / RECOVERY_POINT_CHECKPOINT).exists()


def test_partition_by_partition_it_stays(place: Place) -> None:
    for topic in ("plain", "deleted-records", "__cluster_metadata"):
        assert place.copy(topics=(topic,)).warnings == []
        assert place.has_marker
    place.run_broker(is_clean=True)
    place.copy(topics=("plain",))
    assert place.has_marker
    place.run_broker(is_clean=False)
    place.copy(topics=("deleted-records",))
    assert not place.has_marker


def test_a_topic_that_is_not_there_changes_nothing(place: Place) -> None:
    place.copy()
    before = tree_of(place.output)
    place.marker.unlink()
    with pytest.raises(UsageError, match="--topic nope: not found"):
        place.copy(topics=("nope",))
    assert tree_of(place.output) == before
