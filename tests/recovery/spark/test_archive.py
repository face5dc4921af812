"""The same verdicts and the same bytes from every kind of Spark as from one process."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.packing import pack
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.survey import SurveyedPartition, survey
from recovery.archive.check.survey_spool import SurveySpool
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from recovery.spark import archive
from recovery.stop_request import StopRequest
from recovery.watch.events import BytesScanned, Event, Observer
from recovery.watch.gauges import Gauges
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.damage.archive_campaign import ArchiveBench
from tests.damage.archive_damage import ARCHIVE_DAMAGES
from tests.recovery.spark.conftest import opened
from tests.runs.goings import NOW_MS, recovered_in
from tests.servers.spark_cluster import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TASK_BYTES = 4 << 20
"""A dozen of the sample's segments: neighbouring ones of a partition lie in several tasks."""


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    """The sample with some damage of every kind."""
    archive = unpack_tiered(tmp_path_factory.mktemp("tiered"))
    for place, suffix in enumerate(
        (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")
    ):
        paths = [path for path in sorted(archive.path.rglob(f"*{suffix}")) if path.stat().st_size]
        paths[2 + place].unlink()
        changed = paths[-1 - place]
        data = bytearray(changed.read_bytes())
        data[len(data) // 2] ^= 0x5A
        changed.write_bytes(data)
    return archive


@pytest.fixture(scope="module")
def topic_configs(tiered: TieredArchive) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((tiered.root / "topic-configs.json").read_text())
    return found


@pytest.fixture(scope="module")
def expected(
    tiered: TieredArchive, topic_configs: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> ArchiveReport:
    """The report of this process, with an output."""
    return run(None, tiered.path, tmp_path_factory.mktemp("expected"), topic_configs)


def run(
    spark: SparkSession | None,
    url: Path | str,
    output: Path | str | None,
    topic_configs: dict[str, dict[str, str]],
    *,
    is_in_place: bool = False,
    task_bytes: int = TASK_BYTES,
    keys: AivenKeys = NO_KEYS,
    observers: Sequence[Observer] = (),
    stop: StopRequest | None = None,
) -> Any:
    options = CheckOptions(
        url=str(url),
        output=None if output is None else str(output),
        rebuilds=output is not None,
        is_in_place=is_in_place,
        topic_configs=topic_configs,
        keys=keys,
        cores=2,
        task_bytes=task_bytes,
        now_ms=NOW_MS,
    )
    engine = "process" if spark is None else "spark"
    return archive.check(options, engine=engine, spark=spark, observers=observers, stop=stop)


def said(report: ArchiveReport) -> dict[str, Any]:
    """What a report says, but for what differs from run to run."""
    fields = json.loads(report.to_json().replace(report.run, "run"))
    for name in ("run", "durationMs", "output", "quarantine", "archive"):
        del fields[name]
    for row in (*fields["objects"], *fields["noted"]):
        del row["version"]  # of a copy, or an ETag
    return fields


def verdict_rows(report: ArchiveReport) -> list[list[dict[str, Any]]]:
    """The verdicts in a report's output, on objects and on partitions."""
    folder = Path(report.output or "") / "history" / report.run
    objects = pq.read_table(folder / "objects").to_pylist()
    partitions = pq.read_table(folder / "partitions").to_pylist()
    for row in (*objects, *partitions):
        assert row.pop("run_id") == report.run
        row["run_time"] = row["version"] = None  # of a copy, or an ETag
        row |= {
            name: value.replace(report.run, "run") for name, value in row.items() if isinstance(value, str)
        }
    for finding in (finding for row in objects for finding in row["findings"]):
        finding["remedy"] = finding["remedy"].replace(report.run, "run")
    return [sorted(objects, key=itemgetter("key")), sorted(partitions, key=itemgetter("prefix"))]


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_partition_is_split_over_tasks(tiered: TieredArchive) -> None:
    """What the tests here depend on: eight tasks at least, and transactions open where one ends and the next begins."""
    store = open_store(str(tiered.path))
    layout = layout_of(store)
    with SurveySpool() as spool:
        for one in survey(store, layout, ScanOptions(url=store.url, layout=layout.name)):
            assert isinstance(one, SurveyedPartition)
            spool.add(one)
        tasks = list(pack(spool, task_bytes=TASK_BYTES))
    assert len(tasks) >= 8
    shares = [sum(works.prefix.startswith("transactions-0") for works in task.works) for task in tasks]
    assert sum(share > 0 for share in shares) >= 3


@pytest.mark.every_spark
def test_spark_finds_and_rebuilds_what_one_process_does(
    spark: SparkSession,
    tiered: TieredArchive,
    topic_configs: dict[str, dict[str, str]],
    expected: ArchiveReport,
    tmp_path: Path,
) -> None:
    output = tmp_path / "output"
    report = run(spark, tiered.path, output, topic_configs)
    assert said(report) == said(expected)
    assert verdict_rows(report) == verdict_rows(expected)
    assert tree_of(recovered_in(output)) == tree_of(recovered_in(expected.output))
    assert report.exit_code == 2
    assert report.summary.rebuilt > 5
    assert report.summary.notes


def test_plain_copies_and_aivens_objects_are_judged_as_by_one_process(
    local_spark: SparkSession, stored_archive: TieredArchive, tmp_path: Path
) -> None:
    """Both beneath one archive, with ten damages or more in each."""
    bench, root, rng = (
        ArchiveBench(tmp_path / "bench", stored_archive),
        tmp_path / "archive",
        random.Random(8),
    )
    for layout in ("plain", "aiven, zstd, encrypted"):
        damaged = bench.sound(layout).copy(root / layout.partition(",")[0])
        names = [name for name in ARCHIVE_DAMAGES if not name.startswith("metadata")]
        done = [name for name in rng.sample(names, 20) if ARCHIVE_DAMAGES[name](damaged, rng) is not None]
        assert len(done) >= 10
    output = tmp_path / "output"
    report = run(local_spark, root, output, {}, keys=bench.keys)
    here = run(None, root, tmp_path / "here", {}, keys=bench.keys)
    assert said(report) == said(here)
    assert verdict_rows(report) == verdict_rows(here)
    assert tree_of(recovered_in(output)) == tree_of(recovered_in(here.output))
    assert {report.layout, report.exit_code} == {"plain, aiven", 4}
    assert report.summary.rebuilt
    assert report.summary.damaged > 20


def test_without_an_output_everything_goes_through_spark(
    local_spark: SparkSession, tiered: TieredArchive, topic_configs: dict[str, dict[str, str]]
) -> None:
    found = run(local_spark, tiered.path, None, topic_configs)
    assert said(found) == said(run(None, tiered.path, None, topic_configs))


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["spark-first", "process-first"])
def test_a_second_run_reads_what_is_new_alone_whichever_engine_made_the_first(
    local_spark: SparkSession,
    tiered: TieredArchive,
    topic_configs: dict[str, dict[str, str]],
    tmp_path: Path,
    order: tuple[bool, bool],
) -> None:
    root = Path(shutil.copytree(tiered.path, tmp_path / "archive"))
    output = tmp_path / "output"
    one, other = (local_spark if is_spark else None for is_spark in order)
    first = run(one, root, output, topic_configs)
    changed = sorted(root.rglob("plain-0-*/*.log"))[2]
    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    second = run(other, root, output, topic_configs)
    assert second.known_segments == first.summary.segments - 1
    known = {(row["key"], row["detail"]) for row in first.objects}
    new = [row["key"] for row in second.objects if (row["key"], row["detail"]) not in known]
    assert new == [str(changed.relative_to(root))]
    objects = pq.read_table(output / "verdicts", filters=[("kind", "=", "log")])
    assert objects.num_rows == first.summary.segments
    assert (output / "history" / first.run / "summary.json").exists()


def test_in_place_everything_is_kept(
    local_spark: SparkSession, tiered: TieredArchive, topic_configs: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    root, twin = (Path(shutil.copytree(tiered.path, tmp_path / name)) for name in ("archive", "twin"))
    before, output = tree_of(root), tmp_path / "output"
    report = run(local_spark, root, output, topic_configs, is_in_place=True)
    rebuilt = {row["rebuilt"] for row in report.objects if row["rebuilt"] is not None}
    after = tree_of(root)
    changed = {key for key in after if after[key] != before.get(key)}
    assert changed == rebuilt
    assert len(rebuilt) > 5
    quarantine = tree_of(output / "quarantine" / report.run)
    assert quarantine == {key: before[key] for key in changed & set(before)}
    here = run(None, twin, tmp_path / "output of twin", topic_configs, is_in_place=True)
    assert said(here) == said(report)
    assert tree_of(twin) == after
    assert tree_of(tmp_path / "output of twin" / "quarantine" / here.run) == quarantine
    again = run(local_spark, root, output, topic_configs, is_in_place=True)
    assert {row["key"] for row in again.objects} == {
        row["key"] for row in report.objects if row["rebuilt"] is None and row["valid"] is not True
    }
    assert again.summary.rebuilt == 0
    assert tree_of(root) == after


def test_gauges_fall_to_nothing(
    local_spark: SparkSession, tiered: TieredArchive, topic_configs: dict[str, dict[str, str]]
) -> None:
    gauges = Gauges()
    seen: list[tuple[int, int]] = []

    def look(event: Event) -> None:
        gauges(event)
        if isinstance(event, BytesScanned):
            (watched,) = gauges.values().log_dirs
            seen.append((watched.remaining_logs or 0, watched.remaining_bytes))

    run(local_spark, tiered.path, None, topic_configs, observers=[look])
    assert len(seen) >= 8  # a task at a time
    assert seen == sorted(seen, reverse=True)
    values = gauges.values()
    assert (values.state, values.exit_code) == ("complete", 2)
    (watched,) = values.log_dirs
    assert watched.remaining_bytes == 0
    assert watched.finished_logs == watched.log_count == 13
    assert watched.finished_segments == watched.segment_count == 206
    assert watched.scanned_bytes == watched.bytes_total


def test_a_signal_ends_it_and_the_next_run_goes_on(
    local_spark: SparkSession, tiered: TieredArchive, topic_configs: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    stop, output = StopRequest(), tmp_path / "output"

    def stop_soon(event: Event) -> None:
        if isinstance(event, BytesScanned):
            stop.request(15)

    first = run(local_spark, tiered.path, output, topic_configs, observers=[stop_soon], stop=stop)
    assert first.exit_code == 143
    assert not (output / "history" / first.run).exists()
    second = run(local_spark, tiered.path, output, topic_configs)
    assert second.exit_code == 2
    assert second.known_segments > 0


def test_an_executor_without_the_package_is_told_so(
    tiered: TieredArchive, bare_python: Path, tmp_path: Path
) -> None:
    with (
        opened(settings(tmp_path / "spark") | {"spark.master": "local[2]"}, python=str(bare_python)) as spark,
        pytest.raises(UsageError, match="executors have no kafka-log-recovery: install it in their Python"),
    ):
        run(spark, tiered.path, tmp_path / "out", {})
    assert not list((tmp_path / "out").rglob("*.parquet"))  # nothing is said of what nobody has looked at
