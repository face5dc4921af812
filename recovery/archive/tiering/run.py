"""`archive metrics` and `archive retention`: the remote parts of tiered logs, by log dirs or copies of them.

No broker is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

from recovery.archive.remote.remote_metadata import RemoteMetadata, read_remote_metadata
from recovery.archive.stores.store import Store
from recovery.archive.stores.stores import open_store
from recovery.archive.tiering.archive_survey import ArchiveSurvey
from recovery.archive.tiering.figures import figures_of, sum_of
from recovery.archive.tiering.metadata_log import refuse_several_clusters
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.report import TieredPartition, TieredTopic, TieringReport
from recovery.archive.tiering.retention_report import RetentionReport, retained
from recovery.archive.tiering.survey import TieringSurvey, refuse_nothing
from recovery.stop_request import StopRequest
from recovery.watch.tally import Tally
from segfmt.kafka_uuid import format_uuid


def measure_tiering(
    options: TieringOptions, *, stop: StopRequest | None = None, tally: Tally | None = None
) -> TieringReport:
    """Return the figures of all tiered partitions that are chosen. Nothing is locked or written.

    Args:
        options: whose logs, and which of them.
        stop: lets another thread end the run.
        tally: counts the partitions.

    Raises:
        UsageError: nothing is tiered in the log dirs, or not what was chosen; a setting that Kafka refuses; nothing of
            remote storage is in the archive.
        OSError: a log dir, or the archive, cannot be listed.
        InterruptedRecoveryError: *stop* was asked for.
    """
    tally = tally or Tally()
    started_s = time.monotonic()
    now_ms = _now_ms(options)
    partitions: list[TieredPartition] = []
    with _opened(options) as (stores, metadata, survey):
        # Before the log dirs are gone through: brokers at work go on copying and deleting in between
        archive = None if options.archive is None else ArchiveSurvey(options, metadata, stores, stop)
        for state in survey.partitions():
            if stop is not None:
                stop.check()
            figures = figures_of(state, now_ms=now_ms)
            if archive is not None:
                figures = replace(figures, **archive.of(state))
            partitions.append(
                TieredPartition(
                    topic=state.topic,
                    topic_id=format_uuid(state.topic_id),
                    partition=state.partition,
                    is_deleted=state.is_deleted,
                    figures=figures,
                )
            )
            tally.add()
        warnings = _warnings(survey, metadata, [] if archive is None else archive.warnings)
    partitions.sort(key=lambda one: (one.topic, one.topic_id, one.partition))
    topics = [
        TieredTopic(
            topic=topic,
            topic_id=topic_id,
            is_deleted=is_deleted,
            figures=sum_of(one.figures for one in of_topic),
        )
        for (topic, topic_id, is_deleted), of_topic in groupby(
            partitions, key=lambda one: (one.topic, one.topic_id, one.is_deleted)
        )
    ]
    return TieringReport(
        now_ms=now_ms,
        duration_ms=round((time.monotonic() - started_s) * 1000),
        topics=tuple(topics),
        partitions=tuple(partitions),
        archive=None if archive is None else archive.rest(),
        warnings=warnings,
    )


def foretell_retention(
    options: TieringOptions, *, stop: StopRequest | None = None, tally: Tally | None = None
) -> RetentionReport:
    """Return what brokers will delete of the remote parts of logs. Nothing is locked, written or deleted.

    Args and errors are those of `measure_tiering`.
    """
    tally = tally or Tally()
    started_s = time.monotonic()
    now_ms = _now_ms(options)
    partitions = []
    with _opened(options) as (_, metadata, survey):
        for state in survey.partitions():
            if stop is not None:
                stop.check()
            partitions.append(retained(state, now_ms=now_ms))
            tally.add()
        warnings = _warnings(survey, metadata)
    partitions.sort(key=lambda one: (one.topic, one.topic_id, one.partition))
    return RetentionReport(
        now_ms=now_ms,
        duration_ms=round((time.monotonic() - started_s) * 1000),
        partitions=tuple(partitions),
        warnings=warnings,
    )


def _now_ms(options: TieringOptions) -> int:
    return time.time_ns() // 1_000_000 if options.now_ms is None else options.now_ms


@contextmanager
def _opened(options: TieringOptions) -> Iterator[tuple[list[Store], RemoteMetadata, TieringSurvey]]:
    """Give the log dirs, what the metadata topic in them says, and the way through their partitions."""
    stores: list[Store] = [open_store(url) for url in options.metadata]
    refuse_several_clusters(stores)
    with read_remote_metadata(stores) as metadata:
        refuse_nothing(stores, metadata)
        yield stores, metadata, TieringSurvey(stores, metadata, options)


def _warnings(
    survey: TieringSurvey, metadata: RemoteMetadata, of_archive: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return what is not known, and why."""
    of_metadata = [f"{one.file}: {one.detail}" for one in metadata.findings if one.severity == "damage"]
    return tuple(dict.fromkeys((*survey.warnings, *of_metadata, *of_archive)))
