"""Producers from snapshots and scans, against a twin that takes batch by batch; snapshots by Kafka's rules."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.raw_scan import RawScan, Stop
from recovery.load.producers import ProducerState
from recovery.load.transactions import InvalidTxnStateError
from segfmt.byte_layout import PRODUCER_ENTRY_DTYPE
from segfmt.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from tests.logs.builders import BASE_TIMESTAMP_MS, control_record, data_batch, record_batch
from tests.native.scanning import scan_segment
from tests.recovery.load.producer_twin import Batch, InvalidTxnError, ProducerTwin

NOW_MS = BASE_TIMESTAMP_MS
DAY_MS = 86_400_000


class Snapshots:
    """Snapshot files in memory."""

    def __init__(self, files: dict[int, bytes] | None = None) -> None:
        self.files = {f"{offset:020d}.snapshot": data for offset, data in (files or {}).items()}

    @property
    def offsets(self) -> list[int]:
        return sorted(self.list_snapshots())

    def list_snapshots(self) -> dict[int, str]:
        return {int(name.removesuffix(".snapshot")): name for name in self.files}

    def read_snapshot(self, name: str) -> bytes:
        return self.files[name]

    def write_snapshot(self, offset: int, data: bytes) -> str:
        name = f"{offset:020d}.snapshot"
        self.files[name] = data
        return name

    def delete_snapshot(self, name: str) -> None:
        self.files.pop(name, None)


def new_state(files: Snapshots | None = None, *, now_ms: int = NOW_MS) -> ProducerState:
    return ProducerState(Snapshots() if files is None else files, now_ms=now_ms, expiration_ms=DAY_MS)


def snapshot(*rows: tuple[int, ...]) -> bytes:
    return encode_producer_snapshot(np.array(list(rows), dtype=PRODUCER_ENTRY_DTYPE))


def entry(
    producer_id: int, *, last_offset: int = 5, timestamp_ms: int = NOW_MS, txn_first_offset: int = -1
) -> tuple[int, ...]:
    return producer_id, 0, 7, last_offset, 0, timestamp_ms, -1, txn_first_offset


def rows_of(state: ProducerState) -> list[tuple[int, ...]]:
    """The producers, as a snapshot would hold them, by producer id."""
    files = Snapshots()
    copy = ProducerState(files, now_ms=NOW_MS, expiration_ms=DAY_MS)
    copy._producers, copy.map_end_offset = state._producers, 2**62
    copy.take_snapshot()
    (data,) = files.files.values()
    return sorted(read_producer_snapshot(data).tolist())


def bytes_of(batch: Batch) -> bytes:
    fields = {
        "base_offset": batch.base_offset,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.epoch,
        "base_timestamp_ms": batch.timestamp_ms,
        "transactional": batch.is_transactional,
    }
    if batch.marker is not None:
        record = control_record(batch.marker, coordinator_epoch=batch.coordinator_epoch)
        return record_batch(records=record, control=True, **fields)
    count = batch.last_offset - batch.base_offset + 1
    return data_batch(record_count=count, base_sequence=batch.base_sequence, **fields)


def scan_of(batches: list[Batch], *, settles_txns: bool = True) -> RawScan:
    data = b"".join(map(bytes_of, batches))
    base_offset = min((batch.base_offset for batch in batches), default=0)
    return scan_segment(np.frombuffer(data, np.uint8), base_offset=base_offset, settles_txns=settles_txns)


def outcome(take: Callable[[], np.ndarray | None]) -> str | list | None:
    """Return what *take* returns, as a list, or why it fails and where."""
    try:
        aborted = take()
    except InvalidTxnStateError as error:
        return f"{error} at {error.position}"
    return None if aborted is None else aborted.tolist()


def taken(state: ProducerState, batches: list[Batch], *, is_replayed: bool) -> np.ndarray | None:
    """Let *state* take in *batches* as the recovery does; return what was aborted."""
    scan = scan_of(batches)
    if state.depends_on_settled(scan, is_replayed=is_replayed):
        scan = scan_of(batches, settles_txns=False)
    return state.replay(scan) if is_replayed else state.recover(scan)


class TestAgainstTheTwin:
    EVENT = st.fixed_dictionaries(
        {
            "producer_id": st.sampled_from([-1, 3, 3, 19, 2**40]),
            "epoch": st.sampled_from([0, 0, 0, 1, 2]),
            "base_sequence": st.sampled_from([-1, 0, 5, 2**31 - 2]),
            "timestamp_ms": st.integers(0, 5),
            "is_transactional": st.booleans(),
            "marker": st.sampled_from([None, None, 0, 1]),
            "coordinator_epoch": st.integers(0, 2),
            "count": st.integers(1, 3),
            "step_back": st.sampled_from([0, 0, 0, 0, 0, 1, 2, 4]),
        }
    )

    @staticmethod
    def batches_of(events: list[dict]) -> list[Batch]:
        offset, batches = 0, []
        for event in events:
            fields = dict(event)
            offset = max(offset - fields.pop("step_back"), 0)
            count = fields.pop("count")
            if fields["producer_id"] < 0:
                fields.update(is_transactional=False, marker=None, epoch=-1, base_sequence=-1)
            if fields["marker"] is not None:
                fields["is_transactional"], count = True, 1
            batches.append(Batch(base_offset=offset, last_offset=offset + count - 1, **fields))
            offset += count
        return batches

    @settings(max_examples=300, derandomize=True)
    @given(st.lists(EVENT, max_size=25), st.integers(0, 25), st.booleans())
    def test_two_segments(self, events: list[dict], cut: int, replays_first: bool) -> None:
        batches = self.batches_of(events)
        state, twin = new_state(), ProducerTwin()
        for segment, is_replayed in ((batches[:cut], replays_first), (batches[cut:], False)):
            scan = scan_of(segment)
            try:
                (twin.replay if is_replayed else twin.recover)(segment)
            except InvalidTxnError:
                if scan.stop is not Stop.INVALID_TXN:  # then the open transaction is older than the segment
                    with pytest.raises(InvalidTxnStateError):
                        taken(state, segment, is_replayed=is_replayed)
                return
            assert scan.stop is Stop.END
            aborted = taken(state, segment, is_replayed=is_replayed)
            assert rows_of(state) == twin.rows()
            assert state._ongoing == twin.ongoing
            if not is_replayed:
                assert [tuple(row)[1:] for row in aborted.tolist()] == twin.aborted
                assert not segment or state.map_end_offset == twin.map_end_offset
            twin.aborted.clear()

    TXN_EVENT = st.fixed_dictionaries(
        {
            "producer_id": st.integers(0, 3),
            "is_transactional": st.just(True),
            "marker": st.sampled_from([None, None, None, 0, 1, 1]),
            "count": st.integers(1, 2),
            "step_back": st.sampled_from([0] * 40 + [1, 3, 9]),
        }
    )

    @settings(max_examples=400, derandomize=True)
    @given(st.lists(st.tuples(st.lists(TXN_EVENT, max_size=40), st.booleans()), min_size=2, max_size=3))
    def test_settled_transactions_leave_nothing_behind(self, segments: list[tuple[list[dict], bool]]) -> None:
        batches = iter(self.batches_of([event for events, _ in segments for event in events]))
        state, told_all = new_state(), new_state()
        for events, is_replayed in segments:
            segment = [next(batches) for _ in events]
            found, expected = (
                outcome(lambda: taken(state, segment, is_replayed=is_replayed)),  # noqa: B023
                outcome(
                    lambda: (told_all.replay if is_replayed else told_all.recover)(  # noqa: B023
                        scan_of(segment, settles_txns=False)  # noqa: B023
                    )
                ),
            )
            assert found == expected
            if isinstance(found, str):
                return
            assert rows_of(state) == rows_of(told_all)
            assert state._ongoing == told_all._ongoing
            assert state.first_unstable_offset == told_all.first_unstable_offset

    def test_an_epoch_bump_by_a_marker_forgets_the_last_batch(self) -> None:
        state, twin = new_state(), ProducerTwin()
        batches = [
            Batch(base_offset=0, last_offset=2, producer_id=3, is_transactional=True),
            Batch(base_offset=3, last_offset=3, producer_id=3, epoch=1, is_transactional=True, marker=1),
        ]
        twin.recover(batches)
        state.recover(scan_of(batches))
        assert rows_of(state) == twin.rows() == [(3, 1, -1, -1, 0, 0, 0, -1)]

    def test_an_abort_is_stable_up_to_the_first_open_transaction_of_another_producer(self) -> None:
        state = new_state()
        batches = [
            Batch(base_offset=0, last_offset=0, producer_id=1, is_transactional=True),
            Batch(base_offset=1, last_offset=1, producer_id=2, is_transactional=True),
            Batch(base_offset=2, last_offset=2, producer_id=2, is_transactional=True, marker=0),
            Batch(base_offset=3, last_offset=3, producer_id=1, is_transactional=True, marker=0),
        ]
        assert state.recover(scan_of(batches)).tolist() == [(0, 2, 1, 2, 0), (0, 1, 0, 3, 4)]

    @pytest.mark.parametrize("settles_txns", [True, False])
    def test_what_a_producer_has_open_itself_does_not_hold_its_abort_back(self, settles_txns: bool) -> None:
        state = new_state()
        state._ongoing.update({-5: 1, -3: 2})
        batches = []
        for offset, producer_id in ((0, 1), (3, 2)):
            fields = {"producer_id": producer_id, "is_transactional": True}
            batches += [
                Batch(base_offset=offset, last_offset=offset, marker=0, **fields),
                Batch(base_offset=offset + 1, last_offset=offset + 1, **fields),
                Batch(base_offset=offset + 2, last_offset=offset + 2, marker=0, **fields),
            ]
        scan = scan_of(batches, settles_txns=settles_txns)
        assert state.recover(scan).tolist() == [(0, 1, 1, 2, -3), (0, 2, 4, 5, -5)]

    def test_a_commit_leaves_no_aborted_transaction(self) -> None:
        state = new_state()
        batches = [
            Batch(base_offset=0, last_offset=0, producer_id=1, is_transactional=True),
            Batch(base_offset=1, last_offset=1, producer_id=1, is_transactional=True, marker=1),
        ]
        assert len(state.recover(scan_of(batches))) == 0

    def test_a_marker_without_a_transaction_changes_the_epochs_only(self) -> None:
        state = new_state()
        marker = Batch(base_offset=0, last_offset=0, producer_id=1, epoch=4, marker=0, coordinator_epoch=9)
        assert len(state.recover(scan_of([marker]))) == 0
        assert rows_of(state) == [(1, 4, -1, -1, 0, 0, 9, -1)]

    def test_a_stale_epoch_is_taken_all_the_same(self) -> None:
        state = new_state()
        state.recover(
            scan_of(
                [
                    Batch(base_offset=0, last_offset=0, producer_id=1, epoch=5),
                    Batch(base_offset=1, last_offset=1, producer_id=1, epoch=2, base_sequence=8),
                ]
            )
        )
        assert rows_of(state) == [(1, 2, 8, 1, 0, 0, -1, -1)]

    def test_sequences_wrap_round(self) -> None:
        state = new_state()
        batch = Batch(base_offset=0, last_offset=2, producer_id=1, base_sequence=2**31 - 2)
        state.recover(scan_of([batch]))
        assert rows_of(state)[0][2] == 0

    def test_a_control_batch_without_records_makes_its_producer_known(self) -> None:
        data = record_batch(
            base_offset=4, records=[], control=True, transactional=True, producer_id=9, producer_epoch=3
        )
        state = new_state()
        state.recover(scan_segment(np.frombuffer(data, np.uint8), base_offset=4))
        assert rows_of(state) == [(9, -1, -1, -1, 0, -1, -1, -1)]
        assert state.map_end_offset == 5

    def test_producers_of_a_replay_arrive_the_last_one_first(self) -> None:
        # In one bucket of Kafka's temporary map, to which new keys are added in front.
        batches = [Batch(base_offset=i, last_offset=i, producer_id=pid) for i, pid in enumerate((1, 17, 33))]
        for is_replayed, expected in ((True, [33, 17, 1]), (False, [1, 17, 33])):
            files = Snapshots()
            state = new_state(files)
            (state.replay if is_replayed else state.recover)(scan_of(batches))
            state.map_end_offset = 3
            state.take_snapshot()
            entries = read_producer_snapshot(files.read_snapshot(files.list_snapshots()[3]))
            assert entries["producer_id"].tolist() == expected

    def test_open_and_replayed_transactions_tell_the_first_unstable_offset(self) -> None:
        def of(*batches: Batch) -> int | None:
            state = new_state()
            state.replay(scan_of(list(batches)))
            return state.first_unstable_offset

        open_at_5 = Batch(base_offset=5, last_offset=5, producer_id=1, is_transactional=True)
        ended_at_6 = Batch(base_offset=6, last_offset=6, producer_id=1, is_transactional=True, marker=1)
        open_at_7 = Batch(base_offset=7, last_offset=7, producer_id=2, is_transactional=True)
        assert of() is None
        assert of(Batch(base_offset=5, last_offset=5, producer_id=1)) is None
        assert of(open_at_5) == 5
        assert of(open_at_5, ended_at_6, open_at_7) == 5
        assert of(open_at_7) == 7

    def test_a_replay_leaves_the_end_of_the_map_alone(self) -> None:
        state = new_state()
        state.map_end_offset = 77
        state.replay(scan_of([Batch(base_offset=0, last_offset=3, producer_id=1)]))
        assert state.map_end_offset == 77

    def test_a_write_outside_an_open_transaction_names_its_producer_and_position(self) -> None:
        state = new_state()
        state.recover(scan_of([Batch(base_offset=0, last_offset=0, producer_id=6, is_transactional=True)]))
        first = Batch(base_offset=1, last_offset=1, producer_id=-1, epoch=-1, base_sequence=-1)
        second = Batch(base_offset=2, last_offset=2, producer_id=6)
        with pytest.raises(InvalidTxnStateError) as raised:
            state.recover(scan_of([first, second]))
        assert (raised.value.producer_id, raised.value.position) == (6, len(bytes_of(first)))


class TestTransactionsOfOneOffset:
    """Batches come twice where a segment is copied behind another: two transactions then begin at one offset."""

    @staticmethod
    def begun(producer_id: int) -> Batch:
        return Batch(base_offset=5, last_offset=5, producer_id=producer_id, is_transactional=True)

    @staticmethod
    def ended(producer_id: int, offset: int) -> Batch:
        return Batch(base_offset=offset, last_offset=offset, producer_id=producer_id, marker=0)

    def test_of_two_producers_only_one_can_end(self) -> None:
        state = new_state()
        state.recover(scan_of([self.begun(1), self.begun(2), self.ended(1, 6)]))
        with pytest.raises(InvalidTxnStateError, match="began at offset 5, where none is open"):
            state.recover(scan_of([self.ended(2, 7)]))

    def test_one_after_the_other_is_recovered(self) -> None:
        batches = [self.begun(1), self.ended(1, 6), self.begun(1), self.ended(1, 6)]
        state = new_state()
        assert len(state.recover(scan_of(batches))) == 2
        with pytest.raises(InvalidTxnStateError):  # both begin before the first ends
            new_state().replay(scan_of(batches))

    def test_a_replay_leaves_none_open_of_the_second(self) -> None:
        state = new_state()
        state.replay(scan_of([self.begun(1), self.ended(1, 6), self.begun(1)]))
        assert rows_of(state)[0][-1] == 5
        with pytest.raises(InvalidTxnStateError) as raised:
            state.recover(scan_of([self.ended(2, 7), self.ended(1, 8)]))
        assert raised.value.position == len(bytes_of(self.ended(2, 7)))


class TestTakeSnapshot:
    def test_an_empty_map_at_zero_is_not_written(self) -> None:
        files = Snapshots()
        new_state(files).take_snapshot()
        assert files.offsets == []

    def test_an_empty_map_behind_zero_is_ten_bytes(self) -> None:
        files = Snapshots()
        state = new_state(files)
        state.map_end_offset = 12
        state.take_snapshot()
        assert [
            (offset, len(files.read_snapshot(name))) for offset, name in files.list_snapshots().items()
        ] == [(12, 10)]

    def test_it_is_written_once_an_offset(self) -> None:
        files = Snapshots()
        state = new_state(files)
        state.map_end_offset = 12
        state.take_snapshot()
        files.files.clear()
        state.take_snapshot()
        assert files.offsets == []

    def test_it_is_not_written_behind_the_newest(self) -> None:
        files = Snapshots()
        state = new_state(files)
        for offset in (12, 8):
            state.map_end_offset = offset
            state.take_snapshot()
        assert files.offsets == [12]

    def test_many_producers_stand_in_the_order_of_a_java_hash_map(self) -> None:
        state, files = new_state(), Snapshots()
        state = new_state(files)
        ids = [33, 1, 17, 2**32 + 16, 0]  # buckets of 16: 1, 1, 1, 1, 0
        state.recover(
            scan_of([Batch(base_offset=i, last_offset=i, producer_id=pid) for i, pid in enumerate(ids)])
        )
        state.take_snapshot()
        entries = read_producer_snapshot(files.read_snapshot(files.list_snapshots()[5]))
        assert entries["producer_id"].tolist() == [0, 33, 1, 17, 2**32 + 16]


class TestTruncateAndReload:
    def test_snapshots_outside_the_log_are_deleted(self) -> None:
        files = Snapshots({offset: snapshot() for offset in (2, 5, 9, 14)})
        new_state(files).truncate_and_reload(5, 9)
        assert files.offsets == [9]

    def test_the_newest_snapshot_is_loaded(self) -> None:
        files = Snapshots({5: snapshot(entry(1)), 9: snapshot(entry(2))})
        state = new_state(files)
        state.truncate_and_reload(0, 20)
        assert [row[0] for row in rows_of(state)] == [2]
        assert state.map_end_offset == 9

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[:-1],
            lambda data: data[:3],
            lambda data: b"",
            lambda data: b"\x00\x02" + data[2:],
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            lambda data: data[:6] + struct.pack(">i", 1000) + data[10:],
            lambda data: data[:6] + struct.pack(">i", -1) + data[10:],
        ],
        ids=["short", "no count", "empty", "version 2", "flipped bit", "count too high", "negative count"],
    )
    def test_a_corrupt_snapshot_is_deleted_and_an_older_one_loaded(self, damage) -> None:
        files = Snapshots({5: snapshot(entry(1)), 9: damage(snapshot(entry(2)))})
        state = new_state(files)
        state.truncate_and_reload(0, 20)
        assert files.offsets == [5]
        assert [row[0] for row in rows_of(state)] == [1]
        assert state.map_end_offset == 5

    def test_a_corrupt_snapshot_that_is_not_needed_stays(self) -> None:
        files = Snapshots({5: b"junk", 9: snapshot(entry(2))})
        new_state(files).truncate_and_reload(0, 20)
        assert files.offsets == [5, 9]

    def test_without_any_the_map_begins_at_the_log_start(self) -> None:
        state = new_state()
        state.truncate_and_reload(7, 20)
        assert (state.map_end_offset, state.is_empty) == (7, True)

    def test_an_expired_producer_is_dropped_when_it_is_loaded(self) -> None:
        rows = [entry(pid, timestamp_ms=NOW_MS - age) for pid, age in ((1, DAY_MS - 1), (2, DAY_MS), (3, -5))]
        state = new_state(Snapshots({9: snapshot(*rows)}))
        state.truncate_and_reload(0, 20)
        assert [row[0] for row in rows_of(state)] == [1, 3]

    def test_an_open_transaction_never_expires(self) -> None:
        files = Snapshots({9: snapshot(entry(1, timestamp_ms=0, txn_first_offset=4))})
        state = new_state(files)
        state.truncate_and_reload(0, 20)
        aborted = state.recover(
            scan_of([Batch(base_offset=9, last_offset=9, producer_id=1, is_transactional=True, marker=0)])
        )
        assert aborted.tolist() == [(0, 1, 4, 9, 10)]

    def test_producers_from_the_log_do_not_expire(self) -> None:
        state = new_state(now_ms=NOW_MS + 10 * DAY_MS)
        state.recover(scan_of([Batch(base_offset=0, last_offset=0, producer_id=1, timestamp_ms=1)]))
        assert [row[0] for row in rows_of(state)] == [1]

    def test_at_the_end_of_the_map_nothing_is_loaded_again(self) -> None:
        state = new_state()
        state.recover(scan_of([Batch(base_offset=0, last_offset=3, producer_id=1)]))
        state.truncate_and_reload(0, 4)
        assert [row[0] for row in rows_of(state)] == [1]

    def test_elsewhere_what_is_known_is_forgotten(self) -> None:
        state = new_state()
        state.recover(scan_of([Batch(base_offset=0, last_offset=3, producer_id=1)]))
        state.truncate_and_reload(0, 5)
        assert rows_of(state) == []


class TestStraySnapshots:
    def test_those_at_a_base_stay_and_of_the_others_the_largest_behind_the_last_base(self) -> None:
        files = Snapshots({offset: snapshot() for offset in (0, 3, 5, 7, 11, 12)})
        new_state(files).remove_stray_snapshots([0, 5, 10])
        assert files.offsets == [0, 5, 12]

    def test_the_largest_before_the_last_base_goes_too(self) -> None:
        files = Snapshots({offset: snapshot() for offset in (5, 7)})
        new_state(files).remove_stray_snapshots([5, 10])
        assert files.offsets == [5]

    def test_files_made_meanwhile_are_seen(self) -> None:
        files = Snapshots({5: snapshot()})
        state = new_state(files)
        files.write_snapshot(6, snapshot())
        files.write_snapshot(7, snapshot())
        state.remove_stray_snapshots([5])
        assert files.offsets == [5, 7]

    def test_without_strays_nothing_goes(self) -> None:
        files = Snapshots({5: snapshot()})
        new_state(files).remove_stray_snapshots([5, 9])
        assert files.offsets == [5]


class TestTruncateFully:
    def test_all_known_snapshots_go(self) -> None:
        files = Snapshots({5: snapshot(entry(1)), 9: b""})
        state = new_state(files)
        state.truncate_fully_and_start_at(100)
        assert files.offsets == []
        assert (state.is_empty, state.map_end_offset, state.has_snapshots) == (True, 100, False)

    def test_a_forgotten_snapshot_is_left_to_the_caller(self) -> None:
        files = Snapshots({5: snapshot()})
        state = new_state(files)
        assert state.forget_snapshot(5) == "00000000000000000005.snapshot"
        assert state.forget_snapshot(5) is None
        assert files.offsets == [5]
