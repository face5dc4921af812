"""What runs that did not end have replaced in an archive: no report of theirs tells of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from recovery.archive.check.output import HISTORY, QUARANTINE, SUMMARY
from recovery.archive.stores.archived import is_temporary
from recovery.archive.stores.store import Store

_RUN = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnendedRun:
    """A run in place without a report.

    Attributes:
        run: its name.
        quarantine: where the objects are that it was about to replace, as they were before.
        object_count: how many they are.
    """

    run: str
    quarantine: str
    object_count: int

    @property
    def text(self) -> str:
        """One sentence for a report."""
        return (
            f"run {self.run} did not end (it was killed, interrupted, failed, or is still at work); objects that it "
            f"copied to {self.quarantine} before replacing them in the archive: {self.object_count}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"run": self.run, "quarantine": self.quarantine, "objects": self.object_count}


def unended_runs(output: Store) -> tuple[UnendedRun, ...]:
    """Return the runs with a quarantine in *output*, and without a report.

    Raises:
        OSError: the output cannot be listed.
    """
    try:
        prefixes = output.list_level(QUARANTINE).prefixes
    except FileNotFoundError:
        return ()  # no output yet, or nothing was ever replaced
    runs = [prefix.removeprefix(QUARANTINE).rstrip("/") for prefix in prefixes]
    return tuple(
        UnendedRun(run=run, quarantine=f"{output.url}/{QUARANTINE}{run}", object_count=saved_by(output, run))
        for run in runs
        if _RUN.fullmatch(run) and not _has_ended(output, run)
    )


def saved_by(output: Store, run: str) -> int:
    """Return how many objects of the archive a run has copied to quarantine.

    Raises:
        OSError: the output cannot be listed.
    """
    count = 0
    prefixes = [f"{QUARANTINE}{run}/"]
    while prefixes:
        try:
            level = output.list_level(prefixes.pop())
        except FileNotFoundError:
            continue  # nothing was saved
        count += sum(not is_temporary(name) for name in level.objects.names)
        prefixes += level.prefixes
    return count


def _has_ended(output: Store, run: str) -> bool:
    try:
        output.stat(f"{HISTORY}{run}/{SUMMARY}")
    except FileNotFoundError:
        return False
    return True
