"""The fold on partitions in memory. Names as in Kafka's LogLoaderTest where there is such a test."""

from __future__ import annotations

import pickle
import random
import struct

import pytest

from recovery.errors import PartitionRefusedError
from recovery.load.forecast import unflushed_segments
from recovery.load.model import LogSettings, RemovalKind, ScanMode
from tests.logs import builders
from tests.logs.builders import BASE_TIMESTAMP_MS, data_batch, marker_batch, recompute_crc
from tests.recovery.load.memory import Folded, name, partition, task_of

SIZE = len(data_batch(0, 1))
BASES = (0, 10, 20)


def segment(base: int, count: int = 10, **fields: object) -> bytes:
    """*count* batches of one record, from offset *base* on."""
    defaults = {"leader_epoch": min(base, 20) // 10}
    return b"".join(
        data_batch(offset, base_timestamp_ms=BASE_TIMESTAMP_MS + offset, **(defaults | fields))
        for offset in range(base, base + count)
    )


def three_segments() -> dict[str, bytes]:
    return partition({base: segment(base) for base in BASES})


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


class TestUnflushedSegments:
    @pytest.mark.parametrize(
        ("recovery_point", "expected"),
        [
            (0, [0, 10, 20]),
            (9, [0, 10, 20]),
            (10, [10, 20]),
            (19, [10, 20]),
            (25, [20]),
            (1000, [20]),
            (-5, [0, 10, 20]),
            (2**63 - 1, []),
        ],
    )
    def test_those_from_the_one_with_the_recovery_point_on(
        self, recovery_point: int, expected: list[int]
    ) -> None:
        files = three_segments()
        task = task_of(files, recovery_point=recovery_point)
        assert [base for _, base, _ in unflushed_segments(task)] == expected
        folded = Folded(files, recovery_point=recovery_point)
        assert sorted(folded.outcome.tree[name(base)].size_bytes for base in expected) == [10 * SIZE] * len(
            expected
        )
        assert folded.outcome.recovered_segments == len(expected)

    def test_none_after_a_clean_shutdown_or_in_a_folder_to_be_deleted(self) -> None:
        files = three_segments()
        assert unflushed_segments(task_of(files, had_clean_shutdown=True)) == []
        assert unflushed_segments(task_of(files, folder="t-0.0011-delete")) == []

    def test_foreign_names_are_no_segments_of_the_forecast(self) -> None:
        files = {"abc.log": b"", "٣.log": b"", "7.log": b"x"}
        assert [file for file, _, _ in unflushed_segments(task_of(files))] == ["7.log"]


class TestIntactLog:
    def test_indexes_are_built_by_kafkas_rule(self) -> None:
        folded = Folded(three_segments())
        entries = folded.index(10)
        assert entries[0] == (2, 2 * SIZE)  # the first batch is never indexed; more than 100 bytes since
        assert all(position == relative * SIZE for relative, position in entries)
        assert folded.time_index(10)[-1] == (BASE_TIMESTAMP_MS + 19, 9)

    def test_an_index_interval_of_0_indexes_every_batch_but_the_first(self) -> None:
        folded = Folded(three_segments(), settings=LogSettings(index_interval_bytes=0))
        assert [relative for relative, _ in folded.index(0)] == list(range(1, 10))

    def test_logs_keep_their_bytes(self) -> None:
        files = three_segments()
        folded = Folded(files)
        assert all(folded.tree[name(base)] == files[name(base)] for base in BASES)
        assert folded.outcome.cuts == ()
        assert (folded.outcome.log_start_offset, folded.outcome.log_end_offset) == (0, 30)

    def test_leader_epochs_come_from_the_batches(self) -> None:
        assert Folded(three_segments()).epochs() == [(0, 0), (1, 10), (2, 20)]

    def test_snapshots_at_the_last_two_bases_and_the_end(self) -> None:
        # LogLoaderTest.testRecoveringProducerState...: of those taken on the way only these stay.
        assert Folded(three_segments()).snapshots() == [10, 20, 30]

    def test_folding_twice_changes_nothing_more(self) -> None:
        first = Folded(three_segments())
        second = Folded(first.tree)
        assert second.tree == first.tree
        clean = Folded(first.tree, had_clean_shutdown=True, recovery_point=30)
        assert clean.tree == first.tree
        assert clean.outcome.scanned_bytes == 0

    def test_each_segment_is_scanned_once(self) -> None:
        folded = Folded(three_segments())
        scans = [request for request in folded.source.requests if request.mode is ScanMode.RECOVER]
        assert [(scan.base_offset, scan.ordinal, scan.count) for scan in scans] == [
            (0, 1, 3),
            (10, 2, 3),
            (20, 3, 3),
        ]
        assert folded.outcome.scanned_bytes == 30 * SIZE

    def test_the_outcome_can_be_sent_to_another_process(self) -> None:
        folded = Folded(three_segments())
        assert pickle.loads(pickle.dumps(folded.task)) == folded.task
        assert pickle.loads(pickle.dumps(folded.outcome)) == folded.outcome


class TestCorruptLog:
    """LogLoaderTest.testCorruptLog and its neighbours."""

    def test_a_bad_batch_cuts_its_segment_and_deletes_those_behind(self) -> None:
        files = three_segments()
        files[name(10)] = flipped(files[name(10)], 4 * SIZE + 65)
        folded = Folded(files)
        assert folded.tree[name(10)] == files[name(10)][: 4 * SIZE]
        assert folded.tree[name(20) + ".deleted"] == files[name(20)]
        assert name(20) not in folded.tree
        assert folded.outcome.log_end_offset == 14
        assert folded.epochs() == [(0, 0), (1, 10)]
        first, second = folded.outcome.cuts
        assert (first.file, first.position, first.batch_count) == (name(10), 4 * SIZE, 6)
        assert first.reason == "a batch whose CRC does not match"
        assert (second.file, second.position, second.batch_count) == (name(20), 0, 10)
        assert second.reason == f"after the cut in {name(10)}"

    def test_a_snapshot_at_the_base_of_a_deleted_segment_goes_with_it(self) -> None:
        files = Folded(three_segments()).tree
        files[name(10)] += b"junk"  # the snapshot behind the last good batch is taken at the next base
        folded = Folded(files)
        assert folded.outcome.log_end_offset == 20
        assert name(20, ".snapshot.deleted") in folded.tree
        assert folded.snapshots() == [10, 20]

    def test_damage_in_a_flushed_segment_is_not_noticed(self) -> None:
        files = three_segments()
        files[name(0)] = flipped(files[name(0)], 4 * SIZE + 65)
        folded = Folded(files, recovery_point=10)
        assert folded.tree[name(0)] == files[name(0)]
        assert folded.outcome.cuts == ()

    def test_a_flushed_segment_without_index_is_cut_and_leaves_a_hole(self) -> None:
        files = three_segments()
        files[name(0)] = flipped(files[name(0)], 4 * SIZE + 65)
        del files[name(0, ".index")]
        folded = Folded(files, recovery_point=20)
        assert folded.tree[name(0)] == files[name(0)][: 4 * SIZE]
        assert {name(10), name(20)} <= set(folded.tree)
        (warning,) = folded.outcome.warnings
        assert warning.startswith(f"{name(0)}: cut while its index was rebuilt; later segments stay")

    @pytest.mark.parametrize("kept", [0, 1, 17, 18, 60, 61, SIZE - 1])
    def test_a_torn_tail_at_any_byte(self, kept: int) -> None:
        files = three_segments()
        files[name(20)] = files[name(20)][: 9 * SIZE + kept]
        folded = Folded(files)
        assert folded.tree[name(20)] == files[name(20)][: 9 * SIZE]
        assert folded.outcome.log_end_offset == 29
        assert [cut.size_bytes for cut in folded.outcome.cuts] == ([kept] if kept else [])

    def test_a_clean_shutdown_believes_the_last_segment(self) -> None:
        files = three_segments()
        files[name(20)] = files[name(20)][:-5]
        folded = Folded(files, had_clean_shutdown=True)
        assert folded.tree[name(20)] == files[name(20)]
        assert folded.outcome.log_end_offset == 29

    def test_locality_damage_changes_nothing_before_it(self) -> None:
        files, whole = three_segments(), Folded(three_segments())
        rng = random.Random(7)
        for _ in range(40):
            position = rng.randrange(21, 10 * SIZE)
            damaged = files | {name(10): flipped(files[name(10)], position)}
            try:
                folded = Folded(damaged)
            except PartitionRefusedError:
                continue
            assert folded.tree[name(0)] == whole.tree[name(0)]
            assert folded.tree[name(0, ".index")] == whole.tree[name(0, ".index")]
            assert files[name(10)].startswith(folded.tree[name(10)][: position // SIZE * SIZE])

    def test_preallocated_zeros_are_no_loss(self) -> None:
        files = three_segments()
        files[name(20)] += bytes(5000)
        settings = LogSettings(index_interval_bytes=100, preallocate=True)
        (cut,) = Folded(files, settings=settings).outcome.cuts
        assert cut.is_preallocated
        assert cut.reason == "zeros of a preallocated file"
        (cut,) = Folded(files).outcome.cuts
        assert not cut.is_preallocated

    def test_preallocated_zeros_behind_a_cut_are_no_loss_either(self) -> None:
        files = three_segments()
        whole = len(files[name(20)])
        files[name(20)] = flipped(files[name(20)], 400) + bytes(5000)
        settings = LogSettings(index_interval_bytes=100, preallocate=True)
        (cut,) = Folded(files, settings=settings).outcome.cuts
        assert cut.position + cut.size_bytes == whole
        assert (cut.is_preallocated, cut.known_last_offset) == (False, cut.last_offset)
        (cut,) = Folded(files).outcome.cuts
        assert cut.position + cut.size_bytes == whole + 5000

    def test_a_cut_at_the_first_byte_is_never_preallocation(self) -> None:
        files = partition({0: bytes(5000)})
        settings = LogSettings(index_interval_bytes=100, preallocate=True)
        (cut,) = Folded(files, settings=settings).outcome.cuts
        assert cut.size_bytes == 5000

    def test_an_empty_segment_in_the_middle_stays(self) -> None:
        files = three_segments() | {name(10): b""}
        folded = Folded(files)
        assert folded.outcome.segment_count == 3
        assert folded.tree[name(10)] == b""


class TestOutOfOrder:
    """Differs from Kafka: the batches before the one out of order stay."""

    def test_the_tail_from_that_batch_on_is_cut(self) -> None:
        batches = [data_batch(offset) for offset in (0, 1, 2, 3, 4, 1, 6)]
        folded = Folded(partition({0: b"".join(batches)}), settings=LogSettings(index_interval_bytes=0))
        assert folded.tree[name(0)] == b"".join(batches[:5])
        assert folded.outcome.cuts[0].reason == "a batch whose offset is out of order"

    def test_the_time_index_has_its_last_entry_right_before_the_cut(self) -> None:
        # 100 bytes: every second batch is indexed, so 500, and 4 is out of order; 3 has the greatest timestamp
        stamped = ((0, 0), (1, 1), (500, 1), (3, 5), (4, 6), (5, 7))
        batches = [data_batch(offset, base_timestamp_ms=BASE_TIMESTAMP_MS + late) for offset, late in stamped]
        folded = Folded(partition({0: b"".join(batches)}))
        assert folded.tree[name(0)] == b"".join(batches[:4])
        assert folded.index(0) == [(500, 2 * SIZE)]
        assert folded.time_index(0) == [(BASE_TIMESTAMP_MS + 1, 1), (BASE_TIMESTAMP_MS + 5, 3)]

    def test_what_is_left_may_end_in_another_batch_out_of_order(self) -> None:
        stamped = (
            (0, 0),
            (1, 1),
            (500, 2),
            (3, 9),
            (4, 3),
        )  # offset, timestamp: the greatest one lies behind 500
        batches = [data_batch(offset, base_timestamp_ms=BASE_TIMESTAMP_MS + late) for offset, late in stamped]
        folded = Folded(partition({0: b"".join(batches)}))
        assert folded.tree[name(0)] == b"".join(batches[:3])
        assert folded.time_index(0)[-1] == (BASE_TIMESTAMP_MS + 2, 500)
        (cut,) = folded.outcome.cuts
        assert (cut.position, cut.batch_count) == (3 * SIZE, 2)

    def test_without_index_it_stops_the_broker(self) -> None:
        files = partition({0: b"".join(data_batch(offset) for offset in (0, 1, 2, 1, 4))})
        del files[name(0, ".index")]
        with pytest.raises(PartitionRefusedError, match="InvalidOffsetException stops the broker"):
            Folded(files, settings=LogSettings(index_interval_bytes=0))

    def test_not_at_an_index_point_it_is_taken(self) -> None:
        batches = [data_batch(offset) for offset in (0, 5, 3, 6)]
        folded = Folded(partition({0: b"".join(batches)}), settings=LogSettings(index_interval_bytes=10_000))
        assert folded.tree[name(0)] == b"".join(batches)
        assert folded.outcome.log_end_offset == 7


class TestIndexFiles:
    def test_rebuild_of_missing_indexes(self) -> None:
        # LogLoaderTest.testIndexRebuild
        whole = Folded(three_segments())
        files = {file: data for file, data in whole.tree.items() if not file.endswith("index")}
        folded = Folded(files, had_clean_shutdown=True)
        for base in BASES:
            assert folded.index(base) == whole.index(base)
            assert folded.time_index(base) == whole.time_index(base)

    def test_a_missing_time_index_becomes_an_empty_one(self) -> None:
        files = Folded(three_segments()).tree
        del files[name(0, ".timeindex")]
        folded = Folded(files, had_clean_shutdown=True)
        assert folded.tree[name(0, ".timeindex")] == b""

    def test_bogus_index_segments_are_removed(self) -> None:
        # LogLoaderTest.testBogusIndexSegmentsAreRemoved
        files = three_segments() | {
            name(5, ".index"): b"x",
            name(5, ".timeindex"): b"x",
            name(5, ".txnindex"): b"x",
        }
        folded = Folded(files)
        assert not any(file.startswith(name(5, "")) for file in folded.tree)

    def test_a_transaction_index_appears_with_the_first_abort(self) -> None:
        own = {"producer_id": 7, "producer_epoch": 0}
        data = data_batch(0, transactional=True, base_sequence=0, **own) + marker_batch(
            1, builders.ABORT, **own
        )
        folded = Folded(partition({0: data, 2: segment(2, 3)}))
        assert struct.unpack(">hqqqq", folded.tree[name(0, ".txnindex")]) == (0, 7, 0, 1, 2)
        assert name(2, ".txnindex") not in folded.tree

    def test_one_that_is_there_is_emptied_and_kept(self) -> None:
        folded = Folded(three_segments() | {name(0, ".txnindex"): bytes(34)})
        assert folded.tree[name(0, ".txnindex")] == b""

    def test_a_transaction_index_below_its_base_has_its_segment_recovered(self) -> None:
        files = Folded(three_segments()).tree | {name(20, ".txnindex"): struct.pack(">hqqqq", 0, 7, 1, 2, 3)}
        folded = Folded(files, had_clean_shutdown=True)
        assert folded.outcome.recovered_segments == 1
        assert folded.tree[name(20, ".txnindex")] == b""

    def test_one_of_another_version_stops_the_broker(self) -> None:
        files = three_segments() | {name(0, ".txnindex"): struct.pack(">hqqqq", 256, 7, 1, 2, 3)}
        with pytest.raises(PartitionRefusedError) as raised:
            Folded(files)
        assert raised.value.file == name(0, ".txnindex")

    def test_more_entries_than_fit_stop_the_broker(self) -> None:
        with pytest.raises(PartitionRefusedError, match=r"index entries than segment\.index\.bytes holds"):
            Folded(three_segments(), settings=LogSettings(index_interval_bytes=0, segment_index_bytes=16))

    def test_an_active_index_that_is_too_long_stops_a_clean_start(self) -> None:
        files = Folded(three_segments()).tree
        files[name(20, ".index")] += bytes(8192)
        with pytest.raises(PartitionRefusedError, match=r"segment\.index\.bytes allows 4096") as raised:
            Folded(files, had_clean_shutdown=True)
        assert (raised.value.file, raised.value.position) == (name(20, ".index"), 4096)

    def test_the_rest_of_an_entry_is_trimmed_where_the_index_is_open(self) -> None:
        files = Folded(three_segments()).tree
        for base in (0, 20):
            files[name(base, ".index")] += b"\x01\x02\x03"
        folded = Folded(files, had_clean_shutdown=True, recovery_point=30)
        assert len(folded.tree[name(20, ".index")]) % 8 == 0
        assert folded.tree[name(0, ".index")] == files[name(0, ".index")]


class TestLeftovers:
    def test_deleted_files_are_the_brokers_own(self) -> None:
        files = three_segments() | {name(5, ".log.deleted"): b"x", "foo.deleted": b"y"}
        folded = Folded(files)
        assert not any(file.endswith(".deleted") for file in folded.tree)
        for file in (name(5, ".log.deleted"), "foo.deleted"):
            assert folded.outcome.removed[file] is RemovalKind.PENDING_DELETION

    def test_a_deleted_kraft_checkpoint_is_not(self) -> None:
        checkpoint = "00000000000000000003-0000000001.checkpoint.deleted"
        assert checkpoint in Folded(three_segments() | {checkpoint: b"x"}).tree

    def test_recovery_after_interrupted_swap(self) -> None:
        # LogTest.testCleanerRecovery: after the rename to .swap the new segments replace the old ones
        files = three_segments()
        swap = segment(0, 3) + segment(15, 5)
        files |= {name(0, ".log.swap"): swap, name(0, ".index.swap"): b"", name(0, ".timeindex.swap"): b""}
        files[name(10, ".snapshot")] = b"old"
        folded = Folded(files, recovery_point=20)
        assert folded.tree[name(0)] == swap
        assert name(10) not in folded.tree
        assert folded.outcome.removed[name(0)] is RemovalKind.COMPACTED
        assert folded.outcome.removed[name(10)] is RemovalKind.COMPACTED

    def test_recovery_before_the_swap_keeps_the_old_segments(self) -> None:
        files = three_segments()
        files |= {
            name(0, ".log.swap"): segment(0, 3),
            name(0, ".log.cleaned"): b"",
            name(10, ".index.cleaned"): b"",
        }
        folded = Folded(files)
        assert folded.tree[name(0)] == files[name(0)]
        for file in (name(0, ".log.swap"), name(0, ".log.cleaned"), name(10, ".index.cleaned")):
            assert folded.outcome.removed[file] is RemovalKind.LEFTOVER

    def test_a_swap_below_the_first_cleaned_file_is_finished(self) -> None:
        files = three_segments()
        files |= {
            name(0, ".log.swap"): segment(0, 3),
            name(0, ".index.swap"): b"",
            name(10, ".log.cleaned"): b"",
        }
        assert Folded(files).tree[name(0)] == segment(0, 3)

    def test_a_swap_without_its_index_gets_a_preallocated_one(self) -> None:
        files = three_segments() | {name(0, ".log.swap"): segment(0, 3)}
        folded = Folded(files, recovery_point=20)
        assert folded.tree[name(0, ".index")] == bytes(4096)

    @pytest.mark.parametrize(
        "file", ["foo.log", "foo.index", "foo.swap", "foo.cleaned", "foo.snapshot", ".log"]
    )
    def test_a_name_without_an_offset_stops_the_broker(self, file: str) -> None:
        with pytest.raises(PartitionRefusedError, match="NumberFormatException stops the broker") as raised:
            Folded(three_segments() | {file: b""})
        assert raised.value.remedy == "move the file out of the partition's folder"

    @pytest.mark.parametrize("file", ["foo.txt", "foo", "foo.deleted.txt", "12"])
    def test_other_names_are_nobodys_concern(self, file: str) -> None:
        assert Folded(three_segments() | {file: b"x"}).tree[file] == b"x"

    def test_an_unpadded_name_makes_an_empty_segment_beside_it(self) -> None:
        folded = Folded(three_segments() | {"12.log": segment(12, 2)})
        assert folded.tree[name(12)] == b""
        assert folded.tree["12.log"] == segment(12, 2)
        assert folded.outcome.segment_count == 4


class TestOffsets:
    def test_a_log_start_inside_a_segment_keeps_it_and_moves_the_epoch(self) -> None:
        folded = Folded(three_segments(), log_start_offset=13)
        assert folded.outcome.segment_count == 3
        assert folded.outcome.log_start_offset == 13
        assert folded.outcome.checkpoints_log_start
        assert folded.epochs() == [(1, 13), (2, 20)]
        assert folded.snapshots() == [20, 30]

    def test_a_log_start_beyond_the_end_deletes_all(self) -> None:
        # LogLoaderTest.testLogEndLessThanStartAfterReopen
        folded = Folded(three_segments(), log_start_offset=100)
        assert [file for file in folded.tree if file.endswith(".log")] == [name(100)]
        assert all(folded.tree[name(base) + ".deleted"] for base in BASES)
        assert (folded.outcome.log_start_offset, folded.outcome.log_end_offset) == (100, 100)
        assert folded.epochs() == []
        assert (
            "the log ends at 30, before its log start offset 100: all segments are deleted"
            in folded.outcome.warnings
        )

    def test_a_log_without_segments_begins_at_its_log_start(self) -> None:
        folded = Folded(partition({}), log_start_offset=7)
        assert folded.tree[name(7)] == b""
        assert folded.outcome.log_end_offset == 7

    def test_the_first_base_offset_is_the_log_start_of_an_untiered_log(self) -> None:
        files = partition({10: segment(10), 20: segment(20)})
        assert Folded(files).outcome.log_start_offset == 10
        tiered = LogSettings(index_interval_bytes=100, remote_log_enabled=True)
        outcome = Folded(files, settings=tiered).outcome
        assert (outcome.log_start_offset, outcome.local_log_start_offset) == (0, 10)
        assert outcome.checkpoints_log_start

    def test_a_recovery_point_beyond_the_end_recovers_the_active_segment(self) -> None:
        folded = Folded(three_segments(), recovery_point=5000)
        assert folded.outcome.recovered_segments == 1


class TestProducers:
    def test_snapshots_above_the_end_and_strays_go(self) -> None:
        files = three_segments() | {name(offset, ".snapshot"): b"junk" for offset in (3, 15, 29, 99)}
        assert Folded(files).snapshots() == [10, 20, 30]

    def test_without_snapshots_a_clean_log_gets_empty_ones(self) -> None:
        # LogLoaderTest.testSkipLoadingIfEmptyProducerStateBeforeTruncation and the like
        files = {file: data for file, data in Folded(three_segments()).tree.items() if "snapshot" not in file}
        folded = Folded(files, had_clean_shutdown=True)
        assert folded.snapshots() == [10, 20, 30]
        assert all(len(data) == 10 for file, data in folded.tree.items() if file.endswith(".snapshot"))
        assert all(request.mode is not ScanMode.REPLAY for request in folded.source.requests)

    def test_expired_producers_of_a_snapshot_are_dropped_by_the_clock_of_the_task(self) -> None:
        files = partition(
            {base: segment(base, producer_id=base, producer_epoch=0, base_sequence=0) for base in BASES}
        )
        young = Folded(files, now_ms=BASE_TIMESTAMP_MS)
        old = Folded(files, now_ms=BASE_TIMESTAMP_MS + 10**9)
        assert len(young.tree[name(30, ".snapshot")]) == 10 + 3 * 46
        assert len(old.tree[name(30, ".snapshot")]) == 10 + 46

    def test_a_write_outside_an_open_transaction_of_an_earlier_segment_stops_the_broker(self) -> None:
        own = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        files = partition(
            {0: data_batch(0, transactional=True, **own), 1: data_batch(1) + data_batch(2, **own)}
        )
        with pytest.raises(
            PartitionRefusedError, match="producer 7 writes outside its open transaction"
        ) as raised:
            Folded(files)
        assert (raised.value.file, raised.value.position) == (name(1), SIZE)


class TestSmallFiles:
    def test_a_missing_epoch_checkpoint_is_made(self) -> None:
        files = three_segments()
        del files["leader-epoch-checkpoint"]
        assert Folded(files).epochs() == [(0, 0), (1, 10), (2, 20)]
        assert Folded(files, recovery_point=20).epochs() == [(2, 20)]

    @pytest.mark.parametrize(
        ("text", "outcome"),
        [
            (b"1\n0\n", "takes the log dir offline"),
            (b"0\n2\n0 0\n", "takes the log dir offline"),
            (b"0\n1\n0\n", "takes the log dir offline"),
            (b"0\n1\nx 0\n", "stops the broker"),
            (b"0\n1\n-1 0\n", "stops the broker"),
            (b"0\n1\n0 -5\n", "stops the broker"),
            (b"0\n-1\n", "stops the broker"),
        ],
    )
    def test_a_malformed_epoch_checkpoint_is_refused(self, text: bytes, outcome: str) -> None:
        with pytest.raises(PartitionRefusedError, match=outcome) as raised:
            Folded(three_segments() | {"leader-epoch-checkpoint": text})
        assert raised.value.file == "leader-epoch-checkpoint"
        assert (
            raised.value.remedy
            == "move the file away: a new one is made from the segments that are recovered"
        )

    def test_epochs_at_or_behind_the_end_are_dropped(self) -> None:
        files = three_segments() | {"leader-epoch-checkpoint": b"0\n4\n0 0\n1 10\n2 20\n9 30\n"}
        assert Folded(files).epochs() == [(0, 0), (1, 10), (2, 20)]

    def test_an_unchanged_epoch_checkpoint_keeps_its_bytes(self) -> None:
        text = b"0\r\n3\r\n0 0\r\n1\t10\r\n2 20\r\n"
        files = Folded(three_segments()).tree | {"leader-epoch-checkpoint": text}
        folded = Folded(files, had_clean_shutdown=True, log_start_offset=0)
        assert folded.tree["leader-epoch-checkpoint"] in (text, b"0\n3\n0 0\n1 10\n2 20\n")

    def test_without_partition_metadata_the_operator_is_told(self) -> None:
        files = three_segments()
        del files["partition.metadata"]
        assert Folded(files).outcome.warnings == (
            "no partition.metadata: a broker renames this folder to -stray once it has loaded it",
        )

    @pytest.mark.parametrize(
        ("topic_id", "reason"),
        [
            (None, None),
            ("AAAAAAAAQAiAAAAAAAAAAQ", None),
            ("", "the metadata log has no topic of this name"),
            (
                "AAAAAAAAQAiAAAAAAAAAAg",
                "it is of a topic with the id AAAAAAAAQAiAAAAAAAAAAQ, and the metadata log has one with the id "
                "AAAAAAAAQAiAAAAAAAAAAg",
            ),
        ],
    )
    def test_of_a_topic_that_the_cluster_does_not_have_the_operator_is_told(
        self, topic_id: str | None, reason: str | None
    ) -> None:
        metadata = b"version: 0\ntopic_id: AAAAAAAAQAiAAAAAAAAAAQ"
        folded = Folded(
            three_segments() | {"partition.metadata": metadata}, settings=LogSettings(topic_id=topic_id)
        )
        told = f"{reason}: a broker renames this folder to -stray once it has loaded it"
        assert folded.outcome.warnings == (() if reason is None else (told,))

    @pytest.mark.parametrize("text", [b"", b"version: 0\n", b"version: 0\ntopic_id: short\n", b"junk"])
    def test_bad_partition_metadata_is_refused(self, text: bytes) -> None:
        with pytest.raises(PartitionRefusedError) as raised:
            Folded(three_segments() | {"partition.metadata": text})
        assert raised.value.file == "partition.metadata"
        assert "kafka-topics --describe" in raised.value.remedy

    def test_a_leader_epoch_at_a_negative_offset_is_refused(self) -> None:
        batch = bytearray(data_batch(0, 3, leader_epoch=5))
        batch[0:8] = struct.pack(">q", -2)
        with pytest.raises(PartitionRefusedError, match="begins at the negative offset -2"):
            Folded(partition({0: recompute_crc(bytes(batch))}))


class TestOverflow:
    """LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow."""

    FAR = 2**40

    def test_the_segment_is_split_where_its_offsets_do_not_fit(self) -> None:
        one, two = segment(0, 5), segment(self.FAR, 3, leader_epoch=1)
        folded = Folded(partition({0: one + two}))
        assert folded.tree[name(0)] == one
        assert folded.tree[name(self.FAR)] == two
        assert folded.tree[name(0) + ".deleted"] == one + two
        assert folded.outcome.log_end_offset == self.FAR + 3
        assert folded.outcome.segment_count == 2

    def test_one_batch_that_sticks_out_in_the_middle_stops_the_broker(self) -> None:
        data = segment(0, 5) + segment(self.FAR, 1) + segment(6, 3)
        with pytest.raises(PartitionRefusedError, match="the broker does not split it"):
            Folded(partition({0: data}))

    def test_what_a_killed_split_has_left_is_known_again(self) -> None:
        one, two = segment(0, 5), segment(self.FAR, 3, leader_epoch=1)
        again = Folded(partition({0: one + two, self.FAR: two}))
        assert again.tree == Folded(partition({0: one + two})).tree | {
            file: data for file, data in again.tree.items() if file.endswith(".deleted")
        }

    def test_another_segment_in_that_place_is_overwritten(self) -> None:
        far = segment(self.FAR, 3)
        folded = Folded(partition({0: segment(0, 5) + far, self.FAR: segment(self.FAR, 2)}))
        assert folded.tree[name(self.FAR)] == far


class TestFolders:
    def test_one_to_be_deleted_is_loaded_and_not_recovered(self) -> None:
        files = three_segments()
        files[name(20)] = files[name(20)][:-5]
        folded = Folded(files, folder="t-0.0011-delete")
        assert folded.tree[name(20)] == files[name(20)]
        assert folded.outcome.log_end_offset == 0
        assert not folded.outcome.is_loaded
        assert folded.epochs() == []

    def test_a_stray_one_is_recovered_and_its_active_indexes_stay_large(self) -> None:
        folded = Folded(three_segments(), folder="t-0.0011-stray")
        assert len(folded.tree[name(20, ".index")]) == 4096
        assert len(folded.tree[name(20, ".timeindex")]) == 4092
        assert len(folded.tree[name(0, ".index")]) < 4096
        assert not folded.outcome.is_loaded

    def test_an_active_index_that_is_too_long_becomes_as_long_as_others_in_a_stray_one(self) -> None:
        files = Folded(three_segments()).tree
        files[name(20, ".timeindex")] = files[name(20, ".timeindex")].ljust(4092 + 5, b"\0")
        folded = Folded(files, folder="t-0.0011-stray", had_clean_shutdown=True)
        assert folded.tree[name(20, ".timeindex")] == files[name(20, ".timeindex")][:4092]


@pytest.mark.parametrize("seed", range(60))
def test_recovering_twice_is_recovering_once(seed: int) -> None:
    """Idempotence, on random damage in all files."""
    rng = random.Random(seed)
    files = Folded(three_segments()).tree
    for file in rng.sample(sorted(files), rng.randint(1, 3)):
        data = files[file]
        how = rng.choice(["cut", "flip", "junk", "gone"])
        if how == "cut":
            files[file] = data[: rng.randrange(len(data) + 1)]
        elif how == "flip" and data:
            files[file] = flipped(data, rng.randrange(len(data)))
        elif how == "junk":
            files[file] = data + rng.randbytes(rng.randrange(60))
        else:
            del files[file]
    try:
        first = Folded(files)
    except PartitionRefusedError:
        return
    second = Folded({file: data for file, data in first.tree.items() if not file.endswith(".deleted")})
    assert {file: data for file, data in first.tree.items() if not file.endswith(".deleted")} == second.tree
    assert second.outcome.log_end_offset == first.outcome.log_end_offset
    assert second.outcome.cuts == ()
