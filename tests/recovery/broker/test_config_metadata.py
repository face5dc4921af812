from uuid import UUID

import pytest

from recovery.broker import cluster_metadata
from recovery.broker.cluster_metadata import read_cluster_metadata
from recovery.logdir.metadata_files import load_cluster_metadata
from segfmt.errors import CorruptBatchError, MalformedMetadataError
from segfmt.metadata_record import (
    ApiKey,
    ConfigRecord,
    FeatureLevelRecord,
    OtherRecord,
    RegistrationRecord,
    RemoveTopicRecord,
    TopicRecord,
    TransactionRecord,
    encode_metadata_record,
    read_metadata_record,
)
from segfmt.record import Record, encode_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch
from tests.logs.samples import unpack
from tests.segfmt.golden_files import golden

FOOTER_BYTES = 75  # a batch of one control record
BEGIN, END, ABORT = (
    TransactionRecord(api_key=key)
    for key in (ApiKey.BEGIN_TRANSACTION, ApiKey.END_TRANSACTION, ApiKey.ABORT_TRANSACTION)
)


def topic(name, number=1):
    return TopicRecord(name=name, topic_id=UUID(int=number))


def remove(number=1):
    return RemoveTopicRecord(topic_id=UUID(int=number))


def level(number, name="metadata.version"):
    return FeatureLevelRecord(name=name, feature_level=number)


def register(broker_id, version):
    return RegistrationRecord(node_id=broker_id, features={"metadata.version": version, "kraft.version": 1})


def config(name, key, value, resource_type=2):
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


def batch(records, base_offset=0):
    values = [
        Record(offset=base_offset + n, timestamp_ms=5, value=encode_metadata_record(record))
        for n, record in enumerate(records)
    ]
    header = RecordBatchHeader(
        base_offset=base_offset,
        last_offset_delta=len(values) - 1,
        base_timestamp_ms=5,
        max_timestamp_ms=5,
        record_count=len(values),
    )
    return encode_record_batch(header, encode_records(values, base_offset=base_offset, base_timestamp_ms=5))


def log(*batches, base_offset=0):
    parts = []
    for records in batches:
        parts.append(batch(records, base_offset))
        base_offset += len(records)
    return b"".join(parts)


def snapshot_of(*batches):
    return log(*batches) + golden("voters.checkpoint")[-FOOTER_BYTES:]


def topic_configs(*batches):
    return read_cluster_metadata(None, [log(*batches)]).topic_configs


def test_nothing_is_known_without_files():
    metadata = read_cluster_metadata(None, [])
    assert (metadata.topic_ids, metadata.topic_configs, metadata.end_offset, metadata.damage) == (
        {},
        {},
        0,
        None,
    )
    assert metadata.broker(1) == {}


def test_real_metadata_log():
    metadata = read_cluster_metadata(golden("voters.checkpoint"), [golden("cluster-metadata.log")])
    assert metadata.topic_configs["compacted"]["cleanup.policy"] == "compact"
    assert metadata.topic_configs["codec-none"] == {"internal.segment.bytes": "49152"}
    assert metadata.cluster_default == {}
    assert metadata.cluster_default_after_load == {"min.insync.replicas": "1"}
    assert metadata.damage is None
    assert set(metadata.topic_configs) <= set(metadata.topic_ids)


def test_later_values_count_and_null_removes():
    records = [topic("t"), config("t", "a", "1"), config("t", "b", "1"), config("t", "a", "2")]
    assert topic_configs(records) == {"t": {"a": "2", "b": "1"}}
    assert topic_configs(records, [config("t", "b", None)]) == {"t": {"a": "2"}}
    assert topic_configs(records, [config("t", "a", None), config("t", "b", None)]) == {}


def test_settings_of_a_topic_that_is_not_there_do_not_count():
    assert topic_configs([config("t", "a", "1")]) == {}


def test_removed_topic_takes_its_settings_along():
    created = log([topic("t"), config("t", "a", "1")])
    removed = log([remove()], base_offset=2)
    again = log([remove(), topic("t", 2), config("t", "b", "2")], base_offset=2)
    assert read_cluster_metadata(None, [created, removed]).topic_ids == {}
    metadata = read_cluster_metadata(None, [created, again])  # two segments are two reads
    assert metadata.topic_configs == {"t": {"b": "2"}}
    assert metadata.topic_ids == {"t": UUID(int=2)}


def test_settings_of_a_topic_created_and_removed_in_one_read_stay_as_they_do_in_kafka():
    """Seen with Kafka's own MetadataDelta 4.3.1."""
    records = [topic("t"), config("t", "a", "1"), remove(), topic("t", 2), config("t", "b", "2")]
    assert topic_configs(records) == {"t": {"a": "1", "b": "2"}}
    assert topic_configs(*([record] for record in records)) == {"t": {"a": "1", "b": "2"}}
    assert topic_configs(records[:3]) == {}


def test_a_read_ends_after_8_mib(monkeypatch):
    records = [topic("t"), config("t", "a", "1"), remove(), topic("t", 2)]
    batches = [[record] for record in records]
    sizes = [len(batch([record])) for record in records]
    monkeypatch.setattr(cluster_metadata, "MAX_READ_BYTES", sum(sizes[:2]))
    assert topic_configs(*batches) == {}
    monkeypatch.setattr(cluster_metadata, "MAX_READ_BYTES", sum(sizes[:3]))
    assert topic_configs(*batches) == {"t": {"a": "1"}}


def test_topic_removed_in_a_later_read_with_new_settings_in_it():
    first = log([topic("t"), config("t", "a", "1")])
    second = log([config("t", "c", "3"), remove(), topic("t", 2), config("t", "b", "2")], base_offset=2)
    assert read_cluster_metadata(None, [first, second]).topic_configs == {"t": {"b": "2"}}


def test_broker_settings_in_force_are_those_of_the_snapshot():
    snapshot = snapshot_of(
        [config("", "log.preallocate", "true", 4), config("1", "log.segment.bytes", "5", 4)]
    )
    newer = [config("", "log.preallocate", "false", 4), config("1", "x", "y", 4), config("2", "z", "1", 4)]
    metadata = read_cluster_metadata(snapshot, [log(newer, base_offset=2)], checkpoint_end_offset=2)
    assert metadata.cluster_default == {"log.preallocate": "true"}
    assert metadata.broker(1) == {"log.segment.bytes": "5"}
    assert metadata.broker(2) == metadata.broker(None) == {}
    assert metadata.cluster_default_after_load == {"log.preallocate": "false"}
    assert metadata.brokers_after_load == {"1": {"log.segment.bytes": "5", "x": "y"}, "2": {"z": "1"}}


def test_records_below_the_snapshots_end_are_not_applied_again():
    snapshot = snapshot_of([topic("t"), config("t", "a", "2")])
    whole = log([topic("t"), config("t", "a", "1")], [config("t", "a", "2"), config("t", "b", "1")])
    metadata = read_cluster_metadata(snapshot, [whole], checkpoint_end_offset=3)
    assert metadata.topic_configs == {"t": {"a": "2", "b": "1"}}
    assert metadata.end_offset == 4
    metadata = read_cluster_metadata(
        snapshot, [whole], checkpoint_end_offset=9
    )  # the log is behind its snapshot
    assert metadata.topic_configs == {"t": {"a": "2"}}
    assert metadata.end_offset == 9


def test_torn_tail_ends_the_log():
    first = log([topic("t"), config("t", "a", "1")])
    second = log([config("t", "a", "2")], base_offset=2)
    metadata = read_cluster_metadata(None, [first + second[:-1], log([config("t", "a", "3")], base_offset=3)])
    assert metadata.topic_configs == {"t": {"a": "1"}}
    assert "cut off" in metadata.damage
    assert metadata.end_offset == 2


def test_damaged_snapshot_is_refused():
    snapshot = snapshot_of([topic("t")])
    flipped = bytearray(snapshot)
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        read_cluster_metadata(bytes(flipped), [])
    for end in (0, len(snapshot) - FOOTER_BYTES):
        with pytest.raises(CorruptBatchError, match=f"position {end}: it ends without a footer"):
            read_cluster_metadata(snapshot[:end], [], checkpoint_end_offset=1)


def test_log_without_its_beginning_is_refused():
    with pytest.raises(MalformedMetadataError, match="begins at offset 5"):
        read_cluster_metadata(None, [log([topic("t")], base_offset=5)])
    with pytest.raises(MalformedMetadataError, match="ends at 4"):
        read_cluster_metadata(
            snapshot_of([topic("t")]), [log([topic("u", 2)], base_offset=5)], checkpoint_end_offset=4
        )


def test_transactions():
    base = [topic("t"), config("t", "a", "1")]
    change = [config("t", "a", "2"), config("t", "b", "2")]
    assert topic_configs(base, [BEGIN, *change, END]) == {"t": {"a": "2", "b": "2"}}
    assert topic_configs([*base, BEGIN], change, [END]) == {"t": {"a": "2", "b": "2"}}
    assert topic_configs(base, [BEGIN, *change, ABORT]) == {"t": {"a": "1"}}
    assert topic_configs(base, [BEGIN, *change]) == {"t": {"a": "1"}}
    assert topic_configs(base, [BEGIN, topic("u", 2), config("u", "a", "1"), ABORT]) == {"t": {"a": "1"}}


def test_transaction_goes_on_in_the_next_segment():
    first = log([topic("t"), BEGIN, config("t", "a", "1")])
    second = log([END], base_offset=3)
    assert read_cluster_metadata(None, [first]).topic_configs == {}
    assert read_cluster_metadata(None, [first, second]).topic_configs == {"t": {"a": "1"}}


class TestVersions:
    """What version brokers are of."""

    def test_the_level_of_the_cluster_is_the_last_one(self):
        found = read_cluster_metadata(None, [log([level(7), level(11), level(12, "group.version")])])
        assert found.metadata_version == 11
        assert found.node_versions == {}

    def test_each_broker_tells_what_it_knows_when_it_starts(self):
        found = read_cluster_metadata(None, [log([register(1, 11), register(2, 25)], [register(1, 14)])])
        assert found.node_versions == {1: 14, 2: 25}

    def test_a_controller_that_is_also_a_broker_tells_before_it_has_loaded_logs(self):
        started = RegistrationRecord(node_id=1, features={"metadata.version": 33}, is_controller=True)
        assert read_metadata_record(encode_metadata_record(started)) == started
        found = read_cluster_metadata(None, [log([register(1, 30)], [started])])
        assert found.node_versions == {1: 33}

    def test_a_registration_of_a_later_kind_says_nothing(self):
        value = bytearray(encode_metadata_record(register(1, 11)))
        value[2] = 5
        assert read_metadata_record(bytes(value)) == OtherRecord(api_key=0, version=5)

    def test_a_registration_that_ends_early_is_malformed(self):
        value = encode_metadata_record(register(1, 11))
        with pytest.raises(MalformedMetadataError, match="REGISTER_BROKER"):
            read_metadata_record(value[:32])

    def test_real_brokers_tell_theirs(self, tmp_path):
        sample = unpack("crashed", tmp_path)
        found = load_cluster_metadata(str(sample.log_dirs[0] / "__cluster_metadata-0"))
        (version,) = found.node_versions.values()
        assert version >= found.metadata_version >= 22
