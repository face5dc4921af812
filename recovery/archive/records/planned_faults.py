"""What is wrong with what a read is planned by: the query fails at once, or a task counts it or makes a row of it."""

from __future__ import annotations

from typing import NamedTuple

from recovery.archive.records.batch_heads import Fault
from recovery.check.finding import REMEDIES, Finding, Rule
from recovery.errors import DamagedSegmentError

_REMEDIES: dict[Rule, str] = {
    "not-compared": "give `metadata` the log dirs of all brokers that have partitions of __remote_log_metadata, or "
    "newer copies of them",
    "metadata-topic": "restore the log of __remote_log_metadata from another replica",
}
_OF_LINES = (
    "corrupt=skip reads without the line and counts it, corrupt=include makes a row of it, with the reason in "
    "`fault`"
)
_OF_TOPIC = (
    "corrupt=skip leaves out the segments that are not known and counts them, corrupt=include makes a row of each, "
    "with the reason in `fault`; without `metadata` segments are chosen by their names alone"
)


def planned_fault(finding: Finding) -> PlannedFault:
    """Return a finding whose file is a URL as a fault."""
    return PlannedFault(finding.file, Fault(finding.rule, finding.detail))


class PlannedFault(NamedTuple):
    """Something that planning has found.

    Attributes:
        name: URL of what it is about.
        base_offset: of the segment that is left out; None if it is about the partition as a whole.
    """

    name: str
    fault: Fault
    base_offset: int | None = None

    def refuse(self) -> None:
        """Fail the query.

        Raises:
            DamagedSegmentError: always.
        """
        rule = self.fault.rule
        read_on = _OF_TOPIC if rule in _REMEDIES else _OF_LINES
        remedy = _REMEDIES.get(rule) or REMEDIES[rule]
        raise DamagedSegmentError(f"{self.name}: {self.fault}. Remedy: {remedy}. To read on: {read_on}")
