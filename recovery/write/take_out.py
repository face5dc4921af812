"""Folders that `archive restore` moved into a log dir are taken out again: by one rename, then removed.

A broker that is started in between finds all of a log or nothing, as when it was moved in.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from recovery.read.file_system import is_folder
from recovery.write.durable import make_folder_like, sync
from recovery.write.move_in import STAGE_FOLDER


def take_out(log_dir: str, folder: str) -> None:
    """Remove *folder* from *log_dir*, with all that is in it.

    Raises:
        OSError: it is there whole, or what is left of it is where brokers do not look; see `remove_taken_out`.
    """
    taken_out = _place(log_dir)
    for path in (os.path.dirname(taken_out), taken_out):
        if not is_folder(path):
            make_folder_like(path, log_dir)
    target = os.path.join(taken_out, folder)
    if is_folder(target):  # an interrupted undo has left it
        shutil.rmtree(target)
    os.rename(os.path.join(log_dir, folder), target)
    sync(log_dir)
    shutil.rmtree(target)


def remove_taken_out(log_dir: str) -> None:
    """Remove what an interrupted run has left of what it took out of *log_dir*."""
    taken_out = _place(log_dir)
    if is_folder(taken_out):
        shutil.rmtree(taken_out)
        with suppress(OSError):  # a restore has fetched something there
            os.rmdir(os.path.dirname(taken_out))
        sync(log_dir)


def _place(log_dir: str) -> str:
    return os.path.join(log_dir, STAGE_FOLDER, "taken-out")
