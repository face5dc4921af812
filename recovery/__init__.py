"""Log recovery outside the broker: inventory, scan, fold, plan, apply.

    import recovery
    report = recovery.recover(["/var/lib/kafka/data"], config={"num.recovery.threads.per.data.dir": "8"})
    print(report.to_text())

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.local import recover as recover
    from recovery.report import PartitionReport as PartitionReport
    from recovery.report import RecoveryReport as RecoveryReport
    from recovery.scrub import verify as verify
    from recovery.scrub_report import ScrubReport as ScrubReport

_PLACES = {
    "recover": "recovery.local",
    "RecoveryReport": "recovery.report",
    "PartitionReport": "recovery.report",
    "verify": "recovery.scrub",
    "ScrubReport": "recovery.scrub_report",
}

__all__ = ["PartitionReport", "RecoveryReport", "ScrubReport", "recover", "verify"]


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
