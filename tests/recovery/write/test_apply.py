"""The only writer: plans carried out, one durable step after another, and what becomes of them on the way."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from recovery.errors import JournalError, PartitionRefusedError
from recovery.load.fold import fold
from recovery.load.model import FileStat, PartitionTask, RemovalKind
from recovery.logdir.listing import list_files
from recovery.plan.actions import (
    AppendPart,
    CopyPart,
    LinkFile,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    SaveFile,
    SaveTail,
    TruncateFile,
    WriteFile,
)
from recovery.plan.commit import Commit
from recovery.plan.plan import plan_partition
from recovery.read.partition_files import PartitionFiles
from recovery.write import apply as module
from recovery.write import quarantine as quarantine_module
from recovery.write.apply import apply_partition, publish, stage
from recovery.write.quarantine import Quarantine
from tests.logs.quarantine_builder import save_file
from tests.recovery.load.memory import Folded, name, task_of
from tests.recovery.load.test_partition import TestOverflow, flipped, segment, three_segments


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

    def apply(
        self, plan: PartitionPlan, quarantine: Quarantine | None = None, **options: object
    ) -> list[str]:
        chosen = Quarantine(str(self.log_dir)) if quarantine is None else quarantine
        return apply_partition(str(self.path), plan, list_files(str(self.path)), chosen, **options)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.path.iterdir()}


NEW = WriteFile(name="a", data=b"new", size_bytes=3)


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

    @pytest.mark.parametrize("is_renamed", [False, True])
    def test_what_was_appended_since_its_tail_was_saved_is_not_cut(
        self, folder: Folder, is_renamed: bool
    ) -> None:
        """As by a program that takes no lock."""
        rename = (RenameFile(old="b", new="c"),) if is_renamed else ()
        cut = TruncateFile(name="c" if is_renamed else "b", size_bytes=1)

        def append(_commit: Commit, _saved: list[str]) -> None:
            with (folder.path / "b").open("ab") as file:
                file.write(b"new")

        before = folder.files()["b"]
        saves = (SaveTail(name="b", position=1, size_bytes=len(before) - 1, reason="cut"),)
        with pytest.raises(OSError, match="since it was saved, so it was not cut") as refused:
            folder.apply(plan(*rename, cut, saves=saves), enter=append)
        assert refused.value.errno == errno.EBUSY
        assert folder.files()[cut.name] == before + b"new"

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
                CopyPart(source="a", name="a", position=0, size_bytes=3),
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
    """What each step may rely on is on disk before it."""

    @pytest.fixture
    def told(self, monkeypatch) -> list[str]:
        told: list[str] = []

        def tell(where: object, name: str, words: Callable[..., str]) -> None:
            call = getattr(where, name)

            def telling(*arguments: object, **more: object) -> object:
                told.extend(filter(None, [words(*arguments)]))
                return call(*arguments, **more)

            monkeypatch.setattr(where, name, telling)

        def base(path: object) -> str:
            return os.path.basename(str(path))

        tell(os, "rename", lambda old, new: f"rename {base(new)}")
        tell(os, "ftruncate", lambda _fd, size: f"size {size}")
        tell(module, "sync", lambda path: f"sync {base(path)}")
        tell(
            quarantine_module,
            "sync_all",
            lambda paths: f"sync {', '.join(map(base, paths))}" if paths else "",
        )
        return told

    def test_what_is_staged_is_on_disk_before_the_commit_and_that_before_the_first_change(
        self, tmp_path: Path, told: list[str]
    ) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        write = WriteFile(name="c", data=b"new", size_bytes=3)
        folder.apply(
            plan(write, TruncateFile(name="a", size_bytes=1)), enter=lambda *_: told.append("commit")
        )
        assert told == ["sync c.recovery-tmp, t-0", "commit", "rename c", "size 1", "sync t-0"]

    def test_a_renamed_segment_is_durable_before_the_next_step(self, tmp_path: Path, told: list[str]) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa", "b": b"bb"})
        folder.apply(plan(RenameFile(old="b", new="b.deleted"), TruncateFile(name="a", size_bytes=1)))
        assert told == ["rename b.deleted", "sync t-0", "size 1", "sync t-0"]

    def test_a_run_that_goes_on_waits_for_what_the_killed_one_has_done(
        self, tmp_path: Path, told: list[str]
    ) -> None:
        """The names show that it is done, and not whether it is on disk."""
        folder = Folder(tmp_path / "d1", {"a": b"aaaa", "b": b"bb"})
        actions = (RenameFile(old="b", new="b.deleted"), TruncateFile(name="a", size_bytes=1))
        commit = stage(str(folder.path), "t-0", list_files(str(folder.path)), actions)
        (folder.path / "b").rename(folder.path / "b.deleted")
        told.clear()
        publish(str(folder.path), commit)
        assert told == ["sync t-0", "size 1", "sync t-0"]

    def test_all_indexes_of_a_log_take_their_names_by_one_wait(self, tmp_path: Path, told: list[str]) -> None:
        folder = Folder(tmp_path / "d1", {})
        names = [name(base, suffix) for suffix in (".timeindex", ".txnindex", ".index") for base in range(3)]
        folder.apply(plan(*(WriteFile(name=one, data=b"", size_bytes=0) for one in names)))
        kinds = [words.split(".")[-1] for words in told[1:]]
        assert kinds == [
            *["timeindex"] * 3,
            *["sync t-0", "txnindex"] * 3,
            *["sync t-0"],
            *["index"] * 3,
            "sync t-0",
        ]

    def test_what_a_swap_makes_obsolete_is_gone_before_the_swap_is_in_place(
        self, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broker removes the snapshots within the range of the `.swap` files that it finds."""
        folder = Folder(tmp_path / "d1", {"a.log.swap": b"aaaa", "a.snapshot": b"bb"})
        monkeypatch.setattr(
            module, "remove_file", lambda path: told.append(f"remove {os.path.basename(path)}")
        )
        actions = [
            RemoveFile(name="a.snapshot", size_bytes=2, kind=RemovalKind.DERIVED),
            RenameFile(old="a.log.swap", new="a.log"),
        ]
        with pytest.raises(OSError, match="not as the plan should leave it"):  # nothing is removed here
            folder.apply(plan(*actions))
        assert told == ["remove a.snapshot", "sync t-0", "rename a.log", "sync t-0", "sync t-0"]

    def test_an_index_takes_its_name_when_its_segment_has_it(self, tmp_path: Path, told: list[str]) -> None:
        folder = Folder(tmp_path / "d1", {})
        writes = [
            WriteFile(name=name(0, suffix), data=b"", size_bytes=0)
            for suffix in (".log", ".timeindex", ".index")
        ]
        folder.apply(plan(*writes))
        assert [words.split(".")[-1] for words in told[1:]] == [
            "log",
            "timeindex",
            "sync t-0",
            "index",
            "sync t-0",
        ]

    def test_quarantine_and_what_is_staged_are_durable_by_one_wait_before_the_commit(
        self, tmp_path: Path, told: list[str]
    ) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        save = SaveTail(name="a", position=1, size_bytes=3, reason="why")
        actions = [WriteFile(name="c", data=b"new", size_bytes=3), TruncateFile(name="a", size_bytes=1)]
        folder.apply(plan(*actions, saves=(save,)), enter=lambda *_: told.append("commit"))
        waits = [words for words in told[: told.index("commit")] if words.startswith("sync")]
        assert len(waits) == 1
        names = waits[0].removeprefix("sync ").split(", ")
        assert {"c.recovery-tmp", "t-0", "a.from-1", "manifest.jsonl"} <= set(names)
        assert told[told.index("commit") :] == ["commit", "rename c", "size 1", "sync t-0"]

    def test_what_an_earlier_run_has_staged_is_no_part_of_the_commit(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa", "c.recovery-tmp": b"half"})
        commits: list[Commit] = []
        found = list_files(str(folder.path))
        folder.apply(
            plan(WriteFile(name="c", data=b"new", size_bytes=3)),
            enter=lambda commit, _: commits.append(commit),
        )
        assert "c.recovery-tmp" in found
        assert set(commits[0].before) == {"a"}
        assert commits[0].explain(list_files(str(folder.path))) is None

    def test_a_kept_deletion_goes_when_quarantine_is_durable(self, tmp_path: Path, told: list[str]) -> None:
        folder = Folder(tmp_path / "d1", {"a.deleted": b"aaaa"})
        removal = RemoveFile(name="a.deleted", size_bytes=4, kind=RemovalKind.PENDING_DELETION)
        save = SaveFile(name="a.deleted", size_bytes=4, reason="why")
        there: list[bool] = []
        quarantine = Quarantine(str(folder.log_dir))
        sync = quarantine.sync

        def told_sync(others: Iterable[str] = ()) -> None:
            there.append((folder.path / "a.deleted").exists())
            sync(others)

        quarantine.sync = told_sync
        folder.apply(plan(removal, saves=(save,)), quarantine)
        assert there[0]
        assert not (folder.path / "a.deleted").exists()

    def test_nobody_waits_for_what_could_not_be_entered(self, tmp_path: Path, monkeypatch) -> None:
        def fail(*_arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        folder = Folder(tmp_path / "d1", {"a": b"aaaa", "b": b"b"})
        quarantine = Quarantine(str(folder.log_dir))
        with monkeypatch.context() as patch:
            patch.setattr(quarantine_module, "write_fully", fail)
            with pytest.raises(OSError, match="No space left"):
                save_file(quarantine, str(folder.path / "a"), folder="t-0", reason="why")
        save_file(quarantine, str(folder.path / "b"), folder="t-0", reason="why")
        quarantine.sync()

    def test_what_could_not_be_synced_is_synced_by_the_next_one(self, tmp_path: Path, monkeypatch) -> None:
        def fail(_paths: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        quarantine = Quarantine(str(folder.log_dir))
        save_file(quarantine, str(folder.path / "a"), folder="t-0", reason="why")
        synced: list[str] = []
        monkeypatch.setattr(quarantine_module, "sync_all", fail)
        with pytest.raises(OSError, match="Input/output error"):
            quarantine.sync()
        monkeypatch.setattr(quarantine_module, "sync_all", synced.extend)
        quarantine.sync()
        assert {"a", "manifest.jsonl"} <= set(map(os.path.basename, synced))
        synced.clear()
        quarantine.sync()
        assert synced == []

    def test_nothing_to_do_syncs_nothing(self, tmp_path: Path, told: list[str]) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"aaaa"})
        folder.apply(plan())
        assert told == []


class TestFailure:
    """Up to the commit nothing has changed, whatever fails."""

    @pytest.mark.parametrize("call", ["write", "ftruncate", "fchmod", "open", "link"])
    def test_nothing_is_left_and_everything_stays(self, tmp_path: Path, call: str, monkeypatch) -> None:
        def fail(*_args: object, **_more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        folder = Folder(tmp_path / "d1", {"a": b"old", "b": b"b"})
        before = list_files(str(folder.path))
        write = WriteFile(name="a", data=b"new", size_bytes=10)
        save = SaveFile(name="a", size_bytes=3, reason="why", is_cut=call != "link")
        monkeypatch.setattr(os, call, fail)
        removal = RemoveFile(name="b", size_bytes=1, kind=RemovalKind.DERIVED)
        if call == "link":  # then it is a copy
            monkeypatch.setattr(os, "write", fail)
        with pytest.raises(OSError, match="No space left on device"):
            folder.apply(plan(removal, write, saves=(save,)))
        monkeypatch.undo()
        assert list_files(str(folder.path)) == before

    def test_a_commit_that_fails_may_count_so_what_is_staged_stays(self, tmp_path: Path) -> None:
        def fail(*_arguments: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        folder = Folder(tmp_path / "d1", {"a": b"old"})
        with pytest.raises(OSError, match="Input/output error"):
            folder.apply(plan(NEW), enter=fail)
        assert folder.files() == {"a": b"old", "a.recovery-tmp": b"new"}

    def test_what_the_broker_would_unlink_anyway_goes_first(self, tmp_path: Path, monkeypatch) -> None:
        """It may be what gives a full disk its space back."""
        folder = Folder(tmp_path / "d1", {"a": b"old", "b.deleted": b"bb"})
        removal = RemoveFile(name="b.deleted", size_bytes=2, kind=RemovalKind.PENDING_DELETION)
        write = WriteFile(name="a", data=b"new", size_bytes=3)
        seen: list[set[str]] = []

        def fail(*_: object, **__: object) -> None:
            seen.append(set(folder.files()))
            raise FileNotFoundError

        monkeypatch.setattr(module, "write_new", fail)
        with pytest.raises(FileNotFoundError):
            folder.apply(plan(write, removal))
        assert seen == [{"a"}]

    def test_a_short_write_goes_on(self, tmp_path: Path, monkeypatch) -> None:
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:2]))
        folder = Folder(tmp_path / "d1", {})
        folder.apply(plan(WriteFile(name="a", data=b"abcdefg", size_bytes=7)))
        assert folder.files() == {"a": b"abcdefg"}

    def test_temporary_files_of_a_killed_run_go(self, tmp_path: Path) -> None:
        folder = Folder(
            tmp_path / "d1", {"a.recovery-tmp": b"a longer rest of a killed run", "z.recovery-tmp": b""}
        )
        folder.apply(plan(WriteFile(name="a", data=b"new", size_bytes=3)))
        assert folder.files() == {"a": b"new"}


class TestOwnerAndMode:
    """As root, or as another user of the same group, what is written can be opened by the broker."""

    OWNER = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())

    def facts(self, path: Path) -> tuple[int, int, int]:
        found = path.stat()
        return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
    def test_a_replaced_file_keeps_them(self, tmp_path: Path, mode: int) -> None:
        folder = Folder(tmp_path / "d1", {"a": b"old"})
        path = folder.path / "a"
        path.chmod(mode)
        os.chown(path, *self.OWNER)
        folder.apply(plan(NEW))
        assert self.facts(path) == (*self.OWNER, mode)

    @pytest.mark.parametrize(
        ("folder_mode", "mode"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600), (0o2775, 0o664)]
    )
    def test_a_new_file_takes_them_from_its_folder(self, tmp_path: Path, folder_mode: int, mode: int) -> None:
        folder = Folder(tmp_path / "d1", {})
        os.chown(folder.path, *self.OWNER)
        folder.path.chmod(folder_mode)
        folder.apply(plan(NEW))
        assert self.facts(folder.path / "a") == (*self.OWNER, mode)

    def test_the_umask_is_no_concern(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            folder = Folder(tmp_path / "d1", {})
            folder.path.chmod(0o755)
            folder.apply(plan(NEW))
        finally:
            os.umask(before)
        assert stat.S_IMODE((folder.path / "a").stat().st_mode) == 0o644

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

    @pytest.mark.parametrize("state", STATES)
    def test_a_commit_is_carried_out_from_wherever_it_was_left(self, tmp_path: Path, state: str) -> None:
        files = self.STATES[state]()
        whole = Folder(tmp_path / "whole", files)
        count = len(whole.plan().actions)
        whole.apply(whole.plan())
        for done in range(count + 1):
            folder = Folder(tmp_path / str(done), files)
            commit = self.killed_after(folder, done)
            restored = Commit.from_json(json.loads(json.dumps(commit.to_json())))
            found = list_files(str(folder.path))
            assert restored.explain(found) is None
            assert (restored.contradiction(found) is None) == (done == len(commit.actions))
            publish(str(folder.path), restored)
            assert folder.files() == whole.files(), f"after {commit.actions[:done][-1:]}"
            assert restored.explain(list_files(str(folder.path))) is None
            assert restored.contradiction(list_files(str(folder.path))) is None

    @staticmethod
    def killed_after(folder: Folder, count: int) -> Commit:
        """The commit of a run that is killed after *count* actions."""
        commits: list[Commit] = []

        def enter(commit: Commit, _saved: object) -> None:
            commits.append(commit)
            publish(str(folder.path), replace(commit, actions=commit.actions[:count]))
            raise Killed

        class Killed(BaseException):
            pass

        with mock.patch.object(module, "unstage"), pytest.raises(Killed):
            folder.apply(folder.plan(), enter=enter)
        return commits[0]

    @pytest.mark.parametrize("change", ["appended", "added", "removed"])
    def test_what_somebody_else_has_done_is_not_explained(self, tmp_path: Path, change: str) -> None:
        folder = Folder(tmp_path / "d1", self.STATES["missing indexes"]())
        commit = self.killed_after(folder, 2)
        assert commit.explain(list_files(str(folder.path))) is None
        log = folder.path / name(20)
        if change == "appended":
            log.write_bytes(log.read_bytes() + b"x")
        elif change == "added":
            (folder.path / name(30)).write_bytes(b"")
        else:
            log.unlink()
        assert commit.explain(list_files(str(folder.path))) == name(30 if change == "added" else 20)

    def test_a_commit_without_what_it_staged_is_not_carried_out(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path / "d1", self.STATES["missing indexes"]())
        commit = self.killed_after(folder, 2)
        staged = sorted(folder.path.glob("*.recovery-tmp"))
        staged[0].unlink()
        assert commit.explain(list_files(str(folder.path))) == staged[0].name.removesuffix(".recovery-tmp")

    def test_a_tail_that_is_put_back_may_be_there_in_part(self) -> None:
        append = AppendPart(source="tail", name="a", position=4, size_bytes=3, mtime_ns=1)
        before = FileStat(size_bytes=4, mtime_ns=7, inode=9)
        commit = Commit(folder="t-0", before={"a": before}, staged={}, actions=(append,))
        assert Commit.from_json(commit.to_json()) == commit
        assert commit.explain({"a": replace(before, size_bytes=6)}) is None
        assert commit.explain({"a": replace(before, size_bytes=6, inode=8)}) == "a"

    @pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", 7])
    @pytest.mark.parametrize("key", ["name", "old", "source"])
    def test_no_name_in_a_commit_leads_out_of_its_folder(self, key: str, name: object) -> None:
        actions = {
            "name": TruncateFile(name="a", size_bytes=1),
            "old": RenameFile(old="a", new="b"),
            "source": CopyPart(source="a", name="c", position=0, size_bytes=1),
        }
        before = {"a": FileStat(size_bytes=4)}
        staged = {"c": FileStat(size_bytes=1)} if key == "source" else {}
        commit = Commit(folder="t-0", before=before, staged=staged, actions=(actions[key],))
        document = commit.to_json()
        assert Commit.from_json(document) == commit
        document["actions"][0][key] = name
        with pytest.raises(JournalError, match="not a commit of this tool"):
            Commit.from_json(document)

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
