"""Logs that have vanished, of which a broker says nothing: `recover` notes them, `verify` finds damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.check.finding import Finding
from recovery.check.report import VerifyReport
from recovery.engine.report import RecoveryReport
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.filenames import (
    CLUSTER_METADATA_FOLDER,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from tests.logs.samples import SAMPLE_NAMES, Sample, unpack
from tests.runs.verifying import held_lock, verified

NAME = "codec-none-0"
CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("crashed", tmp_path)


def log_dir_of(sample: Sample) -> Path:
    return next(log_dir for log_dir in sample.log_dirs if (log_dir / NAME).is_dir())


def missing_in(report: VerifyReport) -> list[tuple[str, Finding]]:
    return [
        (file.path, finding)
        for log_dir in report.log_dirs
        for file in log_dir.files
        for finding in file.findings
        if finding.rule == "missing-log"
    ]


def recovered(sample: Sample, **options: Any) -> RecoveryReport:
    return recovery.recover([*map(str, sample.log_dirs)], now_ms=sample.now_ms, **options)


def notes_in(report: RecoveryReport) -> list[str]:
    return [note.text for note in report.notes if "there is no folder of" in note.text]


def without_line(log_dir: Path, checkpoint: str) -> None:
    path = log_dir / checkpoint
    lines = dict(read_offset_checkpoint(path.read_bytes()))
    lines.pop((NAME[:-2], 0), None)
    path.write_bytes(encode_offset_checkpoint(lines))


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_whole_log_dirs_miss_none(name: str, tmp_path: Path) -> None:
    sample = unpack(name, tmp_path)
    assert missing_in(verified(sample)) == []
    assert notes_in(recovered(sample)) == []
    assert missing_in(verified(sample)) == []


def test_a_folder_that_vanished(sample: Sample) -> None:
    log_dir = log_dir_of(sample)
    shutil.rmtree(log_dir / NAME)
    report = verified(sample)
    ((path, found),) = missing_in(report)
    assert (report.exit_code, path, found.severity) == (2, str(log_dir / NAME), "damage")
    assert "ends it at offset" in found.detail
    assert "lost+found" in found.remedy
    (note,) = notes_in(recovered(sample, dry_run=True))
    assert note.startswith(f"{log_dir}: there is no folder of {NAME}, which had records")
    assert any(note in line for line in recovered(sample).to_text(-1).splitlines())
    # The recovery point is gone with the hand-off; what the high watermark says stays until a broker starts
    assert (NAME[:-2], 0) not in read_offset_checkpoint((log_dir / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert [one for one, _ in missing_in(verified(sample))] == [path]
    assert notes_in(recovered(sample)) == [note]


def test_those_that_were_not_chosen_are_left_alone(sample: Sample) -> None:
    shutil.rmtree(log_dir_of(sample) / NAME)
    assert missing_in(verified(sample, topics=("codec-gzip",))) == []
    assert notes_in(recovered(sample, topics=("codec-gzip",))) == []


def test_a_broker_at_work_may_be_deleting_it(sample: Sample) -> None:
    log_dir = log_dir_of(sample)
    shutil.rmtree(log_dir / NAME)
    with held_lock(log_dir):
        assert missing_in(verified(sample)) == []


@pytest.mark.parametrize(
    "state", ["another log dir", "pending deletion", "no line", "another id", "no metadata"]
)
def test_what_is_no_loss(state: str, sample: Sample) -> None:
    log_dir = log_dir_of(sample)
    folder = log_dir / NAME
    match state:
        case "another log dir":
            shutil.move(folder, next(one for one in sample.log_dirs if one != log_dir))
        case "pending deletion":
            folder.rename(log_dir / f"{NAME}.0123456789abcdef0123456789abcdef-delete")
        case "no line":
            shutil.rmtree(folder)
            for checkpoint in CHECKPOINTS:
                without_line(log_dir, checkpoint)
        case "another id":
            shutil.rmtree(folder)
            meta = log_dir / META_PROPERTIES
            lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id=")]
            meta.write_text("\n".join([*lines, "directory.id=AAAAAAAAAAAAAAAAAAAAZA", ""]))
        case "no metadata":
            shutil.rmtree(folder)
            for one in sample.log_dirs:
                shutil.rmtree(one / CLUSTER_METADATA_FOLDER, ignore_errors=True)
    assert missing_in(verified(sample)) == []
