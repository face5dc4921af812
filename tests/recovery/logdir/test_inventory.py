"""What lies in a log dir, and which of it a broker would not start with."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from recovery.errors import LogDirOfflineError
from recovery.load.forecast import unflushed_segments
from recovery.load.model import LogSettings
from recovery.logdir.duplicates import refuse_duplicates
from recovery.logdir.inventory import LogDirInventory, list_log_dir
from recovery.logdir.listing import list_files, unreadable

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "d1"
    folder.mkdir()
    return folder


def partition(log_dir: Path, name: str, **sizes: int) -> Path:
    """A partition's folder with `.log` files: s12=100 is 100 bytes at base offset 12."""
    folder = log_dir / name
    folder.mkdir()
    for base, size_bytes in sizes.items():
        (folder / f"{int(base[1:]):020d}.log").write_bytes(bytes(size_bytes))
    return folder


def inventory(log_dir: Path, **options: object) -> LogDirInventory:
    options = {"settings_of": lambda topic: LogSettings(), "now_ms": 0} | options
    return list_log_dir(str(log_dir), **options)


def refusals(found: LogDirInventory) -> dict[str, str]:
    return {refused.folder: str(refused.refusal) for refused in found.refused}


def copies(found: LogDirInventory) -> dict[str, str]:
    """What the tasks' problems say, by folder."""
    return {task.folder: "; ".join(map(str, task.problems)) for task in found.tasks}


def unflushed(found: LogDirInventory) -> tuple[int, int]:
    """How many segments a recovery will most likely read, and their bytes."""
    sizes = [size for task in found.tasks for _, _, size in unflushed_segments(task)]
    return len(sizes), sum(sizes)


class TestNames:
    """What has the name of a log's folder, and is none: a broker passes it over, and fails when it makes the log."""

    @pytest.mark.parametrize("target", ["/nowhere/t-1", "a file"])
    def test_a_link(self, log_dir: Path, target: str) -> None:
        (log_dir / "a file").write_bytes(b"")
        (log_dir / "t-1").symlink_to(target)
        (log_dir / "t-2.0123456789abcdef0123456789abcdef-delete").symlink_to(target)
        (log_dir / "__cluster_metadata-0").symlink_to(target)
        (log_dir / "other").symlink_to(target)
        found = inventory(log_dir)
        (told,) = refusals(found).values()
        kind = "link to a file" if target == "a file" else "dangling link"
        assert told.startswith(f"t-1: a {kind} with the name of a log's folder: ")
        assert "Remedy: mount the file system that it leads to" in told
        assert found.notes == ()
        assert refusals(inventory(log_dir, without=("t-1",))) == {}

    def test_a_file_is_noted_and_may_be_moved(self, log_dir: Path) -> None:
        (log_dir / "t-1").write_bytes(b"mine")
        (note,) = inventory(log_dir).notes
        assert (note.file, note.rule, note.repair.names) == ("t-1", "file-type", ("t-1",))

    def test_a_folder_with_two_names_is_told_with_the_link_to_move(self, log_dir: Path) -> None:
        partition(log_dir, "t-0", s0=10)
        (log_dir / "t-7").symlink_to("t-0")
        (found,) = refuse_duplicates([inventory(log_dir)])
        told = copies(found)["t-0"]
        assert f"one folder has 2 names: {log_dir}/t-0, {log_dir}/t-7" in told
        assert told.endswith(f"move links out of the log dirs: {log_dir}/t-7")

    def test_a_checkpoint_that_this_process_may_not_read(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(path: str) -> bytes:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

        (log_dir / RECOVERY_POINTS).write_text("0\n0\n")
        monkeypatch.setattr("recovery.logdir.checkpoints.read_small", denied)
        (problem,) = inventory(log_dir).problems
        assert (problem.file, problem.rule) == (RECOVERY_POINTS, "access")
        assert problem.remedy == "run recover as the broker's user, or as root with all its capabilities"


class TestFolders:
    def test_an_empty_log_dir(self, log_dir: Path) -> None:
        found = inventory(log_dir)
        assert (found.tasks, found.refused, found.passed_over) == ((), (), ())
        assert not found.had_clean_shutdown

    def test_partitions_with_their_files_and_settings(self, log_dir: Path) -> None:
        folder = partition(log_dir, "a-b.c_d-12", s0=10)
        (folder / "a folder").mkdir()
        asked = []

        def settings_of(topic: str) -> LogSettings:
            asked.append(topic)
            return LogSettings(index_interval_bytes=7)

        (task,) = inventory(log_dir, settings_of=settings_of, now_ms=5).tasks
        assert (task.topic_partition.topic, task.topic_partition.partition) == ("a-b.c_d", 12)
        assert list(task.files) == ["00000000000000000000.log"]
        assert task.files["00000000000000000000.log"].size_bytes == 10
        assert (task.folder, task.log_dir, task.now_ms) == ("a-b.c_d-12", str(log_dir), 5)
        assert task.settings.index_interval_bytes == 7
        assert asked == ["a-b.c_d"]

    def test_the_partition_with_most_work_comes_first(self, log_dir: Path) -> None:
        partition(log_dir, "small-0", s0=10)
        partition(log_dir, "large-0", s0=1000, s9=1000)
        partition(log_dir, "flushed-0", s0=5000, s9=20)
        (log_dir / RECOVERY_POINTS).write_text("0\n1\nflushed 0 9\n")
        found = inventory(log_dir)
        assert [task.folder for task in found.tasks] == ["large-0", "flushed-0", "small-0"]
        assert unflushed(found) == (4, 2030)

    def test_a_clean_dir_has_nothing_to_read(self, log_dir: Path) -> None:
        partition(log_dir, "t-0", s0=10)
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"")
        found = inventory(log_dir)
        assert found.had_clean_shutdown
        assert found.tasks[0].had_clean_shutdown
        assert unflushed(found) == (0, 0)

    def test_a_marker_can_be_ignored(self, log_dir: Path) -> None:
        partition(log_dir, "t-0", s0=10)
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"")
        found = inventory(log_dir, ignores_marker=True)
        assert not found.had_clean_shutdown
        assert not found.tasks[0].had_clean_shutdown

    @pytest.mark.parametrize("text", ["x", "{}", '{"version":0}', '{"brokerEpoch":3}'])
    def test_a_marker_that_no_broker_writes_is_noted(self, log_dir: Path, text: str) -> None:
        partition(log_dir, "t-0", s0=10)
        (log_dir / ".kafka_cleanshutdown").write_text(text)
        found = inventory(log_dir)
        assert found.had_clean_shutdown
        (note,) = (one for one in found.notes if one.rule == "marker")
        assert note.detail.startswith("it has no version or no broker epoch")
        forced = inventory(log_dir, ignores_marker=True)
        (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
        assert not any(one.rule == "marker" for one in (*forced.notes, *inventory(log_dir).notes))

    def test_what_the_cleaner_has_done_is_known(self, log_dir: Path) -> None:
        partition(log_dir, "t-0", s0=10)
        (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 7\n")
        assert inventory(log_dir).tasks[0].cleaned_offset == 7

    def test_a_pipe_is_no_marker(self, log_dir: Path) -> None:
        """A broker would wait for ever for the epoch that stands in it."""
        partition(log_dir, "t-0", s0=10)
        os.mkfifo(log_dir / ".kafka_cleanshutdown")
        (problem,) = inventory(log_dir).problems
        assert problem.file == ".kafka_cleanshutdown"
        assert problem.detail.startswith("a pipe where a file is needed: a broker takes it")
        assert problem.repair is not None

    @pytest.mark.parametrize("state", ["delete", "future", "stray"])
    def test_marked_folders_are_logs_too(self, log_dir: Path, state: str) -> None:
        partition(log_dir, f"t-3.0123456789abcdef-{state}")
        (task,) = inventory(log_dir).tasks
        assert (task.topic_partition.topic, task.topic_partition.partition) == ("t", 3)
        assert task.is_delete_folder == (state == "delete")
        assert task.is_stray_folder == (state == "stray")

    def test_folders_of_the_brokers_own_are_passed_over(self, log_dir: Path) -> None:
        for name in ("__cluster_metadata-0", "remote-log-index-cache", "t-0"):
            (log_dir / name).mkdir()
        found = inventory(log_dir)
        assert found.passed_over == ("__cluster_metadata-0", "remote-log-index-cache")
        assert [task.folder for task in found.tasks] == ["t-0"]

    @pytest.mark.parametrize("name", ["topic", "topic-x", ".hidden", "x.y-delete", "-0", "a-", "snapshots"])
    def test_a_foreign_folder_stops_the_broker(self, log_dir: Path, name: str) -> None:
        (log_dir / name).mkdir()
        partition(log_dir, "t-0")
        found = inventory(log_dir)
        assert list(refusals(found)) == [name]
        assert "stops the broker" in refusals(found)[name]
        assert "Remedy: move it out of the log dir" in refusals(found)[name]
        assert [task.folder for task in found.tasks] == ["t-0"]

    def test_lost_and_found_tells_of_the_mount_point(self, log_dir: Path) -> None:
        (log_dir / "lost+found").mkdir()
        words = refusals(inventory(log_dir))["lost+found"]
        assert (
            "Remedy: if the log dir is the root of a file system, use a folder below it as log dir; else remove it"
            in words
        )

    def test_files_beside_the_folders_are_no_concern(self, log_dir: Path) -> None:
        (log_dir / "topic-x").write_bytes(b"")
        (log_dir / "meta.properties").write_bytes(b"")
        assert inventory(log_dir).refused == ()

    def test_a_log_dir_that_is_not_there_is_offline(self, tmp_path: Path) -> None:
        with pytest.raises(LogDirOfflineError, match="No such file") as raised:
            inventory(tmp_path / "gone")
        assert raised.value.log_dir == str(tmp_path / "gone")
        assert raised.value.exit_code == 4


class TestFiles:
    def test_links_to_files_count_and_those_to_nothing_do_not(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(b"12345")
        (tmp_path / "link").symlink_to("real")
        (tmp_path / "dangling").symlink_to("gone")
        (tmp_path / "to a folder").symlink_to(".")
        os.mkfifo(tmp_path / "pipe")
        files = list_files(str(tmp_path))
        assert {name: found.size_bytes for name, found in files.items()} == {"real": 5, "link": 5}

    def test_inode_and_time_are_kept_for_later_comparison(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"1")
        found = (tmp_path / "file").stat()
        listed = list_files(str(tmp_path))["file"]
        assert (listed.inode, listed.mtime_ns) == (found.st_ino, found.st_mtime_ns)

    def test_a_file_that_may_not_be_read_refuses_its_partition(self, log_dir: Path, monkeypatch) -> None:
        folder = partition(log_dir, "t-0", s0=1)
        partition(log_dir, "u-0", s0=1)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        deny(monkeypatch, folder, errno.EACCES)
        problems = {task.folder: task.problems for task in inventory(log_dir).tasks}
        (problem,) = problems["t-0"]
        assert problem.file == "00000000000000000000.log"
        assert problem.detail == "may not be read by the user that recover runs as (Permission denied)"
        assert problems["u-0"] == ()

    def test_what_may_not_be_read_in_a_folder_is_named(self) -> None:
        problem = unreadable(
            "t-0", PermissionError(errno.EACCES, "Permission denied", "/data/t-0/leader-epoch")
        )
        assert problem.detail.endswith("(/data/t-0/leader-epoch: Permission denied)")
        problem = unreadable("t-0", PermissionError(errno.EACCES, "Permission denied", "/data/t-0"))
        assert problem.detail.endswith("(Permission denied)")

    def test_a_file_of_which_that_cannot_be_told_is_an_io_error(self, log_dir: Path, monkeypatch) -> None:
        folder = partition(log_dir, "t-0", s0=1)
        deny(monkeypatch, folder, errno.EIO)
        with pytest.raises(LogDirOfflineError, match=rf"{folder}/0+\.log: Input/output error"):
            inventory(log_dir)

    def test_access_alone_refuses_nothing(self, log_dir: Path, monkeypatch) -> None:
        partition(log_dir, "t-0", s0=1)
        monkeypatch.setattr(os, "access", lambda _path, _mode: False)
        (task,) = inventory(log_dir).tasks
        assert task.problems == ()


def deny(monkeypatch: pytest.MonkeyPatch, folder: Path, error: int) -> None:
    """Let nothing below *folder* be opened."""
    opened = os.open

    def open_or_fail(path: str, *more: int, **named: int) -> int:
        if str(path).startswith(f"{folder}/"):
            raise OSError(error, os.strerror(error), path)
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", open_or_fail)
    monkeypatch.setattr(os, "access", lambda path, _mode: not str(path).startswith(f"{folder}/"))


class TestCheckpoints:
    def test_offsets_reach_their_partitions(self, log_dir: Path) -> None:
        partition(log_dir, "t-0")
        partition(log_dir, "t-1")
        (log_dir / RECOVERY_POINTS).write_text("0\n1\nt 0 44\n")
        (log_dir / LOG_STARTS).write_text("0\n1\nt 1 7\n")
        found = inventory(log_dir)
        known = {task.folder: (task.recovery_point, task.log_start_offset) for task in found.tasks}
        assert known == {"t-0": (44, 0), "t-1": (0, 7)}
        assert dict(found.recovery_points) == {("t", 0): 44}
        assert dict(found.log_start_offsets) == {("t", 1): 7}

    @pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS])
    @pytest.mark.parametrize(
        "text",
        ["1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt 0\n", "x\n", "0\n1\nt 0 2 3\n", "0\n1\n\n", " 0\n0\n"],
        ids=repr,
    )
    def test_malformed_class_a_takes_the_dir_offline(self, log_dir: Path, name: str, text: str) -> None:
        partition(log_dir, "t-0")
        (log_dir / name).write_text(text)
        (problem,) = inventory(log_dir).problems
        assert problem.file == name
        assert "takes the log dir offline). Remedy: move the file away" in str(problem)
        assert problem.repair is not None

    @pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS])
    @pytest.mark.parametrize("text", ["0\n1\nt x 1\n", "0\n2\nt 0 9\nt 0 1e3\n"], ids=repr)
    def test_malformed_class_b_is_read_as_empty(self, log_dir: Path, name: str, text: str) -> None:
        partition(log_dir, "t-0")
        (log_dir / name).write_text(text)
        (task,) = inventory(log_dir).tasks
        assert (task.recovery_point, task.log_start_offset) == (0, 0)

    def test_missing_and_empty_files_hold_no_lines(self, log_dir: Path) -> None:
        partition(log_dir, "t-0")
        (log_dir / LOG_STARTS).write_bytes(b"")
        (task,) = inventory(log_dir).tasks
        assert (task.recovery_point, task.log_start_offset) == (0, 0)


class TestDuplicates:
    def inventories(self, tmp_path: Path, **folders: str) -> list[LogDirInventory]:
        for log_dir, names in folders.items():
            (tmp_path / log_dir).mkdir()
            for name in names.split():
                partition(tmp_path / log_dir, name)
        return refuse_duplicates([inventory(tmp_path / log_dir) for log_dir in folders])

    def test_a_partition_in_two_dirs_is_refused_in_both(self, tmp_path: Path) -> None:
        first, second = self.inventories(tmp_path, a="t-0 t-1", b="t-0 t-2")
        for found, other in ((first, "t-1"), (second, "t-2")):
            words = copies(found)["t-0"]
            assert copies(found)[other] == ""
            assert str(tmp_path / "a" / "t-0") in words
            assert str(tmp_path / "b" / "t-0") in words
            assert "IllegalStateException stops the broker" in words

    def test_a_future_log_lies_beside_its_current_one(self, tmp_path: Path) -> None:
        first, second = self.inventories(tmp_path, a="t-0", b="t-0.00112233-future")
        assert not any((copies(first) | copies(second)).values())

    def test_two_future_logs_do_not(self, tmp_path: Path) -> None:
        first, second = self.inventories(tmp_path, a="t-0.00112233-future", b="t-0.44556677-future")
        assert all((copies(first) | copies(second)).values())

    @pytest.mark.parametrize("state", ["delete", "stray"])
    def test_any_number_may_wait_for_their_deletion(self, tmp_path: Path, state: str) -> None:
        (found,) = self.inventories(tmp_path, a=f"t-0 t-0.00112233-{state} t-0.44556677-{state}")
        assert not any(copies(found).values())
        assert len(found.tasks) == 3

    def test_leading_zeros_name_the_same_partition(self, tmp_path: Path) -> None:
        (found,) = self.inventories(tmp_path, a="t-0 t-00")
        assert all(copies(found).values())
        assert sorted(copies(found)) == ["t-0", "t-00"]
