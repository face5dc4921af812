"""The broker's own pending deletions: gone without a trace by default, kept on request."""

from __future__ import annotations

from pathlib import Path

import pytest

import recovery
from tests.logs.samples import Sample, tree_of, unpack
from tests.runs.command import run


def _recover(sample: Sample, *, keep_deleted: bool) -> recovery.RecoveryReport:
    return recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, keep_deleted=keep_deleted)


def _deleted_logs(sample: Sample) -> dict[str, bytes]:
    return {
        f"{log_dir.name}/{name}": data
        for log_dir in sample.log_dirs
        for name, data in tree_of(log_dir).items()
        if name.endswith(".log.deleted") and data
    }


def _truncated_by_half(root: Path) -> tuple[Sample, Path]:
    """A broker was killed while it truncated a log: it had renamed some segments, and not yet those behind them."""
    sample = unpack("intact", root)
    (folder,) = (log_dir / "plain-0" for log_dir in sample.log_dirs if (log_dir / "plain-0").exists())
    for log_dir in sample.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
    for path in sorted(folder.glob("00000000000000000028.*")):
        path.rename(f"{path}.deleted")
    return sample, folder


def test_what_may_hold_missing_offsets_is_kept_unasked(tmp_path: Path) -> None:
    sample, folder = _truncated_by_half(tmp_path)
    before = tree_of(tmp_path)
    dry = recovery.recover(None, config=sample.properties, now_ms=sample.now_ms, dry_run=True)
    report = _recover(sample, keep_deleted=False)
    for one in (dry, report):
        (found,) = (partition for partition in one.partitions if partition.holes)
        assert [(hole.first_offset, hole.last_offset) for hole in found.holes] == [(28, 59)]
        assert (one.exit_code, found.pending_deletion_count) == (2, 0)
        assert "00000000000000000028.log.deleted" in found.to_quarantine
    (kept,) = folder.parent.with_name(f"{folder.parent.name}.quarantine").rglob("*28.log.deleted")
    assert kept.read_bytes() == before[str((folder / kept.name).relative_to(tmp_path))]
    undone = run("undo", "-c", sample.config)
    assert undone.exit_code == 0, undone.stderr
    after = tree_of(tmp_path)
    assert {name: data for name, data in after.items() if ".quarantine" not in name} == before

    assert "to have the records back, take this run back with undo, remove .deleted" in " ".join(
        found.warnings
    )
    for path in folder.glob("*.deleted"):
        path.rename(folder / path.name.removesuffix(".deleted"))
    again = _recover(sample, keep_deleted=False)
    assert (again.exit_code, [hole for one in again.partitions for hole in one.holes]) == (0, [])


def test_an_empty_index_of_what_is_kept_comes_back_as_well(tmp_path: Path) -> None:
    sample, folder = _truncated_by_half(tmp_path)
    (folder / "00000000000000000028.txnindex.deleted").touch()
    before = tree_of(tmp_path)
    _recover(sample, keep_deleted=False)
    assert run("undo", "-c", sample.config).exit_code == 0
    assert {name: data for name, data in tree_of(tmp_path).items() if ".quarantine" not in name} == before


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
