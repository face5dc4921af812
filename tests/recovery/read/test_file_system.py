"""What is there, what is not, and what cannot be told: the last is neither."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.read.file_system import (
    is_file,
    is_folder,
    is_link,
    is_there,
    look_at,
    naming,
    nearest,
    open_file,
)
from recovery.write.durable import make_folder_like, write_new

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


class TestOpenFile:
    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"abc")
        with open(tmp_path / "a", "rb", opener=open_file) as file:
            assert file.read() == b"abc"

    @pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
    @pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
    def test_nothing_else_and_without_waiting(self, tmp_path: Path, kind: str, flags: int) -> None:
        path = str(tmp_path / "odd")
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(path)
        elif kind == "device":
            path = "/dev/null"
        else:
            os.mkdir(path)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError) as raised:
            open_file(path, flags)
        assert raised.value.errno in (errno.EINVAL, errno.EISDIR)
        assert raised.value.filename == path
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_link_where_none_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        (tmp_path / "link").symlink_to("a")
        os.close(open_file(str(tmp_path / "link")))
        with pytest.raises(OSError, match="a link, which is not followed here"):
            open_file(str(tmp_path / "link"), os.O_RDONLY | os.O_NOFOLLOW)


def test_what_replaces_a_new_folder_is_not_given_away(tmp_path: Path, monkeypatch) -> None:
    """Between making a folder and giving it to its owner somebody else may put a link in its place."""
    (tmp_path / "log dir").mkdir()
    (tmp_path / "root's").mkdir(mode=0o700)
    make = os.mkdir

    def make_and_lose(path: str, mode: int) -> None:
        make(path, mode)
        os.rmdir(path)
        os.symlink(tmp_path / "root's", path)

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    given = []
    monkeypatch.setattr(os, "fchown", lambda *arguments: given.append(arguments))
    monkeypatch.setattr(os, "chown", lambda *arguments: given.append(arguments))
    with pytest.raises(OSError):
        make_folder_like(str(tmp_path / "new"), str(tmp_path / "log dir"))
    assert given == []
    assert stat.S_IMODE((tmp_path / "root's").stat().st_mode) == 0o700


def test_no_right_of_a_program_is_taken_over(tmp_path: Path) -> None:
    """A link to a program with the rights of root, as what a new file is to be like."""
    (tmp_path / "su").touch()
    (tmp_path / "su").chmod(0o6755)
    write_new(str(tmp_path / "new"), b"x", like=str(tmp_path / "su"))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755
