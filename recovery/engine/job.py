"""What is to be done with one log dir, as a value: all that a run on it must know, in whatever process it is."""

from __future__ import annotations

from collections.abc import Mapping

from recovery.engine.report import EarlierCut
from recovery.logdir.inventory import LogDirInventory
from recovery.watch.events import Handoff
from segfmt.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirJob:
    """The recovery of one log dir.

    Attributes:
        configuration: all that decides about bytes, by name: a run that is interrupted is gone on with under the same.
        now_ms: the clock by which producers expire.
        goes_on: whether a run was interrupted here that this one goes on with.
        thread_count: `num.recovery.threads.per.data.dir`.
        quarantine_dir: `--quarantine-dir`.
        quarantine_run: name of this run's folder in quarantine, None where nothing is in it yet.
        repairs: what was repaired before, in words.
        keep_deleted: whether pending deletions of the broker are kept in quarantine.
        drops_cache: whether what is read from disk leaves the page cache again.
        earlier_cuts: what earlier runs have cut and not told.
    """

    inventory: LogDirInventory
    configuration: Mapping[str, str]
    now_ms: int
    goes_on: bool
    thread_count: int
    handoff: Handoff
    dry_run: bool
    quarantine_dir: str | None
    quarantine_run: str | None
    repairs: tuple[str, ...]
    keep_deleted: bool
    drops_cache: bool
    earlier_cuts: tuple[EarlierCut, ...]

    @property
    def log_dir(self) -> str:
        """Its absolute path."""
        return self.inventory.log_dir
