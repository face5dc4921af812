"""The broker's own pending deletions: gone without a trace by default, kept on request."""

from __future__ import annotations

from pathlib import Path

import pytest

import recovery
from tests.logs.samples import Sample, tree_of, unpack


def _recover(sample: Sample, *, keep_deleted: bool) -> recovery.RecoveryReport:
    return recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, keep_deleted=keep_deleted)


def _deleted_logs(sample: Sample) -> dict[str, bytes]:
    return {
        f"{log_dir.name}/{name}": data
        for log_dir in sample.log_dirs
        for name, data in tree_of(log_dir).items()
        if name.endswith(".log.deleted") and data
    }


@pytest.mark.parametrize("keep_deleted", [False, True])
def test_pending_deletions_go_and_are_kept_only_on_request(tmp_path: Path, keep_deleted: bool):
    sample = unpack("crashed", tmp_path)
    pending = _deleted_logs(sample)
    assert pending, "the sample has files that the broker was about to unlink"

    report = _recover(sample, keep_deleted=keep_deleted)

    assert report.exit_code == 0
    assert not _deleted_logs(sample)
    actions = [action for partition in report.partitions for action in partition.actions]
    assert sum("pending deletion" in action for action in actions) >= len(pending)
    kept = {
        f"{log_dir.name}/{path.parent.name}/{path.name}": path.read_bytes()
        for log_dir in sample.log_dirs
        for path in log_dir.with_name(f"{log_dir.name}.quarantine").rglob("*.log.deleted")
    }
    assert kept == (pending if keep_deleted else {})
