"""Hypothesis strategies for the metadata of tiered storage, and how Kafka's oracle spells it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from segfmt.checkpoint import LeaderEpochEntry
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_log_metadata import (
    RemoteLogMetadata,
    RemotePartition,
    RemotePartitionDelete,
    RemotePartitionDeleteState,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
OWNERS = st.builds(RemotePartition, topic=st.text(max_size=20), topic_id=st.uuids(), partition=INTS)
CUSTOM = st.none() | st.binary(max_size=200)
EPOCHS = st.dictionaries(INTS, LONGS, min_size=1, max_size=5).map(
    lambda entries: tuple(LeaderEpochEntry(epoch, start) for epoch, start in sorted(entries.items()))
)


@st.composite
def _segments(draw: st.DrawFn) -> RemoteSegment:
    start_offset, end_offset = sorted(draw(st.tuples(*[st.integers(0, 2**63 - 1)] * 2)))
    return RemoteSegment(
        owner=draw(st.none() | OWNERS),
        segment_id=draw(st.uuids()),
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=draw(INTS),
        max_timestamp_ms=draw(LONGS),
        event_timestamp_ms=draw(LONGS),
        leader_epochs=draw(EPOCHS),
        size_bytes=draw(INTS),
        custom_metadata=draw(CUSTOM),
        state=draw(st.sampled_from(RemoteSegmentState)),
        has_no_transactions=draw(st.booleans()),
    )


SEGMENTS = _segments()
UPDATES = st.builds(
    RemoteSegmentUpdate,
    owner=OWNERS,
    segment_id=st.uuids(),
    broker_id=INTS,
    event_timestamp_ms=LONGS,
    state=st.sampled_from(RemoteSegmentState),
    custom_metadata=CUSTOM,
)
DELETES = st.builds(
    RemotePartitionDelete,
    owner=OWNERS,
    broker_id=INTS,
    event_timestamp_ms=LONGS,
    state=st.sampled_from(RemotePartitionDeleteState),
)
RECORDS = SEGMENTS | UPDATES | DELETES


def as_kafka_tells(record: RemoteLogMetadata) -> dict[str, Any]:
    """The fields of *record* as RemoteLogOracle.java prints them, without "value"."""
    told: dict[str, Any] = {
        "broker_id": record.broker_id,
        "event_timestamp_ms": record.event_timestamp_ms,
        "state": int(record.state),
    }
    if record.owner is not None:
        told["topic"], told["partition"] = record.owner.topic, record.owner.partition
        told["topic_id"] = format_uuid(record.owner.topic_id)
    if isinstance(record, RemotePartitionDelete):
        return {"kind": "RemotePartitionDeleteMetadata", **told}
    custom = record.custom_metadata
    told |= {
        "segment_id": format_uuid(record.segment_id),
        "custom_metadata": None if custom is None else custom.hex(),
    }
    if isinstance(record, RemoteSegmentUpdate):
        return {"kind": "RemoteLogSegmentMetadataUpdate", **told}
    return {
        "kind": "RemoteLogSegmentMetadata" + ("Snapshot" if record.owner is None else ""),
        **told,
        "start_offset": record.start_offset,
        "end_offset": record.end_offset,
        "max_timestamp_ms": record.max_timestamp_ms,
        "size_bytes": record.size_bytes,
        "has_no_transactions": record.has_no_transactions,
        "leader_epochs": [[epoch, start] for epoch, start in record.leader_epochs],
    }
