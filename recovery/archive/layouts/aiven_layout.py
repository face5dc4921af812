"""The Aiven plugin's objects: a log in chunks, all indexes in one object, and a manifest that describes both.

The manifest is uploaded last, so a segment without one was never complete.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys, restore_chunk, restore_index
from recovery.archive.layouts.grouping import group_by_segment
from recovery.archive.layouts.holed_log import ChunkError
from recovery.archive.layouts.layout import part_kind
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, ObjectTable
from recovery.archive.stores.store import Store
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES
from recovery.read.opened_log import OpenedLog
from segfmt.aiven_custom_metadata import read_remote_size
from segfmt.aiven_manifest import AivenIndexKind, AivenManifest, read_aiven_manifest
from segfmt.errors import FormatError, MissingKeyError
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import RemoteSegment
from segfmt.remote_names import format_aiven_folder, read_aiven_topic_folder

MOST_MANIFEST_BYTES = 16 << 20
_SUFFIXES = {PartKind.LOG: ".log", PartKind.INDEXES: ".indexes", PartKind.MANIFEST: ".rsm-manifest"}
_KINDS = {suffix: kind for kind, suffix in _SUFFIXES.items()}
_INDEXES = {
    PartKind.OFFSET_INDEX: AivenIndexKind.OFFSET,
    PartKind.TIME_INDEX: AivenIndexKind.TIMESTAMP,
    PartKind.TXN_INDEX: AivenIndexKind.TRANSACTION,
    PartKind.SNAPSHOT: AivenIndexKind.PRODUCER_SNAPSHOT,
    PartKind.LEADER_EPOCHS: AivenIndexKind.LEADER_EPOCH,
}
_CHUNKS_KEPT = 2
"""Restored chunks in memory: a window may reach from one chunk into the next."""


class AivenLayout:
    """Keys `<prefix><topic>-<topic id>/<partition>/<start offset>-<segment id>.<part>`.

    Args:
        keys: RSA keys for encrypted segments.
    """

    name = "aiven"
    required_parts = frozenset(_SUFFIXES)
    last_part = PartKind.MANIFEST
    is_tiered = True
    has_plain_logs = False
    in_place_obstacle = (
        "the Aiven plugin keeps all indexes of a segment in one object that its manifest describes; recover to an "
        "output, and have the plugin upload the segment again"
    )

    def __init__(self, keys: AivenKeys = NO_KEYS) -> None:
        self._keys = keys

    def at(self, _prefix: str) -> Self:
        """Return this layout, which all partitions have."""
        return self

    def partition_at(self, path: str) -> PartitionPrefix | None:
        """Return the partition whose objects are below *path*."""
        above, _, number = path.rpartition("/")
        topic = read_aiven_topic_folder(above.rpartition("/")[2])
        if topic is None or not number.isascii() or not number.isdigit():
            return None
        return PartitionPrefix(
            prefix=f"{path}/",
            topic=topic[0],
            partition=int(number),
            topic_id=format_uuid(topic[1]),
            folder=f"{topic[0]}-{int(number)}",
        )

    def prefix_of(self, topic: str, topic_id: UUID, partition: int) -> str:
        """Return what the keys of a partition begin with."""
        return format_aiven_folder(topic, topic_id, partition)

    def partition(self, where: PartitionPrefix, objects: ObjectTable) -> ArchivedPartition:
        """Group the objects below a partition's prefix by start offset and segment id."""
        return group_by_segment(where, objects, _KINDS)

    def files(self, store: Store, segment: ArchivedSegment) -> AivenFiles:
        """Return the files of a segment, once its manifest is read."""
        return AivenFiles(store, segment, self._keys)

    def name_of(self, segment: ArchivedSegment, kind: PartKind) -> str:
        """Return the name of an object, or a name for a rebuilt file that is part of an object."""
        suffix = _SUFFIXES.get(kind, f".{kind.value}")
        return f"{segment.base_offset:020d}-{segment.segment_id}{suffix}"

    def objects_of(self, *parts: PartKind) -> frozenset[PartKind]:
        """Return the objects needed to read *parts*, with the manifest, which says where in them the parts are."""
        return frozenset(PartKind.INDEXES if part in _INDEXES else part for part in parts) | {
            PartKind.MANIFEST
        }

    def told_bytes(self, remote: RemoteSegment) -> int | None:
        """Return the total size of the objects as the plugin reported it to the brokers."""
        return read_remote_size(remote.custom_metadata)


class AivenFiles:
    """The files of one segment, as they were before the plugin stored them."""

    def __init__(self, store: Store, segment: ArchivedSegment, keys: AivenKeys) -> None:
        self._store = store
        self._segment = segment
        self._keys = keys
        manifest = self._object(PartKind.MANIFEST)
        self._manifest_name = manifest.name
        self._manifest = read_aiven_manifest(store.read(manifest.key, most_bytes=MOST_MANIFEST_BYTES))
        self._indexes: bytes | None = None

    def open(self, _name: str) -> OpenedLog:
        """Open the log: its chunks are restored as they are read."""
        log = self._store.open(self._object(PartKind.LOG).key)
        return ChunkedLog(log, self._manifest, self._keys, self._manifest_name)

    def read_index(self, name: str, take: Callable[[int], None]) -> tuple[bytes, int]:
        """Return an index and its size."""
        kind = part_kind(name)
        data = self.read_part(PartKind.LOG if kind is None else kind)
        take(len(data))
        return data, len(data)

    def read_part(self, kind: PartKind) -> bytes:
        """Return an index, the snapshot or the leader epochs."""
        index = _INDEXES.get(kind)
        place = None if index is None else self._manifest.index(index)
        data = None
        if index is not None and place is not None:
            where = f"bytes {place.position} to {place.position + place.size_bytes} of the .indexes object"
            with _restoring(self._manifest_name, f"it cannot be restored from {where}"):
                data = restore_index(self._all_indexes(), self._manifest, index, self._keys)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, f"the segment has no {kind.value}")
        return data

    def log_bytes(self) -> int:
        """Return the size of the segment, from the manifest."""
        return self._manifest.original_size_bytes

    def described(self) -> RemoteSegment | None:
        """Return what the manifest says of the segment."""
        return self._manifest.segment

    def contradictions(self) -> list[tuple[PartKind, str]]:
        """Return where the manifest contradicts the listing."""
        expected = {
            PartKind.LOG: self._manifest.stored_log_bytes,
            PartKind.INDEXES: self._manifest.stored_indexes_bytes,
        }
        parts = self._segment.parts
        return [
            (kind, f"{parts[kind].size_bytes} bytes, the manifest says {size}")
            for kind, size in expected.items()
            if kind in parts and parts[kind].size_bytes != size
        ]

    def _all_indexes(self) -> bytes:
        if self._indexes is None:
            stored = self._object(PartKind.INDEXES)
            self._indexes = self._store.read(stored.key, most_bytes=5 * MOST_SMALL_FILE_BYTES)
        return self._indexes

    def _object(self, kind: PartKind) -> StoredObject:
        stored = self._segment.parts.get(kind)
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, f"the segment has no {kind.value}")
        return stored


class ChunkedLog:
    """A log read through its chunks, forwards.

    Args:
        stored: the object.
        manifest: of the segment.
        keys: for encrypted segments.
        manifest_name: for errors.
    """

    def __init__(
        self, stored: OpenedLog, manifest: AivenManifest, keys: AivenKeys, manifest_name: str
    ) -> None:
        self._stored = stored
        self._manifest_name = manifest_name
        self._manifest = manifest
        self._keys = keys
        self._chunks: dict[int, bytes] = {}
        self._lost: dict[int, ChunkError] = {}

    @property
    def end_position(self) -> int:
        """Size of the log."""
        return self._manifest.original_size_bytes

    def read_at(self, target: npt.NDArray[np.uint8], position: int) -> int:
        """Fill *target* from *position* on; return how many bytes there were.

        Raises:
            ChunkError: a chunk cannot be restored; the bytes before it are in *target*.
            MissingKeyError: the segment is encrypted with a key that was not given.
            OSError: the object cannot be read.
        """
        done, wanted = 0, max(0, min(len(target), self.end_position - position))
        while done < wanted:
            chunk = self._manifest.chunk_of(position + done)
            data = np.frombuffer(self._chunk(chunk.number), np.uint8)
            part = data[position + done - chunk.original_position :][: wanted - done]
            target[done : done + part.size] = part
            done += part.size
        return done

    def approach(self, position: int) -> None:
        """Have the object read ahead from *position* on."""
        if position < self.end_position:
            self._stored.approach(self._manifest.chunk_of(position).stored_position)

    def leave(self, position: int) -> None:
        """Forget what is before *position*."""
        if position < self.end_position:
            self._stored.leave(self._manifest.chunk_of(position).stored_position)

    def close(self) -> None:
        """Close the object."""
        self._stored.close()

    def _chunk(self, number: int) -> bytes:
        if number in self._lost:
            raise self._lost[number]
        restored = self._chunks.get(number)
        if restored is None:
            try:
                restored = self._restored(number)
            except ChunkError as error:
                self._lost[number] = error
                raise
            while len(self._chunks) >= _CHUNKS_KEPT:
                del self._chunks[min(self._chunks)]
            self._chunks[number] = restored
        return restored

    def _restored(self, number: int) -> bytes:
        chunk = self._manifest.chunk(number)
        # A manifest may claim any size, so memory is bounded by what the object holds.
        present_bytes = max(0, min(chunk.stored_bytes, self._stored.end_position - chunk.stored_position))
        stored = np.zeros(present_bytes, np.uint8)
        count = self._stored.read_at(stored, chunk.stored_position)
        end_position = chunk.original_position + chunk.original_bytes
        subject = (
            f"bytes {chunk.original_position} to {end_position} of the log cannot be restored from chunk {number}, "
            f"bytes {chunk.stored_position} to {chunk.stored_position + chunk.stored_bytes} of the object"
        )
        place = chunk.stored_position, chunk.original_position, end_position
        with _restoring(self._manifest_name, subject, place):
            return restore_chunk(stored[:count].tobytes(), self._manifest, number, self._keys)


@contextmanager
def _restoring(manifest_name: str, subject: str, place: tuple[int, int, int] = (0, 0, 0)) -> Iterator[None]:
    """Say in errors what could not be restored, or whose key is missing.

    Raises:
        ChunkError: with *subject*, and *place* as its positions.
        MissingKeyError: with the name of the manifest.
    """
    try:
        yield
    except MissingKeyError as error:
        raise type(error)(f"{manifest_name}: {error}") from error
    except FormatError as error:
        position, start_position, end_position = place
        raise ChunkError(
            f"{subject}: {error}", position=position, start_position=start_position, end_position=end_position
        ) from error
