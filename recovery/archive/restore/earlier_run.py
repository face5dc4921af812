"""What an interrupted restore had brought into log dirs in which it was done: the next one finds it there already."""

from __future__ import annotations

import os
from collections.abc import Collection

from recovery.errors import UnsafeError
from recovery.logdir.quarantine_place import possible_roots, run_order
from recovery.plan.undo_plan import read_account
from recovery.saved.runs import run_names
from recovery.write.quarantine import manifest_entries


def run_that_made(log_dir: str, quarantine_dir: str | None, folders: Collection[str]) -> str | None:
    """Return the folder of the newest run on *log_dir* in quarantine if it made one of *folders*, None if not.

    Raises:
        OSError: quarantine cannot be read.
    """
    roots = possible_roots(log_dir, quarantine_dir)
    runs = [(run_order(name), os.path.join(root, name)) for root in roots for name in run_names(root)]
    if not runs:
        return None
    _, newest = max(runs)
    try:
        changes = read_account(manifest_entries(newest), newest).changes
    except UnsafeError:  # somebody else's line: `undo` says so
        return None
    return newest if any(one.is_new_folder and one.commit.folder in folders for one in changes) else None
