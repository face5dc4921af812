"""`--repair`: what is moved away, that a broker then loads the rest, and what is never moved."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from recovery.engine.report import RecoveryReport
from recovery.errors import UnsafeError
from recovery.plan.actions import is_derived
from recovery.saved.undo import undo
from recovery.watch.events import PartitionFinished
from recovery.write.quarantine import Quarantine
from tests.brokers import Oracle
from tests.damage.edge_cases import NOW_MS, PROPERTIES, Log
from tests.damage.unloadable import EPOCHS, LOG_STARTS, RECOVERY_POINTS, SAFE, UNSAFE, Damage
from tests.logs.edge_log import make_log, sample_of
from tests.logs.samples import MARKER, differences, tree_of
from tests.recovery.engine.test_resume import killed_at_event
from tests.recovery.load.test_preflight import pristine as pristine
from tests.runs.driving import footprint, log_bytes, lost_batches, own_leftovers, quarantine_of, recover
from tests.servers.machine import OTHERS_FILES, needs

pytestmark = pytest.mark.java

SAFE_CASES = [(damage, state) for damage in SAFE for state in damage.states]
UNSAFE_CASES = [(damage, state) for damage in UNSAFE for state in damage.states]


def moved(log_dir: Path) -> list[str]:
    """What quarantine says was moved away, relative to the log dir, in order."""
    found = []
    for manifest in sorted(quarantine_of(log_dir).glob("*/manifest.jsonl")):
        for entry in map(json.loads, manifest.read_text().splitlines()):
            if entry["kind"] == "moved":
                is_own = entry["partition"] == "log-dir"
                if os.path.lexists(manifest.parent / entry["stored"]):
                    found.append(entry["file"] if is_own else f"{entry['partition']}/{entry['file']}")
    return found


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def repaired_by_hand(log: Log, names: list[str], oracle: Oracle) -> dict[str, bytes]:
    """What a broker leaves of *log* when somebody has moved *names* out of it."""
    for name in names:
        remove(log.log_dir / name)
    outcome = oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES)
    assert outcome.outcome == "loaded", outcome.error
    return tree_of(log.log_dir)


def action_lines(report: RecoveryReport) -> list[str]:
    return [line for log_dir in report.log_dirs for line in log_dir.repairs]


class TestSafe:
    @pytest.mark.parametrize(("damage", "state"), SAFE_CASES, ids=str)
    def test_a_broker_loads_what_is_left(
        self, damage: Damage, state: str, pristine: Path, oracle: Oracle, ram_path: Path
    ) -> None:
        theirs = make_log(pristine, ram_path / "theirs" / "d", state)
        ours = make_log(pristine, ram_path / "ours" / "d", state)
        for log in (theirs, ours):
            damage.make(log)
        before = log_bytes(ours.log_dir)
        found = footprint(ours.log_dir)
        announced = recover(sample_of(ours), [ours.log_dir], repair=True, dry_run=True)
        assert footprint(ours.log_dir) == found
        assert not quarantine_of(ours.log_dir).exists()
        report = recover(sample_of(ours), [ours.log_dir], repair=True)
        assert report.exit_code == announced.exit_code == 0
        assert action_lines(announced) == action_lines(report)
        assert [line.split()[1] for line in action_lines(report)] == list(damage.moved)
        assert all(line in report.to_text() for line in action_lines(report))
        assert moved(ours.log_dir) == list(damage.moved)
        expected = repaired_by_hand(theirs, list(damage.moved), oracle)
        assert differences(expected, tree_of(ours.log_dir)) == []
        assert lost_batches(before, ours.log_dir) == []
        assert own_leftovers(ours.log_dir) == []
        assert (ours.log_dir / MARKER).exists()
        again = recover(sample_of(ours), [ours.log_dir], repair=True)
        assert [log_dir.status for log_dir in again.log_dirs] == ["unchanged"]

    def test_several_at_once(self, pristine: Path, oracle: Oracle, ram_path: Path) -> None:
        names = {
            "the file foo.log",
            "the file x.index",
            "the folder topic",
            "leader-epoch-checkpoint of another version",
            "the version in 12.txnindex",
            f"{RECOVERY_POINTS} with a line too few",
            f"{LOG_STARTS} without a version",
        }
        theirs = make_log(pristine, ram_path / "theirs" / "d", "F")
        ours = make_log(pristine, ram_path / "ours" / "d", "F")
        chosen = [damage for damage in SAFE if str(damage) in names]
        assert len(chosen) == len(names)
        for damage in chosen:
            damage.make(theirs)
            damage.make(ours)
        assert recover(sample_of(ours), [ours.log_dir]).exit_code == 1
        assert recover(sample_of(ours), [ours.log_dir], repair=True).exit_code == 0
        assert sorted(moved(ours.log_dir)) == sorted(name for damage in chosen for name in damage.moved)
        expected = repaired_by_hand(theirs, moved(ours.log_dir), oracle)
        assert differences(expected, tree_of(ours.log_dir)) == []

    def test_damage_beside_it_is_cut_as_ever(self, pristine: Path, oracle: Oracle, ram_path: Path) -> None:
        logs = [make_log(pristine, ram_path / name / "d", "U") for name in ("theirs", "ours")]
        for log in logs:
            log.flip(12, 100)
            (log.folder / "foo.snapshot").write_bytes(b"")
        theirs, ours = logs
        before = log_bytes(ours.log_dir)
        assert recover(sample_of(ours), [ours.log_dir], repair=True).exit_code == 2
        assert lost_batches(before, ours.log_dir) == []
        expected = repaired_by_hand(theirs, ["t-0/foo.snapshot"], oracle)
        assert differences(expected, tree_of(ours.log_dir)) == []

    def test_a_folder_in_the_place_of_a_snapshot(
        self, pristine: Path, oracle: Oracle, ram_path: Path
    ) -> None:
        """A broker loads this, and empties the segment."""
        logs = [make_log(pristine, ram_path / name / "d", "U") for name in ("theirs", "ours")]
        for log in logs:
            log.remove(".snapshot")
            log.file(24, ".snapshot").mkdir()
        theirs, ours = logs
        assert recover(sample_of(ours), [ours.log_dir]).exit_code == 4
        assert recover(sample_of(ours), [ours.log_dir], repair=True).exit_code == 0
        expected = repaired_by_hand(theirs, moved(ours.log_dir), oracle)
        assert differences(expected, tree_of(ours.log_dir)) == []


class TestUndo:
    @pytest.mark.parametrize("state", ["U", "C"])
    @pytest.mark.parametrize("damage", SAFE, ids=str)
    def test_it_puts_everything_back(
        self, damage: Damage, state: str, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", state)
        damage.make(log)
        before = tree_of(log.log_dir)
        recover(sample_of(log), [log.log_dir], repair=True)
        undo([str(log.log_dir)])
        now = tree_of(log.log_dir)
        kept = [name for name in before if not is_derived(name.rpartition("/")[2]) and name != MARKER]
        assert {name: now.get(name) for name in kept} == {name: before[name] for name in kept}
        assert {name.rstrip("/") for name in now} >= set(damage.moved)

    @pytest.mark.parametrize("is_changed", [True, False])
    def test_a_folder_comes_back_unless_a_file_in_it_was_changed(
        self, is_changed: bool, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        (log.log_dir / "topic" / "deep").mkdir(parents=True)
        (log.log_dir / "topic" / "deep" / "file").write_bytes(b"12345")
        recover(sample_of(log), [log.log_dir], repair=True)
        (line,) = (
            entry
            for manifest in quarantine_of(log.log_dir).glob("*/manifest.jsonl")
            for entry in map(json.loads, manifest.read_text().splitlines())
            if entry["kind"] == "moved"
        )
        assert [one["path"] for one in line["contents"]] == ["deep", "deep/file"]
        (saved,) = quarantine_of(log.log_dir).glob("*/log-dir/topic/deep/file")
        if is_changed:
            saved.write_bytes(b"12346")
            with pytest.raises(UnsafeError, match="topic/deep/file: its SHA-256 is not the one"):
                undo([str(log.log_dir)])
            assert saved.read_bytes() == b"12346"
        else:
            undo([str(log.log_dir)])
            assert (log.log_dir / "topic" / "deep" / "file").read_bytes() == b"12345"


class TestNever:
    @pytest.mark.parametrize(("damage", "state"), UNSAFE_CASES, ids=str)
    def test_what_needs_a_decision_is_left(
        self, damage: Damage, state: str, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", state)
        damage.make(log)
        if damage is not UNSAFE[-1]:  # which shows only when the log is read
            (log.folder / "foo.log").write_bytes(b"left alone, too: the partition is refused anyway")
        found = {path: at for path, at in footprint(log.log_dir).items() if path.startswith("t-0")}
        report = recover(sample_of(log), [log.log_dir], repair=True)
        assert report.exit_code == 4
        assert action_lines(report) == []
        assert {path: at for path, at in footprint(log.log_dir).items() if path.startswith("t-0")} == found

    @pytest.mark.parametrize("state", ["F", "C"])
    def test_no_index_whose_segment_would_be_cut(self, state: str, pristine: Path, ram_path: Path) -> None:
        """Nothing reads a flushed segment, so what is damaged in it is not cut, before it has to be read."""
        log = make_log(pristine, ram_path / "d", state)
        (log.folder / "foo.log").write_bytes(b"left alone, too: the partition is refused anyway")
        log.file(0, ".txnindex").write_bytes(b"\x01\x00" + bytes(32))
        log.flip(0, 100)
        found = {path: at for path, at in footprint(log.log_dir).items() if path.startswith("t-0")}
        report = recover(sample_of(log), [log.log_dir], repair=True)
        (partition,) = report.partitions
        assert (report.exit_code, partition.status, action_lines(report)) == (4, "refused", [])
        assert {path: at for path, at in footprint(log.log_dir).items() if path in found} == found
        (problem,) = [one for one in partition.problems if one.file.endswith(".txnindex")]
        assert problem.repair is None
        assert "00000000000000000000.log is damaged at byte 0: " in problem.remedy
        assert "5 batches are cut" in problem.remedy

    @needs(OTHERS_FILES)
    @pytest.mark.parametrize(
        ("name", "owner", "dir_owner", "is_moved"),
        [
            ("lost+found", 0, 0, False),
            ("lost+found", 0, 61234, False),
            ("lost+found", 61234, 61234, True),
            ("topic", 0, 0, True),
            ("topic", 0, 61234, False),
        ],
    )
    def test_what_root_owns_stays(
        self, name: str, owner: int, dir_owner: int, is_moved: bool, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        for path in (log.log_dir, *log.log_dir.rglob("*")):
            os.chown(path, dir_owner, dir_owner)
        (log.log_dir / name).mkdir()
        os.chown(log.log_dir / name, owner, owner)
        report = recover(sample_of(log), [log.log_dir], repair=True)
        assert (log.log_dir / name).exists() != is_moved
        assert report.exit_code == (0 if is_moved else 4)
        if name == "lost+found" and not is_moved:
            assert "use a folder below it as log dir" in report.to_text()

    def test_a_folder_is_not_copied_to_another_file_system(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        (log.log_dir / "topic").mkdir()
        (log.folder / "foo.log").write_bytes(b"12345")
        far = pristine.parent / "quarantine"
        if far.parent.stat().st_dev == ram_path.stat().st_dev:
            pytest.fail("this test needs a temporary folder that is not in memory")
        for dry_run in (True, False):
            report = recover(
                sample_of(log), [log.log_dir], repair=True, dry_run=dry_run, quarantine_dir=str(far)
            )
            (line,) = report.log_dirs[0].repairs
            assert line.startswith("move t-0/foo.log to quarantine")
            left = (
                "--repair leaves topic, which cannot be moved to quarantine: a folder cannot be moved to another "
                "file system. Remedy: leave --quarantine-dir out, or choose a folder on the log dir's file system, or "
                "move it away by hand"
            )
            assert left in [note.text for note in report.log_dirs[0].notes]
            text = report.to_text()
            assert f"NOTE {log.log_dir}: {left}" in text
            assert "recover --repair moves" not in text
            assert not any("topic" in line for line in text.splitlines() if "REPAIRED" in line)
            assert (log.log_dir / "topic").is_dir()
            assert report.exit_code == 4
        (saved,) = far.rglob("foo.log")
        assert saved.read_bytes() == b"12345"
        shutil.rmtree(far)
        assert recover(sample_of(log), [log.log_dir], repair=True).exit_code == 0  # the remedy

    @pytest.mark.parametrize("is_of_log_dir", [True, False])
    def test_what_is_left_for_the_sake_of_another_problem_is_told(
        self, is_of_log_dir: bool, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        if is_of_log_dir:
            (log.log_dir / MARKER).symlink_to(ram_path / "elsewhere")
            (log.log_dir / RECOVERY_POINTS).write_text("1\n0\n")
            told = (RECOVERY_POINTS, MARKER)
        else:
            log.file(24).rename(ram_path / "elsewhere.log")
            log.file(24).symlink_to(ram_path / "elsewhere.log")
            (log.folder / "foo.log").write_bytes(b"12345")
            told = ("t-0/foo.log", f"t-0/{log.file(24).name}")
        report = recover(sample_of(log), [log.log_dir], repair=True)
        assert action_lines(report) == []
        assert (
            f"NOTE {log.log_dir}: --repair leaves {told[0]}, as it cannot solve the other problems, of {told[1]}. "
            "Remedy: solve those, then start it again"
        ) in report.to_text().splitlines()
        assert "recover --repair moves" not in report.to_text()

    def test_links_stay(self, pristine: Path, ram_path: Path) -> None:
        """What they lead to may be data on a disk that is not mounted."""
        log = make_log(pristine, ram_path / "d", "U")
        log.file(12).rename(ram_path / "elsewhere.log")
        log.file(12).symlink_to(ram_path / "elsewhere.log")
        log.file(24, ".snapshot").unlink()
        log.file(24, ".snapshot").symlink_to("nowhere")
        assert action_lines(recover(sample_of(log), [log.log_dir], repair=True)) == []
        (ram_path / "elsewhere.log").rename(ram_path / "gone.log")
        assert action_lines(recover(sample_of(log), [log.log_dir], repair=True)) == []
        assert log.file(12).is_symlink()

    def test_nothing_is_moved_out_of_what_a_link_leads_to(self, pristine: Path, ram_path: Path) -> None:
        """They may be the files of another program."""
        log = make_log(pristine, ram_path / "d", "U")
        elsewhere = ram_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "app.2026.log").touch()
        (log.log_dir / "linked-0").symlink_to(elsewhere)
        report = recover(sample_of(log), [log.log_dir], repair=True)
        assert (elsewhere / "app.2026.log").is_file()
        assert moved(log.log_dir) == []
        assert (
            "--repair leaves linked-0/app.2026.log, as linked-0 is a link out of the log dir"
            in report.to_text()
        )
        assert report.exit_code == 4

    def test_what_comes_of_a_checkpoint_that_is_moved_is_told(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        (log.log_dir / LOG_STARTS).write_text("nonsense")
        report = recover(sample_of(log), [log.log_dir], repair=True)
        assert moved(log.log_dir) == [LOG_STARTS]
        assert f"{LOG_STARTS}: moved to quarantine" in report.to_text()
        assert "records deleted from it come back" in report.to_text()

    def test_without_the_option_nothing_moves(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        (log.folder / "foo.log").write_bytes(b"12345")
        assert recover(sample_of(log), [log.log_dir]).exit_code == 4
        assert (log.folder / "foo.log").exists()


class TestKilled:
    """A repair that ends in the middle is gone on with by the next one."""

    @pytest.fixture
    def broken(self, pristine: Path, ram_path: Path) -> Log:
        log = make_log(pristine, ram_path / "d", "U")
        log.file(12, ".txnindex").write_bytes(b"\x7f\x00" + bytes(32))
        (log.folder / EPOCHS).write_bytes(b"x")
        (log.log_dir / "topic").mkdir()
        (log.log_dir / RECOVERY_POINTS).write_text("1\n0\n")
        return log

    @pytest.mark.parametrize("call", ["unlink", "rename", "fsync", "link"])
    @pytest.mark.parametrize("number", range(4))
    def test_at_a_call(
        self, call: str, number: int, broken: Log, pristine: Path, oracle: Oracle, monkeypatch
    ) -> None:
        shutil.copytree(broken.log_dir, broken.log_dir.parent / "theirs" / "d", symlinks=True)
        before = log_bytes(broken.log_dir)
        real, calls = getattr(os, call), iter(range(1000))

        def killed(*args: object, **options: object) -> object:
            if next(calls) == number:
                raise KeyboardInterrupt
            return real(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, killed)
            with contextlib.suppress(KeyboardInterrupt):
                recover(sample_of(broken), [broken.log_dir], repair=True)
        assert recover(sample_of(broken), [broken.log_dir], repair=True).exit_code == 0
        names = ["topic", RECOVERY_POINTS, f"t-0/{EPOCHS}"]
        names += [f"t-0/{12:020d}{suffix}" for suffix in (".index", ".txnindex")]
        expected = repaired_by_hand(Log(broken.log_dir.parent / "theirs" / "d"), names, oracle)
        assert differences(expected, tree_of(broken.log_dir)) == []
        assert lost_batches(before, broken.log_dir) == []
        # Without its .index a segment is recovered, which makes its .txnindex anew.
        assert set(names) - set(moved(broken.log_dir)) <= {names[-1]}


class TestFailed:
    @pytest.mark.parametrize("place", ["second move", "relisting"])
    def test_what_was_moved_before_an_error_is_told(
        self, place: str, pristine: Path, ram_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        for name in ("one", "two"):
            (log.log_dir / name).mkdir()
        move_away = Quarantine.move_away

        def failing(self: Quarantine, path: str, **options: str) -> str:
            if path.endswith("two") and place == "second move":
                raise OSError(errno.EIO, "Input/output error", path)
            moved_to = move_away(self, path, **options)
            if path.endswith("two"):
                (log.log_dir / RECOVERY_POINTS).unlink()
                (log.log_dir / RECOVERY_POINTS).mkdir()
                (log.log_dir / RECOVERY_POINTS / "x").touch()
            return moved_to

        monkeypatch.setattr(Quarantine, "move_away", failing)
        (report,) = recover(sample_of(log), [log.log_dir], repair=True).log_dirs
        assert report.status == "offline"
        count = 1 if place == "second move" else 2
        assert [line.split()[1] for line in report.repairs] == ["one", "two"][:count]
        assert report.quarantine is not None
        assert (
            sorted(path.name for path in Path(report.quarantine, "log-dir").iterdir())
            == ["one", "two"][:count]
        )


class TestBesideAnInterruptedRun:
    def test_nothing_moves_before_its_configuration_is_checked(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        shutil.copytree(log.folder, log.log_dir / "u-0")
        (log.folder / "foo.log").write_bytes(b"12345")
        killed_at_event(
            PartitionFinished,
            1,
            lambda watch: recover(sample_of(log), [log.log_dir], thread_count=1, observers=[watch]),
        )
        found = footprint(log.folder)
        with pytest.raises(UnsafeError, match="another configuration"):
            recover(sample_of(log), [log.log_dir], repair=True, keep_deleted=True)
        assert footprint(log.folder) == found
        assert recover(sample_of(log), [log.log_dir], repair=True).exit_code == 0
        assert moved(log.log_dir) == ["t-0/foo.log"]
        assert (log.log_dir / MARKER).exists()
