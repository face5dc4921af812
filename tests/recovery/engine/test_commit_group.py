"""Partitions that share their waits: the same states and the same end as of each by itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from recovery.engine import groups as module
from recovery.engine.groups import may_share
from recovery.engine.report import RecoveryReport
from recovery.load.model import FileStat, RemovalKind
from recovery.logdir.listing import list_files
from recovery.plan.actions import (
    LOG_DIR_ITSELF,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    TruncateFile,
    WriteFile,
)
from recovery.watch.events import Event, PartitionFinished, PartitionStarted
from recovery.write import apply as apply_module
from recovery.write import durable
from recovery.write.quarantine import manifest_entries
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack
from tests.recovery.engine.test_resume import logs_of
from tests.runs.driving import quarantine_of, recover


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


@pytest.fixture
def expected(ram_path: Path, monkeypatch) -> dict[str, bytes]:
    """What is left where each partition goes by itself."""
    with monkeypatch.context() as patch:
        patch.setattr("recovery.engine.partition_run.may_share", lambda _: False)
        whole = unpack("crashed", ram_path / "whole")
        recover(whole)
    return logs_of(tree_of(whole.root))


def counted(name: str, run: Callable[[], RecoveryReport]) -> tuple[int, RecoveryReport]:
    with mock.patch.object(durable.os, name, side_effect=getattr(os, name)) as called:
        report = run()
    return called.call_count, report


class TestTogether:
    def test_the_end_is_the_same(self, sample: Sample, expected: dict[str, bytes]) -> None:
        report = recover(sample, thread_count=1)
        assert report.exit_code == 0
        assert differences(expected, logs_of(tree_of(sample.root))) == []

    def test_waits_do_not_grow_with_the_partitions(self, sample: Sample, ram_path: Path, monkeypatch) -> None:
        waits, _ = counted("fsync", lambda: recover(sample, thread_count=1))
        monkeypatch.setattr(module, "_MOST_PARTITIONS", 1)
        alone = unpack("crashed", ram_path / "alone")
        many, _ = counted("fsync", lambda: recover(alone, thread_count=1))
        assert waits + 20 < many

    def test_what_is_entered_as_left_is_what_is_left(self, sample: Sample) -> None:
        recover(sample, thread_count=1)
        seen = 0
        for log_dir in sample.log_dirs:
            for run in quarantine_of(log_dir).iterdir():
                for entry in manifest_entries(str(run)):
                    if entry["kind"] == "change" and entry["partition"] != LOG_DIR_ITSELF:
                        after = {
                            name: FileStat(inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns)
                            for name, (inode, size_bytes, mtime_ns) in entry["after"].items()
                        }
                        found = list_files(str(log_dir / entry["partition"]))
                        assert after == found
                        seen += 1
        assert seen > 10

    def test_each_is_told_of_once_it_is_done(self, sample: Sample) -> None:
        events: list[Event] = []

        def watch(event: Event) -> None:
            events.append(event)
            if isinstance(event, PartitionFinished) and event.status == "recovered":
                folder = os.path.join(event.log_dir, event.partition)
                assert not [name for name in os.listdir(folder) if name.endswith(".recovery-tmp")]

        recover(sample, thread_count=1, observers=[watch])
        started = [event.partition for event in events if isinstance(event, PartitionStarted)]
        finished = [event.partition for event in events if isinstance(event, PartitionFinished)]
        assert sorted(started) == sorted(finished)

    @pytest.mark.parametrize("limit", ["_MOST_PARTITIONS", "_MOST_READ_BYTES", "_MOST_MADE_BYTES", "_MOST_S"])
    def test_a_full_group_is_finished(self, sample: Sample, monkeypatch, limit: str) -> None:
        monkeypatch.setattr(module, limit, 0)
        sizes = []
        whole = module.CommitGroup.finish
        with mock.patch.object(
            module.CommitGroup,
            "finish",
            lambda group: (sizes.append(len(group.paths)), whole(group))[1],
        ):
            assert recover(sample, thread_count=1).exit_code == 0
        assert max(sizes) == 1


class TestErrors:
    def test_a_partition_without_a_result_is_told_of(self, sample: Sample) -> None:
        """That would be a defect, and is never passed over in silence."""
        whole = module.CommitGroup.finish
        with mock.patch.object(module.CommitGroup, "finish", lambda group: whole(group)[1:]):
            report = recover(sample, thread_count=1)
        assert report.exit_code == 1
        for log_dir in report.log_dirs:
            assert log_dir.status == "offline"
            failed = [one.folder for one in log_dir.partitions if one.status == "failed"]
            assert failed  # of more than one commit, if they took long
            assert any(folder in str(log_dir.error) for folder in failed)
            assert not os.path.exists(os.path.join(log_dir.log_dir, MARKER))

    def test_a_group_that_cannot_be_brought_to_disk_is_as_it_was(self, sample: Sample) -> None:
        before = {
            name: data
            for name, data in logs_of(tree_of(sample.root)).items()
            if not name.endswith((".deleted", ".lock"))
        }
        broken = mock.patch.object(
            module.Quarantine, "sync", side_effect=OSError(5, "Input/output error", "the disk")
        )
        with broken:
            report = recover(sample, thread_count=1)
        assert report.exit_code == 1
        assert {log_dir.status for log_dir in report.log_dirs} == {"offline"}
        assert before.items() <= logs_of(tree_of(sample.root)).items()

    def test_an_error_in_a_later_partition_costs_no_other_one(self, sample: Sample) -> None:
        whole, calls = apply_module.write_new, []

        def write(path: str, *rest: object, **options: object) -> object:
            calls.append(path)
            if len(calls) > 30:
                raise OSError(28, "No space left on device", path)
            return whole(path, *rest, **options)

        with mock.patch.object(apply_module, "write_new", write):
            report = recover(sample, sample.log_dirs[:1], thread_count=1)
        (log_dir,) = report.log_dirs
        assert log_dir.status == "offline"
        assert any(one.status == "recovered" for one in log_dir.partitions)
        assert recover(sample).exit_code == 0
        assert all((path / MARKER).exists() for path in sample.log_dirs)
        assert not any((quarantine_of(path) / "journal").exists() for path in sample.log_dirs)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (WriteFile(name="a", data=b"", size_bytes=0), True),
        (RemoveFile(name="a", size_bytes=0, kind=RemovalKind.DERIVED), True),
        (RemoveFile(name="a", size_bytes=0, kind=RemovalKind.PENDING_DELETION), False),
        (RemoveFile(name="a", size_bytes=0, kind=RemovalKind.LEFTOVER), False),
        (TruncateFile(name="a", size_bytes=0), False),
        (RenameFile(old="a", new="b"), False),
    ],
)
def test_who_may_wait_for_others(action: object, expected: bool) -> None:
    assert may_share(PartitionPlan(folder="t-0", saves=(), actions=(action,))) is expected
