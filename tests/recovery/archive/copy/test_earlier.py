"""Files that have lost bytes since they were copied: the earlier copy may be all that is left of those."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from tests.faults.bad_sector import bad_sector

DATA = os.urandom(100_000)


class Place:
    """A log dir of a log and some files beside it, and an output."""

    def __init__(self, root: Path) -> None:
        self.log_dir, self.output = root / "d1", root / "copy"
        self.log = self.log_dir / "t-0" / f"{0:020}.log"
        self.log.parent.mkdir(parents=True)
        self.log.write_bytes(DATA)
        for name in (
            "meta.properties",
            f"t-0/{0:020}.index",
            f"t-0/{9:020}.snapshot",
            "log-start-offset-checkpoint",
        ):
            (self.log_dir / name).write_bytes(b"0\n1\nt 0 17\n")

    def copy(self, **more: object) -> CopyReport:
        return copy(CopyOptions(output=str(self.output), log_dirs=(str(self.log_dir),), **more))  # type: ignore[arg-type]  # by name

    def kept(self) -> dict[str, bytes]:
        """The earlier copies at the output, by name."""
        return {path.name: path.read_bytes() for path in sorted(self.output.rglob("*.earlier*"))}

    @property
    def copied(self) -> bytes:
        """The log at the output."""
        return (self.output / "d1" / "t-0" / self.log.name).read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "later",
    [b"", DATA[:1000], b"x" + DATA[1:], b"x" + DATA],
    ids=["empty", "shorter", "other bytes", "longer, with other bytes"],
)
def test_a_log_that_does_not_begin_with_what_was_copied_keeps_that(
    place: Place, later: bytes, restart: bool
) -> None:
    place.copy()
    place.log.write_bytes(later)
    report = place.copy(restart=restart)
    assert report.exit_code == 0
    assert (place.copied, place.kept()) == (later, {f"{place.log.name}.earlier": DATA})
    (warning,) = report.warnings
    assert (
        f"{place.log}: 100,000 bytes then, {len(later):,} now; the earlier copy stays as d1/t-0/" in warning
    )
    assert json.loads(report.to_json())["logDirs"][0]["kept"] == [
        {
            "file": str(place.log),
            "bytes": len(later),
            "earlierBytes": len(DATA),
            "keptAs": f"d1/t-0/{place.log.name}.earlier",
        }
    ]
    (warning,) = place.copy().warnings
    assert (
        f"1 earlier copy of files that then lost bytes, or changed them, such as d1/t-0/{place.log.name}"
        in warning
    )


@pytest.mark.parametrize("restart", [False, True])
def test_a_log_that_grows_keeps_nothing(place: Place, restart: bool) -> None:
    place.copy()
    place.log.write_bytes(DATA + b"more")
    report = place.copy(restart=restart)
    assert (report.warnings, place.copied, place.kept()) == ([], DATA + b"more", {})


def test_other_files_are_written_anew_but_do_not_become_empty(place: Place) -> None:
    place.copy()
    for path in place.log_dir.rglob("*"):
        if path.is_file() and path != place.log:
            path.write_bytes(b"0\n0\n")
    assert place.copy().warnings == []
    for path in place.log_dir.rglob("*"):
        if path.is_file() and path != place.log:
            os.truncate(path, 0)
    place.copy()
    names = ["log-start-offset-checkpoint", "meta.properties", f"{9:020}.snapshot"]
    assert place.kept() == {f"{name}.earlier": b"0\n0\n" for name in sorted(names)}


def test_what_is_nothing_but_zeros_has_lost_its_bytes(place: Place) -> None:
    """As some file systems leave files after a loss of power; those with whose log dir it is, too."""
    (place.log_dir / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    place.copy()
    before = {}
    for path in place.log_dir.rglob("*"):
        if path.is_file() and path.name != ".lock":
            before[path.name] = path.read_bytes()
            path.write_bytes(bytes(path.stat().st_size))
    report = place.copy()
    del before[f"{0:020}.index"]
    assert place.kept() == {f"{name}.earlier": data for name, data in before.items()}
    assert "4 files lost bytes that were copied before" in report.warnings[0]
    place.copy()


def test_each_loss_is_kept_once(place: Place) -> None:
    place.copy()
    for size_bytes in (5000, 4000, 3000):
        os.truncate(place.log, size_bytes)
        place.copy()
        place.copy()
    name = f"{place.log.name}.earlier"
    assert place.kept() == {name: DATA, f"{name}.2": DATA[:5000], f"{name}.3": DATA[:4000]}


def test_a_name_that_a_file_has_is_not_taken(place: Place) -> None:
    own = Path(f"{place.log}.earlier")
    place.copy()
    os.truncate(place.log, 0)
    own.write_bytes(b"its own")
    assert place.copy().log_dirs[0].kept[0].kept_as == f"d1/t-0/{own.name}.2"
    assert place.kept() == {own.name: b"its own", f"{own.name}.2": DATA}


def test_what_a_killed_run_has_kept_is_told_and_not_kept_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.copy()
    os.truncate(place.log, 0)
    real = os.rename

    def rename(old: str, new: str) -> None:
        if new.endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), new)
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        assert place.copy().exit_code == 1
    assert place.copied == DATA
    assert any("1 earlier copy of files" in text for text in place.copy().warnings)
    assert (place.copied, place.kept()) == (b"", {f"{place.log.name}.earlier": DATA})


def test_a_longer_copy_that_the_manifest_does_not_name_is_kept(place: Place) -> None:
    place.copy()
    (place.output / MANIFEST_KEY).unlink()
    os.truncate(place.log, 7)
    place.copy()
    assert (place.copied, place.kept()) == (DATA[:7], {f"{place.log.name}.earlier": DATA})


def test_a_file_system_without_hard_links_gets_a_second_file(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    place.copy()
    os.truncate(place.log, 0)
    monkeypatch.setattr(os, "link", link)
    place.copy()
    assert (place.copied, place.kept()) == (b"", {f"{place.log.name}.earlier": DATA})


def test_nothing_is_kept_of_a_file_that_cannot_be_read_again(place: Place) -> None:
    place.copy()
    place.log.write_bytes(b"x" + DATA[1:])
    with bad_sector(place.log, 50_000):
        assert place.copy().exit_code == 4
    assert (place.copied, place.kept()) == (DATA, {})


@pytest.mark.parametrize("is_named", [True, False])
def test_the_beginning_of_a_file_that_is_then_cut_stays(place: Place, is_named: bool) -> None:
    """A check of the file system made it readable, and empty."""
    with bad_sector(place.log, 50_000):
        place.copy()
    if not is_named:
        (place.output / MANIFEST_KEY).unlink()
    os.truncate(place.log, 0)
    report = place.copy()
    assert report.log_dirs[0].kept[0].earlier_bytes == 49_152
    assert (place.copied, place.kept()) == (b"", {f"{place.log.name}.earlier": DATA[:49_152]})
    assert not list(place.output.rglob("*.partial"))


def test_the_earlier_copy_is_on_disk_before_its_name_is_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    keep, rename = LocalStore.keep, os.rename
    monkeypatch.setattr(LocalStore, "keep", lambda *given: calls.append("keep") or keep(*given))
    monkeypatch.setattr(
        os, "rename", lambda old, new: calls.append(f"rename {os.path.basename(new)}") or rename(old, new)
    )
    place.copy()
    os.truncate(place.log, 0)
    calls.clear()
    place.copy()
    assert calls.index("keep") < calls.index(f"rename {place.log.name}")


@pytest.mark.parametrize(
    ("later", "is_kept"), [(DATA[40_000:], False), (b"", True)], ids=["cleaned", "empty"]
)
def test_segments_that_the_log_cleaner_writes_anew_are_no_loss(
    place: Place, later: bytes, is_kept: bool
) -> None:
    """Else each copy of `__consumer_offsets` would keep those of all earlier ones."""
    (place.log_dir / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 17\n")
    place.copy()
    place.log.write_bytes(later)
    report = place.copy()
    assert place.copied == later
    assert bool(place.kept()) == bool(report.warnings) == is_kept


def test_a_restart_that_cannot_read_a_file_does_not_forget_its_copy(place: Place) -> None:
    place.copy()
    with bad_sector(place.log, 5000):
        (failed,) = place.copy(restart=True).log_dirs[0].failed
    assert failed.earlier_copy == "same"
    place.log.write_bytes(DATA[:50_000] + bytes(50_000))
    place.copy()
    assert place.kept() == {f"{place.log.name}.earlier": DATA}


def test_a_restart_that_is_interrupted_does_not_forget_a_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.copy()
    with monkeypatch.context() as patch:
        patch.setattr("recovery.archive.copy.file_copy.FileCopier.copy", lambda _self, _job: None)
        place.copy(restart=True)
    place.log.write_bytes(DATA[:50_000] + bytes(50_000))
    place.copy()
    assert place.kept() == {f"{place.log.name}.earlier": DATA}
