"""Purging takes what a recovery has put into quarantine, all of it, and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from recovery.errors import InterruptedRecoveryError, LogDirLockedError, UnsafeError
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.quarantine_place import INSIDE_FOLDER, quarantine_root
from recovery.saved import purge as module
from recovery.saved.purge import LogDirPurge, purge, remove_undone
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from tests.logs.quarantine_builder import DATA, NEW_RUN, OLD_RUN, RunBuilder, a_foreign_folder, a_log_dir


def purged(log_dir: Path, place: Path | None = None, **options: bool) -> LogDirPurge:
    (found,) = purge([str(log_dir)], None if place is None else str(place), lambda _: True, **options)
    return found


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def begin_run(root: Path, log_dir: Path, name: str = "journal") -> Journal:
    header = Header(
        tool_version="0", log_dir=str(log_dir), configuration={}, now_ms=0, had_clean_shutdown=False
    )
    return Journal.create(str(root / name), header)


class TestWhole:
    def test_nothing_of_a_run_is_left(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        builder.save()
        builder.save("log-dir/recovery-point-offset-checkpoint", b"0\n0\n")
        before = tree(log_dir)
        (run,) = purged(log_dir).runs
        assert run.problem is None
        assert run.file_count == 3
        assert run.freed_bytes >= len(DATA)
        assert not root.exists()
        assert tree(log_dir) == before

    def test_the_log_dirs_own_name_of_a_file_stays(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        segment = log_dir / "t-0" / "00000000000000000000.log"
        builder.save(link=segment)
        (run,) = purged(log_dir).runs
        assert segment.read_bytes() == DATA
        assert run.freed_bytes < len(DATA)
        assert segment.stat().st_nlink == 1

    @pytest.mark.parametrize("call", ["listdir", "fsync"])
    def test_an_error_names_the_folder_and_no_number(
        self, builder: RunBuilder, root: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        builder.save()
        real, inode = getattr(os, call), (root if call == "fsync" else builder.path / "t-0").stat().st_ino

        def fail(descriptor: int) -> object:
            if os.fstat(descriptor).st_ino == inode:
                raise OSError(errno.EIO, "Input/output error", descriptor if call == "listdir" else None)
            return real(descriptor)

        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match="Input/output error") as raised:
            remove_undone(str(root), builder.path.name)
        assert raised.value.filename == str(root if call == "fsync" else builder.path / "t-0")

    def test_a_run_without_a_manifest(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        (builder.path / "manifest.jsonl").unlink()
        (builder.path / "t-0").mkdir()
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()

    def test_a_folder_that_was_moved_goes_with_what_came_with_it(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        builder.move(a_foreign_folder(log_dir))
        (log_dir / "link").symlink_to("nowhere")
        builder.move(log_dir / "link")
        (run,) = purged(log_dir).runs
        assert run.problem is None
        assert run.file_count == 7
        assert not root.exists()

    def test_a_folder_that_an_earlier_version_moved_goes_with_all_in_it(
        self, builder: RunBuilder, root: Path, log_dir: Path, tmp_path: Path
    ) -> None:
        deep = builder.path / "log-dir" / "lost+found" / "deep"
        deep.mkdir(parents=True)
        (deep / "file").write_text("x")
        os.mkfifo(deep / "pipe")
        victim = tmp_path / "victim"
        victim.mkdir()
        (victim / "mine").write_text("mine")
        (deep / "link").symlink_to(victim)
        builder.enter_moved("lost+found")
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()
        assert (victim / "mine").read_text() == "mine"

    def test_what_lies_too_deep_keeps_the_run(self, builder: RunBuilder, log_dir: Path) -> None:
        """Folders in folders, a thousand of them: a foreign folder may be so, and was moved as a whole."""
        builder.enter_moved("deep")
        folder = builder.path / "log-dir" / "deep"
        folder.mkdir(parents=True)
        descriptor = os.open(folder, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("x", dir_fd=descriptor)
            below = os.open("x", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        os.close(descriptor)
        (run,) = purged(log_dir).runs
        assert run.problem is not None
        assert "lies too deep" in run.problem
        assert (builder.path / "manifest.jsonl").exists()
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        assert purged(log_dir).runs[0].problem is None

    def test_a_kind_of_a_later_version_goes_by_its_name(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        builder.save("odd folder/x/y", kind="of a later version")
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()

    def test_what_else_is_in_the_folder_of_all_runs_stays(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        (root / "notes").mkdir()
        (root / "README").write_text("mine")
        purged(log_dir)
        assert tree(root) == ["README", "notes"]


class TestForeign:
    @pytest.mark.parametrize(
        "where",
        [
            "note.txt",
            "t-0/note.txt",
            "t-0/00000000000000000007.log",
            "t-0/folder/x",
            "no log/x",
            "t-0/link",
            "t-0/pipe",
            "link",
        ],
    )
    def test_a_run_with_something_else_in_it_is_left_whole(
        self, builder: RunBuilder, root: Path, log_dir: Path, tmp_path: Path, where: str
    ) -> None:
        builder.save()
        path = builder.path / where
        path.parent.mkdir(parents=True, exist_ok=True)
        if where.endswith("link"):
            path.symlink_to(tmp_path)
        elif where.endswith("pipe"):
            os.mkfifo(path)
        else:
            path.write_text("mine")
        before = tree(root)
        for dry_run in (True, False):
            (run,) = purged(log_dir, dry_run=dry_run).runs
            assert run.problem is not None
            assert run.problem.startswith(f"{where}: not named by the manifest")
            assert run.freed_bytes == run.file_count == 0
        assert tree(root) == before

    @pytest.mark.parametrize(
        ("where", "is_kept"),
        [("my notes", True), ("t-0/folder", True), ("notes/2026", True), ("t-1", False), ("log-dir", False)],
    )
    def test_an_empty_folder_goes_where_a_run_can_have_made_it(
        self, builder: RunBuilder, root: Path, log_dir: Path, where: str, is_kept: bool
    ) -> None:
        builder.save()
        (builder.path / where).mkdir(parents=True)
        problem = purged(log_dir).runs[0].problem
        assert (problem is not None) is is_kept
        assert (builder.path / where).exists() is is_kept
        assert problem is None or problem.startswith(f"{where}: not named by the manifest")

    def test_an_empty_folder_is_left_by_an_undo(self, builder: RunBuilder, root: Path) -> None:
        builder.save()
        (builder.path / "my notes").mkdir()
        remove_undone(str(root), builder.path.name)
        assert tree(root) == [builder.path.name, f"{builder.path.name}/my notes"]

    def test_a_copy_that_a_killed_run_did_not_enter_is_kept(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        """Nothing tells it from somebody else's file."""
        copy = builder.path / "t-9" / "00000000000000000007.log.from-3"
        copy.parent.mkdir()
        copy.write_bytes(b"x")
        with (builder.path / "manifest.jsonl").open("a") as manifest:
            manifest.write('{"torn')
        problem = purged(log_dir).runs[0].problem
        assert problem is not None
        assert "a copy made by a run that was killed" in problem
        assert copy.read_bytes() == b"x"

    def test_a_file_of_another_size_than_the_manifest_says_is_kept(
        self, builder: RunBuilder, log_dir: Path
    ) -> None:
        saved = builder.save()
        saved.write_bytes(b"mine")
        assert purged(log_dir).runs[0].problem is not None
        assert saved.read_bytes() == b"mine"

    @pytest.mark.parametrize("where", ["new", "deep/new", "deep/empty/new", "deep/new folder", "new link"])
    def test_what_came_into_a_folder_since_it_was_moved_is_kept(
        self, builder: RunBuilder, root: Path, log_dir: Path, where: str
    ) -> None:
        path = builder.move(a_foreign_folder(log_dir)) / where
        if where.endswith("folder"):
            path.mkdir()
        elif where.endswith("link"):
            path.symlink_to("a")
        else:
            path.write_bytes(b"mine")
        before = tree(root)
        for dry_run in (True, False):
            problem = purged(log_dir, dry_run=dry_run).runs[0].problem or ""
            assert problem.startswith(f"log-dir/topic/{where}: not named by the manifest")
            assert "Nothing of this run was removed" in problem
        assert tree(root) == before
        path.rmdir() if path.is_dir() else path.unlink()
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()

    @pytest.mark.parametrize(
        ("where", "what"),
        [
            ("a", "another size"),
            ("a", "link"),
            ("a", "folder"),
            ("pipe", "another size"),
            ("deep/link", "another size"),
            ("deep/empty", "link"),
            ("", "link"),
            ("", "another size"),
        ],
    )
    def test_what_is_of_another_kind_or_size_than_when_it_was_moved_is_kept(
        self, builder: RunBuilder, root: Path, log_dir: Path, tmp_path: Path, where: str, what: str
    ) -> None:
        path = builder.move(a_foreign_folder(log_dir)) / where
        path.rename(tmp_path / "aside")
        if what == "link":
            path.symlink_to("nowhere at all")
        elif what == "folder":
            path.mkdir()
        else:
            path.write_bytes(b"" if where == "" else b"123456")
        before = tree(root)
        problem = purged(log_dir).runs[0].problem or ""
        assert problem.startswith(f"log-dir/topic/{where}".rstrip("/") + ": not named by the manifest")
        assert tree(root) == before

    def test_what_is_gone_from_a_folder_that_was_moved_is_nobodys(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        folder = builder.move(a_foreign_folder(log_dir))
        for name in ("00000000000000000007.log", "link"):
            (folder / "deep" / name).unlink()
        (folder / "deep" / "empty").rmdir()
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()

    @pytest.mark.parametrize("kind", ["folder", "file"])
    def test_what_is_in_the_place_of_a_pipe_that_was_moved_is_kept(
        self, builder: RunBuilder, log_dir: Path, kind: str
    ) -> None:
        os.mkfifo(log_dir / "pipe")
        path = builder.move(log_dir / "pipe")
        path.unlink()
        if kind == "folder":
            path.mkdir()
            path /= "mine"
        path.write_bytes(b"")
        assert purged(log_dir).runs[0].problem is not None
        assert path.exists()

    def test_another_run_goes_all_the_same(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        (builder.path / "note.txt").write_text("mine")
        RunBuilder(root, OLD_RUN, log_dir).save()
        old, new = purged(log_dir).runs
        assert (old.problem, new.run.name) == (None, NEW_RUN)
        assert new.problem is not None
        assert os.listdir(root) == [NEW_RUN]

    def test_a_run_that_is_a_link_is_none(self, root: Path, log_dir: Path, tmp_path: Path) -> None:
        elsewhere = RunBuilder(tmp_path / "elsewhere", NEW_RUN, log_dir)
        elsewhere.save()
        root.mkdir()
        (root / NEW_RUN).symlink_to(elsewhere.path)
        assert purged(log_dir).runs == ()
        assert tree(elsewhere.path) != []

    def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
        self, builder: RunBuilder, root: Path, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        builder.save()
        victim = tmp_path / "victim" / "00000000000000000000.log"
        victim.parent.mkdir()
        victim.write_text("mine")
        remove = module._remove

        def swap_first(*arguments: object, **named: object) -> None:
            (builder.path / "t-0").rename(tmp_path / "aside")
            (builder.path / "t-0").symlink_to(victim.parent)
            remove(*arguments, **named)

        monkeypatch.setattr(module, "_remove", swap_first)
        (run,) = purged(log_dir).runs
        assert run.problem is not None
        assert victim.read_text() == "mine"


class TestPlaces:
    def test_inside_the_log_dir(self, log_dir: Path) -> None:
        RunBuilder(log_dir / INSIDE_FOLDER, NEW_RUN, log_dir).save()
        assert len(purged(log_dir).runs) == 1
        assert sorted(os.listdir(log_dir)) == ["meta.properties", "t-0"]

    def test_beside_and_inside_the_oldest_first(self, log_dir: Path, builder: RunBuilder) -> None:
        RunBuilder(log_dir / INSIDE_FOLDER, OLD_RUN, log_dir).save()
        assert [run.run.name for run in purged(log_dir).runs] == [OLD_RUN, NEW_RUN]

    def test_in_the_operators_place_and_there_alone(
        self, log_dir: Path, builder: RunBuilder, tmp_path: Path
    ) -> None:
        place = tmp_path / "spare"
        RunBuilder(Path(quarantine_root(str(log_dir), str(place))), OLD_RUN, log_dir).save()
        assert [run.run.name for run in purged(log_dir, place).runs] == [OLD_RUN]
        assert builder.path.exists()
        assert os.listdir(place) == []

    def test_a_run_on_another_log_dir_that_somebody_has_put_there(self, tmp_path: Path) -> None:
        first, second = a_log_dir(tmp_path / "a_b"), a_log_dir(tmp_path / "a" / "b")
        place = tmp_path / "spare"
        roots = [Path(quarantine_root(str(log_dir), str(place))) for log_dir in (first, second)]
        assert roots[0] != roots[1]
        RunBuilder(roots[1], OLD_RUN, first).save()
        RunBuilder(roots[1], NEW_RUN, second).save()
        assert [run.run.name for run in purged(second, place).runs] == [NEW_RUN]
        assert os.listdir(roots[1]) == [OLD_RUN]

    def test_a_log_dir_that_is_gone(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        builder.save()
        log_dir.rename(log_dir.with_name("away"))
        assert purged(log_dir).runs[0].problem is None
        assert not root.exists()

    def test_a_link_to_another_disk_is_the_operators_own(
        self, builder: RunBuilder, root: Path, log_dir: Path, tmp_path: Path
    ) -> None:
        root.rename(tmp_path / "spare")
        root.symlink_to(tmp_path / "spare")
        assert len(purged(log_dir).runs) == 1
        assert root.is_symlink()
        assert os.listdir(root) == []


class TestDryRun:
    def test_it_says_what_a_purge_then_does(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        shared = builder.save()
        other = RunBuilder(root, OLD_RUN, log_dir)
        other.save(link=shared)
        before = tree(root)
        foretold = [(run.file_count, run.freed_bytes) for run in purged(log_dir, dry_run=True).runs]
        assert tree(root) == before
        done = [(run.file_count, run.freed_bytes) for run in purged(log_dir).runs]
        assert done == foretold
        assert not root.exists()


class TestRefused:
    @pytest.mark.parametrize(("name", "word"), [("journal", "recover"), ("undo", "undo")])
    def test_an_interrupted_run(
        self, builder: RunBuilder, root: Path, log_dir: Path, name: str, word: str
    ) -> None:
        builder.save()
        begin_run(root, log_dir, name).close()
        before = tree(root)
        for dry_run in (True, False):
            with pytest.raises(
                UnsafeError, match=f"{word} was interrupted.*Nothing was purged. Remedy: let {word}"
            ):
                purged(log_dir, dry_run=dry_run)
        assert tree(root) == before

    def test_in_one_of_two_log_dirs_none_is_purged(
        self, builder: RunBuilder, log_dir: Path, tmp_path: Path
    ) -> None:
        other = a_log_dir(tmp_path / "d2")
        begin_run(tmp_path / "d2.quarantine", other).close()
        with pytest.raises(UnsafeError):
            purge([str(log_dir), str(other)], None, lambda _: True)
        assert builder.path.exists()

    def test_a_journal_that_cannot_be_read(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        (root / "journal").write_text("something else")
        with pytest.raises(UnsafeError, match="not a journal"):
            purged(log_dir)
        assert builder.path.exists()

    def test_a_journal_that_had_not_begun_is_none(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        (root / "journal").write_bytes(b"KL")
        assert purged(log_dir).runs[0].problem is None

    def test_a_recovery_that_is_at_work(self, builder: RunBuilder, log_dir: Path) -> None:
        with LogDirLocks([str(log_dir)]):
            for dry_run in (True, False):
                with pytest.raises(LogDirLockedError, match="works on this log dir"):
                    purged(log_dir, dry_run=dry_run)
        assert builder.path.exists()
        assert purged(log_dir).runs[0].problem is None

    def test_a_failure_is_said_and_purged_again(
        self, builder: RunBuilder, root: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(4):
            builder.save(f"t-{number}/x.log")
        unlink, left = os.unlink, [2]

        def fail(path: str, **options: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(5, "Input/output error", path)
            unlink(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(module.os, "unlink", fail)
            (run,) = purged(log_dir).runs
        assert "Input/output error" in (run.problem or "")
        assert run.file_count == 2
        assert (builder.path / "manifest.jsonl").exists()
        (run,) = purged(log_dir).runs
        assert (run.problem, run.file_count) == (None, 3)
        assert not root.exists()


def test_a_purge_killed_anywhere_is_done_by_the_next(
    root: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def build() -> None:
        builder = RunBuilder(root, NEW_RUN, log_dir)
        builder.save()
        builder.save("t-1/00000000000000000000.log")

    def limited(name: str, left: list[int]) -> object:
        call = getattr(os, name)

        def count(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return call(*arguments, **options)

        return count

    calls = 0
    while True:
        build()
        left = [calls]
        with monkeypatch.context() as patch:
            for name in ("unlink", "rmdir"):
                patch.setattr(module.os, name, limited(name, left))
            try:
                purged(log_dir)
            except Killed:
                pass
            else:
                break
        if root.exists():
            assert (builder_path := root / NEW_RUN).exists() is False or purged(log_dir).runs[
                0
            ].problem is None
            assert not builder_path.exists()
            if root.exists():
                root.rmdir()
        calls += 1
    assert calls == 7  # three files, two folders, the run, the folder of all runs


class TestInterrupted:
    def test_it_says_what_is_gone_and_another_takes_the_rest(self, log_dir: Path, root: Path) -> None:
        for name in (OLD_RUN, NEW_RUN):
            builder = RunBuilder(root, name, log_dir)
            for number in range(3):
                builder.save(f"t-0/{number}.log", DATA)
        calls = iter(range(100))

        def stop() -> None:
            if next(calls) >= 2:
                raise InterruptedRecoveryError(2)

        runs = purge([str(log_dir)], None, lambda _: True, check_stop=stop)[0].runs
        assert [(run.file_count, run.rule) for run in runs] == [(2, "interrupted"), (0, "interrupted")]
        assert "2 of its 4 files are gone. Remedy: purge again" in str(runs[0].problem)
        assert len(list(root.rglob("*.log"))) == 4
        assert [run.problem for run in purged(log_dir).runs] == [None, None]
        assert not root.exists()
