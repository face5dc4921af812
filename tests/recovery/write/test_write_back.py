"""An error in writing back reaches whoever has written, whoever else was told of it before."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.logdir.quarantine_place import places_of
from recovery.write import write_back
from recovery.write.durable import sync_all, sync_below, write_new
from recovery.write.write_back import held_file_systems, sync_file_system
from tests.logs.samples import MARKER, unpack
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.driving import recover
from tests.servers.file_systems import failing_disk, tmpfs
from tests.servers.machine import LOOP_DEVICES, MKFS_EXT4, MOUNTS, needs


@needs(MOUNTS, MKFS_EXT4, LOOP_DEVICES)
class TestADiskThatFails:
    """A real one: a file system on a loop device whose own disk is full when it writes back."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
        with failing_disk(tmp_path / "disk") as (mounted, filler):
            yield mounted, filler

    @staticmethod
    def fail(filler: Path) -> None:
        """Let the next writing back fail."""
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\1" * 65536)

    @staticmethod
    def let_somebody_else_hear(mounted: Path) -> None:
        assert subprocess.run(["sync", "-f", str(mounted)], capture_output=True, check=False).returncode != 0

    @pytest.mark.parametrize(
        "wait", [lambda path: sync_all([path]), lambda path: sync_below(os.path.dirname(path))]
    )
    def test_what_somebody_else_was_told(self, disk: tuple[Path, Path], wait: object) -> None:
        mounted, filler = disk
        path = str(mounted / "new")
        with held_file_systems([str(mounted / "not" / "there" / "yet")]):
            self.fail(filler)
            write_new(path, os.urandom(4 << 20))
            self.let_somebody_else_hear(mounted)
            for _ in range(2):  # and from then on: nobody knows whose bytes they were
                with pytest.raises(OSError, match=str(mounted)):
                    wait(path)
        filler.unlink()
        with held_file_systems([str(mounted)]):
            wait(path)

    def test_a_recovery_hands_nothing_over(
        self, disk: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mounted, filler = disk
        sample = unpack("crashed", mounted)
        waits = []
        genuine = write_back._sync_file_system

        def wait(descriptor: int, path: str) -> None:
            if not waits:
                self.fail(filler)
                (mounted / "ballast").write_bytes(os.urandom(4 << 20))
                self.let_somebody_else_hear(mounted)
            waits.append(path)
            genuine(descriptor, path)

        monkeypatch.setattr(write_back, "_sync_file_system", wait)
        report = recover(sample)
        assert waits
        assert {one.status for one in report.log_dirs} == {"offline"}
        assert report.exit_code == 1
        for log_dir in sample.log_dirs:
            assert not (log_dir / MARKER).exists()


class TestWaiting:
    def test_who_comes_while_one_waits_shares_the_next_wait(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on, waits = threading.Event(), threading.Event(), []

        def wait(_descriptor: int, path: str) -> None:
            waits.append(path)
            begun.set()
            assert go_on.wait(timeout=LONGEST_WAIT_SECONDS)

        monkeypatch.setattr(write_back, "_sync_file_system", wait)
        with held_file_systems([str(tmp_path)]):
            threads = [threading.Thread(target=sync_file_system, args=(str(tmp_path),)) for _ in range(8)]
            threads[0].start()
            assert begun.wait(timeout=LONGEST_WAIT_SECONDS)
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: sum(thread.is_alive() for thread in threads) == 8, pause_seconds=0.001)
            time.sleep(0.05)
            go_on.set()
            for thread in threads:
                thread.join(timeout=LONGEST_WAIT_SECONDS)
        assert 2 <= len(waits) <= 8

    def test_an_error_is_everybodys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [OSError(errno.EIO, "Input/output error"), None]

        def wait(_descriptor: int, _path: str) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        monkeypatch.setattr(write_back, "_sync_file_system", wait)
        with held_file_systems([str(tmp_path)]), held_file_systems([str(tmp_path)]):
            for _ in range(2):
                with pytest.raises(OSError, match="Input/output error"):
                    sync_file_system(str(tmp_path))
        with held_file_systems([str(tmp_path)]):
            answers.append(None)
            assert sync_file_system(str(tmp_path))

    def test_what_is_held_is_let_go(self, tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        with held_file_systems([str(tmp_path), str(tmp_path / "x"), str(tmp_path)]):
            assert len(os.listdir("/proc/self/fd")) == before + 1
        assert len(os.listdir("/proc/self/fd")) == before


@needs(MOUNTS)
@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_partition_on_another_file_system_is_waited_for_as_well(tmp_path: Path, is_mounted: bool) -> None:
    log_dir = tmp_path / "d1"
    place = log_dir / "t-0" if is_mounted else tmp_path / "far"
    log_dir.mkdir()
    (log_dir / "t-1").mkdir()
    with tmpfs(place):
        if not is_mounted:
            (log_dir / "t-0").symlink_to(place)
        assert str(log_dir / "t-0") in places_of([str(log_dir)], None)
        assert str(log_dir / "t-1") not in places_of([str(log_dir)], None)
        with held_file_systems(places_of([str(log_dir)], None)):
            assert place.stat().st_dev in write_back._held
