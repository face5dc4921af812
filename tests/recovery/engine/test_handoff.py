"""What a log dir is handed back with: lines of checkpoints, and the marker last or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.engine.handoff import plan_handoff
from recovery.errors import PartitionRefusedError
from recovery.load.model import LogBounds, LogSettings, PartitionTask, TopicPartition
from recovery.logdir.inventory import LogDirInventory, RefusedFolder
from recovery.plan.actions import PartitionPlan, WriteFile

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"


class LogDir:
    """A log dir for the hand-off: partitions that were recovered, refused, or never reached."""

    def __init__(self, path: Path, *, had_clean_shutdown: bool = False) -> None:
        self.path = path
        self.had_clean_shutdown = had_clean_shutdown
        self.tasks: list[PartitionTask] = []
        self.refused: list[RefusedFolder] = []
        self.logs: dict[str, tuple[PartitionTask, LogBounds]] = {}
        self.recovery_points: dict[tuple[str, int], int] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        if had_clean_shutdown:
            (path / MARKER).write_bytes(b"")

    def recovered(self, folder: str, *, log_end_offset: int, **fields: object) -> LogDir:
        task = self.task(folder)
        bounds = {
            "log_start_offset": 0,
            "log_end_offset": log_end_offset,
            "local_log_start_offset": 0,
            "checkpoints_log_start": False,
            "is_loaded": True,
            "topic_id": None,
        } | fields
        self.logs[folder] = (task, LogBounds(**bounds))
        return self

    def task(self, folder: str) -> PartitionTask:
        topic, _, number = folder.split(".")[0].rpartition("-")
        task = PartitionTask(
            log_dir=str(self.path),
            folder=folder,
            topic_partition=TopicPartition(topic=topic, partition=int(number)),
            files={},
            had_clean_shutdown=self.had_clean_shutdown,
            recovery_point=0,
            log_start_offset=0,
            settings=LogSettings(),
            now_ms=0,
        )
        self.tasks.append(task)
        return task

    def foreign(self, folder: str) -> LogDir:
        refusal = PartitionRefusedError(file=folder, position=None, rule="access", detail="no", remedy="none")
        self.refused.append(RefusedFolder(folder=folder, refusal=refusal))
        return self

    def plan(
        self, handoff: str = "clean-shutdown", *, is_changed: bool = True, keeps_marker: bool = False
    ) -> PartitionPlan:
        inventory = LogDirInventory(
            log_dir=str(self.path),
            had_clean_shutdown=self.had_clean_shutdown,
            tasks=tuple(self.tasks),
            refused=tuple(self.refused),
            passed_over=(),
            recovery_points=self.recovery_points,
            log_start_offsets=self.log_starts,
        )
        is_complete = not self.refused and len(self.logs) == len(self.tasks)
        return plan_handoff(
            inventory,
            self.logs,
            handoff=handoff,
            may_mark=is_complete,
            keeps_marker=keeps_marker,
            is_changed=is_changed,
        )


def writes_of(plan: PartitionPlan) -> list[WriteFile]:
    assert all(isinstance(action, WriteFile) for action in plan.actions)
    return list(plan.actions)


def written(plan: PartitionPlan, name: str) -> bytes | None:
    return next((write.data for write in writes_of(plan) if write.name == name), None)


class TestCleanShutdown:
    def test_checkpoints_first_and_the_marker_last(self, tmp_path: Path) -> None:
        writes = LogDir(tmp_path).recovered("t-0", log_end_offset=44).plan()
        assert [write.name for write in writes_of(writes)] == [RECOVERY_POINTS, LOG_STARTS, MARKER]
        assert written(writes, RECOVERY_POINTS) == b"0\n1\nt 0 44\n"
        assert written(writes, LOG_STARTS) == b"0\n0\n"
        assert written(writes, MARKER) == b'{"version":0,"brokerEpoch":-1}'
        assert writes.saves == ()

    def test_lines_of_partitions_that_are_gone_are_dropped(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44)
        log_dir.recovery_points = {("gone", 3): 7, ("t", 0): 2}
        assert written(log_dir.plan(), RECOVERY_POINTS) == b"0\n1\nt 0 44\n"

    def test_the_log_start_is_written_where_the_broker_does(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path)
        log_dir.recovered("t-0", log_end_offset=44, log_start_offset=9, checkpoints_log_start=True)
        log_dir.recovered("t-1", log_end_offset=44, log_start_offset=9)
        assert written(log_dir.plan(), LOG_STARTS) == b"0\n1\nt 0 9\n"

    def test_folders_that_are_not_loaded_have_no_line(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path)
        log_dir.recovered(
            "t-0.00112233-delete", log_end_offset=0, is_loaded=False, checkpoints_log_start=True
        )
        writes = log_dir.plan()
        assert written(writes, RECOVERY_POINTS) == b"0\n0\n"
        assert written(writes, LOG_STARTS) == b"0\n0\n"
        assert written(writes, MARKER) is not None

    def test_a_checkpoint_that_says_the_same_in_another_order_is_left(self, tmp_path: Path) -> None:
        (tmp_path / RECOVERY_POINTS).write_text("0\n2\nt 1 5\nt 0 44\n")
        (tmp_path / LOG_STARTS).write_text("0\n0\n")
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44).recovered("t-1", log_end_offset=5)
        assert [write.name for write in writes_of(log_dir.plan())] == [MARKER]

    def test_what_is_overwritten_is_marked_for_quarantine(self, tmp_path: Path) -> None:
        (tmp_path / RECOVERY_POINTS).write_text("0\n1\nt 0 4\n")
        writes = LogDir(tmp_path).recovered("t-0", log_end_offset=44).plan()
        assert [save.name for save in writes.saves] == [RECOVERY_POINTS]

    def test_an_empty_log_dir_gets_its_marker_too(self, tmp_path: Path) -> None:
        assert written(LogDir(tmp_path).plan(), MARKER) is not None

    def test_an_unchanged_clean_dir_keeps_its_own_marker(self, tmp_path: Path) -> None:
        (tmp_path / RECOVERY_POINTS).write_text("0\n1\nt 0 44\n")
        (tmp_path / LOG_STARTS).write_text("0\n0\n")
        log_dir = LogDir(tmp_path, had_clean_shutdown=True).recovered("t-0", log_end_offset=44)
        assert log_dir.plan(is_changed=False).is_empty

    def test_a_changed_clean_dir_gets_a_new_one(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path, had_clean_shutdown=True).recovered("t-0", log_end_offset=44)
        (tmp_path / MARKER).unlink()  # as before the first change
        assert written(log_dir.plan(), MARKER) == b'{"version":0,"brokerEpoch":-1}'


class TestRefusedPartitions:
    def test_there_is_no_marker(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44)
        log_dir.task("t-1")
        assert written(log_dir.plan(), MARKER) is None

    def test_a_foreign_folder_costs_the_marker_too(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44).foreign("lost+found")
        assert written(log_dir.plan(), MARKER) is None

    def test_they_keep_their_lines_and_the_others_advance(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44)
        log_dir.task("t-1")
        log_dir.recovery_points = {("t", 0): 1, ("t", 1): 2}
        log_dir.log_starts = {("t", 0): 1, ("t", 1): 2}
        writes = log_dir.plan()
        assert written(writes, RECOVERY_POINTS) == b"0\n2\nt 0 44\nt 1 2\n"
        assert written(writes, LOG_STARTS) == b"0\n1\nt 1 2\n"

    @pytest.mark.parametrize("had_clean_shutdown", [False, True])
    def test_where_all_of_them_are_refused_nothing_is_written(
        self, tmp_path: Path, had_clean_shutdown: bool
    ) -> None:
        log_dir = LogDir(tmp_path, had_clean_shutdown=had_clean_shutdown).foreign("lost+found")
        log_dir.task("t-1")
        log_dir.recovery_points = {("t", 1): 2, ("gone", 3): 7}
        for name in (RECOVERY_POINTS, LOG_STARTS, f"{LOG_STARTS}.tmp"):
            (tmp_path / name).write_bytes(b"0\n1\nt 1 x\n")
        assert log_dir.plan(is_changed=False).is_empty

    def test_an_empty_log_dir_gets_its_files(self, tmp_path: Path) -> None:
        writes = LogDir(tmp_path).plan(is_changed=False)
        assert [write.name for write in writes_of(writes)] == [RECOVERY_POINTS, LOG_STARTS, MARKER]

    def test_a_duplicate_keeps_its_line(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-0", log_end_offset=44).foreign("a-topic-7")
        log_dir.recovery_points = {("a-topic", 7): 70}
        assert written(log_dir.plan(), RECOVERY_POINTS) == b"0\n2\na-topic 7 70\nt 0 44\n"

    def test_its_future_log_does_not_speak_for_it(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-1.0f-future", log_end_offset=44)
        log_dir.task("t-1")
        log_dir.recovery_points = {("t", 1): 2}
        assert written(log_dir.plan(), RECOVERY_POINTS) == b"0\n1\nt 1 2\n"

    def test_a_refused_partition_without_a_line_gets_none(self, tmp_path: Path) -> None:
        log_dir = LogDir(tmp_path).recovered("t-2", log_end_offset=44, is_loaded=False)
        log_dir.task("t-1")
        assert written(log_dir.plan(), RECOVERY_POINTS) == b"0\n0\n"


class TestOtherHandoffs:
    def test_recovery_point_leaves_out_the_marker(self, tmp_path: Path) -> None:
        writes = LogDir(tmp_path).recovered("t-0", log_end_offset=44).plan("recovery-point")
        assert [write.name for write in writes_of(writes)] == [RECOVERY_POINTS, LOG_STARTS]

    @pytest.mark.parametrize("had_clean_shutdown", [False, True])
    def test_none_writes_nothing(self, tmp_path: Path, had_clean_shutdown: bool) -> None:
        log_dir = LogDir(tmp_path, had_clean_shutdown=had_clean_shutdown)
        assert log_dir.recovered("t-0", log_end_offset=44).plan("none").is_empty
