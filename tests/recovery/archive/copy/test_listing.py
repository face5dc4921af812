"""What is in a log dir besides plain files, and what changes while it is copied."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.archive.copy.listing import find_files
from recovery.archive.copy.manifest import read_document
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.stores.local_store import LocalStore
from recovery.errors import UsageError
from recovery.logdir.quarantine_place import INSIDE_FOLDER
from recovery.stop_request import StopRequest
from tests.servers.file_systems import bind
from tests.servers.machine import MOUNTS, needs


class Place:
    """A log dir of one partition, and an output."""

    def __init__(self, root: Path) -> None:
        self.root, self.log_dir, self.output = root, root / "d1", root / "copy"
        self.folder = self.log_dir / "t-0"
        self.folder.mkdir(parents=True)
        self.log = self.folder / f"{0:020}.log"
        self.log.write_bytes(b"bytes of a log")

    def copy(self, *log_dirs: Path) -> CopyReport:
        given = tuple(map(str, log_dirs or (self.log_dir,)))
        return copy(CopyOptions(output=str(self.output), log_dirs=given))

    def copied(self) -> dict[str, bytes]:
        copied = self.output / "d1"
        return {
            os.fsdecode(os.path.relpath(os.fsencode(path), os.fsencode(copied))): path.read_bytes()
            for path in sorted(copied.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_links_are_followed_as_by_a_broker(place: Place) -> None:
    (place.root / "elsewhere" / "inner").mkdir(parents=True)
    (place.root / "elsewhere" / "inner" / "file").write_bytes(b"linked")
    (place.log_dir / "u-0").symlink_to(place.root / "elsewhere")
    (place.folder / "linked.log").symlink_to(place.log)
    report = place.copy()
    assert (report.exit_code, report.warnings) == (0, [])
    assert place.copied() == {
        "t-0/00000000000000000000.log": b"bytes of a log",
        "t-0/linked.log": b"bytes of a log",
        "u-0/inner/file": b"linked",
    }
    assert not (place.output / "d1" / "u-0").is_symlink()


def test_what_is_no_file_is_left_out_with_a_word(place: Place) -> None:
    (place.folder / "circle").symlink_to(place.log_dir)
    (place.folder / "itself").symlink_to("itself")
    (place.folder / "nothing").symlink_to("nowhere")
    (place.folder / "device").symlink_to(os.devnull)
    os.mkfifo(place.folder / "pipe")
    report = place.copy()
    assert report.warnings == [
        f"{place.folder}/circle: a link to a folder that it is in, and left out",
        f"{place.folder}/device: not a file, and left out",
        f"{place.folder}/pipe: not a file, and left out",
    ]
    itself, nothing = report.log_dirs[0].failed
    assert (itself.file, itself.error) == (f"{place.folder}/itself", os.strerror(errno.ELOOP))
    assert nothing.file == f"{place.folder}/nothing"
    assert nothing.error.startswith("a link to nothing. Remedy: see that what it leads to is mounted")
    assert list(place.copied()) == ["t-0/00000000000000000000.log"]


def test_a_log_dir_that_is_a_link(place: Place) -> None:
    shutil.move(place.log_dir, place.root / "real")
    place.log_dir.symlink_to(place.root / "real")
    assert place.copy().exit_code == 0
    assert list(place.copied()) == ["t-0/00000000000000000000.log"]


def test_quarantine_and_lock_are_left_out_at_their_places_alone(place: Place) -> None:
    for folder in (place.log_dir, place.folder):
        (folder / INSIDE_FOLDER).mkdir()
        (folder / INSIDE_FOLDER / "file").write_bytes(b"x")
    (place.folder / ".lock").write_bytes(b"")
    place.copy()
    assert list(place.copied()) == ["t-0/.lock", "t-0/00000000000000000000.log", f"t-0/{INSIDE_FOLDER}/file"]


def test_unusual_names(place: Place) -> None:
    names = [b"caf\xe9", "n" * 255, "a b\tc\n%20#?", "ümläut", "x.partial"]
    for name in names:
        with open(os.path.join(os.fsencode(place.folder), os.fsencode(name)), "wb") as file:
            file.write(os.fsencode(name))
    report = place.copy()
    assert (report.exit_code, report.log_dirs[0].files) == (0, 6)
    expected = {f"t-0/{os.fsdecode(name)}": os.fsencode(name) for name in names}
    assert place.copied() == expected | {"t-0/00000000000000000000.log": b"bytes of a log"}
    assert place.copy().log_dirs[0].skipped_files == 6
    assert json.loads(report.to_json())["exitCode"] == 0


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENAMETOOLONG])
def test_a_name_that_the_output_does_not_take_is_a_failure_of_that_file(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    odd = place.folder / "odd"
    odd.write_bytes(b"x")
    real = LocalStore.send

    def send(self: LocalStore, key: str, *arguments: object, **more: object) -> str:
        if key.endswith("/odd"):
            raise OSError(number, os.strerror(number))
        return real(self, key, *arguments, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(LocalStore, "send", send)
    report = place.copy()
    (failed,) = report.log_dirs[0].failed
    assert (failed.file, report.exit_code) == (str(odd), 4)
    assert failed.error == f"the output does not take its name: {os.strerror(number)}"
    assert list(place.copied()) == ["t-0/00000000000000000000.log"]


def test_a_log_dir_without_files_of_its_own_is_whole_once_it_was_listed(place: Place) -> None:
    away = place.log_dir.rename(place.root / "away")
    other = place.root / "d2"
    shutil.copytree(away, other)
    options = CopyOptions(output=str(place.output), log_dirs=(str(place.log_dir), str(other)))
    assert copy(options).exit_code == 4
    assert read_document(LocalStore(str(place.output))).unfinished == {"d1/"}
    away.rename(place.log_dir)
    assert copy(options).exit_code == 0
    assert read_document(LocalStore(str(place.output))).unfinished == frozenset()


def test_holes_stay_holes(place: Place) -> None:
    index = place.folder / f"{0:020}.index"
    with index.open("wb") as file:
        file.write(b"entries" * 100)
        file.truncate(10 << 20)
    with (place.folder / "end").open("wb") as file:
        file.seek(5 << 20)
        file.write(b"at the end")
    (place.folder / "empty").touch()
    (place.folder / "only").touch()
    os.truncate(place.folder / "only", 1 << 20)
    report = place.copy()
    assert report.log_dirs[0].files == 5
    for name in (index.name, "end", "empty", "only"):
        copied = place.output / "d1" / "t-0" / name
        assert copied.read_bytes() == (place.folder / name).read_bytes()
        assert copied.stat().st_blocks <= 16
    sums = {name: row[4] for row in _rows(place) for name in [row[0].rpartition("/")[2]]}
    assert sums["only"] == "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58"


def _rows(place: Place) -> Iterator[list[str]]:
    for line in (place.output / "kafka-log-recovery-copy.jsonl").read_text().splitlines()[1:]:
        yield json.loads(line)


def during(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Have *act* done once, before the first `os` call *name*."""
    real, done = getattr(os, name), []

    def call(*arguments: object, **more: object) -> object:
        if not done:
            done.append(1)
            act()
        return real(*arguments, **more)

    monkeypatch.setattr(os, name, call)


class TestMeanwhile:
    """Locks keep brokers out, and nobody else."""

    def test_a_file_is_removed_after_it_was_listed(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place.folder / "other").write_bytes(b"x")
        found = find_files

        def find_and_remove(*arguments: object) -> object:
            result = found(*arguments)  # type: ignore[arg-type]  # handed on
            place.log.unlink()
            return result

        monkeypatch.setattr("recovery.archive.copy.plan.find_files", find_and_remove)
        report = place.copy()
        assert report.exit_code == 4
        (failed,) = report.log_dirs[0].failed
        assert failed.file == str(place.log)
        assert failed.error.startswith("it is gone since it was listed. Remedy: ")
        assert list(place.copied()) == ["t-0/other"]

    def test_a_file_that_is_listed_and_not_there_is_an_error(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.open

        def refuse(path: str, *arguments: object, **more: object) -> int:
            if path == str(place.log):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return real(path, *arguments, **more)  # type: ignore[arg-type]  # handed on

        monkeypatch.setattr(os, "open", refuse)
        report = place.copy()
        assert [one.file for one in report.log_dirs[0].failed] == [str(place.log)]
        assert report.exit_code == 4

    def test_a_file_grows(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        def grow() -> None:
            with place.log.open("ab") as file:
                file.write(b", and more")

        during(monkeypatch, "pread", grow)
        report = place.copy()
        assert place.copied()["t-0/00000000000000000000.log"] == b"bytes of a log"
        assert (report.exit_code, len(report.warnings)) == (0, 1)
        assert report.warnings[0].startswith(f"{place.log}: written to while it was copied")
        assert place.copy().log_dirs[0].files == 1
        assert place.copied()["t-0/00000000000000000000.log"] == b"bytes of a log, and more"

    def test_a_file_shrinks(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        during(monkeypatch, "pread", lambda: os.truncate(place.log, 5))
        report = place.copy()
        (failed,) = report.log_dirs[0].failed
        assert (failed.position, failed.error) == (5, "the file became shorter while it was read")
        assert place.copied() == {"t-0/00000000000000000000.log.partial": b"bytes"}
        assert place.copy().exit_code == 0
        assert place.copied() == {"t-0/00000000000000000000.log": b"bytes"}


class TestWhereItGoes:
    def test_the_output_is_the_folder_of_the_log_dirs(self, place: Place) -> None:
        """Its copy would be the log dir itself."""
        with pytest.raises(UsageError, match=r"would be the copy of a log dir, and .* is there"):
            copy(CopyOptions(output=str(place.root), log_dirs=(str(place.log_dir),)))
        assert place.log.read_bytes() == b"bytes of a log"

    def test_a_link_at_the_output_leads_to_the_log_dir(self, place: Place) -> None:
        place.output.mkdir()
        (place.output / "d1").symlink_to(place.log_dir)
        with pytest.raises(UsageError, match="is there"):
            place.copy()

    def test_another_log_dir_is_where_the_copy_goes(self, place: Place) -> None:
        other = place.output / "d1" / "d2"
        other.mkdir(parents=True)
        with pytest.raises(UsageError, match="is there"):
            place.copy(place.log_dir, other)

    @needs(MOUNTS)
    def test_the_log_dir_is_mounted_at_the_output(self, place: Place) -> None:
        (place.output / "d1").mkdir(parents=True)
        with bind(place.log_dir, place.output / "d1"), pytest.raises(UsageError, match="is there"):
            place.copy()


def test_what_a_killed_run_was_writing_is_removed(place: Place) -> None:
    place.copy()
    left = [
        place.output / "d1" / "t-0" / f".x.{'0' * 16}.recovery-tmp",
        place.output / f".m.{'1' * 16}.recovery-tmp",
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    place.copy()
    assert not any(path.exists() for path in left)


def test_a_choice_that_is_not_there_is_refused_before_anything_is_copied(place: Place) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        copy(CopyOptions(output=str(place.output), log_dirs=(str(place.log_dir),), topics=("t", "nosuch")))
    assert not place.output.exists()


def test_a_stop_while_log_dirs_are_listed(place: Place) -> None:
    stop = StopRequest()
    stop.request(2)
    report = copy(CopyOptions(output=str(place.output), log_dirs=(str(place.log_dir),)), stop=stop)
    assert report.exit_code == 130
    (log_dir,) = json.loads(report.to_json())["logDirs"]
    assert (log_dir["leftFiles"], log_dir["leftBytes"]) == (None, None)
    assert "nothing copied; what it has is not known" in report.to_text()
    assert not place.output.exists()
