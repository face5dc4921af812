"""Started in a folder of somebody else: nothing that lies there is run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import ROOT
from tests.logs.samples import unpack
from tests.runs.command import recover

pytestmark = pytest.mark.long

MODULES = ("numpy", "recovery", "native", "segfmt", "multiprocessing", "selectors", "pickle", "numba", "rich")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with modules that leave a mark when they are run."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    plant(folder, MODULES)
    return folder


def plant(folder: Path, modules: Iterable[str]) -> None:
    """Make modules that write down that they were imported, and by whom, and are of no other use."""
    for name in modules:
        # Before anything else is imported: `sys` is built in.
        mark = f"import sys\nopen({str(folder / 'ran')!r}, 'a').write(f'{name}: {{sys.orig_argv}}\\n')\n"
        (folder / f"{name}.py").write_text(mark + "raise SystemExit(9)\n")


def environment(**more: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | more


SCRIPT = "import sys; sys.path.pop(0); from recovery.cli.main import main; sys.exit(main())"
COMMANDS = {
    "installed": ([sys.executable, "-P", "-m", "recovery"], {}),
    "script": ([sys.executable, "-c", SCRIPT], {}),
    "not installed": ([sys.executable, "-P", "-m", "recovery"], {"PYTHONPATH": str(ROOT)}),
}  # fmt: skip


@pytest.mark.parametrize("processes", ["always", "never"])
@pytest.mark.parametrize("way", COMMANDS)
def test_a_recovery(tmp_path: Path, foreign: Path, way: str, processes: str) -> None:
    sample = unpack("crashed", tmp_path)
    command, more = COMMANDS[way]
    done = recover(sample, "--processes", processes, command=command, cwd=foreign, env=environment(**more))
    assert not (foreign / "ran").exists(), (foreign / "ran").read_text()
    assert done.exit_code == 0, done.stderr


def test_python_m_does_not_go_on_looking_there(tmp_path: Path, foreign: Path) -> None:
    """It finds the package first, wherever that is; what is imported later comes from elsewhere."""
    for name in ("recovery", "native", "segfmt"):
        (foreign / f"{name}.py").unlink()
    sample = unpack("crashed", tmp_path)
    command = [sys.executable, "-m", "recovery"]
    done = recover(sample, "--processes", "always", command=command, cwd=foreign, env=environment())
    assert not (foreign / "ran").exists(), (foreign / "ran").read_text()
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("processes", ["always", "never"])
def test_a_checkout_that_is_the_working_folder(tmp_path: Path, processes: str) -> None:
    sample = unpack("crashed", tmp_path)
    done = recover(sample, "--processes", processes, cwd=ROOT, env=environment())
    assert done.exit_code == 0, done.stderr


def test_a_library_call_from_a_checkout(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    program = (
        "import sys, recovery; "
        f"report = recovery.recover({[str(one) for one in sample.log_dirs]!r}, now_ms={sample.now_ms}, "
        "processes='always'); sys.exit(report.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(), check=False)
    assert done.returncode == 0
