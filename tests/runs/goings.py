"""Archives gone through in this process, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from recovery.archive.check.output import InPlace, RebuiltOutput
from recovery.archive.check.rebuild import Write
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.survey import SurveyedPartition, survey
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict
from recovery.archive.inventory.expectations import open_expectations
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.stores.stores import open_store
from recovery.broker.config import BrokerConfig
from recovery.broker.topic_configs import TopicConfigs
from tests.logs.samples import Sample
from tests.runs.in_process import log_verdicts_of, verdicts_of

NOW_MS = 1_795_400_000_000


def gone_through(
    root: Path | str,
    output: Path | str | None = None,
    *,
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    metadata: Sequence[Path] = (),
    is_deep: bool = False,
    is_logs_only: bool = False,
    is_in_place: bool = False,
    keys: AivenKeys = NO_KEYS,
    now_ms: int = NOW_MS,
) -> list[PartitionVerdict]:
    """Return the verdict of each partition in the archive at *root*, path or URL.

    What is rebuilt goes to *output*, or in its place, and what was there to the output's quarantine.
    """
    store = open_store(str(root))
    layout = layout_of(store, keys=keys)
    options = ScanOptions(
        url=store.url,
        layout=layout.name,
        rebuilds=output is not None,
        keys=keys,
        is_deep=is_deep,
        now_ms=now_ms,
        is_logs_only=is_logs_only,
    )
    configs = TopicConfigs(
        broker=BrokerConfig.from_layers(()),
        overrides={topic: dict(own) for topic, own in (topic_configs or {}).items()},
    )
    write: Write | None = None
    if output is not None and is_in_place:
        write = InPlace(store, open_store(str(output)), layout, "run")
    elif output is not None:
        write = RebuiltOutput(open_store(str(output)), layout)
    with ExitStack() as stack:
        expected = open_expectations([str(path) for path in metadata], stack)
        found = survey(
            store,
            layout,
            options,
            expected=expected,
            topic_configs=configs,
        )
        partitions = (one for one in found if isinstance(one, SurveyedPartition))
        if is_logs_only:
            return list(log_verdicts_of(store, layout, partitions))
        return list(verdicts_of(store, layout, partitions, write=write))


def bad_objects(verdicts: list[PartitionVerdict]) -> dict[str, list[str]]:
    """Return the rules, notes aside, by the key of each object that is not sound."""
    return {
        one.verdict.path: sorted({found.rule for found in one.verdict.findings if found.severity != "note"})
        for verdict in verdicts
        for one in verdict.objects
        if one.verdict.is_valid is not True
    }


def objects_of(verdicts: list[PartitionVerdict]) -> dict[str, ObjectVerdict]:
    """Return the verdicts of objects by key."""
    return {one.verdict.path: one for verdict in verdicts for one in verdict.objects}


def log_dir_configs(sample: Sample) -> dict[str, dict[str, str]]:
    """Return the settings of a sample's topics."""
    return {topic: dict(own) for topic, own in sample.topic_configs.items()}
