"""Copies off a disk with bad sectors: what is read of it, what is kept, and that a later run loses nothing."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.reading import BLOCK_BYTES
from recovery.archive.copy.report import CopiedLogDir, CopyReport, UncopiedFile
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from tests.faults.bad_sector import bad_sector

SIZE_BYTES = 5 << 20
BAD = (3 << 20) + 50_000
KEPT = BAD // BLOCK_BYTES * BLOCK_BYTES
WINDOW = 1 << 20


class Disk:
    """A log dir of two files, one of which is large, and where it is copied to."""

    def __init__(self, root: Path) -> None:
        self.log_dir, self.output = root / "d1", root / "copy"
        self.large = self.log_dir / "t-0" / f"{0:020}.log"
        self.large.parent.mkdir(parents=True)
        self.large.write_bytes(os.urandom(SIZE_BYTES))
        (self.log_dir / "t-0" / "partition.metadata").write_text("version: 0\n")
        self.whole = self.output / "d1" / "t-0" / self.large.name
        self.part = Path(f"{self.whole}.partial")

    def copy(self, **more: object) -> CopyReport:
        return copy(CopyOptions(output=str(self.output), log_dirs=(str(self.log_dir),), **more))  # type: ignore[arg-type]  # by name

    def failed(self, report: CopyReport) -> UncopiedFile:
        (failed,) = report.log_dirs[0].failed
        assert report.exit_code == 4
        assert failed.file == str(self.large)
        return failed

    def copy_with_bad_sector(self, position: int = BAD, **more: object) -> UncopiedFile:
        with bad_sector(self.large, position):
            return self.failed(self.copy(**more))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_bad_sector_is_approached_in_blocks_and_asked_for_once_more_at_most(disk: Disk) -> None:
    with bad_sector(disk.large, BAD) as reads:
        failed = disk.failed(disk.copy())
    assert (failed.position, failed.kept_bytes, failed.kept_as) == (
        KEPT,
        KEPT,
        f"d1/t-0/{disk.large.name}.partial",
    )
    windows = [(position, WINDOW) for position in range(0, KEPT + 1, WINDOW)]
    blocks = [(position, BLOCK_BYTES) for position in range(windows[-1][0], KEPT + 1, BLOCK_BYTES)]
    assert reads == windows + blocks
    assert disk.part.read_bytes() == disk.large.read_bytes()[:KEPT]
    assert not disk.whole.exists()


def test_the_next_run_asks_for_the_bad_block_alone(disk: Disk) -> None:
    disk.copy_with_bad_sector()
    before = disk.part.stat()
    with bad_sector(disk.large, BAD) as reads:
        failed = disk.failed(disk.copy())
    assert reads == [(KEPT, BLOCK_BYTES)]
    assert (failed.position, failed.kept_bytes, failed.is_kept_earlier) == (KEPT, KEPT, True)
    assert "an earlier run has kept 3.05 MiB from its beginning as d1/t-0/" in failed.to_text()
    assert (disk.part.stat().st_ino, disk.part.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_part_of_a_file_that_only_has_another_time_is_not_sent_again(disk: Disk) -> None:
    disk.copy_with_bad_sector()
    before = disk.part.stat()
    os.utime(disk.large)
    assert disk.copy_with_bad_sector().is_kept_earlier
    assert (disk.part.stat().st_ino, disk.part.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with bad_sector(disk.large, BAD) as reads:
        disk.failed(disk.copy())
    assert reads == [(KEPT, BLOCK_BYTES)]


def test_a_part_goes_once_all_of_the_file_is_there(disk: Disk) -> None:
    disk.copy_with_bad_sector()
    assert disk.copy().exit_code == 0
    assert disk.whole.read_bytes() == disk.large.read_bytes()
    assert not disk.part.exists()
    assert [len(json.loads(line)) for line in (disk.output / MANIFEST_KEY).read_text().splitlines()[1:]] == [
        5,
        5,
    ]


def test_a_part_that_cannot_be_removed_does_not_end_the_run(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bucket that lets nothing be deleted."""

    def refuse(_self: LocalStore, key: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), key)

    disk.copy_with_bad_sector()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "remove", refuse)
        for _ in range(2):
            report = disk.copy()
            assert report.exit_code == 0
            assert report.warnings == [
                f"1 beginning of files that are whole now, such as {disk.part}, cannot be removed: "
                f"{os.strerror(errno.EACCES)}. Remedy: allow that, and start again, which removes them"
            ]
    assert disk.whole.read_bytes() == disk.large.read_bytes()
    assert disk.copy().warnings == []
    assert not disk.part.exists()


def test_the_part_of_a_file_that_is_gone_is_told_of_until_it_is_removed(disk: Disk) -> None:
    disk.copy_with_bad_sector()
    disk.large.unlink()
    for _ in range(2):
        report = disk.copy()
        assert report.exit_code == 0
        (warning,) = report.warnings
        assert warning == (
            f"{disk.log_dir}: 1 file that could not be read, gone there: what was read before stays at the output, "
            f"such as d1/t-0/{disk.part.name}. archive restore leaves it out"
        )
    assert disk.copy(partitions=("t-0",)).warnings == [warning]
    disk.part.unlink()
    assert disk.copy().warnings == []


def test_a_part_that_a_kill_has_left_beside_the_whole_file_goes_too(disk: Disk) -> None:
    disk.copy()
    disk.part.write_bytes(b"before")
    report = disk.copy()
    assert (report.exit_code, report.log_dirs[0].files) == (0, 0)
    assert not disk.part.exists()


@pytest.mark.parametrize("restart", [False, True])
def test_a_longer_part_is_not_replaced_by_a_shorter_one(disk: Disk, restart: bool) -> None:
    disk.copy_with_bad_sector()
    kept = disk.part.read_bytes()
    with bad_sector(disk.large, BAD), bad_sector(disk.large, 9000):
        os.utime(disk.large)  # so that the part is not known to be of this file
        failed = disk.failed(disk.copy(restart=restart))
    assert (failed.position, failed.kept_bytes, failed.is_kept_earlier) == (8192, KEPT, True)
    assert disk.part.read_bytes() == kept


def test_a_shorter_part_is_replaced_by_a_longer_one(disk: Disk) -> None:
    assert disk.copy_with_bad_sector(9000).kept_bytes == 8192
    failed = disk.copy_with_bad_sector()
    assert (failed.kept_bytes, failed.is_kept_earlier) == (KEPT, False)
    assert disk.part.read_bytes() == disk.large.read_bytes()[:KEPT]


@pytest.mark.parametrize("then", [BAD, BAD + WINDOW])
@pytest.mark.parametrize("is_sent_again", [False, True])
def test_a_part_that_does_not_begin_with_the_earlier_one_replaces_it_and_that_stays(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, then: int, is_sent_again: bool
) -> None:
    """Also where the store, as a bucket, does not hold the part any more, and it is read again."""
    disk.copy_with_bad_sector()
    before = disk.part.read_bytes()
    disk.large.write_bytes(os.urandom(SIZE_BYTES))
    if is_sent_again:
        real = LocalStore.send

        def send(
            self: LocalStore, key: str, source: object, size_bytes: int, *, part_key: object = None
        ) -> str:
            return real(self, key, source, size_bytes)  # type: ignore[arg-type]  # handed on

        monkeypatch.setattr(LocalStore, "send", send)
    with bad_sector(disk.large, then):
        report = disk.copy()
    failed = disk.failed(report)
    kept_bytes = then // BLOCK_BYTES * BLOCK_BYTES
    assert (failed.kept_bytes, failed.is_kept_earlier) == (kept_bytes, False)
    assert disk.part.read_bytes() == disk.large.read_bytes()[:kept_bytes]
    (kept,) = report.log_dirs[0].kept
    assert (kept.size_bytes, kept.earlier_bytes) == (SIZE_BYTES, KEPT)
    assert (disk.output / kept.kept_as).read_bytes() == before
    (warning,) = report.warnings
    assert f"{disk.large}: 3,194,880 bytes then, 5,242,880 now; the earlier copy stays as d1/t-0/" in warning


class TestAWholeCopyOfEarlier:
    def test_it_stays_and_the_file_is_not_read_if_it_has_not_changed(self, disk: Disk) -> None:
        disk.copy()
        with bad_sector(disk.large, BAD) as reads:
            report = disk.copy()
        assert (report.exit_code, report.log_dirs[0].skipped_files, reads) == (0, 2, [])

    def test_it_stays_if_all_is_to_be_sent_again(self, disk: Disk) -> None:
        disk.copy()
        failed = disk.copy_with_bad_sector(restart=True)
        assert failed.earlier_copy == "same"
        assert "an earlier copy of it as it is now stays at the output" in failed.to_text()
        assert disk.whole.read_bytes() == disk.large.read_bytes()

    @pytest.mark.parametrize("change", ["appended", "touched"])
    def test_it_stays_beside_the_part_of_a_file_that_has_changed(self, disk: Disk, change: str) -> None:
        disk.copy()
        whole = disk.large.read_bytes()
        if change == "appended":
            disk.large.write_bytes(whole + b"more")
        os.utime(disk.large)
        with bad_sector(disk.large, BAD) as reads:
            failed = disk.failed(disk.copy())
        assert (failed.earlier_copy, failed.kept_bytes) == ("older", KEPT)
        assert sum(position <= KEPT < position + size for position, size in reads) == 2
        assert disk.whole.read_bytes() == whole
        assert disk.part.read_bytes() == whole[:KEPT]

    def test_it_stays_if_the_manifest_does_not_name_it(self, disk: Disk) -> None:
        disk.copy()
        (disk.output / MANIFEST_KEY).unlink()
        failed = disk.copy_with_bad_sector()
        assert failed.earlier_copy == "unknown"
        assert disk.whole.read_bytes() == disk.large.read_bytes()

    def test_it_is_told_of_a_file_that_cannot_be_opened(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.copy()
        os.utime(disk.large)
        real = os.open

        def refuse(path: str, *arguments: object, **more: object) -> int:
            if path == str(disk.large):
                raise OSError(5, os.strerror(5), path)
            return real(path, *arguments, **more)  # type: ignore[arg-type]  # handed on

        monkeypatch.setattr(os, "open", refuse)
        failed = disk.failed(disk.copy())
        assert (failed.position, failed.error, failed.earlier_copy) == (None, os.strerror(5), "older")


def test_a_window_that_can_be_read_after_all_is_read_on_as_before(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = os.pread, []

    def pread(descriptor: int, size: int, position: int) -> bytes:
        sizes.append(size)
        if position == WINDOW and size == WINDOW:
            raise OSError(5, os.strerror(5))
        return real(descriptor, size, position)

    monkeypatch.setattr(os, "pread", pread)
    assert disk.copy().exit_code == 0
    assert disk.whole.read_bytes() == disk.large.read_bytes()
    assert sizes.count(WINDOW) == SIZE_BYTES // WINDOW
    assert sizes.count(BLOCK_BYTES) == WINDOW // BLOCK_BYTES


@pytest.mark.parametrize("error", [errno.EUCLEAN, errno.EBADMSG, errno.ENODATA])
def test_what_a_damaged_file_system_still_has_of_a_file_is_kept(disk: Disk, error: int) -> None:
    with bad_sector(disk.large, BAD, error=error):
        failed = disk.failed(disk.copy())
    assert (failed.position, failed.kept_bytes, failed.error) == (KEPT, KEPT, os.strerror(error))


def test_another_error_than_that_of_a_bad_sector_ends_a_file_at_once(disk: Disk) -> None:
    with bad_sector(disk.large, BAD, error=116) as reads:
        failed = disk.failed(disk.copy())
    assert (failed.position, failed.kept_bytes, failed.error) == (3 << 20, 3 << 20, os.strerror(116))
    assert [size for _, size in reads] == [WINDOW] * 4


def test_a_store_that_does_not_hold_the_part_has_it_read_again_up_to_where_that_goes(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bucket, for an object of several parts. The second time the disk gives less."""
    real = LocalStore.send
    sources = []

    def send(self: LocalStore, key: str, source: object, size_bytes: int, *, part_key: object = None) -> str:
        sources.append(key)
        if len(sources) == 2:
            with bad_sector(disk.large, 9000):
                return real(self, key, source, size_bytes)  # type: ignore[arg-type]  # handed on
        return real(self, key, source, size_bytes)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(LocalStore, "send", send)
    (disk.log_dir / "t-0" / "partition.metadata").unlink()
    failed = disk.copy_with_bad_sector()
    name = f"d1/t-0/{disk.large.name}"
    assert sources == [name, f"{name}.partial", f"{name}.partial"]
    assert (failed.position, failed.kept_bytes) == (KEPT, 8192)
    assert disk.part.read_bytes() == disk.large.read_bytes()[:8192]


def test_a_file_that_has_the_name_of_a_part_is_none(disk: Disk) -> None:
    own = Path(f"{disk.large}.partial")
    own.write_bytes(b"its own")
    failed = disk.copy_with_bad_sector()
    assert failed.kept_as == f"d1/t-0/{disk.large.name}.partial.partial"
    assert disk.part.read_bytes() == b"its own"
    assert disk.copy().exit_code == 0
    own.unlink()
    disk.copy()
    assert disk.part.read_bytes() == b"its own"
    assert not Path(f"{disk.part}.partial").exists()
    os.utime(disk.large)
    assert disk.copy_with_bad_sector(restart=True).kept_as.endswith(".partial.partial")
    assert disk.part.read_bytes() == b"its own"


def test_failures_are_sorted_and_first(disk: Disk) -> None:
    other = disk.log_dir / "a-0" / f"{0:020}.log"
    other.parent.mkdir()
    other.write_bytes(bytes(range(256)) * 100)
    with bad_sector(disk.large, BAD), bad_sector(other, 0):
        report = disk.copy()
    files = [str(other), str(disk.large)]
    assert [one["file"] for one in json.loads(report.to_json())["logDirs"][0]["failed"]] == files
    first, second, *_ = report.to_text().splitlines()
    assert first == f"NOT COPIED {other} from position 0 on: {os.strerror(5)}"
    assert second.startswith(
        f"NOT COPIED {disk.large} from position {KEPT} on: {os.strerror(5)}; 3.05 MiB from"
    )


def test_what_is_the_same_of_many_files_is_counted() -> None:
    denied = [UncopiedFile(file=f"/d1/t-{n:02}", position=None, error="Permission denied") for n in range(30)]
    report = CopyReport(output="/copy", log_dirs=[CopiedLogDir(log_dir="/d1", folder="d1", failed=denied)])
    assert report.to_text(-1).splitlines() == [
        "NOT COPIED /d1/t-00: Permission denied",
        "    the same of 29 more files (-v lists them)",
    ]
    assert sum(line.startswith("NOT COPIED /d1/t-") for line in report.to_text(1).splitlines()) == 30
