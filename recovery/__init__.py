"""Log recovery outside the broker: inventory, scan, fold, plan, apply.

    import recovery
    report = recovery.recover(["/var/lib/kafka/data"], config={"num.recovery.threads.per.data.dir": "8"})
    print(report.to_text())

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from recovery.version import VERSION

if TYPE_CHECKING:
    from recovery.check.api import verify as verify
    from recovery.check.options import VerifyOptions as VerifyOptions
    from recovery.check.report import VerifyReport as VerifyReport
    from recovery.describe.api import describe_log_dirs as describe_log_dirs
    from recovery.describe.options import DescribeOptions as DescribeOptions
    from recovery.describe.report import LogDirsReport as LogDirsReport
    from recovery.engine.api import recover as recover
    from recovery.engine.options import RecoverOptions as RecoverOptions
    from recovery.engine.report import PartitionReport as PartitionReport
    from recovery.engine.report import RecoveryReport as RecoveryReport
    from recovery.follow.api import watch_broker as watch_broker
    from recovery.follow.options import WatchOptions as WatchOptions
    from recovery.follow.report import WatchReport as WatchReport
    from recovery.forecast.api import estimate as estimate
    from recovery.forecast.options import EstimateOptions as EstimateOptions
    from recovery.forecast.report import EstimateReport as EstimateReport

__version__ = VERSION

_PLACES = {
    "describe_log_dirs": "recovery.describe.api",
    "DescribeOptions": "recovery.describe.options",
    "LogDirsReport": "recovery.describe.report",
    "recover": "recovery.engine.api",
    "RecoverOptions": "recovery.engine.options",
    "RecoveryReport": "recovery.engine.report",
    "PartitionReport": "recovery.engine.report",
    "verify": "recovery.check.api",
    "VerifyOptions": "recovery.check.options",
    "VerifyReport": "recovery.check.report",
    "watch_broker": "recovery.follow.api",
    "WatchOptions": "recovery.follow.options",
    "WatchReport": "recovery.follow.report",
    "estimate": "recovery.forecast.api",
    "EstimateOptions": "recovery.forecast.options",
    "EstimateReport": "recovery.forecast.report",
}

__all__ = [
    "DescribeOptions",
    "EstimateOptions",
    "EstimateReport",
    "LogDirsReport",
    "PartitionReport",
    "RecoverOptions",
    "RecoveryReport",
    "VerifyOptions",
    "VerifyReport",
    "WatchOptions",
    "WatchReport",
    "describe_log_dirs",
    "estimate",
    "recover",
    "verify",
    "watch_broker",
]


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
