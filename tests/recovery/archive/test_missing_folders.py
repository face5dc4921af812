"""A copied log dir whose checkpoints name partitions that were not copied: nothing of these was checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.errors import UsageError
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT
from tests.logs.samples import unpack
from tests.runs.goings import objects_of, run_through


@pytest.mark.parametrize("sample", ["intact", "crashed", "stopped", "tiered"])
def test_whole_log_dirs_of_brokers_miss_none(sample: str, tmp_path: Path) -> None:
    for log_dir in unpack(sample, tmp_path).log_dirs:
        report = inventory(ArchiveOptions(url=str(log_dir)))
        assert "missing-folder" not in {rule for _, rule in report.rules}


def test_a_folder_that_was_not_copied(tmp_path: Path) -> None:
    log_dir = Path(
        next(path for path in unpack("intact", tmp_path).log_dirs if Path(path, "plain-0").exists())
    )
    backup = tmp_path / "archive" / "backup"
    shutil.copytree(log_dir, backup)
    shutil.rmtree(backup / "plain-0")
    report, verdicts = run_through(CheckOptions(url=str(backup.parent)))
    judged = objects_of(verdicts)[f"backup/{RECOVERY_POINT_CHECKPOINT}"].verdict
    assert (judged.is_valid, judged.findings[0].rule, report.exit_code) == (None, "missing-folder", 4)
    assert "plain-0 has had offset" in judged.findings[0].detail
    (found,) = [
        one
        for one in inventory(ArchiveOptions(url=str(backup.parent))).findings
        if one[1].rule == "missing-folder"
    ]
    assert found[0] + found[1].file == f"backup/{RECOVERY_POINT_CHECKPOINT}"
    other = inventory(ArchiveOptions(url=str(backup.parent), topics=("deleted-records",)))
    assert "missing-folder" not in {rule for _, rule in other.rules}
    with pytest.raises(UsageError, match="plain"):  # of what is chosen nothing is there
        inventory(ArchiveOptions(url=str(backup.parent), topics=("plain",)))
