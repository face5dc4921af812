"""What a plan needs, and that a partition that does not fit is left as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from recovery.load.model import RemovalKind
from recovery.plan.actions import (
    CopyPart,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    SaveFile,
    SaveTail,
    TruncateFile,
    WriteFile,
)
from recovery.quantity import bytes_text
from recovery.write import space
from recovery.write.journal import Journal
from recovery.write.journal_format import encode_json
from recovery.write.quarantine import Quarantine
from recovery.write.space import SpaceLedger, need_of
from recovery.write.space_share import NOTHING_PROMISED, Promised, SpaceShare
from tests.damage.edge_cases import BASES, Log, segment
from tests.logs.edge_log import sample_of
from tests.logs.samples import MARKER, unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.driving import footprint, log_bytes, lost_batches, recover
from tests.servers.file_systems import tmpfs
from tests.servers.machine import MOUNTS, needs

BLOCK = 4096


def plan(*actions: object, saves: tuple = ()) -> PartitionPlan:
    return PartitionPlan(folder="t-0", saves=saves, actions=actions)


def write(size_bytes: int, name: str = "a") -> WriteFile:
    return WriteFile(name=name, data=bytes(size_bytes), size_bytes=size_bytes)


class TestNeed:
    def test_nothing_but_what_is_entered(self) -> None:
        need = need_of(plan(RenameFile(old="a", new="b")))
        assert need == space.SpaceNeed(entered_bytes=need.entered_bytes)
        assert need.entered_bytes > 0

    def test_what_manifest_and_journal_say_is_covered(self, ram_path: Path) -> None:
        sample = unpack("crashed", ram_path)
        needs: dict[str, space.SpaceNeed] = {}
        entered: dict[str, int] = {}

        def need(plan: PartitionPlan, **options: int) -> space.SpaceNeed:
            needs[plan.folder] = need_of(plan, **options)
            return needs[plan.folder]

        def append(journal: Journal, kind: object, key: str, documents: dict, *rest: object) -> None:
            for name, document in documents.items():
                entered[name] = entered.get(name, 0) + len(encode_json(document))
            whole_append(journal, kind, key, documents, *rest)

        def enter(quarantine: Quarantine, entries: list) -> None:
            for entry in (entries := list(entries)):
                name = entry["partition"]
                entered[name] = entered.get(name, 0) + len(json.dumps(entry)) + 1
            whole_enter(quarantine, entries)

        whole_append, whole_enter = Journal._append_documents, Quarantine._enter
        with (
            mock.patch.object(space, "need_of", need),
            mock.patch.object(Journal, "_append_documents", append),
            mock.patch.object(Quarantine, "_enter", enter),
        ):
            assert recover(sample).exit_code == 0
        assert len(needs) > 20
        short = {name for name, need in needs.items() if not 0 < entered[name] <= need.entered_bytes}
        assert short == set()

    def test_new_files_in_whole_blocks(self) -> None:
        copy = CopyPart(source="a", name="c", position=0, size_bytes=BLOCK)
        assert need_of(plan(write(1), write(BLOCK + 1), copy)).written_bytes == 4 * BLOCK

    def test_zeros_at_the_end_are_a_hole(self) -> None:
        large = WriteFile(name="a", data=b"1", size_bytes=10 << 20)
        assert need_of(plan(large)).written_bytes == BLOCK

    def test_pending_deletions_give_their_space_first(self) -> None:
        gone = RemoveFile(name="b.deleted", size_bytes=3 * BLOCK, kind=RemovalKind.PENDING_DELETION)
        assert need_of(plan(gone, write(BLOCK))).written_bytes == -2 * BLOCK
        kept = SaveFile(name="b.deleted", size_bytes=3 * BLOCK, reason="kept")
        assert need_of(plan(gone, write(BLOCK), saves=(kept,))).written_bytes == BLOCK

    def test_a_tail_is_copied_and_comes_back(self) -> None:
        tail = SaveTail(name="a.log", position=7, size_bytes=BLOCK + 5, reason="cut")
        need = need_of(plan(TruncateFile(name="a.log", size_bytes=7), saves=(tail,)))
        assert need.copied_bytes - need_of(plan()).copied_bytes in range(2 * BLOCK, 3 * BLOCK)
        assert need.returned_bytes == BLOCK

    def test_whole_files_are_links_where_they_can_be(self) -> None:
        need = need_of(plan(saves=(SaveFile(name="a.log", size_bytes=5 * BLOCK, reason="deleted"),)))
        assert need.copied_bytes < BLOCK
        assert need.linked_bytes == 5 * BLOCK


def reserve(
    ledger: SpaceLedger, name: str, blocks: int, tmp_path: Path, **options: Callable[[], None]
) -> tuple[str, ...]:
    """Reserve *blocks* in the log dir *tmp_path*, whose quarantine is to be made in it; why not, in words."""
    (tmp_path / name).mkdir(exist_ok=True)
    found = ledger.reserve(
        str(tmp_path / name),
        plan(write(blocks * BLOCK)),
        log_dir=str(tmp_path),
        quarantine=str(tmp_path / "not" / "yet"),
        **options,
    )
    return tuple(map(str, found))


def only_files(monkeypatch) -> None:
    """Let nothing count but the files that a plan makes."""
    monkeypatch.setattr(space, "_SPARE_BYTES", 0)
    monkeypatch.setattr(space, "_entered_bytes", lambda _plan, _file_count: 0)


class TestLedger:
    @pytest.fixture
    def free(self, monkeypatch) -> list[int]:
        """What is free, in a list to be changed."""
        bytes_free = [10 * BLOCK]
        monkeypatch.setattr(space, "free_bytes", lambda _path: bytes_free[0])
        monkeypatch.setattr(space, "_block_bytes", lambda _path: BLOCK)
        only_files(monkeypatch)
        return bytes_free

    def test_what_fits_fits(self, free: list[int], tmp_path: Path) -> None:
        ledger = SpaceLedger(dry_run=False)
        assert reserve(ledger, "a", 10, tmp_path) == ()
        ledger.release(str(tmp_path / "a"))
        assert reserve(ledger, "b", 10, tmp_path) == ()

    def test_what_does_not_fit_is_said_in_bytes(self, free: list[int], tmp_path: Path) -> None:
        (problem,) = reserve(SpaceLedger(dry_run=False), "a", 11, tmp_path)
        assert f"needs {11 * BLOCK:,} bytes" in problem
        assert f"{10 * BLOCK:,} free" in problem

    def test_another_one_is_waited_for(self, free: list[int], tmp_path: Path) -> None:
        ledger = SpaceLedger(dry_run=False)
        assert reserve(ledger, "a", 6, tmp_path) == ()
        found: list[tuple[str, ...]] = []
        thread = threading.Thread(target=lambda: found.append(reserve(ledger, "b", 6, tmp_path)))
        thread.start()
        thread.join(0.5)
        assert found == []
        ledger.release(str(tmp_path / "a"))
        thread.join(LONGEST_WAIT_SECONDS)
        assert found == [()]

    def test_what_the_other_one_wrote_counts(self, free: list[int], tmp_path: Path) -> None:
        ledger = SpaceLedger(dry_run=False)
        reserve(ledger, "a", 6, tmp_path)
        free[0] = 4 * BLOCK
        ledger.release(str(tmp_path / "a"))
        assert len(reserve(ledger, "b", 5, tmp_path)) == 1

    def test_a_dry_run_adds_up(self, free: list[int], tmp_path: Path) -> None:
        ledger = SpaceLedger(dry_run=True)
        assert reserve(ledger, "a", 6, tmp_path) == ()
        ledger.release(str(tmp_path / "a"))
        assert len(reserve(ledger, "b", 5, tmp_path)) == 1
        assert reserve(ledger, "c", 4, tmp_path) == ()
        assert ledger.needed_bytes(str(tmp_path)) == 15 * BLOCK  # what was refused would need its room, too

    def test_who_waits_holds_nothing(self, free: list[int], tmp_path: Path, monkeypatch) -> None:
        """Room may go between two looks; whoever waits for what only he can let go of waits for ever."""

        def stop() -> None:
            raise TimeoutError

        ledger = SpaceLedger(dry_run=False, check_stop=stop)
        looks = iter([20 * BLOCK] * 3)
        monkeypatch.setattr(space, "free_bytes", lambda _path: next(looks, free[0]))
        held: list[str] = []

        def let_go() -> None:
            while held:
                ledger.release(str(tmp_path / held.pop()))

        for name in "abcd":
            assert reserve(ledger, name, 6, tmp_path, before_waiting=let_go) == ()
            held.append(name)

    def test_a_wait_ends_with_the_run(self, free: list[int], tmp_path: Path) -> None:
        def stop() -> None:
            raise InterruptedError

        ledger = SpaceLedger(dry_run=False, check_stop=stop)
        reserve(ledger, "a", 6, tmp_path)
        with pytest.raises(InterruptedError):
            reserve(ledger, "b", 6, tmp_path)


def make_log(log_dir: Path) -> Log:
    log = Log(log_dir)
    log.folder.mkdir(parents=True)
    for base in BASES:
        log.file(base).write_bytes(segment(base))
    log.append(24, b"torn")
    return log


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_partition_that_does_not_fit_is_left_as_it_is(dry_run: bool, tmp_path: Path, monkeypatch) -> None:
    log = make_log(tmp_path / "d")
    found = {path: at for path, at in footprint(log.log_dir).items() if path.startswith("t-0")}
    monkeypatch.setattr(space, "free_bytes", lambda _path: BLOCK)
    report = recover(sample_of(log), [log.log_dir], dry_run=dry_run)
    (partition,) = report.partitions
    assert (partition.status, report.exit_code) == ("refused", 4)
    assert "bytes for indexes, snapshots and quarantine, 4,096 free" in partition.reasons[0]
    assert {path: at for path, at in footprint(log.log_dir).items() if path.startswith("t-0")} == found
    assert not (log.log_dir / MARKER).exists()


@needs(MOUNTS)
def test_a_full_file_system_of_the_quarantine_is_named(tmp_path: Path) -> None:
    log = make_log(tmp_path / "d")
    with tmpfs(tmp_path / "spare", size="4k") as spare:
        report = recover(sample_of(log), [log.log_dir], dry_run=True, quarantine_dir=str(spare))
    (reason,) = report.partitions[0].reasons
    assert f"on the file system of {spare}, 4,096 free. Remedy: make room there" in reason


@pytest.mark.parametrize("is_alone", [False, True])
def test_quarantine_elsewhere_is_no_remedy_where_it_lies_elsewhere(is_alone: bool) -> None:
    told = str(space._too_little("/d", 5, 4, is_alone=is_alone))
    assert ("quarantine" in told) != is_alone


def test_a_dry_run_says_what_is_needed_in_all(tmp_path: Path) -> None:
    log = make_log(tmp_path / "d")
    report = recover(sample_of(log), [log.log_dir], dry_run=True)
    (log_dir,) = report.log_dirs
    assert log_dir.needed_bytes > 8 * BLOCK
    assert log_dir.free_bytes > log_dir.needed_bytes
    needed, free = bytes_text(log_dir.needed_bytes), bytes_text(log_dir.free_bytes)
    assert f"at most {needed} are needed there, and {free} are free" in report.to_text()
    assert "are needed there" not in recover(sample_of(log), [log.log_dir]).to_text()


@needs(MOUNTS)
def test_a_dry_run_says_what_is_needed_in_a_quarantine_elsewhere(tmp_path: Path) -> None:
    log = make_log(tmp_path / "d")
    with tmpfs(tmp_path / "spare", size="64m") as spare:
        report = recover(sample_of(log), [log.log_dir], dry_run=True, quarantine_dir=str(spare))
    (log_dir,) = report.log_dirs
    assert 0 < log_dir.quarantine_needed_bytes < log_dir.quarantine_free_bytes <= 64 << 20
    needed, free = bytes_text(log_dir.quarantine_needed_bytes), bytes_text(log_dir.quarantine_free_bytes)
    assert f"at most {needed} are needed in its quarantine, and {free} are free" in report.to_text()
    assert recover(sample_of(log), [log.log_dir]).log_dirs[0].quarantine_needed_bytes == 0


@pytest.mark.parametrize("thread_count", [1, 2, 4])
def test_who_must_wait_for_its_own_group_is_not_forgotten(
    thread_count: int, ram_path: Path, monkeypatch
) -> None:
    """With a little less room than all partitions take together, some are committed so that others fit."""
    sample = unpack("crashed", ram_path)
    expected = recover(sample, dry_run=True)
    needed = max(log_dir.needed_bytes for log_dir in expected.log_dirs)
    monkeypatch.setattr(space, "free_bytes", lambda _path: needed - BLOCK)
    report = recover(sample, thread_count=thread_count)
    assert [one.folder for one in report.partitions] == [one.folder for one in expected.partitions]
    assert report.exit_code == 0


@needs(MOUNTS)
class TestFullFileSystem:
    SIZE_BYTES = 1 << 20

    @pytest.fixture
    def mount(self, tmp_path: Path) -> Iterator[Path]:
        place = tmp_path / "small"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.SIZE_BYTES}", "tmpfs", place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", place], check=True)

    @pytest.mark.parametrize("free_blocks", range(0, 46, 3))
    def test_it_is_refused_or_it_is_done(self, free_blocks: int, mount: Path) -> None:
        log = make_log(mount / "d")
        before = log_bytes(log.log_dir)
        room = os.statvfs(mount)
        with (mount / "ballast").open("wb") as file:
            file.write(bytes((room.f_bavail - free_blocks) * room.f_frsize))
        report = recover(sample_of(log), [log.log_dir])
        (partition,) = report.partitions
        assert lost_batches(before, log.log_dir) == []
        assert partition.status in ("refused", "truncated")
        if partition.status != "truncated":
            assert log_bytes(log.log_dir) == before
            assert not (log.log_dir / MARKER).exists()
        assert (partition.status == "truncated") >= (free_blocks >= 40)
        assert (partition.status == "refused") >= (free_blocks == 0)
        (mount / "ballast").unlink()
        assert recover(sample_of(log), [log.log_dir]).exit_code in (0, 2)
        assert (log.log_dir / MARKER).exists()

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_a_folder_that_is_on_a_file_system_of_its_own(
        self, dry_run: bool, mount: Path, ram_path: Path
    ) -> None:
        log = make_log(ram_path / "d")
        (folder,) = (path for path in log.log_dir.iterdir() if path.is_dir())
        shutil.move(folder, mount / folder.name)
        folder.symlink_to(mount / folder.name)
        room = os.statvfs(mount)
        (mount / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize))
        report = recover(sample_of(log), [log.log_dir], dry_run=dry_run)
        assert [one.status for one in report.partitions] == ["refused"]
        assert str(folder) in report.partitions[0].reasons[0]
        assert report.exit_code == 4

    @pytest.mark.long
    @pytest.mark.parametrize("free_bytes", [90 << 10, 240 << 10, 400 << 10])
    @pytest.mark.parametrize(
        ("threads", "processes"), [(1, "never"), (2, "never"), (4, "never"), (2, "always")]
    )
    def test_each_partition_is_refused_or_done(
        self, free_bytes: int, threads: int, processes: str, mount: Path
    ) -> None:
        """Two log dirs share what is left, and their threads wait for each other's room."""
        subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
        sample = unpack("crashed", mount)
        room = os.statvfs(mount)
        used_bytes = (room.f_blocks - room.f_bfree) * room.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={used_bytes + free_bytes}", mount], check=True)
        command = [
            sys.executable, "-m", "recovery", "recover", "--config", str(sample.root / "server.properties"),
            "--property", "log.dirs=" + ",".join(map(str, sample.log_dirs)), "--now", str(sample.now_ms),
            "--threads", str(threads), "--processes", processes, "--format", "json", "--progress", "none",
        ]  # fmt: skip
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_WAIT_SECONDS, check=False
        )
        report = json.loads(ended.stdout)
        assert ended.returncode in (0, 4)
        assert not any(log_dir.get("error") for log_dir in report["logDirs"])
        partitions = [one for log_dir in report["logDirs"] for one in log_dir["partitions"]]
        dry = recover(sample, dry_run=True)
        assert sorted(one["partition"] for one in partitions) == sorted(one.folder for one in dry.partitions)
        reasons = [one["reasons"] for one in partitions if one["status"] not in ("recovered", "unchanged")]
        assert all("bytes for indexes, snapshots and quarantine" in str(reason) for reason in reasons)
        assert bool(reasons) == (ended.returncode == 4)


class TestSharedLedgers:
    """Ledgers of several processes, here of one: each sees what the others have promised."""

    @pytest.fixture
    def ledgers(self, monkeypatch) -> Iterator[list[SpaceLedger]]:
        monkeypatch.setattr(space, "free_bytes", lambda _path: 10 * BLOCK)
        monkeypatch.setattr(space, "_block_bytes", lambda _path: BLOCK)
        only_files(monkeypatch)
        with closing(SpaceShare.create(2)) as self.parent:
            shares = [SpaceShare(os.dup(self.parent.descriptor), number) for number in range(2)]
            yield [SpaceLedger(dry_run=False, share=share) for share in shares]
            for share in shares:
                share.close()

    def test_another_process_is_waited_for(self, ledgers: list[SpaceLedger], tmp_path: Path) -> None:
        one, other = ledgers
        assert reserve(one, "a", 6, tmp_path) == ()
        found: list[tuple[str, ...]] = []
        thread = threading.Thread(target=lambda: found.append(reserve(other, "b", 6, tmp_path)))
        thread.start()
        thread.join(0.5)
        assert found == []
        one.release(str(tmp_path / "a"))
        thread.join(LONGEST_WAIT_SECONDS)
        assert found == [()]

    def test_what_a_dead_process_had_reserved_is_free(
        self, ledgers: list[SpaceLedger], tmp_path: Path
    ) -> None:
        one, other = ledgers
        assert reserve(one, "a", 6, tmp_path) == ()
        self.parent.clear(0)
        assert reserve(other, "b", 6, tmp_path) == ()

    def test_what_does_not_fit_beside_nothing_is_refused(
        self, ledgers: list[SpaceLedger], tmp_path: Path
    ) -> None:
        assert len(reserve(ledgers[1], "b", 11, tmp_path)) == 1

    def test_dry_runs_add_up_over_processes(self, ledgers: list[SpaceLedger], tmp_path: Path) -> None:
        for ledger in ledgers:
            ledger._dry_run = True
        assert reserve(ledgers[0], "a", 6, tmp_path) == ()
        ledgers[0].release(str(tmp_path / "a"))
        assert len(reserve(ledgers[1], "b", 6, tmp_path)) == 1

    def test_file_systems_are_told_apart(self, ledgers: list[SpaceLedger]) -> None:
        for device in (1, 2):
            self.parent.publish(device, Promised(device * 10, 0))
        share = SpaceShare(os.dup(self.parent.descriptor), 0)
        assert share.others(2) == Promised(20, 0)
        assert share.others(3) == NOTHING_PROMISED
        share.close()


def test_processes_take_turns(tmp_path: Path) -> None:
    """Two processes that reserve at once never promise more than there is."""
    script = """
import sys, time
from recovery.write.space_share import Promised, SpaceShare
share, mine = SpaceShare(int(sys.argv[1]), int(sys.argv[2])), 0
for _ in range(500):
    with share.exclusively():
        if share.others(1).reserved_bytes + mine < 100:
            mine += 1
            share.publish(1, Promised(mine, 0))
print(mine)
"""
    with closing(SpaceShare.create(2)) as share:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(share.descriptor), str(number)],
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=(share.descriptor,),
            )
            for number in range(2)
        ]
        assert sum(int(process.communicate()[0]) for process in processes) == 100
        assert share.others(1) == Promised(100, 0)


def test_more_file_systems_than_there_are_rows_for_count_on_each_of_them() -> None:
    with closing(SpaceShare.create(1)) as parent, closing(SpaceShare(os.dup(parent.descriptor), 0)) as share:
        for device in range(1, 8):
            share.publish(device, Promised(device, 0))
        assert [parent.others(device) for device in range(1, 5)] == [
            *(Promised(device + 22, 0) for device in range(1, 4)),
            Promised(22, 0),
        ]
        for device in range(4, 8):
            share.publish(device, Promised(0, 1))
        assert parent.others(3) == Promised(3, 4)
        assert parent.others(9) == Promised(0, 4)
