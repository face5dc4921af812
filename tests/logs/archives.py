"""Archives in every layout, made of segments as values: those of a real broker, or some that are built here.

A `SegmentCopy` is what tiered storage keeps of one segment: its files, and what the metadata topic says of it.
`LAYOUTS` writes any of them as the archive that one kind of storage would hold; `archive_damage` damages it.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import numpy as np

from segfmt import byte_layout
from segfmt.aiven_manifest import AivenIndexKind
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.producer_snapshot import encode_producer_snapshot
from segfmt.remote_log_metadata import (
    RemoteLogMetadata,
    RemotePartition,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)
from segfmt.remote_names import LocalTieredFolder, format_aiven_folder
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.aiven_archive import aiven_objects
from tests.logs.builders import ABORT, BASE_TIMESTAMP_MS, COMMIT, data_batch, marker_batch

LOG, INDEX, TIME_INDEX, TXN_INDEX = "log", "index", "timeindex", "txnindex"
SNAPSHOT, EPOCHS = "snapshot", "leader_epoch_checkpoint"
PARTS = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, EPOCHS)
"""What a segment has, by the suffixes of LocalTieredStorage."""
MANIFEST, INDEXES = "rsm-manifest", "indexes"
"""What the Aiven plugin has instead of the small files."""

AIVEN_CHUNK_BYTES = 2048
_AIVEN_KINDS = {
    AivenIndexKind.OFFSET: INDEX,
    AivenIndexKind.TIMESTAMP: TIME_INDEX,
    AivenIndexKind.PRODUCER_SNAPSHOT: SNAPSHOT,
    AivenIndexKind.LEADER_EPOCH: EPOCHS,
    AivenIndexKind.TRANSACTION: TXN_INDEX,
}
_INDEX_INTERVAL_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCopy:
    """One segment: what the metadata topic says of it, and its files by their parts."""

    remote: RemoteSegment
    files: Mapping[str, bytes]

    @property
    def owner(self) -> RemotePartition:
        """Whose segment it is."""
        assert self.remote.owner is not None
        return self.remote.owner

    @property
    def stem(self) -> str:
        """What its objects' names begin with in tiered storage."""
        return f"{self.remote.start_offset:020d}-{format_uuid(self.remote.segment_id)}"


@dataclass(kw_only=True)
class WrittenArchive:
    """An archive on disk, made of copies.

    Attributes:
        layout: one of LAYOUTS.
        copies: by partition and start offset.
        metadata: what the metadata topic says; damages may change it, too.
    """

    root: Path
    layout: str
    copies: list[SegmentCopy]
    metadata: list[RemoteSegment] = field(default_factory=list)

    @property
    def is_tiered(self) -> bool:
        """Whether objects are named by segment ids, and a metadata topic knows them."""
        return self.layout != "plain"

    @property
    def is_aiven(self) -> bool:
        """Whether it is one of the Aiven plugin's."""
        return self.layout.startswith("aiven")

    def place(self, copy: SegmentCopy, part: str) -> Path:
        """Where a part of a segment lies: in the Aiven layout the small files lie in one object."""
        owner, start = copy.owner, copy.remote.start_offset
        if self.is_aiven:
            suffix = part if part in (LOG, MANIFEST) else INDEXES
            folder = format_aiven_folder(owner.topic, owner.topic_id, owner.partition)
            return self.root / folder / f"{copy.stem}.{suffix}"
        if self.layout == "local-tiered":
            folder = str(
                LocalTieredFolder(topic=owner.topic, partition=owner.partition, topic_id=owner.topic_id)
            )
            return self.root / folder / f"{copy.stem}.{part}"
        folder = f"{owner.topic}-{owner.partition}"
        if part == EPOCHS:
            return self.root / folder / "leader-epoch-checkpoint"
        offset = copy.remote.end_offset + 1 if part == SNAPSHOT else start
        return self.root / folder / f"{offset:020d}.{part}"

    def parts(self, copy: SegmentCopy) -> list[str]:
        """The parts of a segment that are objects of their own here."""
        if self.is_aiven:
            return [LOG, INDEXES, MANIFEST]
        return [part for part in PARTS if part in copy.files]

    def rewrite(self, copy: SegmentCopy, part: str, content: bytes) -> Path:
        """Store a segment with another *content* of one of its parts; return where that lies."""
        changed = replace(copy, files={**copy.files, part: content})
        for path, data in LAYOUTS[self.layout](self, changed, self.copies.index(copy)).items():
            path.write_bytes(data)
        return self.place(copy, part)

    def copy(self, root: Path) -> WrittenArchive:
        """The same archive once more, in the new folder *root*."""
        shutil.copytree(self.root, root)
        return replace(self, root=root, metadata=list(self.metadata))

    def keys(self) -> set[str]:
        """All objects, as paths below the root."""
        return {path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()}


def copies_of(archive: TieredArchive, *partitions: str, most: int | None = None) -> list[SegmentCopy]:
    """The finished segments of partitions of a real archive, the first *most* of each."""
    found: dict[str, list[SegmentCopy]] = {name: [] for name in partitions}
    for uuid, segment in archive.expected["segments"].items():
        name = "{topic}-{partition}".format(**segment)
        if name not in found or segment["states"][-1] != "COPY_SEGMENT_FINISHED":
            continue
        folder = archive.path / "{topic}-{partition}-{topic_id}".format(**segment)
        stem = f"{segment['start_offset']:020d}-{uuid}."
        files = {
            path.name[len(stem) :]: path.read_bytes()
            for path in folder.iterdir()
            if path.name.startswith(stem)
        }
        remote = RemoteSegment(
            owner=RemotePartition(
                topic=segment["topic"],
                topic_id=read_uuid(segment["topic_id"]),
                partition=segment["partition"],
            ),
            segment_id=read_uuid(uuid),
            start_offset=segment["start_offset"],
            end_offset=segment["end_offset"],
            broker_id=segment["broker_id"],
            max_timestamp_ms=segment["max_timestamp_ms"],
            event_timestamp_ms=segment["max_timestamp_ms"],
            leader_epochs=tuple(
                LeaderEpochEntry(int(epoch), start) for epoch, start in segment["leader_epochs"].items()
            ),
            size_bytes=segment["size_bytes"],
            state=RemoteSegmentState.COPY_SEGMENT_FINISHED,
            has_no_transactions=segment["is_txn_index_empty"],
        )
        found[name].append(SegmentCopy(remote=remote, files=files))
    ordered = (sorted(of, key=lambda one: one.remote.start_offset)[:most] for of in found.values())
    return [copy for of in ordered for copy in of]


# -- segments that are built ------------------------------------------------------------------------------------


def made_copies(
    *, topic: str = "made", partition: int = 0, segments: int = 6, batches: int = 8, seed: int = 1
) -> list[SegmentCopy]:
    """Segments of one partition, as a broker would have archived them.

    An idempotent producer writes all the time, a transactional one has a transaction open over every seam, which ends
    in the middle of the next segment, committed and aborted by turns. The leader changes in every third segment.
    """
    rng = random.Random(f"{topic} {partition} {seed}")
    owner = RemotePartition(topic=topic, topic_id=new_uuid(random.Random(topic)), partition=partition)
    log = MadeLog(rng)
    return [log.roll(owner, batches, number) for number in range(segments)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedCopies:
    """Segments of a partition after an unclean election.

    Attributes:
        shared: those of both histories.
        lost: one that only the old leader has archived.
        first: the one of the new leader at the same offsets.
        after: those that continue the new leader's.
    """

    shared: list[SegmentCopy]
    lost: SegmentCopy
    first: SegmentCopy
    after: list[SegmentCopy]


def forked_copies(*, lost_batches: int = 8) -> ForkedCopies:
    """Segments of two leaders that have archived the same offsets, with other producers; the second one goes on."""
    rng = random.Random(3)
    owner = RemotePartition(topic="fork", topic_id=new_uuid(random.Random("fork")), partition=0)
    old = MadeLog(rng)
    shared = [old.roll(owner, 8, number) for number in (0, 1)]
    new = deepcopy(old)
    old.idempotent, new.idempotent = 13, 12
    lost = old.roll(owner, lost_batches, 3)
    new.lead(1)
    first = new.roll(owner, 8, 3)
    first = replace(first, remote=replace(first.remote, segment_id=new_uuid(random.Random(1)), broker_id=2))
    new.idempotent = MadeLog.PLAIN
    after = [new.roll(owner, 8, number) for number in (4, 6, 7)]
    return ForkedCopies(shared=shared, lost=lost, first=first, after=after)


class MadeLog:
    """What a leader knows while it appends: Kafka's LogSegment.append and ProducerStateManager, step by step."""

    PLAIN, TRANSACTIONAL = 10, 11

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.idempotent = self.PLAIN
        self._offset = 0
        self._timestamp_ms = BASE_TIMESTAMP_MS
        self._epochs = [LeaderEpochEntry(0, 0)]
        self._producers: dict[
            int, tuple[int, int, int, int]
        ] = {}  # id -> last sequence, last offset, delta, ms
        self._txn_first_offset = -1
        self._txns = 0
        self._start()

    def _start(self) -> None:
        self._log = b""
        self._index: list[tuple[int, int]] = []
        self._time_index: list[tuple[int, int]] = []
        self._aborted: list[tuple[int, int, int, int, int]] = []
        self._since_entry = 0
        self._max = (-1, -1)  # timestamp, last offset of its batch

    def lead(self, epoch: int) -> None:
        """Become the leader, a moment later."""
        self._epochs.append(LeaderEpochEntry(epoch, self._offset))
        self._timestamp_ms += 5

    def roll(self, owner: RemotePartition, batches: int, number: int) -> SegmentCopy:
        """Append a segment's batches; return it as it is archived."""
        base = self._offset
        for place in range(batches):
            if number % 3 == 2 and place == batches // 2:
                self._epochs.append(LeaderEpochEntry(self._epochs[-1].epoch + 2, self._offset))
            if place == batches // 2 and self._txn_first_offset >= 0:
                self._end_transaction(base)
            else:
                is_last = place == batches - 1
                self._append_data(base, self.TRANSACTIONAL if is_last else self.idempotent)
        return self.close(owner, base)

    def close(self, owner: RemotePartition, base: int, *, broker_id: int = 1) -> SegmentCopy:
        """Close the segment that began at *base*, and begin the next one; return it as it is archived."""
        self._time_entry(base)
        files = {
            LOG: self._log,
            INDEX: np.array(self._index, byte_layout.OFFSET_INDEX_DTYPE).tobytes(),
            TIME_INDEX: np.array(self._time_index, byte_layout.TIME_INDEX_DTYPE).tobytes(),
            SNAPSHOT: self._snapshot(),
            EPOCHS: encode_leader_epoch_checkpoint(self._epochs),
        }
        if self._aborted:
            files[TXN_INDEX] = np.array(self._aborted, byte_layout.ABORTED_TXN_DTYPE).tobytes()
        within = [one for one in self._epochs if one.start_offset > base]
        first = [one for one in self._epochs if one.start_offset <= base][-1]
        remote = RemoteSegment(
            owner=owner,
            segment_id=new_uuid(self._rng),
            start_offset=base,
            end_offset=self._offset - 1,
            broker_id=broker_id,
            max_timestamp_ms=self._max[0],
            event_timestamp_ms=self._max[0],
            leader_epochs=(LeaderEpochEntry(first.epoch, base), *within),
            size_bytes=len(self._log),
            state=RemoteSegmentState.COPY_SEGMENT_FINISHED,
            has_no_transactions=not self._aborted,
        )
        self._start()
        return SegmentCopy(remote=remote, files=files)

    def _append_data(self, base: int, producer_id: int) -> None:
        count = self._rng.randrange(1, 9)
        sequence = self._producers[producer_id][0] + 1 if producer_id in self._producers else 0
        is_transactional = producer_id == self.TRANSACTIONAL
        if is_transactional:
            self._txn_first_offset = self._offset
        self._timestamp_ms += self._rng.randrange(1, 1000)
        batch = data_batch(
            self._offset,
            count,
            value_bytes=self._rng.randrange(20, 90),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=max(0, sequence),
            transactional=is_transactional,
            leader_epoch=self._epochs[-1].epoch,
            base_timestamp_ms=self._timestamp_ms,
        )
        self._producers[producer_id] = (
            max(0, sequence) + count - 1,
            self._offset + count - 1,
            count - 1,
            self._timestamp_ms,
        )
        self._append(base, batch, count)

    def _end_transaction(self, base: int) -> None:
        aborts = self._txns % 2 == 1
        self._txns += 1
        self._timestamp_ms += 1
        batch = marker_batch(
            self._offset,
            ABORT if aborts else COMMIT,
            producer_id=self.TRANSACTIONAL,
            leader_epoch=self._epochs[-1].epoch,
            base_timestamp_ms=self._timestamp_ms,
        )
        if aborts:
            self._aborted.append(
                (0, self.TRANSACTIONAL, self._txn_first_offset, self._offset, self._offset + 1)
            )
        self._txn_first_offset = -1
        known = self._producers[self.TRANSACTIONAL]
        self._producers[self.TRANSACTIONAL] = (*known[:3], self._timestamp_ms)
        self._append(base, batch, 1)

    def _append(self, base: int, batch: bytes, count: int) -> None:
        """Kafka: LogSegment.append."""
        last = self._offset + count - 1
        if self._timestamp_ms > self._max[0]:
            self._max = (self._timestamp_ms, last)
        if self._since_entry > _INDEX_INTERVAL_BYTES:
            self._index.append((last - base, len(self._log)))
            self._time_entry(base)
            self._since_entry = 0
        self._since_entry += len(batch)
        self._log += batch
        self._offset += count

    def _time_entry(self, base: int) -> None:
        """Kafka: TimeIndex.maybeAppend."""
        timestamp_ms, offset = self._max
        if not self._time_index or timestamp_ms > self._time_index[-1][0]:
            self._time_index.append((timestamp_ms, offset - base))

    def _snapshot(self) -> bytes:
        entries = np.zeros(len(self._producers), byte_layout.PRODUCER_ENTRY_DTYPE)
        for place, (producer_id, known) in enumerate(sorted(self._producers.items())):
            is_transactional = producer_id == self.TRANSACTIONAL
            entries[place] = (
                producer_id,
                0,
                *known,
                0 if is_transactional and self._txns else -1,
                self._txn_first_offset if is_transactional else -1,
            )
        return encode_producer_snapshot(entries)


def doubled(copies: Sequence[SegmentCopy], place: int) -> list[SegmentCopy]:
    """The segments, and one of them once more under another id: two leaders have archived the same offsets."""
    again = replace(copies[place].remote, segment_id=new_uuid(random.Random(place)), broker_id=2)
    return [*copies, replace(copies[place], remote=again)]


def new_uuid(rng: random.Random) -> UUID:
    """An id whose text does not begin with a dash, as Kafka draws them."""
    while True:
        drawn = UUID(int=rng.getrandbits(128), version=4)
        if not format_uuid(drawn).startswith("-"):
            return drawn


# -- layouts ----------------------------------------------------------------------------------------------------


def write_archive(root: Path, name: str, copies: Iterable[SegmentCopy]) -> WrittenArchive:
    """Write the archive that the layout *name* of LAYOUTS makes of *copies*."""
    ordered = sorted(
        copies, key=lambda copy: (copy.owner.topic, copy.owner.partition, copy.remote.start_offset, copy.stem)
    )
    root.mkdir(parents=True)
    archive = WrittenArchive(
        root=root, layout=name, copies=ordered, metadata=[copy.remote for copy in ordered]
    )
    for place, copy in enumerate(ordered):
        for path, content in LAYOUTS[name](archive, copy, place).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return archive


def _plain(archive: WrittenArchive, copy: SegmentCopy, _place: int) -> dict[Path, bytes]:
    """A partition's folder; each segment's epochs are those of the whole log up to it, so the last ones stay."""
    written = {archive.place(copy, part): content for part, content in copy.files.items()}
    folder = archive.place(copy, LOG).parent
    text = f"version: 0\ntopic_id: {format_uuid(copy.owner.topic_id)}"
    return written | {folder / "partition.metadata": text.encode()}


def _local_tiered(archive: WrittenArchive, copy: SegmentCopy, _place: int) -> dict[Path, bytes]:
    return {archive.place(copy, part): content for part, content in copy.files.items()}


def _aiven(
    *, is_compressed: bool = False, is_encrypted: bool = False
) -> Callable[[WrittenArchive, SegmentCopy, int], dict[Path, bytes]]:
    def write(archive: WrittenArchive, copy: SegmentCopy, place: int) -> dict[Path, bytes]:
        objects = aiven_objects(
            copy.files[LOG],
            {kind: copy.files[part] for kind, part in _AIVEN_KINDS.items() if part in copy.files},
            segment=copy.remote,
            chunk_bytes=AIVEN_CHUNK_BYTES,
            is_compressed=is_compressed,
            is_encrypted=is_encrypted,
            seed=place,
        )
        return {archive.place(copy, suffix[1:]): content for suffix, content in objects.by_suffix().items()}

    return write


LAYOUTS: dict[str, Callable[[WrittenArchive, SegmentCopy, int], dict[Path, bytes]]] = {
    "plain": _plain,
    "local-tiered": _local_tiered,
    "aiven": _aiven(),
    "aiven, zstd": _aiven(is_compressed=True),
    "aiven, encrypted": _aiven(is_encrypted=True),
    "aiven, zstd, encrypted": _aiven(is_compressed=True, is_encrypted=True),
}
"""Name -> what a segment becomes: path -> content. The encrypted ones need tests/logs/aiven_archive.py's key."""


def metadata_records(segments: Iterable[RemoteSegment]) -> list[RemoteLogMetadata]:
    """What brokers have written to the metadata topic of segments that are in these states now."""
    records: list[RemoteLogMetadata] = []
    for segment in segments:
        assert segment.owner is not None
        records.append(replace(segment, state=RemoteSegmentState.COPY_SEGMENT_STARTED))
        records += [
            RemoteSegmentUpdate(
                owner=segment.owner,
                segment_id=segment.segment_id,
                broker_id=segment.broker_id,
                event_timestamp_ms=segment.event_timestamp_ms,
                state=state,
            )
            for state in RemoteSegmentState
            if RemoteSegmentState.COPY_SEGMENT_STARTED < state <= segment.state
        ]
    return records


def batch_positions(log: bytes) -> list[int]:
    """Where the batches of a sound log begin, and its end."""
    positions = [0]
    while positions[-1] < len(log):
        positions.append(positions[-1] + 12 + struct.unpack_from(">i", log, positions[-1] + 8)[0])
    return positions
