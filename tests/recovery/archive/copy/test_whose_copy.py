"""What a copy says of itself: whose it is, whether it is whole, and what of it is no longer in the log dir."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.copy import run as run_module
from recovery.archive.copy.manifest import MANIFEST_KEY, read_document
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoreReport
from recovery.archive.restore.run import restore
from recovery.archive.stores.local_store import LocalStore
from recovery.engine.options import RecoverOptions
from recovery.errors import UsageError
from recovery.stop_request import StopRequest
from tests.faults.bad_sector import bad_sector
from tests.logs.samples import MARKER, Sample, tree_of, unpack


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def copied(log_dir: Path, output: Path, **options: object) -> CopyReport:
    return copy(CopyOptions(output=str(output), log_dirs=(str(log_dir),), **options))  # type: ignore[arg-type]  # handed on


def restored(sample: Sample, archive: Path, *names: str) -> RestoreReport:
    return restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(archive), partitions=names),
            broker=RecoverOptions(config=sample.properties, is_config_complete=True, now_ms=sample.now_ms),
        )
    )


def statuses(report: RestoreReport) -> dict[str, str]:
    return {f"{one.topic}-{one.partition}": one.status for one in report.partitions}


def stop_at(name: str, monkeypatch: pytest.MonkeyPatch) -> StopRequest:
    """End the next copy before it sends the file *name*."""
    stop, real = StopRequest(), run_module.FileCopier.copy

    def send(self: run_module.FileCopier, job: run_module.CopyJob) -> object:
        if job.file.key.endswith(name):
            stop.request(15)
        return real(self, job)

    monkeypatch.setattr(run_module.FileCopier, "copy", send)
    return stop


def test_what_is_not_copied_whole_is_not_restored(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = sample.log_dirs[0]
    names = sorted(
        path.name
        for path in log_dir.iterdir()
        if path.is_dir() and path.name.rpartition("-")[2].isdecimal() and "__cluster" not in path.name
    )
    logs = sorted((log_dir / names[1]).glob("*.log"))
    with monkeypatch.context() as patch:
        stop = stop_at(f"{names[1]}/{logs[-1].name}", patch)
        options = CopyOptions(output=str(output), log_dirs=(str(log_dir),), threads=1)
        assert copy(options, stop=stop).exit_code == 143
    unfinished = read_document(LocalStore(str(output))).unfinished
    assert {f"d1/{names[1]}/", f"d1/{names[-1]}/"} <= unfinished
    assert f"d1/{names[0]}/" not in unfinished
    for name in names:
        shutil.rmtree(log_dir / name)
    for archive in (output, output / "d1"):
        report = restored(sample, archive)
        assert report.exit_code == 4
        found = statuses(report)
        assert found[names[0]] in ("restored", "unchanged")
        assert {found[name] for name in names[1:]} == {"refused"}
        (reason,) = {one.reasons[0] for one in report.partitions if one.status == "refused"}
        assert reason.startswith("archive copy has not copied all of it. Remedy: ")
    (output / MANIFEST_KEY).unlink()
    assert names[-1] not in statuses(restored(sample, output))


def test_a_copy_that_was_resumed_is_whole(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = sample.log_dirs[0]
    with monkeypatch.context() as patch:
        stop = stop_at(".log", patch)
        copy(CopyOptions(output=str(output), log_dirs=(str(log_dir),)), stop=stop)
    assert read_document(LocalStore(str(output))).unfinished
    assert copied(log_dir, output).exit_code == 0
    assert read_document(LocalStore(str(output))).unfinished == frozenset()


def test_the_folder_is_marked_before_the_first_file_is_sent(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def send(self: run_module.FileCopier, job: run_module.CopyJob) -> None:
        seen.append(read_document(LocalStore(str(output))).unfinished)

    monkeypatch.setattr(run_module.FileCopier, "copy", send)
    copied(sample.log_dirs[0], output)
    assert seen
    assert all("d1/plain-0/" in one or "d1/plain-1/" in one for one in seen)


def _of_another_directory(log_dir: Path) -> None:
    path = log_dir / "meta.properties"
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join(
            "directory.id=AAAAAAAAAAAAAAAAAAAAAQ" if one.startswith("directory.id") else one for one in lines
        )
    )


def _of_another_cluster(log_dir: Path) -> None:
    path = log_dir / "meta.properties"
    path.write_text(path.read_text().replace("cluster.id=", "cluster.id=x"))


@pytest.mark.parametrize("change", [_of_another_directory, _of_another_cluster])
def test_the_same_path_on_another_host_is_not_the_same_log_dir(
    sample: Sample, output: Path, change: Callable[[Path], None]
) -> None:
    log_dir = sample.log_dirs[0]
    copied(log_dir, output)
    before = tree_of(output)
    change(log_dir)
    with pytest.raises(UsageError, match="the copy of a log dir of node 1 of cluster"):
        copied(log_dir, output)
    assert tree_of(output) == before


def test_what_is_no_copy_is_not_written_over(sample: Sample, output: Path, tmp_path: Path) -> None:
    other = unpack("stopped", tmp_path / "other").log_dirs[0]
    output.mkdir()
    other.rename(output / "d1")
    before = tree_of(output)
    with pytest.raises(UsageError, match=r"no kafka-log-recovery-copy\.jsonl says that they are a copy"):
        copied(sample.log_dirs[0], output)
    assert tree_of(output) == before


def test_a_marker_that_is_gone_does_not_vouch_for_the_copy(sample: Sample, output: Path) -> None:
    log_dir = sample.log_dirs[0]
    copied(log_dir, output)
    assert (output / "d1" / MARKER).exists()
    (log_dir / MARKER).unlink()
    copied(log_dir, output)
    assert not (output / "d1" / MARKER).exists()
    assert MARKER not in (output / MANIFEST_KEY).read_text()


def test_files_that_are_gone_are_told_and_stay(sample: Sample, output: Path) -> None:
    (log_dir,) = (one for one in sample.log_dirs if (one / "plain-1").is_dir())
    copied(log_dir, output)
    last = max((log_dir / "plain-1").glob("*.log"))
    last.unlink()
    report = copied(log_dir, output)
    assert report.exit_code == 0
    (warning,) = report.warnings
    assert warning.startswith(
        f"{log_dir}: 1 file of earlier copies, such as {log_dir.name}/plain-1/{last.name}"
    )
    assert (output / log_dir.name / "plain-1" / last.name).exists()
    assert copied(log_dir, output, topics=("plain",)).warnings == [warning]
    assert copied(log_dir, output, topics=("transactions",)).warnings == []
    assert read_document(LocalStore(str(output))).gone == {f"{log_dir.name}/plain-1/{last.name}"}


@pytest.mark.parametrize("url", ["", " "])
def test_nothing_is_no_place(sample: Sample, url: str) -> None:
    before = set(os.listdir())
    with pytest.raises(UsageError, match="an empty path or URL"):
        copy(CopyOptions(output=url, log_dirs=(str(sample.log_dirs[0]),)))
    with pytest.raises(UsageError, match="an empty path or URL"):
        restored(sample, url)  # type: ignore[arg-type]  # what a shell makes of a variable that is not set
    assert set(os.listdir()) == before


def test_a_log_dir_that_is_not_there_does_not_keep_the_others_from_being_copied(
    sample: Sample, output: Path, tmp_path: Path
) -> None:
    log_dirs = (str(tmp_path / "unmounted"), str(sample.log_dirs[0]))
    report = copy(CopyOptions(output=str(output), log_dirs=log_dirs))
    assert report.exit_code == 4
    gone, whole = report.log_dirs
    assert (gone.files, [one.file for one in gone.failed]) == (0, [log_dirs[0]])
    assert "no such log dir" in gone.failed[0].error
    assert whole.files > 10
    assert whole.failed == []
    assert f"{log_dirs[0]}: nothing copied; what it has is not known" in report.to_text()
    assert "unmounted/" in read_document(LocalStore(str(output))).unfinished
    with pytest.raises(UsageError, match="no such log dir"):
        copy(CopyOptions(output=str(output), log_dirs=log_dirs[:1]))


def test_a_log_dir_that_cannot_be_looked_at_is_not_called_missing(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may still have it open, so it is locked, or a warning says that it could not be."""
    dying, sound = map(str, sample.log_dirs[:2])
    look = os.stat

    def stat(path: str, *arguments: object, **named: object) -> os.stat_result:
        if path == dying:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return look(path, *arguments, **named)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(os, "stat", stat)
    report = copy(CopyOptions(output=str(output), log_dirs=(dying, sound)))
    assert report.exit_code == 4
    assert [(one.file, one.error) for one in report.log_dirs[0].failed] == [(dying, os.strerror(errno.EIO))]
    assert report.log_dirs[1].failed == []


@pytest.mark.parametrize("garbage", [b"", b"[]", b"{\n", b'{"unfinished": 7}\n', b"\xff\n"])
def test_a_manifest_that_cannot_be_understood_does_not_stand_for_a_whole_copy(
    sample: Sample, output: Path, garbage: bytes
) -> None:
    copied(sample.log_dirs[0], output)
    (output / MANIFEST_KEY).write_bytes(garbage)
    with pytest.raises(UsageError, match="whether the copy is whole is not known"):
        restored(sample, output)
    with pytest.raises(UsageError, match="whether the copy is whole is not known"):
        restored(sample, output / sample.log_dirs[0].name)
    with pytest.raises(UsageError, match="with this file moved away"):
        copied(sample.log_dirs[0], output)
    (output / MANIFEST_KEY).unlink()
    assert copied(sample.log_dirs[0], output).log_dirs[0].files > 10


def test_a_log_dir_that_goes_away_is_not_copied_whole(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `umount -l` does it: the files of the last log are gone, one after another."""
    log_dir = sample.log_dirs[0]
    real = run_module.FileCopier.copy

    def send(self: run_module.FileCopier, job: run_module.CopyJob) -> object:
        if log_dir.exists() and job.file.partition:
            log_dir.rename(log_dir.with_name("away"))
        return real(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.FileCopier, "copy", send)
        report = copied(log_dir, output, threads=1)
    assert report.exit_code == 4
    assert "it is gone since it was listed" in report.log_dirs[0].failed[0].error
    unfinished = read_document(LocalStore(str(output))).unfinished
    assert {f"d1/{path.name}/" for path in (log_dir.with_name("away")).glob("*-[0-9]")} <= unfinished
    log_dir.with_name("away").rename(log_dir)
    assert copied(log_dir, output).exit_code == 0
    assert read_document(LocalStore(str(output))).unfinished == frozenset()


@pytest.mark.parametrize("left", [(), ("meta.properties",), ("meta.properties", "bootstrap.checkpoint")])
def test_an_unmounted_log_dir_is_not_an_empty_one(
    sample: Sample, output: Path, left: tuple[str, ...]
) -> None:
    log_dir = sample.log_dirs[0]
    copied(log_dir, output)
    before = tree_of(output, ignore=(MANIFEST_KEY,))
    away = log_dir.rename(log_dir.with_name("away"))
    log_dir.mkdir()
    for name in left:
        shutil.copy2(away / name, log_dir / name)
    report = copied(log_dir, output)
    assert report.exit_code == 4
    (failed,) = report.log_dirs[0].failed
    assert failed.error.startswith("no log dir of a broker: it has neither logs nor checkpoints. Remedy: ")
    assert tree_of(output, ignore=(MANIFEST_KEY,)) == before
    document = read_document(LocalStore(str(output)))
    assert document.gone == frozenset()
    assert "d1/" in document.unfinished


def test_two_copies_at_a_time_do_not_write_over_what_the_other_says(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sample.log_dirs
    real = run_module.FileCopier.copy
    between = []

    def send(self: run_module.FileCopier, job: run_module.CopyJob) -> object:
        if not between:
            between.append(True)
            with monkeypatch.context() as patch:
                stop = stop_at(".log", patch)
                options = CopyOptions(output=str(output), log_dirs=(str(second),), threads=1)
                assert copy(options, stop=stop).exit_code == 143
        return real(self, job)

    monkeypatch.setattr(run_module.FileCopier, "copy", send)
    report = copied(first, output)
    assert report.exit_code == 1
    assert "another archive copy has written it since" in str(report.error)
    unfinished = read_document(LocalStore(str(output))).unfinished
    assert {one.partition("/")[0] for one in unfinished} == {"d1", "d2"}
    monkeypatch.undo()
    for log_dir in sample.log_dirs:
        assert copied(log_dir, output).exit_code == 0
    assert read_document(LocalStore(str(output))).unfinished == frozenset()


def test_log_dirs_of_one_name_keep_their_folders(sample: Sample, output: Path, tmp_path: Path) -> None:
    """Whatever their order is, and if one of them has died."""
    log_dirs = [tmp_path / "1" / "data", tmp_path / "2" / "data"]
    for log_dir, source in zip(log_dirs, sample.log_dirs, strict=True):
        shutil.copytree(source, log_dir)
    first, second = map(str, log_dirs)
    for chosen, folders in (
        ((first, second), ["data", "data.2"]),
        ((second, first), ["data.2", "data"]),
        ((second,), ["data.2"]),
    ):
        report = copy(CopyOptions(output=str(output), log_dirs=chosen))
        assert [one.folder for one in report.log_dirs] == folders
        assert report.exit_code == 0
    assert sum(one.files for one in report.log_dirs) == 0


def _without_directory_id(log_dir: Path) -> None:
    """As before 3.7."""
    path = log_dir / "meta.properties"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(one for one in lines if not one.startswith("directory.id")))


def named_alike(sample: Sample, root: Path) -> tuple[Path, Path]:
    """Move both log dirs to places of the same name."""
    first, second = root / "1" / "kafka", root / "2" / "kafka"
    for log_dir, path in zip(sample.log_dirs, (first, second), strict=True):
        path.parent.mkdir()
        log_dir.rename(path)
    return first, second


def test_a_log_dir_that_is_mounted_elsewhere_goes_on_in_its_folder(
    sample: Sample, output: Path, tmp_path: Path
) -> None:
    """Also for a file that cannot be read any more."""
    first, second = named_alike(sample, tmp_path)
    copy(CopyOptions(output=str(output), log_dirs=(str(first), str(second))))
    moved = tmp_path / "rescue" / "disk"
    moved.parent.mkdir()
    second.rename(moved)
    with bad_sector(max(moved.rglob("*.log"), key=lambda path: path.stat().st_size), 0):
        report = copy(CopyOptions(output=str(output), log_dirs=(str(first), str(moved))))
    assert report.exit_code == 0
    assert [(one.folder, one.files) for one in report.log_dirs] == [("kafka", 0), ("kafka.2", 0)]
    assert read_document(LocalStore(str(output))).log_dirs == {"kafka": str(first), "kafka.2": str(moved)}


def test_log_dirs_that_have_changed_places_keep_their_folders(
    sample: Sample, output: Path, tmp_path: Path
) -> None:
    first, second = sample.log_dirs
    log_dirs = (str(first), str(second))
    copy(CopyOptions(output=str(output), log_dirs=log_dirs))
    first.rename(tmp_path / "away")
    second.rename(first)
    (tmp_path / "away").rename(second)
    report = copy(CopyOptions(output=str(output), log_dirs=log_dirs))
    assert [(one.folder, one.files) for one in report.log_dirs] == [(second.name, 0), (first.name, 0)]


def test_what_may_be_the_same_log_dir_without_an_id_is_not_copied_beside_its_copy(
    sample: Sample, output: Path, tmp_path: Path
) -> None:
    for log_dir in sample.log_dirs:
        _without_directory_id(log_dir)
    first, second = named_alike(sample, tmp_path)
    copy(CopyOptions(output=str(output), log_dirs=(str(first), str(second))))
    moved = tmp_path / "disk"
    second.rename(moved)
    log_dirs = (str(first), str(moved))
    with pytest.raises(
        UsageError, match=r"no directory\.id tells whether it is the same log dir\. Remedy: .* a link"
    ):
        copy(CopyOptions(output=str(output), log_dirs=log_dirs))
    second.symlink_to(moved)
    report = copy(CopyOptions(output=str(output), log_dirs=log_dirs))
    assert [(one.folder, one.files) for one in report.log_dirs] == [("kafka", 0), ("kafka.2", 0)]


@pytest.mark.parametrize("old", ["cluster.id=", "node.id="])
def test_another_broker_does_not_come_beside(sample: Sample, output: Path, old: str) -> None:
    first, second = sample.log_dirs
    copied(first, output)
    before = tree_of(output)
    path = second / "meta.properties"
    path.write_text(path.read_text().replace(old, f"{old}7"))
    with pytest.raises(
        UsageError, match=r"the copy of a log dir of node 1 of cluster .* Remedy: choose another"
    ):
        copied(second, output)
    assert tree_of(output) == before


@pytest.mark.parametrize("url", ["s3:/bucket/x", "gs:/bucket", "file:/x"])
def test_a_url_with_a_slash_too_few_is_no_folder(sample: Sample, url: str) -> None:
    with pytest.raises(UsageError, match=f"is {url.partition(':')[0]}://"):
        copy(CopyOptions(output=url, log_dirs=(str(sample.log_dirs[0]),)))


def test_a_log_dir_that_is_named_through_a_link_is_the_same(sample: Sample, output: Path) -> None:
    log_dir = sample.log_dirs[0]
    copied(log_dir, output)
    link = log_dir.parent / "link"
    link.symlink_to(log_dir)
    again = copied(link, output)
    assert again.exit_code == 0
    assert [one.folder for one in again.log_dirs] == [log_dir.name]
    assert again.log_dirs[0].files == 0
