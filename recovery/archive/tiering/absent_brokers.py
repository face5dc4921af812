"""Brokers that have replicas of tiered partitions, and whose log dirs were not given.

What these alone have is in no figure, and nothing in the other log dirs shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.archive.stores.store import Store
from recovery.archive.tiering.metadata_log import properties_of
from recovery.archive.tiering.partition_state import PartitionState
from recovery.broker.assignments import Assignments
from recovery.quantity import partitions_text


class AbsentBrokers:
    """Notes which brokers' log dirs would be needed besides those that were given.

    Args:
        log_dirs: that were given.
        assignments: by the cluster's metadata log; none without one.
    """

    def __init__(self, log_dirs: Sequence[Store], assignments: Assignments) -> None:
        known = map(properties_of, log_dirs)
        self._given = {None if one is None else one.node_id for one in known}
        self._absent: set[int] = set()
        self._partitions: list[str] = []
        # Copies without meta.properties may be of any broker
        self._assignments = Assignments() if None in self._given else assignments

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
        brokers = ", ".join(f"broker {node_id}" for node_id in sorted(self._absent))
        return [
            f"{partitions_text(self._partitions, 3)}: there are replicas on {brokers}, and what these alone have is in "
            "no figure. Remedy: give their log dirs, too, with --metadata"
        ]
