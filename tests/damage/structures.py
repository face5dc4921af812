"""Archives whose parts are sound and whose whole is not: `python -m tests.damage.structures`.

Segments and partitions are exchanged, doubled, removed, moved, foreign, of another incarnation of their topic, on
their way in or out. Each case is verified in four modes (as it is, with the metadata topic, `--deep`, `--logs-only`),
and for each the verdict is stated beforehand: sound, a note, not compared, or damaged, with the rules of which one at
least must be found.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from recovery.archive.layouts.aiven_cipher import AivenKeys, load_aiven_keys
from segfmt.remote_log_metadata import RemoteSegment, RemoteSegmentState
from tests.logs.aiven_archive import KEY_ID, write_private_key
from tests.logs.archives import (
    EPOCHS,
    LOG,
    MANIFEST,
    SNAPSHOT,
    SegmentCopy,
    WrittenArchive,
    doubled,
    forked_copies,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import gone_through, objects_of

MODES = ("plain", "--metadata", "--deep", "--logs-only")
LAYOUTS = ("plain", "local-tiered", "aiven, zstd, encrypted")
_ID = UUID("6e9cf2d2-9f27-4d3c-8a51-7a1f0b7c2d11")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is found in an archive as a whole: the worst severity, and its rules.

    Attributes:
        severity: damage, unchecked, note, or nothing: sound.
        rules: those found of that severity; of an expected one: at least one of them.
    """

    severity: str
    rules: frozenset[str] = frozenset()

    def fits(self, expected: Verdict) -> bool:
        """Whether this is what was expected."""
        return self.severity == expected.severity and (
            not expected.rules or bool(self.rules & expected.rules)
        )

    def __str__(self) -> str:
        return " ".join([self.severity or "sound", *sorted(self.rules)])


SOUND = Verdict("")


def damaged(*rules: str) -> Verdict:
    """Damage by one of *rules*."""
    return Verdict("damage", frozenset(rules))


def noted(*rules: str) -> Verdict:
    """Notes alone, of *rules* among them."""
    return Verdict("note", frozenset(rules))


def not_compared(*rules: str) -> Verdict:
    """No damage, but something was not checked."""
    return Verdict("unchecked", frozenset(rules or ("not-compared",)))


@dataclass(frozen=True, slots=True)
class Expected:
    """The verdicts on one case: *plain* also holds for what is not given, metadata is of tiered storage alone."""

    plain: Verdict
    metadata: Verdict | None = None
    logs_only: Verdict | None = None

    def of(self, mode: str, *, is_tiered: bool) -> Verdict:
        """The one in a mode."""
        if mode == "--metadata" and is_tiered:
            return self.metadata or self.plain
        return (self.logs_only or self.plain) if mode == "--logs-only" else self.plain


Structure = Callable[[WrittenArchive], Expected | None]


def _copies() -> list[SegmentCopy]:
    return [
        *made_copies(segments=6),
        *made_copies(partition=1, segments=5),
        *made_copies(topic="other", segments=4),
    ]


def _of(archive: WrittenArchive, topic: str = "made", partition: int = 0) -> list[SegmentCopy]:
    return [copy for copy in archive.copies if (copy.owner.topic, copy.owner.partition) == (topic, partition)]


def _paths(archive: WrittenArchive, copy: SegmentCopy) -> list[Path]:
    """The objects of one segment; a folder's leader epochs are those of all."""
    parts = [part for part in archive.parts(copy) if archive.is_tiered or part != EPOCHS]
    return [archive.place(copy, part) for part in parts]


def _remove(archive: WrittenArchive, *copies: SegmentCopy) -> None:
    for copy in copies:
        for path in _paths(archive, copy):
            path.unlink()


def _exchange(one: Path, other: Path) -> None:
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def _tell(
    archive: WrittenArchive, copy: SegmentCopy, change: Callable[[RemoteSegment], RemoteSegment]
) -> None:
    archive.metadata = [
        change(one) if one.segment_id == copy.remote.segment_id else one for one in archive.metadata
    ]


def _forget(archive: WrittenArchive, *copies: SegmentCopy) -> None:
    ids = {copy.remote.segment_id for copy in copies}
    archive.metadata = [one for one in archive.metadata if one.segment_id not in ids]


def _in_state(archive: WrittenArchive, copy: SegmentCopy, state: RemoteSegmentState) -> None:
    _tell(archive, copy, lambda one: replace(one, state=state))


_GAP = ("offset-gap", "no-segment", "orphan-index")
_RANGE = (
    "offset-range",
    "offset-gap",
    "offset-order",
    "segment-overlap",
    "metadata",
    "object-size",
    "chunk",
    "manifest",
)

# -- segments ---------------------------------------------------------------------------------------------------


def exchanged_neighbours(archive: WrittenArchive) -> Expected:
    _, one, other, *_ = _of(archive)
    for part in archive.parts(one):
        if part in archive.parts(other) and (archive.is_tiered or part not in (SNAPSHOT, EPOCHS)):
            _exchange(archive.place(one, part), archive.place(other, part))
    return Expected(damaged(*_RANGE))


def exchanged_logs(archive: WrittenArchive) -> Expected:
    _, one, other, *_ = _of(archive)
    _exchange(archive.place(one, LOG), archive.place(other, LOG))
    return Expected(damaged(*_RANGE))


def exchanged_between_partitions(archive: WrittenArchive) -> Expected:
    """The logs of the first segments, which begin at the same offset."""
    _exchange(archive.place(_of(archive)[0], LOG), archive.place(_of(archive, partition=1)[0], LOG))
    return Expected(
        damaged(*_RANGE, "index-entry", "snapshot-content", "epoch-content", "cut-end"),
        logs_only=damaged("offset-gap", "metadata", "chunk", "object-size"),
    )


def exchanged_partitions(archive: WrittenArchive) -> Expected:
    """Both are as sound as before, under each other's name."""
    folders = [archive.place(_of(archive, partition=number)[0], LOG).parent for number in (0, 1)]
    held = folders[0].with_name("held")
    folders[0].rename(held)
    folders[1].rename(folders[0])
    held.rename(folders[1])
    if archive.is_aiven:
        return Expected(damaged("manifest", "metadata"), damaged("missing-segment"))
    return Expected(SOUND, damaged("missing-segment"))


def first_removed(archive: WrittenArchive) -> Expected:
    """As retention does."""
    _remove(archive, _of(archive)[0])
    return Expected(SOUND, damaged("missing-segment"))


def inner_removed(archive: WrittenArchive) -> Expected:
    _remove(archive, _of(archive)[2])
    return Expected(damaged(*_GAP), damaged("missing-segment"))


def two_removed(archive: WrittenArchive) -> Expected:
    _remove(archive, *_of(archive)[2:4])
    return Expected(damaged(*_GAP), damaged("missing-segment"))


def inner_removed_and_forgotten(archive: WrittenArchive) -> Expected:
    _remove(archive, _of(archive)[2])
    _forget(archive, _of(archive)[2])
    return Expected(damaged(*_GAP), damaged("archive-gap", *_GAP))


def last_removed(archive: WrittenArchive) -> Expected:
    """Nothing else in tiered storage has known of it; a folder's leader epochs may."""
    _remove(archive, _of(archive)[-1])
    return Expected(SOUND if archive.is_tiered else noted("epoch-content"), damaged("missing-segment"), SOUND)


def inner_log_removed(archive: WrittenArchive) -> Expected:
    archive.place(_of(archive)[2], LOG).unlink()
    return Expected(damaged(*_GAP, "missing-object"))


def doubled_under_another_id(archive: WrittenArchive) -> Expected | None:
    """The same offsets twice, and only one of the ids is known."""
    if not archive.is_tiered:
        return None
    copies = doubled(_of(archive), 2)
    again = write_archive(archive.root.with_name("again"), archive.layout, [copies[-1]])
    shutil.copytree(again.root, archive.root, dirs_exist_ok=True)
    shutil.rmtree(again.root)
    return Expected(noted("duplicate", "overlap"), noted("orphan"))


def doubled_under_another_offset(archive: WrittenArchive) -> Expected:
    copy = _of(archive)[2]
    start = f"{copy.remote.start_offset:020d}"
    for path in _paths(archive, copy):
        if path.name.startswith(start):
            shutil.copy(
                path, path.with_name(path.name.replace(start, f"{copy.remote.start_offset + 3:020d}"))
            )
    return Expected(damaged(*_RANGE, "index-entry", "cut-end"))


def moved_to_another_partition(archive: WrittenArchive) -> Expected:
    copy = _of(archive)[2]
    folder = archive.place(_of(archive, partition=1)[0], LOG).parent
    for path in _paths(archive, copy):
        path.rename(folder / path.name)
    return Expected(damaged(*_GAP), damaged("missing-segment"))


def copied_to_another_topic(archive: WrittenArchive) -> Expected | None:
    """A foreign segment after all of its own: an id that nobody there knows."""
    own, foreign = _of(archive, "other")[-1], _of(archive)[-1]
    if not archive.is_tiered:
        return None
    folder = archive.place(own, LOG).parent
    for path in _paths(archive, foreign):
        shutil.copy(path, folder / path.name)
    return Expected(damaged("offset-gap", "manifest", "metadata"))


def foreign_object(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None  # a folder may have files of other kinds
    archive.place(_of(archive)[1], LOG).with_name("_SUCCESS").write_bytes(b"")
    return Expected(noted("foreign-file"))


# -- on their way -----------------------------------------------------------------------------------------------


def upload_in_flight(archive: WrittenArchive) -> Expected | None:
    """The last one, of which the part that goes last is not there yet."""
    if not archive.is_tiered:
        return None
    copy = _of(archive)[-1]
    archive.place(copy, MANIFEST if archive.is_aiven else EPOCHS).unlink()
    _in_state(archive, copy, RemoteSegmentState.COPY_SEGMENT_STARTED)
    alone = noted("interrupted-copy") if archive.is_aiven else damaged("missing-object")
    return Expected(alone, noted("interrupted-copy"), alone if archive.is_aiven else SOUND)


def upload_all_but_reported(archive: WrittenArchive) -> Expected | None:
    """The metadata may be older than the report."""
    if not archive.is_tiered:
        return None
    _in_state(archive, _of(archive)[-1], RemoteSegmentState.COPY_SEGMENT_STARTED)
    return Expected(SOUND, not_compared())


def upload_reported_later_and_damaged(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None
    copy = _of(archive)[2]
    path = archive.place(copy, LOG)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    _in_state(archive, copy, RemoteSegmentState.COPY_SEGMENT_STARTED)
    _forget(archive, *_of(archive)[3:])
    return Expected(damaged("checksum", "chunk"))


def upload_begun_without_objects(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None
    copy = _of(archive)[-1]
    _remove(archive, copy)
    _in_state(archive, copy, RemoteSegmentState.COPY_SEGMENT_STARTED)
    return Expected(SOUND, noted("interrupted-copy"))


def delete_begun(archive: WrittenArchive) -> Expected | None:
    """Of the first one, whose log is gone already."""
    if not archive.is_tiered:
        return None
    copy = _of(archive)[0]
    archive.place(copy, LOG).unlink()
    _in_state(archive, copy, RemoteSegmentState.DELETE_SEGMENT_STARTED)
    return Expected(damaged("missing-object"), noted("unfinished-delete"))


def delete_reported_and_not_done(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None
    _in_state(archive, _of(archive)[0], RemoteSegmentState.DELETE_SEGMENT_FINISHED)
    return Expected(SOUND, noted("undeleted"))


def deleted(archive: WrittenArchive) -> Expected | None:
    """What retention has done: nothing is there, and the topic says why."""
    if not archive.is_tiered:
        return None
    for copy in _of(archive)[:2]:
        _remove(archive, copy)
        _in_state(archive, copy, RemoteSegmentState.DELETE_SEGMENT_FINISHED)
    return Expected(SOUND)


# -- what the topic knows ---------------------------------------------------------------------------------------


def orphan(archive: WrittenArchive) -> Expected | None:
    """The topic knows the segment that has its offsets, under another id."""
    if not archive.is_tiered:
        return None
    copy = _of(archive)[2]
    _tell(archive, copy, lambda one: replace(one, segment_id=_ID))
    return Expected(SOUND, damaged("missing-segment"))


def incomplete_orphan(archive: WrittenArchive) -> Expected | None:
    """A copy that was begun and forgotten beside the right one."""
    if not archive.is_tiered:
        return None
    doubled_under_another_id(archive)
    copy = doubled(_of(archive), 2)[-1]
    archive.place(copy, MANIFEST if archive.is_aiven else EPOCHS).unlink()
    return Expected(noted("interrupted-copy"), noted("orphan"))


def incomplete_beside_a_damaged_one(archive: WrittenArchive) -> Expected | None:
    """What an interrupted copy seems to have left: the only sound log of these offsets."""
    if not archive.is_tiered:
        return None
    incomplete_orphan(archive)
    path = archive.place(_of(archive)[2], LOG)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return Expected(damaged("checksum", "chunk"), damaged("checksum", "chunk"))


def all_last_parts_lost(archive: WrittenArchive) -> Expected | None:
    """Of a partition, but for the last segment each was followed by another: its upload had ended."""
    if not archive.is_tiered:
        return None
    for copy in _of(archive):
        archive.place(copy, MANIFEST if archive.is_aiven else EPOCHS).unlink()
    lost = damaged("missing-object")
    return Expected(lost, lost, lost if archive.is_aiven else SOUND)


def led_anew_since(archive: WrittenArchive) -> Expected | None:
    """The topic is of a time before an unclean election, so it knows other segments with the new leader's offsets."""
    if not archive.is_tiered:
        return None
    forked = forked_copies()
    shutil.rmtree(archive.root)
    again = write_archive(archive.root, archive.layout, [*forked.shared, forked.lost, forked.first])
    archive.copies, archive.metadata = again.copies, again.metadata
    _forget(archive, forked.first)
    return Expected(noted("overlap", "duplicate"), not_compared())


def newer_than_the_topic(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None
    _forget(archive, *_of(archive)[-2:])
    return Expected(SOUND, not_compared())


def unknown_partition(archive: WrittenArchive) -> Expected | None:
    if not archive.is_tiered:
        return None
    _forget(archive, *_of(archive))
    return Expected(SOUND, not_compared())


def all_but_the_topic_gone(archive: WrittenArchive) -> Expected | None:
    """A partition of which no object is there."""
    if not archive.is_tiered:
        return None
    shutil.rmtree(archive.place(_of(archive)[0], LOG).parent)
    return Expected(SOUND, damaged("missing-segment"))


# -- partitions -------------------------------------------------------------------------------------------------


def empty_partition(archive: WrittenArchive) -> Expected:
    """Its folder is there; that of a plain copy has the leader epochs of a log that was there."""
    _remove(archive, *_of(archive))
    return Expected(
        SOUND if archive.is_tiered else damaged("no-segment"),
        damaged("missing-segment"),
        None if archive.is_tiered else noted("no-segment"),
    )


def another_incarnation(archive: WrittenArchive) -> Expected | None:
    """The topic was deleted and created again: other segments under another id of the topic."""
    if not archive.is_tiered:
        return None
    copies = [
        replace(copy, remote=replace(copy.remote, owner=replace(copy.owner, topic_id=_ID)))
        for copy in made_copies(seed=2, segments=3)
    ]
    again = write_archive(archive.root.with_name("again"), archive.layout, copies)
    shutil.copytree(again.root, archive.root, dirs_exist_ok=True)
    shutil.rmtree(again.root)
    archive.metadata += again.metadata
    return Expected(SOUND)


def another_incarnation_unknown(archive: WrittenArchive) -> Expected | None:
    known = list(archive.metadata)
    expected = another_incarnation(archive)
    archive.metadata = known
    return expected and Expected(SOUND, not_compared())


def renamed_partition(archive: WrittenArchive) -> Expected:
    folder = archive.place(_of(archive)[0], LOG).parent
    name = folder.name
    other = "7" if archive.is_aiven else name.replace("made-0", "made-7")
    folder.rename(folder.with_name(other))
    if archive.is_aiven:
        return Expected(damaged("manifest", "metadata"), damaged("missing-segment"))
    return Expected(SOUND, damaged("missing-segment"))


def two_histories(archive: WrittenArchive) -> Expected | None:
    """What two leaders have archived after an unclean election, both told by the topic."""
    if not archive.is_tiered:
        return None
    forked = forked_copies()
    shutil.rmtree(archive.root)
    again = write_archive(
        archive.root, archive.layout, [*forked.shared, forked.lost, forked.first, *forked.after]
    )
    archive.copies, archive.metadata = again.copies, again.metadata
    return Expected(noted("overlap", "duplicate"), noted("overlap", "duplicate", "outside-lineage"))


def removed_behind_another_history(archive: WrittenArchive) -> Expected | None:
    """A segment of the new leader, whose offsets are in a longer one of the old leader, too."""
    if not archive.is_tiered:
        return None
    forked = forked_copies(lost_batches=30)
    shutil.rmtree(archive.root)
    copies = [*forked.shared, forked.lost, forked.first, *forked.after]
    again = write_archive(archive.root, archive.layout, copies)
    archive.copies, archive.metadata = again.copies, again.metadata
    _remove(archive, forked.first)
    # Logs alone do not say in which leader epoch the offset before them was written.
    return Expected(damaged("offset-gap"), damaged("missing-segment"), noted("overlap"))


def another_layout_beside(archive: WrittenArchive) -> Expected:
    """Both are gone through; in the other one a segment is missing."""
    layout = "plain" if archive.is_tiered else "local-tiered"
    again = write_archive(archive.root / "other", layout, made_copies(topic="beside"))
    _remove(again, _of(again, "beside")[2])
    return Expected(damaged(*_GAP))


def another_layout_beneath(archive: WrittenArchive) -> Expected:
    """The same, sound, below a folder that has the name of a partition."""
    layout = "plain" if archive.is_tiered else "local-tiered"
    again = write_archive(archive.root / "backup-2024", layout, made_copies(topic="beside"))
    if not archive.is_tiered:
        archive.metadata = again.metadata
    return Expected(SOUND)


STRUCTURES: dict[str, Structure] = {
    function.__name__.replace("_", " "): function
    for function in (
        exchanged_neighbours, exchanged_logs, exchanged_between_partitions, exchanged_partitions, first_removed,
        inner_removed, two_removed, inner_removed_and_forgotten, last_removed, inner_log_removed,
        doubled_under_another_id, doubled_under_another_offset, moved_to_another_partition, copied_to_another_topic,
        foreign_object, upload_in_flight, upload_all_but_reported, upload_reported_later_and_damaged,
        upload_begun_without_objects, delete_begun, delete_reported_and_not_done, deleted, orphan, incomplete_orphan,
        incomplete_beside_a_damaged_one, all_last_parts_lost,
        led_anew_since, newer_than_the_topic, unknown_partition, all_but_the_topic_gone, empty_partition,
        another_incarnation, another_incarnation_unknown, renamed_partition, two_histories,
        removed_behind_another_history, another_layout_beside, another_layout_beneath,
    )
}  # fmt: skip
"""All structures by name."""


class StructureBench:
    """Makes and verifies cases below *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: AivenKeys = load_aiven_keys({KEY_ID: write_private_key(folder)})

    def cases(self, layout: str, names: list[str]) -> Iterator[tuple[str, str, Verdict, Verdict]]:
        """Yield name, mode, the expected verdict and the one found, for the structures that the layout can have."""
        for name in names:
            shutil.rmtree(self._folder / "case", ignore_errors=True)
            archive = write_archive(self._folder / "case", layout, _copies())
            expected = STRUCTURES[name](archive)
            if expected is None:
                continue
            for mode in MODES:
                yield name, mode, expected.of(mode, is_tiered=archive.is_tiered), self._verdict(archive, mode)

    def _verdict(self, archive: WrittenArchive, mode: str) -> Verdict:
        log_dir = self._folder / "metadata"
        shutil.rmtree(log_dir, ignore_errors=True)
        write_metadata(log_dir, metadata_records(archive.metadata))
        verdicts = gone_through(
            archive.root,
            metadata=[log_dir] if mode == "--metadata" else [],
            keys=self._keys,
            is_deep=mode == "--deep",
            is_logs_only=mode == "--logs-only",
        )
        findings = [finding for one in objects_of(verdicts).values() for finding in one.verdict.findings]
        worst = next(
            (
                of
                for of in ("damage", "unchecked", "note")
                if any(finding.severity == of for finding in findings)
            ),
            "",
        )
        return Verdict(worst, frozenset(finding.rule for finding in findings if finding.severity == worst))


def main() -> int:
    """Run all cases in all modes; 1 if a verdict is another one."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.structures", description=__doc__)
    parser.add_argument("--only", choices=STRUCTURES, help="one structure")
    parser.add_argument("--show", action="store_true", help="each verdict")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(STRUCTURES)
    verdicts, structures, wrong = 0, set(), 0
    with tempfile.TemporaryDirectory(prefix="structures-") as scratch:
        bench = StructureBench(Path(scratch))
        for layout in LAYOUTS:
            for name, mode, expected, found in bench.cases(layout, names):
                verdicts += 1
                structures.add((layout, name))
                is_right = found.fits(expected)
                wrong += not is_right
                if arguments.show or not is_right:
                    print(
                        f"{'     ' if is_right else 'WRONG'} {name} / {layout} / {mode}: {found}; expected {expected}"
                    )
    print(f"{len(structures)} archives, {verdicts} verdicts, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
