"""The benchmarks of archives at a tiny size: that they measure what they say."""

import json
from pathlib import Path

import pytest

from benchmarks import archive, archive_engines, archive_survey
from benchmarks.small_segments import make_small_segments
from tests.runs.goings import bad_objects, gone_through


def test_small_segments_are_sound(tmp_path):
    total = make_small_segments(tmp_path / "d", count=25, segment_bytes=4096, a_partition=10)
    verdicts = gone_through(tmp_path)
    assert bad_objects(verdicts) == {}
    assert [verdict.segment_count for verdict in verdicts] == [10, 10, 5]
    assert sum(verdict.log_bytes for verdict in verdicts) == total == 25 * (total // 25)
    assert 3900 < total // 25 < 4300


@pytest.mark.parametrize("layout", ["local-tiered", "plain", "aiven"])
def test_a_survey_is_measured(tmp_path, capsys, layout):
    arguments = ["--segments", "2000", "--partitions", "4", "--layout", layout]
    assert archive_survey.main([*arguments, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == json.loads(capsys.readouterr().out)
    assert found["segments"] == 2000
    assert found["tasks"] > 50
    assert found["largest_task_of_mean"] < 1.4


@pytest.mark.spark
@pytest.mark.parametrize("layout", ["local-tiered", "plain", "aiven"])
def test_a_plan_to_read_is_measured(capsys, layout):
    arguments = ["--what", "read-plan", "--segments", "2000", "--partitions", "4", "--layout", layout]
    assert archive_survey.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["segments"] == 2000
    assert 1000 < found["tasks"] <= 2000
    assert 100 < found["task_bytes_a_segment"] < 1200


def test_partitions_are_linked_as_often_as_asked(tmp_path):
    make_small_segments(tmp_path / "source", count=6, segment_bytes=4096, a_partition=3)
    total = archive.linked(tmp_path / "source", tmp_path / "into", 3)
    logs = sorted((tmp_path / "into").rglob("*.log"))
    assert len(logs) == 18
    assert sum(path.stat().st_size for path in logs) == total


@pytest.mark.spark
def test_spark_is_measured_beside_one_process(tmp_path, capsys):
    options = ["--scratch", str(tmp_path), "--small-segments", "30", "--rounds", "1"]
    archive.main([*options, "--json", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    (only,) = found["rounds"]
    assert only["local"]["damaged"] == only["spark"]["damaged"] == 0
    assert found["efficiency_cpu"] == only["local"]["cpu_s"] / only["spark"]["cpu_s"] < 1
    assert found["segments"] == 30
    assert [path.name for path in Path(tmp_path).iterdir()] == ["out.json"]


@pytest.mark.spark
def test_logs_alone_are_measured_stage_by_stage(tmp_path, capsys):
    options = ["--scratch", str(tmp_path), "--small-segments", "30", "--logs-only", "--rounds", "1"]
    archive.main([*options, "--json", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    (only,) = found["rounds"]
    assert only["loop"]["segments"] == only["spark"]["segments"] == 30
    assert only["loop"]["damaged"] == only["spark"]["damaged"] == 0
    # A stage of 30 segments may well take less than a tick of the clock that counts other processes' CPU.
    for stage in ("survey", "scan", "fold"):
        assert found[f"{stage}_cpu_us_a_segment"] == only["spark"][f"{stage}_cpu_s"] / 30 * 1e6 >= 0
    with pytest.raises(SystemExit):
        archive.main(["--scratch", str(tmp_path), "--logs-only"])


@pytest.mark.spark
def test_the_engines_are_measured_beside_a_plain_read(tmp_path, capsys):
    options = ["--scratch", str(tmp_path), "--bytes", "", "--small-segments", "30", "--rounds", "1"]
    archive_engines.main([*options, "--json", str(tmp_path / "out.json")])
    (found,) = json.loads((tmp_path / "out.json").read_text())["archives"]
    (only,) = found["rounds"]
    assert only["process"]["damaged"] == only["spark"]["damaged"]
    assert found["process_of_spark"] == only["process"]["wall_s"] / only["spark"]["wall_s"] < 1
    assert 0 < found["plain_s"] < found["process_wall_s"]
    assert found["process_cpu_s"] < found["spark_cpu_s"]
    heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.count("|") == row.count("|") == 7
    assert row.startswith("| 30 segments of 4 KiB | ")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["out.json"]
