"""What a broker needs of tiered storage to serve a log from there, whose records are not restored (`--aux`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recovery.archive.layouts.layout import Layout
from recovery.archive.restore.source import READABLE, REBUILT, SourcePartition, SourceSegment
from recovery.archive.stores.archived import ArchivedSegment, PartKind
from recovery.archive.stores.store import Store
from recovery.errors import error_text
from segfmt.errors import FormatError
from segfmt.producer_snapshot import read_producer_snapshot

_SERVED = frozenset({PartKind.LOG, PartKind.OFFSET_INDEX, PartKind.TIME_INDEX})
"""Of each segment. Kafka: RemoteIndexCache.createCacheEntry."""
_AT_END = frozenset({PartKind.SNAPSHOT, PartKind.LEADER_EPOCHS})
"""Of the last segment. Kafka: TierStateMachine.buildRemoteLogAuxState."""


def as_served(store: Store, source: SourcePartition) -> SourcePartition:
    """Return *source*, with the reasons why no broker can serve it from the archive, if there are any.

    Logs and indexes are judged by what was listed of them.
    """
    if not source.layout.is_tiered or not source.segments or source.reasons:
        return source
    missing = [name for one in source.segments for name in _missing(source, one)]
    if missing:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        reason = f"{missing[0]}{more} is not in the archive, without which no broker serves it. {REBUILT}"
        return replace(source, reasons=(reason,))
    return replace(source, reasons=_unread(store, source.layout, source.segments[-1].segment))


def _missing(source: SourcePartition, one: SourceSegment) -> Iterator[str]:
    """Yield the names of a segment's objects that a broker needs, and that are not there."""
    kinds = _SERVED | (_AT_END if one is source.segments[-1] else frozenset())
    if one.has_aborted:  # a broker would take a missing index for an empty one, and the records for committed
        kinds |= {PartKind.TXN_INDEX}
    missing = source.layout.objects_of(*kinds) - one.segment.parts.keys()
    yield from sorted(source.layout.name_of(one.segment, kind) for kind in missing)


def _unread(store: Store, layout: Layout, segment: ArchivedSegment) -> tuple[str, ...]:
    """Return why the producers at the end of a segment are not known, nothing if they are."""
    try:
        read_producers(store, layout, segment)
    except FormatError as error:
        return (f"{error}. {REBUILT}",)
    except OSError as error:
        return (f"{layout.name_of(segment, PartKind.SNAPSHOT)}: {error_text(error)}. {READABLE}",)
    return ()


def read_producers(store: Store, layout: Layout, segment: ArchivedSegment) -> bytes:
    """Return the snapshot of producers at the end of a segment in tiered storage.

    Raises:
        FormatError: it is damaged; the text names it, and where in it.
        OSError: it cannot be read.
    """
    try:
        data = layout.files(store, segment).read_part(PartKind.SNAPSHOT)
        read_producer_snapshot(data)
    except FormatError as error:
        name = layout.name_of(segment, PartKind.SNAPSHOT)
        raise FormatError(
            f"{name} at byte {error.position}: snapshot: {error}", position=error.position, kafka=error.kafka
        ) from error
    return data
