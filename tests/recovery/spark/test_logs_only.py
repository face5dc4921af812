"""The logs of an archive alone on Spark: the verdicts of one process, kept apart from those of a whole verify."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.summary import Summary
from recovery.archive.check.verdict_rows import object_row
from recovery.cli.main import main
from recovery.spark import archive
from tests.brokers.tiered_broker import unpack_tiered
from tests.runs.goings import gone_through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The tiered sample with some damaged logs, and one that is gone."""
    root = unpack_tiered(tmp_path / "tiered").path
    logs = [path for path in sorted(root.rglob("*.log")) if path.stat().st_size]
    for path in logs[3::20]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x5A
        path.write_bytes(data)
    logs[10].unlink()
    return root


def checked(spark: SparkSession, root: Path, output: Path | None = None, **options: bool) -> ArchiveReport:
    return archive.verify(
        str(root), output=None if output is None else str(output), spark=spark, cores=2, **options
    )


def test_spark_finds_what_one_process_does(local_spark: SparkSession, damaged: Path) -> None:
    verdicts = gone_through(damaged, is_logs_only=True)
    expected = [
        object_row(verdict, one)
        for verdict in verdicts
        for one in verdict.objects
        if one.verdict.is_valid is not True
    ]
    summary = Summary()
    for verdict in verdicts:
        summary.add(verdict)
    report = checked(local_spark, damaged, logs_only=True)
    assert report.objects == sorted(expected, key=lambda row: row["key"])
    assert len(report.objects) > 5
    assert report.summary == summary
    assert report.exit_code == 2
    assert " logs (nothing else was checked): " in report.to_text()
    assert json.loads(report.to_json())["logsOnly"] is True
    whole = checked(local_spark, damaged)
    assert json.loads(whole.to_json())["logsOnly"] is False
    firsts = {
        row["key"]: (row["rule"], row["first_bad_position"]) for row in whole.objects if row["kind"] == "log"
    }
    assert {row["key"]: (row["rule"], row["first_bad_position"]) for row in report.objects} == firsts


def test_what_was_ignored_is_noted(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--property", "log.preallocate=true"]
    command = ["archive", "verify", str(damaged), "--logs-only", "--progress", "none", *given]
    words = [
        "--property log.preallocate is given more than once; the last value, false, counts",
    ]
    for form in ("json", "text"):
        assert main([*command, "--property", "log.preallocate=false", "--format", form]) == 2
        said = capsys.readouterr().out
        found = [one["text"] for one in json.loads(said)["notes"]] if form == "json" else said.splitlines()
        assert found == words if form == "json" else {f"note: {one}" for one in words} <= {*found}


def test_what_was_read_is_not_read_again(local_spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    output = tmp_path / "output"
    first = checked(local_spark, damaged, output, logs_only=True)
    changed = sorted(damaged.rglob("plain-0-*/*.log"))[3]  # in the midst of sound ones that have one row
    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    second = checked(local_spark, damaged, output, logs_only=True)
    assert second.known_segments == first.summary.segments - 1
    assert second.summary.batches < first.summary.batches + 1
    new = [row["key"] for row in second.objects if row not in first.objects]
    assert new == [str(changed.relative_to(damaged))]
    rows = pq.read_table(output / "verdicts").to_pylist()
    there = {str(path.relative_to(damaged)) for path in damaged.rglob("*.log")}
    assert {row["key"] for row in rows if row["rule"] != "missing-object"} == there
    assert len(rows) == len({row["key"] for row in rows}) == len(there) + 1
    assert {row["kind"] for row in rows} == {"log"}
    whole = checked(local_spark, damaged, output)
    assert whole.known_segments == 0
    third = checked(local_spark, damaged, output, logs_only=True)
    assert third.known_segments == second.summary.segments
    assert third.objects == second.objects
    assert third.summary == second.summary
    shutil.rmtree(changed.parent)
    fourth = checked(local_spark, damaged, output, logs_only=True)
    assert fourth.summary.partitions == third.summary.partitions - 1
