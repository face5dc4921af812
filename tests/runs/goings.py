"""Archives gone through in this process, for tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict
from recovery.archive.engine.engine import RunPlan, RunSize
from recovery.archive.engine.process import ProcessEngine
from recovery.archive.engine.run import ArchiveRun
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.stop_request import StopRequest
from tests.logs.samples import Sample

NOW_MS = 1_795_400_000_000


def gone_through(
    root: Path | str,
    output: Path | str | None = None,
    *,
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    metadata: Sequence[Path | str] = (),
    topics: Collection[str] = (),
    keys: AivenKeys = NO_KEYS,
    is_deep: bool = False,
    is_logs_only: bool = False,
    is_in_place: bool = False,
    now_ms: int = NOW_MS,
) -> list[PartitionVerdict]:
    """Return the verdict of each partition in the archive at *root*, path or URL.

    What is rebuilt goes to *output*, or in its place, and what was there to the output's quarantine.
    """
    options = CheckOptions(
        url=str(root),
        output=None if output is None else str(output),
        rebuilds=output is not None,
        is_in_place=is_in_place,
        is_deep=is_deep,
        is_logs_only=is_logs_only,
        topics=tuple(topics),
        metadata=tuple(map(str, metadata)),
        keys=keys,
        topic_configs=topic_configs or {},
        now_ms=now_ms,
    )
    return run_through(options)[1]


def run_through(
    options: CheckOptions, *, stop: StopRequest | None = None
) -> tuple[ArchiveReport, list[PartitionVerdict]]:
    """Return the report of a run in this process, and the verdict of each partition."""
    verdicts: list[PartitionVerdict] = []

    def open_engine(plan: RunPlan, size: RunSize, stop: StopRequest) -> tuple[ProcessEngine, Sequence[str]]:
        return _Overheard(plan, stop, verdicts), ()

    return ArchiveRun(options, open_engine, stop=stop).run(), verdicts


class _Overheard(ProcessEngine):
    """The engine of this process; its verdicts are also entered in a list."""

    def __init__(self, plan: RunPlan, stop: StopRequest, verdicts: list[PartitionVerdict]) -> None:
        super().__init__(plan, stop, cores=2)
        self._overheard = verdicts

    def verdicts(self) -> Iterator[PartitionVerdict]:
        for verdict in super().verdicts():
            self._overheard.append(verdict)
            yield verdict


def recovered_in(output: Path | str | None) -> Path:
    """Return the folder of what the only run with an output has rebuilt."""
    (folder,) = Path(output or "", "recovered").iterdir()
    return folder


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
