"""`archive metrics` and `archive retention`: the remote parts of tiered logs, by log dirs or copies of them.

No broker is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from typing import TypeVar

from recovery.archive.remote.remote_metadata import read_remote_metadata
from recovery.archive.stores.stores import open_store
from recovery.archive.tiering.figures import figures_of, sum_of
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.partition_state import PartitionState
from recovery.archive.tiering.report import TieredPartition, TieredTopic, TieringReport
from recovery.archive.tiering.retention_report import RetentionReport, retained
from recovery.archive.tiering.survey import TieringSurvey, refuse_nothing
from recovery.stop_request import StopRequest
from segfmt.kafka_uuid import format_uuid

_T = TypeVar("_T")


def measure_tiering(options: TieringOptions, *, stop: StopRequest | None = None) -> TieringReport:
    """Return the figures of all tiered partitions that are chosen. Nothing is locked or written.

    Args:
        options: whose logs, and which of them.
        stop: lets another thread end the run.

    Raises:
        UsageError: nothing is tiered in the log dirs, or not what was chosen; a setting that Kafka refuses.
        OSError: a log dir cannot be listed.
        InterruptedRecoveryError: *stop* was asked for.
    """
    started_s = time.monotonic()
    now_ms = _now_ms(options)
    partitions, warnings = _each_partition(
        options,
        lambda state: TieredPartition(
            topic=state.topic,
            topic_id=format_uuid(state.topic_id),
            partition=state.partition,
            figures=figures_of(state, now_ms=now_ms),
        ),
        stop,
    )
    partitions.sort(key=lambda one: (one.topic, one.topic_id, one.partition))
    topics = [
        TieredTopic(topic=topic, topic_id=topic_id, figures=sum_of(one.figures for one in of_topic))
        for (topic, topic_id), of_topic in groupby(partitions, key=lambda one: (one.topic, one.topic_id))
    ]
    return TieringReport(
        now_ms=now_ms,
        duration_ms=round((time.monotonic() - started_s) * 1000),
        topics=tuple(topics),
        partitions=tuple(partitions),
        warnings=warnings,
    )


def foretell_retention(options: TieringOptions, *, stop: StopRequest | None = None) -> RetentionReport:
    """Return what brokers will delete of the remote parts of logs. Nothing is locked, written or deleted.

    Args and errors are those of `measure_tiering`.
    """
    started_s = time.monotonic()
    now_ms = _now_ms(options)
    partitions, warnings = _each_partition(options, lambda state: retained(state, now_ms=now_ms), stop)
    partitions.sort(key=lambda one: (one.topic, one.topic_id, one.partition))
    return RetentionReport(
        now_ms=now_ms,
        duration_ms=round((time.monotonic() - started_s) * 1000),
        partitions=tuple(partitions),
        warnings=warnings,
    )


def _now_ms(options: TieringOptions) -> int:
    return time.time_ns() // 1_000_000 if options.now_ms is None else options.now_ms


def _each_partition(
    options: TieringOptions, look_at: Callable[[PartitionState], _T], stop: StopRequest | None
) -> tuple[list[_T], tuple[str, ...]]:
    """Return what *look_at* makes of each tiered partition, and what is not known."""
    stores = [open_store(url) for url in options.metadata]
    found = []
    with read_remote_metadata(stores) as metadata:
        refuse_nothing(stores, metadata)
        survey = TieringSurvey(stores, metadata, options)
        warnings = survey.warnings
        for state in survey.partitions():
            if stop is not None:
                stop.check()
            warnings += [f"{state.name}: {text}" for text in state.unknown]
            found.append(look_at(state))
        warnings += [
            f"{finding.file}: {finding.detail}"
            for finding in metadata.findings
            if finding.severity == "damage"
        ]
    return found, tuple(dict.fromkeys(warnings))
