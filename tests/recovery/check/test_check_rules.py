"""The rules of `verify` one by one, on rows and entries made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from native.batch_headers import HEADER_ROW_DTYPE
from recovery.check.facts import PartitionFacts
from recovery.check.finding import Finding
from recovery.check.folder_files import FolderFiles, LocalFolder, read_folder
from recovery.check.partition import PartitionCheck
from recovery.check.rules.batches import BatchChecks, EpochRun
from recovery.check.rules.epochs import check_epochs
from recovery.check.rules.indexes import (
    OffsetIndexChecks,
    TimeIndexChecks,
    size_findings,
    without_preallocated,
)
from recovery.check.rules.producers import ProducerChecks
from recovery.check.rules.transaction_index import KnownAborts, check_transaction_index, known_aborts
from recovery.check.second_look import Recheck
from recovery.check.task import Piece, SegmentResult, SegmentTask
from recovery.load.model import LogSettings, Original, ScanMode, ScanRequest
from recovery.stop_request import StopRequest
from segfmt.byte_layout import ABORTED_TXN_DTYPE, OFFSET_INDEX_DTYPE, PRODUCER_ENTRY_DTYPE, TIME_INDEX_DTYPE
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.java_text import LONG_MAX
from segfmt.producer_snapshot import encode_producer_snapshot
from tests.logs.builders import ABORT, data_batch, marker_batch
from tests.native.scanning import scan_segment
from tests.recovery.load.memory import MemorySource

LOG = "00000000000000000100.log"


def rows(*batches: dict[str, int]) -> np.ndarray:
    """Rows of batches of 10 offsets and 100 bytes from offset 100 on, fields changed as said."""
    made = np.zeros(len(batches), HEADER_ROW_DTYPE)
    for number, changes in enumerate(batches):
        first = 100 + 10 * number
        known = {
            "position": 100 * number,
            "size_bytes": 100,
            "base_offset": first,
            "last_offset": first + 9,
            "max_timestamp_ms": 1000 + number,
            "last_offset_delta": 9,
            "leader_epoch": 3,
            "record_count": 10,
            "magic": 2,
        }
        made[number] = tuple((known | changes).get(name, 0) for name in HEADER_ROW_DTYPE.names)
    return made


SOUND = rows({}, {}, {}, {}, {})


def checked(*parts: np.ndarray, next_base_offset: int | None = None) -> BatchChecks:
    checks = BatchChecks(file=LOG, base_offset=100, next_base_offset=next_base_offset)
    for part in parts:
        checks.take(part)
    return checks


class TestBatches:
    def test_sound_ones(self) -> None:
        checks = checked(SOUND[:2], SOUND[2:], next_base_offset=150)
        assert checks.findings == checks.gaps == []
        assert (checks.first_offset, checks.last_offset, checks.batch_count) == (100, 149, 5)
        assert checks.epoch_runs == [EpochRun(epoch=3, first_offset=100, last_offset=140, position=0)]

    @pytest.mark.parametrize(
        ("changes", "rule"),
        [
            ({"magic": 3}, "magic"),
            ({"attributes": 5}, "codec"),
            ({"record_count": 11}, "record-count"),
            ({"record_count": -1}, "record-count"),
            ({"last_offset_delta": -1, "record_count": 0}, "record-count"),
            ({"base_offset": 119}, "offset-order"),
            ({"base_offset": 99}, "offset-range"),
            ({"last_offset": 100 + 2**31}, "offset-range"),
            ({"base_offset": 129, "last_offset": 128}, "offset-range"),
            ({"last_offset": 1000}, "segment-overlap"),
        ],
    )
    @pytest.mark.parametrize("cut", [1, 2, 3])
    def test_each_rule_at_its_batch(self, changes: dict[str, int], rule: str, cut: int) -> None:
        made = rows({}, {}, changes, {}, {})
        found = checked(made[:cut], made[cut:], next_base_offset=1000).findings
        assert (rule, 200) in [(one.rule, one.position) for one in found]

    def test_an_offset_twice(self) -> None:
        made = rows({}, {"base_offset": 109, "last_offset": 119})
        assert [(one.rule, one.position) for one in checked(made).findings] == [("offset-order", 100)]

    @pytest.mark.parametrize("cut", [1, 2])
    def test_a_gap_of_one(self, cut: int) -> None:
        made = rows({}, {}, {"base_offset": 121})
        checks = checked(made[:cut], made[cut:])
        assert [(one.rule, one.position) for one in checks.gaps] == [("offset-gap", 200)]
        assert checks.findings == []

    def test_no_gap_is_judged_behind_damage(self) -> None:
        checks = checked(SOUND[:1])
        checks.skip()
        checks.take(SOUND[3:])
        assert checks.findings == checks.gaps == []

    def test_fewer_records_than_offsets_tell_of_compaction(self) -> None:
        assert not checked(SOUND).has_compacted
        assert checked(rows({}, {"record_count": 9})).has_compacted

    @pytest.mark.parametrize(
        ("changes", "is_sound"),
        [
            ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}, True),
            ({"producer_id": 5, "attributes": 0x10}, True),
            ({"producer_id": 5, "base_sequence": -1, "attributes": 0x30}, True),  # a marker
            ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0x20}, False),
            ({"magic": 1, "producer_id": -1, "producer_epoch": -1, "attributes": 0x20}, True),
            ({"magic": 1, "producer_id": -1, "producer_epoch": -1, "attributes": 0x10}, True),
            ({"producer_id": -2}, False),
            ({"producer_id": 5, "producer_epoch": -1}, False),
            ({"producer_id": 5, "base_sequence": -1}, False),
            ({"producer_id": 5, "attributes": 0x20}, False),
            ({"producer_id": -1, "attributes": 0x10}, False),
        ],
    )
    def test_producers_have_their_numbers(self, changes: dict[str, int], is_sound: bool) -> None:
        found = checked(rows({}, changes, {})).findings
        assert [(one.rule, one.position) for one in found] == ([] if is_sound else [("producer-fields", 100)])

    def test_control_batches_of_the_metadata_log_have_no_producer(self) -> None:
        control = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0x20}
        checks = BatchChecks(file=LOG, base_offset=100, next_base_offset=None, is_metadata_log=True)
        checks.take(rows({}, control, {}))
        assert checks.findings == []

    def test_wrappers_have_no_base_offset(self) -> None:
        wrapper = {"magic": 1, "attributes": 1, "record_count": -1, "base_offset": 119}
        checks = checked(rows({}, wrapper))
        assert checks.findings == checks.gaps == []


class TestOffsetIndex:
    def check(self, *entries: tuple[int, int], cut: int = 2, is_whole: bool = True) -> list[Finding]:
        """Entries (offset, position) against five batches that come in two chunks."""
        made = np.array([(offset - 100, position) for offset, position in entries], OFFSET_INDEX_DTYPE)
        checks = OffsetIndexChecks("x.index", 100, made)
        checks.take(SOUND[:cut], 100 * cut)
        checks.take(SOUND[cut:], 500)
        return checks.finish(500, is_whole=is_whole)

    @pytest.mark.parametrize("cut", [1, 2, 3, 4])
    def test_possible_ones(self, cut: int) -> None:
        assert self.check((119, 100), (139, 300), cut=cut) == []
        assert self.check((129, 100), (149, 400), cut=cut) == [], "an append of two batches"
        assert self.check((149, 100), cut=cut) == [], "an append of four"
        assert self.check() == []

    @pytest.mark.parametrize("cut", [1, 2, 3, 4])
    @pytest.mark.parametrize(
        ("entries", "entry", "rule"),
        [
            ([(119, 101)], 0, "index-entry"),
            ([(129, 101)], 0, "index-entry"),
            ([(119, 100), (129, 201)], 1, "index-entry"),
            ([(118, 100)], 0, "index-entry"),
            ([(128, 100)], 0, "index-entry"),
            ([(139, 100), (149, 200)], 0, "index-entry"),
            ([(150, 100)], 0, "index-entry"),
            ([(119, 100), (129, 500)], 1, "index-entry"),
            ([(119, 100), (119, 200)], 1, "index-order"),
            ([(119, 100), (129, 100)], 1, "index-order"),
            ([(99, 0)], 0, "malformed-entry"),
            ([(109, -100)], 0, "malformed-entry"),
        ],
    )
    def test_impossible_ones(
        self, entries: Sequence[tuple[int, int]], entry: int, rule: str, cut: int
    ) -> None:
        found = self.check(*entries, cut=cut)
        assert [(one.rule, one.position) for one in found] == [(rule, 8 * entry)]

    def test_what_was_not_read_is_not_judged(self) -> None:
        assert self.check((119, 100), (199, 900), is_whole=False) == []

    def test_zeros_at_the_end(self) -> None:
        entries = np.array([(19, 100), (0, 0), (0, 0)], OFFSET_INDEX_DTYPE)
        assert len(without_preallocated(entries)) == 1
        assert len(without_preallocated(entries[1:])) == 0
        assert len(without_preallocated(entries[:0])) == 0

    def test_sizes(self) -> None:
        assert size_findings("x", 24, 12) == []
        assert [one.position for one in size_findings("x", 25, 12)] == [24]


class TestTimeIndex:
    def check(self, *entries: tuple[int, int], cut: int = 2, made: np.ndarray = SOUND) -> list[Finding]:
        """Entries (timestamp, offset) against five batches, the greatest timestamps 1000 to 1004."""
        index = np.array([(time_ms, offset - 100) for time_ms, offset in entries], TIME_INDEX_DTYPE)
        checks = TimeIndexChecks("x.timeindex", 100, index)
        checks.take(made[:cut])
        checks.take(made[cut:])
        return checks.finish(is_whole=True)

    @pytest.mark.parametrize("cut", [1, 2, 3, 4])
    def test_possible_ones(self, cut: int) -> None:
        assert self.check((1001, 119), (1004, 149), cut=cut) == []
        assert self.check((1001, 113), cut=cut) == [], "the very record, as brokers before 4.0 have it"

    @pytest.mark.parametrize("cut", [1, 2, 3, 4])
    @pytest.mark.parametrize(
        ("entries", "entry", "rule"),
        [
            ([(1002, 119)], 0, "index-entry"),
            ([(1000, 119)], 0, "index-entry"),
            ([(1001, 119), (1004, 139)], 1, "index-entry"),
            ([(1004, 150)], 0, "index-entry"),
            ([(1001, 119), (1001, 129)], 1, "index-order"),
            ([(1002, 129), (1003, 119)], 1, "index-order"),
            ([(1001, 99)], 0, "malformed-entry"),
        ],
    )
    def test_impossible_ones(
        self, entries: Sequence[tuple[int, int]], entry: int, rule: str, cut: int
    ) -> None:
        found = self.check(*entries, cut=cut)
        assert [(one.rule, one.position) for one in found] == [(rule, 12 * entry)]

    def test_nothing_earlier_is_greater(self) -> None:
        late = rows({}, {"max_timestamp_ms": 9000}, {}, {}, {})
        assert self.check((1003, 139), made=late) != []
        assert self.check((9000, 119), made=late) == []


class TestTransactionIndex:
    EXPECTED = np.array([(0, 7, 100, 119, 120), (0, 8, 105, 129, 130)], ABORTED_TXN_DTYPE)

    def check(self, *entries: tuple[int, ...], next_epoch: int = LONG_MAX, **fields: object) -> list[str]:
        known = {"base_offset": 100, "end_offset": 150, "is_complete": True, "is_compacted": False}
        made = np.array(list(entries), ABORTED_TXN_DTYPE)
        aborts = KnownAborts(self.EXPECTED, np.array([140, LONG_MAX]), np.array([next_epoch, LONG_MAX]))
        return [one.rule for one in check_transaction_index("x", made, aborts, **(known | fields))]

    def test_the_expected_ones(self) -> None:
        assert self.check(*self.EXPECTED.tolist()) == []

    def test_an_abort_without_entry(self) -> None:
        assert self.check(self.EXPECTED.tolist()[0]) == ["transaction-index-missing"]
        assert self.check(self.EXPECTED.tolist()[0], is_compacted=True) == []

    @pytest.mark.parametrize("place", range(5))
    def test_each_field(self, place: int) -> None:
        entries = [list(entry) for entry in self.EXPECTED.tolist()]
        entries[1][place] += -1 if place == 4 else 1
        rule = "malformed-entry" if place == 0 else "transaction-index-entry"
        assert rule in self.check(*map(tuple, entries))

    @pytest.mark.parametrize(
        "entry",
        [
            (0, 0, 0, 0, 0),
            (256, 7, 100, 119, 120),
            (0, 7, 90, 99, 95),
            (0, 7, 119, 119, 119),
            (0, 7, -1, 119, 119),
            (0, 7, 100, 119, -1),
        ],
    )
    def test_what_no_broker_writes_says_nothing_about_the_log(self, entry: tuple[int, ...]) -> None:
        rules = self.check(entry, self.EXPECTED.tolist()[1])
        assert "malformed-entry" in rules
        assert "transaction-index-entry" not in rules

    @pytest.mark.parametrize(
        ("stable", "is_right"), [(120, True), (140, True), (139, False), (141, False), (119, False)]
    )
    def test_a_follower_knows_of_the_transaction_that_began_next_behind_the_marker(
        self, stable: int, is_right: bool
    ) -> None:
        entries = [(0, 7, 100, 119, stable), self.EXPECTED.tolist()[1]]
        assert self.check(*entries) == ([] if is_right else ["transaction-index-entry"])

    @pytest.mark.parametrize(
        ("next_epoch", "stable", "is_right"),
        [
            (135, 134, False), (135, 135, True), (135, 160, True), (135, 120, True), (135, 119, False),
            (140, 141, True), (141, 142, False), (141, 140, True),
        ],
    )  # fmt: skip
    def test_the_transaction_that_it_knew_of_may_have_been_cut_where_the_next_leader_epoch_begins(
        self, next_epoch: int, stable: int, is_right: bool
    ) -> None:
        entries = [(0, 7, 100, 119, stable), self.EXPECTED.tolist()[1]]
        assert self.check(*entries, next_epoch=next_epoch) == (
            [] if is_right else ["transaction-index-entry"]
        )

    def test_it_knows_as_well_of_one_that_is_open_from_before(self) -> None:
        expected = np.array([(0, 7, 100, 119, 105)], ABORTED_TXN_DTYPE)
        known = {"base_offset": 100, "end_offset": 150, "is_complete": True, "is_compacted": False}
        made = np.array([(0, 7, 100, 119, 121)], ABORTED_TXN_DTYPE)
        aborts = KnownAborts(expected, np.array([121]), np.array([120]))
        (found,) = check_transaction_index("x", made, aborts, **known)
        detail = "last stable offset 121, by the log it was 105"
        assert (found.rule, found.detail) == ("transaction-index-entry", detail)

    def test_the_next_begin_is_that_of_another_producer(self) -> None:
        begins = np.array([(100, 7), (105, 8), (120, 7), (125, 7), (130, 7), (135, 9)])
        entries = np.array([(0, 7, 100, 119, 0), (0, 8, 105, 126, 0), (0, 7, 130, 134, 0)], ABORTED_TXN_DTYPE)
        pieces = (
            ([entries], [begins]),
            ([entries[:1], entries[1:]], [begins[:3], np.empty((0, 2), np.int64), begins[3:]]),
        )
        for known in (known_aborts(*one, [126, 130]) for one in pieces):
            assert known.entries.tolist() == entries.tolist()
            assert known.next_begins.tolist() == [135, 130, 135]
            assert known.next_epochs.tolist() == [126, 130, LONG_MAX]
            assert known.ended_at(140).next_epochs.tolist() == [126, 130, 140]
            assert known.before(127).next_epochs.tolist() == [126, 130]
        assert known_aborts([entries[2:]], [begins[:5]], []).next_begins.tolist() == [LONG_MAX]
        assert known_aborts([entries], [], []).next_begins.tolist() == [LONG_MAX] * 3
        assert known_aborts([], [begins], []).next_begins.tolist() == []

    def test_what_began_before_the_log_is_not_known(self) -> None:
        entries = [(0, 9, 3, 110, 111), *self.EXPECTED.tolist()]
        assert self.check(*entries) == ["transaction-index-entry"]
        assert self.check(*entries, is_complete=False) == []

    def test_an_entry_behind_the_log(self) -> None:
        entries = [*self.EXPECTED.tolist(), (0, 9, 130, 150, 151)]
        assert self.check(*entries, is_complete=False) == ["transaction-index-entry"]


class TestEpochs:
    def check(
        self, runs: Sequence[tuple[int, int, int]], entries: Sequence[tuple[int, int]], **fields: object
    ) -> list[tuple[str, str]]:
        """Runs (epoch, first offset, last offset) and lines (epoch, start offset)."""
        placed = [
            (LOG, EpochRun(epoch=epoch, first_offset=first, last_offset=last, position=first))
            for epoch, first, last in runs
        ]
        known = {"log_end_offset": 300, "is_clean": True}
        found = check_epochs(placed, [LeaderEpochEntry(*entry) for entry in entries], **(known | fields))
        return [(one.rule, one.severity) for one in found]

    def test_sound_ones(self) -> None:
        runs = [(1, 0, 90), (1, 100, 140), (2, 150, 190), (4, 200, 290)]
        assert self.check(runs, [(1, 0), (2, 150), (4, 200)]) == []
        assert self.check(runs, [(2, 150), (4, 200)]) == [], "the file begins in the middle of the log"
        assert self.check([(-1, 0, 50), (1, 60, 90)], [(1, 60)]) == [], "written before there were epochs"
        assert self.check(runs, [(4, 295)]) == [], "the log start lies within the last batch"
        assert self.check([], [(1, 0)]) == []
        assert self.check(runs, [(1, 0), (2, 150), (4, 200), (5, 300)]) == [], "a leader that wrote nothing"

    def test_what_lies_before_the_log_start_need_not_be_known(self) -> None:
        """A broker forgets it: when it has deleted all records, and at the next load the last line, too."""
        runs = [(1, 0, 90), (2, 100, 190)]
        assert self.check(runs, [], log_start_offset=191) == []
        assert self.check(runs, [(3, 191)], log_start_offset=191) == []
        assert self.check(runs, [], log_start_offset=190) == [("missing-epochs", "damage")]
        assert self.check(runs, [(3, 191)], log_start_offset=190) == [("epoch-content", "damage")]

    def test_a_line_that_begins_within_a_batch(self) -> None:
        runs = [(1, 0, 90), (2, 100, 140), (4, 200, 290)]
        for entries in (
            [(1, 0), (2, 95), (4, 200)],
            [(1, 0), (2, 100), (3, 150), (4, 200)],
            [(1, 0), (2, 100), (4, 200), (5, 295)],
        ):
            assert self.check(runs, entries, has_all_batches=True) == [("epoch-content", "damage")]
            assert self.check(runs, entries) == [], "a cleaner may have removed batches"
        whole = [(1, 20), (2, 100), (4, 200), (5, 300)]
        assert self.check(runs, whole, has_all_batches=True) == [], "retention has moved the first one"

    @pytest.mark.parametrize(
        ("runs", "entries", "rule"),
        [
            ([(1, 0, 90), (9, 100, 100), (1, 110, 190)], [(1, 0)], "leader-epoch"),
            ([(1, 0, 90), (0, 100, 100), (1, 110, 190)], [(1, 0)], "leader-epoch"),
            ([(1, 0, 90), (9, 100, 100)], [(1, 0)], "leader-epoch"),
            ([(1, 0, 90), (-1, 100, 100), (1, 110, 190)], [(1, 0)], "leader-epoch"),
            ([(-1, 0, 50), (1, 60, 90)], [(1, 0)], "leader-epoch"),
            ([(-1, 0, 50)], [(1, 0)], "leader-epoch"),
            ([(1, 0, 90), (-1, 100, 100)], [(2, 200)], "leader-epoch"),
            ([(3, 0, 90), (4, 100, 190)], [(4, 150)], "epoch-content"),
            ([(1, 0, 90), (2, 100, 190)], [(1, 0), (2, 90)], "epoch-content"),
            ([(1, 0, 90)], [], "missing-epochs"),
            ([(1, 0, 90)], [(2, 0), (1, 50)], "epoch-content"),
            ([(1, 0, 90)], [(1, 50), (2, 50)], "epoch-content"),
            ([(1, 0, 90)], [(-1, 0)], "epoch-content"),
            ([(1, 0, 90)], [(1, 0), (2, 301)], "epoch-content"),
            ([(0, 0, 90)], [(7, 0)], "epoch-content"),  # several batches are right, or one
            ([(0, 0, 90)], [(7, 91)], "epoch-content"),
            ([(0, 0, 0)], [(7, 0)], "leader-epoch"),
            ([(0, 0, 0), (0, 10, 10)], [(7, 0)], "epoch-content"),
        ],
    )
    def test_contradictions(
        self, runs: Sequence[tuple[int, int, int]], entries: Sequence[tuple[int, int]], rule: str
    ) -> None:
        expected = [] if runs[0][0] == 3 else [(rule, "damage")]
        assert self.check(runs, entries)[:1] == expected

    def test_a_line_behind_the_end_is_a_note_after_a_crash(self) -> None:
        assert self.check([(1, 0, 90)], [(1, 0), (2, 301)], is_clean=False) == [("epoch-content", "note")]
        assert self.check([(1, 0, 90)], [(1, 0), (2, 301)], log_end_offset=None) == []


class TestProducers:
    NOW_MS = 10**13

    def log(self) -> bytes:
        """Producer 7 writes twice, in a transaction that is aborted; producer 8 once; offsets 0 to 4."""
        return b"".join(
            [
                data_batch(0, 1, producer_id=7, producer_epoch=2, base_sequence=0, transactional=True),
                data_batch(1, 1, producer_id=8, producer_epoch=0, base_sequence=5),
                data_batch(2, 1, producer_id=7, producer_epoch=2, base_sequence=1, transactional=True),
                marker_batch(3, producer_id=7, producer_epoch=2, coordinator_epoch=4, control_type=0),
            ]
        )

    def entries(self) -> np.ndarray:
        """What the log says."""
        scan = scan_segment(np.frombuffer(self.log(), np.uint8), base_offset=0, build_index=False)
        checks = self.checks({})
        checks.take(LOG, scan)
        return checks._own_entries(4)

    def checks(self, snapshots: dict[int, bytes], **fields: int) -> ProducerChecks:
        known = {"start_offset": 0, "log_start_offset": 0, "now_ms": self.NOW_MS, "expiration_ms": 10**15}
        return ProducerChecks(snapshots, **(known | fields))

    def found(self, entries: np.ndarray, **fields: int) -> list[str]:
        checks = self.checks({4: encode_producer_snapshot(entries.astype(PRODUCER_ENTRY_DTYPE))}, **fields)
        scan = scan_segment(np.frombuffer(self.log(), np.uint8), base_offset=0, build_index=False)
        aborted = checks.take(LOG, scan)
        assert [tuple(row)[1:4] for row in aborted.tolist()] == [(7, 0, 3)]
        checks.reach(4)
        return [one.detail for one in checks.findings]

    def test_what_the_log_says(self) -> None:
        assert self.found(self.entries()) == []
        assert self.found(self.entries()[::-1]) == [], "in any order"

    @pytest.mark.parametrize("name", [name for name in PRODUCER_ENTRY_DTYPE.names if name != "producer_id"])
    @pytest.mark.parametrize("place", [0, 1])
    def test_each_field(self, name: str, place: int) -> None:
        entries = self.entries().copy()
        if name == "coordinator_epoch" and entries[name][place] < 0:
            return  # producer 8 has no marker: nothing is known of its coordinator
        entries[name][place] += 1 if name != "last_offset" else -1
        if entries[name][place] < 0:
            return  # no offset: a producer that has expired and come back
        assert len(self.found(entries)) == 1, name

    def test_absent_ones(self) -> None:
        assert self.found(self.entries()[:1]) == ["producer 8 is missing"]
        assert self.found(self.entries()[:1], expiration_ms=0) == [], "it has expired"
        assert self.found(self.entries()[:1], log_start_offset=2) == [], "it is before the log's start"

    def test_one_that_has_written_nothing(self) -> None:
        entries = np.concatenate([self.entries(), self.entries()[:1]])
        entries["producer_id"][-1] = 99
        assert self.found(entries) == ["producer 99 has written nothing"]
        assert self.found(entries, start_offset=1) == [], "what was before the log is not known"


def live_facts(folder: Path) -> PartitionFacts:
    """A folder of one segment, for which a broker holds the lock."""
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"x" * 10)
    for suffix in ("index", "timeindex"):
        (folder / f"{0:020d}.{suffix}").touch()
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: Ql39DSphRbO0LGsT-wh4cQ")
    return PartitionFacts(
        path=str(folder), folder="t-0", topic="t", partition=0, is_live=True, had_clean_shutdown=False,
        recovery_point=None, log_start_offset=None, high_watermark=None, is_contiguous=True,
    )  # fmt: skip


@pytest.mark.parametrize(("earlier_end", "count"), [(None, 1), (0, 0), (1, 0), (2, 1)])
def test_an_abort_that_came_after_the_index_was_read(
    tmp_path: Path, earlier_end: int | None, count: int
) -> None:
    """Beside a broker; one that an earlier look has seen in the log must be in the index that is read afterwards."""
    facts = live_facts(tmp_path / "t-0")
    files = read_folder(LocalFolder(facts.path), is_live=True)
    check = PartitionCheck(facts, files, None if earlier_end is None else {0: earlier_end})
    producer = {"producer_id": 7, "producer_epoch": 0}
    log = data_batch(0, transactional=True, base_sequence=0, **producer) + marker_batch(1, ABORT, **producer)
    request = ScanRequest(
        part=Original(file=LOG, size_bytes=len(log)), base_offset=0, start_position=0, mode=ScanMode.RECOVER
    )
    scan = MemorySource({LOG: log}, LogSettings()).scan(request)
    (task,) = check.tasks()
    check.take(SegmentResult(task=task, pieces=[Piece(scan=scan)], last_offset=1, batch_count=2))
    rules = [one.rule for one in check.finish()]
    assert rules.count("transaction-index-missing") == count


class TestRecheck:
    """A folder of one segment, read by a function that the test gives."""

    def confirm(self, folder: Path, looks: Sequence[list[Finding]]) -> list[Finding]:
        facts = live_facts(folder)
        left = list(looks[1:])

        def read(task: SegmentTask) -> SegmentResult:
            return SegmentResult(task=task, findings=left.pop(0) if left else looks[-1])

        recheck = Recheck(facts=facts, read=read, stop=StopRequest())
        recheck._wait = lambda _seconds: None  # type: ignore[method-assign]  # nothing changes by waiting
        files: FolderFiles = read_folder(LocalFolder(str(folder)), is_live=True)
        return recheck.confirm(list(looks[0]), [], files)

    def finding(self, position: int) -> Finding:
        return Finding(file=f"{0:020d}.log", position=position, rule="checksum", detail="")

    def test_what_is_found_twice_is_said(self, tmp_path: Path) -> None:
        assert self.confirm(tmp_path / "t-0", [[self.finding(1)], [self.finding(1)]]) == [self.finding(1)]

    def test_what_is_found_once_is_not(self, tmp_path: Path) -> None:
        assert self.confirm(tmp_path / "t-0", [[self.finding(1)], []]) == []

    def test_what_moves_is_looked_at_again(self, tmp_path: Path) -> None:
        looks = [[self.finding(1)], [self.finding(2)], [self.finding(3)], []]
        assert self.confirm(tmp_path / "t-0", looks) == []

    def test_what_never_rests_is_not_checked(self, tmp_path: Path) -> None:
        looks = [[self.finding(position)] for position in range(9)]
        (found,) = self.confirm(tmp_path / "t-0", looks)
        assert (found.rule, found.severity) == ("changing", "unchecked")
