"""Really full disks: a run on a tmpfs with a little less room than it needs, and again on one that was made larger.

Mounting needs a mount namespace of one's own, `in_own_namespace`; where the machine does not give one, the same
points are made by the shim: from some call on, everything that takes room fails with ENOSPC.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.faults.bench import CLEAN_CODES, StateBench
from tests.faults.fork_server import Ended
from tests.faults.io_faults import error_words
from tests.faults.shim import OPS_OF_ERROR, Action, Fault

SIZE_COUNT = 64
_PLENTY_BYTES = 256 << 20
_NEED = re.compile(r"needs [\d,]+ bytes .*\b[\d,]+ free")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NAMESPACES = (("unshare", "-m"), ("unshare", "-Urm"))


def namespace_command() -> Sequence[str] | None:
    """The command that runs another one where it may mount; None where this machine does not allow it."""
    for command in _NAMESPACES:
        try:
            probe = [*command, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def in_own_namespace(arguments: Sequence[str]) -> int:
    """Run this module's campaign again in a mount namespace of its own; return its exit code."""
    command = namespace_command()
    assert command is not None
    environment = os.environ | {"FAULTS_MAY_MOUNT": "1"}
    return subprocess.run(
        [*command, sys.executable, "-m", "tests.faults.campaign", *arguments], env=environment, check=False
    ).returncode


def may_mount() -> bool:
    """Whether this process is in such a namespace."""
    return "FAULTS_MAY_MOUNT" in os.environ


def free_sizes(bench: StateBench, count: int = SIZE_COUNT) -> list[int]:
    """How many bytes are free on the disk: up to *count* sizes from one page to what the run needs, in whole pages.

    The need is found by bisection: what a run takes and gives back on its way is not seen at its end.
    """
    low, high = 0, 1
    while not _is_enough(bench, high * _PAGE_BYTES):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_enough(bench, middle * _PAGE_BYTES) else (middle, high)
    return sorted({high * step // count * _PAGE_BYTES for step in range(count + 1)})


def _is_enough(bench: StateBench, free_bytes: int) -> bool:
    with _short_disk(bench, free_bytes):
        return bench.run(before=f"{__name__}:hide_shortage").exit_code == bench.undisturbed.exit_code


def check_full_disk(bench: StateBench, free_bytes: int, *, is_seen: bool) -> list[str]:
    """Run with *free_bytes* of room, look, make room, run again, look; return what is wrong.

    Args:
        is_seen: whether the run can ask how much is free; else it is as if others had filled the disk meanwhile.
    """
    with _short_disk(bench, free_bytes):
        ended = bench.run(before="" if is_seen else f"{__name__}:hide_shortage")
        problems = shortage_problems(bench, ended)
        over, unmarked = bench.over(), bench.unmarked()
        _mount(bench, f"remount,size={_PLENTY_BYTES}")
        problems += [f"then: {problem}" for problem in bench.rerun_problems(over, unmarked)]
    return [f"{free_bytes} bytes free: {problem}" for problem in problems]


def shortage_problems(bench: StateBench, ended: Ended) -> list[str]:
    """What is wrong after a run that had too little room."""
    problems = [*bench.losses(), *bench.false_markers()]
    if ended.exit_code in (*CLEAN_CODES, bench.undisturbed.exit_code):
        wrong = bench.differences()
        if not wrong:
            return problems
        if ended.exit_code in CLEAN_CODES:
            return [*problems, f"exit code {ended.exit_code}, but {wrong[0]}"]
    said = error_words(ended)
    is_told = os.strerror(errno.ENOSPC) in said or _NEED.search(said)
    if not is_told or str(bench.work) not in said:
        problems.append(f"errno or file not named: {said}")
    return problems


def hide_shortage(_argv: Sequence[str]) -> None:
    """Let this process believe that there is room."""

    def with_room(ask: Callable[[Any], os.statvfs_result]) -> Callable[[Any], os.statvfs_result]:
        def asked(place: Any) -> os.statvfs_result:
            fields = list(ask(place))
            fields[3] = fields[4] = _PLENTY_BYTES // _PAGE_BYTES  # f_bfree, f_bavail
            return os.statvfs_result(fields)

        return asked

    os.statvfs, os.fstatvfs = with_room(os.statvfs), with_room(os.fstatvfs)


def shim_shortages(bench: StateBench, count: int = SIZE_COUNT) -> list[Fault]:
    """The same by the shim: from some call on there is no room."""
    calls = [call.number for call in bench.calls if call.op in OPS_OF_ERROR[errno.ENOSPC]]
    chosen = sorted({calls[len(calls) * step // count] for step in range(count)})
    return [
        Fault(
            action=Action.FAIL, at=at, error=errno.ENOSPC, is_persistent=True, ops=OPS_OF_ERROR[errno.ENOSPC]
        )
        for at in chosen
    ]


@contextmanager
def _short_disk(bench: StateBench, free_bytes: int) -> Iterator[None]:
    """A new copy of the state on a file system of its own, with *free_bytes* of room."""
    bench.work.mkdir(exist_ok=True)
    _mount(bench, f"size={_PLENTY_BYTES}")
    try:
        bench.fresh_in_place()
        found = os.statvfs(bench.work)
        used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
        _mount(bench, f"remount,size={used_bytes + free_bytes}")
        yield
    finally:
        subprocess.run(["umount", str(bench.work)], check=True)


def _mount(bench: StateBench, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(bench.work)], check=True)
