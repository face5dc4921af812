"""The own files of copied log dirs. Their partitions ask for them one by one; each log dir is read once."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.copy.account import CopiedFolder
from recovery.archive.copy.comparison import Difference, differences, needed_checkpoints
from recovery.archive.layouts.walk import Walked
from recovery.archive.remote.log_dir_copy import LogDirCopy, read_log_dir_copy
from recovery.archive.stores.store import Store


class CopiedLogDirs:
    """What copied log dirs say of their partitions.

    Args:
        store: the archive.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, LogDirCopy] = {}
        self._compared: dict[str, Sequence[Difference]] = {}

    def of(self, walked: Walked) -> LogDirCopy:
        """Return what the log dir of a partition says."""
        if walked.parent not in self._read:
            self._read[walked.parent] = read_log_dir_copy(self._store, walked.siblings)
        return self._read[walked.parent]

    def differences(self, walked: Walked, copied: CopiedFolder) -> Sequence[Difference]:
        """Return what of the checkpoints of a partition's log dir is not as it was copied.

        Raises:
            OSError: a file cannot be read.
        """
        if walked.parent not in self._compared:
            needed = needed_checkpoints(copied)
            self._compared[walked.parent] = [*differences(needed, walked.siblings, store=self._store)]
        return self._compared[walked.parent]
