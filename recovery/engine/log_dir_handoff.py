"""Writes the log dir's own files, or finishes what an interrupted run has left of that.

Kafka: LogManager.shutdown.
"""

from __future__ import annotations

from recovery.engine.resume import RunJournal
from recovery.engine.settled_changes import own_files
from recovery.plan.actions import PartitionPlan
from recovery.write.apply import apply_partition, publish, unstage
from recovery.write.durable import sync_below
from recovery.write.quarantine import Quarantine


def write_handoff(
    log_dir: str, plan: PartitionPlan, journal: RunJournal, quarantine: Quarantine, *, is_changed: bool
) -> None:
    """Write the log dir's own files, after all that they vouch for is on disk.

    Args:
        is_changed: whether anything in a partition's folder was changed.

    Raises:
        OSError: the log dir goes offline; the next run finishes the rest.
    """
    if is_changed or not plan.is_empty:
        sync_below(log_dir)
    if plan.is_empty:
        unstage(log_dir)
    else:
        apply_partition(
            log_dir,
            plan,
            own_files(log_dir),
            quarantine,
            enter=lambda commit, _saved: journal.commit_handoff(commit),
        )
    quarantine.sync()
    journal.discard()


def finish_unmarking(log_dir: str, journal: RunJournal, quarantine: Quarantine) -> None:
    """Remove the marker if an interrupted run was about to, and enter in the manifest that it is gone.

    Not after its hand-off: it may have written another one.
    """
    commit = journal.unmarking()
    if commit is not None and journal.handoff() is None:
        quarantine.note_change(commit, publish(log_dir, commit))


def finish_handoff(log_dir: str, journal: RunJournal, quarantine: Quarantine) -> bool:
    """Finish a hand-off that was interrupted; return whether there was one."""
    commit = journal.handoff()
    if commit is None:
        return False
    quarantine.note_change(commit, publish(log_dir, commit))
    return True
