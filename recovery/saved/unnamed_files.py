"""Parts of logs in quarantine that no manifest names: an `undo` that ignored them would leave a cut, or lose them.

A run that was killed before it entered them has cut nothing: the log dir has the same bytes. Otherwise a line of the
manifest, or all of it, was lost.
"""

from __future__ import annotations

import os

from recovery.errors import UnsafeError
from recovery.plan.undo_plan import Saved
from recovery.saved.log_dir_state import LogDirState
from recovery.saved.runs import origin_of, read_run, unnamed_segments
from recovery.write.digest import look_into
from segfmt.filenames import DELETED_SUFFIX


def refuse_unnamed(log_dir: str, path: str, state: LogDirState) -> None:
    """Refuse if the run in the folder *path* has a part of a log that exists nowhere else, and no line about it.

    Args:
        state: the state in which that run has left the log dir.

    Raises:
        UnsafeError: nothing was changed.
        OSError: what is there cannot be read.
    """
    run = read_run(*os.path.split(path))
    if run is None:
        return
    for stored in unnamed_segments(run):
        folder, name, position = origin_of(stored)
        file = stored.rpartition("/")[2]
        size_bytes, digest = look_into(os.path.join(path, stored), may_skip_zeros=False)
        saved = Saved(
            stored=file,
            is_tail=position is not None,
            position=position or 0,
            size_bytes=size_bytes,
            digest=digest,
        )
        if not name.endswith(DELETED_SUFFIX) and "/" not in folder and not state.holds(folder, name, saved):
            raise UnsafeError(
                f"{os.path.join(path, stored)}: a part of a log that {log_dir} does not have, and no line of the "
                "manifest says what was done with it. Nothing was changed. "
                f"{remedy_by_hand(os.path.join(log_dir, folder, name), position or 0)}"
            )


def remedy_by_hand(path: str, position: int) -> str:
    """Return the remedy for bytes of the log *path* that only quarantine has, and no manifest accounts for."""
    return (
        "Remedy: if another recovery has run since, with another --quarantine-dir, take that back first; else put the "
        f"bytes back by hand, into {path} at byte {position}, then purge that run"
    )
