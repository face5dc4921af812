"""Outputs and log dirs that `archive copy` refuses, or warns of: what reads the copy would take it for another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.copy.folders import log_dir_text, properties_at
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.report import CopiedLogDir
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import is_within, open_store
from recovery.errors import UsageError
from recovery.read.file_system import is_folder, is_same
from segfmt.filenames import META_PROPERTIES


def refuse_output(output: str, log_dir: str, folders: Mapping[str, str]) -> None:
    """Raise UsageError if something would be written into *log_dir*, or if it is where a copy goes."""
    if is_within(output, log_dir):
        raise UsageError(f"--output {output}: it is in the log dir {log_dir}, which is copied")
    for folder in folders.values():
        place = f"{output.rstrip('/')}/{folder}"
        if is_within(place, log_dir) or is_within(log_dir, place) or is_same(place, log_dir):
            raise UsageError(
                f"--output {output}: {place} would be the copy of a log dir, and {log_dir}, which is copied, is there. "
                "Remedy: choose another output"
            )


def refuse_copied(output: CopyAccounts, url: str) -> None:
    """Raise UsageError if the output is in another copy: who reads that would find the partitions of both."""
    around = output.log_dirs_around
    if around:
        raise UsageError(
            f"--output {url}: it is in the copy of {', '.join(around)}, by {output.manifest_above}. Remedy: choose "
            "another output; or, if there is no copy any more, remove that file"
        )


def refuse_copy(log_dir: str) -> None:
    """Raise UsageError if *log_dir* is a copy that is not whole: a copy of it would say that it is."""
    accounts = None
    with suppress(UsageError, OSError):  # then it is none, as far as can be seen
        accounts = CopyAccounts(open_store(log_dir))
    if accounts is None:
        return
    if any(is_folder(os.path.join(log_dir, folder)) for folder in accounts.copied_folders):
        raise UsageError(f"{log_dir}: what archive copy has made, and no log dir. Remedy: take it with cp -r")
    if accounts.copied_log_dir is not None and accounts.has_left_out():
        raise UsageError(
            f"{log_dir}: a copy of {accounts.copied_log_dir} that is not whole, or has files that are gone, which a "
            f"copy of it would not say. Remedy: take it with cp -r, with {MANIFEST_KEY} in the folder above"
        )


def refuse_another(output: Store, log_dir: CopiedLogDir, *, is_new: bool) -> None:
    """Raise UsageError if what is at the output is not the copy of this log dir, whatever its path is.

    Args:
        is_new: whether the output has no manifest.
    """
    place = f"{output.url}/{log_dir.folder}"
    try:
        level = output.list_level(f"{log_dir.folder}/")
    except (FileNotFoundError, NotADirectoryError):
        return
    ours = properties_at(open_store(log_dir.log_dir), "")
    theirs = properties_at(output, f"{log_dir.folder}/")
    if is_new and (level.objects or level.prefixes) and theirs != ours:
        raise UsageError(
            f"{place}: there are files, and no {MANIFEST_KEY} says that they are a copy. Remedy: choose another output"
        )
    whose, of_copy = log_dir_text(ours), log_dir_text(theirs)
    if whose and of_copy and whose != of_copy:
        raise UsageError(
            f"{place}: the copy of a log dir of {of_copy}, by {META_PROPERTIES}, and {log_dir.log_dir} is of "
            f"{whose}. Remedy: choose another output"
        )
