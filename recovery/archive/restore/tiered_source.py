"""What of a partition is restored from tiered storage.

Where the metadata topic is known (`--metadata`), a broker's lineage decides; else names do, as for reading records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.walk import Walked
from recovery.archive.records.broker_view import BrokerView, RemoteLog
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.restore.log_end import measured
from recovery.archive.restore.source import READABLE, REBUILT, SourcePartition, SourceSegment
from recovery.archive.restore.source_segments import gaps_between, source_segments
from recovery.archive.stores.archived import PartitionPrefix, PartKind
from recovery.archive.stores.store import Store
from recovery.errors import error_text
from segfmt.checkpoint import LeaderEpochEntry, read_leader_epoch_checkpoint
from segfmt.errors import FormatError, MissingKeyError
from segfmt.remote_log_metadata import TOPIC as METADATA_TOPIC

_BY_NAMES_ALONE = (
    "by the names in the archive alone, a first or last segment that is missing does not show. "
    "Remedy: give log dirs with --metadata"
)
_OTHER_METADATA = (
    f"Remedy: give another replica of {METADATA_TOPIC} with --metadata, or leave that out: then names tell which "
    "segments count"
)
_RIGHT_KEY = "Remedy: give the key that the plugin had by this id with --aiven-key"
_SOUND_SEGMENTS = "Remedy: put the segments that have them there from another copy of the archive"


def tiered_partition(
    store: Store, layout: Layout, walked: Walked, broker: BrokerView | None
) -> SourcePartition:
    """Return what is restored of a partition in the folder *walked*, or why it is not."""
    where = walked.partition.where
    remote = None if broker is None else broker.remote_log(where)
    reasons = [] if broker is None else list(_by_metadata(broker, where, remote))
    lineage = None if remote is None else remote.segments
    planned = choose_segments(walked.partition, layout, lineage)
    segments, unusable = source_segments(store, layout, planned, lineage, None)
    reasons += unusable
    end = None
    start = None
    epochs: Sequence[LeaderEpochEntry] = ()
    if not reasons:
        segments, ends = measured(store, layout, segments)
        end = ends[-1] if ends else None
        start = None if broker is None else broker.log_start(where)[0]
        reasons += [f"{gap}. {_SOUND_SEGMENTS}" for gap in gaps_between(segments, ends)]
    if segments and not reasons:
        epochs, unread = _epochs(store, layout, segments[-1])
        reasons += unread
    return SourcePartition(
        where=where,
        layout=layout,
        topic_id=where.topic_id,
        segments=segments,
        epochs=epochs,
        log_start_offset=start if segments else None,
        end_offset=end,
        warnings=() if remote is not None or reasons else (_BY_NAMES_ALONE,),
        reasons=tuple(reasons),
    )


def _by_metadata(broker: BrokerView, where: PartitionPrefix, remote: RemoteLog | None) -> Iterator[str]:
    """Yield why a tiered log cannot be restored, by the metadata topic."""
    hiding = broker.hiding(where)
    if hiding is not None:
        yield f"what became of its segments is not known: {hiding.file}: {hiding.detail}. {_OTHER_METADATA}"
    if remote is not None and remote.cut_off is not None:
        segment, why = remote.cut_off
        yield (
            f"segment {segment.start_offset}: {why}. Remedy: let its leader go on copying, or restore it from a copy "
            "of that leader's log dir"
        )


def _epochs(
    store: Store, layout: Layout, last: SourceSegment
) -> tuple[Sequence[LeaderEpochEntry], list[str]]:
    """Return the leader epochs that came with the last segment, and why they cannot be read."""
    try:
        data = layout.files(store, last.segment).read_part(PartKind.LEADER_EPOCHS)
        return read_leader_epoch_checkpoint(data), []
    except (OSError, FormatError) as error:
        name = layout.name_of(last.segment, PartKind.LEADER_EPOCHS)
        return (), [f"{name}: {error_text(error)}. {_remedy(error)}"]


def _remedy(error: OSError | FormatError) -> str:
    """Return what helps where a small file of a segment in tiered storage cannot be read."""
    if isinstance(error, MissingKeyError):
        return _RIGHT_KEY
    return READABLE if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) else REBUILT
