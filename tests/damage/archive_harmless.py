"""Why nothing has to be found of a changed file of an archive: documented reasons, each decided by the bytes.

A reason is a rule of archive.md or verify.md (docs/reference): what a broker may leave, what is a note, or what no
other file repeats. None of them goes by the name of the change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from native.crc32c import crc32c_of_bytes
from recovery.archive.remote.log_batches import read_batches
from recovery.archive.stores.local_store import LocalStore
from recovery.check.finding import Finding
from segfmt import byte_layout
from segfmt.byte_layout import RECORD_BATCH_HEADER_DTYPE
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint, read_offset_checkpoint
from segfmt.errors import FormatError
from segfmt.producer_snapshot import as_loaded, read_producer_snapshot
from tests.logs.archives import (
    EPOCHS,
    INDEX,
    LOG,
    MANIFEST,
    SNAPSHOT,
    TIME_INDEX,
    SegmentCopy,
    WrittenArchive,
    batch_positions,
)

METADATA = "metadata"
INTERVAL_BYTES = 1024
"""`index.interval.bytes` of the topics."""
_DAY_MS = 86_400_000


@dataclass(slots=True, kw_only=True)
class Case:
    """A file of an archive that was changed.

    Attributes:
        layout: one of LAYOUTS, or plain copies with the checkpoints of their log dir.
        partition: its segments as they were.
        copy: the one whose file it is.
        change: the name of what happened to it.
        has_metadata: whether the metadata topic is there.
        knows_interval: whether `index.interval.bytes` is known.
        before, after: its bytes; None: it is not there any more.
        found: what was found, by key.
        now_ms: of the verify.
    """

    seed: int
    layout: str
    archive: WrittenArchive
    partition: list[SegmentCopy]
    copy: SegmentCopy
    part: str
    change: str
    has_metadata: bool
    knows_interval: bool
    before: bytes = b""
    after: bytes | None = None
    found: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    now_ms: int = 0

    @property
    def log_dir(self) -> Path:
        """Where the metadata topic lies if it was changed."""
        return self.archive.root.with_name("damaged metadata")

    @property
    def notes(self) -> set[str]:
        """The rules of all notes."""
        return {found.rule for findings in self.found.values() for found in findings}

    def __str__(self) -> str:
        number = self.partition.index(self.copy)
        owner = f"{self.copy.owner.topic}-{self.copy.owner.partition}"
        return (
            f"{self.seed}: {self.layout}, {self.part}, {self.change}, segment {number} of {len(self.partition)} "
            f"in {owner}, metadata {self.has_metadata}, {len(self.before)} bytes became "
            f"{None if self.after is None else len(self.after)}"
        )


def _headers(log: bytes) -> npt.NDArray[np.void]:
    starts = batch_positions(log)[:-1]
    return np.concatenate([np.frombuffer(log, RECORD_BATCH_HEADER_DTYPE, 1, start) for start in starts])


# -- logs -------------------------------------------------------------------------------------------------------

_FREE_ATTRIBUTES = 0b1001111  # codec, timestamp type, delete horizon


def _is_said_by_the_batch_alone(case: Case) -> bool:
    """Batches with right checksums differ in base timestamp, codec, timestamp type, a timestamp below another, or
    the sequence and epoch of a marker or of no producer."""
    if case.part != LOG or case.after is None or len(case.after) != len(case.before):
        return False
    before, after = _headers(case.before), _headers(case.after)
    if not _has_right_checksums(case.after):
        return False
    names = [name for name in before.dtype.names or () if (before[name] != after[name]).any()]
    is_free = not ((before["attributes"] ^ after["attributes"]) & ~np.int16(_FREE_ATTRIBUTES)).any()
    is_unread = (before["attributes"] & byte_layout.CONTROL_MASK != 0) | (before["producer_id"] < 0)
    for name in ("base_sequence", "producer_epoch"):
        is_free &= bool((is_unread | (before[name] == after[name])).all())
    tops = [np.maximum.accumulate(rows["max_timestamp_ms"]) for rows in (before, after)]
    return (
        set(names)
        <= {"crc", "attributes", "base_timestamp_ms", "max_timestamp_ms", "base_sequence", "producer_epoch"}
        and is_free
        and _says_the_same_times(case, *tops)
    )


def _says_the_same_times(case: Case, before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> bool:
    """Whether the greatest timestamp is the same, and at each entry of the time index."""
    index = np.frombuffer(case.copy.files[TIME_INDEX], byte_layout.TIME_INDEX_DTYPE)
    rows = _headers(case.before)
    lasts = rows["base_offset"] + rows["last_offset_delta"]
    at = np.searchsorted(lasts, index["relative_offset"] + case.copy.remote.start_offset)
    at = np.append(np.minimum(at, len(rows) - 1), len(rows) - 1)
    return bool((before[at] == after[at]).all())


def _has_right_checksums(log: bytes) -> bool:
    first = byte_layout.BATCH_CRC_POSITION + 4
    positions = batch_positions(log)
    rows = _headers(log)
    return all(
        crc32c_of_bytes(log[start + first : end]) == rows["crc"][number]
        for number, (start, end) in enumerate(pairwise(positions))
    )


def _is_noted_of_producers(case: Case) -> bool:
    """A sequence or an epoch that does not follow, in a log whose checksums are right, is a note."""
    return (
        case.part == LOG
        and bool({"sequence-gap", "producer-epoch"} & case.notes)
        and case.after is not None
        and _has_right_checksums(case.after)
    )


def _looks_compacted(case: Case) -> bool:
    """A batch has fewer records than offsets, as a cleaner leaves it: what is missing is not judged."""
    if case.part != LOG or case.after is None or not _has_right_checksums(case.after):
        return False
    rows = _headers(case.after)
    return bool((rows["record_count"] <= rows["last_offset_delta"]).any())


def _is_of_producers_that_expired(case: Case) -> bool:
    """A batch is of another producer, whom a snapshot may lack: he has expired, or has written markers alone."""
    if case.part != LOG or case.after is None or len(case.after) != len(case.before):
        return False
    before, after = _headers(case.before), _headers(case.after)
    names = {name for name in before.dtype.names or () if (before[name] != after[name]).any()}
    is_other = before["producer_id"] != after["producer_id"]
    is_old = case.now_ms - after["max_timestamp_ms"][is_other] > _DAY_MS
    is_marker = after["attributes"][is_other] & byte_layout.CONTROL_MASK != 0
    return (
        names == {"crc", "producer_id"}
        and bool((is_old | is_marker).all())
        and _has_right_checksums(case.after)
    )


# -- indexes ----------------------------------------------------------------------------------------------------


def _has_fewer_entries(case: Case) -> bool:
    """All entries that an offset index still has are right; how many it should have is not known.

    An entry is right if an append can begin at its position and end at its offset. Zeros after the last entry are
    preallocated in the last segment of a folder.
    """
    if case.part != INDEX or case.after is None:
        return False
    data = case.after
    if _is_active(case):
        data = data[: -(-len(data.rstrip(b"\0")) // 8) * 8]
    if len(data) % 8:
        return False
    entries = np.frombuffer(data, byte_layout.OFFSET_INDEX_DTYPE)
    rows = _headers(case.copy.files[LOG])
    lasts = (rows["base_offset"] + rows["last_offset_delta"] - case.copy.remote.start_offset).tolist()
    starts = batch_positions(case.copy.files[LOG])[1:-1]
    nexts = [*entries["position"][1:], len(case.copy.files[LOG])][: len(entries)]
    for (offset, position), following in zip(entries.tolist(), nexts, strict=True):
        if position not in starts or offset not in lasts:
            return False
        if not position <= ([0, *starts])[lasts.index(offset)] < following:
            return False
    return not (case.knows_interval and _is_cut_by_an_interval(case))


def _is_active(case: Case) -> bool:
    """Whether it is the last segment of a folder."""
    return not case.archive.is_tiered and case.copy is case.partition[-1]


def _is_cut_by_an_interval(case: Case) -> bool:
    """The index ends earlier than the interval and the log's largest batch allow, or twice its own longest step."""
    positions = np.frombuffer(case.after or b"", byte_layout.OFFSET_INDEX_DTYPE)["position"]
    batches = np.array(batch_positions(case.copy.files[LOG]))
    longest = int(np.diff(positions, prepend=0).max(initial=0))
    left = int(batches[-2]) - (int(positions[-1]) if len(positions) else 0)
    return case.archive.is_tiered and left > max(INTERVAL_BYTES + int(np.diff(batches).max()), 2 * longest)


def _points_not_too_late(case: Case) -> bool:
    """No batch up to an entry's offset has a greater timestamp, and a closed segment's last entry is the greatest."""
    dtype = byte_layout.TIME_INDEX_DTYPE
    if case.part != TIME_INDEX or case.after is None or len(case.after) % dtype.itemsize:
        return False
    entries = np.frombuffer(case.after, dtype)
    is_last = _is_active(case)
    if is_last:
        entries = entries[: len(case.after.rstrip(b"\0")) // dtype.itemsize + 1]  # preallocated
        entries = entries[entries["timestamp_ms"] > 0]
    if not len(entries):
        return not case.archive.is_tiered  # a broker that does not find a time index makes an empty one
    rows = _headers(case.copy.files[LOG])
    lasts = rows["base_offset"] + rows["last_offset_delta"]
    tops = np.maximum.accumulate(rows["max_timestamp_ms"])
    at = np.searchsorted(lasts, entries["relative_offset"] + case.copy.remote.start_offset)
    is_within = bool((at < len(rows)).all())
    return (
        is_within
        and bool((tops[at] == entries["timestamp_ms"]).all())
        and (is_last or entries["timestamp_ms"][-1] == tops[-1])
    )


# -- snapshots --------------------------------------------------------------------------------------------------


def _producers(data: bytes) -> dict[int, bytes] | None:
    try:
        entries = as_loaded(read_producer_snapshot(data, crc32c=crc32c_of_bytes))
    except FormatError:
        return None
    return {int(entry["producer_id"]): entry.tobytes() for entry in entries}  # the last one counts


def _loads_alike(case: Case) -> bool:
    """A broker that loads the snapshot knows the same producers."""
    return (
        case.part == SNAPSHOT
        and bool(case.after)
        and _producers(case.after or b"") == _producers(case.before)
    )


def _lacks_or_has_old_producers(case: Case) -> bool:
    """Only producers differ that had expired before the verify, or that have written nothing in the segment."""
    if case.part != SNAPSHOT or case.after is None:
        return False
    before, after = _producers(case.before), _producers(case.after)
    if before is None or after is None:
        return False
    differing = [
        entry
        for one, other in ((before, after), (after, before))
        for key, entry in one.items()
        if key not in other
    ]
    rows = np.frombuffer(b"".join(differing), byte_layout.PRODUCER_ENTRY_DTYPE)
    changed = [
        entry
        for key in before.keys() & after.keys()
        if before[key] != after[key]
        for entry in (before[key], after[key])
    ]
    pairs = np.frombuffer(b"".join(changed), byte_layout.PRODUCER_ENTRY_DTYPE)
    has_expired = (case.now_ms - rows["timestamp_ms"] > _DAY_MS) & (rows["current_txn_first_offset"] < 0)
    start = case.copy.remote.start_offset
    is_earlier = (pairs["last_offset"] < start) | _begin_earlier(pairs, start)
    return bool((has_expired | (rows["last_offset"] < start)).all() and is_earlier.all())


def _begin_earlier(pairs: npt.NDArray[np.void], start: int) -> npt.NDArray[np.bool_]:
    """Where two entries of a producer differ in a transaction alone that began before the segment."""
    earlier = np.zeros(len(pairs), np.bool_)
    for at in range(0, len(pairs), 2):
        one, other = pairs[at : at + 2]
        names = {name for name in pairs.dtype.names or () if one[name] != other[name]}
        first = pairs["current_txn_first_offset"][at : at + 2]
        earlier[at : at + 2] = names == {"current_txn_first_offset"} and bool(
            ((first >= 0) & (first < start)).all()
        )
    return earlier


def _has_another_coordinator_epoch(case: Case) -> bool:
    """Of a producer without a marker since the snapshot before: another broker's snapshot may know of one."""
    if case.part != SNAPSHOT or case.after is None:
        return False
    before, after = _producers(case.before), _producers(case.after)
    if before is None or after is None or before.keys() != after.keys():
        return False
    dtype = byte_layout.PRODUCER_ENTRY_DTYPE
    for key in before:
        one, other = (np.frombuffer(rows[key], dtype)[0] for rows in (before, after))
        names = {name for name in dtype.names or () if one[name] != other[name]}
        if names - {"coordinator_epoch"} or (
            names and min(one["coordinator_epoch"], other["coordinator_epoch"]) >= 0
        ):
            return False
    return True


def _is_a_snapshot_that_no_broker_keeps(case: Case) -> bool:
    return case.part == SNAPSHOT and case.after is None and not case.archive.is_tiered


def _says_the_same_epochs(case: Case) -> bool:
    """Each offset of the log that the leader epochs know has its epoch; before the first line they know nothing."""
    if case.part != EPOCHS or case.after is None:
        return False
    try:
        before, after = (read_leader_epoch_checkpoint(data) for data in (case.before, case.after))
    except FormatError:
        return False
    end = (case.copy if case.archive.is_tiered else case.partition[-1]).remote.end_offset + 1
    starts = sorted({entry.start_offset for entry in (*before, *after)})
    known = [start for start in starts if after and after[0].start_offset <= start < end]
    has_order = all(one < other for pair in pairwise(after) for one, other in zip(*pair, strict=True))
    return bool(known) and has_order and all(_epoch_at(before, at) == _epoch_at(after, at) for at in known)


def _epoch_at(entries: Sequence[LeaderEpochEntry], offset: int) -> int:
    return [entry.epoch for entry in entries if entry.start_offset <= offset][-1]


# -- what is beside the segments --------------------------------------------------------------------------------


def _says_what_is_possible(case: Case) -> bool:
    """A checkpoint need not have been copied; its lines are within the logs, or a note."""
    if not case.part.endswith("-offset-checkpoint"):
        return False
    if case.after is None:
        return True
    try:
        offsets = read_offset_checkpoint(case.after)
    except FormatError:
        return False
    ends: dict[tuple[str, int], int] = {}
    for copy in case.archive.copies:
        ends[copy.owner.topic, copy.owner.partition] = copy.remote.end_offset + 1
    return "high-watermark" in case.notes or all(
        0 <= offset <= ends[key] for key, offset in offsets.items() if key in ends
    )


def _is_an_upload_without_its_manifest(case: Case) -> bool:
    return case.part == MANIFEST and case.after is None and "interrupted-copy" in case.notes


def _says_the_same_of_the_segment(case: Case) -> bool:
    """A manifest differs in time or broker of its record alone, in null members, or in a later end: a note."""
    if case.part != MANIFEST or not case.after:
        return False
    try:
        before, after = (_members(json.loads(data)) for data in (case.before, case.after))
    except ValueError:
        return False
    ends = {path for path in before if path[-1] == "endOffset"}
    if "metadata" in case.notes and all(int(before[path]) < int(after.get(path, "-1")) for path in ends):
        before = {path: one for path, one in before.items() if path not in ends}
    # The plugin passes over members that it does not know.
    return all(_is_the_same(path, one, after.get(path), case) for path, one in before.items())


def _is_the_same(path: tuple[str, ...], one: str, other: str | None, case: Case) -> bool:
    start = case.copy.remote.start_offset
    if path[-2:-1] == ("segmentLeaderEpochs",) and other is not None:
        return max(int(one), start) == max(int(other), start)  # it began before the segment
    if path[-1:] == ("txnIdxEmpty",):
        return one == other or other in (
            None,
            "False",
        )  # so manifests for brokers before 4.0, which do not say it
    return one == other


def _members(value: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    if isinstance(value, dict):
        return {
            key: leaf for name, one in value.items() for key, leaf in _members(one, (*path, name)).items()
        }
    return {} if value is None or path[-1:] in (("eventTimestampMs",), ("brokerId",)) else {path: str(value)}


def _has_an_earlier_topic(case: Case) -> bool:
    """The metadata topic ends earlier, or with a torn batch: what it says is right, and none is called an orphan."""
    if case.part != METADATA or "orphan" in case.notes:
        return False
    before = _records(case, case.before)
    after = _records(case, case.after or b"")
    return before[: len(after)] == after


def _records(case: Case, log: bytes) -> list[bytes | None]:
    """The values of the records in *log*, each once, up to the first damage."""
    path = case.log_dir / "records"
    path.write_bytes(log)
    opened = LocalStore(str(case.log_dir)).open("records")
    values: dict[int, bytes | None] = {}
    try:
        for batch in read_batches(opened, lambda _: None, name="records"):
            for offset, value in batch.values(most_bytes=1 << 20):
                values.setdefault(offset, value)
    except FormatError:
        pass
    finally:
        opened.close()
        path.unlink()
    return list(values.values())


REASONS: dict[str, Callable[[Case], bool]] = {
    "a batch with a right checksum says what no other file repeats": _is_said_by_the_batch_alone,
    "a producer's sequences or epochs do not follow: a note": _is_noted_of_producers,
    "the log looks compacted": _looks_compacted,
    "of a producer that had expired, or has written markers alone": _is_of_producers_that_expired,
    "an offset index with fewer entries, which are right": _has_fewer_entries,
    "a time index with fewer entries, which are right": _points_not_too_late,
    "a snapshot that is loaded as the same producers": _loads_alike,
    "a snapshot that differs in producers that had expired, or have not written": _lacks_or_has_old_producers,
    "a coordinator epoch of which the log says nothing": _has_another_coordinator_epoch,
    "a snapshot of a folder, of which a broker keeps some": _is_a_snapshot_that_no_broker_keeps,
    "leader epochs that are the same from their first line on": _says_the_same_epochs,
    "a checkpoint that is possible, or was not copied": _says_what_is_possible,
    "an upload without its manifest: a note": _is_an_upload_without_its_manifest,
    "a manifest that says the same of its segment": _says_the_same_of_the_segment,
    "a metadata topic that says the same, or ends earlier": _has_an_earlier_topic,
}  # fmt: skip


def reason_of(case: Case) -> str | None:
    """Return why nothing has to be found in *case*, None if something has to be."""
    return next((words for words, holds in REASONS.items() if holds(case)), None)
