"""What has left the live log, counted without the recovery's help: batch by batch, in two trees of bytes.

A batch is lost where it stood in a `.log`, `.log.swap` or `.log.cleaned` before and the same bytes stand in no `.log`
after, unless it was deleted before (below the log start), or the file that replaced its own holds its offsets, or a
cleaner had the right to remove it: each of its records has a later live one of its key, or is a tombstone, a marker or
aborted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from recovery.engine.report import PartitionReport
from segfmt.errors import FormatError
from segfmt.message_set import read_messages
from segfmt.record import read_records
from tests.logs.samples import HugeFile

_OF_KAFKA = re.compile(r"\d{20}\.log(\.swap|\.cleaned)?")
"""A segment by another name, `+7.log`, is none that a broker has ever served; what becomes of it is not looked at."""
Tree = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as its header tells of it; *data* is all of it."""

    position: int
    first_offset: int
    last_offset: int
    data: bytes

    @property
    def magic(self) -> int:
        return int.from_bytes(self.data[16:17], "big", signed=True)

    @property
    def identity(self) -> tuple[int, int, bytes]:
        """Its offsets and the checksum that it states: of a damaged batch there may be a sound copy."""
        return self.first_offset, self.last_offset, self.data[17:21] if self.magic >= 2 else self.data[12:16]

    @property
    def attributes(self) -> int:
        return self.data[22] if self.magic >= 2 else self.data[17]


def walk(data: bytes) -> Iterator[Batch]:
    """The batches from the start of a log on, up to the first that cannot be followed."""
    position = 0
    while len(data) - position > 17:
        offset, length = struct.unpack_from(">qi", data, position)
        size = 12 + length
        magic = int.from_bytes(data[position + 16 : position + 17], "big", signed=True)
        if length < 14 or size > len(data) - position or (magic >= 2 and len(data) - position < 61):
            return
        delta = struct.unpack_from(">i", data, position + 23)[0] if magic >= 2 else 0
        batch = data[position : position + size]
        last_offset = (offset + delta + 2**63) % 2**64 - 2**63  # as Java's longs
        yield Batch(position=position, first_offset=offset, last_offset=last_offset, data=batch)
        position += size


def lost_batches_of(
    before: Tree, after: Tree, *, log_start_offset: int, drops_all: bool, is_compacted: bool | None
) -> dict[str, list[Batch]]:
    """What is lost, by file of *before*.

    Args:
        before, after: one folder's files by name.
        drops_all: whether the log was dropped for ending before its start.
    """
    live = list(_served(after))
    same = {batch.identity for batch in live}
    offsets = {(batch.first_offset, batch.last_offset) for batch in live}
    is_split = _is_split(before, after)
    is_replaced = any(name.endswith(".log.swap") for name in before) or is_split
    lost: dict[str, list[Batch]] = {}
    for name, data in before.items():
        if not _OF_KAFKA.fullmatch(name) or after.get(name) == data:
            continue
        least = int(name.partition(".")[0])
        for batch in walk(data):
            ascends = least <= batch.first_offset <= batch.last_offset
            least = batch.last_offset + 1
            is_below = ascends and not drops_all and batch.last_offset < log_start_offset
            is_kept = batch.identity in same or is_below or _stays(batch, name, after)
            is_kept |= is_split and _is_anywhere(batch, after)
            has_successor = name.endswith(".cleaned") or (is_replaced and not _is_cut(name, before, after))
            if not is_kept and not (has_successor and (batch.first_offset, batch.last_offset) in offsets):
                lost.setdefault(name, []).append(batch)
    _drop_told(lost, before, after)
    if is_compacted is not False:
        _drop_superseded(lost, before, after, live, is_certain=is_compacted is True)
    return {name: batches for name, batches in lost.items() if batches}


def _served(tree: Tree) -> Iterator[Batch]:
    """The batches that a broker finds: in files of the name that it gives, and below the base of the next of any."""
    bases = sorted({int(name[:-4]) for name in tree if re.fullmatch(r"\+?\d+\.log", name)})
    for base, end in zip(bases, [*bases[1:], 2**63], strict=False):
        data = tree.get(f"{base:020d}.log", b"")
        yield from (batch for batch in walk(data) if batch.first_offset < end)


def _stays(batch: Batch, name: str, after: Tree) -> bool:
    """Whether the batch is where it was, if in a file that a broker does not open, or where it does not look."""
    data = after.get(f"{name.partition('.')[0]}.log", b"")
    return data[batch.position : batch.position + len(batch.data)] == batch.data


def _is_anywhere(batch: Batch, after: Tree) -> bool:
    """Whether the batch is in a live file. Behind the base of the next one nobody finds it: that is a hole, no cut."""
    return any(re.fullmatch(r"\d{20}\.log", name) and batch.data in data for name, data in after.items())


def _drop_told(lost: dict[str, list[Batch]], before: Tree, after: Tree) -> None:
    """Count once what was first taken over by another file and then cut with that."""
    cut = [name for name in lost if _is_cut(name, before, after)]
    told = {
        (batch.first_offset, batch.last_offset)
        for name in cut
        for batch in lost[name]
        if int(name.partition(".")[0]) <= batch.last_offset  # else it has not taken that over
    }
    copied = {batch.data for name in cut for batch in lost[name]}  # a cleaner had begun to copy it
    for name in lost.keys() - set(cut):
        lost[name] = [
            batch
            for batch in lost[name]
            if (batch.first_offset, batch.last_offset) not in told
            and not (name.endswith(".cleaned") and batch.data in copied)
        ]


def _is_split(before: Tree, after: Tree) -> bool:
    """Whether new segments have come, or one was written over, and by no `.swap`."""
    return any(
        name not in before or name.endswith(".log")
        for name, data in after.items()
        if name.endswith((".log", ".log.deleted"))
        and data
        and before.get(f"{name.removesuffix('.deleted')}.swap", b"")[: len(data)] != data
        and before.get(name.removesuffix(".deleted"), b"")[: len(data)] != data
    )


def _is_cut(name: str, before: Tree, after: Tree) -> bool:
    """Whether the file was cut or deleted, and not replaced: only its very bytes will do then."""
    number = int(name.partition(".")[0])
    is_dropped = any(one.endswith(".cleaned") and int(one.partition(".")[0]) <= number for one in before)
    if name.endswith(".cleaned") or (name.endswith(".swap") and is_dropped):
        return False
    stem = name.removesuffix(".swap")
    kept = [after[place] for place in (stem, f"{stem}.deleted") if place in after]
    is_swap = name == stem and f"{stem}.swap" in before and not is_dropped
    return not is_swap and any(before[name].startswith(data) for data in kept)


def _drop_superseded(
    lost: dict[str, list[Batch]], before: Tree, after: Tree, live: list[Batch], *, is_certain: bool
) -> None:
    aborted = [
        entry
        for tree in (before, after)
        for name, data in tree.items()
        if name.endswith(".txnindex")
        for entry in struct.iter_unpack(">hqqqq", data[: len(data) // 34 * 34])
    ]
    newest: dict[bytes | None, int] = {}
    for batch in live:
        for key, offset, _ in _records(batch, aborted) or ():
            newest[key] = max(offset, newest.get(key, -1))
    replaced = [name for name in lost if not _is_cut(name, before, after)]
    deleted = {
        batch.identity  # with a part of its file, behind a cut
        for name, data in after.items()
        if name.endswith(".log.deleted")
        for batch in walk(data)
    }
    last: dict[
        bytes | None, tuple[int, bool]
    ] = {}  # of what is gone: the last offset, and whether a tombstone is there
    records = {id(batch): _records(batch, aborted) for name in replaced for batch in lost[name]}
    for found in records.values():
        for key, offset, is_tombstone in found or ():
            last[key] = max((offset, is_tombstone), last.get(key, (-1, False)))

    def may_go(key: bytes | None) -> bool:
        if key is None:
            return is_certain
        offset, is_tombstone = last[key]
        return (is_tombstone and is_certain) or newest.get(key, -1) >= offset

    for name in replaced:
        lost[name] = [
            batch
            for batch in lost[name]
            if records[id(batch)] is None
            or batch.identity in deleted
            or not all(may_go(key) for key, _, _ in records[id(batch)] or ())
        ]


def _records(batch: Batch, aborted: Iterable[tuple[int, ...]]) -> list[tuple[bytes | None, int, bool]] | None:
    """Key, offset and whether it is a tombstone, of the records that count; None where they cannot be read."""
    try:
        if batch.magic < 2:
            return [(one.key, one.offset, one.value is None) for one in read_messages(batch.data)]
        if batch.attributes & 0x20:
            return []
        (producer_id,) = struct.unpack_from(">q", batch.data, 43)
        is_transactional = batch.attributes & 0x10
        return [
            (one.key, one.offset, one.value is None)
            for one in read_records(batch.data)
            if not is_transactional
            or not any(entry[1] == producer_id and entry[2] <= one.offset <= entry[3] for entry in aborted)
        ]
    except FormatError:
        return None


def account_errors(
    before: Tree, after: Tree, report: PartitionReport, *, log_start_offset: int, is_compacted: bool | None
) -> list[str]:
    """What the report of a partition says of losses that is not so, or does not say."""
    if any(isinstance(data, HugeFile) for tree in (before, after) for data in tree.values()):
        return []
    lost = lost_batches_of(
        before,
        after,
        log_start_offset=log_start_offset,
        drops_all="all segments are deleted" in " ".join(report.warnings),
        is_compacted=is_compacted,
    )
    errors = []
    for name in sorted({*lost, *(cut.file for cut in report.cuts if _OF_KAFKA.fullmatch(cut.file))}):
        batches = lost.get(name, [])
        cuts = [cut for cut in report.cuts if cut.file == name]
        count = sum(cut.batch_count for cut in cuts)
        # Of a magic that no format has, the offsets cannot be known, nor whether a sound copy has them.
        known = [batch for batch in batches if 0 <= batch.magic <= 2]
        most = len(batches) + _unserved_count(name, before, after) + _imitated_count(name, before, after)
        if not len(known) <= count <= most:
            errors.append(f"{name}: {len(batches)} batches are lost, the report has {count}")
        elif batches:
            last = batches[-1].last_offset
            if max(cuts, key=lambda cut: (cut.batch_count > 0, cut.position)).last_offset != last:
                errors.append(f"{name}: the last offset lost is {last}, the report has {cuts}")
            if min(cut.position for cut in cuts) > batches[0].position:
                errors.append(f"{name}: lost from byte {batches[0].position} on, the report has {cuts}")
            if sum(cut.size_bytes for cut in cuts) < sum(len(batch.data) for batch in known):
                errors.append(f"{name}: fewer bytes are told than lost: {cuts}")
        elif not count and not batch_end(before[name]):
            errors.append(f"{name}: a cut of nothing: {cuts}")
    if (report.status == "truncated") != any(not cut.is_preallocated for cut in report.cuts):
        errors.append(f"status {report.status} with {len(report.cuts)} cuts")
    return errors


def _unserved_count(name: str, before: Tree, after: Tree) -> int:
    """How many batches of a segment that was split nobody found before: that they went may be told, and need not."""
    if name not in before or not _is_split(before, after):
        return 0
    served = {batch.identity for batch in _served(before)}
    return sum(batch.identity not in served for batch in walk(before[name]))


def _imitated_count(name: str, before: Tree, after: Tree) -> int:
    """How many batches of a lost segment a damaged one imitates: before magic 2 no checksum covers the offset."""
    if name in after or name not in before:
        return 0
    live = {batch.identity for batch in _served(after)}
    return sum(batch.magic < 2 and batch.identity in live for batch in walk(before[name]))


def batch_end(data: bytes) -> bytes:
    """What of a log nobody can follow."""
    end = max((batch.position + len(batch.data) for batch in walk(data)), default=0)
    return data[end:]
