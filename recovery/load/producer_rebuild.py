"""Producer state up to an offset: from the newest snapshot, and from the log after it.

Kafka: UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

from recovery.errors import PartitionRefusedError
from recovery.load.log_reader import LogReader
from recovery.load.producers import ProducerState
from recovery.load.segments import Segment, SegmentMap
from recovery.load.transactions import InvalidTxnStateError


def rebuild_producer_state(
    state: ProducerState,
    segments: SegmentMap,
    reader: LogReader,
    *,
    log_start_offset: int,
    last_offset: int,
    from_clean_shutdown: bool,
) -> None:
    """Bring *state* to *last_offset*, taking snapshots at the bases of the last two segments and at the end.

    After a clean shutdown without any snapshot Kafka assumes that the log is older than snapshots: it writes empty ones
    and reads nothing.

    Raises:
        PartitionRefusedError: the log after the snapshot holds something that stops the broker.
    """
    offsets_to_snapshot = [*segments.base_offsets[-2:], last_offset]
    if from_clean_shutdown and not state.has_snapshots:
        for offset in offsets_to_snapshot:
            state.map_end_offset = offset
            state.take_snapshot()
        return
    was_empty = state.is_empty and state.map_end_offset >= last_offset
    state.truncate_and_reload(log_start_offset, last_offset)
    if last_offset > state.map_end_offset and not was_empty:
        segment_of_last = segments.floor(last_offset)
        for segment in segments.values(state.map_end_offset, last_offset):
            start_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
            state.map_end_offset = start_offset
            if segment.base_offset in offsets_to_snapshot:
                state.take_snapshot()
            end_offset = last_offset if segment is segment_of_last else None
            _replay(state, segment, reader, start_offset, end_offset)
    state.map_end_offset = last_offset
    state.take_snapshot()


def _replay(
    state: ProducerState, segment: Segment, reader: LogReader, start_offset: int, end_offset: int | None
) -> None:
    request = reader.replay_request(segment, start_offset, end_offset)
    if request is None:
        return
    scan = reader.replay_scan(segment, request)
    if state.depends_on_settled(scan, is_replayed=True):
        scan = reader.with_settled(request, scan)
    try:
        state.replay(scan, is_last_followed=lambda: reader.is_last_producer_followed(request, scan))
    except InvalidTxnStateError as error:
        raise PartitionRefusedError(
            file=segment.log,
            position=error.position,
            rule="transaction-state",
            detail=str(error),
            remedy="restore the partition from another replica",
        ) from error
