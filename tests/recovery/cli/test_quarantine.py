"""`quarantine list` and `purge` as a user runs them, on what a real recovery has saved and on what is put together."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.cli.main import main
from recovery.logdir.lock import LogDirLocks
from recovery.logdir.quarantine_place import INSIDE_FOLDER
from recovery.read import file_system
from recovery.saved import purge
from recovery.saved import runs as quarantine_runs
from recovery.write.undo_notice import UNDO_NOTICE
from tests import ROOT
from tests.logs.quarantine_builder import DATA, NEW_RUN, OLD_RUN, RunBuilder, a_foreign_folder, a_log_dir
from tests.logs.samples import unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.recovery.saved.test_purge import begin_run
from tests.runs.command import run
from tests.servers.machine import OTHER_USER, OTHER_USERS, OTHERS_FILES, needs

AS_ANOTHER_USER = f"""
import contextlib, io, os, sys
from recovery.cli.main import main
# The interpreter may lie where that user cannot reach it: all that a run loads is loaded before.
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
    main(sys.argv[1:])
os.setgroups([])
os.setgid({OTHER_USER})
os.setuid({OTHER_USER})
sys.exit(main(sys.argv[1:]))
"""
_HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("x", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return a_log_dir(tmp_path / "d1")


@pytest.fixture
def runs(log_dir: Path) -> list[RunBuilder]:
    """An old run and a new one beside the log dir."""
    found = [RunBuilder(log_dir.with_name("d1.quarantine"), name, log_dir) for name in (OLD_RUN, NEW_RUN)]
    found[0].save(first_offset=7)
    found[0].save("t-0/00000000000000000000.index", b"x", derived=True, sha256=None, reason="derived")
    found[1].save("log-dir/meta.properties", b"version=1\n", reason="overwritten by the hand-off")
    return found


class Ran:
    """How the command ended, and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        try:
            self.exit_code = main(["quarantine", *map(str, arguments)])
        except SystemExit as error:
            self.exit_code = int(error.code or 0)
        self.stdout, self.stderr = capsys.readouterr()

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.stdout)
        assert report["version"] == 1
        assert report["exitCode"] == self.exit_code
        return report


def break_call(monkeypatch: pytest.MonkeyPatch, name: str, log_dir: Path) -> None:
    """Let one of the looks that a listing takes fail, for what concerns *log_dir*."""
    module = {"is_folder": file_system, "check_run": quarantine_runs}.get(name, purge)
    genuine = getattr(module, name)

    def broken(what: Any, *more: Any) -> Any:
        if str(getattr(what, "path", what)).startswith(str(log_dir)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(log_dir))
        return genuine(what, *more)

    monkeypatch.setattr(module, name, broken)


class TestList:
    def test_what_is_there(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == 0
        (found,) = ran.report["logDirs"]
        assert found["logDir"] == str(log_dir)
        assert found["places"] == [f"{log_dir}.quarantine", f"{log_dir}/{INSIDE_FOLDER}"]
        assert found["unfinished"] == []
        old, new = found["runs"]
        assert (old["run"], new["run"]) == (OLD_RUN, NEW_RUN)
        assert old["path"] == str(runs[0].path)
        assert old["startedMs"] == 1_767_225_600_000
        assert old["ageMs"] == ran.report["nowMs"] - old["startedMs"]
        assert (old["saved"], old["derived"], old["files"]) == (1, 1, 3)
        assert old["logBytes"] == len(DATA)
        assert old["logs"] == [
            {
                "partition": "t-0",
                "bytes": len(DATA),
                "parts": [
                    {
                        "file": "00000000000000000000.log",
                        "stored": "t-0/00000000000000000000.log",
                        "bytes": len(DATA),
                        "firstOffset": 7,
                        "lastOffset": None,
                        "rule": None,
                        "reason": "a batch whose CRC does not match",
                    }
                ],
            }
        ]
        assert old["bytes"] == len(DATA) + 1 + (runs[0].path / "manifest.jsonl").stat().st_size
        assert old["freedBytes"] >= len(DATA)
        assert old["reasons"] == {"a batch whose CRC does not match": 1}
        assert (old["problems"], old["missing"]) == (None, [])
        assert new["reasons"] == {"overwritten by the hand-off": 1}
        assert (new["logBytes"], new["logs"]) == (0, [])

    def test_as_text(self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        runs[1].save("t-0/odd", reason="\x1b[31m")
        text = Ran(capsys, "list", "--log-dirs", log_dir).stdout
        assert f"{log_dir}\n  {runs[0].path}\n    2026-01-01 00:00:00 UTC, " in text
        assert " ago: 16.0 KiB of 1 log; 3 files, " in text
        assert (
            "    t-0: 16.0 KiB, offsets 7 on, a batch whose CRC does not match\n    besides: 1 derived file\n"
            in text
        )
        assert " ago: nothing of a log; 3 files, " in text
        assert "    besides: 1 x \\x1b[31m, 1 x overwritten by the hand-off" in text
        assert "\x1b" not in text

    def test_a_derived_file_that_is_gone_is_told_too(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A killed purge may have got no further, and undo needs it."""
        (derived,) = (path for path in runs[0].path.rglob("*.index"))
        derived.unlink()
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == 2
        stored = str(derived.relative_to(runs[0].path))
        assert ran.report["logDirs"][0]["runs"][0]["missing"] == [stored]

    def test_what_is_no_longer_there_is_told_without_reading(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As after a purge that was killed."""
        for number in range(1, 6):
            runs[0].save(f"t-0/{number:020}.log", reason="after the cut")
        stored = runs[0].path / "t-0"
        names = [f"{number:020}.log" for number in range(1, 5)]
        for name in names:
            (stored / name).unlink()
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == ran.report["exitCode"] == 2
        assert ran.report["logDirs"][0]["runs"][0]["missing"] == [f"t-0/{name}" for name in names]
        for option in ("-q", "-v"):
            ran = Ran(capsys, "list", "--log-dirs", log_dir, option)
            assert ran.exit_code == 2
            (line,) = (line for line in ran.stdout.splitlines() if "MISSING" in line)
            assert "MISSING 4 files of those that were saved here (t-0/00000000000000000001.log, " in line
            assert ("and 1 more" in line) == (option == "-q")
        assert "4 of 6 files no longer here" in ran.stdout
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--verify", "-q")
        assert ran.exit_code == 2
        assert [line for line in ran.stdout.splitlines() if line.endswith("missing")] == [
            f"{runs[0].path}: damaged: 4 files (t-0/{names[0]}, t-0/{names[1]}, t-0/{names[2]} and 1 more): missing"
        ]

    @pytest.mark.parametrize("verified", [(), ("--verify",)])
    def test_a_part_of_a_log_without_a_line_is_damage(
        self,
        verified: tuple[str, ...],
        runs: list[RunBuilder],
        log_dir: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Without a manifest nothing says what was cut: it must not pass for nothing."""
        (runs[0].path / "manifest.jsonl").unlink()
        stored = "t-0/00000000000000000000.log"
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json", *verified)
        assert ran.exit_code == 2
        assert [run["unnamed"] for run in ran.report["logDirs"][0]["runs"]] == [[stored], []]
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "-q", *verified)
        assert ran.exit_code == 2
        assert (
            f"{runs[0].path}: UNKNOWN 1 part of logs ({stored}): no line of the manifest names them"
            in ran.stdout
        )
        begin_run(runs[0].root, log_dir)  # which enters it when it goes on
        assert Ran(capsys, "list", "--log-dirs", log_dir, *verified).exit_code == 0

    def test_what_a_purge_would_leave_frees_nothing(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (runs[0].path / "note.txt").write_text("mine")
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == 0
        old, new = ran.report["logDirs"][0]["runs"]
        assert old["freedBytes"] == 0 < new["freedBytes"]
        assert old["hindered"]["rule"] == "foreign-file"
        assert new["hindered"] is None
        text = Ran(capsys, "list", "--log-dirs", log_dir).stdout
        assert text.count("a purge would leave this run: note.txt: not named by the manifest") == 1
        assert Ran(capsys, "purge", "--all", "--log-dirs", log_dir).exit_code == 4
        assert runs[0].path.exists()
        assert not runs[1].path.exists()

    def test_what_a_repair_has_moved(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs[0].move(a_foreign_folder(log_dir))
        (log_dir / "t-0" / "foo.log").write_bytes(b"12345")
        runs[0].move(log_dir / "t-0" / "foo.log", folder="t-0")
        text = Ran(capsys, "list", "--log-dirs", log_dir).stdout
        assert "    topic, moved here by a repair (5 files, 30 B): foreign\n" in text
        assert "    t-0/foo.log, moved here by a repair (1 file, 5 B): foreign\n" in text
        old, new = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json").report["logDirs"][0]["runs"]
        assert old["moved"] == [
            {"path": path, "stored": stored, "files": files, "bytes": size, "rule": None, "reason": "foreign"}
            for path, stored, files, size in (
                ("topic", "log-dir/topic", 5, 30),
                ("t-0/foo.log", "t-0/foo.log", 1, 5),
            )
        ]
        assert (len(old["logs"]), new["moved"]) == (1, [])
        gone = Ran(capsys, "purge", "--all", "--dry-run", "-v", "--log-dirs", log_dir).stdout
        assert "topic, moved here by a repair (5 files, 30 B): foreign" in gone

    @needs(OTHERS_FILES, OTHER_USERS)
    def test_what_another_user_may_not_look_at_holds_up_no_other(
        self, runs: list[RunBuilder], log_dir: Path, ram_path: Path
    ) -> None:
        root = ram_path / "logs"
        shutil.copytree(log_dir.parent, root)
        closed = a_log_dir(root / "d0")
        os.chmod(ram_path, 0o755)
        for path in [root, *root.rglob("*")]:
            os.chmod(path, 0o755)
        os.chmod(closed, 0o700)
        arguments = (
            "quarantine",
            "list",
            "--format",
            "json",
            "--log-dirs",
            f"{closed},{root / log_dir.name}",
        )
        done = run(*arguments, command=(sys.executable, "-c", AS_ANOTHER_USER), cwd="/")
        assert (done.exit_code, done.stderr) == (4, "")
        refused, listed = done.report["logDirs"]
        assert (refused["logDir"], refused["runs"], refused["unfinished"]) == (str(closed), [], [])
        assert refused["error"].startswith(f"{closed}/")
        assert refused["error"].endswith(
            ": Permission denied. Remedy: run this as the broker's user, or as root"
        )
        assert listed["error"] is None
        assert [one["run"] for one in listed["runs"]] == [OLD_RUN, NEW_RUN]

    @pytest.mark.parametrize("format_", ["text", "json"])
    @pytest.mark.parametrize("call", ["is_folder", "runs_of", "unfinished", "check_run"])
    def test_an_error_of_one_log_dir_holds_up_no_other(
        self,
        runs: list[RunBuilder],
        log_dir: Path,
        tmp_path: Path,
        call: str,
        format_: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        bad = a_log_dir(tmp_path / "bad")
        RunBuilder(bad.with_name("bad.quarantine"), OLD_RUN, bad).save()
        break_call(monkeypatch, call, bad)
        arguments = ("--verify", "--format", format_)
        ran = Ran(capsys, "list", "--log-dirs", f"{bad},{log_dir}", *arguments)
        assert (ran.exit_code, ran.stderr) == (4, "")
        if format_ == "text":
            assert ran.stdout.startswith(f"{bad}: cannot be looked at: Input/output error\n")
            assert f"\n{log_dir}\n  {runs[0].path}\n" in ran.stdout
        else:
            assert [one["error"] for one in ran.report["logDirs"]] == [
                f"{bad}: Input/output error",
                None,
            ]
            assert [len(one["runs"]) for one in ran.report["logDirs"]] == [0, 2]
        alone = Ran(capsys, "list", "--log-dirs", bad, *arguments)
        assert alone.exit_code == 1
        assert "Input/output error" in alone.stdout

    @pytest.mark.parametrize("command", [("list",), ("purge", "--all")])
    def test_a_folder_that_is_no_log_dir(
        self, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """An empty mount point has nothing in quarantine either."""
        ran = Ran(capsys, *command, "--log-dirs", tmp_path)
        said = ran.stdout + ran.stderr
        assert ran.exit_code == 1
        assert "not the log dir of a broker: " in said
        assert "Remedy: check the path, and that its file system is mounted" in said

    def test_nothing_there(self, log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ran = Ran(capsys, "list", "--log-dirs", log_dir)
        assert (ran.exit_code, ran.stdout) == (0, f"{log_dir}: nothing in quarantine\n")

    def test_verified(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ran = Ran(capsys, "list", "--verify", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == 0
        assert [run["problems"] for run in ran.report["logDirs"][0]["runs"]] == [[], []]
        (runs[0].path / "t-0" / "00000000000000000000.log").write_bytes(DATA[1:] + b"x")
        ran = Ran(capsys, "list", "--verify", "--log-dirs", log_dir, "--format", "json")
        assert ran.exit_code == 2
        (problem,), none = (run["problems"] for run in ran.report["logDirs"][0]["runs"])
        assert "SHA-256" in problem
        assert none == []
        text = Ran(capsys, "list", "--verify", "--log-dirs", log_dir).stdout
        assert "    damaged: t-0/00000000000000000000.log: its SHA-256" in text
        assert "    verified: everything is there\n" in text
        assert Ran(capsys, "list", "--log-dirs", log_dir).exit_code == 0

    def test_a_manifest_that_is_cut_off_is_damaged_unless_its_run_goes_on(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        manifest = runs[1].path / "manifest.jsonl"
        manifest.write_bytes(manifest.read_bytes() + b'{"version": 1, "log_')
        ran = Ran(capsys, "list", "--verify", "-q", "--log-dirs", log_dir)
        assert ran.exit_code == 2
        assert f"{runs[1].path}: damaged: the last line of the manifest is cut off" in ran.stdout
        begin_run(runs[0].root, log_dir).close()
        assert Ran(capsys, "list", "--verify", "-q", "--log-dirs", log_dir).exit_code == 0

    def test_one_log_dir_of_two_is_gone(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gone = log_dir.with_name("gone")
        ran = Ran(capsys, "list", "--log-dirs", f"{gone},{log_dir}")
        assert ran.exit_code == 4
        first, *others = ran.stdout.splitlines()
        assert first.startswith(f"{gone}: cannot be looked at: no such log dir, and nothing in quarantine")
        assert str(runs[1].path) in "".join(others)

    def test_a_quarantine_that_is_not_mounted_is_not_empty(
        self, log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = log_dir.with_name(f"{log_dir.name}.quarantine")
        place.symlink_to("/nowhere")
        ran = Ran(capsys, "list", "--log-dirs", log_dir)
        assert ran.exit_code == 1
        assert ran.stdout == (
            f"{log_dir}: cannot be looked at: {place}: a link that leads nowhere. Remedy: mount the file system of "
            "quarantine, or remove the link\n"
        )
        assert main(["undo", "--log-dirs", str(log_dir)]) == 1
        told = capsys.readouterr().err
        assert f"{place}: a link that leads nowhere. Nothing was changed. Remedy: mount " in told
        assert told.count("Remedy: ") == 1

    def test_an_interrupted_run_is_said(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        journal = begin_run(runs[0].root, log_dir)
        journal.close()
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.report["logDirs"][0]["unfinished"] == [journal.path]
        assert journal.path in Ran(capsys, "list", "--log-dirs", log_dir).stdout

    def test_the_notice_of_an_undo_is_said(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It stops a purge, with or without a journal."""
        (log_dir / UNDO_NOTICE).touch()
        ran = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json")
        assert ran.report["logDirs"][0]["unfinished"] == [str(log_dir / UNDO_NOTICE)]
        assert Ran(capsys, "purge", "--all", "--log-dirs", log_dir).exit_code == 3

    def test_it_changes_nothing(
        self, runs: list[RunBuilder], log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def state() -> list[tuple[str, int]]:
            return sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))

        before = state()
        Ran(capsys, "list", "--verify", "--log-dirs", log_dir)
        assert state() == before


class TestPurge:
    def test_by_age(self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        age_ms = Ran(capsys, "list", "--log-dirs", log_dir, "--format", "json").report["logDirs"][0]["runs"][
            0
        ]["ageMs"]
        hours = age_ms // 3_600_000
        for age, is_purged in ((f"{hours + 1}h", False), (f"{hours}h", True)):
            ran = Ran(capsys, "purge", "--older-than", age, "--log-dirs", log_dir, "--format", "json")
            assert ran.exit_code == 0
            assert [run["run"] for run in ran.report["logDirs"][0]["runs"]] == [OLD_RUN] * is_purged
            assert runs[0].path.exists() is not is_purged
        assert runs[1].path.exists()

    def test_by_name(self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ran = Ran(capsys, "purge", "--run", NEW_RUN, "--log-dirs", log_dir, "--format", "json")
        (run,) = ran.report["logDirs"][0]["runs"]
        assert (run["status"], run["files"], run["problem"]) == ("purged", 2, None)
        assert run["freedBytes"] == ran.report["freedBytes"] > 0
        assert [one.path.exists() for one in runs] == [True, False]

    def test_a_name_that_there_is_not(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ran = Ran(capsys, "purge", "--run", "../d1", "--log-dirs", log_dir)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert "no such run. Remedy: see quarantine list" in ran.stderr

    def test_all_after_a_dry_run(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dry = Ran(capsys, "purge", "--all", "--dry-run", "--log-dirs", log_dir, "--format", "json").report
        assert runs[0].path.exists()
        assert dry["dryRun"] is True
        done = Ran(capsys, "purge", "--all", "--log-dirs", log_dir, "--format", "json").report
        assert done == dry | {"dryRun": False}
        assert not runs[0].root.exists()
        assert (log_dir / "t-0" / "00000000000000000000.log").read_bytes() == DATA

    def test_as_text(self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (runs[1].path / "note").write_text("mine")
        text = Ran(capsys, "purge", "--all", "--dry-run", "--log-dirs", log_dir).stdout
        left, counted, nothing = text.splitlines()
        assert left.startswith(f"LEFT {runs[1].path}: note: not named by the manifest")
        assert counted.startswith(f"{log_dir}: 1 run, 3 files to be purged, ")
        assert nothing == "Nothing was removed (dry run)."
        each = Ran(capsys, "purge", "--all", "--dry-run", "--log-dirs", log_dir, "-v").stdout.splitlines()
        assert each[1].startswith(f"{runs[0].path}: 3 files to be purged, ")
        assert [each[0], *each[2:]] == [left, counted, nothing]
        ran = Ran(capsys, "purge", "--all", "--log-dirs", log_dir, "-q")
        assert ran.exit_code == 4
        assert ran.stdout.splitlines() == [left]
        assert Ran(capsys, "purge", "--older-than", "52w", "--log-dirs", log_dir).stdout.startswith(
            "nothing to purge"
        )

    def test_beside_a_broker(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A broker holds `.lock` and nothing else; its lock is as good as held by any other process."""
        (log_dir / ".lock").touch()
        broker = subprocess.Popen(
            [sys.executable, "-c", _HOLD_LOCK, str(log_dir / ".lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline() == "x\n"
            assert Ran(capsys, "purge", "--all", "--log-dirs", log_dir).exit_code == 0
        finally:
            broker.kill()
            broker.communicate()
        assert not runs[0].path.exists()
        assert (log_dir / ".lock").exists()

    def test_not_beside_a_recovery(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with LogDirLocks([str(log_dir)]):
            ran = Ran(capsys, "purge", "--all", "--log-dirs", log_dir)
        assert (ran.exit_code, ran.stdout) == (3, "")
        assert "works on this log dir" in ran.stderr
        begin_run(runs[0].root, log_dir).close()
        ran = Ran(capsys, "purge", "--all", "--log-dirs", log_dir)
        assert (ran.exit_code, ran.stdout) == (3, "")
        assert "recover was interrupted" in ran.stderr
        assert runs[0].path.exists()


@pytest.mark.parametrize("place", ["beside", "inside", "elsewhere"])
def test_what_a_real_recovery_has_saved(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut a batch, recover, list, verify, purge: the recovered log dir does not change."""
    sample = unpack("crashed", tmp_path)
    log_dir = sample.root / "d1"
    log = max((log_dir / "codec-none-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    if place == "inside":
        access = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: path != str(log_dir.parent) and access(path, mode)
        )
    elsewhere = str(tmp_path / "spare") if place == "elsewhere" else None
    report = recovery.recover([str(log_dir)], now_ms=sample.now_ms, quarantine_dir=elsewhere)
    assert report.exit_code == 2
    options = ["--log-dirs", log_dir, "--format", "json"] + (
        ["--quarantine-dir", elsewhere] if elsewhere else []
    )
    listed = Ran(capsys, "list", "--verify", *options)
    assert listed.exit_code == 0
    (run,) = listed.report["logDirs"][0]["runs"]
    assert run["path"] == report.log_dirs[0].quarantine
    assert run["path"].startswith(
        {
            "beside": f"{log_dir}.quarantine/",
            "inside": f"{log_dir}/{INSIDE_FOLDER}/",
            "elsewhere": f"{elsewhere}/",
        }[place]
    )
    assert [log["partition"] for log in run["logs"]] == ["codec-none-0"]
    assert run["logBytes"] > 0
    (part,) = run["logs"][0]["parts"]
    assert part["file"] == log.name
    assert 0 < part["firstOffset"] <= part["lastOffset"]
    before = {
        path: path.read_bytes()
        for path in log_dir.rglob("*")
        if path.is_file() and run["path"] not in str(path)
    }
    purged = Ran(capsys, "purge", "--all", *options)
    assert purged.exit_code == 0, purged.stdout
    assert not os.path.exists(run["path"])
    assert {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()} == before


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["show"], ["show"]),
            (["list"], ["quarantine list needs", "--log-dirs"]),
            (["list", "--log-dirs", ""], ["no log dir"]),
            (["list", "--log-dirs", "/nowhere"], ["/nowhere", "no such log dir"]),
            (["list", "-c", "/nowhere/x"], ["/nowhere/x"]),
            (["purge", "--log-dirs", "/"], ["--older-than", "--run", "--all"]),
            (["purge", "--log-dirs", "/", "--all", "--run", "x"], ["--run", "--all"]),
            (["purge", "--log-dirs", "/", "--older-than", "30"], ["--older-than", "30d"]),
            (["purge", "--log-dirs", "/", "--older-than", "-1d"], ["--older-than"]),
            (["purge", "--log-dirs", "/", "--older-than", "1y"], ["--older-than", "1y"]),
            (["purge", "--log-dirs", "/", "--al"], ["--al; is --all meant?"]),
        ],
        ids=" ".join,
    )
    def test_wrong_use_is_said_in_one_line(
        self, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        ran = Ran(capsys, *arguments)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert len(ran.stderr.splitlines()) == 1
        for word in words:
            assert word in ran.stderr

    def test_log_dirs_of_a_configuration(
        self, runs: list[RunBuilder], log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = tmp_path / "server.properties"
        config.write_text(f"log.dirs={log_dir}\n")
        ran = Ran(capsys, "list", "-c", config, "--format", "json")
        assert [found["logDir"] for found in ran.report["logDirs"]] == [str(log_dir)]
        config.write_text("log.dirs=d1\n")
        ran = Ran(capsys, "list", "-c", config)
        assert ran.exit_code == 1
        assert "relative path" in ran.stderr

    def test_a_log_dir_that_is_gone_may_have_its_quarantine(
        self, runs: list[RunBuilder], log_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log_dir.rename(log_dir.with_name("away"))
        assert Ran(capsys, "purge", "--all", "--log-dirs", log_dir).exit_code == 0
        assert not runs[0].root.exists()

    @pytest.mark.parametrize(
        ("answer", "is_gone", "errors"),
        [("y", True, None), ("n", False, None), ("", False, None), ("n", False, subprocess.DEVNULL)],
    )
    def test_all_is_asked_for_on_a_terminal(
        self, answer: str, is_gone: bool, errors: int | None, runs: list[RunBuilder], log_dir: Path
    ) -> None:
        """Also if standard error goes elsewhere: the question is where the answer is typed."""
        terminal, ours = os.openpty()
        command = [
            sys.executable,
            "-m",
            "recovery",
            "quarantine",
            "purge",
            "--all",
            "--log-dirs",
            str(log_dir),
        ]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=ours, stderr=errors or ours, stdout=subprocess.PIPE, text=True
        ) as process:
            asked = b""
            while b"[y/N] " not in asked:
                asked += os.read(terminal, 4096)
            os.write(terminal, f"{answer}\n".encode())
            process.communicate(timeout=LONGEST_WAIT_SECONDS)
        os.close(terminal)
        os.close(ours)
        assert re.search(rb"2 runs, [\d.]+ \w+: undo cannot put this back", asked)
        assert process.returncode == (0 if is_gone else 1)
        assert runs[0].root.exists() != is_gone
        if not is_gone:
            assert run("quarantine", "purge", "--all", "--yes", "--log-dirs", log_dir).exit_code == 0
            assert not runs[0].root.exists()
