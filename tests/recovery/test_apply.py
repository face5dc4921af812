"""The only writer: plans carried out, one durable step after another, and what becomes of them on the way."""

from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path

import pytest

from recovery import apply as module
from recovery.apply import apply_partition, sync_files, write_file
from recovery.errors import PartitionRefusedError
from recovery.inventory import list_files
from recovery.model import PartitionTask, RemovalKind
from recovery.partition import fold
from recovery.plan import (
    CopyPart,
    LinkFile,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    SaveFile,
    SaveTail,
    TruncateFile,
    WriteFile,
    plan_partition,
)
from recovery.quarantine import Quarantine
from recovery.source import PartitionFiles
from tests.recovery.memory import Folded, name, task_of
from tests.recovery.test_partition import TestOverflow, flipped, segment, three_segments


class Folder:
    """A partition's folder on disk, which is recovered without an engine."""

    def __init__(self, root: Path, files: dict[str, bytes], **fields: object) -> None:
        self.log_dir = root
        self.path = root / "t-0"
        self.path.mkdir(parents=True)
        for file, data in files.items():
            (self.path / file).write_bytes(data)
        self._fields = fields

    def plan(self) -> PartitionPlan:
        task = self.task()
        source = PartitionFiles(str(self.path), task.settings)
        return plan_partition(task, fold(task, source), source.read)

    def task(self) -> PartitionTask:
        return task_of({}, files=list_files(str(self.path)), log_dir=str(self.log_dir), **self._fields)

    def apply(self, plan: PartitionPlan, quarantine: Quarantine | None = None) -> list[str]:
        chosen = Quarantine(str(self.log_dir)) if quarantine is None else quarantine
        return apply_partition(str(self.path), plan, chosen)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.path.iterdir()}


def plan(*actions: object, saves: tuple[object, ...] = ()) -> PartitionPlan:
    return PartitionPlan(folder="t-0", saves=saves, actions=actions)


class TestActions:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path / "d1", {"a": b"aaaa", "b": b"bb"})

    def test_write_and_zeros_behind(self, folder: Folder) -> None:
        folder.apply(plan(WriteFile(name="c", data=b"new", size_bytes=10)))
        assert folder.files()["c"] == b"new" + bytes(7)

    def test_write_over_a_file_is_a_new_one(self, folder: Folder) -> None:
        inode = (folder.path / "a").stat().st_ino
        folder.apply(plan(WriteFile(name="a", data=b"", size_bytes=0)))
        assert folder.files() == {"a": b"", "b": b"bb"}
        assert (folder.path / "a").stat().st_ino != inode

    def test_remove_rename_truncate(self, folder: Folder) -> None:
        folder.apply(
            plan(
                TruncateFile(name="a", size_bytes=1),
                RemoveFile(name="b", size_bytes=2, kind=RemovalKind.DERIVED),
                RenameFile(old="a", new="a.deleted"),
            )
        )
        assert folder.files() == {"a.deleted": b"a"}

    def test_removing_what_is_gone_is_no_error(self, folder: Folder) -> None:
        folder.apply(plan(RemoveFile(name="gone", size_bytes=2, kind=RemovalKind.DERIVED)))

    def test_renaming_takes_the_place_of_another(self, folder: Folder) -> None:
        folder.apply(plan(RenameFile(old="a", new="b")))
        assert folder.files() == {"b": b"aaaa"}

    def test_link_and_copy_of_a_part(self, folder: Folder) -> None:
        folder.apply(
            plan(
                CopyPart(source="a", name="c", position=1, size_bytes=2),
                LinkFile(old="a", new="a.deleted"),
                CopyPart(source="a.deleted", name="a", position=0, size_bytes=3),
            )
        )
        assert folder.files() == {"a": b"aaa", "a.deleted": b"aaaa", "b": b"bb", "c": b"aa"}

    def test_a_part_that_is_no_longer_there_is_an_error(self, folder: Folder) -> None:
        with pytest.raises(OSError, match="shorter while it was copied"):
            folder.apply(plan(CopyPart(source="a", name="c", position=1, size_bytes=20)))
        assert set(folder.files()) == {"a", "b"}

    def test_everything_is_saved_before_the_first_action(self, folder: Folder) -> None:
        saves = (
            SaveFile(name="a", size_bytes=4, reason="why"),
            SaveTail(name="gone", position=1, size_bytes=1, reason="why"),
        )
        with pytest.raises(FileNotFoundError):
            folder.apply(plan(RemoveFile(name="a", size_bytes=4, kind=RemovalKind.DERIVED), saves=saves))
        assert set(folder.files()) == {"a", "b"}

    def test_what_is_saved_is_told(self, folder: Folder) -> None:
        saves = (
            SaveFile(name="a", size_bytes=4, reason="why"),
            SaveTail(name="b", position=1, size_bytes=1, reason="why"),
        )
        whole, tail = folder.apply(plan(saves=saves))
        assert (Path(whole).read_bytes(), Path(tail).read_bytes()) == (b"aaaa", b"b")

    def test_a_file_that_will_be_cut_is_copied_instead_of_linked(self, folder: Folder) -> None:
        save = SaveFile(name="a", size_bytes=4, reason="why", is_cut=True)
        (saved,) = folder.apply(plan(TruncateFile(name="a", size_bytes=1), saves=(save,)))
        assert Path(saved).read_bytes() == b"aaaa"
        assert folder.files()["a"] == b"a"


class TestDurability:
    def test_a_written_file_is_synced_before_it_takes_its_name_and_the_folder_after(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        told: list[tuple[str, str]] = []
        fsync, rename = os.fsync, os.rename

        def note_fsync(descriptor: int) -> None:
            told.append(("fsync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
            fsync(descriptor)

        def note_rename(old: str, new: str) -> None:
            told.append(("rename", os.path.basename(new)))
            rename(old, new)

        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(os, "rename", note_rename)
        folder.apply(
            plan(WriteFile(name="c", data=b"new", size_bytes=3), TruncateFile(name="a", size_bytes=1))
        )
        assert told == [("fsync", "c.recovery-tmp"), ("rename", "c"), ("fsync", "a"), ("fsync", "t-0")]

    def test_a_renamed_segment_is_durable_before_the_next_step(self, tmp_path: Path, monkeypatch) -> None:
        told: list[str] = []
        monkeypatch.setattr(module, "sync_folder", lambda folder: told.append("folder"))
        monkeypatch.setattr(module, "_truncate", lambda path, size_bytes: told.append("truncate"))
        folder = Folder(tmp_path / "d1", {"a": b"aaaa", "b": b"bb"})
        folder.apply(plan(RenameFile(old="b", new="b.deleted"), TruncateFile(name="a", size_bytes=1)))
        assert told == ["folder", "truncate", "folder"]

    def test_quarantine_is_durable_before_the_first_action(self, tmp_path: Path, monkeypatch) -> None:
        told: list[str] = []
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        quarantine = Quarantine(str(folder.log_dir))
        sync = quarantine.sync
        monkeypatch.setattr(quarantine, "sync", lambda: (told.append("quarantine"), sync()))
        monkeypatch.setattr(module, "_truncate", lambda path, size_bytes: told.append("truncate"))
        save = SaveTail(name="a", position=1, size_bytes=3, reason="why")
        folder.apply(plan(TruncateFile(name="a", size_bytes=1), saves=(save,)), quarantine)
        assert told == ["quarantine", "truncate"]

    def test_nothing_to_do_syncs_nothing(self, tmp_path: Path, monkeypatch) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("synced"))
        folder.apply(plan())

    def test_logs_that_were_only_read_are_synced_for_the_marker(self, tmp_path: Path, monkeypatch) -> None:
        synced: list[str] = []
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
        (tmp_path / "a").write_bytes(b"")
        sync_files([str(tmp_path / "a")])
        assert synced == [str(tmp_path / "a")]


class TestFailure:
    @pytest.mark.parametrize("call", ["write", "ftruncate", "fsync", "rename", "fchmod"])
    def test_no_temporary_file_is_left_and_the_old_one_stays(
        self, tmp_path: Path, call: str, monkeypatch
    ) -> None:
        def fail(*_args: object, **_more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        path = tmp_path / "a"
        path.write_bytes(b"old")
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left on device"):
            write_file(str(path), b"new", size_bytes=10)
        monkeypatch.undo()
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"old"}

    def test_a_short_write_goes_on(self, tmp_path: Path, monkeypatch) -> None:
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:2]))
        write_file(str(tmp_path / "a"), b"abcdefg")
        assert (tmp_path / "a").read_bytes() == b"abcdefg"

    def test_a_temporary_file_of_a_killed_run_is_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "a.recovery-tmp").write_bytes(b"a longer rest of a killed run")
        write_file(str(tmp_path / "a"), b"new")
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"new"}


class TestOwnerAndMode:
    """As root, or as another user of the same group, what is written can be opened by the broker."""

    OWNER = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())

    def facts(self, path: Path) -> tuple[int, int, int]:
        found = path.stat()
        return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
    def test_a_replaced_file_keeps_them(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "a"
        path.write_bytes(b"old")
        path.chmod(mode)
        os.chown(path, *self.OWNER)
        write_file(str(path), b"new")
        assert self.facts(path) == (*self.OWNER, mode)

    @pytest.mark.parametrize(
        ("folder_mode", "mode"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600), (0o2775, 0o664)]
    )
    def test_a_new_file_takes_them_from_its_folder(self, tmp_path: Path, folder_mode: int, mode: int) -> None:
        folder = tmp_path / "t-0"
        folder.mkdir()
        os.chown(folder, *self.OWNER)
        folder.chmod(folder_mode)
        write_file(str(folder / "a"), b"new")
        assert self.facts(folder / "a") == (*self.OWNER, mode)

    def test_the_umask_is_no_concern(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            tmp_path.chmod(0o755)
            write_file(str(tmp_path / "a"), b"new")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644

    def test_a_copied_part_has_them_too(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        (folder.path / "a").chmod(0o600)
        os.chown(folder.path, *self.OWNER)
        folder.path.chmod(0o750)
        folder.apply(plan(CopyPart(source="a", name="c", position=1, size_bytes=2)))
        assert self.facts(folder.path / "c") == (*self.OWNER, 0o640)


class TestCrashAfterEveryAction:
    """Any prefix of a plan leaves a folder from which the next run comes to the same end."""

    STATES = {  # noqa: RUF012
        "crashed": three_segments,
        "bad batch": lambda: Folded(three_segments()).tree | {name(0): flipped(segment(0), 300)},
        "missing indexes": lambda: {
            file: data for file, data in Folded(three_segments()).tree.items() if not file.endswith("index")
        },
        "swap": lambda: three_segments()
        | {name(10, ".log.swap"): segment(10, 4), name(10, ".index.swap"): b"", name(10, ".timeindex.swap"): b""},
        "two swaps": lambda: Folded(three_segments()).tree
        | {name(0, ".log.swap"): segment(0, 4), name(0, ".index.swap"): b""}
        | {name(10, ".log.swap"): segment(12, 3), name(10, ".index.swap"): b""},
        "unfinished cleaning": lambda: three_segments()
        | {name(10, ".log.swap"): b"x", name(10, ".log.cleaned"): b"", name(0, ".index.cleaned"): b""},
        "wrong transaction index": lambda: Folded(three_segments()).tree | {name(20, ".txnindex"): bytes(34)},
        "split": lambda: {
            **three_segments(), name(20): segment(20) + segment(TestOverflow.FAR, 3),
        },
    }  # fmt: skip

    @staticmethod
    def live(folder: Folder) -> dict[str, bytes]:
        return {file: data for file, data in folder.files().items() if not file.endswith(".deleted")}

    def ends(self, whole: Folder) -> list[dict[str, bytes]]:
        """The end, and what a broker makes of it that is killed after its load and started again: at times an
        epoch, or a snapshot, is found only then."""
        found = []
        for run in ("first", "second"):
            place = Quarantine(str(whole.log_dir), root=str(whole.log_dir.with_name(run)))
            whole.apply(whole.plan(), place)
            found.append(self.live(whole))
        return found

    @pytest.mark.parametrize(
        ("state", "recovery_point"),
        [*((state, 0) for state in STATES), *((state, 20) for state in STATES if state != "split")],
    )
    def test_the_same_end(self, tmp_path: Path, state: str, recovery_point: int) -> None:
        files = self.STATES[state]()
        whole = Folder(tmp_path / "whole", files, recovery_point=recovery_point)
        count = len(whole.plan().actions)
        assert count or recovery_point
        ends = self.ends(whole)
        for done in range(count + 1):
            folder = Folder(tmp_path / str(done), files, recovery_point=recovery_point)
            begun = folder.plan()
            folder.apply(PartitionPlan(folder="t-0", saves=begun.saves, actions=begun.actions[:done]))
            folder.apply(folder.plan(), Quarantine(str(folder.log_dir), root=str(tmp_path / f"again-{done}")))
            assert self.live(folder) in ends, f"after {begun.actions[:done][-1:]}"

    @pytest.mark.parametrize("seed", range(25))
    def test_the_same_end_of_random_damage(self, tmp_path: Path, seed: int) -> None:
        rng = random.Random(seed)
        files = dict(Folded(three_segments()).tree)
        for file in rng.sample(sorted(files), rng.randint(1, 4)):
            data = files.pop(file)
            if rng.random() < 0.6 and data:
                files[file] = flipped(data, rng.randrange(len(data)))
        recovery_point = rng.choice([0, 10, 30])
        try:
            whole = Folder(tmp_path / "whole", files, recovery_point=recovery_point)
            count = len(whole.plan().actions)
        except PartitionRefusedError:
            return
        ends = self.ends(whole)
        for done in range(0, count + 1, 2):
            folder = Folder(tmp_path / str(done), files, recovery_point=recovery_point)
            begun = folder.plan()
            folder.apply(PartitionPlan(folder="t-0", saves=begun.saves, actions=begun.actions[:done]))
            folder.apply(folder.plan(), Quarantine(str(folder.log_dir), root=str(tmp_path / f"again-{done}")))
            assert self.live(folder) in ends, f"after {begun.actions[:done][-1:]}"
