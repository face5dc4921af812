"""What is there, what is not, and what cannot be told: the last is neither."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.file_system import is_file, is_folder, is_link, is_there, look_at, naming, nearest

ASKING: list[Callable[[str], object]] = [is_there, look_at, is_file, is_folder, is_link, nearest]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to the file").symlink_to("file")
    (tmp_path / "to nowhere").symlink_to("gone")
    (tmp_path / "in circles").symlink_to("in circles")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("file", (True, True, True, False)),
        ("folder", (True, True, False, True)),
        ("to the file", (True, True, True, False)),
        ("to nowhere", (True, False, False, False)),
        ("in circles", (True, False, False, False)),
        ("missing", (False, False, False, False)),
        ("file/below a file", (False, False, False, False)),
    ],
)
def test_a_name_is_there_or_leads_somewhere(
    folder: Path, name: str, answers: tuple[bool, bool, bool, bool]
) -> None:
    path = str(folder / name)
    assert (is_there(path), look_at(path) is not None, is_file(path), is_folder(path)) == answers


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("ask", ASKING)
def test_what_cannot_be_looked_at_is_not_missing(folder: Path, ask, number: int, monkeypatch) -> None:
    def fail(path: str) -> os.stat_result:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "stat", fail)
    monkeypatch.setattr(os, "lstat", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        ask(str(folder / "file"))


def test_the_nearest_folder_is_the_first_that_is_there(folder: Path) -> None:
    assert nearest(str(folder / "folder" / "a" / "b")) == str(folder / "folder")
    assert nearest(str(folder)) == str(folder)


def test_an_error_of_a_descriptor_names_the_file(folder: Path) -> None:
    with pytest.raises(OSError, match="it") as caught, naming("it"):
        os.stat(10_000)
    assert caught.value.filename == "it"


def test_an_error_that_names_a_file_keeps_it(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, naming("it"):
        os.stat(folder / "missing")
    assert caught.value.filename == str(folder / "missing")
