"""Brokers that have replicas of tiered partitions, and whose log dirs were not given.

What these alone have is in no figure, and nothing in the other log dirs shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.remote.copied_settings import read_copied
from recovery.archive.stores.store import Store
from recovery.archive.tiering.partition_state import PartitionState
from recovery.broker.assignments import Assignments, read_assignments
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.quantity import count_text
from segfmt.errors import FormatError
from segfmt.filenames import META_PROPERTIES
from segfmt.meta_properties import read_meta_properties


class AbsentBrokers:
    """Notes which brokers' log dirs would be needed besides those that were given.

    Args:
        log_dirs: that were given.
        with_metadata_log: the one whose metadata log is read; None: none has one.
    """

    def __init__(self, log_dirs: Sequence[Store], with_metadata_log: Store | None) -> None:
        self._given = {_node_id(store) for store in log_dirs}
        self._absent: set[int] = set()
        self._partitions: list[str] = []
        # Copies without meta.properties may be of any broker
        is_known = with_metadata_log is not None and None not in self._given
        self._assignments = _assignments(with_metadata_log) if is_known else Assignments()

    def note(self, state: PartitionState) -> None:
        """Note who has replicas of a partition."""
        assignment = self._assignments.of(state.topic_id, state.partition)
        absent = set() if assignment is None else set(assignment.replicas) - self._given
        if absent:
            self._absent |= absent
            self._partitions.append(state.name)

    def warnings(self) -> list[str]:
        """Return a sentence on all of them; nothing if there are none."""
        if not self._partitions:
            return []
        count, first = count_text(len(self._partitions), "partition"), self._partitions[0]
        brokers = ", ".join(f"broker {node_id}" for node_id in sorted(self._absent))
        return [
            f"{count}, the first is {first}: there are replicas on {brokers}, and what these alone have is in no "
            "figure. Remedy: give their log dirs, too, with --metadata"
        ]


def _node_id(log_dir: Store) -> int | None:
    try:
        return read_meta_properties(log_dir.read(META_PROPERTIES, most_bytes=MOST_SMALL_FILE_BYTES)).node_id
    except (OSError, FormatError):
        return None


def _assignments(log_dir: Store | None) -> Assignments:
    try:
        found = None if log_dir is None else read_copied(log_dir, "", read_assignments)
    except (OSError, FormatError):  # it is told of where the settings in it are read
        found = None
    return found or Assignments()
