"""The account of what leaves a log: losses by every way that there is, and what looks like one and is none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

from recovery.engine.report import RecoveryReport
from recovery.load import compaction
from recovery.load.fold import fold
from recovery.load.model import Cut, LogSettings, PartitionOutcome
from segfmt.java_text import LONG_MAX
from segfmt.transaction_index import encode_transaction_index
from tests.damage.loss_account import account_errors, walk
from tests.logs.builders import ABORT, data_batch, marker_batch, message, record, record_batch
from tests.logs.samples import Sample, tree_of, unpack, write_tree
from tests.recovery.load.memory import Folded, MemorySource, name, partition, task_of
from tests.runs.driving import recover

INDEXES = (".index", ".timeindex", ".txnindex")
REPLACED = "replaced by a segment that does not hold these offsets"
FIRST, LAST = (0, 527, 659, 794, 928, 1059), (1468,)
FACTS = {"index_interval_bytes": 100, "segment_index_bytes": 4096}
PLAIN, COMPACTED, UNKNOWN = (LogSettings(**FACTS, is_compacted=one) for one in (False, True, None))


def batches(base: int, count: int = 10, **fields: object) -> list[bytes]:
    """*count* batches of one record, from offset *base* on."""
    return [data_batch(offset, **({"leader_epoch": 0} | fields)) for offset in range(base, base + count)]


def segment(base: int, count: int = 10, **fields: object) -> bytes:
    return b"".join(batches(base, count, **fields))


def keyed(offset: int, key: bytes | None, value: bytes | None = b"v", **fields: object) -> bytes:
    return record_batch(base_offset=offset, records=[record(key=key, value=value)], **fields)


def five_segments() -> dict[str, bytes]:
    """Of ten batches each, recovered, so that all indexes are there."""
    return Folded(partition({base: segment(base) for base in range(0, 50, 10)})).tree


def with_swap(files: dict[str, bytes], base: int, data: bytes) -> dict[str, bytes]:
    return (
        files
        | {name(base, f"{suffix}.swap"): b"" for suffix in INDEXES[:2]}
        | {name(base, ".log.swap"): data}
    )


def folded(files: dict[str, bytes], settings: LogSettings = PLAIN, **fields: object) -> Folded:
    """The outcome, once its cuts are those that a slow reader of both trees counts."""
    made = Folded(files, settings=settings, **({"recovery_point": 40} | fields))
    report = _Report(made)
    errors = account_errors(
        files,
        made.tree,
        report,  # type: ignore[arg-type]  # what is asked of one
        log_start_offset=made.task.log_start_offset,
        is_compacted=settings.is_compacted,
    )
    assert errors == []
    return made


class _Report:
    def __init__(self, made: Folded) -> None:
        self.cuts, self.warnings = made.outcome.cuts, made.outcome.warnings
        self.status = "truncated" if any(not cut.is_preallocated for cut in self.cuts) else "recovered"


def spans(cuts: tuple[Cut, ...]) -> list[tuple[str, int, int, int, int]]:
    """File, position, batches, first and last offset of each cut."""
    return [(cut.file, cut.position, cut.batch_count, cut.first_offset, cut.last_offset) for cut in cuts]


class TestSwaps:
    def test_one_that_lacks_nothing_is_no_loss(self) -> None:
        swap = b"".join(segment(base) for base in range(0, 40, 10))
        made = folded(with_swap(five_segments(), 0, swap))
        assert sorted(file for file in made.tree if file.endswith(".log")) == [name(0), name(40)]
        assert made.outcome.cuts == ()
        assert made.outcome.warnings == ()

    def test_an_empty_one_costs_its_place(self) -> None:
        """It spans no offset, so the segments stay, but for the one whose name it takes."""
        made = folded(with_swap(five_segments(), 10, b""))
        assert spans(made.outcome.cuts) == [(name(10), 0, 10, 10, 19)]
        assert made.outcome.cuts[0].reason == REPLACED
        assert made.outcome.warnings == (
            f"{name(10)}: 10 batches, {len(segment(10)):,} bytes leave the log: {REPLACED}",
        )

    def test_a_torn_one_costs_what_it_has_lost(self) -> None:
        whole = b"".join(segment(base) for base in range(0, 40, 10))
        keeps = len(segment(0, 23)) + 30  # within the batch of offset 23
        made = folded(with_swap(five_segments(), 0, whole[:keeps]))
        at = len(segment(20, 3))
        assert spans(made.outcome.cuts) == [(name(20), at, 7, 23, 29)]  # the swap ends at 23, so 30 stays
        assert not made.outcome.cuts[0].is_scattered
        assert made.outcome.deleted_base_offsets == ()

    def test_one_with_batches_missing_in_between(self) -> None:
        kept = [batch for batch in batches(10) if next(walk(batch)).first_offset not in (10, 13, 14)]
        (cut,) = folded(with_swap(five_segments(), 10, b"".join(kept))).outcome.cuts
        assert (cut.position, cut.batch_count, cut.first_offset, cut.last_offset) == (0, 3, 10, 14)
        assert cut.size_bytes == len(segment(10, 3))
        assert cut.is_scattered

    def test_what_was_below_the_log_start_was_deleted_before(self) -> None:
        files = with_swap(five_segments(), 10, b"")
        assert folded(files, log_start_offset=20).outcome.cuts == ()
        (cut,) = folded(files, log_start_offset=15).outcome.cuts
        assert (cut.batch_count, cut.first_offset) == (5, 15)

    def test_the_lot_is_a_cut_where_the_log_ends_before_its_start(self) -> None:
        made = folded(five_segments(), log_start_offset=60)
        assert [cut.batch_count for cut in made.outcome.cuts] == [10] * 5

    def test_a_leftover_that_alone_has_its_batches(self) -> None:
        files = with_swap(five_segments(), 10, segment(10)) | {name(10, ".log.cleaned"): segment(10)[:50]}
        assert folded(files).outcome.cuts == ()  # the live segment has them
        del files[name(10)], files[name(10, ".index")], files[name(10, ".timeindex")]
        (cut,) = folded(files).outcome.cuts
        assert (cut.file, cut.batch_count) == (name(10, ".log.swap"), 10)

    @pytest.mark.parametrize("kept", [10, 8])
    def test_what_it_holds_behind_the_next_segment_stays(self, kept: int) -> None:
        """Nobody reads it there, nor did anybody before: `\u0665` is a five."""
        files = with_swap(partition({0: segment(0)}) | {"\u0665.log": b""}, 0, segment(0, kept))
        files[name(0, ".index.swap")] = (20).to_bytes(4) + (1 << 20).to_bytes(
            4
        )  # so that the swap seems to end at 0
        made = folded(files, recovery_point=0)
        assert "\u0665.log" in made.tree
        assert spans(made.outcome.cuts) == ([] if kept == 10 else [(name(0), len(segment(0, 8)), 2, 8, 9)])

    def test_bytes_that_nobody_can_follow_go_with_a_replaced_segment(self) -> None:
        files = five_segments()
        files[name(10)] += b"\1" * 100
        (cut,) = folded(with_swap(files, 10, segment(10))).outcome.cuts
        assert (cut.position, cut.size_bytes, cut.batch_count) == (len(segment(10)), 100, 0)
        files[name(10)] = segment(10) + bytes(100)
        assert folded(with_swap(files, 10, segment(10))).outcome.cuts == ()


class TestCutsAndDeletions:
    @pytest.mark.parametrize(
        ("rest", "known"), [(b"", 19), (bytes(100), 19), (b"\1" * 100, -1), (segment(20, 1)[:40], -1)]
    )
    def test_its_last_offset_is_known_if_its_batches_lead_to_its_end(self, rest: bytes, known: int) -> None:
        files = partition({0: segment(0, 9) + segment(9, 11) + rest})
        at = len(segment(0, 9))
        files[name(0)] = files[name(0)][: at + 70] + b"\xff" + files[name(0)][at + 71 :]
        (cut,) = folded(files, recovery_point=0).outcome.cuts
        assert (cut.first_offset, cut.last_offset, cut.known_last_offset) == (9, 19, known)
        files = with_swap(five_segments(), 10, segment(10, 5))
        files[name(10)] += rest
        (cut,) = folded(files).outcome.cuts
        assert (cut.first_offset, cut.last_offset, cut.known_last_offset < 0) == (15, 19, known < 0)

    def test_a_batch_that_is_live_in_another_segment_is_no_loss(self) -> None:
        """The segment at 9 has the batches of that at 10, and one more; both are behind no cut, until 20 is damaged."""
        files = partition({0: segment(0, 9), 9: segment(9, 11), 15: segment(15, 5)})
        files[name(9)] = bytes([*files[name(9)][:-1], files[name(9)][-1] ^ 1])
        made = folded(files, recovery_point=0)
        assert spans(made.outcome.cuts) == [
            (name(9), len(segment(9, 10)), 1, 19, 19),
            (name(15), 0, 1, 19, 19),
        ]
        assert made.outcome.cuts[1].is_scattered
        assert made.outcome.deleted_base_offsets == (15,)

    def test_a_batch_that_reaches_into_the_next_segment_and_is_there_as_well(self) -> None:
        """It is cut there, for its checksum, and stays in the one that is flushed (campaign, combined-921/912)."""
        batch = record_batch(base_offset=5, last_offset_delta=5, crc=1)
        made = folded(partition({0: segment(0, 5), 5: batch, 10: batch}), recovery_point=10)
        assert made.tree[name(10)] == b""
        assert made.outcome.cuts == ()

    def test_a_batch_that_was_there_twice(self) -> None:
        made = folded(partition({0: segment(0) + data_batch(9, leader_epoch=0)}), recovery_point=0)
        assert made.outcome.log_end_offset == 10
        assert made.outcome.cuts == () or made.outcome.cuts[0].batch_count == 0

    def test_a_batch_before_one_of_lower_offset_is_live(self) -> None:
        """A leftover has it as well; the last offset of the segment is not its highest (campaign, again-914/35)."""
        log = batches(0, 4)
        files = partition({0: b"".join([log[0], log[1], log[3], log[2]]), 4: segment(4)})
        assert folded(files | {name(3, ".log.cleaned"): log[3]}, recovery_point=0).outcome.cuts == ()

    def test_a_segment_at_the_last_offset_is_found_by_every_fetch(self) -> None:
        """No recovery looks into it (campaign, whole-914/3)."""
        files = partition({0: segment(0)[:-1], 10: segment(10), 2**63 - 1: segment(10)})
        made = folded(files, recovery_point=0)
        assert spans(made.outcome.cuts) == [(name(0), len(segment(0, 9)), 0, 9, -1)]

    def test_what_was_behind_the_next_segment_before_a_split_is_no_loss(self) -> None:
        """Nobody found it there before either (campaign, combined-914/1394)."""
        far = 2**31
        files = partition({0: segment(0, 2) + segment(far - 5, 2) + segment(2 * far, 2), 100: segment(100)})
        assert folded(files, recovery_point=0).outcome.cuts == ()

    def test_a_segment_that_a_split_writes_over(self) -> None:
        far = 2**31 + 10
        files = partition({0: segment(0, 2) + segment(far, 2), far: segment(far, 5)})
        made = folded(files, recovery_point=0)
        assert spans(made.outcome.cuts) == [(name(far), len(segment(far, 2)), 3, far + 2, far + 4)]

    def test_what_was_replaced_first_and_then_cut_counts_once(self) -> None:
        files = with_swap(five_segments(), 10, segment(10))
        files[name(0)] = files[name(0)][:-1]
        cuts = folded(files, recovery_point=0).outcome.cuts
        assert [(cut.file, cut.batch_count) for cut in cuts] == [
            (name(0), 0),
            (name(10, ".log.swap"), 10),
            *((name(base), 10) for base in (20, 30, 40)),
        ]

    def test_nothing_is_read_where_nothing_went(self) -> None:
        files = five_segments()
        task = task_of(files, settings=PLAIN)
        source = MemorySource(files, PLAIN)
        with mock.patch.object(source, "batches", side_effect=AssertionError):
            assert fold(task, source).cuts == ()


def holes_of(outcome: PartitionOutcome) -> list[tuple[int, int, str]]:
    return [(hole.first_offset, hole.last_offset, hole.before) for hole in outcome.holes]


class TestHoles:
    """Offsets that are missing in what was read."""

    @staticmethod
    def holes(
        files: dict[str, bytes], settings: LogSettings = PLAIN, **fields: object
    ) -> list[tuple[int, int, str]]:
        made = Folded(files, settings=settings, **fields)
        assert made.outcome.cuts == ()
        return holes_of(made.outcome)

    @pytest.mark.parametrize("gone", [(20,), (10, 20), (20, 30)])
    @pytest.mark.parametrize("is_empty", [True, False])
    def test_segments_that_are_empty_or_missing(self, gone: tuple[int, ...], is_empty: bool) -> None:
        files = five_segments()
        for base in gone:
            files[name(base)] = b""
            if not is_empty:
                for suffix in (".log", ".index", ".timeindex"):
                    del files[name(base, suffix)]
        assert self.holes(files) == [(gone[0], gone[-1] + 9, name(gone[-1] + 10))]

    def test_an_active_segment_that_is_empty_shows_where_it_begins(self) -> None:
        assert self.holes(partition({0: segment(0), 15: b""})) == [(10, 14, name(15))]
        assert self.holes(partition({0: segment(0), 10: b""})) == []

    def test_the_start_of_a_segment(self) -> None:
        files = partition({0: segment(3, 7), 10: segment(12, 8)})
        assert self.holes(files) == [(0, 2, name(0)), (10, 11, name(10))]

    def test_what_is_below_the_log_start_is_not_missing(self) -> None:
        files = partition({0: segment(3, 7), 10: segment(17, 3)})
        assert self.holes(files, log_start_offset=12) == [(12, 16, name(10))]
        assert self.holes(files, log_start_offset=17) == []

    def test_only_what_was_read_is_looked_at(self) -> None:
        files = Folded(partition({0: segment(0), 12: segment(12, 8), 25: segment(25, 5)})).tree
        assert self.holes(files, recovery_point=12) == [(20, 24, name(25))]
        assert self.holes(files, recovery_point=30, had_clean_shutdown=True) == []
        del files[name(0, ".index")], files[name(12, ".index")]  # read while loading
        assert self.holes(files, recovery_point=30, had_clean_shutdown=True) == [(10, 11, name(12))]

    @pytest.mark.parametrize(
        ("points", "words"),
        [
            (
                {"recovery_point": 25},
                "before its recovery point, 25: its last flushed segments are gone, or ",
            ),
            (
                {"high_watermark": 25},
                "before its high watermark, 25: what every replica in sync had is gone ",
            ),
            ({"recovery_point": 15, "high_watermark": 25}, "before its recovery point, 15: "),
        ],
    )
    def test_an_end_that_is_missing(self, points: dict[str, int], words: str) -> None:
        """Also of a compacted log, which keeps its end."""
        files = partition({0: segment(0)})
        for settings in (PLAIN, COMPACTED, UNKNOWN):
            made = Folded(files, settings=settings, **points)
            (hole,) = made.outcome.holes
            assert str(hole) == "offsets 10 to 24 are missing at the end of the log"
            (warning,) = made.outcome.warnings
            assert warning.startswith(f"the log ends at offset 10, {words}")
        for folder in ("t-0.aa-delete", "t-0.aa-future", "t-0.aa-stray"):  # the lines are of another log
            outcome = Folded(files, settings=PLAIN, folder=folder, **points).outcome
            assert (outcome.holes, outcome.warnings) == ((), ())

    @pytest.mark.parametrize(
        "points", [{"recovery_point": 10}, {"high_watermark": 10}, {"high_watermark": LONG_MAX}]
    )
    def test_an_end_that_is_as_known(self, points: dict[str, int]) -> None:
        outcome = Folded(partition({0: segment(0)}), settings=PLAIN, **points).outcome
        assert (outcome.holes, outcome.warnings) == ((), ())

    def test_all_of_a_log_is_missing(self) -> None:
        files = partition({})
        assert self.holes(files, high_watermark=25) == [(0, 24, name(0))]
        assert self.holes(files, high_watermark=25, log_start_offset=20) == [(20, 24, name(20))]

    def test_what_is_cut_is_not_missing(self) -> None:
        torn = partition({0: segment(0)[:-1]})  # what it held is not known
        assert Folded(torn, settings=PLAIN, high_watermark=25).outcome.holes == ()
        torn |= partition({10: segment(10)})
        assert holes_of(Folded(torn, settings=PLAIN, high_watermark=20).outcome) == []
        assert holes_of(Folded(torn, settings=PLAIN, high_watermark=25).outcome) == [(20, 24, name(0))]

    def test_zeros_may_have_been_written(self) -> None:
        preallocated = partition({0: segment(0) + bytes(200)})
        outcome = Folded(preallocated, settings=replace(PLAIN, preallocate=True), high_watermark=25).outcome
        assert [one.is_preallocated for one in outcome.cuts] == [True]
        assert holes_of(outcome) == [(10, 24, name(0))]

    @pytest.mark.parametrize("recovery_point", [0, 15, 35])
    def test_empty_first_segments_hide_what_they_had(self, recovery_point: int) -> None:
        files = partition({0: b"", 10: b"", 20: segment(20), 30: segment(30)})
        assert self.holes(files, recovery_point=recovery_point) == [(0, 9, name(0)), (10, 19, name(10))]
        assert self.holes(files, recovery_point=recovery_point, log_start_offset=15) == [(15, 19, name(10))]
        assert self.holes(partition({0: b"", 10: b""}), recovery_point=recovery_point)[0] == (0, 9, name(0))

    def test_a_last_segment_of_which_only_indexes_are_left(self) -> None:
        files = partition({0: segment(0), 10: segment(10)})
        del files[name(10)]
        outcome = Folded(files, settings=PLAIN).outcome
        assert outcome.holes == ()  # nothing tells how far it went
        (warning,) = outcome.warnings
        assert "of a segment from offset 10 on the indexes are left without it" in warning
        assert Folded(files | {name(10, ".log.deleted"): b""}, settings=PLAIN).outcome.warnings == ()
        assert Folded(files, settings=PLAIN, high_watermark=15).outcome.holes != ()

    def test_first_segments_of_which_only_indexes_are_left(self) -> None:
        files = five_segments()
        for base in (0, 10):
            del files[name(base)]
        assert self.holes(files) == [(0, 19, name(20))]
        assert self.holes(files, log_start_offset=20) == []
        del files[name(0, ".index")], files[name(0, ".timeindex")]
        assert self.holes(files) == [(10, 19, name(20))]
        assert self.holes(files | {name(10, ".log.deleted"): b""}) == []  # a broker was about to delete it

    @pytest.mark.parametrize("settings", [PLAIN, COMPACTED])
    @pytest.mark.parametrize("recovery_point", [0, 20, 40])
    def test_a_middle_segment_of_which_only_indexes_are_left(
        self, recovery_point: int, settings: LogSettings
    ) -> None:
        """Of a compacted log as well: the cleaner renames the log of what it replaces before the indexes, too."""
        files = five_segments()
        del files[name(20)]
        assert self.holes(files, settings, recovery_point=recovery_point) == [(20, 29, name(30))]
        pending = files | {name(20, ".log.deleted"): b""}
        assert self.holes(pending, COMPACTED, recovery_point=recovery_point) == []

    @pytest.mark.parametrize("settings", [PLAIN, COMPACTED])
    @pytest.mark.parametrize("base", [0, 20])
    def test_a_folder_in_place_of_a_segment(self, base: int, settings: LogSettings) -> None:
        files = five_segments()
        del files[name(base)]
        missing = [(base, base + 9, name(base + 10))]
        assert self.holes(files, settings, others={name(base): "folder"}, recovery_point=40) == missing

    def test_what_the_cleaner_has_emptied_is_not_hidden(self) -> None:
        """Of a topic that is not compacted any more."""
        files = partition({0: segment(0), 10: b"", 20: b"", 30: segment(35, 5), 40: segment(43, 7)})
        assert self.holes(files, recovery_point=40) != []
        assert self.holes(files, recovery_point=40, cleaned_offset=40) == [(40, 42, name(40))]
        assert self.holes(files, cleaned_offset=50) == []

    def test_a_cut_below_the_high_watermark(self) -> None:
        """The other replicas lose it as well, if this one becomes the leader."""
        files = partition({0: segment(0), 10: segment(10)[:-1] + b"?"})
        for high_watermark, count in ((19, 0), (20, 1)):
            outcome = Folded(files, settings=PLAIN, high_watermark=high_watermark).outcome
            told = [one for one in outcome.warnings if "every replica in sync had what it took" in one]
            assert (outcome.holes, len(told)) == ((), count)

    def test_a_high_watermark_that_is_older_than_the_log(self) -> None:
        files = partition({0: segment(0)})
        outcome = Folded(files, settings=PLAIN, doubtful_high_watermark=11).outcome
        assert (outcome.holes, len(outcome.warnings)) == ((), 1)
        assert "of a replication-offset-checkpoint that is older than it" in outcome.warnings[0]
        assert Folded(files, settings=PLAIN, doubtful_high_watermark=10).outcome.warnings == ()

    def test_transactions_leave_none(self) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0}
        log = keyed(0, b"a", transactional=True, base_sequence=0, **producer) + marker_batch(1, **producer)
        assert self.holes(partition({0: log, 2: segment(2)})) == []

    def test_a_compacted_topic_has_none_and_of_an_unknown_one_there_is_a_warning(self) -> None:
        files = partition({0: segment(0), 15: segment(15)})
        assert self.holes(files, COMPACTED) == []
        made = Folded(files, settings=UNKNOWN)
        assert made.outcome.holes == ()
        words = f"offsets 10 to 14 are missing before {name(15)}; whether the topic is compacted is not known"
        assert made.outcome.warnings == (f"{words}. Remedy: tell it by --topic-config (cleanup.policy)",)
        assert Folded(files, settings=PLAIN, folder="t-0.aa-stray").outcome.warnings[-1] == words
        assert Folded(files, settings=PLAIN, folder="t-0.aa-delete").outcome.warnings == ()
        assert len(Folded(files, settings=PLAIN, folder="t-0.aa-future").outcome.holes) == 1

    def test_what_is_there_twice_is_warned_of(self) -> None:
        files = partition({0: segment(0), 10: segment(10), 14: segment(14, 6)})
        made = Folded(files, settings=PLAIN)
        assert made.outcome.holes == ()
        (warning,) = made.outcome.warnings
        assert warning.startswith(f"{name(14)} begins at offset 14, but {name(10)} goes on to 19: ")
        assert Folded(partition({0: segment(0), 10: segment(10)}), settings=PLAIN).outcome.warnings == ()

    def test_a_damaged_base_offset_is_no_hole(self) -> None:
        damaged = bytearray(segment(10))
        damaged[5] ^= 4  # the first batch gets offset 262154
        made = Folded(partition({0: segment(0), 10: bytes(damaged)}), settings=PLAIN)
        assert made.outcome.holes == ()
        (warning,) = made.outcome.warnings
        assert warning.startswith(f"{name(10)} begins at offset {10 + (4 << 16)}, but ends at 19: ")

    @pytest.mark.parametrize("recovery_point", [0, 7, 20])
    @pytest.mark.parametrize("empty", ["5.log", name(5)])
    def test_an_empty_segment_hides_the_end_of_the_one_before(self, empty: str, recovery_point: int) -> None:
        """A broker makes one of any offset that a name begins with."""
        files = partition({0: segment(0), 10: segment(10)}) | {empty: b""}
        made = Folded(files, settings=PLAIN, recovery_point=recovery_point)
        (hole,) = made.outcome.holes
        words = f"offsets 5 to 9 are hidden: a broker looks for them in {name(5)}, and finds none of them. Remedy: "
        assert str(hole).startswith(words)
        assert self.holes(files, COMPACTED, recovery_point=recovery_point) == []
        made = Folded(files, settings=UNKNOWN, recovery_point=recovery_point)
        assert made.outcome.holes == ()
        assert any("are hidden" in warning for warning in made.outcome.warnings)

    def test_an_empty_active_segment_hides_the_end_of_the_one_before(self) -> None:
        assert self.holes(partition({0: segment(0), 5: b""})) == [(5, 9, name(5))]
        assert self.holes(partition({0: segment(0), 10: b""})) == []
        assert self.holes(partition({0: segment(0), 5: b""}), recovery_point=7) == [
            (5, 6, name(5))
        ]  # 0 was not read

    def test_a_segment_that_begins_later_than_its_name_says_hides_the_end_of_the_one_before(self) -> None:
        files = partition({0: segment(0), 7: segment(10)})
        assert self.holes(files) == [(7, 9, name(7))]
        assert self.holes(partition({0: segment(0), 7: segment(7)})) == []  # it has all of them
        assert self.holes(partition({0: segment(0), 4: b"", 7: segment(10)})) == [
            (4, 6, name(4)),
            (7, 9, name(7)),
        ]

    def test_below_the_log_start_nothing_is_hidden(self) -> None:
        files = partition({0: segment(0), 5: b"", 10: segment(10)})
        assert self.holes(files, log_start_offset=8) == [(8, 9, name(5))]
        assert self.holes(files, log_start_offset=10) == []

    def test_a_misnamed_file_behind_the_log_makes_none(self) -> None:
        assert self.holes(partition({0: segment(0)}) | {"40.log": b"x"}) == []

    def test_an_end_below_the_recovery_point_after_a_clean_shutdown(self) -> None:
        files = partition({0: segment(0), 10: segment(10)[:-1]})
        clean = {"settings": COMPACTED, "recovery_point": 20, "had_clean_shutdown": True}
        made = Folded(files, **clean)
        assert [str(hole) for hole in made.outcome.holes] == [
            f"offsets {made.outcome.log_end_offset} to 19 are hidden: a broker looks for them in {name(10)}, "
            "and finds none of them"
        ]
        assert (
            Folded(files, folder="t-0.aa-future", **clean).outcome.holes == ()
        )  # the line is its current log's
        assert Folded(files, folder="t-0.aa-delete", **clean).outcome.holes == ()
        (hole,) = Folded(partition({0: segment(0)}), **clean).outcome.holes
        assert str(hole) == "offsets 10 to 19 are missing at the end of the log"

    def test_within_a_segment(self) -> None:
        log = batches(0)
        del log[2], log[5:7]  # 2, 6 and 7
        made = Folded(partition({0: b"".join(log), 10: segment(10)}), settings=PLAIN)
        assert [str(hole) for hole in made.outcome.holes] == [
            f"offsets 2 to 2 are missing in {name(0)} before byte {len(segment(0, 2))}",
            f"offsets 6 to 7 are missing in {name(0)} before byte {len(segment(0, 5))}",
        ]
        assert self.holes(partition({0: b"".join(log)}), log_start_offset=7) == [(7, 7, name(0))]
        assert self.holes(partition({0: b"".join(log)}), COMPACTED) == []
        unknown = Folded(partition({0: b"".join(log)}), settings=UNKNOWN).outcome
        assert (unknown.holes, len(unknown.warnings)) == ((), 2)

    def test_within_a_segment_behind_a_cut_there_is_none(self) -> None:
        log = b"".join([*batches(0, 3), batches(3)[0][:-1] + b"\xff", *batches(20, 2)])
        made = Folded(partition({0: log}), settings=PLAIN)
        assert len(made.outcome.cuts) == 1
        assert made.outcome.holes == ()

    def test_what_a_cut_tells_of_is_no_hole_besides(self) -> None:
        """A segment that is read while loading, for want of its index, and cut; those behind it stay."""
        files = five_segments()
        files[name(10)] = files[name(10)][: len(segment(10, 6))] + segment(16, 4)[:-1] + b"\xff"
        del files[name(10, ".index")]
        made = Folded(files, settings=PLAIN, recovery_point=30)
        (cut,) = made.outcome.cuts
        assert (cut.first_offset, cut.last_offset) == (19, 19)
        assert made.outcome.log_end_offset == 50
        assert made.outcome.holes == ()

    def test_a_hole_beside_a_cut(self) -> None:
        files = five_segments()
        del files[name(20)], files[name(20, ".index")], files[name(20, ".timeindex")]
        files[name(10)] = files[name(10)][:-1] + b"\xff"
        del files[name(10, ".index")]
        made = Folded(files, settings=PLAIN, recovery_point=30)
        assert [(cut.first_offset, cut.last_offset) for cut in made.outcome.cuts] == [(19, 19)]
        assert [(hole.first_offset, hole.last_offset) for hole in made.outcome.holes] == [(20, 29)]

    def test_a_segment_that_was_compacted_once_has_none_within(self) -> None:
        thinned = record_batch(
            base_offset=4, last_offset_delta=1, records=[record(key=b"k", value=b"v", offset_delta=1)]
        )
        assert self.holes(partition({0: segment(0, 2) + thinned + segment(8, 2)})) == []
        assert self.holes(partition({0: thinned + segment(8, 2)})) == []  # nor before it
        assert self.holes(partition({0: segment(0, 2), 3: thinned, 20: segment(20)})) == []  # nor behind it

    def test_of_very_many_the_first_are_told(self) -> None:
        made = Folded(partition({0: b"".join(batches(0, 250)[::2])}), settings=PLAIN)
        assert len(made.outcome.holes) == 100
        assert made.outcome.warnings == ("only the first 100 holes are reported; there may be more",)

    def test_magic_1_has_them_between_segments(self) -> None:
        old = message(0) + message(1)
        assert self.holes(partition({0: old, 7: message(7)})) == [(2, 6, name(7))]


class TestOpenTransactions:
    PRODUCER: ClassVar = {"producer_id": 7, "producer_epoch": 3}

    def files(self, *, is_damaged: bool) -> dict[str, bytes]:
        begun = keyed(0, b"a", transactional=True, base_sequence=0, **self.PRODUCER)
        end = marker_batch(1, **self.PRODUCER)
        return partition({0: begun + (end[:-1] + b"?" if is_damaged else b"")})

    def test_a_cut_that_takes_its_end_says_how_to_end_it(self) -> None:
        made = Folded(self.files(is_damaged=True), settings=PLAIN)
        assert [cut.first_offset for cut in made.outcome.cuts] == [1]
        (words,) = made.outcome.warnings
        assert words.startswith("1 transaction open, from offset 0 (producer 7, epoch 3) on. ")
        assert "kafka-transactions.sh --bootstrap-server HOST:PORT abort" in words
        assert words.endswith("--topic t --partition 0 --start-offset 0")

    def test_without_a_cut_it_is_the_coordinators(self) -> None:
        assert Folded(self.files(is_damaged=False), settings=PLAIN).outcome.warnings == ()

    def test_of_many_the_first_are_named_in_one_note(self) -> None:
        begun = [
            keyed(offset, b"a", transactional=True, base_sequence=0, producer_id=offset, producer_epoch=0)
            for offset in range(25)
        ]
        warnings = Folded(partition({0: b"".join(begun) + b"?"}), settings=PLAIN).outcome.warnings
        (words,) = warnings
        assert words.startswith("25 transactions open, from offset 0 (producer 0, epoch 0), 1 (")
        assert "19 (producer 19, epoch 0) and 5 more on. If the end of one was in what was cut" in words
        assert words.endswith("--start-offset OFFSET")


def cleaned(
    before: list[bytes], after: list[bytes], live: list[bytes], settings: LogSettings, **others: bytes
) -> Folded:
    """A segment at 0 of batches *before* that becomes *after*, and one behind it with *live*."""
    base = next(walk(live[0])).first_offset
    files = Folded(partition({0: b"".join(before), base: b"".join(live)}), settings=settings).tree
    return folded(with_swap(files | others, 0, b"".join(after)), settings, recovery_point=base)


class TestCompaction:
    def test_what_a_later_record_supersedes_was_removed_rightly(self) -> None:
        before = [keyed(0, b"a"), keyed(1, b"b"), keyed(2, b"a"), keyed(3, b"c")]
        made = cleaned(before, before[3:], [keyed(10, b"a"), keyed(11, b"b")], COMPACTED)
        assert made.outcome.cuts == ()
        assert made.outcome.warnings == ()

    def test_a_batch_of_few_records_may_span_all_offsets(self) -> None:
        before = [keyed(0, b"a", last_offset_delta=2**31 - 1), keyed(1, b"b"), keyed(2, b"c")]
        assert cleaned(before, before[2:], [keyed(10, b"a"), keyed(11, b"b")], COMPACTED).outcome.cuts == ()

    @pytest.mark.parametrize("settings", [COMPACTED, UNKNOWN, PLAIN], ids=["compacted", "unknown", "plain"])
    def test_a_record_that_nothing_supersedes_is_lost(self, settings: LogSettings) -> None:
        before = [keyed(0, b"a"), keyed(1, b"b"), keyed(2, b"c")]
        made = cleaned(before, before[:1], [keyed(10, b"b")], settings)
        first = 1 if settings is PLAIN else 2
        assert spans(made.outcome.cuts) == [(name(0), len(b"".join(before[:first])), 3 - first, first, 2)]

    def test_the_last_record_of_a_key_decides(self) -> None:
        before = [keyed(0, b"a"), keyed(1, b"a"), keyed(2, b"x")]
        made = cleaned(before, before[2:], [keyed(10, b"y")], COMPACTED)
        assert spans(made.outcome.cuts) == [(name(0), 0, 2, 0, 1)]

    @pytest.mark.parametrize("settings", [COMPACTED, UNKNOWN], ids=["compacted", "unknown"])
    @pytest.mark.parametrize("last", [keyed(1, b"a", None), keyed(1, None)], ids=["tombstone", "without key"])
    def test_tombstones_and_records_without_a_key_may_go(self, last: bytes, settings: LogSettings) -> None:
        """Of a topic of which nobody knows that it is compacted they are records like any other."""
        before = [keyed(0, b"z"), last, keyed(2, b"x")]
        made = cleaned(before, before[2:], [keyed(10, b"z")], settings)
        assert [cut.first_offset for cut in made.outcome.cuts] == ([] if settings is COMPACTED else [1])

    def test_markers_and_what_they_abort_may_go(self) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        before = [
            keyed(0, b"a", transactional=True, **producer),
            marker_batch(1, ABORT, producer_id=7),
            keyed(2, b"x"),
        ]
        made = cleaned(before, before[2:], [keyed(10, b"z")], COMPACTED)
        assert made.outcome.cuts == ()
        empty = encode_transaction_index(compaction.view_transaction_index(b""))
        made = cleaned(before, before[2:], [keyed(10, b"z")], COMPACTED, **{name(0, ".txnindex"): empty})
        assert [cut.batch_count for cut in made.outcome.cuts] == [1]  # nothing says that it was aborted

    def test_that_a_record_was_aborted_may_stand_in_an_index_that_comes_with_a_swap(self) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        live = [keyed(10, b"a", transactional=True, **producer), marker_batch(11, ABORT, producer_id=7)]
        files = Folded(
            partition({0: keyed(0, b"a"), 10: b"".join(live), 20: keyed(20, b"z")}), settings=COMPACTED
        ).tree
        files = with_swap(with_swap(files, 0, keyed(1, b"y")), 10, files[name(10)])
        files[name(10, ".txnindex.swap")] = files.pop(name(10, ".txnindex"))
        (cut,) = folded(files, COMPACTED, recovery_point=20).outcome.cuts
        assert (cut.file, cut.batch_count) == (name(0), 1)

    def test_an_aborted_record_supersedes_nothing(self) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        live = [keyed(10, b"a", transactional=True, **producer), marker_batch(11, ABORT, producer_id=7)]
        made = cleaned([keyed(0, b"a"), keyed(1, b"x")], [keyed(1, b"x")], live, COMPACTED)
        assert [cut.batch_count for cut in made.outcome.cuts] == [1]

    @pytest.mark.parametrize("turns", [1, 3, 20])
    def test_many_keys_are_taken_in_turns_and_too_many_not_at_all(
        self, turns: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = [keyed(offset, b"key %d" % offset) for offset in range(60)]
        monkeypatch.setattr(compaction, "MOST_RECORDS", 60 // turns + 1)
        live = [keyed(100 + offset, b"key %d" % offset) for offset in range(60) if offset != 31]
        files = Folded(partition({0: b"".join(before), 100: b"".join(live)}), settings=COMPACTED).tree
        made = Folded(with_swap(files, 0, b""), settings=COMPACTED, recovery_point=100)
        assert [cut.batch_count for cut in made.outcome.cuts] == [60 if turns == 20 else 1]


class TestARealCompaction:
    """The files of a broker before and after its cleaner was at work, put into the state between."""

    @pytest.fixture(scope="class")
    @classmethod
    def sample(cls, tmp_path_factory: pytest.TempPathFactory) -> Sample:
        return unpack("crashed", tmp_path_factory.mktemp("real"))

    @pytest.fixture(params=[FIRST, LAST], ids=["six segments", "one segment"])
    def bases(self, request: pytest.FixtureRequest) -> tuple[int, ...]:
        """Of the segments that were cleaned, into one at the first of them."""
        return request.param

    @pytest.fixture
    def folder(self, bases: tuple[int, ...], sample: Sample, tmp_path: Path) -> Path:
        """`compacted-0` in a log dir of its own: the old segments live, the cleaned one still a `.swap`."""
        found = sample.log_dirs[0] / "compacted-0"
        folder = tmp_path / "d" / found.name
        shutil.copytree(found, folder)
        (tmp_path / "d" / "recovery-point-offset-checkpoint").write_text("0\n1\ncompacted 0 1595\n")
        for suffix in (".log", ".index", ".timeindex"):
            (folder / name(bases[0], suffix)).rename(folder / name(bases[0], f"{suffix}.swap"))
        for base in bases:
            for path in folder.glob(f"{base:020d}.*.deleted"):
                path.rename(path.with_suffix(""))
        return folder

    @staticmethod
    def recovered(sample: Sample, folder: Path) -> RecoveryReport:
        """The report, once a slow reader has counted the same."""
        before = tree_of(folder)
        report = recover(sample, [folder.parent])
        after = tree_of(folder)
        assert (
            account_errors(before, after, report.partitions[0], log_start_offset=0, is_compacted=True) == []
        )
        return report

    def test_it_is_no_loss(self, sample: Sample, folder: Path) -> None:
        report = self.recovered(sample, folder)
        assert (report.exit_code, report.partitions[0].status, report.partitions[0].cuts) == (
            0,
            "recovered",
            (),
        )
        assert report.partitions[0].holes == ()
        assert sum(path.suffix == ".log" for path in folder.iterdir()) == 5
        assert not list(folder.glob("*.swap"))

    @pytest.mark.parametrize("how", ["without", "up to", "torn in"])
    def test_a_broken_swap_is_one_unless_nothing_it_lacks_counted(
        self, how: str, bases: tuple[int, ...], sample: Sample, folder: Path
    ) -> None:
        """Each batch of it in turn: some were superseded later, some are still in the old segments behind its end."""
        before, data = tree_of(folder.parent), (folder / name(bases[0], ".log.swap")).read_bytes()
        counts = []
        for batch in list(walk(data))[::3]:
            begin, end = batch.position, batch.position + len(batch.data)
            broken = {
                "without": data[:begin] + data[end:],
                "up to": data[:begin],
                "torn in": data[: end - 1],
            }[how]
            shutil.rmtree(folder.parent)
            write_tree(before | {f"{folder.name}/{name(bases[0], '.log.swap')}": broken}, folder.parent)
            report = self.recovered(sample, folder)
            counts.append(report.partitions[0].truncated_batches)
            assert report.exit_code == (2 if counts[-1] else 0)
        most = 0 if bases == FIRST else {"without": 1, "up to": 16, "torn in": 16}[how]
        assert max(counts) == most
        assert how == "without" or counts == sorted(counts, reverse=True)  # the more it has, the less is lost
