"""The kernels before a run: they are loaded, or compiled, before any clock of progress runs."""

from __future__ import annotations

from native import kernels
from native.errors import UnsupportedCpuPathError
from native.segment_scan import warm_up
from recovery.errors import UsageError
from recovery.observer import Remark

_NOTABLE_COMPILE_S = 1.0


def start_kernels() -> tuple[Remark, ...]:
    """Make the kernels ready and return what the operator should know of it.

    Raises:
        UsageError: the environment asks for a CPU path that there is not.
    """
    try:
        warm_up()
    except UnsupportedCpuPathError as error:
        raise UsageError(str(error)) from None
    account = kernels.account()
    remarks = []
    if account.compile_s > _NOTABLE_COMPILE_S:
        once = ", once" if account.origin is kernels.Origin.COMPILED else ""
        remarks.append(Remark(text=f"compiled the kernels for this CPU in {account.compile_s:.0f} s{once}"))
    if account.remark:
        remarks.append(Remark(text=account.remark, level="warning"))
    return tuple(remarks)
