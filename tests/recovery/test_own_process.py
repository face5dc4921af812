"""The packages of this project have short names, which others may have as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import recovery
from recovery.own_process import own_folder, refuse_foreign_packages
from recovery.version import VERSION


@pytest.mark.parametrize("name", ["native", "segfmt"])
def test_a_package_of_others_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "recovery.cli.main", "recover", "--log-dirs", "/nowhere"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{own_folder()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"the package {name} that Python finds is not that of kafka-log-recovery: {tmp_path}/{name}"
        in done.stderr
    )
    assert "Remedy: install" in done.stderr


def test_ours_are_taken() -> None:
    refuse_foreign_packages()


def test_the_library_tells_its_version() -> None:
    assert recovery.__version__ == VERSION
