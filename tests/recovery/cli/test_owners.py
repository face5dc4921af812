"""What a run as root writes, the broker's user can open; as that user it needs no privilege."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from segfmt.metadata_record import MetadataRecord
from tests.logs.samples import LOCK, MARKER, Sample, differences, tree_of, unpack
from tests.recovery.broker.test_config_metadata import level, register
from tests.recovery.broker.test_config_metadata import log as metadata_log
from tests.runs.command import Done, assert_one_line, recover, run
from tests.runs.driving import footprint, own_leftovers, quarantine_of
from tests.runs.paused import start_paused
from tests.servers.file_systems import read_only
from tests.servers.machine import MOUNTS, OTHER_USERS, OTHERS_FILES, needs

OWNER, GROUP = 12345, 23456

AS_BROKERS_USER = f"""
import _strptime, difflib, os, sys
import recovery, recovery.cli.main, recovery.saved.report, recovery.saved.undo, recovery.watch.open
# The interpreter may lie where that user cannot reach it: all that a run loads is loaded before.
recovery.recover(sys.argv.pop(1).split(","), dry_run=True)
recovery.cli.main.build_parser()
os.setgroups([])
os.setgid({GROUP})
os.setuid({OWNER})
sys.exit(recovery.cli.main.main(sys.argv[1:]))
"""

pytestmark = [pytest.mark.long, needs(OTHERS_FILES, OTHER_USERS)]


@pytest.fixture
def sample(ram_path: Path) -> Iterator[Sample]:
    """The crashed sample as another user's, with modes of its own; in a place that this user can reach."""
    sample = unpack("crashed", ram_path)
    os.chmod(ram_path, 0o755)
    give_away(sample.root, OWNER, GROUP)
    return sample


def give_away(root: Path, owner: int, group: int) -> None:
    os.chown(root, owner, group)
    for folder, folder_names, file_names in os.walk(root):
        for name in folder_names:
            os.chown(os.path.join(folder, name), owner, group)
            os.chmod(os.path.join(folder, name), 0o750)
        for name in file_names:
            os.chown(os.path.join(folder, name), owner, group)
            os.chmod(os.path.join(folder, name), 0o640)


def refused_in(done: Done) -> list[dict[str, Any]]:
    """The partitions that a report has as refused."""
    partitions = (one for log_dir in done.report["logDirs"] for one in log_dir["partitions"])
    return [one for one in partitions if one["status"] == "refused"]


def run_as_brokers_user(sample: Sample, *arguments: str) -> Done:
    log_dirs = ",".join(map(str, sample.log_dirs))
    options = ("recover", "-c", str(sample.config), "--now", str(sample.now_ms), "--format", "json")
    return run(
        *options,
        "--progress",
        "none",
        *arguments,
        command=(sys.executable, "-c", AS_BROKERS_USER, log_dirs),
        cwd="/",
    )


def owners(root: Path) -> set[tuple[int, int]]:
    paths = [root, *root.rglob("*")]
    return {(found.st_uid, found.st_gid) for found in (path.lstat() for path in paths)}


def modes(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode)
        for path in root.rglob("*")
        if path.is_file()
    }


def test_what_is_roots_is_refused_in_words(sample: Sample) -> None:
    """Whoever is not the broker's user is told whom to be, by what locks, undoes, and lists."""
    give_away(sample.root, 0, 0)
    for path in (sample.root, *sample.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = run_as_brokers_user(sample)
    assert done.exit_code == 1
    for log_dir in done.report["logDirs"]:
        (problem,) = log_dir["problems"]
        assert (log_dir["status"], problem["rule"]) == ("offline", "access")
        assert problem["remedy"] == "run this as the broker's user, or as root"
    assert "Errno" not in done.stdout
    assert recover(sample).exit_code == 0
    for manifest in sample.root.glob("*.quarantine/*/manifest.jsonl"):
        manifest.chmod(0o600)
    ask = {"command": (sys.executable, "-c", AS_BROKERS_USER, str(sample.log_dirs[0])), "cwd": "/"}
    undone = run("undo", "-c", sample.config, **ask)
    assert undone.exit_code == 3
    assert_one_line(undone, "Nothing was changed: ", "Remedy: run this as the broker's user, or as root")
    listed = run("quarantine", "list", "-c", sample.config, **ask)
    assert listed.exit_code == 1
    for line, log_dir in zip(listed.stdout.splitlines(), sample.log_dirs, strict=True):
        assert line.startswith(f"{log_dir}: cannot be looked at: {log_dir}.quarantine/")
        assert line.endswith(
            "/manifest.jsonl: Permission denied. Remedy: run this as the broker's user, or as root"
        )


def test_all_that_root_writes_belongs_to_the_brokers_user(sample: Sample) -> None:
    replaced = max(sample.root.glob("d?/late-0/*.timeindex"))
    os.chmod(replaced, 0o600)
    content = replaced.read_bytes()
    before = {log_dir: modes(log_dir) for log_dir in sample.log_dirs}
    assert recover(sample).exit_code == 0
    assert replaced.read_bytes() != content
    for log_dir in sample.log_dirs:
        after = modes(log_dir)
        new = after.keys() - before[log_dir].keys()
        assert MARKER in new
        assert len(new) > 5
        expected = dict.fromkeys(
            after, 0o640
        )  # that of the neighbours; of its folder without execution where it is new
        if replaced.is_relative_to(log_dir):
            expected[str(replaced.relative_to(log_dir))] = 0o600
        assert after == expected
        assert owners(log_dir) == owners(quarantine_of(log_dir)) == {(OWNER, GROUP)}


@pytest.mark.parametrize(
    ("name", "owner", "mode", "remedy"),
    [
        (".", OWNER, 0o555, "chmod u+w "),
        (".", 0, 0o755, f"chown {OWNER}:"),
        ("meta.properties", 0, 0o600, f"chown {OWNER}:"),
        ("__cluster_metadata-0", 0, 0o700, f"chown {OWNER}:"),
        ("__cluster_metadata-0", OWNER, 0o555, "chmod u+w "),
        ("__cluster_metadata-0/00000000000000000000.log", 0, 0o644, f"chown {OWNER}:"),
    ],
)
def test_what_the_broker_itself_may_not_use_is_told_to_root(
    sample: Sample, name: str, owner: int, mode: int, remedy: str
) -> None:
    """Root recovers what the broker could not open then."""
    (log_dir,) = (one for one in sample.log_dirs if (one / "__cluster_metadata-0").exists())
    path = log_dir / name
    os.chown(path, owner, owner)
    os.chmod(path, mode)
    before = footprint(log_dir)
    done = recover(sample)
    assert done.exit_code == 4
    (offline,) = (one for one in done.report["logDirs"] if one["status"] == "offline")
    (problem,) = offline["problems"]
    assert (offline["logDir"], problem["rule"]) == (str(log_dir), "access")
    assert problem["remedy"].startswith(remedy)
    assert footprint(log_dir).keys() - {LOCK} == before.keys() - {LOCK}
    assert not (log_dir / MARKER).exists()
    subprocess.run(["sh", "-c", problem["remedy"]], check=True)
    os.chmod(path, mode | 0o600)
    assert recover(sample).exit_code in (0, 2)


def test_a_saved_file_that_the_brokers_user_may_not_read_has_a_command(sample: Sample) -> None:
    """The marker, which no broker could have read either."""
    assert recover(sample).exit_code == 0
    marker = sample.log_dirs[0] / MARKER
    os.chown(marker, 0, 0)
    os.chmod(marker, 0o600)
    next(sample.log_dirs[0].glob("codec-none-0/*.index")).unlink()
    before = tree_of(sample.log_dirs[0])
    assert recover(sample).exit_code == 0
    undo = ("undo", "-c", sample.config, "--progress", "none")
    done = run(*undo)
    assert done.exit_code == 3
    _, _, remedy = done.stderr.strip().partition("Nothing was changed. Remedy: ")
    command, _, then = remedy.partition(", then ")
    assert command.startswith(f"chown {OWNER} {quarantine_of(sample.log_dirs[0])}/")
    assert then.startswith(
        f"undo again; {sample.log_dirs[0]} left out, this may work: kafka-log-recovery undo "
    )
    subprocess.run(["sh", "-c", command], check=True)
    assert run(*undo).exit_code == 0
    assert differences(before, tree_of(sample.log_dirs[0])) == []


def test_a_lock_that_a_kill_leaves_belongs_to_the_brokers_user(sample: Sample) -> None:
    for log_dir in sample.log_dirs:
        (log_dir / ".lock").unlink(missing_ok=True)
    options = ("--now", sample.now_ms, "--progress", "none")
    process = start_paused("LogDirStarted", 1, "recover", "-c", sample.config, *options)
    process.kill()
    process.communicate()
    assert owners(sample.log_dirs[0]) == {(OWNER, GROUP)}
    assert (sample.log_dirs[0] / ".lock").exists()


class TestAsTheBrokersUser:
    def test_it_needs_no_privilege_and_leaves_the_same_tree(self, sample: Sample, tmp_path: Path) -> None:
        done = run_as_brokers_user(sample)
        assert done.exit_code == 0, done.stderr
        whole = unpack("crashed", tmp_path)
        assert recover(whole).exit_code == 0
        for mine, theirs in zip(whole.log_dirs, sample.log_dirs, strict=True):
            assert tree_of(mine).keys() == tree_of(theirs).keys()
            assert owners(theirs) == {(OWNER, GROUP)}
            assert own_leftovers(theirs) == []

    def test_a_folder_of_a_group_that_it_is_not_in_is_no_hindrance(self, sample: Sample) -> None:
        give_away(sample.root, OWNER, 0)  # chown of the user alone, as most do it
        done = run_as_brokers_user(sample)
        assert done.exit_code == 0, done.report
        assert {owner for log_dir in sample.log_dirs for owner, _ in owners(log_dir)} == {OWNER}

    def test_a_dir_that_it_may_not_read_is_offline_and_the_other_is_done(self, sample: Sample) -> None:
        os.chown(sample.log_dirs[1], 0, 0)
        os.chmod(sample.log_dirs[1], 0o700)
        done = run_as_brokers_user(sample)
        assert done.exit_code == 4
        assert "Traceback" not in done.stderr
        assert [log_dir["status"] for log_dir in done.report["logDirs"]] == ["recovered", "offline"]

    def test_a_dir_above_which_it_may_not_write_has_quarantine_inside(self, sample: Sample) -> None:
        os.chown(sample.root, 0, 0)
        os.chmod(sample.root, 0o755)
        done = run_as_brokers_user(sample)
        assert done.exit_code == 0, done.report
        for log_dir in done.report["logDirs"]:
            assert Path(log_dir["quarantine"]).parent.parent == Path(log_dir["logDir"])

    @pytest.mark.parametrize(
        ("records", "words"),
        [
            ([level(11)], "metadata.version is 11"),
            ([level(14), register(1, 11)], "broker 1 knows metadata.version up to 11"),
            ([], "inter.broker.protocol.version is 3.5"),
        ],
    )
    def test_an_older_broker_must_not_have_quarantine_inside(
        self, sample: Sample, records: list[MetadataRecord], words: str
    ) -> None:
        os.chown(sample.root, 0, 0)
        os.chmod(sample.root, 0o755)
        shutil.rmtree(sample.log_dirs[0] / "tiered-0")  # whose settings are gone with what follows
        metadata = sample.log_dirs[0] / "__cluster_metadata-0"
        for path in metadata.iterdir():
            path.unlink()
        (metadata / f"{0:020}.log").write_bytes(metadata_log(records) if records else b"")
        os.chown(metadata / f"{0:020}.log", OWNER, GROUP)
        protocol = () if records else ("--property", "inter.broker.protocol.version=3.5-IV2")
        for options in (["--dry-run"], []):
            done = run_as_brokers_user(sample, *protocol, *options)
            assert done.exit_code == 1, done
            for log_dir in done.report["logDirs"]:
                (problem,) = log_dir["problems"]
                assert words in problem["detail"]
                assert "--quarantine-dir" in problem["remedy"]
        place = sample.root / "place"
        place.mkdir()
        os.chown(place, OWNER, GROUP)
        assert run_as_brokers_user(sample, *protocol, "--quarantine-dir", str(place)).exit_code in (0, 2)

    @pytest.mark.parametrize("records", [[level(12)], [level(7), register(1, 25)]])
    def test_a_newer_one_may(self, sample: Sample, records: list[MetadataRecord]) -> None:
        os.chown(sample.root, 0, 0)
        os.chmod(sample.root, 0o755)
        shutil.rmtree(sample.log_dirs[0] / "tiered-0")  # whose settings are gone with what follows
        metadata = sample.log_dirs[0] / "__cluster_metadata-0"
        for path in metadata.iterdir():
            path.unlink()
        (metadata / f"{0:020}.log").write_bytes(metadata_log(records))
        os.chown(metadata / f"{0:020}.log", OWNER, GROUP)
        assert run_as_brokers_user(sample).exit_code in (0, 2)

    def test_a_dry_run_needs_to_read_only(self, sample: Sample) -> None:
        for path in [sample.root, *sample.root.rglob("*")]:
            os.chown(path, 0, 0)
            os.chmod(path, 0o755 if path.is_dir() else 0o644)
        done = run_as_brokers_user(sample, "--dry-run")
        assert done.exit_code == 0, done.stderr
        assert {log_dir["status"] for log_dir in done.report["logDirs"]} == {"recovered"}


OWN_PARTITION = "tiny-batches-0"


class TestAFileThatMayNotBeRead:
    @pytest.mark.parametrize(
        "pattern",
        [
            "00000000000000000000.log",
            "*.log",
            "*.index",
            "*.timeindex",
            "*.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ],
    )
    @pytest.mark.parametrize("options", [["--dry-run"], []])
    def test_refuses_its_partition_alone(self, sample: Sample, pattern: str, options: list[str]) -> None:
        path = max(sample.root.glob(f"d?/{OWN_PARTITION}/{pattern}"))
        os.chown(path, 0, 0)
        os.chmod(path, 0o600)
        done = run_as_brokers_user(sample, *options)
        assert done.exit_code == 4, done
        statuses = {
            one["partition"]: one["status"]
            for log_dir in done.report["logDirs"]
            for one in log_dir["partitions"]
        }
        assert statuses.pop(OWN_PARTITION) == "refused"
        assert set(statuses.values()) == {"recovered"}
        assert {log_dir["status"] for log_dir in done.report["logDirs"]} == {"recovered", "partial"}


class TestInTheGroupAlone:
    """Who may write but is not the owner cannot give what he makes to the owner."""

    @pytest.mark.parametrize("options", [["--dry-run"], []])
    def test_a_log_dir_of_somebody_else_is_not_touched(self, sample: Sample, options: list[str]) -> None:
        give_away(sample.root, 0, GROUP)
        for path in [sample.root, *sample.root.rglob("*")]:
            os.chmod(path, 0o770 if path.is_dir() else 0o660)
        before = footprint(sample.log_dirs[0])
        done = run_as_brokers_user(sample, *options)
        assert done.exit_code == 1, done
        for log_dir in done.report["logDirs"]:
            assert log_dir["status"] == "offline"
            (problem, *_) = log_dir["problems"]
            assert "belongs to root" in problem["detail"]
            assert "as root" in problem["remedy"]
        for name, at in footprint(sample.log_dirs[0]).items():
            assert name in (".", ".lock") or before[name] == at

    @pytest.mark.parametrize("options", [["--dry-run"], []])
    @pytest.mark.parametrize("name", [OWN_PARTITION, f"{OWN_PARTITION}/leader-epoch-checkpoint"])
    def test_a_partition_of_somebody_else_is_refused(
        self, sample: Sample, name: str, options: list[str]
    ) -> None:
        (path,) = sample.root.glob(f"d?/{name}")
        os.chown(path, 0, GROUP)
        os.chmod(path, 0o770 if path.is_dir() else 0o660)
        done = run_as_brokers_user(sample, *options)
        assert done.exit_code == 4, done
        refused = refused_in(done)
        assert [one["partition"] for one in refused] == [OWN_PARTITION]
        assert "belongs to root" in refused[0]["problems"][0]["detail"]
        assert {log_dir["status"] for log_dir in done.report["logDirs"]} == {"recovered", "partial"}

    def test_who_may_only_read_is_told_so_in_a_dry_run(self, sample: Sample) -> None:
        for path in [sample.root, *sample.root.rglob("*")]:
            os.chown(path, 0, 0)
            os.chmod(path, 0o755 if path.is_dir() else 0o644)
        done = run_as_brokers_user(sample, "--dry-run")
        assert done.exit_code == 0
        assert all("may not write" in log_dir["notes"][0]["text"] for log_dir in done.report["logDirs"])


@pytest.mark.parametrize("pattern", ["*.log", "*.snapshot", "leader-epoch-checkpoint"])
def test_root_may_be_kept_from_a_file_as_well(sample: Sample, pattern: str) -> None:
    """In a container root has not all capabilities."""
    give_away(sample.root, 0, 0)
    path = max(sample.root.glob(f"d?/{OWN_PARTITION}/{pattern}"))
    os.chown(path, OWNER, GROUP)
    os.chmod(path, 0o600)
    done = recover(sample, prefix=("setpriv", "--bounding-set", "-dac_override,-dac_read_search"))
    assert done.exit_code == 4, done
    refused = refused_in(done)
    assert [one["partition"] for one in refused] == [OWN_PARTITION]
    assert path.name in refused[0]["reasons"][0]


def test_root_that_may_give_nothing_away_is_told_so_before_anything_is_touched(sample: Sample) -> None:
    found = footprint(sample.log_dirs[0])
    for options in (["--dry-run"], []):
        done = recover(sample, *options, prefix=("setpriv", "--bounding-set", "-chown"))
        assert done.exit_code == 1, done
        assert "not give a file to another user" in done.report["logDirs"][0]["problems"][0]["detail"]
    assert {name for name, at in footprint(sample.log_dirs[0]).items() if found.get(name) != at} <= {
        ".",
        ".lock",
    }


def test_one_command_helps_where_all_files_of_a_log_are_roots(sample: Sample) -> None:
    """Nobody is told to change the owner and to run as root: after the former the latter is needless."""
    folder = sample.log_dirs[1] / "late-1"
    for path in folder.iterdir():
        os.chown(path, 0, 0)
        path.chmod(0o644)
    done = run_as_brokers_user(sample, "--dry-run", "--format", "text")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("REFUSED "))
    assert line.startswith(f"REFUSED {folder}: ")
    assert "not give a file to another user" not in done.stdout
    command = line.partition(" Remedy: ")[2]
    assert command.startswith("chown -R ")
    subprocess.run(shlex.split(command), check=True)
    assert run_as_brokers_user(sample).exit_code in (0, 2)


@pytest.mark.parametrize("owner", [OWNER, 0])
def test_a_folder_that_may_not_be_read_has_the_remedy_that_helps(sample: Sample, owner: int) -> None:
    """Its owner lacks a right, or it is somebody else's."""
    folder = sample.log_dirs[0] / "late-0"
    os.chown(folder, owner, GROUP if owner else 0)
    folder.chmod(0o300 if owner else 0o700)
    done = run_as_brokers_user(sample, "--dry-run")
    (refused,) = refused_in(done)
    (problem,) = refused["problems"]
    assert "may not be read" in problem["detail"]
    assert problem["remedy"].startswith(f"chmod u+r {folder}" if owner else "chown ")


def test_a_metadata_log_that_may_not_be_read_has_a_remedy(sample: Sample) -> None:
    for path in sample.log_dirs[0].glob("__cluster_metadata-0/*"):
        os.chown(path, 0, 0)
        path.chmod(0o400)
    done = run_as_brokers_user(sample, "--dry-run")
    assert done.exit_code == 1
    assert_one_line(
        done, "__cluster_metadata-0/", "Remedy: run this as the broker's user, or as root, or give them with"
    )
    done = run_as_brokers_user(sample, "--dry-run", "--topic-config", "{}")
    assert done.exit_code != 1
    assert any("settings come from --topic-config alone" in note["text"] for note in done.report["notes"])


@pytest.mark.parametrize("place", ["beside", "elsewhere", pytest.param("read-only", marks=needs(MOUNTS))])
def test_a_quarantine_that_cannot_be_written_is_found_before(
    sample: Sample, ram_path: Path, place: str
) -> None:
    """In a dry run as well; a log dir with a marker, in which there is nothing to do, is no worse for it."""
    give_away(ram_path, OWNER, GROUP)
    _, broken = sample.log_dirs
    assert run_as_brokers_user(sample).exit_code == 0
    (broken / MARKER).unlink()
    shutil.rmtree(quarantine_of(broken))
    folder = quarantine_of(broken) if place == "beside" else ram_path / "elsewhere"
    folder.mkdir()
    options = () if place == "beside" else ("--quarantine-dir", str(folder))
    found = tree_of(broken, ignore=[LOCK])
    with read_only(folder) if place == "read-only" else nullcontext():
        for dry_run in (("--dry-run",), ()):
            done = run_as_brokers_user(sample, *options, *dry_run)
            assert done.exit_code == 4, done
            first, second = done.report["logDirs"]
            assert first["status"] == "unchanged"
            assert second["status"] == "offline"
            why = "mounted read-only" if place == "read-only" else "this user may not write there"
            assert why in second["error"]
            assert f"{folder}" in second["error"]
    assert differences(found, tree_of(broken, ignore=[LOCK])) == []
