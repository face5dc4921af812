"""Topics that were deleted and created again: an archive may hold several of one name, which differ by their ids.

Their offsets begin anew, so rows of two of them never stand side by side unless that is asked for by `topicId`. Nor do
two folders of one partition, such as replicas in copies of several log dirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.segment_table import SegmentTable
from recovery.errors import UsageError
from recovery.quantity import bytes_text, listed_text
from segfmt.filenames import PARTITION_METADATA

_NAMED = 10


@dataclass(slots=True)
class _Incarnation:
    partitions: int = 0
    segments: int = 0
    log_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.partitions} partitions, {self.segments} segments, {bytes_text(self.log_bytes)}"


class Incarnations:
    """Decides which incarnations are read, and refuses to mix them.

    Args:
        chosen: ids by `topicId`: empty for all; None: the live one, or the only one.
        is_listing: rows are batches, every copy of which is listed.
        named: topics that are requested by name: something of them must be read.
    """

    def __init__(
        self, chosen: frozenset[str] | None, *, is_listing: bool, named: frozenset[str] = frozenset()
    ) -> None:
        self._chosen = chosen
        self._named = named
        self._is_listing = is_listing
        self._by_topic: dict[str, dict[str, _Incarnation]] = {}
        self._left_out: dict[str, dict[str, _Incarnation]] = {}
        self._folders: dict[tuple[str, int], dict[str, str]] = {}

    def takes(
        self, where: PartitionPrefix, topic_id: str, segments: SegmentTable, live: frozenset[str]
    ) -> bool:
        """Return whether the segments of a partition are read.

        Args:
            where: the partition.
            topic_id: of its topic, empty if not known.
            segments: its own.
            live: ids that the topic has in the brokers' log dirs; empty if not known.

        Raises:
            UsageError: the partition was there already.
        """
        if not len(segments):
            return True
        if self._chosen is None:
            is_taken = not live or not topic_id or topic_id in live
        else:
            is_taken = not self._chosen or topic_id in self._chosen
        group = self._by_topic if is_taken else self._left_out
        incarnation = group.setdefault(where.topic, {}).setdefault(topic_id, _Incarnation())
        incarnation.partitions += 1
        incarnation.segments += len(segments)
        incarnation.log_bytes += sum(segments.part_bytes(PartKind.LOG))
        if is_taken and not self._is_listing:
            self._refuse_twice(where, topic_id)
        return is_taken

    def _refuse_twice(self, where: PartitionPrefix, topic_id: str) -> None:
        folders = self._folders.setdefault((where.topic, where.partition), {})
        first = folders.get(topic_id) or (folders.get("") if topic_id else next(iter(folders.values()), None))
        folders[topic_id] = where.prefix
        if first is not None:
            raise UsageError(
                f"{where.topic}-{where.partition}: two folders of the archive hold it, {first} and {where.prefix}, and "
                "each row would come twice: read the folder of one log dir or backup at a time"
            )

    def check(self) -> list[str]:
        """Return a note for each topic of which incarnations were left out, once all partitions are known.

        Raises:
            UsageError: a topic has several, and none was chosen; or a chosen one does not exist, or none of a topic
                that is requested by name.
        """
        if self._chosen is None:
            for topic, found in sorted(self._by_topic.items()):
                if len(found.keys() - {""}) > 1:
                    raise UsageError(
                        f"{topic}: the archive holds {len(found)} topics of this name, whose offsets have nothing to "
                        f"do with each other: {_listed(found)}. Choose by topicId=ID, or read all with topicId=all, "
                        "where rows tell them apart by topic_id; with `metadata`, the one that exists is read"
                    )
        known = {
            topic_id for found in (*self._by_topic.values(), *self._left_out.values()) for topic_id in found
        }
        for missing in sorted((self._chosen or frozenset()) - known):
            existing = "; ".join(
                f"{topic}: {_listed(found)}" for topic, found in sorted(self._left_out.items())[:_NAMED]
            )
            raise UsageError(
                f"topicId={missing}: no topic that is read has this id; {existing or 'nothing is read'}"
            )
        if self._chosen is not None:
            self._refuse_unchosen()
            return []
        for topic in sorted(self._named & (self._left_out.keys() - self._by_topic.keys())):
            raise UsageError(
                f"{topic}: the log dirs in `metadata` have another topic of this name, and the archive nothing of it: "
                f"{_listed(self._left_out[topic])}. Choose one of these by topicId=ID"
            )
        mixed = [
            f"{topic}: {found['']} are without a topic id, and are read as of this topic: {_listed(found)}"
            for topic, found in sorted(self._by_topic.items())
            if "" in found and len(found) > 1
        ]
        return mixed + [
            f"{topic}: left out, because the log dirs in `metadata` have another topic of this name: {_listed(found)}"
            for topic, found in sorted(self._left_out.items())
        ]

    def _refuse_unchosen(self) -> None:
        """Refuse ids that leave out what is requested by name, or partitions that may be of one of them."""
        for topic, found in sorted(self._left_out.items()):
            is_read = topic in self._by_topic
            if topic in self._named and not is_read:
                raise UsageError(
                    f"{topic}: no id in topicId is one of this topic, and nothing of it is read: {_listed(found)}. "
                    "Add one of its ids, or do not ask for the topic"
                )
            if is_read and "" in found:
                raise UsageError(
                    f"{topic}: {found['']} are without a topic id, so topicId cannot choose them: restore their "
                    f"{PARTITION_METADATA}, leave them out by `partition`, or read all with topicId=all"
                )


def _listed(found: dict[str, _Incarnation]) -> str:
    named = [f"{topic_id or 'without an id'} ({one})" for topic_id, one in sorted(found.items())]
    return listed_text(named, _NAMED)
