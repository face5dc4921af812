"""Names in archives of tiered storage: Kafka's LocalTieredStorage, and the Aiven plugin's objects.

    LocalTieredStorage   <topic>-<partition>-<topic id>/<start offset>-<segment id>.log, .index, .timeindex,
                         .leader_epoch_checkpoint, .snapshot, and .txnindex where there is one
    Aiven                <prefix><topic>-<topic id>/<partition>/<start offset>-<segment id>.log, .indexes,
                         .rsm-manifest; the prefix is prepended as it is, without a slash of its own

Ids have 22 characters of URL-safe base64, so they may hold `-` and `_`; the start offset has 20 digits. Names
are parsed from the right. A name of another form gives None, never an error: archives hold other things, too.

Kafka: RemoteTopicPartitionDirectory, RemoteLogSegmentFileset (kafka-storage's test jar). The Aiven plugin:
ObjectKeyFactory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from segfmt.java_text import LONG_MAX
from segfmt.kafka_uuid import format_uuid, read_uuid

LOCAL_TIERED_SUFFIXES = (
    ".log",
    ".index",
    ".timeindex",
    ".leader_epoch_checkpoint",
    ".snapshot",
    ".txnindex",
)
"""What LocalTieredStorage keeps of a segment; every finished one has all but the last."""

AIVEN_SUFFIXES = (".log", ".indexes", ".rsm-manifest")
"""The objects of a segment, in the order of their upload: with the manifest it is complete."""

SEGMENT_NAME_CHARS = 43
"""How many characters precede a name's suffix."""

_ID = r"[A-Za-z0-9_-]{21}[AQgw]"  # 128 bits: the last character has only two of its six
_TOPIC = r"[A-Za-z0-9._-]{1,249}"
_INT = r"0|[1-9][0-9]{0,9}"
_FOLDER = re.compile(rf"({_TOPIC})-({_INT})-({_ID})")
_TOPIC_FOLDER = re.compile(rf"({_TOPIC})-({_ID})")
_PARTITION = re.compile(_INT)
_SEGMENT = re.compile(rf"([0-9]{{20}})-({_ID})")
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFileName:
    """The name of one file or object of a segment, without its folders.

    Attributes:
        start_offset: int64, not negative.
        segment_id: of this copy of the segment.
        suffix: with its dot; one of the layout's suffixes.
    """

    start_offset: int
    segment_id: UUID
    suffix: str

    def __str__(self) -> str:
        """Return the name."""
        return f"{self.start_offset:020d}-{format_uuid(self.segment_id)}{self.suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTieredFolder:
    """The name of a partition's folder in LocalTieredStorage."""

    topic: str
    partition: int
    topic_id: UUID

    def __str__(self) -> str:
        """Return the name."""
        return f"{self.topic}-{self.partition}-{format_uuid(self.topic_id)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenKey:
    """The key of an object of the Aiven plugin, without the prefix that it was configured with."""

    topic: str
    topic_id: UUID
    partition: int
    file: RemoteFileName

    @property
    def folder(self) -> str:
        """Return the part before the object's own name, with its slash."""
        return format_aiven_folder(self.topic, self.topic_id, self.partition)

    def __str__(self) -> str:
        """Return the key."""
        return f"{self.folder}{self.file}"


def format_aiven_folder(topic: str, topic_id: UUID, partition: int) -> str:
    """Return what the keys of a partition begin with, after the configured prefix; it ends with a slash."""
    return f"{topic}-{format_uuid(topic_id)}/{partition}/"


def read_local_tiered_folder(name: str) -> LocalTieredFolder | None:
    """Return what the folder's *name* says, None if it is not a partition's folder of LocalTieredStorage."""
    found = _FOLDER.fullmatch(name)
    if found is None:
        return None
    topic, partition = found[1], int(found[2])
    if not _is_topic(topic) or partition > _MAX_INT:
        return None
    return LocalTieredFolder(topic=topic, partition=partition, topic_id=read_uuid(found[3]))


def read_segment_name(name: str) -> tuple[int, str] | None:
    """Return start offset and id, as text, of the part of a *name* before its suffix, None if it is not one."""
    found = _SEGMENT.fullmatch(name)
    if found is None or (start_offset := int(found[1])) > LONG_MAX:
        return None
    return start_offset, found[2]


def read_local_tiered_file(name: str) -> RemoteFileName | None:
    """Return what a file's *name* says, None if LocalTieredStorage writes no such name."""
    return _read_file(name, LOCAL_TIERED_SUFFIXES)


def read_aiven_file(name: str) -> RemoteFileName | None:
    """Return what the last part of a key says, None if the plugin writes no such name."""
    return _read_file(name, AIVEN_SUFFIXES)


def read_aiven_topic_folder(name: str) -> tuple[str, UUID] | None:
    """Return topic and topic id of the part *name* of a key, None if it has none."""
    found = _TOPIC_FOLDER.fullmatch(name)
    if found is None or not _is_topic(found[1]):
        return None
    return found[1], read_uuid(found[2])


def read_aiven_key(key: str, *, prefix: str = "") -> AivenKey | None:
    """Return what *key* says, None if it does not begin with *prefix* or is of another form after it.

    Args:
        key: of an object, parts separated by `/`.
        prefix: the plugin's `key.prefix`, as it is configured.
    """
    parts = key[len(prefix) :].split("/")
    if not key.startswith(prefix) or len(parts) != 3:
        return None
    topic, file = read_aiven_topic_folder(parts[0]), read_aiven_file(parts[2])
    if topic is None or file is None or _PARTITION.fullmatch(parts[1]) is None or int(parts[1]) > _MAX_INT:
        return None
    return AivenKey(topic=topic[0], topic_id=topic[1], partition=int(parts[1]), file=file)


def _read_file(name: str, suffixes: tuple[str, ...]) -> RemoteFileName | None:
    found, suffix = read_segment_name(name[:SEGMENT_NAME_CHARS]), name[SEGMENT_NAME_CHARS:]
    if found is None or suffix not in suffixes:
        return None
    return RemoteFileName(start_offset=found[0], segment_id=read_uuid(found[1]), suffix=suffix)


def _is_topic(name: str) -> bool:
    """Return whether Kafka accepts *name* for a topic. Kafka: Topic.validate."""
    return name not in (".", "..")
