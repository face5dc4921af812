"""`archive metrics` and `archive retention` on the sample `tiered`: figures, what is not known, exit codes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from recovery.archive.tiering.deletion_table import DeletionTable
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.prometheus import metrics_text
from recovery.archive.tiering.retention import Deletion
from recovery.archive.tiering.run import foretell_retention, measure_tiering
from recovery.errors import UsageError
from segfmt.remote_log_metadata import RemoteSegment
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.runs.command import run
from tests.runs.driving import footprint


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("tiering"))


def dirs(archive: TieredArchive) -> str:
    return ",".join(map(str, archive.log_dirs))


def test_the_figures_agree_with_what_the_broker_said_of_its_segments(archive: TieredArchive) -> None:
    before = [footprint(path) for path in archive.log_dirs]
    done = run("archive", "metrics", "--metadata", dirs(archive), "--format", "json")
    assert (done.exit_code, done.report["exitCode"], done.report["warnings"]) == (0, 0, [])
    live: dict[tuple[str, int], list[str]] = {}
    for segment in archive.expected["segments"].values():
        live.setdefault((segment["topic"], segment["partition"]), []).append(segment["states"][-1])
    compared = 0
    for one in done.report["partitions"]:
        states = live.setdefault((one["topic"], one["partition"]), [])
        known = [state for state in states if state != "DELETE_SEGMENT_FINISHED"]
        assert one["remoteLogMetadataCount"] == len(known)
        assert one["copyRequests"] == len(states)
        assert one["copyUnfinished"] == known.count("COPY_SEGMENT_STARTED")
        assert one["deleteUnfinished"] == known.count("DELETE_SEGMENT_STARTED")
        assert one["deleteRequests"] == len(states) - len(known) + one["deleteUnfinished"]
        assert one["logStartOffset"] <= one["localLogStartOffset"] <= one["logEndOffset"]
        assert one["lineageSizeBytes"] <= one["remoteLogSizeBytes"]
        del live[one["topic"], one["partition"]]
        compared += len(known)
    assert compared > 100
    assert {state for states in live.values() for state in states} == {
        "DELETE_SEGMENT_FINISHED"
    }  # of deleted topics
    (plain,) = (one for one in done.report["topics"] if one["topic"] == "plain")
    parts = [one for one in done.report["partitions"] if one["topic"] == "plain"]
    assert plain["remoteLogSizeBytes"] == sum(one["remoteLogSizeBytes"] for one in parts) > 0
    assert "logEndOffset" not in plain
    assert [footprint(path) for path in archive.log_dirs] == before


def test_what_cannot_be_known_is_null_and_has_no_sample(archive: TieredArchive, tmp_path: Path) -> None:
    copy = tmp_path / "d1"
    shutil.copytree(archive.log_dirs[0], copy)
    report = measure_tiering(TieringOptions(metadata=(str(copy),)))
    assert report.exit_code == 4
    without_replica = [one for one in report.partitions if one.figures.log_end_offset is None]
    assert without_replica
    text = metrics_text(report).decode()
    for one in without_replica:
        assert one.figures.local_only_bytes is None
        assert one.figures.remote_copy_lag_bytes is None
        assert f'local_only_bytes{{partition="{one.partition}",topic="{one.topic}"}}' not in text
        assert any(
            warning.startswith(f"{one.topic}-{one.partition}: its local part: no replica")
            for warning in report.warnings
        )
    sums = {one.topic: one.figures for one in report.topics}
    assert sums[without_replica[0].topic].local_only_bytes is None
    retention = foretell_retention(TieringOptions(metadata=(str(copy),)))
    assert retention.exit_code == 4


def test_a_damaged_metadata_topic_hides_what_it_says(archive: TieredArchive, tmp_path: Path) -> None:
    copies = [shutil.copytree(path, tmp_path / path.name) for path in archive.log_dirs]
    for copy in copies:
        for log in copy.glob("__remote_log_metadata-*/*.log"):
            data = bytearray(log.read_bytes())
            if len(data) > 300:
                data[200] ^= 0xFF
                log.write_bytes(data)
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, copies))))
    assert report.exit_code == 4
    hidden = [one for one in report.partitions if one.figures.remote_log_size_bytes is None]
    assert hidden
    assert all(one.figures.remote_delete_lag_bytes is None for one in hidden)
    assert any("its remote segments: " in warning for warning in report.warnings)


def test_settings_that_nobody_knows_are_not_guessed(archive: TieredArchive, tmp_path: Path) -> None:
    copies = [
        shutil.copytree(path, tmp_path / path.name, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        for path in archive.log_dirs
    ]
    arguments = [
        "archive",
        "metrics",
        "--metadata",
        ",".join(map(str, copies)),
        "--format",
        "json",
        "--topic",
        "plain",
    ]
    done = run(*arguments)
    assert done.exit_code == 4
    assert {one["remoteDeleteLagBytes"] for one in done.report["partitions"]} == {None}
    assert "Remedy: give --topic-config" in done.report["warnings"][0]
    given = run(
        *arguments,
        "--topic-config",
        json.dumps({"plain": {"retention.ms": 1, "remote.log.copy.disable": True}}),
    )
    assert given.exit_code == 0
    for one in given.report["partitions"]:
        assert one["remoteDeleteLagSegments"] == one["remoteLogMetadataCount"] > 0
        assert one["copyDisabled"] is True


def test_retention_names_what_a_start_would_lose(archive: TieredArchive) -> None:
    done = run("archive", "retention", "--metadata", dirs(archive), "--format", "json")
    assert done.exit_code == done.report["exitCode"] == 2
    by_topic = {one["topic"]: one for one in done.report["partitions"]}
    lost = by_topic["expired-by-size"]
    assert lost["deletions"] == []
    assert (
        lost["atNextStart"]["inRetentionBytes"]
        == sum(one["sizeBytes"] for one in lost["atNextStart"]["deletions"])
        > 0
    )
    assert {one["reason"] for one in by_topic["expired-by-time"]["deletions"]} == {"time"}
    assert by_topic["plain"]["deletions"] == by_topic["plain"]["atNextStart"]["deletions"] == []
    text = run("archive", "retention", "--metadata", dirs(archive))
    assert text.stdout.startswith(
        "LOSS expired-by-size-0: a broker before 4.3.2 may delete 1 segment in retention"
    )
    assert "Nothing was deleted." in text.stdout
    raised = {"expired-by-size": {"retention.bytes": 10**9}}
    topics = ("--topic", "expired-by-size", "--topic-config", json.dumps(raised))
    assert run("archive", "retention", "--metadata", dirs(archive), *topics).exit_code == 0


def test_the_json_of_retention_is_made_in_parts_and_laid_out_as_a_whole(archive: TieredArchive) -> None:
    options = TieringOptions(
        metadata=tuple(map(str, archive.log_dirs)), topic_configs={"plain": {"retention.ms": "0"}}
    )
    report = foretell_retention(options)
    (most,) = (one for one in report.partitions if (one.topic, one.partition) == ("plain", 0))
    assert most.now is not None
    times = 2500 // len(most.now.deletions) + 1
    rows = [one for _ in range(times) for one in most.now.deletions]
    many = DeletionTable.of([Deletion(cast("RemoteSegment", one), one.reason) for one in rows])
    assert list(many) == rows
    assert many[-1] == rows[-1]
    partitions = [replace(one, now=replace(most.now, deletions=many)) for one in report.partitions[:2]]
    unknown = replace(most, now=None, at_next_start=None, never_deleted_bytes=None)
    long = replace(report, partitions=(*partitions, unknown, *report.partitions))
    for one in (long, report, replace(report, partitions=())):
        text = one.to_json()
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    parsed = json.loads(long.to_json())
    assert [one["maxTimestampMs"] for one in parsed["partitions"][0]["deletions"]] == [
        one.max_timestamp_ms for one in rows
    ]
    assert parsed["partitions"][2]["deletions"] is parsed["partitions"][2]["atNextStart"] is None
    assert max(map(len, long.json_parts())) < 400_000


def test_the_clock_may_be_given(archive: TieredArchive) -> None:
    early = foretell_retention(TieringOptions(metadata=tuple(map(str, archive.log_dirs)), now_ms=1))
    (expired,) = (one for one in early.partitions if one.topic == "expired-by-time")
    assert expired.now is not None
    assert len(expired.now.deletions) == 0


def test_the_textfile_has_the_same_figures(archive: TieredArchive, tmp_path: Path) -> None:
    file = tmp_path / "remote.prom"
    done = run(
        "archive",
        "metrics",
        "--metadata",
        dirs(archive),
        "--format",
        "prometheus",
        "--metrics-textfile",
        file,
    )
    assert done.exit_code == 0
    same = [line for line in file.read_text().splitlines() if "computationtime" not in line]
    assert same == [line for line in done.stdout.splitlines() if "computationtime" not in line]
    refused = run("archive", "metrics", "--metadata", dirs(archive), "--metrics-textfile", tmp_path)
    assert refused.exit_code == 1
    assert "Remedy: name a file" in refused.stderr


def test_wrong_use(archive: TieredArchive, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--metadata"):
        TieringOptions(metadata=())
    with pytest.raises(UsageError, match="no partition of __remote_log_metadata"):
        measure_tiering(TieringOptions(metadata=(str(tmp_path),)))
    with pytest.raises(UsageError, match="--topic nope: not found"):
        measure_tiering(TieringOptions(metadata=tuple(map(str, archive.log_dirs)), topics=("nope",)))
    assert run("archive", "metrics").exit_code == 1
