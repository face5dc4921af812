"""Where the quarantine of an earlier run is now: a log dir, or its quarantine, may have been moved since."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from recovery.engine.report import EarlierCut
from recovery.logdir.quarantine_place import possible_roots
from recovery.read.file_system import is_there


def located(log_dir: str, quarantine_dir: str | None, cuts: Iterable[EarlierCut]) -> tuple[EarlierCut, ...]:
    """Return *cuts* with the present folder of the run that has kept what was cut."""
    roots = possible_roots(log_dir, quarantine_dir)
    return tuple(
        replace(cut, kept_in=None if cut.quarantine is None else _present(cut.quarantine, roots))
        for cut in cuts
    )


def _present(quarantine: str, roots: Iterable[str]) -> str | None:
    """Return the folder *quarantine*, or the one of its name in *roots*; None if neither is there."""
    run = os.path.basename(quarantine)
    for folder in (quarantine, *(os.path.join(root, run) for root in roots)):
        with suppress(OSError):
            if is_there(folder):
                return folder
    return None
