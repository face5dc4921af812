"""Recovering some partitions of a log dir: the rest is left as it is, and a run over all comes to the same end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import recovery
from recovery.engine.report import RecoveryReport
from recovery.errors import UsageError
from segfmt.checkpoint import read_offset_checkpoint
from tests.logs.samples import MARKER, Sample, tree_of, unpack
from tests.runs.command import run

CHECKPOINT = "recovery-point-offset-checkpoint"
CHOSEN = "tiny-batches-0"


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


def recovered(sample: Sample, **options: object) -> RecoveryReport:
    return recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, **options)  # type: ignore[arg-type]  # by name


def folder_of(sample: Sample, name: str) -> Path:
    (folder,) = (path for log_dir in sample.log_dirs for path in log_dir.glob(name))
    return folder


def trees(sample: Sample) -> dict[str, bytes]:
    return {
        f"{log_dir.name}/{name}": data
        for log_dir in sample.log_dirs
        for name, data in tree_of(log_dir, ignore=(".lock",)).items()
    }


def lines_of(log_dir: Path) -> dict[tuple[str, int], int]:
    return dict(read_offset_checkpoint((log_dir / CHECKPOINT).read_bytes()))


def test_the_rest_is_left_alone_and_the_dir_is_not_handed_over(sample: Sample) -> None:
    log_dir = folder_of(sample, CHOSEN).parent
    before, lines = trees(sample), lines_of(log_dir)
    report = recovered(sample, partitions=(CHOSEN,))
    assert report.exit_code == 4
    assert [one.folder for one in report.partitions] == [CHOSEN]
    after = trees(sample)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    own = {name for name in changed if name.startswith(f"{log_dir.name}/{CHOSEN}/")}
    assert own
    assert changed - own == {f"{log_dir.name}/{CHECKPOINT}"}
    assert not any((path / MARKER).exists() for path in sample.log_dirs)
    now = lines_of(log_dir)
    key = ("tiny-batches", 0)
    assert now[key] == report.partitions[0].log_end_offset
    assert {**now, key: lines.get(key, 0)} == {**lines, key: lines.get(key, 0)}
    left = sum(len(one.not_chosen) for one in report.log_dirs)
    assert left == 28
    assert "28 logs not chosen: not checked, and left as they were" in report.to_text()
    assert "no clean-shutdown marker: a broker will run recovery here" in report.to_text()


def test_all_of_it_then_is_what_it_would_have_been_at_once(sample: Sample, ram_path: Path) -> None:
    shutil.copytree(sample.root, ram_path / "twin" / sample.name)
    recovered(sample, topics=("tiny-batches",))
    assert recovered(sample).exit_code == 0
    ours = trees(sample)
    for log_dir in sample.log_dirs:
        shutil.rmtree(log_dir)
        shutil.copytree(ram_path / "twin" / sample.name / log_dir.name, log_dir)
    assert recovered(sample).exit_code == 0
    assert trees(sample) == ours


def test_a_clean_dir_of_which_a_part_is_in_order_stays_clean(ram_path: Path) -> None:
    sample = unpack("stopped", ram_path)
    before = trees(sample)
    report = recovered(sample, partitions=("plain-0",))
    assert report.exit_code == 0
    assert {one.status for one in report.log_dirs} == {"unchanged"}
    assert trees(sample) == before
    assert all((path / MARKER).exists() for path in sample.log_dirs)


def test_what_nobody_has_is_an_error_before_anything_is_changed(sample: Sample) -> None:
    before = trees(sample)
    with pytest.raises(UsageError, match="similar names: tiny-batches"):
        recovered(sample, topics=("tiny-batch",))
    with pytest.raises(UsageError, match="partitions from 0 to 0"):
        recovered(sample, partitions=("tiny-batches-7",))
    done = run("recover", "-c", sample.config, "--topic", "tiny-batchs", "--progress", "none")
    assert done.exit_code == 1
    assert "--topic tiny-batchs: not found in" in done.stderr
    assert trees(sample) == before


def test_a_repair_is_of_what_is_chosen(sample: Sample) -> None:
    foreign = sample.log_dirs[0] / "backup"
    foreign.mkdir()
    (folder_of(sample, CHOSEN) / "x.snapshot").write_bytes(b"")
    report = recovered(sample, partitions=(CHOSEN,), repair=True)
    assert foreign.is_dir()
    assert [line for one in report.log_dirs for line in one.repairs] != []
    assert all(CHOSEN in line for one in report.log_dirs for line in one.repairs)
    assert "backup" in {name for one in report.log_dirs for name in one.not_chosen}


def test_by_the_command(sample: Sample) -> None:
    chosen = ("--topic", "tiny-batches", "--partition", "codec-none-0")
    done = run("recover", "-c", sample.config, *chosen, "--now", str(sample.now_ms), "--format", "json")
    assert done.exit_code == 4
    partitions = {one["partition"] for log_dir in done.report["logDirs"] for one in log_dir["partitions"]}
    assert partitions == {"tiny-batches-0", "codec-none-0"}
    assert sum(len(log_dir["notChosen"]) for log_dir in done.report["logDirs"]) == 27


def test_the_metadata_log_is_not_there_to_be_chosen(sample: Sample) -> None:
    """Each start of a broker recovers it, and no run does."""
    for chosen in ({"topics": ("__cluster_metadata",)}, {"partitions": ("__cluster_metadata-0",)}):
        with pytest.raises(UsageError, match=r"__cluster_metadata.*: not found in"):
            recovered(sample, **chosen)


def test_a_folder_that_is_no_log_is_not_counted_as_one(sample: Sample) -> None:
    (sample.log_dirs[0] / "backup").mkdir()
    assert (
        "29 folders not chosen: not checked, and left as they were"
        in recovered(sample, partitions=(CHOSEN,)).to_text()
    )
