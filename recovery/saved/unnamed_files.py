"""Parts of logs in quarantine that no manifest names: an `undo` that ignored them would leave a cut, or lose them.

A run that was killed before it entered them has cut nothing: the log dir has the same bytes, or more where the copy was
begun or has not come to the disk. Otherwise a line of the manifest, or all of it, was lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from recovery.errors import UnsafeError
from recovery.plan.undo_plan import Saved
from recovery.quantity import listed_text
from recovery.saved.log_dir_state import LogDirState
from recovery.saved.runs import origin_of, read_run, unnamed_segments
from recovery.write.digest import is_begun_copy, look_into
from segfmt.filenames import DELETED_SUFFIX

_MOST_LOST = 20


class LostPart(NamedTuple):
    """A part of a log that only quarantine has.

    Attributes:
        stored: its path in quarantine.
        path: the file that it belongs to.
        position: in bytes, in that file.
    """

    stored: str
    path: str
    position: int


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
    lost: list[LostPart] = []
    for stored in unnamed_segments(run):
        folder, name, position = origin_of(stored)
        if name.endswith(DELETED_SUFFIX) or "/" in folder:
            continue
        file = stored.rpartition("/")[2]
        size_bytes, digest = look_into(os.path.join(path, stored), may_skip_zeros=False)
        saved = Saved(
            stored=file,
            is_tail=position is not None,
            position=position or 0,
            size_bytes=size_bytes,
            digest=digest,
        )
        part = LostPart(os.path.join(path, stored), os.path.join(log_dir, folder, name), position or 0)
        is_known = state.holds(folder, name, saved) or (
            position is None and is_begun_copy(part.stored, part.path)
        )
        if not is_known:
            lost.append(part)
    if lost:
        raise UnsafeError(
            f"{lost[0].stored}: a part of a log that {log_dir} does not have, and no line of the manifest says what "
            f"was done with it. Nothing was changed. {remedy_by_hand(lost)}"
        )


def remedy_by_hand(lost: Iterable[LostPart]) -> str:
    """Return the remedy for bytes of logs that only quarantine has, and no manifest accounts for."""
    parts = [f"{part.stored} into {part.path} at byte {part.position:,}" for part in lost]
    return (
        "Remedy: if another recovery has run since, with another --quarantine-dir, take that back first; else put "
        f"back by hand {listed_text(parts, _MOST_LOST)}. Do not purge that run before: it is all there is of them, "
        "and of what else quarantine list -v shows"
    )
