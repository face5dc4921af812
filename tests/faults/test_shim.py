"""The shim sees each call, and does what it is told to."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.faults.shim import (
    CONTROL_VARIABLE,
    OPS_OF_ERROR,
    Action,
    Call,
    Control,
    Fault,
    Op,
    build_shim,
    installed_compilers,
    open_control,
    read_trace,
    shim_library,
)


class Shimmed:
    """Runs functions of this module in a process of its own, below the shim."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.trace = folder / "trace"
        self.freezes = False
        self._control_path = folder / "control"
        self.control: Control = open_control(self._control_path)

    def run(
        self, function: Callable[[Path], object], fault: Fault | None = None
    ) -> subprocess.CompletedProcess[str]:
        self.trace.unlink(missing_ok=True)
        self.control.set(str(self.work), fault, trace=str(self.trace), with_data=True, freezes=self.freezes)
        code = (
            "import os, sys; from pathlib import Path; import tests.faults.test_shim as here;"
            "from tests.faults.shim import open_control;"
            f"control = open_control(os.environ['{CONTROL_VARIABLE}']); control.armed = 1;"
            f"here.{function.__name__}(Path({str(self.work)!r}))"
        )
        environment = os.environ | {
            "LD_PRELOAD": str(shim_library()),
            CONTROL_VARIABLE: str(self._control_path),
        }
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )

    def calls(self) -> list[Call]:
        return list(read_trace(self.trace))


@pytest.fixture
def shimmed(tmp_path: Path) -> Shimmed:
    return Shimmed(tmp_path)


# -- what is run -----------------------------------------------------------------------------------------------


def each_call_once(work: Path) -> None:
    """One of each, by the ways that Python, its library and ctypes take."""
    path = os.path.join(work, "a")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"0123456789")
    os.pwrite(descriptor, b"ab", 4)
    os.writev(descriptor, [b"xy", b"z"])
    os.pread(descriptor, 4, 0)
    os.preadv(descriptor, [bytearray(2)], 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.read(descriptor, 3)
    os.readv(descriptor, [bytearray(1)])
    os.ftruncate(descriptor, 8)
    os.truncate(path, 7)
    os.fsync(descriptor)
    os.fdatasync(descriptor)
    ctypes.CDLL(None).syncfs(descriptor)
    os.posix_fallocate(descriptor, 0, 100)
    os.fchmod(descriptor, 0o600)
    os.chmod(path, 0o640)
    os.fchown(descriptor, -1, -1)
    os.chown(path, -1, -1)
    os.utime(path, (1, 1))
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    mmap.mmap(descriptor, 8).close()
    os.fstat(descriptor)
    os.stat(path)
    os.lstat(path)
    os.statvfs(path)
    os.close(descriptor)
    os.link(path, path + "-link")
    os.rename(path, path + "-renamed")
    os.replace(path + "-renamed", path)
    os.unlink(path + "-link")
    os.mkdir(os.path.join(work, "folder"))
    os.listdir(work)
    os.rmdir(os.path.join(work, "folder"))


def three_writes(work: Path) -> None:
    descriptor = os.open(os.path.join(work, "a"), os.O_WRONLY | os.O_CREAT)
    for data in (b"first-", b"second", b"-third"):
        os.write(descriptor, data)


def three_writes_and_an_unlink(work: Path) -> None:
    descriptor = os.open(os.path.join(work, "a"), os.O_WRONLY | os.O_CREAT)
    for data in (b"first-", b"second", b"-third"):
        with contextlib.suppress(OSError):
            os.write(descriptor, data)
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(work, "a"))


def a_write_that_says_why(work: Path) -> None:
    descriptor = os.open(os.path.join(work, "a"), os.O_WRONLY | os.O_CREAT)
    for _ in range(4):
        try:
            print(os.write(descriptor, b"12345678"))
        except OSError as error:
            print(errno.errorcode[error.errno])


# -- what must come of it ----------------------------------------------------------------------------------------


def test_each_call_is_seen(shimmed: Shimmed) -> None:
    done = shimmed.run(each_call_once)
    assert done.returncode == 0, done.stderr
    counts = Counter(call.op for call in shimmed.calls())
    entries = counts.pop(Op.READDIR)
    assert entries >= 4  # a, folder, . and .., and perhaps the end
    assert counts.pop(Op.STAT) >= 3  # Python asks some more by itself
    assert counts == {
        Op.CREATE: 1, Op.WRITE: 3, Op.READ: 4, Op.TRUNCATE: 2, Op.SYNC: 2, Op.SYNC_ALL: 1, Op.ALLOCATE: 1, Op.MODE: 2,
        Op.OWNER: 2, Op.TIMES: 1, Op.LOCK: 1, Op.MMAP: 1, Op.STATVFS: 1, Op.LINK: 1, Op.RENAME: 2, Op.UNLINK: 1,
        Op.MKDIR: 1, Op.RMDIR: 1, Op.OPENDIR: 1,
    }  # fmt: skip
    assert shimmed.control.count == len(shimmed.calls())


def link_what_is_open(work: Path) -> None:
    (work / "file").write_bytes(b"data")
    folder = os.open(work, os.O_RDONLY)
    read = os.open(work / "file", os.O_RDONLY)
    os.link(f"/proc/self/fd/{read}", "other", src_dir_fd=folder, dst_dir_fd=folder)


def test_a_link_to_what_is_open_is_one_to_its_file(shimmed: Shimmed) -> None:
    shimmed.run(link_what_is_open)
    (call,) = [call for call in read_trace(shimmed.trace) if call.op is Op.LINK]
    assert (call.path, call.target) == (str(shimmed.work / "file"), str(shimmed.work / "other"))
    assert call.inode == (shimmed.work / "other").stat().st_ino


def test_the_trace_holds_what_was_written_and_where(shimmed: Shimmed) -> None:
    shimmed.run(three_writes)
    calls = shimmed.calls()
    assert [(call.op, call.offset, call.data) for call in calls] == [
        (Op.CREATE, 0, b""), (Op.WRITE, 0, b"first-"), (Op.WRITE, 6, b"second"), (Op.WRITE, 12, b"-third"),
    ]  # fmt: skip
    assert calls[0].is_created
    assert {call.inode for call in calls} == {(shimmed.work / "a").stat().st_ino}


@pytest.mark.parametrize(
    ("action", "left"),
    [(Action.KILL_BEFORE, b"first-"), (Action.TEAR, b"first-sec"), (Action.KILL_AFTER, b"first-second")],
)
def test_a_kill_leaves_what_was_done_until_then(shimmed: Shimmed, action: Action, left: bytes) -> None:
    done = shimmed.run(three_writes, Fault(action=action, at=3))
    assert done.returncode == -signal.SIGKILL
    assert (shimmed.work / "a").read_bytes() == left


@pytest.mark.parametrize(
    ("action", "left"),
    [(Action.KILL_BEFORE, b"first-"), (Action.TEAR, b"first-sec"), (Action.KILL_AFTER, b"first-second")],
)
def test_a_disk_that_stands_still_is_what_a_kill_leaves(
    shimmed: Shimmed, action: Action, left: bytes
) -> None:
    shimmed.freezes = True
    done = shimmed.run(three_writes_and_an_unlink, Fault(action=action, at=3))
    assert done.returncode == 0
    assert (shimmed.work / "a").read_bytes() == left
    assert shimmed.control.frozen


@pytest.mark.parametrize("compiler", installed_compilers() or [None])
def test_each_compiler_builds_the_same_shim(shimmed: Shimmed, tmp_path: Path, compiler, monkeypatch) -> None:
    if compiler is not None:  # else the one that was fetched has built it
        build_shim(compiler, tmp_path / "shim.so")
        monkeypatch.setitem(globals(), "shim_library", lambda: tmp_path / "shim.so")
    done = shimmed.run(three_writes, Fault(action=Action.TEAR, at=3))
    assert done.returncode == -signal.SIGKILL
    assert (shimmed.work / "a").read_bytes() == b"first-sec"
    assert [call.data for call in shimmed.calls()] == [b"", b"first-", b"sec"]


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_call_fails_once_or_from_then_on(shimmed: Shimmed, is_persistent: bool) -> None:
    fault = Fault(
        action=Action.FAIL,
        at=3,
        error=errno.ENOSPC,
        is_persistent=is_persistent,
        ops=OPS_OF_ERROR[errno.ENOSPC],
    )
    done = shimmed.run(a_write_that_says_why, fault)
    assert done.stdout.split() == ["8", "ENOSPC", *(["ENOSPC"] * 2 if is_persistent else ["8"] * 2)]
    assert shimmed.control.hits == (3 if is_persistent else 1)


def test_calls_may_be_counted_by_operation_and_path(shimmed: Shimmed) -> None:
    shimmed.run(three_writes_and_an_unlink, Fault.parse("kill-before@write wor?/a#3"))
    assert (shimmed.work / "a").read_bytes() == b"first-second"


def test_a_write_may_be_short(shimmed: Shimmed) -> None:
    done = shimmed.run(a_write_that_says_why, Fault(action=Action.SHORTEN, at=2))
    assert done.stdout.split() == ["4", "8", "8", "8"]


def test_nothing_outside_the_folder_is_touched(shimmed: Shimmed, tmp_path: Path) -> None:
    shimmed.control.set(str(tmp_path / "elsewhere"), None)
    done = shimmed.run(three_writes, None)
    assert done.returncode == 0
    assert all(call.path.startswith(str(shimmed.work)) for call in shimmed.calls())


@pytest.mark.parametrize(
    "text",
    ["kill-after@17", "tear@3", "ENOSPC@5", "EIO+@9", "shorten+@4", "cut-before@8:3", "EIO+@stat d1/.lock#2"],
)
def test_a_fault_is_found_again_by_its_name(text: str) -> None:
    assert str(Fault.parse(text)) == text
