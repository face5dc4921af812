"""`meta.properties`: to which cluster and node a log dir belongs.

    version=1
    cluster.id=...        22 characters by convention, any text by rule
    node.id=1             broker.id in version 0
    directory.id=...      a UUID, from 3.7 on

Kafka: MetaProperties, MetaPropertiesVersion, MetaPropertiesEnsemble.Loader.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from segfmt.errors import FormatError, MalformedPropertiesError
from segfmt.java_text import parse_int
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.properties import encode_properties, read_properties

_JAVA_TRIM = "".join(map(chr, range(33)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """What a `meta.properties` says.

    Attributes:
        version: 0 or 1.
        cluster_id: None only in version 0.
        node_id: int32, None only in version 0.
        directory_id: None before 3.7.
    """

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None

    @property
    def missing_keys(self) -> tuple[str, ...]:
        """What version 0 may lack, and no broker starts without. Kafka: KafkaRaftServer.initializeLogDirs."""
        ids = {"node.id" if self.version else "broker.id": self.node_id, "cluster.id": self.cluster_id}
        return tuple(key for key, value in ids.items() if value is None)


def read_meta_properties(data: bytes) -> MetaProperties:
    """Return what *data* says.

    Raises:
        MalformedPropertiesError: Kafka would throw; the broker starts without that log dir (not at all if it
            is the metadata log dir).

    Kafka: MetaProperties.Builder.
    """
    properties = read_properties(data)
    version = _version(properties.get("version", "0"))
    node_key = "node.id" if version else "broker.id"
    node_id = _int(properties, node_key) if version or node_key in properties else None
    cluster_id = properties.get("cluster.id")
    if version and cluster_id is None:
        raise _error("cluster.id was not found")
    return MetaProperties(
        version=version, cluster_id=cluster_id, node_id=node_id, directory_id=_directory_id(properties)
    )


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Return the entries for *meta*, one a line. Kafka: MetaProperties.toProperties (there in hash order)."""
    properties = {"version": str(meta.version)}
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    if meta.node_id is not None:
        properties["node.id" if meta.version else "broker.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        properties["directory.id"] = format_uuid(meta.directory_id)
    return encode_properties(properties)


def _version(text: str) -> int:
    version = parse_int(text.strip(_JAVA_TRIM))
    if version not in (0, 1):
        raise _error(f"version {text[:80]!r} is neither 0 nor 1")
    return version


def _int(properties: dict[str, str], key: str) -> int:
    if key not in properties:
        raise _error(f"{key} was not found")
    value = parse_int(properties[key])
    if value is None:
        raise _error(f"{key} {properties[key][:80]!r} is not an int32")
    return value


def _directory_id(properties: dict[str, str]) -> UUID | None:
    if "directory.id" not in properties:
        return None
    try:
        return read_uuid(properties["directory.id"])
    except FormatError as error:
        raise _error(f"directory.id {error}") from error


def _error(message: str) -> MalformedPropertiesError:
    return MalformedPropertiesError(message, kafka="RuntimeException")
