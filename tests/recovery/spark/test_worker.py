"""The tuning of Python workers: it is done once, it can be switched off, and it misses no change of an archive."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.spark import worker
from tests.patience import LONGEST_WAIT_SECONDS


@pytest.fixture
def as_before() -> Iterator[None]:
    """Whatever the test does to this process is taken back."""
    python_reads = zipimport.zipimporter.invalidate_caches
    yield
    zipimport.zipimporter.invalidate_caches = python_reads
    gc.unfreeze()
    worker._frozen_modules = 0


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "modules.zip"
    write(path, "first_of_zip")
    monkeypatch.syspath_prepend(str(path))
    for name in ("first_of_zip", "second_of_zip"):  # another test's
        sys.modules.pop(name, None)
    assert importlib.import_module("first_of_zip").NAME == "first_of_zip"
    return path


def write(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"{name}.py", f"NAME = {name!r}\n")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Archives whose directory was read."""
    found: list[str] = []
    read = zipimport._read_directory

    def noted(archive: str) -> object:
        found.append(archive)
        return read(archive)

    monkeypatch.setattr(zipimport, "_read_directory", noted)
    return found


@pytest.mark.usefixtures("as_before")
class TestZipDirectories:
    def test_are_read_by_python_each_time(self, archive: Path) -> None:
        """What the tuning is against; should Python no longer do it, there is nothing to tune."""
        if sys.version_info < (3, 13):
            importer = sys.path_importer_cache[str(archive)]
            write(archive, "first_of_zip", "second_of_zip")
            importer.invalidate_caches()
            assert importer.find_spec("second_of_zip") is not None

    @pytest.mark.parametrize(
        ("version", "is_tuned"), [("4.1.4", True), ("4.2.0", False), ("4.3.0.dev1", False)]
    )
    def test_are_kept_before_spark_4_2(
        self,
        archive: Path,
        readings: list[str],
        monkeypatch: pytest.MonkeyPatch,
        version: str,
        is_tuned: bool,
    ) -> None:
        monkeypatch.setattr(worker, "_spark_version", lambda: tuple(map(int, version.split(".")[:2])))
        worker.prepare_worker()
        assert (zipimport.zipimporter.invalidate_caches is worker._read_if_changed) is is_tuned
        readings.clear()
        importlib.invalidate_caches()
        assert not (is_tuned and str(archive) in readings)

    def test_of_a_changed_archive_are_read(
        self, archive: Path, readings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker, "_spark_version", lambda: (4, 1))
        worker.prepare_worker()
        importlib.invalidate_caches()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("second_of_zip")
        write(archive, "first_of_zip", "second_of_zip")
        importlib.invalidate_caches()
        assert importlib.import_module("second_of_zip").NAME == "second_of_zip"

    def test_of_an_archive_that_is_gone_are_forgotten(
        self, archive: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker, "_spark_version", lambda: (4, 1))
        worker.prepare_worker()
        archive.unlink()
        importlib.invalidate_caches()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("third_of_zip")

    def test_the_switch_turns_all_of_it_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(worker, "_spark_version", lambda: (4, 1))
        monkeypatch.setenv(worker.SWITCH, "0")
        frozen = gc.get_freeze_count()
        worker.prepare_worker()
        assert zipimport.zipimporter.invalidate_caches is not worker._read_if_changed
        assert gc.get_freeze_count() == frozen


@pytest.mark.usefixtures("as_before")
def test_modules_are_frozen_once_until_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_spark_version", lambda: (4, 3))
    worker.prepare_worker()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    later = [[] for _ in range(5000)]
    worker.prepare_worker()
    assert gc.get_freeze_count() < frozen + len(later)
    monkeypatch.setitem(sys.modules, "one_more_module", sys)
    worker.prepare_worker()
    assert gc.get_freeze_count() >= frozen + len(later) // 2  # of what was frozen before, some may be gone


def test_the_version_is_that_of_pyspark() -> None:
    import pyspark

    assert worker._spark_version() == tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def test_nothing_of_spark_is_imported_by_the_command_line() -> None:
    program = (
        "import sys, recovery, recovery.cli.main; "
        "print(sorted({'pyspark', 'pyarrow', 'obstore', 'recovery.spark'} & sys.modules.keys()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=LONGEST_WAIT_SECONDS,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
