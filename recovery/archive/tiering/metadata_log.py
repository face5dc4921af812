"""The latest metadata log in the log dirs: the cluster's topics, their settings and their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recovery.archive.remote.copied_settings import read_copied, read_copied_metadata
from recovery.archive.remote.replicas import last_epoch, read_leader_epochs
from recovery.archive.remote.told_ends import ends_by_files, furthest
from recovery.archive.stores.store import Store
from recovery.broker.assignments import Assignments, read_assignments
from recovery.broker.cluster_metadata import ClusterMetadata
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.errors import UsageError, error_text
from segfmt.errors import FormatError
from segfmt.filenames import CLUSTER_METADATA_FOLDER, META_PROPERTIES
from segfmt.meta_properties import MetaProperties, read_meta_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLog:
    """What the cluster says of itself.

    Attributes:
        cluster: its topics and settings; None: no log dir has a metadata log that can be used.
        assignments: its partitions; none without it.
        warnings: why a metadata log is not used.
    """

    cluster: ClusterMetadata | None = None
    assignments: Assignments = field(default_factory=Assignments)
    warnings: tuple[str, ...] = ()

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, None if that is not known."""
        topic_id = None if self.cluster is None else self.cluster.topic_ids.get(topic)
        return None if topic_id is None else len(self.assignments.numbers.get(topic_id, ())) or None


def read_metadata_log(log_dirs: Sequence[Store]) -> MetadataLog:
    """Return what the metadata log of the latest leader epoch says; of several, the one that reaches furthest.

    What a controller of an earlier epoch has after the others' end was never committed.
    """
    found: list[tuple[int, ClusterMetadata, Store]] = []
    warnings = []
    for store in log_dirs:
        folder = f"{store.url}/{CLUSTER_METADATA_FOLDER}"
        try:
            # Before the log is read: a node at work makes both longer
            told = list(ends_by_files(store, store.list_level(f"{CLUSTER_METADATA_FOLDER}/").objects))
            epochs = read_leader_epochs(store, f"{CLUSTER_METADATA_FOLDER}/")
            metadata = read_copied_metadata(store)
        except FileNotFoundError:
            continue
        except (FormatError, OSError) as error:
            warnings.append(f"{store.url}: {error_text(error)}: the metadata log in it is not used")
            continue
        if metadata is None:
            continue
        end = furthest(told, is_cut_off=metadata.damage is not None)
        if end is not None and end.end_offset > metadata.end_offset:
            warnings.append(
                f"{folder}: it ends at offset {metadata.end_offset}, and {end.witness} tells of offset "
                f"{end.end_offset - 1}: the metadata log in it is not used. Remedy: give that of another node, or copy "
                "it whole"
            )
            continue
        found.append((last_epoch(epochs), metadata, store))
    if not found:
        return MetadataLog(warnings=tuple(warnings))
    _, cluster, at = max(found, key=lambda one: (one[0], one[1].end_offset))
    assignments = None
    try:
        assignments = read_copied(at, "", read_assignments)
    except (FormatError, OSError) as error:
        warnings.append(f"{at.url}: {error_text(error)}: the partitions of the cluster are not known")
    return MetadataLog(cluster=cluster, assignments=assignments or Assignments(), warnings=tuple(warnings))


def properties_of(log_dir: Store) -> MetaProperties | None:
    """Return whose log dir it is; None if its meta.properties was not copied or says nothing."""
    try:
        return read_meta_properties(log_dir.read(META_PROPERTIES, most_bytes=MOST_SMALL_FILE_BYTES))
    except (OSError, FormatError):
        return None


def refuse_several_clusters(log_dirs: Sequence[Store]) -> None:
    """Refuse log dirs of different clusters: their topics may have the same names.

    Raises:
        UsageError: two of them name different clusters.
    """
    known: dict[str, str] = {}
    for store in log_dirs:
        properties = properties_of(store)
        if properties is not None and properties.cluster_id:
            known.setdefault(properties.cluster_id, store.url)
    if len(known) > 1:
        named = ", ".join(f"{url} is of cluster {cluster_id}" for cluster_id, url in known.items())
        raise UsageError(f"--metadata: {named}. Remedy: give the log dirs of one cluster at a time")
