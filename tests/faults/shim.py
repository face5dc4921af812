"""The fault shim of shim.c from Python: built at need, set for a case, and its trace read.

`cc` builds it where there is one, else the compiler of the ziglang package, which pip fetches into the cache once.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import importlib.util
import mmap
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.build_cache import cached

SOURCE = Path(__file__).with_name("shim.c")
CONTROL_VARIABLE = "FAULTS_CONTROL"

_PATH_BYTES = 1024
_RECORD = struct.Struct("<IHHiiqQqqHHI")
_COMPILER_FLAGS = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")


class Op(enum.IntEnum):
    """The kinds of calls; the order is that of shim.c."""

    OPEN = 0
    OPEN_WRITE = enum.auto()
    CREATE = enum.auto()
    READ = enum.auto()
    WRITE = enum.auto()
    TRUNCATE = enum.auto()
    SYNC = enum.auto()
    RENAME = enum.auto()
    LINK = enum.auto()
    UNLINK = enum.auto()
    MKDIR = enum.auto()
    RMDIR = enum.auto()
    MODE = enum.auto()
    OWNER = enum.auto()
    ALLOCATE = enum.auto()
    COPY = enum.auto()
    MMAP = enum.auto()
    LOCK = enum.auto()
    STATVFS = enum.auto()
    OPENDIR = enum.auto()
    READDIR = enum.auto()
    STAT = enum.auto()
    READLINK = enum.auto()
    TIMES = enum.auto()
    SYNC_ALL = enum.auto()  # syncfs


CHANGING_OPS = frozenset(
    {
        Op.CREATE, Op.WRITE, Op.TRUNCATE, Op.SYNC, Op.RENAME, Op.LINK, Op.UNLINK, Op.MKDIR, Op.RMDIR, Op.MODE,
        Op.OWNER, Op.ALLOCATE, Op.COPY, Op.TIMES, Op.SYNC_ALL,
    }
)  # fmt: skip
"""What a kill before and a kill after can tell apart."""


_NAMING_OPS = frozenset({Op.CREATE, Op.RENAME, Op.LINK, Op.UNLINK, Op.MKDIR, Op.RMDIR})
_SPACE_OPS = frozenset(
    {
        Op.CREATE,
        Op.WRITE,
        Op.TRUNCATE,
        Op.SYNC,
        Op.RENAME,
        Op.LINK,
        Op.MKDIR,
        Op.ALLOCATE,
        Op.COPY,
        Op.SYNC_ALL,
    }
)

OPS_OF_ERROR = {
    errno.EIO: frozenset(Op) - {Op.MMAP},
    errno.ENOSPC: _SPACE_OPS,
    errno.EDQUOT: _SPACE_OPS,
    errno.EACCES: _NAMING_OPS
    | {
        Op.OPEN,
        Op.OPEN_WRITE,
        Op.OPENDIR,
        Op.STAT,
        Op.MODE,
        Op.OWNER,
        Op.TIMES,
        Op.STATVFS,
        Op.READLINK,
        Op.MMAP,
    },
    errno.EROFS: CHANGING_OPS | {Op.OPEN_WRITE},
}
"""Which calls an error can befall."""


class Action(enum.IntEnum):
    """What happens at the chosen call; the order is that of shim.c."""

    NOTHING = 0
    KILL_BEFORE = enum.auto()
    KILL_AFTER = enum.auto()
    TEAR = enum.auto()  # half of the bytes, then the kill
    FAIL = enum.auto()
    SHORTEN = enum.auto()  # half of the bytes
    CUT_BEFORE = enum.auto()  # somebody cuts the file to some eighths of its size
    CUT_AFTER = enum.auto()
    REPLACE_BEFORE = enum.auto()  # somebody puts another file in its place


KILLING_ACTIONS = frozenset({Action.KILL_BEFORE, Action.KILL_AFTER, Action.TEAR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is to happen at call *at* (from 1), or from it on: `EIO@17`, or by name `EIO+@stat d1/.lock#2`.

    Attributes:
        of: the calls that *at* counts: their operation, and how their path ends (`fnmatch`). None for all.
        error: the errno of a call that fails; for a file that is cut, the eighths of it that are left.
    """

    action: Action
    at: int
    error: int = 0
    is_persistent: bool = False
    ops: frozenset[Op] = frozenset(Op)
    of: tuple[Op, str] | None = None

    def __str__(self) -> str:
        words = errno.errorcode[self.error] if self.action is Action.FAIL else self.action.name.lower()
        eighths = f":{self.error}" if self.action in (Action.CUT_BEFORE, Action.CUT_AFTER) else ""
        return (
            f"{words.replace('_', '-')}{'+' if self.is_persistent else ''}@{self._counted}{self.at}{eighths}"
        )

    @property
    def _counted(self) -> str:
        return "" if self.of is None else f"{self.of[0].name.lower()} {self.of[1]}#"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Return the fault that `str` has written."""
        words, _, place = text.partition("@")
        place, _, eighths = place.partition(":")
        counted, _, at = place.rpartition("#")
        op, _, path = counted.partition(" ")
        name = words.rstrip("+").replace("-", "_").upper()
        is_action = name in Action.__members__
        error = int(eighths or 0) if is_action else getattr(errno, name)
        return cls(
            action=Action[name] if is_action else Action.FAIL,
            at=int(at),
            error=error,
            is_persistent=words.endswith("+"),
            ops=frozenset(Op) if is_action else OPS_OF_ERROR[error],
            of=(Op[op.upper()], path) if counted else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One traced call. Offsets and lengths are in bytes."""

    number: int  # from 1, as a `Fault` counts
    op: Op
    path: str
    target: str  # the second name of a rename or a link
    inode: int
    error: int
    result: int
    offset: int
    length: int
    is_created: bool
    is_truncated: bool
    data: bytes

    def __str__(self) -> str:
        names = "/".join(self.path.split("/")[-2:]) + (
            f" -> {os.path.basename(self.target)}" if self.target else ""
        )
        return f"{self.op.name.lower()} {names}"


class Control(ctypes.Structure):
    """struct control of shim.c."""

    _fields_ = (
        ("armed", ctypes.c_int32),
        ("action", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("persistent", ctypes.c_int32),
        ("ops", ctypes.c_uint64),
        ("at", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("hit_op", ctypes.c_int32),
        ("with_data", ctypes.c_int32),
        ("freezes", ctypes.c_int32),
        ("frozen", ctypes.c_int32),
        ("run", ctypes.c_int32),
        ("counted_op", ctypes.c_int32),
        ("counted_left", ctypes.c_int64),
        ("counted_path", ctypes.c_char * _PATH_BYTES),
        ("prefix", ctypes.c_char * _PATH_BYTES),
        ("trace", ctypes.c_char * _PATH_BYTES),
        ("hit_path", ctypes.c_char * _PATH_BYTES),
        ("op_counts", ctypes.c_int64 * len(Op)),
    )

    def set(
        self,
        prefix: str,
        fault: Fault | None,
        *,
        trace: str = "",
        with_data: bool = False,
        freezes: bool = False,
    ) -> None:
        """Get ready for one run: forget the last one."""
        run = self.run + 1
        ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(self))
        self.run = run
        self.freezes = freezes
        self.prefix = os.fsencode(prefix)
        self.trace = os.fsencode(trace)
        self.with_data = with_data
        if fault is not None:
            self.action, self.error = fault.action, fault.error
            if fault.of is None:
                self.at = fault.at
            else:
                self.counted_op, self.counted_path = fault.of[0], os.fsencode(f"*/{fault.of[1]}")
                self.counted_left = fault.at
            self.persistent = fault.is_persistent
            self.ops = sum(1 << op for op in fault.ops)


def open_control(path: str | os.PathLike[str]) -> Control:
    """Map the control page at *path*, made where it is not there."""
    size = ctypes.sizeof(Control)
    with open(path, "a+b") as file:
        if file.seek(0, os.SEEK_END) < size:
            file.truncate(size)
        return Control.from_buffer(mmap.mmap(file.fileno(), size))


def read_trace(path: str | os.PathLike[str]) -> Iterator[Call]:
    """Yield the calls of a trace, in their order."""
    data = Path(path).read_bytes() if os.path.exists(path) else b""
    position = number = 0
    while position < len(data):
        (
            size, op, flags, error, _, result, inode, offset, length, path_bytes, target_bytes, data_bytes
        ) = _RECORD.unpack_from(data, position)  # fmt: skip
        names = position + _RECORD.size
        target = names + path_bytes
        content = target + target_bytes
        number += 1
        yield Call(
            number=number,
            op=Op(op),
            path=os.fsdecode(data[names:target]),
            target=os.fsdecode(data[target:content]),
            inode=inode,
            error=error,
            result=result,
            offset=offset,
            length=length,
            is_created=bool(flags & 1),
            is_truncated=bool(flags & 2),
            data=data[content : content + data_bytes],
        )
        position += size


def shim_library() -> Path:
    """Return the built shim, for LD_PRELOAD."""

    def build(into: Path) -> None:
        build_shim((installed_compilers() or [_fetched_compiler()])[0], into / "shim.so")

    return cached("fault-shim", [SOURCE], [sys.platform, os.uname().machine], build) / "shim.so"


def build_shim(compiler: Sequence[str], into: Path) -> None:
    """Build the shim as the library *into*."""
    command = [*compiler, *_COMPILER_FLAGS, "-o", str(into), str(SOURCE), "-ldl", "-pthread"]
    subprocess.run(command, check=True)


def installed_compilers() -> list[list[str]]:
    """The commands of the C compilers that are there."""
    commands = [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]
    has_zig = importlib.util.find_spec("ziglang") is not None
    return [*commands, *([[sys.executable, "-m", "ziglang", "cc"]] if has_zig else [])]


def _fetched_compiler() -> list[str]:
    def fetch(into: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(into), "ziglang"]
        subprocess.run(pip, check=True)

    packages = cached("ziglang", [], ["ziglang"], fetch)
    return ["env", f"PYTHONPATH={packages}", sys.executable, "-m", "ziglang", "cc"]
