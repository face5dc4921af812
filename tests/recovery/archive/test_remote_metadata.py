import json
import random
import re
import struct
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from native.crc32c import crc32c_of_bytes
from recovery.archive.remote.log_batches import read_batches
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote.remote_metadata import MOST_FINDINGS, RemoteMetadata, read_remote_metadata
from recovery.archive.stores.local_store import LocalStore
from segfmt.checkpoint import LeaderEpochEntry, encode_leader_epoch_checkpoint, encode_offset_checkpoint
from segfmt.compression import Codec
from segfmt.filenames import log_name, offset_index_name, snapshot_name, time_index_name
from segfmt.kafka_uuid import format_uuid
from segfmt.record import Record, RecordHeader, encode_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch
from segfmt.remote_log_metadata import (
    TOPIC,
    RemotePartition,
    RemotePartitionDelete,
    RemotePartitionDeleteState,
    RemoteSegmentState,
    encode_remote_log_metadata,
)
from tests.logs.metadata_topic import metadata_batch, segments_of, write_metadata
from tests.logs.remote_logs import OWNER, SimulatedLog, wild_records
from tests.logs.samples import unpack

FINISHED, DELETED = RemoteSegmentState.COPY_SEGMENT_FINISHED, RemoteSegmentState.DELETE_SEGMENT_FINISHED


def read(*folders, **options):
    return read_remote_metadata([LocalStore(str(folder)) for folder in folders], **options)


def a_history(count=30, owner=OWNER):
    log = SimulatedLog(rng=random.Random(2), owner=owner, end=10**6)
    for n in range(count):
        log.copy(10 * n, 10 * n + 9)
    return log.records


def rules(metadata):
    assert {found.rule for found in metadata.findings} <= {"metadata-topic"}
    return [found.detail.partition(":")[0] for found in metadata.findings]


def offsets(metadata):
    return [int(re.fullmatch(r".*\(offset (\d+)\)", found.detail)[1]) for found in metadata.findings]


# -- what real brokers wrote -----------------------------------------------------------


def test_every_segment_is_in_the_state_that_the_broker_says(stored_archive):
    """All partitions of the metadata topic, all states, deleted topics; nothing is found to be wrong."""
    expected = json.loads((stored_archive.root / "expected.json").read_text())["segments"]
    with read(*stored_archive.log_dirs) as metadata:
        found = {}
        for owner in metadata.partitions():
            cache = metadata.cache(owner.topic_id, owner.partition)
            found |= {format_uuid(one): segment for one, segment in (cache.segments | cache.deleted).items()}
        assert set(found) == set(expected)
        assert len(found) > 200
        for segment_id, told in expected.items():
            segment = found[segment_id]
            assert segment.state.name == told["states"][-1]
            assert (segment.owner.topic, segment.owner.partition) == (told["topic"], told["partition"])
            assert format_uuid(segment.owner.topic_id) == told["topic_id"]
            for name in ("start_offset", "end_offset", "size_bytes", "max_timestamp_ms", "broker_id"):
                assert getattr(segment, name) == told[name]
            assert segment.has_no_transactions == told["is_txn_index_empty"]
            epochs = {str(epoch): start for epoch, start in segment.leader_epochs}
            assert epochs == told["leader_epochs"]
        assert metadata.findings == []
        assert not metadata.counts
        assert metadata.record_count >= sum(len(told["states"]) for told in expected.values())
        topics = {(told["topic"], told["topic_id"]) for told in expected.values()}
        assert {(one.topic, format_uuid(one.topic_id)) for one in metadata.partitions()} == topics


def test_segments_are_those_that_are_not_deleted(stored_archive):
    with read(*stored_archive.log_dirs) as metadata:
        (owner,) = (one for one in metadata.partitions() if one.topic == "expired-by-size")
        segments = segments_of(metadata, owner.topic_id, owner.partition)
        assert segments
        assert [one.start_offset for one in segments] == sorted(one.start_offset for one in segments)
        assert segments[0].start_offset > 0
        gone = metadata.cache(owner.topic_id, owner.partition).deleted.values()
        assert min(one.start_offset for one in gone) == 0
        assert segments_of(metadata, UUID(int=1), 0) == []


def test_a_folder_of_the_topic_is_enough(stored_archive):
    (folder,) = stored_archive.root.glob("d?/__remote_log_metadata-1")
    with read(folder) as alone, read(*stored_archive.log_dirs) as whole:
        assert 0 < alone.record_count < whole.record_count


# -- what is played --------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("batch_records", [1, 7])
def test_records_of_several_partitions_are_told_apart(tmp_path, codec, batch_records):
    rng = random.Random(4)
    owners = [replace(OWNER, partition=n % 3, topic_id=UUID(int=n // 3)) for n in range(6)]
    histories = {owner: as_of(wild_records(rng), owner) for owner in owners}
    left = {owner: list(records) for owner, records in histories.items()}
    mixed = []
    while any(left.values()):
        mixed.append(rng.choice([records for records in left.values() if records]).pop(0))
    write_metadata(tmp_path, mixed, batch_records=batch_records, codec=codec)
    with read(tmp_path) as metadata:
        assert set(metadata.partitions()) == set(owners)
        for owner, records in histories.items():
            expected = RemoteLogCache()
            for record in records:
                expected.apply(record)
            cache = metadata.cache(owner.topic_id, owner.partition)
            assert (cache.segments, cache.deleted) == (expected.segments, expected.deleted)
        assert set(rules(metadata)) == {"dropped-record"}


def as_of(records, owner):
    return [replace(record, owner=owner) for record in records]


@pytest.mark.parametrize("length", [1, 126, 127, 128, 249])
def test_names_of_any_length_are_told_apart(tmp_path, length):
    owners = [RemotePartition(topic=end * length, topic_id=UUID(int=9), partition=1) for end in "ab"]
    write_metadata(tmp_path, [record for owner in owners for record in a_history(3, owner)])
    with read(tmp_path) as metadata:
        assert metadata.partitions() == owners
        assert (
            len(segments_of(metadata, UUID(int=9), 1)) == 3
        )  # alike but for the name: as one id, the ids are the same
        assert metadata.record_count == 12


def test_long_names_that_differ_at_their_ends_are_told_apart(tmp_path):
    owners = [
        RemotePartition(topic="x" * 200 + end, topic_id=UUID(int=n), partition=1)
        for n, end in enumerate("ab")
    ]
    write_metadata(tmp_path, [record for owner in owners for record in a_history(3, owner)])
    with read(tmp_path) as metadata:
        for owner in owners:
            assert {one.owner for one in segments_of(metadata, owner.topic_id, 1)} == {owner}


def test_a_deleted_partition_has_no_segments(tmp_path):
    deletion = RemotePartitionDelete(
        owner=OWNER,
        broker_id=1,
        event_timestamp_ms=1,
        state=RemotePartitionDeleteState.DELETE_PARTITION_FINISHED,
    )
    write_metadata(tmp_path, [*a_history(5), deletion])
    with read(tmp_path) as metadata:
        assert segments_of(metadata, OWNER.topic_id, OWNER.partition) == []
        assert len(metadata.cache(OWNER.topic_id, OWNER.partition).deleted) == 5


def test_records_may_come_after_questions(tmp_path):
    values = [encode_remote_log_metadata(record) for record in a_history(4)]
    with RemoteMetadata(str(tmp_path)) as metadata:
        for offset, value in enumerate(values):
            metadata.add(value, offset)
            metadata.cache(OWNER.topic_id, OWNER.partition)
        assert len(segments_of(metadata, OWNER.topic_id, OWNER.partition)) == 4
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


# -- damage ----------------------------------------------------------------------------


def test_a_torn_tail_is_told_and_the_rest_counts(tmp_path):
    logs = write_metadata(tmp_path, a_history())
    whole = logs[-1].read_bytes()
    for cut in (1, 40, len(whole) - 20):
        logs[-1].write_bytes(whole[:-cut])
        with read(tmp_path) as metadata:
            assert rules(metadata) == ["torn-tail"]
            assert logs[-1].name in metadata.findings[0].file
            assert 0 < len(segments_of(metadata, OWNER.topic_id, OWNER.partition)) <= 30


def test_a_torn_segment_in_the_middle_is_damage(tmp_path):
    logs = write_metadata(tmp_path, a_history())
    logs[1].write_bytes(logs[1].read_bytes()[:-5])
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["damaged-batch", "missing-records"]


def test_a_bad_checksum_costs_its_batch(tmp_path):
    """Three records: the states of a segment or two; all others are known."""
    logs = write_metadata(tmp_path, a_history())
    data = bytearray(logs[0].read_bytes())
    data[-10] ^= 1
    logs[0].write_bytes(data)
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["damaged-batch", "missing-records"]
        assert re.fullmatch(
            r"damaged-batch: position [1-9]\d+: left out: CRC .*", metadata.findings[0].detail
        )
        assert metadata.record_count == 57
        segments = segments_of(metadata, OWNER.topic_id, OWNER.partition)
        assert 27 <= sum(one.state is FINISHED for one in segments) < 30


def test_a_length_that_cannot_be_ends_the_segment(tmp_path):
    logs = write_metadata(tmp_path, a_history())
    data = bytearray(logs[0].read_bytes())
    data[8:12] = bytes(4)
    logs[0].write_bytes(data)
    with read(tmp_path) as metadata:
        assert rules(metadata)[:2] == ["damaged-batch", "missing-records"]
        assert metadata.record_count == 48


@pytest.mark.parametrize(("base_offset", "delta"), [(-5, 0), (2**63 - 1, 1), (0, -1), (7, 2**31 - 1)])
def test_offsets_that_cannot_be_are_told(tmp_path, base_offset, delta):
    (log,) = write_metadata(tmp_path, a_history(1))
    batch = bytearray(metadata_batch([encode_remote_log_metadata(one) for one in a_history(1)], 0))
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    batch[23:27] = delta.to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c_of_bytes(bytes(batch[21:])).to_bytes(4, "big")
    log.write_bytes(batch)
    with read(tmp_path) as metadata:
        segments_of(metadata, OWNER.topic_id, OWNER.partition)
        assert rules(metadata) == (["missing-records"] if base_offset == 7 else ["damaged-batch"])


def test_records_of_any_shape_are_read(tmp_path):
    """Keys and headers, nulls, many in a batch: as the plain reader reads them."""
    rng = random.Random(6)
    for n in range(200):
        records = [
            Record(
                offset=100 + i,
                timestamp_ms=rng.randrange(2**40),
                key=rng.choice([None, None, b"k"]),
                value=rng.choice([None, b"", b"v" * rng.randrange(300), b"x"]),
                headers=rng.choice([(), (), (RecordHeader(key=b"h", value=None),)]),
            )
            for i in range(rng.randrange(1, 6))
        ]
        header = RecordBatchHeader(
            base_offset=100, last_offset_delta=len(records) - 1, record_count=len(records)
        )
        data = encode_record_batch(header, encode_records(records, base_offset=100, base_timestamp_ms=-1))
        (tmp_path / f"{n}").write_bytes(data)
        opened = LocalStore(str(tmp_path)).open(f"{n}")
        (batch,) = read_batches(opened, pytest.fail)
        opened.close()
        assert batch.values(most_bytes=1 << 20) == [(one.offset, one.value) for one in records]


def _checkpoint(end):
    return encode_offset_checkpoint({(TOPIC, 0): end, (TOPIC, 1): 999, ("orders", 0): 999})


WITNESSES = {
    "recovery-point-offset-checkpoint": _checkpoint,
    "replication-offset-checkpoint": _checkpoint,
    "log-start-offset-checkpoint": _checkpoint,
    f"{TOPIC}-0/{snapshot_name(60)}": lambda end: b"",
    f"{TOPIC}-0/leader-epoch-checkpoint": lambda end: encode_leader_epoch_checkpoint(
        [LeaderEpochEntry(0, 0), LeaderEpochEntry(4, end)]
    ),
    f"{TOPIC}-0/{offset_index_name(48)}": lambda end: struct.pack(">iiii", 5, 300, end - 49, 700),
    f"{TOPIC}-0/{time_index_name(48)}": lambda end: struct.pack(">qiqi", 1, 5, 2, end - 49),
    f"{TOPIC}-0/{time_index_name(57)}": lambda end: b"",
}
"""What beside a log of 60 records shows that it had the last of them; the last one, that there was a segment more."""


@pytest.mark.parametrize("name", WITNESSES)
def test_a_log_that_ends_before_what_lies_beside_it_has_lost_its_end(tmp_path, name):
    """Cut between two batches, the log is sound by itself."""
    logs = write_metadata(tmp_path, a_history())
    (tmp_path / name).write_bytes(WITNESSES[name](60))
    if name.endswith(time_index_name(57)):  # of the last two batches there was a segment of their own
        logs[-1].write_bytes(logs[-1].read_bytes()[: -_last_batch_bytes(logs[-1])])
        logs.append(logs[-1].with_name(log_name(57)))
        logs[-1].write_bytes(
            metadata_batch([encode_remote_log_metadata(one) for one in a_history()[57:]], 57)
        )
    with read(tmp_path) as metadata:
        assert rules(metadata) == []
    if name.endswith(time_index_name(57)):
        logs.pop().unlink()
    else:
        logs[-1].write_bytes(logs[-1].read_bytes()[: -_last_batch_bytes(logs[-1])])
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["missing-end"]
        (finding,) = metadata.findings
        assert (finding.file, finding.severity) == (str(logs[-1]), "damage")
        assert "ends at offset 57" in finding.detail
        assert str(tmp_path / name) in finding.detail
        assert metadata.hides_records(OWNER.topic_id, OWNER.partition)


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_an_index_with_room_may_have_entries_that_a_truncation_has_left(tmp_path, is_cut_off):
    """Kafka zeroes none of them; a truncation leaves whole batches, though."""
    logs = write_metadata(tmp_path, a_history())
    index = tmp_path / f"{TOPIC}-0" / offset_index_name(48)
    index.write_bytes(struct.pack(">iiii", 5, 300, 60 - 49, 700) + bytes(800))
    size_bytes = logs[-1].stat().st_size - _last_batch_bytes(logs[-1]) + 20 * is_cut_off
    logs[-1].write_bytes(logs[-1].read_bytes()[:size_bytes])
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["torn-tail", "missing-end"] * is_cut_off
        assert metadata.hides_records(OWNER.topic_id, OWNER.partition) is is_cut_off


def _last_batch_bytes(log):
    opened = LocalStore(str(log.parent)).open(log.name)
    *_, last = read_batches(opened, pytest.fail)
    opened.close()
    return len(last.data)


def test_what_another_replica_has_after_a_lost_end_is_read(tmp_path):
    """The one whose segments began later reaches furthest by its names, and less far by its offsets."""
    history = a_history()
    (whole,) = write_metadata(tmp_path / "a", history, segment_batches=100)
    logs = write_metadata(tmp_path / "b", history)
    (tmp_path / "b" / "replication-offset-checkpoint").write_bytes(_checkpoint(60))
    logs[-1].write_bytes(logs[-1].read_bytes()[: -_last_batch_bytes(logs[-1])])
    for folders in (("a", "b"), ("b", "a")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert rules(metadata) == []
            assert metadata.record_count == 60
    whole.write_bytes(whole.read_bytes()[: -_last_batch_bytes(whole)])
    with read(tmp_path / "a", tmp_path / "b") as metadata:
        assert rules(metadata) == ["missing-end"]


def test_what_another_replica_has_after_a_torn_tail_is_read(tmp_path):
    history = a_history()
    write_metadata(tmp_path / "a", history, segment_batches=100)
    logs = write_metadata(tmp_path / "b", history)
    logs[-1].write_bytes(logs[-1].read_bytes()[:-20])
    for folders in (("a", "b"), ("b", "a")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert rules(metadata) == ["torn-tail"]
            assert metadata.record_count == 60, folders
    with read(tmp_path / "b") as metadata:
        assert metadata.record_count < 60


def test_an_index_that_does_not_ascend_says_nothing_of_the_end(tmp_path):
    write_metadata(tmp_path, a_history())
    (tmp_path / f"{TOPIC}-0" / offset_index_name(48)).write_bytes(struct.pack(">iiii", 900, 800, 700, 900))
    with read(tmp_path) as metadata:
        assert rules(metadata) == []


def test_only_the_partitions_of_a_damaged_log_have_hidden_records(tmp_path):
    owners = [replace(OWNER, topic_id=UUID(int=n)) for n in range(2)]
    for n, owner in enumerate(owners):
        logs = write_metadata(tmp_path, as_of(a_history(), owner), partition=n)
    logs[0].unlink()
    with read(tmp_path) as metadata:
        assert [metadata.hides_records(owner.topic_id, owner.partition) for owner in owners] == [False, True]


def test_a_missing_segment_is_told(tmp_path):
    logs = write_metadata(tmp_path, a_history())
    logs[0].unlink()
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["missing-records"]
        assert "offsets 0 to 11" in metadata.findings[0].detail


def test_an_unreadable_segment_is_told(tmp_path):
    logs = write_metadata(tmp_path, a_history())

    class Failing(LocalStore):
        def open(self, key):
            if key.endswith(logs[1].name):
                raise PermissionError(13, "no", key)
            return super().open(key)

    with read_remote_metadata([Failing(str(tmp_path))]) as metadata:
        assert rules(metadata) == ["unreadable", "missing-records"]


def test_records_that_do_not_parse_are_told(tmp_path):
    """Of an unknown partition at once, of a known one when it is asked for; once."""
    history = a_history(3)
    broken = encode_remote_log_metadata(history[0])[:-1]
    snapshot = encode_remote_log_metadata(replace(history[0], owner=None))
    write_metadata(tmp_path, [b"\x01\x00\x00\x05x", snapshot, *history, broken, b"", b"\xff" * 40])
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["malformed-record"] * 4
        assert offsets(metadata) == [0, 1, 9, 10]
        for _ in range(2):
            assert len(segments_of(metadata, OWNER.topic_id, OWNER.partition)) == 3
            assert offsets(metadata) == [0, 1, 9, 10, 8]


def test_batches_that_are_there_twice_are_played_once(tmp_path):
    """A segment that was copied while it grew, and the one behind it."""
    (folder,) = {log.parent for log in write_metadata(tmp_path, a_history(), segment_batches=100)}
    (log,) = folder.iterdir()
    data = log.read_bytes()
    (folder / f"{30:020d}.log").write_bytes(data)
    with read(tmp_path) as metadata:
        assert metadata.record_count == 60
        assert metadata.findings == []


def test_a_batch_that_is_there_in_part_is_played_in_part(tmp_path):
    values = [encode_remote_log_metadata(one) for one in a_history(3)]
    (log,) = write_metadata(tmp_path, [])
    log.write_bytes(metadata_batch(values[:4], 0) + metadata_batch(values[2:], 2))
    with read(tmp_path) as metadata:
        assert metadata.record_count == 6
        assert metadata.findings == []
        assert len(segments_of(metadata, OWNER.topic_id, OWNER.partition)) == 3
        assert metadata.findings == []


def test_of_several_copies_the_one_that_reaches_furthest_is_read(tmp_path):
    history = a_history()
    write_metadata(tmp_path / "a", history[:20])
    write_metadata(tmp_path / "b", history)
    write_metadata(tmp_path / "c", history[:50])
    with read(tmp_path / "a", tmp_path / "b", tmp_path / "c") as metadata:
        assert metadata.record_count == 60


def test_what_another_replica_has_after_the_first_is_read(tmp_path):
    """A follower that is behind, and began a segment later than its leader: nothing beside the logs tells of more."""
    history = a_history()
    write_metadata(tmp_path / "leader", history, segment_batches=100)
    logs = write_metadata(tmp_path / "follower", history)
    logs[-1].write_bytes(logs[-1].read_bytes()[: -_last_batch_bytes(logs[-1])])
    for folders in (("leader", "follower"), ("follower", "leader")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert metadata.record_count == 60, folders


def test_what_an_earlier_leader_has_not_committed_is_not_read(tmp_path):
    """It reaches further, and its files and checkpoints tell of more: the leader of the next epoch has cut that off."""
    history = a_history()
    write_metadata(tmp_path / "leader", history[:51], segment_batches=100)
    write_metadata(tmp_path / "before", history, segment_batches=100)
    (tmp_path / "before" / "replication-offset-checkpoint").write_bytes(_checkpoint(60))
    for name, epochs in (("leader", [(3, 0), (5, 51)]), ("before", [(3, 0)])):
        (tmp_path / name / "__remote_log_metadata-0" / "leader-epoch-checkpoint").write_bytes(
            encode_leader_epoch_checkpoint([LeaderEpochEntry(*one) for one in epochs])
        )
    for folders in (("leader", "before"), ("before", "leader")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert (metadata.record_count, rules(metadata)) == (51, []), folders
    (tmp_path / "before" / "__remote_log_metadata-0" / "leader-epoch-checkpoint").unlink()
    with read(tmp_path / "before", tmp_path / "leader") as metadata:
        assert metadata.record_count == 60  # of which epoch it is nobody knows


@pytest.mark.parametrize(
    ("epochs", "is_read"), [([(3, 0)], True), ([(2, 0), (4, 30)], False), ([(4, 0)], False)]
)
def test_damage_is_read_from_a_follower_that_has_no_record_of_the_last_epoch(tmp_path, epochs, is_read):
    """A leader has that from its election on. What is of an epoch that it does not have may be of another history."""
    history = a_history()
    (log,) = write_metadata(tmp_path / "leader", history, segment_batches=100)
    write_metadata(tmp_path / "follower", history, segment_batches=100)
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    for name, entries in (("leader", [(2, 0), (3, 10), (5, 60)]), ("follower", epochs)):
        (tmp_path / name / "__remote_log_metadata-0" / "leader-epoch-checkpoint").write_bytes(
            encode_leader_epoch_checkpoint([LeaderEpochEntry(*one) for one in entries])
        )
    for folders in (("leader", "follower"), ("follower", "leader")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert (rules(metadata) == []) is is_read
            assert (metadata.record_count == 60) is is_read


@pytest.mark.parametrize("zeros", [40, 9 << 20])
def test_zeros_at_the_end_were_preallocated(tmp_path, zeros):
    (log,) = write_metadata(tmp_path, a_history(), segment_batches=100)
    log.write_bytes(log.read_bytes() + bytes(zeros))
    with read(tmp_path) as metadata:
        assert metadata.record_count == 60
        assert rules(metadata) == []
    log.write_bytes(log.read_bytes() + b"\1")
    with read(tmp_path) as metadata:
        assert rules(metadata) == ["damaged-batch"]


def _damaged_replicas(tmp_path, *damaged):
    """Log dirs with the same 20 batches, of which these are damaged in each."""
    for number, batches in enumerate(damaged):
        (log,) = write_metadata(tmp_path / str(number), a_history(), segment_batches=100)
        opened = LocalStore(str(log.parent)).open(log.name)
        positions = [one.position for one in read_batches(opened, pytest.fail)]
        opened.close()
        data = bytearray(log.read_bytes())
        for batch in batches:
            data[positions[batch] + 70] ^= 1
        log.write_bytes(data)
    return [tmp_path / str(number) for number in range(len(damaged))]


@pytest.mark.parametrize("damaged", [([4], []), ([4, 9, 19], [5, 0]), ([0], [19]), ([3], [4], [5])])
def test_what_is_damaged_in_one_replica_is_read_from_another(tmp_path, damaged):
    folders = _damaged_replicas(tmp_path, *damaged)
    with read(*folders) as sound, read(*folders[::-1]) as reverse:
        for metadata in (sound, reverse):
            assert (metadata.record_count, rules(metadata)) == (60, [])
            assert len(segments_of(metadata, OWNER.topic_id, OWNER.partition)) == 30


def test_what_is_damaged_in_all_replicas_is_told(tmp_path):
    folders = _damaged_replicas(tmp_path, [4, 7], [4, 9])
    for order in (folders, folders[::-1]):
        with read(*order) as metadata:
            assert metadata.record_count == 60 - 2 * 3  # the one that is told of is read to its end
            assert rules(metadata) == ["damaged-batch", "missing-records"] * 2
            assert offsets_of_missing(metadata) == [12, 21 if order is folders else 27]


def offsets_of_missing(metadata):
    return [int(found.detail.split()[2]) for found in metadata.findings if "missing-records" in found.detail]


def test_a_sound_replica_that_is_behind_does_not_hide_the_damage_after_its_end(tmp_path):
    _damaged_replicas(tmp_path, [15])
    write_metadata(tmp_path / "behind", a_history()[:30], segment_batches=100)
    for folders in (("0", "behind"), ("behind", "0")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert (metadata.record_count, rules(metadata)) == (57, ["damaged-batch", "missing-records"])


def test_the_beginning_that_one_replica_has_lost_is_read_from_another(tmp_path):
    history = a_history()
    write_metadata(tmp_path / "whole", history)
    logs = write_metadata(tmp_path / "cut", history)
    logs[0].unlink()
    for folders in (("cut", "whole"), ("whole", "cut")):
        with read(*(tmp_path / name for name in folders)) as metadata:
            assert (metadata.record_count, rules(metadata)) == (60, [])


def test_other_folders_are_passed_over(tmp_path):
    for name in ("__remote_log_metadata-1.0123-delete", "__remote_log_metadata-x", "orders-0"):
        write_metadata(tmp_path / "x", a_history(2))
        (tmp_path / "x" / "__remote_log_metadata-0").rename(tmp_path / name)
    with read(tmp_path) as metadata:
        assert metadata.partitions() == []


def test_problems_are_kept_up_to_a_limit():
    with RemoteMetadata() as metadata:
        for offset in range(MOST_FINDINGS + 10):
            metadata.add(b"", offset)
        assert len(metadata.findings) == MOST_FINDINGS
        assert metadata.counts == {"malformed-record": MOST_FINDINGS + 10}


@pytest.mark.parametrize("seed", range(40))
def test_changed_bytes_are_told_and_never_raise(tmp_path, seed):
    rng = random.Random(seed)
    logs = write_metadata(tmp_path, wild_records(rng), codec=rng.choice([Codec.NONE, Codec.GZIP]))
    for log in logs:
        data = bytearray(log.read_bytes())
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        log.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
    with read(tmp_path) as metadata:
        for owner in metadata.partitions():
            segments_of(metadata, owner.topic_id, owner.partition)
        assert metadata.findings


def test_batches_larger_than_the_window_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("recovery.read.windows.WINDOW_BYTES", 100)
    (log,) = write_metadata(tmp_path, a_history(), batch_records=4, segment_batches=100)
    opened = LocalStore(str(tmp_path)).open(str(log.relative_to(tmp_path)))
    damage = []
    batches = list(read_batches(opened, damage.append))
    opened.close()
    assert b"".join(batch.data for batch in batches) == log.read_bytes()
    assert damage == []


def test_a_batch_that_claims_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("recovery.archive.remote.log_batches.MOST_BATCH_BYTES", 500)
    monkeypatch.setattr("recovery.read.windows.WINDOW_BYTES", 100)
    path = tmp_path / "log"
    path.write_bytes(metadata_batch([bytes(600)], 0) * 2)
    opened = LocalStore(str(tmp_path)).open("log")
    damage = []
    assert list(read_batches(opened, damage.append)) == []
    opened.close()
    assert "is not read" in damage[0].detail


def test_the_sample_of_a_crash_reads(tmp_path_factory):
    sample = unpack("crashed", tmp_path_factory.mktemp("crashed"))
    with read(*[Path(log_dir) for log_dir in sample.log_dirs]) as metadata:
        (owner,) = metadata.partitions()
        assert owner.topic == "tiered"
        assert all(one.state is FINISHED for one in segments_of(metadata, owner.topic_id, owner.partition))
        assert not metadata.counts
