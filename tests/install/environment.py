"""Empty Python environments with this project in them, installed as the README says, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.patience import LONGEST_WAIT_SECONDS

PARTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "segfmt", "native", "recovery")
"""What a wheel is made from: no tests are there, no benchmarks, no leftovers of another build."""
_NOT_FOR_OTHERS = ("PYTHON", "PYTEST", "COVERAGE", "SPARK_", "PYSPARK_", "VIRTUAL_ENV", "XDG_CACHE_HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment, and the folder in which commands run.

    Attributes:
        path: of the environment.
        folder: nothing of this project is in it.
    """

    path: Path
    folder: Path

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line as a user types it, with a home of its own."""
        variables = {name: one for name, one in os.environ.items() if not name.startswith(_NOT_FOR_OTHERS)}
        variables |= {
            "PATH": f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
        }
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_WAIT_SECONDS,
        )

    def script(self, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program."""
        path = self.folder / "script.py"
        path.write_text(source)
        return self.shell(" ".join(["python", str(path), *arguments]))


@contextmanager
def project_copy() -> Iterator[Path]:
    """Yield a folder with all that a wheel is made from; it goes with what was made in it."""
    with tempfile.TemporaryDirectory(prefix="kafka-log-recovery-project-") as name:
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, Path(name) / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, name)
        yield Path(name)


@contextmanager
def environment(project: Path, install: str) -> Iterator[Environment]:
    """Yield an environment in which *install*, a command of the README, was run in the folder *project*.

    Environments with Spark have a gigabyte, so they go at once; pip's cache has the packages for the next one.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-log-recovery-install-") as name:
        made = Environment(path=Path(name) / "env", folder=Path(name) / "folder")
        (made.folder / "home").mkdir(parents=True)
        venv.create(made.path, with_pip=False)
        run_pip(project, install, made.path)
        yield made


def run_pip(project: Path, command: str, into: Path | None = None) -> None:
    """Run a `pip` command of the README in the folder *project*, on the environment *into*."""
    words = command.partition("#")[0].strip()
    assert words.startswith("pip "), command
    place = "" if into is None else f"--python '{into / 'bin' / 'python'}'"
    pip = f"'{sys.executable}' -m pip --quiet --disable-pip-version-check {place}"
    # Python compiles what is imported, which takes half the time of an installation if pip does it for all modules.
    # pip reads its negative options the other way round: 0 is `--no-compile`.
    done = subprocess.run(
        ["sh", "-c", f"{pip} {words.removeprefix('pip ')}"],
        cwd=project,
        env=os.environ | {"PIP_NO_COMPILE": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT_SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
