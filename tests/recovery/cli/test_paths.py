"""Paths lead where the kernel goes; one folder under several names, and one that cannot be looked at, are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.logs.samples import MARKER, Sample, unpack
from tests.recovery.cli.test_owners import AS_BROKERS_USER, GROUP, OWNER, give_away
from tests.runs.command import Done, assert_one_line, recover, run
from tests.runs.driving import footprint
from tests.servers.file_systems import bind
from tests.servers.machine import MOUNTS, OTHERS_FILES, needs


def partition(done: Done, name: str) -> dict[str, object]:
    (found,) = [
        one for log_dir in done.report["logDirs"] for one in log_dir["partitions"] if one["partition"] == name
    ]
    return found


class TestWaysUp:
    """`..` behind a link leads to where the link's target lies."""

    @pytest.fixture
    def samples(self, tmp_path: Path) -> tuple[Sample, Sample]:
        """Where the kernel goes, and where crossing out names would lead."""
        there, here = unpack("crashed-v0-v1", tmp_path / "there"), unpack("crashed-v0-v1", tmp_path / "here")
        os.symlink(there.log_dirs[1], here.root / "current")
        return there, here

    def test_log_dirs_of_a_configuration(self, samples: tuple[Sample, Sample]) -> None:
        there, here = samples
        found = footprint(here.log_dirs[0])
        done = recover(here, "--property", f"log.dirs={here.root}/current/../d1")
        assert done.exit_code == 0
        assert [log_dir["logDir"] for log_dir in done.report["logDirs"]] == [str(there.log_dirs[0])]
        assert (there.log_dirs[0] / MARKER).exists()
        assert footprint(here.log_dirs[0]) == found

    def test_log_dirs_and_the_quarantine_of_the_command_line(self, samples: tuple[Sample, Sample]) -> None:
        there, here = samples
        log = next(iter(there.log_dirs[0].glob("old-v1-*/*.log")))
        with log.open("ab") as opened:
            opened.write(b"torn")
        arguments = (
            "--log-dirs",
            f"{here.root}/current/../d1",
            "--quarantine-dir",
            f"{here.root}/current/../kept",
        )
        done = run("recover", *arguments, "--progress", "none")
        assert done.exit_code == 2, done
        assert (there.root / "kept").is_dir()
        assert not (here.root / "kept").exists()
        listed = run("quarantine", "list", *arguments, "--format", "json")
        assert str(there.root / "kept") in listed.stdout


class TestOneFolderUnderTwoNames:
    @pytest.fixture
    def sample(self, tmp_path: Path) -> Sample:
        return unpack("crashed", tmp_path)

    def test_a_link_to_another_partition_refuses_both(self, sample: Sample) -> None:
        first, second = sample.log_dirs
        os.symlink(first / "late-0", second / "other-7")
        found = footprint(first / "late-0")
        done = recover(sample)
        assert done.exit_code == 4
        for name in ("late-0", "other-7"):
            (problem,) = partition(done, name)["problems"]
            assert str(first / "late-0") in problem["detail"]
            assert str(second / "other-7") in problem["detail"]
            assert "links" in problem["remedy"]
        assert footprint(first / "late-0") == found
        assert partition(done, "codec-none-0")["status"] == "recovered"

    @pytest.mark.parametrize("target", ["__cluster_metadata-0", "."])
    def test_a_link_to_what_is_no_log_is_refused(self, target: str, sample: Sample) -> None:
        first, second = sample.log_dirs
        os.symlink(first / target, second / "other-7")
        found = footprint(first / "__cluster_metadata-0")
        done = recover(sample)
        assert done.exit_code == 4
        assert partition(done, "other-7")["status"] == "refused"
        assert partition(done, "late-0")["status"] == "recovered"
        assert footprint(first / "__cluster_metadata-0") == found

    def test_a_link_to_a_folder_elsewhere_is_followed(self, sample: Sample, tmp_path: Path) -> None:
        os.rename(sample.log_dirs[0] / "late-0", tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", sample.log_dirs[0] / "late-0")
        done = recover(sample)
        assert done.exit_code == 0
        assert partition(done, "late-0")["status"] == "recovered"


@needs(OTHERS_FILES)
class TestALogDirThatCannotBeLookedAt:
    @pytest.fixture
    def hide(self, ram_path: Path) -> Callable[[int], Sample]:
        def hidden(number: int) -> Sample:
            """The crashed sample as another user's, one of its log dirs in a folder that only root may enter."""
            sample = unpack("crashed", ram_path)
            os.chmod(ram_path, 0o755)
            give_away(sample.root, OWNER, GROUP)
            (sample.root / "private").mkdir(mode=0o700)
            path = sample.log_dirs[number - 1]
            os.rename(path, sample.root / "private" / path.name)
            sample.config.write_text(
                sample.config.read_text().replace(str(path), f"{sample.root}/private/{path.name}")
            )
            return sample

        return hidden

    def run(self, sample: Sample, *arguments: str) -> Done:
        return run(
            "recover",
            *arguments,
            "--format",
            "json",
            "--progress",
            "none",
            command=(sys.executable, "-c", AS_BROKERS_USER, str(next(sample.root.glob("d?")))),
            cwd="/",
        )

    @pytest.mark.parametrize("options", [[], ["--dry-run"]])
    def test_it_is_offline_and_the_other_is_done(
        self, hide: Callable[[int], Sample], options: list[str]
    ) -> None:
        sample = hide(2)
        done = self.run(sample, "-c", str(sample.config), *options)
        assert done.exit_code == 4, done
        first, second = done.report["logDirs"]
        assert (first["status"], second["status"]) == ("recovered", "offline")
        assert "Permission denied" in second["error"]
        assert second["logDir"] == str(sample.root / "private" / "d2")

    def test_settings_are_not_guessed_without_the_metadata_log(self, hide: Callable[[int], Sample]) -> None:
        sample = hide(1)
        found = footprint(sample.root)
        done = self.run(sample, "-c", str(sample.config))
        assert done.exit_code == 1
        assert_one_line(done, "__cluster_metadata-0", "Permission denied", "--topic-config")
        passing = ("d2", "d2/.lock")  # which came and went
        assert {path: at for path, at in footprint(sample.root).items() if path not in passing} == {
            path: at for path, at in found.items() if path not in passing
        }
        given = self.run(sample, "-c", str(sample.config), "--topic-config", "{}")
        assert given.exit_code == 4, given
        assert [one["status"] for one in given.report["logDirs"]] == ["offline", "recovered"]


@pytest.mark.parametrize("key", ["log.dirs", "metadata.log.dir"])
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--repair",)])
def test_a_log_dir_in_another_is_not_taken_for_a_foreign_folder(
    key: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    outer, inner = sample.log_dirs
    inner.rename(outer / "in")
    inner.symlink_to(outer / "in")
    found = footprint(outer)
    properties = {"log.dirs": str(outer)} | {key: f"{outer},{inner}" if key == "log.dirs" else str(inner)}
    given = [word for name, value in properties.items() for word in ("--property", f"{name}={value}")]
    done = recover(sample, *given, *options)
    assert done.exit_code == 1
    assert_one_line(done, f"{inner} lies in {outer}, where a broker takes folders for logs")
    assert footprint(outer) == found


@needs(MOUNTS)
def test_quarantine_inside_a_log_dir_by_another_mount(tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    place = tmp_path / "mounted"
    place.mkdir()
    with bind(sample.log_dirs[0], place):
        done = recover(sample, "--quarantine-dir", place / "kept")
    assert done.exit_code == 1
    assert_one_line(done, f"inside the log dir {sample.log_dirs[0]}")


def test_quarantine_inside_a_log_dir_that_is_not_named(tmp_path: Path) -> None:
    """Its broker would take the folder for a log, and not start."""
    sample = unpack("crashed-v0-v1", tmp_path)
    named, other = sample.log_dirs
    done = run("recover", "--log-dirs", named, "--quarantine-dir", other / "kept", "--progress", "none")
    assert done.exit_code == 1
    assert_one_line(done, f"--quarantine-dir {other}/kept: inside the log dir {other}, where a broker takes")


@pytest.mark.parametrize("number", [0, 1])
def test_quarantine_by_a_link_into_a_log_dir(number: int, tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    place = sample.log_dirs[0].with_name(f"{sample.log_dirs[0].name}.quarantine")
    place.symlink_to(sample.log_dirs[number])
    found = footprint(sample.log_dirs[number])
    done = recover(sample)
    assert done.exit_code == 1
    assert_one_line(done, f"{place}: a link into the log dir {sample.log_dirs[number]}", "remove the link")
    assert footprint(sample.log_dirs[number]) == found
