"""The engine as the library call runs it, with the broker's facts given in place of those of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from recovery.broker.starting_release import starting_release
from recovery.engine.options import RecoverOptions
from recovery.engine.report import RecoveryReport
from recovery.engine.run import BrokerFacts, Engine
from recovery.load.model import LogSettings
from recovery.logdir.lock import LogDirLocks
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer


def run_engine(
    log_dirs: Iterable[Path | str],
    settings_of: Callable[[str], LogSettings],
    *,
    thread_count: int = 2,
    locked_dirs: Iterable[Path | str] = (),
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
    producer_id_expiration_ms: int = 86_400_000,
    **options: Any,
) -> RecoveryReport:
    """Lock *log_dirs* and *locked_dirs*, recover the former with *options*, and return what became of them.

    The release is 4.3 unless they name another: that of the oracle which most suites compare with.
    """
    paths = [os.fspath(log_dir) for log_dir in log_dirs]
    recover_options = RecoverOptions(**({"release": "4.3"} | options))
    broker = BrokerFacts(
        settings_of=settings_of,
        release=starting_release(recover_options.release, None, None),
        thread_count=thread_count,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
    with LogDirLocks([*paths, *map(os.fspath, locked_dirs)], dry_run=recover_options.dry_run) as locks:
        return Engine(paths, recover_options, broker, locks, observers=observers, stop=stop).run()
