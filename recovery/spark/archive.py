"""Archives as a library: for notebooks, for programs given to spark-submit, and for the command line.

    from recovery.spark import archive
    report = archive.verify("s3://backups/kafka", output="s3://backups/checked")
    print(report.to_text())

Archives of some GiB are checked in this process, larger ones by Spark (`engine`): by the session that is active in a
notebook or under spark-submit, else by an embedded one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.engine.run import ArchiveRun
from recovery.archive.inventory.report import InventoryReport
from recovery.archive.inventory.run import inventory as take_inventory
from recovery.archive.layouts.aiven_cipher import load_aiven_keys
from recovery.archive.layouts.layouts import AUTO
from recovery.archive.options import ArchiveOptions
from recovery.extras import ARCHIVE, load
from recovery.several import several
from recovery.spark.choice import AUTO as AUTO_ENGINE
from recovery.spark.choice import EngineChoice
from recovery.spark.session import open_session
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer
from recovery.watch.gauges import Gauges
from recovery.watch.notebook import NotebookLine, is_notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def inventory(
    url: str,
    *,
    layout: str = AUTO,
    metadata: Sequence[str] = (),
    files_from: str | None = None,
    output: str | None = None,
    topics: Collection[str] = (),
    partitions: Collection[str] = (),
    stop: StopRequest | None = None,
) -> InventoryReport:
    """List an archive and report objects that are missing or should not be there. Spark is not needed.

    Args:
        url, layout, metadata, files_from, topics, partitions, stop: as for `verify`.
        output: URL where a row for each segment goes, as Parquet.

    Raises:
        UsageError, OSError: as `verify`.
        InterruptedRecoveryError: *stop* was asked for.
    """
    options = ArchiveOptions(
        url=url,
        layout=layout,
        metadata=several("metadata", metadata),
        files_from=files_from,
        output=output,
        topics=several("topics", topics),
        partitions=several("partitions", partitions),
    )
    return take_inventory(options, stop=stop)


def verify(
    url: str,
    *,
    layout: str = AUTO,
    output: str | None = None,
    deep: bool = False,
    logs_only: bool = False,
    topics: Collection[str] = (),
    partitions: Collection[str] = (),
    aiven_keys: Mapping[str, str] | None = None,
    metadata: Sequence[str] = (),
    files_from: str | None = None,
    config: Mapping[str, str] | None = None,
    config_notes: Sequence[str] = (),
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    engine: str = AUTO_ENGINE,
    spark: SparkSession | None = None,
    cores: int | None = None,
    progress: bool | None = None,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
) -> ArchiveReport:
    """Check every object of an archive, and change nothing in it.

    Args:
        url: of the archive: a path, `s3://`, `gs://`, `az://`.
        layout: plain, local-tiered, aiven; auto looks at the names.
        output: URL where verdicts go as Parquet, and where the next run finds the scans of this one.
        deep: decompress and parse every record.
        logs_only: check only batches and offsets of the logs: for very many small segments, and for a first look.
        topics: only these; all by default.
        partitions: only these ("orders-3"), besides *topics*.
        aiven_keys: PEM files of RSA keys, by the ids that manifests call them by.
        metadata: paths or URLs of log dirs with partitions of `__remote_log_metadata`: what should be there.
        files_from: path of a list of the archive's objects, or of an S3 Inventory's manifest.json.
        config: broker properties.
        config_notes: notes for the report on where they come from.
        topic_configs: settings by topic; `cleanup.policy` says where offsets may be missing.
        engine: what does the work: process, spark, or auto, which chooses by size (`recovery.spark.choice`).
        spark: the session that does the work, which means the engine spark; None: if Spark is chosen, the active one,
            or one on all cores of this machine.
        cores: how many tasks run at a time; None: one for each CPU, or what Spark says (8 with Spark Connect, which
            does not say).
        progress: whether a line of standard output shows how far the run is; None: in a notebook.
        observers: notified of all progress.
        stop: lets another thread end the run.

    Returns:
        Counts, and the objects that are not sound; `exit_code` sums them up.

    Raises:
        UsageError: the archive has no known layout, or a setting is invalid; *deep* and *logs_only* together.
        OSError: the archive cannot be listed.
        ExecutorError: Spark gave up the job.
    """
    options = CheckOptions(
        url=url,
        layout=layout,
        output=output,
        is_deep=deep,
        is_logs_only=logs_only,
        topics=several("topics", topics),
        partitions=several("partitions", partitions),
        keys=load_aiven_keys(aiven_keys or {}),
        metadata=several("metadata", metadata),
        files_from=files_from,
        config=config or {},
        config_notes=tuple(config_notes),
        topic_configs=topic_configs or {},
        cores=cores,
    )
    watching = (*_line(progress), *observers)
    return check(options, engine=engine, spark=spark, observers=watching, stop=stop)


def recover(
    url: str,
    output: str | None = None,
    *,
    in_place: bool = False,
    layout: str = AUTO,
    deep: bool = False,
    topics: Collection[str] = (),
    partitions: Collection[str] = (),
    aiven_keys: Mapping[str, str] | None = None,
    metadata: Sequence[str] = (),
    files_from: str | None = None,
    config: Mapping[str, str] | None = None,
    config_notes: Sequence[str] = (),
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    engine: str = AUTO_ENGINE,
    spark: SparkSession | None = None,
    cores: int | None = None,
    progress: bool | None = None,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
) -> ArchiveReport:
    """Check an archive as `verify` does, and rebuild what follows from its logs: indexes, snapshots, leader epochs.

    Args:
        url, layout, deep, topics, partitions, aiven_keys, metadata, files_from, config, config_notes, topic_configs:
            as for `verify`; indexes follow index.interval.bytes and segment.index.bytes of their topic.
        engine, spark, cores, progress, observers, stop: as for `verify`.
        output: URL where rebuilt objects and verdicts go; None only with *in_place*: `<url>.quarantine`.
        in_place: write rebuilt objects into the archive; what they replace goes to the output's quarantine first.

    Returns:
        As `verify`; its exit code is 2 if something is damaged that cannot be rebuilt from a log.

    Raises:
        UsageError, OSError, ExecutorError: as `verify`; a layout whose objects cannot be replaced in place.
    """
    options = CheckOptions(
        url=url,
        layout=layout,
        output=output,
        rebuilds=True,
        is_in_place=in_place,
        is_deep=deep,
        topics=several("topics", topics),
        partitions=several("partitions", partitions),
        keys=load_aiven_keys(aiven_keys or {}),
        metadata=several("metadata", metadata),
        files_from=files_from,
        config=config or {},
        config_notes=tuple(config_notes),
        topic_configs=topic_configs or {},
        cores=cores,
    )
    watching = (*_line(progress), *observers)
    return check(options, engine=engine, spark=spark, observers=watching, stop=stop)


def check(
    options: CheckOptions,
    *,
    engine: str = AUTO_ENGINE,
    spark: SparkSession | None = None,
    open_spark: Callable[[], SparkSession] = open_session,
    is_cluster: bool = False,
    observers: Iterable[Observer] = (),
    stop: StopRequest | None = None,
) -> ArchiveReport:
    """Run `verify` or `recover` with *options* as one value.

    Args:
        options: which archive, and how.
        engine, spark, observers, stop: as for `verify`.
        open_spark: returns the session, if Spark is chosen and *spark* is None.
        is_cluster: whether that session is one that the user has named, which means the engine spark.

    Raises:
        UsageError, OSError, ExecutorError: as `verify` and `recover`.
    """
    choice = EngineChoice(
        engine,
        cores=options.cores,
        open_spark=open_spark if spark is None else lambda: spark,
        is_cluster=is_cluster or spark is not None,
    )
    load("archive verify or recover", "pyarrow", extras=ARCHIVE)
    return ArchiveRun(options, choice, observers=observers, stop=stop).run()


def _line(progress: bool | None) -> tuple[Observer, ...]:
    """Return what shows how far a run is: in a notebook, unless *progress* says otherwise."""
    if not (is_notebook() if progress is None else progress):
        return ()
    gauges = Gauges()
    return gauges, NotebookLine(sys.stdout, gauges)
