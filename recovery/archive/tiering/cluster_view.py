"""What the metadata log in log dirs says of tiered partitions: whether they are there, and who may lead them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from recovery.archive.remote.remote_metadata import RemoteMetadata
from recovery.archive.remote.replicas import Replicas
from recovery.archive.stores.store import Store
from recovery.archive.tiering.metadata_log import properties_of, read_metadata_log
from recovery.archive.tiering.options import ALL_LOG_DIRS
from recovery.quantity import time_text
from segfmt.remote_log_metadata import RemotePartition

_REMEDY = f"Remedy: {ALL_LOG_DIRS}"


class ClusterView:
    """Answers questions about partitions.

    Args:
        log_dirs: in which the metadata log is looked for.
        metadata: what the metadata topic in them says.
        replicas: in them.

    Attributes:
        metadata_log: the latest one.
        properties: of each log dir, by its URL; None where they are not known.
    """

    def __init__(self, log_dirs: Sequence[Store], metadata: RemoteMetadata, replicas: Replicas) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self.metadata_log = read_metadata_log(log_dirs)
        self.properties = {store.url: properties_of(store) for store in log_dirs}
        cluster = self.metadata_log.cluster
        self._topic_ids = frozenset(() if cluster is None else cluster.topic_ids.values())

    def is_deleted(self, owner: RemotePartition) -> bool:
        """Return whether the cluster has no topic with this id any more.

        Without a metadata log a folder tells of a later topic of the same name: a name has one id at a time.
        """
        if self.metadata_log.cluster is not None:
            return owner.topic_id not in self._topic_ids and not self.why_topic_is_unknown(owner)
        ids, first_ms = self._replicas.topic_ids(owner.topic), self._metadata.first_event_ms(owner.topic_id)
        if owner.topic_id in ids or first_ms is None:
            return False
        others = map(self._metadata.first_event_ms, ids)
        return any(other_ms is not None and first_ms < other_ms for other_ms in others)

    def why_topic_is_unknown(self, owner: RemotePartition) -> str:
        """Return why the metadata log may not have come as far as a topic that it does not know; empty if it has.

        A topic is created before anything of it is copied.
        """
        cluster = self.metadata_log.cluster
        first_ms = self._metadata.first_event_ms(owner.topic_id)
        if cluster is None or owner.topic_id in self._topic_ids or first_ms is None:
            return ""
        end_ms = cluster.max_timestamp_ms
        if first_ms <= end_ms:
            return ""
        return (
            f"the metadata log ends at {time_text(end_ms)}, and the first of it was copied at {time_text(first_ms)}: "
            f"whether it is there is not known. {_REMEDY}, or a later copy"
        )

    def may_lead(self, owner: RemotePartition) -> frozenset[str]:
        """Return the URLs of the log dirs of brokers that may lead a partition; if none may, of all that have it."""
        assignment = self.metadata_log.assignments.of(owner.topic_id, owner.partition)
        node_ids = () if assignment is None else assignment.in_sync or assignment.replicas
        return frozenset(
            url
            for url, properties in self.properties.items()
            if properties and properties.node_id in node_ids
        )

    def why_out_of_sync(
        self, topic_id: UUID, partition: int, *, log_dir: str, last_epoch: int, place: str
    ) -> str:
        """Return why a replica may be far behind the leader; empty if nothing says so.

        Args:
            topic_id, partition: of what.
            log_dir: its URL.
            last_epoch: of the replica; after that of the metadata log, this does not tell.
            place: URL of the replica's folder, for messages.
        """
        assignment = self.metadata_log.assignments.of(topic_id, partition)
        properties = self.properties[log_dir]
        if assignment is None or not assignment.in_sync or properties is None or properties.node_id is None:
            return ""
        if properties.node_id in assignment.in_sync or last_epoch > assignment.leader_epoch:
            return ""
        others = ", ".join(map(str, sorted(assignment.in_sync)))
        return f"{place}: broker {properties.node_id} is not in sync, by the metadata log; in sync: {others}. {_REMEDY}"
