"""Started in a folder of somebody else: neither the driver nor Spark's workers run what lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.cli.test_foreign_folder import COMMANDS, environment, plant
from tests.runs.command import Done, run

pytestmark = pytest.mark.spark

MODULES = (
    *("recovery", "native", "segfmt", "numpy", "numba", "pandas", "pyarrow", "pyspark", "py4j", "zstandard"),
    *("json", "pickle", "socket", "selectors", "struct", "signal", "zipimport", "multiprocessing", "sitecustomize"),
)  # fmt: skip
ONE_WORKER = ("--master", "local[1]", "--progress", "none", "--format", "json")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with modules that Spark's processes import as well."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    plant(folder, MODULES)
    return folder


def verify(archive: TieredArchive, foreign: Path, way: str, **more: str) -> Done:
    command, own = COMMANDS[way]
    environs = environment(**own, **more)
    return run("archive", "verify", archive.path, *ONE_WORKER, command=command, cwd=foreign, env=environs)


@pytest.mark.parametrize("way", COMMANDS)
def test_nothing_of_it_is_imported(stored_archive: TieredArchive, foreign: Path, way: str) -> None:
    done = verify(stored_archive, foreign, way)
    assert not (foreign / "ran").exists(), (foreign / "ran").read_text()
    assert (done.exit_code, done.stderr) == (0, "")  # Spark says nothing
    summary = done.report["summary"]
    assert summary["segments"] > 0  # the workers have done their work
    assert summary["unchecked"] == 0


def test_it_would_be_seen(stored_archive: TieredArchive, foreign: Path) -> None:
    """With Python's own way of starting a worker, it is one of Spark's processes that imports what lies there."""
    done = verify(stored_archive, foreign, "installed", PYTHONSAFEPATH="")
    assert done.exit_code == 1
    assert "'-m', 'pyspark.daemon'" in (foreign / "ran").read_text()
