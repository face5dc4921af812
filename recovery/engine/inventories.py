"""The inventories of all log dirs of a run together: repaired on request, and offline if they must not be touched.

Two copies of a partition are only found among all dirs; so no dir is repaired before all are listed.

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
"""`list_log_dir` with all arguments bound but the log dir and `without`."""


@dataclass(slots=True, kw_only=True)
class Inventories:
    """What lies in the log dirs.

    Attributes:
        ready: those of the dirs that can be recovered.
        offline: why the others cannot be, by log dir.
        repairs: what was moved away, or would be, as text, by log dir.
        unrepaired: what could be, but stays, and why, as text, by log dir.
    """

    ready: list[LogDirInventory] = field(default_factory=list)
    offline: dict[str, LogDirOfflineError] = field(default_factory=dict)
    repairs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unrepaired: dict[str, tuple[str, ...]] = field(default_factory=dict)


def list_log_dirs(
    log_dirs: Iterable[str],
    listing: Listing,
    *,
    known: Mapping[str, tuple[Problem, ...]] | None = None,
    known_blockers: Mapping[str, tuple[Problem, ...]] | None = None,
    repair_into: Callable[[LogDirInventory], Quarantine] | None = None,
    before_repair: Callable[[LogDirInventory], None] = lambda _: None,
    dry_run: bool = False,
) -> Inventories:
    """Return what lies in *log_dirs*.

    Args:
        known, known_blockers: problems of log dirs that were found before.
        repair_into: returns the quarantine of a log dir for its repair, or raises OSError; None for no repair.
        before_repair: raises if a log dir must not be touched.
        dry_run: leave everything where it is, and return what would be there after a repair.
    """
    inventories = Inventories()
    listing = _with_known(listing, known or {}, known_blockers or {})
    inventories_found = _list(log_dirs, listing, inventories)
    if repair_into is not None:
        for inventory in inventories_found:
            before_repair(inventory)
        inventories_found = [
            repaired
            for listed in refuse_duplicates(inventories_found)
            if (repaired := _repaired(listed, listing, inventories, repair_into, dry_run)) is not None
        ]
    for inventory in refuse_duplicates(inventories_found):
        if inventory.problems:
            error = LogDirOfflineError(inventory.log_dir, problems=inventory.all_problems)
            inventories.offline[inventory.log_dir] = error
        else:
            inventories.ready.append(inventory)
    return inventories


def _with_known(
    listing: Listing,
    problems: Mapping[str, tuple[Problem, ...]],
    blockers: Mapping[str, tuple[Problem, ...]],
) -> Listing:
    def listed(log_dir: str, **options: Any) -> LogDirInventory:  # noqa: ANN401 - handed on
        inventory = listing(log_dir, **options)
        return replace(
            inventory,
            problems=(*problems.get(log_dir, ()), *inventory.problems),
            blockers=(*blockers.get(log_dir, ()), *inventory.blockers),
        )

    return listed


def _list(log_dirs: Iterable[str], listing: Listing, inventories: Inventories) -> list[LogDirInventory]:
    listed = []
    for log_dir in log_dirs:
        try:
            listed.append(listing(log_dir))
        except LogDirOfflineError as error:
            inventories.offline[log_dir] = error
    return listed


def _repaired(
    inventory: LogDirInventory,
    listing: Listing,
    inventories: Inventories,
    repair_into: Callable[[LogDirInventory], Quarantine],
    dry_run: bool,
) -> LogDirInventory | None:
    log_dir = inventory.log_dir
    try:
        repaired = repair_log_dir(
            inventory,
            lambda without: listing(log_dir, without=without),
            repair_into(inventory),
            dry_run=dry_run,
        )
    except OSError as error:
        inventories.offline[log_dir] = LogDirOfflineError(log_dir, error)
        return None
    inventories.repairs[log_dir] = repaired.lines
    inventories.unrepaired[log_dir] = repaired.left
    if repaired.error is not None:
        inventories.offline[log_dir] = repaired.error
        return None
    return repaired.inventory
