"""Quarantine may be the broker's user's own work: root must neither read nor write elsewhere through it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import JournalError, RecoveryError, UnsafeError
from recovery.logdir.quarantine_place import INSIDE_FOLDER, SIBLING_SUFFIX
from recovery.plan.actions import AppendPart
from recovery.plan.commit import Commit
from recovery.read.file_system import OddFileError
from recovery.saved.purge import purge, runs_of
from recovery.saved.runs import check_run, list_runs
from recovery.saved.undo import undo
from recovery.version import VERSION
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from recovery.write.quarantine import Quarantine
from tests.damage.mutilate import Victim, make_victim
from tests.faults.states import SINGLE_STATES as STATES
from tests.logs.quarantine_builder import RunBuilder, a_foreign_folder, a_log_dir, save_file
from tests.logs.samples import Sample, differences, tree_of
from tests.runs.driving import quarantine_of, recover
from tests.runs.killing import killed_at
from tests.servers.machine import OTHERS_FILES, needs

SECRET = b"root's alone"
RUN = "20260101T000000Z"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "root only" / "secret"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def damaged(sample: Sample, root: Path) -> Victim:
    partition, damage = STATES["torn first segment"]
    folder = next(log_dir / partition for log_dir in sample.log_dirs if (log_dir / partition).exists())
    victim = make_victim(sample, folder, root / "d1")
    damage(victim)
    for index in victim.folder.glob("*index"):
        index.write_bytes(bytes([1]) * index.stat().st_size)
    return victim


@pytest.fixture
def victim(sample: Sample, tmp_path: Path) -> Victim:
    """A log dir that was recovered."""
    victim = damaged(sample, tmp_path)
    recover(sample, [victim.log_dir])
    return victim


def run_of(victim: Victim) -> Path:
    (manifest,) = quarantine_of(victim.log_dir).glob("*/manifest.jsonl")
    return manifest.parent


def rewritten(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Let *change* change each line of the manifest."""
    lines = [json.loads(line) for line in (run / "manifest.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (run / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def entries(run: Path) -> list[dict[str, Any]]:
    lines = (run / "manifest.jsonl").read_text().splitlines()
    return [entry for line in lines if "stored" in (entry := json.loads(line))]


def assert_refused(victim: Victim, match: str, kind: type[RecoveryError] = UnsafeError) -> None:
    """Nothing below the place of the log dir has changed, and the secret is nowhere in it."""
    before = tree_of(victim.log_dir)
    with pytest.raises(kind, match=match):
        undo([str(victim.log_dir)])
    assert differences(before, tree_of(victim.log_dir)) == []
    assert not any(SECRET in data for data in tree_of(victim.log_dir).values())


class TestSaved:
    """Every file that is saved has a digest, which counts."""

    def test_every_file_has_a_digest(self, victim: Victim) -> None:
        found = entries(run_of(victim))
        assert {entry["derived"] for entry in found} == {True, False}
        assert all(entry["sha256"] for entry in found)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log", ".from-"])
    def test_two_bytes_that_are_others(self, victim: Victim, suffix: str) -> None:
        run = run_of(victim)
        entry = next(e for e in entries(run) if suffix in e["stored"] and e["size_bytes"] > 2)
        saved = run / entry["stored"]
        data = saved.read_bytes()
        for position in (0, len(data) - 2):
            changed = data[:position] + bytes(octet ^ 1 for octet in data[position : position + 2])
            saved.write_bytes(changed + data[position + 2 :])
            (found,) = list_runs(str(quarantine_of(victim.log_dir)))
            assert check_run(found) == [f"{entry['stored']}: its SHA-256 is not the one in the manifest"]
            assert_refused(victim, "its SHA-256 is not the one in the manifest")

    def test_without_a_digest_nothing_is_taken(self, victim: Victim) -> None:
        """As earlier versions left it for indexes and snapshots."""
        rewritten(run_of(victim), lambda line: line.update(sha256=None) if line.get("derived") else None)
        assert_refused(victim, "no SHA-256 of it")

    @pytest.mark.parametrize("sha256_bytes", [-1, 1 << 70, "1", 1.5])
    def test_a_digest_of_so_many_bytes_is_none(self, victim: Victim, sha256_bytes: object) -> None:
        rewritten(run_of(victim), lambda line: line.update(sha256_bytes=sha256_bytes))
        assert_refused(victim, "not of this tool")


class TestLinks:
    def test_a_file_that_became_a_link(self, victim: Victim, secret: Path) -> None:
        run = run_of(victim)
        for entry in entries(run):
            (run / entry["stored"]).unlink()
            (run / entry["stored"]).symlink_to(secret)
        assert_refused(victim, "a link, which is not followed here")

    def test_a_folder_that_became_a_link(self, victim: Victim, tmp_path: Path) -> None:
        run = run_of(victim)
        shutil.move(run / victim.folder.name, tmp_path / "elsewhere")
        (run / victim.folder.name).symlink_to(tmp_path / "elsewhere")
        assert_refused(victim, "Nothing was changed")

    def test_a_pipe(self, victim: Victim) -> None:
        run = run_of(victim)
        for entry in entries(run):
            (run / entry["stored"]).unlink()
            os.mkfifo(run / entry["stored"])
        assert_refused(victim, "not a regular file")

    @needs(OTHERS_FILES)
    @pytest.mark.parametrize("inside", [False, True])
    def test_quarantine_itself_is_a_link_of_the_other_user(
        self, sample: Sample, tmp_path: Path, secret: Path, inside: bool
    ) -> None:
        log_dir = damaged(sample, tmp_path).log_dir
        place = log_dir / INSIDE_FOLDER if inside else Path(f"{log_dir}{SIBLING_SUFFIX}")
        place.symlink_to(secret.parent)
        os.lchown(place, 12345, 12345)
        report = recover(sample, [log_dir])
        assert report.log_dirs[0].status == "offline"
        assert "a link of another user, which is not followed. Remedy: move it away" in report.to_text()
        for command in (
            lambda: undo([str(log_dir)]),
            lambda: purge([str(log_dir)], None, lambda _: True),
            lambda: runs_of(str(log_dir), None),
        ):
            with pytest.raises(OddFileError, match="a link of another user"):
                command()
        assert os.listdir(secret.parent) == ["secret"]
        os.lchown(place, 0, 0)  # the operator's own
        assert recover(sample, [log_dir]).log_dirs[0].status == "recovered"

    @pytest.mark.parametrize("place", [RUN, f"{RUN}/t-0"])
    def test_a_folder_to_save_in_that_is_a_link(self, tmp_path: Path, secret: Path, place: str) -> None:
        log = tmp_path / "d1" / "t-0" / "00000000000000000000.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x")
        link = tmp_path / "d1.quarantine" / place
        link.parent.mkdir(parents=True)
        link.symlink_to(secret.parent)
        with pytest.raises(OSError, match="a link"):
            save_file(Quarantine(str(tmp_path / "d1"), run=RUN), str(log), folder="t-0", reason="why")
        assert os.listdir(secret.parent) == ["secret"]


def a_header(victim: Victim, run: str | None = None) -> Header:
    return Header(
        tool_version=VERSION,
        log_dir=str(victim.log_dir),
        configuration={},
        now_ms=0,
        had_clean_shutdown=False,
        run_folder=run,
    )


class TestJournals:
    """A journal that somebody has put there makes root read, write and remove nothing elsewhere."""

    @pytest.mark.parametrize("run", ["../root only", "..", ".", "", "20260101T000000Z/..", "/etc", None])
    def test_an_undo_of_something_that_is_no_run(self, victim: Victim, secret: Path, run: str | None) -> None:
        with Journal.create(str(quarantine_of(victim.log_dir) / "undo"), a_header(victim, run)) as journal:
            journal.note("begun", {})
            journal.note("restored", {})
        assert_refused(victim, "is not the name of a run|not that of a run", JournalError)
        assert secret.read_bytes() == SECRET

    @pytest.mark.parametrize("way", ["absolute", "relative", "link"])
    def test_an_undo_that_appends_something_else(self, victim: Victim, secret: Path, way: str) -> None:
        run, folder = run_of(victim), victim.folder.name
        tail = next(entry for entry in entries(run) if entry["kind"] == "tail")
        source = {
            "absolute": str(secret),
            "relative": f"../../../{secret.parent.name}/secret",
            "link": "planted",
        }[way]
        (run / folder / "planted").symlink_to(secret)
        log = victim.folder / tail["file"]
        append = AppendPart(
            source=source, name=log.name, position=log.stat().st_size, size_bytes=len(SECRET), mtime_ns=1
        )
        commit = Commit(folder=folder, before={}, staged={}, actions=(append,)).to_json()
        commit["before"] = {log.name: [log.stat().st_ino, log.stat().st_size, log.stat().st_mtime_ns]}
        with Journal.create(
            str(quarantine_of(victim.log_dir) / "undo"), a_header(victim, run.name)
        ) as journal:
            for number in range(4):
                journal.commit(f"{number}", commit)
        with pytest.raises((RecoveryError, OSError)):
            undo([str(victim.log_dir)])
        assert not any(SECRET in data for data in tree_of(victim.log_dir).values())

    def test_a_recovery_that_appends_something(self, sample: Sample, tmp_path: Path, secret: Path) -> None:
        number, journal = 40, None
        while journal is None:
            shutil.rmtree(tmp_path / "d1", ignore_errors=True)
            shutil.rmtree(tmp_path / "d1.quarantine", ignore_errors=True)
            victim = damaged(sample, tmp_path)
            assert killed_at(number, lambda: recover(sample, [victim.log_dir], thread_count=1))  # noqa: B023
            journal = Journal.open(str(quarantine_of(victim.log_dir) / "journal"))
            if journal is not None and victim.folder.name not in journal.commits:
                journal.close()
                journal = None
            number += 1
        with journal:
            document = journal.commits[victim.folder.name]
            for source in (str(secret), "planted"):
                commit = Commit.from_json(document["commit"])
                log = next(name for name in commit.before if name.endswith(".log"))
                append = AppendPart(source="x", name=log, position=0, size_bytes=len(SECRET), mtime_ns=1)
                planted = replace(commit, actions=(*commit.actions, append)).to_json()
                planted["actions"][-1]["source"] = source
                journal.commit(victim.folder.name, {**document, "commit": planted})
        with pytest.raises(JournalError):
            recover(sample, [victim.log_dir])
        assert not any(SECRET in data for data in tree_of(victim.log_dir).values())

    def test_an_undo_by_another_version_is_left_to_it(self, victim: Victim) -> None:
        header = replace(a_header(victim, run_of(victim).name), tool_version="0.0.0")
        Journal.create(str(quarantine_of(victim.log_dir) / "undo"), header).close()
        assert_refused(victim, "let that version finish it", JournalError)


class TestModes:
    """Quarantine is as private as the log dir."""

    @pytest.mark.parametrize(("mode", "manifest"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o640)])
    def test_as_the_log_dir(self, sample: Sample, tmp_path: Path, mode: int, manifest: int) -> None:
        victim = damaged(sample, tmp_path)
        victim.log_dir.chmod(mode)
        for path in victim.folder.iterdir():
            path.chmod(0o600)
        recover(sample, [victim.log_dir])
        run = run_of(victim)
        folders = [run.parent, run, *(path for path in run.iterdir() if path.is_dir())]
        assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {mode}
        assert stat.S_IMODE((run / "manifest.jsonl").stat().st_mode) == manifest
        saved = list((run / victim.folder.name).iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in saved} == {0o600}


class TestWhatIsSomebodyElses:
    def test_an_undo_leaves_it(self, victim: Victim) -> None:
        """As a purge does."""
        run = run_of(victim)
        note = run / victim.folder.name / "note.txt"
        note.write_text("mine")
        undo([str(victim.log_dir)])
        assert [path for path in quarantine_of(victim.log_dir).rglob("*") if path.is_file()] == [note]


class TestContents:
    """What a manifest lists of a folder that was moved leads nowhere else."""

    @pytest.fixture
    def moved(self, tmp_path: Path) -> Path:
        log_dir = a_log_dir(tmp_path / "d1")
        return RunBuilder(tmp_path / "d1.quarantine", RUN, log_dir).move(a_foreign_folder(log_dir))

    @pytest.mark.parametrize(
        "thing",
        [
            {"path": "../secret"},
            {"path": "/etc/passwd"},
            {"path": "a/../../x"},
            {"path": ".."},
            {"path": "."},
            {"path": ""},
            {"path": "x//y"},
            {"path": "x/"},
            {"path": "\0"},
            {"path": 5},
            {"path": None},
            {"path": "a"},
            {"path": "a/below a file"},
            {"path": "no such folder/x"},
            {"path": "/".join("x" * 101)},
            {"kind": "link"},
            {"kind": None},
            {"kind": []},
            {"kind": "folder", "sha256": "00"},
            {"size_bytes": -1},
            {"size_bytes": True},
            {"size_bytes": "5"},
            {"sha256": 5},
            [],
            "x",
            None,
        ],
        ids=str,
    )
    def test_a_thing_that_no_run_has_listed(self, moved: Path, thing: object) -> None:
        sound = {"path": "new", "kind": "file", "size_bytes": 5, "sha256": None}
        planted = sound | thing if isinstance(thing, dict) else thing
        self.plant(moved, lambda line: line["contents"].append(planted))

    @pytest.mark.parametrize("key", ["moved", "contents"])
    @pytest.mark.parametrize("value", ["file", 5, {"a": 1}, True], ids=str)
    def test_a_list_that_is_none(self, moved: Path, key: str, value: object) -> None:
        self.plant(moved, lambda line: line.update({key: value}))

    def test_of_a_file(self, moved: Path) -> None:
        self.plant(moved, lambda line: line.update(sha256="00"))

    def plant(self, moved: Path, change: Callable[[dict[str, Any]], None]) -> None:
        """Let *change* change the line: the run is left whole by a purge, and by an undo, and named by both."""
        log_dir, run = moved.parents[3] / "d1", moved.parents[1]
        rewritten(run, change)
        before = tree_of(moved.parents[3])
        (found,) = list_runs(str(run.parent))
        assert check_run(found)[0] == "line 1 of the manifest does not say which file below the run it means"
        (purged,) = purge([str(log_dir)], None, lambda _: True)
        assert "Nothing of this run was removed" in (purged.runs[0].problem or "")
        with pytest.raises(
            UnsafeError, match=r"a line of the manifest is not of this tool.*Nothing was changed"
        ):
            undo([str(log_dir)])
        assert differences(before, tree_of(moved.parents[3])) == []

    @pytest.mark.parametrize("name", ["a", "deep", ""])
    def test_a_link_in_the_place_of_what_was_moved(self, moved: Path, secret: Path, name: str) -> None:
        """Not even where the link leads to the same bytes."""
        shutil.move(moved / name, secret.parent / "same")
        (moved / name).symlink_to(secret.parent / "same")
        (found,) = list_runs(str(moved.parents[2]))
        path = os.path.join("log-dir/topic", name).rstrip("/")
        assert check_run(found)[0].startswith(f"{path}: neither a file nor a folder instead of ")
        with pytest.raises(UnsafeError, match=r"neither a file nor a folder|missing"):
            undo([str(moved.parents[3] / "d1")])
        assert (moved / name).is_symlink()

    def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(self, moved: Path) -> None:
        (moved / "a").unlink()
        os.mkfifo(moved / "a")
        with pytest.raises(UnsafeError, match="neither a file nor a folder instead of a file"):
            undo([str(moved.parents[3] / "d1")])
