"""Whether what the options select exists in the archive."""

from __future__ import annotations

from recovery.archive.records.offset_limits import TopicPartition
from recovery.archive.records.read_request import Selection
from recovery.archive.stores.archived import PartitionPrefix
from recovery.errors import UsageError
from recovery.logdir.choice import SelectedPartitions


class SeenSelection:
    """What exists of what the options select; not what the filters of a query do, which may well exclude everything.

    Args:
        selection: by the options.
        is_kafka_style: how the options are called.
    """

    def __init__(self, selection: Selection, is_kafka_style: bool) -> None:
        self._selection = selection
        self._selected = SelectedPartitions(
            selection.topics,
            selection.partitions,
            pairs=selection.assigned or (),
            option="subscribe" if is_kafka_style else "topic",
        )
        self._read: set[TopicPartition] = set()

    def note(self, where: PartitionPrefix) -> None:
        """Note a partition that exists."""
        self._selected.note(where)
        if self._selection.has(where):
            self._read.add((where.topic, where.partition))

    def refuse_missing(self, place: str) -> None:
        """Refuse a selection, or limits, of what does not exist.

        Raises:
            UsageError: so it is.
        """
        self._selected.refuse_missing(place)
        if self._selection.pattern is not None and not self._read:
            raise UsageError(f"subscribePattern={self._selection.pattern}: no topic in {place} matches")
        for limits in (self._selection.starts, self._selection.ends):
            if limits is not None:
                limits.refuse_unknown(self._read.__contains__, place)
