"""Objects and segments of an archive as columns: a partition may have a hundred thousand segments of five objects each.

A table is a sequence of `StoredObject`s or `ArchivedSegment`s, which it makes on access. Code that goes through all
segments of an archive uses the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from typing import Final, Self, overload

from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from segfmt.filenames import read_offset

LETTERS: Final = {
    PartKind.LOG: "l",
    PartKind.OFFSET_INDEX: "i",
    PartKind.TIME_INDEX: "t",
    PartKind.TXN_INDEX: "a",
    PartKind.SNAPSHOT: "s",
    PartKind.LEADER_EPOCHS: "e",
    PartKind.INDEXES: "x",
    PartKind.MANIFEST: "m",
}
"""The letters of parts in `SegmentTable.kinds`."""
FURTHER_SNAPSHOT: Final = "f"
"""The letter of those in `ArchivedSegment.snapshots`."""
_KINDS: Final = {letter: kind for kind, letter in LETTERS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTable(Sequence[StoredObject]):
    """Objects directly below one prefix.

    Attributes:
        prefix: what their keys begin with.
        names: the rest of each key.
        sizes_bytes, versions: see `StoredObject`.
    """

    prefix: str = ""
    names: Sequence[str] = ()
    sizes_bytes: Sequence[int] = ()
    versions: Sequence[str] = ()

    @classmethod
    def of(cls, prefix: str, objects: Iterable[StoredObject]) -> Self:
        """Return the table of *objects*, whose keys begin with *prefix*."""
        return cls.of_rows(
            prefix, [(stored.key[len(prefix) :], stored.size_bytes, stored.version) for stored in objects]
        )

    @classmethod
    def of_rows(cls, prefix: str, rows: Sequence[tuple[str, int, str]]) -> Self:
        """Return the table of *rows* of name, size and version."""
        names, sizes_bytes, versions = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(prefix=prefix, names=names, sizes_bytes=sizes_bytes, versions=versions)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.names)

    @overload
    def __getitem__(self, row: int) -> StoredObject: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> StoredObject | Self:
        """Return one object, or the table of some neighbours."""
        names, sizes_bytes, versions = self.names[row], self.sizes_bytes[row], self.versions[row]
        if isinstance(names, str):
            assert isinstance(sizes_bytes, int)
            assert isinstance(versions, str)
            return StoredObject(key=self.prefix + names, size_bytes=sizes_bytes, version=versions)
        assert not isinstance(sizes_bytes, int)
        return type(self)(prefix=self.prefix, names=names, sizes_bytes=sizes_bytes, versions=versions)

    def take(self, rows: Sequence[int]) -> Self:
        """Return the table of the objects in *rows*, in their order."""
        if are_neighbours(rows):
            return self[rows[0] : rows[-1] + 1]
        return type(self)(
            prefix=self.prefix,
            names=[self.names[row] for row in rows],
            sizes_bytes=[self.sizes_bytes[row] for row in rows],
            versions=[self.versions[row] for row in rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTable(Sequence[ArchivedSegment]):
    """Segments of one partition, ascending by base offset, then by their ids.

    Attributes:
        base_offsets, segment_ids, next_base_offsets: see `ArchivedSegment`.
        other_files: see there; empty if all are segments.
        ends: for each segment, how many objects it and those before it have.
        kinds: a letter for each object, of `LETTERS` or FURTHER_SNAPSHOT.
        objects: of the segments, in their order; of each, the parts before further snapshots.
    """

    base_offsets: Sequence[int] = ()
    segment_ids: Sequence[str] = ()
    next_base_offsets: Sequence[int | None] = ()
    ends: Sequence[int] = ()
    kinds: str = ""
    objects: ObjectTable = field(default_factory=ObjectTable)
    other_files: Sequence[str] = ()

    @classmethod
    def of(cls, prefix: str, segments: Iterable[ArchivedSegment]) -> Self:
        """Return the table of *segments*, whose objects' keys begin with *prefix*."""
        segments = list(segments)
        objects: list[StoredObject] = []
        kinds, ends = [], []
        other_files = [segment.other_file for segment in segments]
        for segment in segments:
            objects += [*segment.parts.values(), *segment.snapshots.values()]
            kinds += [*(LETTERS[kind] for kind in segment.parts), FURTHER_SNAPSHOT * len(segment.snapshots)]
            ends.append(len(objects))
        return cls(
            base_offsets=[segment.base_offset for segment in segments],
            segment_ids=[segment.segment_id for segment in segments],
            next_base_offsets=[segment.next_base_offset for segment in segments],
            ends=ends,
            kinds="".join(kinds),
            objects=ObjectTable.of(prefix, objects),
            other_files=other_files if any(other_files) else (),
        )

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.base_offsets)

    @overload
    def __getitem__(self, row: int) -> ArchivedSegment: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> ArchivedSegment | Self:
        """Return one segment, or the table of some neighbours."""
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            return self._neighbours(start, stop) if step == 1 else self.take(range(start, stop, step))
        row = range(len(self))[row]
        parts, snapshots = {}, {}
        for at in range(self.ends[row - 1] if row else 0, self.ends[row]):
            stored = self.objects[at]
            if self.kinds[at] == FURTHER_SNAPSHOT:
                snapshots[read_offset(stored.name)] = stored
            else:
                parts[_KINDS[self.kinds[at]]] = stored
        return ArchivedSegment(
            base_offset=self.base_offsets[row],
            segment_id=self.segment_ids[row],
            other_file=self.other_files[row] if self.other_files else "",
            parts=parts,
            next_base_offset=self.next_base_offsets[row],
            snapshots=snapshots,
        )

    def take(self, rows: Sequence[int]) -> Self:
        """Return the table of the segments in *rows*, in their order."""
        if are_neighbours(rows):
            return self._neighbours(rows[0], rows[-1] + 1)
        spans = self.spans()
        objects = [at for row in rows for at in range(*spans[row])]
        ends, end = [], 0
        for row in rows:
            end += spans[row][1] - spans[row][0]
            ends.append(end)
        return type(self)(
            base_offsets=[self.base_offsets[row] for row in rows],
            segment_ids=[self.segment_ids[row] for row in rows],
            next_base_offsets=[self.next_base_offsets[row] for row in rows],
            ends=ends,
            kinds="".join([self.kinds[at] for at in objects]),
            objects=self.objects.take(objects),
            other_files=[self.other_files[row] for row in rows] if self.other_files else (),
        )

    def logs(self) -> ObjectTable:
        """Return the logs of the segments that have one."""
        letter = LETTERS[PartKind.LOG]
        return self.objects.take([at for at, kind in enumerate(self.kinds) if kind == letter])

    def further_snapshots(self) -> list[StoredObject]:
        """Return the snapshots that are not at a segment's end."""
        if FURTHER_SNAPSHOT not in self.kinds:
            return []
        return [self.objects[at] for at, letter in enumerate(self.kinds) if letter == FURTHER_SNAPSHOT]

    def only(self, kinds: Collection[PartKind]) -> Self:
        """Return the same segments with only the objects of *kinds*."""
        letters = {LETTERS[kind] for kind in kinds}
        is_kept = [letter in letters for letter in self.kinds]
        totals = [0, *accumulate(is_kept)]
        return type(self)(
            base_offsets=self.base_offsets,
            segment_ids=self.segment_ids,
            next_base_offsets=self.next_base_offsets,
            ends=[totals[end] for end in self.ends],
            kinds="".join(compress(self.kinds, is_kept)),
            objects=self.objects.take(list(compress(range(len(is_kept)), is_kept))),
            other_files=self.other_files,
        )

    def without_versions(self) -> Self:
        """Return the same segments for readers that take the objects in whatever version they find."""
        return replace(self, objects=replace(self.objects, versions=[""] * len(self.objects)))

    def unversioned(self) -> frozenset[int]:
        """Return the rows of the segments with an object whose version is not known."""
        versions = self.objects.versions
        if all(versions):
            return frozenset()
        return frozenset(row for row, span in enumerate(self.spans()) if not all(versions[slice(*span)]))

    def spans(self) -> list[tuple[int, int]]:
        """Return where the objects of each segment begin and end."""
        return list(pairwise((0, *self.ends)))

    def shapes(self) -> list[str]:
        """Return the letters of each segment's objects, which `parts_in` reads."""
        kinds = self.kinds
        return [kinds[start:end] for start, end in self.spans()]

    def size_bytes(self) -> list[int]:
        """Return the bytes of all objects of each segment."""
        sizes_bytes = self.objects.sizes_bytes
        return [sum(sizes_bytes[start:end]) for start, end in self.spans()]

    def part_bytes(self, kind: PartKind) -> list[int]:
        """Return the bytes of one part of each segment, 0 for segments without it."""
        sizes_bytes, find, letter = self.objects.sizes_bytes, self.kinds.find, LETTERS[kind]
        positions = [find(letter, start, end) for start, end in self.spans()]
        return [0 if at < 0 else sizes_bytes[at] for at in positions]

    def identities(self) -> list[str]:
        """Return for each segment a text that changes with its offsets, its id and any of its objects."""
        kinds, objects = self.kinds, self.objects
        names, versions, sizes = objects.names, objects.versions, list(map(str, objects.sizes_bytes))
        others = self.other_files or [""] * len(self)
        ids = zip(
            self.base_offsets, self.segment_ids, self.next_base_offsets, others, self.spans(), strict=True
        )
        return [
            "\0".join(
                (
                    f"{base} {segment_id} {following} {kinds[start:end]}",
                    other_file,
                    *names[start:end],
                    *sizes[start:end],
                    *versions[start:end],
                )
            )
            for base, segment_id, following, other_file, (start, end) in ids
        ]

    def _neighbours(self, start: int, stop: int) -> Self:
        ends = self.ends[start:stop]
        first = self.ends[start - 1] if start else 0
        end = ends[-1] if ends else first
        return type(self)(
            base_offsets=self.base_offsets[start:stop],
            segment_ids=self.segment_ids[start:stop],
            next_base_offsets=self.next_base_offsets[start:stop],
            ends=[segment_end - first for segment_end in ends],
            kinds=self.kinds[first:end],
            objects=self.objects[first:end],
            other_files=self.other_files[start:stop],
        )


def are_neighbours(rows: Sequence[int]) -> bool:
    """Return whether *rows* are consecutive, at least one."""
    return bool(rows) and list(rows) == list(range(rows[0], rows[-1] + 1))


@lru_cache(1 << 10)
def parts_in(shape: str) -> frozenset[PartKind]:
    """Return the parts that a segment has, by the letters of its objects."""
    return frozenset(_KINDS[letter] for letter in shape if letter != FURTHER_SNAPSHOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """The objects below one prefix.

    Attributes:
        others: objects that belong to no segment: checkpoints of a plain copy, foreign ones.
    """

    where: PartitionPrefix
    segments: SegmentTable = field(default_factory=SegmentTable)
    others: ObjectTable = field(default_factory=ObjectTable)

    @property
    def objects(self) -> list[StoredObject]:
        """All objects below the prefix."""
        return [*self.segments.objects, *self.others]
