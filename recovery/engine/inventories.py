"""All log dirs of a run looked at together: repaired if that is asked for, what may be touched told from what may not.

Two copies of a partition are seen only where all dirs are; so no dir is repaired before all are listed.

Kafka: LogManager.loadLogs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recovery.engine.repair import repair_log_dir
from recovery.errors import LogDirOfflineError
from recovery.logdir.duplicates import refuse_duplicates
from recovery.logdir.inventory import LogDirInventory
from recovery.problem import Problem
from recovery.write.quarantine import Quarantine

Listing = Callable[..., LogDirInventory]
"""`list_log_dir` with all but the log dir and `without` settled."""


@dataclass(slots=True, kw_only=True)
class Inventories:
    """What lies in the log dirs.

    Attributes:
        ready: of the dirs that can be worked on.
        offline: why the others cannot be.
        repairs: what was moved away, or would be, in words, by log dir.
    """

    ready: list[LogDirInventory] = field(default_factory=list)
    offline: dict[str, LogDirOfflineError] = field(default_factory=dict)
    repairs: dict[str, tuple[str, ...]] = field(default_factory=dict)


def list_log_dirs(
    log_dirs: Iterable[str],
    listing: Listing,
    *,
    known: Mapping[str, tuple[Problem, ...]] | None = None,
    repair_into: Callable[[str], Quarantine] | None = None,
    before_repair: Callable[[LogDirInventory], None] = lambda _: None,
    dry_run: bool = False,
) -> Inventories:
    """Return what lies in *log_dirs*.

    Args:
        known: problems of log dirs that were found before.
        repair_into: the quarantine of a log dir, for a repair; None for none.
        before_repair: may raise where a log dir must not be touched.
        dry_run: leave everything where it is, and return what would be there after a repair.
    """
    inventories = Inventories()
    listing = _with_known(listing, known or {})
    found = _list(log_dirs, listing, inventories)
    if repair_into is not None:
        for inventory in found:
            before_repair(inventory)
        found = [
            repaired
            for one in refuse_duplicates(found)
            if (repaired := _repaired(one, listing, inventories, repair_into(one.log_dir), dry_run))
            is not None
        ]
    for inventory in refuse_duplicates(found):
        if inventory.problems:
            error = LogDirOfflineError(inventory.log_dir, problems=inventory.all_problems)
            inventories.offline[inventory.log_dir] = error
        else:
            inventories.ready.append(inventory)
    return inventories


def _with_known(listing: Listing, known: Mapping[str, tuple[Problem, ...]]) -> Listing:
    def listed(log_dir: str, **options: Any) -> LogDirInventory:  # noqa: ANN401 - handed on
        inventory = listing(log_dir, **options)
        return replace(inventory, problems=(*known.get(log_dir, ()), *inventory.problems))

    return listed


def _list(log_dirs: Iterable[str], listing: Listing, inventories: Inventories) -> list[LogDirInventory]:
    found = []
    for log_dir in log_dirs:
        try:
            found.append(listing(log_dir))
        except LogDirOfflineError as error:
            inventories.offline[log_dir] = error
    return found


def _repaired(
    inventory: LogDirInventory,
    listing: Listing,
    inventories: Inventories,
    quarantine: Quarantine,
    dry_run: bool,
) -> LogDirInventory | None:
    log_dir = inventory.log_dir
    try:
        repaired = repair_log_dir(
            inventory, lambda gone: listing(log_dir, without=gone), quarantine, dry_run=dry_run
        )
    except LogDirOfflineError as error:
        inventories.offline[log_dir] = error
        return None
    inventories.repairs[log_dir] = repaired.lines
    return repaired.inventory
