"""What is to be done with one log dir, as a value: all that a run on it needs to know, in whatever process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.engine.options import RecoverOptions
from recovery.engine.report import EarlierCut
from recovery.logdir.inventory import LogDirInventory


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirJob:
    """The recovery of one log dir.

    Attributes:
        options: of the run; `quarantine_dir` is absolute.
        configuration: all that decides about bytes, by name: an interrupted run is resumed only under the same.
        now_ms: the clock by which producers expire.
        goes_on: whether this run resumes one that was interrupted here.
        thread_count: `num.recovery.threads.per.data.dir`.
        quarantine_run: name of this run's folder in quarantine, None if it holds nothing yet.
        started_ms: when this run began, ms since 1970, by the clock of the machine: it names the folder.
        repairs: what was repaired before, as text.
        earlier_cuts: what earlier runs have cut and not reported.
    """

    inventory: LogDirInventory
    options: RecoverOptions
    configuration: Mapping[str, str]
    now_ms: int
    goes_on: bool
    thread_count: int
    quarantine_run: str | None
    started_ms: int
    repairs: tuple[str, ...]
    earlier_cuts: tuple[EarlierCut, ...]

    @property
    def log_dir(self) -> str:
        """The absolute path of the log dir."""
        return self.inventory.log_dir
