"""Damage for archives: one table of what can happen to one, in each layout, and of what must then be found.

Each damage is a function of a `WrittenArchive` and a random generator. It changes the objects, or
what the metadata topic says of them, and returns what must be found; None where it has nothing to bite on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import numpy as np

from segfmt import byte_layout
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, read_leader_epoch_checkpoint
from segfmt.kafka_uuid import format_uuid
from segfmt.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from segfmt.remote_log_metadata import RemoteSegment
from tests.logs.archives import (
    EPOCHS,
    INDEX,
    INDEXES,
    LOG,
    MANIFEST,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    SegmentCopy,
    WrittenArchive,
    batch_positions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MustFind:
    """What a verification has to say.

    Attributes:
        keys: one of these objects is named.
        rules: by one of these rules.
        severity: at least that: damage, or else a note.
        position: the first bad position in the log, where there can be no other.
    """

    keys: frozenset[str]
    rules: frozenset[str]
    severity: str = "damage"
    position: int | None = None


_TRIES = 30  # to find a file that a change bites on

ArchiveDamage = Callable[[WrittenArchive, random.Random], MustFind | None]


def _must(archive: WrittenArchive, paths: Iterable[Path], *rules: str, **more: object) -> MustFind:
    keys = frozenset(path.relative_to(archive.root).as_posix() for path in paths)
    return MustFind(keys=keys, rules=frozenset(rules), **more)  # type: ignore[arg-type]  # as the callers give them


def _inner(archive: WrittenArchive, rng: random.Random, *, part: str = LOG) -> SegmentCopy:
    """A segment that has *part*, and a segment before it and one behind it in its partition."""
    rows = zip(archive.copies, archive.copies[1:], archive.copies[2:], strict=False)
    inner = [two for one, two, three in rows if one.owner == two.owner == three.owner]
    return rng.choice([copy for copy in inner if part in copy.files])


def _flip(path: Path, position: int, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


# -- logs -------------------------------------------------------------------------------------------------------


def _flipped_records(archive: WrittenArchive, rng: random.Random) -> MustFind:
    copy = _inner(archive, rng)
    path = archive.place(copy, LOG)
    if archive.is_aiven:
        _flip(path, rng.randrange(path.stat().st_size), rng)
        return _must(archive, [path], "chunk", *_LOG_RULES)
    positions = batch_positions(copy.files[LOG])
    place = rng.randrange(len(positions) - 1)
    _flip(path, rng.randrange(positions[place] + 21, positions[place + 1]), rng)
    # A control batch may be opened before its CRC is looked at, an odd attribute is named as such.
    return _must(archive, [path], *_LOG_RULES, position=positions[place])


def _cut_within_a_batch(archive: WrittenArchive, rng: random.Random) -> MustFind:
    copy = _inner(archive, rng)
    path = archive.place(copy, LOG)
    data = path.read_bytes()
    start = len(data) // 2 if archive.is_aiven else batch_positions(data)[-2]
    path.write_bytes(data[: rng.randrange(start + 1, len(data))])
    return _must(archive, [path], "torn-batch", "trailing-bytes", "object-size", "chunk")


def _cut_between_batches(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    copy = _inner(archive, rng)
    if archive.is_aiven:
        return None
    path = archive.place(copy, LOG)
    positions = batch_positions(copy.files[LOG])
    path.write_bytes(copy.files[LOG][: positions[-2]])
    following = archive.copies[archive.copies.index(copy) + 1]
    # In a folder the next segment, an entry of an index or the snapshot behind tells of it.
    others = [archive.place(copy, part) for part in (INDEX, TIME_INDEX, SNAPSHOT, EPOCHS)]
    rules = ("metadata", "offset-gap", "index-entry", "snapshot-content", "epoch-content", "cut-end")
    return _must(archive, [path, archive.place(following, LOG), *others], *rules)


def _emptied_log(archive: WrittenArchive, rng: random.Random) -> MustFind:
    path = archive.place(_inner(archive, rng), LOG)
    path.write_bytes(b"")
    others = [] if archive.is_tiered else list(path.parent.iterdir())
    return _must(
        archive, [path, *others], "empty-log", "metadata", "object-size", "index-entry", "offset-gap"
    )


def _zeros_at_the_end(archive: WrittenArchive, rng: random.Random) -> MustFind:
    path = archive.place(_inner(archive, rng), LOG)
    data = path.read_bytes()
    keep = rng.randrange(len(data) // 2, len(data) - 100)
    path.write_bytes(data[:keep] + bytes(len(data) - keep))
    return _must(archive, [path], "batch-length", "trailing-bytes", "chunk", *_LOG_RULES)


def _swapped_logs(archive: WrittenArchive, rng: random.Random) -> MustFind:
    copy = _inner(archive, rng)
    following = archive.copies[archive.copies.index(copy) + 1]
    paths = [archive.place(one, LOG) for one in (copy, following)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    return _must(archive, paths, "offset-range", "metadata", "object-size", "chunk", *_LOG_RULES)


def _missing_log(archive: WrittenArchive, rng: random.Random) -> MustFind:
    copy = _inner(archive, rng)
    path = archive.place(copy, LOG)
    path.unlink()
    if archive.is_tiered:
        return _must(archive, [path], "missing-object")
    following = archive.copies[archive.copies.index(copy) + 1]
    places = [archive.place(copy, INDEX), archive.place(copy, TIME_INDEX), archive.place(following, LOG)]
    return _must(archive, places, "offset-gap", "orphan-index", "no-segment")


# -- small files ------------------------------------------------------------------------------------------------


def _missing(part: str) -> ArchiveDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        copy = _inner(archive, rng, part=part)
        path = archive.place(copy, part)
        if archive.is_aiven or (part in (SNAPSHOT, EPOCHS) and not archive.is_tiered):
            return None  # one object for all; a broker does not keep all snapshots either
        path.unlink()
        rules = ("missing-object", "missing-index", "transaction-index-missing")
        return _must(archive, [path, archive.place(copy, LOG)], *rules)

    return damage


def _changed(part: str, change: Callable[[bytes, random.Random], bytes], *rules: str) -> ArchiveDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if archive.is_aiven:
            return None  # `_flipped_indexes`, `_cut_indexes`
        for _ in range(_TRIES):
            path = archive.place(_inner(archive, rng, part=part), part)
            before = path.read_bytes()
            after = change(before, rng) if before else before
            if after != before:
                path.write_bytes(after)
                return _must(archive, [path], *rules)
        return None

    return damage


def _time_index_cut(count: int) -> ArchiveDamage:
    """All but so many entries of a time index are gone, which a rolled segment's index never lacks."""

    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if archive.is_aiven or not archive.is_tiered:
            return None  # in a folder it may have been made empty by a broker
        path = archive.place(_inner(archive, rng), TIME_INDEX)
        data = path.read_bytes()
        entry_bytes = byte_layout.TIME_INDEX_DTYPE.itemsize
        if len(data) <= count * entry_bytes:
            return None
        path.write_bytes(data[: count * entry_bytes])
        return _must(archive, [path], "index-sparse")

    return damage


def _position_beyond_the_log(data: bytes, rng: random.Random) -> bytes:
    entries = np.frombuffer(data, byte_layout.OFFSET_INDEX_DTYPE).copy()
    entries["position"][rng.randrange(len(entries))] = 2**31 - 1
    return entries.tobytes()


def _position_within_a_batch(data: bytes, rng: random.Random) -> bytes:
    entries = np.frombuffer(data, byte_layout.OFFSET_INDEX_DTYPE).copy()
    entries["position"][rng.randrange(len(entries))] += 1
    return entries.tobytes()


def _another_timestamp(data: bytes, rng: random.Random) -> bytes:
    entries = np.frombuffer(data, byte_layout.TIME_INDEX_DTYPE).copy()
    entries["timestamp_ms"][rng.randrange(len(entries))] += rng.choice([-1, 1])
    return entries.tobytes()


def _another_first_offset(data: bytes, rng: random.Random) -> bytes:
    entries = np.frombuffer(data, byte_layout.ABORTED_TXN_DTYPE).copy()
    entries["first_offset"][rng.randrange(len(entries))] += 1
    return entries.tobytes()


def _a_rest(data: bytes, rng: random.Random) -> bytes:
    return data[:-1] if rng.random() < 0.5 else data + b"\x01\x02\x03"


def _nothing(_data: bytes, _rng: random.Random) -> bytes:
    return b""


def _garbage(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(len(data))


def _a_flipped_bit(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _another_producer_epoch(data: bytes, rng: random.Random) -> bytes:
    entries = read_producer_snapshot(data).copy()
    entries["epoch"][rng.randrange(len(entries))] += 1
    return encode_producer_snapshot(entries)


def _later_epoch_start(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    """In a segment in which that epoch begins: of those before it, its own batches say nothing."""
    if archive.is_aiven:
        return None
    for _ in range(_TRIES):
        copy = _inner(archive, rng, part=EPOCHS)
        path = archive.place(copy, EPOCHS)
        entries = read_leader_epoch_checkpoint(path.read_bytes())
        if not entries:
            continue
        *before, last = entries
        if copy.remote.start_offset < last.start_offset <= copy.remote.end_offset:
            later = LeaderEpochEntry(last.epoch, last.start_offset + 1)
            path.write_bytes(encode_leader_epoch_checkpoint([*before, later]))
            return _must(archive, [path], "epoch-content")
    return None


def _other_epochs(
    change: Callable[[list[LeaderEpochEntry], WrittenArchive, SegmentCopy, random.Random], object],
) -> ArchiveDamage:
    """The leader epochs of a segment of tiered storage are others, as *change* makes them."""

    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if not archive.is_tiered:
            return None  # a folder has one checkpoint, which `_later_epoch_start` damages
        for _ in range(_TRIES):
            copy = _inner(archive, rng, part=EPOCHS)
            entries = list(read_leader_epoch_checkpoint(copy.files[EPOCHS]))
            change(entries, archive, copy, rng)
            content = encode_leader_epoch_checkpoint(entries)
            if entries and content != copy.files[EPOCHS]:
                places = [archive.rewrite(copy, EPOCHS, content)]
                if archive.is_aiven:
                    places = _index_places(archive, copy)
                return _must(archive, places, "epoch-content", "missing-epochs")
        return None

    return damage


def _without_the_last(entries: list[LeaderEpochEntry], *_: object) -> None:
    del entries[-1:]


def _without_the_first(entries: list[LeaderEpochEntry], *_: object) -> None:
    del entries[:1]


def _one_more(
    entries: list[LeaderEpochEntry], _archive: WrittenArchive, copy: SegmentCopy, rng: random.Random
) -> None:
    start_offset = copy.remote.end_offset + 1 + rng.choice((0, 0, 5))
    entries.append(LeaderEpochEntry(entries[-1].epoch + 1, start_offset))


def _one_between(
    entries: list[LeaderEpochEntry], _archive: WrittenArchive, copy: SegmentCopy, rng: random.Random
) -> None:
    """An epoch that nobody has led, before the segment."""
    for place in range(len(entries) - 1):
        before, after = entries[place : place + 2]
        most = min(after.start_offset, copy.remote.start_offset) - 1
        if after.epoch - before.epoch > 1 and before.start_offset < most:
            start_offset = rng.randrange(before.start_offset + 1, most + 1)
            entries.insert(place + 1, LeaderEpochEntry(before.epoch + 1, start_offset))
            return


def _of_another_segment(
    entries: list[LeaderEpochEntry], archive: WrittenArchive, copy: SegmentCopy, rng: random.Random
) -> None:
    others = [other for other in archive.copies if other.owner == copy.owner]
    entries[:] = read_leader_epoch_checkpoint(rng.choice(others).files[EPOCHS])


def _of_another_partition(
    entries: list[LeaderEpochEntry], archive: WrittenArchive, copy: SegmentCopy, rng: random.Random
) -> None:
    others = [other for other in archive.copies if other.owner != copy.owner]
    entries[:] = read_leader_epoch_checkpoint(rng.choice(others).files[EPOCHS])


# -- segments ---------------------------------------------------------------------------------------------------


def _missing_segment(archive: WrittenArchive, rng: random.Random) -> MustFind:
    copy = _inner(archive, rng)
    gone = [archive.place(copy, part) for part in archive.parts(copy)]
    for path in gone:
        if path.name != "leader-epoch-checkpoint":
            path.unlink()
    following = archive.copies[archive.copies.index(copy) + 1]
    return _must(
        archive, [*gone, archive.place(following, LOG)], "offset-gap", "missing-object", "no-segment"
    )


def _missing_last_segment(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    if not archive.is_tiered:
        return None
    owner = rng.choice(archive.copies).owner
    copy = [one for one in archive.copies if one.owner == owner][-1]
    gone = [archive.place(copy, part) for part in archive.parts(copy)]
    for path in gone:
        path.unlink()
    return _must(archive, gone, "missing-segment")


def _unknown_segment(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    if not archive.is_tiered:
        return None
    copy = _inner(archive, rng)
    archive.metadata = [one for one in archive.metadata if one.segment_id != copy.remote.segment_id]
    keys = [archive.place(copy, part) for part in archive.parts(copy)]
    return _must(archive, keys, "not-compared", severity="note")


def _foreign_object(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    if not archive.is_tiered:
        return None  # a broker's folder has files of many kinds
    path = archive.place(_inner(archive, rng), LOG).parent / "part-00000.parquet"
    path.write_bytes(b"PAR1")
    return _must(archive, [path], "foreign-file", severity="note")


def _wrong_start_offset(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    """All objects of a segment are called by another offset."""
    copy = _inner(archive, rng)
    moved = []
    for part in archive.parts(copy):
        path = archive.place(copy, part)
        start = f"{copy.remote.start_offset:020d}"
        if path.name.startswith(start):
            moved.append(
                path.rename(path.with_name(path.name.replace(start, f"{copy.remote.start_offset + 1:020d}")))
            )
    return _must(archive, moved, "offset-range", "metadata", "offset-gap", "index-entry", "manifest")


# -- what the metadata topic says -------------------------------------------------------------------------------


def _told(change: Callable[[RemoteSegment], RemoteSegment]) -> ArchiveDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if not archive.is_tiered:
            return None
        copy = _inner(archive, rng)
        place = next(
            place for place, one in enumerate(archive.metadata) if one.segment_id == copy.remote.segment_id
        )
        archive.metadata[place] = change(archive.metadata[place])
        return _must(archive, [archive.place(copy, LOG)], "metadata")

    return damage


def _one_epoch_at_the_end(one: RemoteSegment) -> RemoteSegment:
    last = LeaderEpochEntry(one.leader_epochs[-1].epoch + 1, one.end_offset)
    return replace(one, leader_epochs=(*one.leader_epochs, last))


# -- the Aiven plugin's objects ---------------------------------------------------------------------------------


def _flipped_indexes(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    if not archive.is_aiven:
        return None
    copy = _inner(archive, rng, part=SNAPSHOT)
    path = archive.place(copy, INDEXES)
    if "encrypted" not in archive.layout:
        # Where no tag protects them, some bits of an index are as right as others: one of the snapshot is not.
        data = path.read_bytes()
        at = data.index(copy.files[SNAPSHOT]) + rng.randrange(2, len(copy.files[SNAPSHOT]))
        _flip(path, at, rng)
        return _must(archive, _index_places(archive, copy), "snapshot", "snapshot-content")
    _flip(path, rng.randrange(path.stat().st_size), rng)
    return _must(archive, _index_places(archive, copy), "chunk", "unreadable")


def _cut_indexes(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
    if not archive.is_aiven:
        return None
    copy = _inner(archive, rng)
    path = archive.place(copy, INDEXES)
    path.write_bytes(path.read_bytes()[:-1])
    return _must(archive, _index_places(archive, copy), "object-size", "index-size", "chunk")


def _index_places(archive: WrittenArchive, copy: SegmentCopy) -> list[Path]:
    """The object of all indexes, and the files in it by names of their own."""
    stem = archive.place(copy, INDEXES).with_suffix("")
    own = (INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, "leader-epoch-checkpoint")
    return [archive.place(copy, INDEXES), *(stem.with_name(f"{stem.name}.{part}") for part in own)]


def _manifest(
    change: Callable[[bytes, random.Random], bytes],
    *rules: str,
    severity: str = "damage",
    part: str = LOG,
) -> ArchiveDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if not archive.is_aiven:
            return None
        copy = _inner(archive, rng, part=part)
        path = archive.place(copy, MANIFEST)
        path.write_bytes(change(path.read_bytes(), rng))
        places = [path, archive.place(copy, LOG), *_index_places(archive, copy)]
        return _must(archive, places, *rules, severity=severity)

    return damage


_MEMBERS = ("version", "chunkIndex", "segmentIndexes", "compression")
_OWNER = ("remoteLogSegmentId", "topicIdPartition")


def _half_of_it(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data) - 1)]


def _without_a_member(data: bytes, rng: random.Random) -> bytes:
    members = json.loads(data)
    del members[rng.choice(_MEMBERS)]
    return json.dumps(members).encode()


def _of_nobody(data: bytes, _rng: random.Random) -> bytes:
    members = json.loads(data)
    del members["remoteLogSegmentMetadata"]
    return json.dumps(members).encode()


def _without_aborts(data: bytes, _rng: random.Random) -> bytes:
    members = json.loads(data)
    members["remoteLogSegmentMetadata"]["txnIdxEmpty"] = True
    return json.dumps(members).encode()


def _of_another(*path: str) -> Callable[[bytes, random.Random], bytes]:
    """The manifest says something else where *path* leads."""

    def change(data: bytes, rng: random.Random) -> bytes:
        members = json.loads(data)
        parent = members["remoteLogSegmentMetadata"]
        for name in path[:-1]:
            parent = parent[name]
        value = parent[path[-1]]
        if path[-1] in ("id", "topicId"):
            parent[path[-1]] = format_uuid(UUID(int=rng.getrandbits(128)))
        else:
            parent[path[-1]] = f"{value}x" if isinstance(value, str) else value + 1
        return json.dumps(members).encode()

    return change


def _of_iceberg(_data: bytes, rng: random.Random) -> bytes:
    return b"PFA1" + rng.randbytes(100) + b"PFA1"


def _hostile_sizes(data: bytes, _rng: random.Random) -> bytes:
    members = json.loads(data)
    members["chunkIndex"]["originalFileSize"] = 2**31 - 1
    return json.dumps(members).encode()


def _missing_object(part: str) -> ArchiveDamage:
    def damage(archive: WrittenArchive, rng: random.Random) -> MustFind | None:
        if not archive.is_aiven:
            return None
        path = archive.place(_inner(archive, rng), part)
        path.unlink()
        return _must(archive, [path], "missing-object")

    return damage


_LOG_RULES = (
    "checksum", "batch-length", "torn-batch", "magic", "codec", "record-count", "producer-fields",
    "offset-range", "offset-order", "offset-gap", "control-record", "transaction-state", "leader-epoch",
)  # fmt: skip
_INDEX_RULES = ("malformed-entry", "index-entry", "index-order", "index-size")
_TXN_RULES = ("malformed-entry", "transaction-index-entry", "transaction-index-missing", "index-size")

ARCHIVE_DAMAGES: dict[str, ArchiveDamage] = {
    "flipped bit in a log": _flipped_records,
    "log cut within a batch": _cut_within_a_batch,
    "log cut between batches": _cut_between_batches,
    "emptied log": _emptied_log,
    "zeros at the end of a log": _zeros_at_the_end,
    "swapped logs": _swapped_logs,
    "missing log": _missing_log,
    "missing offset index": _missing(INDEX),
    "missing time index": _missing(TIME_INDEX),
    "missing transaction index": _missing(TXN_INDEX),
    "missing snapshot": _missing(SNAPSHOT),
    "missing leader epochs": _missing(EPOCHS),
    "offset index: position beyond the log": _changed(INDEX, _position_beyond_the_log, *_INDEX_RULES),
    "offset index: position within a batch": _changed(INDEX, _position_within_a_batch, *_INDEX_RULES),
    "offset index: no whole entries": _changed(INDEX, _a_rest, *_INDEX_RULES),
    "offset index: garbage": _changed(INDEX, _garbage, *_INDEX_RULES),
    "time index: another timestamp": _changed(TIME_INDEX, _another_timestamp, *_INDEX_RULES),
    "time index: no whole entries": _changed(TIME_INDEX, _a_rest, *_INDEX_RULES),
    "time index: no entry": _time_index_cut(0),
    "time index: cut between entries": _time_index_cut(1),
    "time index: garbage": _changed(TIME_INDEX, _garbage, *_INDEX_RULES),
    "transaction index: another first offset": _changed(TXN_INDEX, _another_first_offset, *_TXN_RULES),
    "transaction index: no whole entries": _changed(TXN_INDEX, _a_rest, *_TXN_RULES),
    "transaction index: empty": _changed(TXN_INDEX, _nothing, *_TXN_RULES),
    "transaction index: garbage": _changed(TXN_INDEX, _garbage, *_TXN_RULES),
    "snapshot: flipped bit": _changed(SNAPSHOT, _a_flipped_bit, "snapshot"),
    "snapshot: empty": _changed(SNAPSHOT, _nothing, "snapshot"),
    "snapshot: another producer epoch": _changed(SNAPSHOT, _another_producer_epoch, "snapshot-content"),
    "leader epochs: garbage": _changed(EPOCHS, _garbage, "epoch-checkpoint"),
    "leader epochs: empty": _changed(EPOCHS, _nothing, "epoch-checkpoint", "epoch-content", "missing-epochs"),
    "leader epochs: a later start": _later_epoch_start,
    "leader epochs: without the last": _other_epochs(_without_the_last),
    "leader epochs: without the first": _other_epochs(_without_the_first),
    "leader epochs: one more": _other_epochs(_one_more),
    "leader epochs: one between": _other_epochs(_one_between),
    "leader epochs: of another segment": _other_epochs(_of_another_segment),
    "leader epochs: of another partition": _other_epochs(_of_another_partition),
    "missing segment": _missing_segment,
    "missing last segment": _missing_last_segment,
    "segment unknown to the metadata": _unknown_segment,
    "foreign object": _foreign_object,
    "wrong start offset in the names": _wrong_start_offset,
    "metadata: another size": _told(lambda one: replace(one, size_bytes=one.size_bytes + 1)),
    "metadata: an earlier end": _told(lambda one: replace(one, end_offset=one.end_offset - 1)),
    "metadata: another timestamp": _told(
        lambda one: replace(one, max_timestamp_ms=one.max_timestamp_ms + 1)
    ),
    "metadata: other epochs": _told(
        lambda one: replace(one, leader_epochs=(LeaderEpochEntry(99, one.start_offset),))
    ),
    "metadata: an epoch that begins within a batch": _told(_one_epoch_at_the_end),
    "flipped bit in the indexes": _flipped_indexes,
    "indexes cut": _cut_indexes,
    "missing indexes": _missing_object(INDEXES),
    "missing manifest": _missing_object(MANIFEST),
    "manifest: garbage": _manifest(_garbage, "manifest"),
    "manifest: cut": _manifest(_half_of_it, "manifest"),
    "manifest: empty": _manifest(_nothing, "manifest"),
    "manifest: a member is missing": _manifest(_without_a_member, "manifest"),
    "manifest: another topic": _manifest(_of_another(*_OWNER, "topicPartition", "topic"), "manifest"),
    "manifest: another partition": _manifest(_of_another(*_OWNER, "topicPartition", "partition"), "manifest"),
    "manifest: another topic id": _manifest(_of_another(*_OWNER, "topicId"), "manifest"),
    "manifest: another segment id": _manifest(_of_another("remoteLogSegmentId", "id"), "manifest"),
    "manifest: another start": _manifest(_of_another("startOffset"), "manifest"),
    "manifest: no aborted transactions": _manifest(_without_aborts, "manifest", part=TXN_INDEX),
    "manifest: of nobody": _manifest(_of_nobody, "manifest", severity="unchecked"),
    "manifest: of Iceberg": _manifest(_of_iceberg, "manifest"),
    "manifest: hostile sizes": _manifest(_hostile_sizes, "manifest", "object-size", "chunk", "metadata"),
}  # fmt: skip
"""All damages by name."""

AIVEN_DAMAGES = frozenset({
    "flipped bit in the indexes", "indexes cut", "missing indexes", "missing manifest",
    *(name for name in ARCHIVE_DAMAGES if name.startswith("manifest: ")),
})  # fmt: skip
"""What there is in the layouts of the Aiven plugin alone."""
