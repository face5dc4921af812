"""The broker's own lock: who holds it keeps everybody else out, and nobody is kept out by a stale file."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.errors import LogDirLockedError, LogDirOfflineError
from recovery.logdir import lock
from recovery.logdir.lock import LogDirLocks
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.driving import footprint
from tests.servers.machine import OTHERS_FILES, needs

_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(path: Path) -> Iterator[str]:
    """Another process that takes the POSIX record lock on *path* as Java's FileChannel.tryLock does."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        yield holder.stdout.readline().strip()
    finally:
        holder.communicate("")


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("d1", "d2", "d3")]
    for path in made:
        path.mkdir()
    return made


def locks(*dirs: Path, dry_run: bool = False) -> LogDirLocks:
    return LogDirLocks([str(path) for path in dirs], dry_run=dry_run)


class TestALockThatIsUnlinkedMeanwhile:
    """Whoever lets go of a log dir unlinks its `.lock`: a lock on a file without a name keeps nobody out."""

    @pytest.mark.parametrize("dry_run", [False, True])
    @pytest.mark.parametrize("is_made_anew", [False, True])
    def test_the_file_that_has_the_name_is_locked(
        self, dirs: list[Path], is_made_anew: bool, dry_run: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = dirs[0] / ".lock"
        path.touch()
        waits = [path]
        lock_file = lock._lock_file

        def unlinked_before(descriptor: int, kind: int) -> bool:
            if waits:
                waits.pop().unlink()
                if is_made_anew:
                    path.touch()
            return lock_file(descriptor, kind)

        monkeypatch.setattr(lock, "_lock_file", unlinked_before)
        with locks(dirs[0], dry_run=dry_run) as held:
            assert held.offline == {}
            with other_process(path) as answer:
                assert answer == ("held" if dry_run and not is_made_anew else "refused")

    def test_it_is_not_tried_for_ever(self, dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        (dirs[0] / ".lock").touch()
        lock_file = lock._lock_file

        def unlinked_before(descriptor: int, kind: int) -> bool:
            (dirs[0] / ".lock").unlink()
            (dirs[0] / ".lock").touch()
            return lock_file(descriptor, kind)

        monkeypatch.setattr(lock, "_lock_file", unlinked_before)
        with pytest.raises(LogDirLockedError, match="another process keeps creating"), locks(dirs[0]):
            pytest.fail("entered")


class TestAgainstAnotherProcess:
    def test_while_held_another_process_is_kept_out(self, dirs: list[Path]) -> None:
        with locks(*dirs):
            for path in dirs:
                with other_process(path / ".lock") as answer:
                    assert answer == "refused"

    def test_a_lock_of_ours_is_told_from_that_of_a_broker(self, dirs: list[Path]) -> None:
        first, second, third = map(str, dirs)
        with locks(dirs[0]), other_process(dirs[1] / ".lock"):
            assert [lock.is_locked(path) for path in (first, second, third)] == [True, True, False]
            assert [lock.is_locked_by_broker(path) for path in (first, second, third)] == [False, True, False]

    def test_afterwards_it_is_free(self, dirs: list[Path]) -> None:
        with locks(dirs[0]):
            pass
        with other_process(dirs[0] / ".lock") as answer:
            assert answer == "held"

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_it_is_refused_while_another_process_holds_it(self, dirs: list[Path], dry_run: bool) -> None:
        with other_process(dirs[1] / ".lock") as answer:
            assert answer == "held"
            with pytest.raises(LogDirLockedError) as raised, locks(*dirs, dry_run=dry_run):
                pytest.fail("entered")
        assert str(dirs[1] / ".lock") in str(raised.value)
        assert raised.value.exit_code == 3

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_refusal_changes_nothing(self, dirs: list[Path], dry_run: bool) -> None:
        with other_process(dirs[1] / ".lock"):
            before = {path: footprint(path) for path in dirs}
            with pytest.raises(LogDirLockedError), locks(*dirs, dry_run=dry_run):
                pytest.fail("entered")
            assert {path: footprint(path) for path in dirs} == before

    def test_after_a_refusal_no_lock_is_held(self, dirs: list[Path]) -> None:
        with other_process(dirs[2] / ".lock"), pytest.raises(LogDirLockedError), locks(*dirs):
            pytest.fail("entered")
        with other_process(dirs[0] / ".lock") as answer:
            assert answer == "held"

    def test_two_recoveries_do_not_run_side_by_side(self, dirs: list[Path]) -> None:
        script = (
            "import sys; from recovery.logdir.lock import LogDirLocks\n"
            "with LogDirLocks(sys.argv[1:]): print('entered')"
        )
        command = [sys.executable, "-c", script, str(dirs[0])]
        with locks(dirs[0]):
            second = subprocess.run(command, capture_output=True, text=True)
        assert "LogDirLockedError" in second.stderr
        assert subprocess.run(command, capture_output=True, text=True).stdout == "entered\n"

    def test_flock_is_another_lock_and_keeps_nobody_out(self, dirs: list[Path]) -> None:
        with (dirs[0] / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with locks(dirs[0]):
                pass


class TestFiles:
    def test_a_stale_lock_file_is_no_obstacle(self, dirs: list[Path]) -> None:
        (dirs[0] / ".lock").write_bytes(b"")
        with locks(dirs[0]):
            assert (dirs[0] / ".lock").exists()

    def test_no_lock_file_is_left_as_after_a_clean_shutdown(self, dirs: list[Path]) -> None:
        (dirs[0] / ".lock").write_bytes(b"")
        with locks(*dirs):
            pass
        assert [path for path in dirs if (path / ".lock").exists()] == []

    def test_no_lock_file_is_left_after_an_error_either(self, dirs: list[Path]) -> None:
        with pytest.raises(ZeroDivisionError), locks(*dirs):
            raise ZeroDivisionError
        assert [path for path in dirs if (path / ".lock").exists()] == []
        with other_process(dirs[0] / ".lock") as answer:
            assert answer == "held"

    def test_a_dry_run_creates_none_and_leaves_a_stale_one(self, dirs: list[Path]) -> None:
        (dirs[0] / ".lock").write_bytes(b"")
        before = {path: footprint(path) for path in dirs}
        with locks(*dirs, dry_run=True):
            assert not (dirs[1] / ".lock").exists()
        assert {path: footprint(path) for path in dirs} == before

    def test_a_dry_run_needs_no_right_to_write(self, dirs: list[Path], monkeypatch) -> None:
        (dirs[0] / ".lock").write_bytes(b"")
        asked: list[int] = []
        really_open = os.open

        def note(path: str, flags: int, *more: int) -> int:
            asked.append(flags)
            return really_open(path, flags, *more)

        monkeypatch.setattr(os, "open", note)
        with locks(dirs[0], dry_run=True):
            pass
        assert [flags & os.O_ACCMODE for flags in asked] == [os.O_RDONLY]

    def test_the_file_belongs_to_the_owner_of_the_log_dir(self, dirs: list[Path]) -> None:
        owner = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        os.chown(dirs[0], *owner)
        with locks(dirs[0]):
            found = (dirs[0] / ".lock").stat()
        assert (found.st_uid, found.st_gid) == owner

    def test_each_file_is_opened_once(self, dirs: list[Path], monkeypatch) -> None:
        # Closing any other descriptor on it would drop the lock.
        opened: list[str] = []
        really_open = os.open

        def note(path: str, flags: int, *more: int) -> int:
            descriptor = really_open(path, flags, *more)
            opened.append(str(path))
            return descriptor

        monkeypatch.setattr(os, "open", note)
        (dirs[0] / ".lock").write_bytes(b"")
        with locks(*dirs):
            pass
        assert sorted(path for path in opened if path.endswith(".lock")) == [
            str(path / ".lock") for path in dirs
        ]


class TestTrouble:
    def test_a_dir_whose_lock_cannot_be_opened_is_offline_and_the_others_are_locked(
        self, dirs: list[Path]
    ) -> None:
        (dirs[1] / ".lock").mkdir()
        with locks(*dirs) as held:
            assert list(held.offline) == [str(dirs[1])]
            assert isinstance(held.offline[str(dirs[1])], LogDirOfflineError)
            with other_process(dirs[2] / ".lock") as answer:
                assert answer == "refused"

    def test_a_dir_that_cannot_be_looked_at_is_offline_and_its_lock_is_let_go(
        self, dirs: list[Path], monkeypatch
    ) -> None:
        stat = os.stat

        def fail(path: object, *more: object, **named: object) -> os.stat_result:
            if str(path) == str(dirs[0]):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return stat(path, *more, **named)

        monkeypatch.setattr(os, "stat", fail)
        with LogDirLocks(map(str, dirs)) as locks:
            assert set(locks.offline) == {str(dirs[0])}
            with other_process(dirs[0] / ".lock") as answer:
                assert answer == "held"
            with other_process(dirs[1] / ".lock") as answer:
                assert answer == "refused"

    @pytest.mark.parametrize(("call", "which"), [("stat", 1), ("fstat", 2)])
    def test_a_lock_file_that_cannot_be_looked_at_takes_the_dir_offline_and_is_let_go(
        self, dirs: list[Path], monkeypatch, call: str, which: int
    ) -> None:
        path = dirs[0] / ".lock"
        path.touch()
        real, inode, seen = getattr(os, call), path.stat().st_ino, []

        def fail(file: str | int, *more: object, **named: object) -> os.stat_result:
            found = real(file, *more, **named)
            seen.append(found.st_ino)
            if found.st_ino == inode and seen.count(inode) == which:
                raise OSError(errno.EIO, "Input/output error", None if isinstance(file, int) else file)
            return found

        monkeypatch.setattr(os, call, fail)
        with locks(*dirs[:2]) as held:
            (error,) = (offline.error for offline in held.offline.values())
            assert (error.errno, error.filename) == (errno.EIO, str(path))
            with other_process(path) as answer:
                assert answer == "held"

    def test_a_file_system_without_locks_takes_the_dir_offline(self, dirs: list[Path], monkeypatch) -> None:
        def refuse(*_args: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "fcntl", refuse)
        with locks(dirs[0]) as held:
            assert held.offline[str(dirs[0])].error.errno == errno.ENOLCK


class TestOtherProcesses:
    def test_who_was_given_the_locks_holds_them_when_they_are_let_go_here(self, dirs: list[Path]) -> None:
        with locks(*dirs) as held:
            assert held.inheritable is not None
            keeper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=held.inheritable)
            os.link(dirs[0] / ".lock", dirs[0] / "same")  # the file itself: its name goes with the block
        with other_process(dirs[0] / "same") as answer:
            assert answer == "refused"
        with pytest.raises(LogDirLockedError), locks(dirs[0]):
            pytest.fail("entered")
        keeper.communicate()
        with other_process(dirs[0] / "same") as answer:
            assert answer == "held"

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_without_locks_of_open_files_they_are_of_this_process_alone(
        self, dirs: list[Path], monkeypatch, dry_run: bool
    ) -> None:
        (dirs[0] / ".lock").write_bytes(b"")
        really_lock = fcntl.fcntl

        def refuse(descriptor: int, command: int, *more: bytes) -> object:
            if command == fcntl.F_OFD_SETLK:
                raise OSError(errno.EINVAL, "Invalid argument")
            return really_lock(descriptor, command, *more)

        monkeypatch.setattr(fcntl, "fcntl", refuse)
        with locks(*dirs, dry_run=dry_run) as held:
            assert held.inheritable is None
            with other_process(dirs[0] / ".lock") as answer:
                assert answer == "refused"


class TestOddNames:
    def test_who_asks_for_a_lock_that_is_a_pipe_does_not_wait(self, dirs: list[Path]) -> None:
        """Signals included: an open that waits for the other end of a pipe is taken up again behind them."""
        os.mkfifo(dirs[0] / ".lock")
        asked = f"from recovery.logdir.lock import is_locked; is_locked({str(dirs[0])!r})"
        done = subprocess.run(
            [sys.executable, "-c", asked],
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT_SECONDS,
            check=False,
        )
        assert "not a regular file" in done.stderr

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_pipe_for_a_lock_has_a_remedy(self, dirs: list[Path], dry_run: bool) -> None:
        os.mkfifo(dirs[0] / ".lock")
        with locks(*dirs, dry_run=dry_run) as held:
            (error,) = held.offline.values()
        words = f"{dirs[0]}/.lock: not a regular file. Remedy: move it away"
        assert str(error) == f"{dirs[0]}: {words}"

    @needs(OTHERS_FILES)
    @pytest.mark.parametrize("way", ["link", "hard link"])
    def test_what_a_link_leads_to_is_not_given_away(self, dirs: list[Path], way: str) -> None:
        secret = dirs[1] / "secret"
        secret.write_text("root's")
        os.chown(dirs[0], 12345, 12345)
        (dirs[0] / ".lock").symlink_to(secret) if way == "link" else (dirs[0] / ".lock").hardlink_to(secret)
        with locks(dirs[0]):
            assert secret.stat().st_uid == 0
        assert (secret.stat().st_uid, secret.read_text()) == (0, "root's")

    def test_nothing_is_made_through_a_link(self, dirs: list[Path]) -> None:
        (dirs[0] / ".lock").symlink_to(dirs[1] / "made")
        with locks(dirs[0]) as held:
            assert "a link, which is not followed here" in str(held.offline[str(dirs[0])])
        assert os.listdir(dirs[1]) == []
