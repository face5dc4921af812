"""The kernels before a run: they are loaded, or compiled, before progress is measured."""

from __future__ import annotations

from typing import NamedTuple

from native import kernels
from native.segment_scan import warm_up
from recovery.watch.events import Remark

_NOTABLE_COMPILE_S = 1.0


class KernelStart(NamedTuple):
    """How the kernels of a run came to be ready.

    Attributes:
        cpu_path: label of the CpuPath that is taken.
        origin: cache, compiled (and put into the cache) or memory (of this process alone).
        remarks: what the operator should know of it.
    """

    cpu_path: str
    origin: str
    remarks: tuple[Remark, ...]


def start_kernels() -> KernelStart:
    """Make the kernels ready.

    Raises:
        UnsupportedCpuPathError: the environment asks for a CPU path that does not exist here.
    """
    path = warm_up()
    account = kernels.account()
    remarks = []
    if account.compile_s > _NOTABLE_COMPILE_S:
        once = ", once" if account.origin is kernels.Origin.COMPILED else ""
        remarks.append(Remark(text=f"compiled the kernels for this CPU in {account.compile_s:.0f} s{once}"))
    if account.remark:
        remarks.append(Remark(text=account.remark, level="warning"))
    return KernelStart(path.label, account.origin.value, tuple(remarks))
