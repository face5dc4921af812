"""`warm`: kernels are compiled beforehand, where it is said, and other users find them there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from native import kernels
from native.kernels import cache
from tests import ROOT
from tests.runs.command import assert_one_line, run

pytestmark = pytest.mark.long

NOBODY = 65534
PROGRAM = f"""\
import os
from native import kernels, segment_scan
os.setegid({NOBODY})
os.seteuid({NOBODY})
segment_scan.warm_up()
print(kernels.account().origin.value, kernels.account().remark)
"""


def test_all_kernels_are_where_they_were_to_go_and_another_user_takes_them(ram_path: Path) -> None:
    ram_path.chmod(0o755)
    kept = ram_path / "kernels"
    done = run("warm", "--kernel-cache", kept)
    assert done.exit_code == 0, done.stderr
    assert "compiling the kernels for this CPU" in done.stderr
    assert done.stdout.startswith(f"{len(kernels.ALL)} kernels for ")
    (folder,) = kept.glob("kernels-*")
    assert done.stdout.rstrip().endswith(f" s, in {folder}")
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {
        "target",
        *(kernel.function for kernel in kernels.ALL),
    }
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o022 for path in folder.iterdir())
    again = run("warm", "--kernel-cache", kept)
    assert "there already" in again.stdout
    if os.geteuid() == 0:
        other = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env=os.environ | {cache.ENVIRONMENT: str(kept), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert other.stdout == "cache \n"


def test_a_place_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = run("warm", "--kernel-cache", tmp_path / "file" / "kernels")
    assert done.exit_code == 1
    assert_one_line(
        done, "nothing can be kept: ", "Remedy: name another folder with --kernel-cache"
    )  # nor compiled


@pytest.mark.parametrize("name", ["KAFKA_LOG_RECOVERY_KERNELS=numba", "NUMBA_BOUNDSCHECK=1"])
def test_an_environment_in_which_none_is_kept(tmp_path: Path, name: str) -> None:
    variable, _, value = name.partition("=")
    done = run("warm", "--kernel-cache", tmp_path / "kernels", env=os.environ | {variable: value})
    assert done.exit_code == 1
    assert_one_line(done, variable, "is set, with which no kernel is kept. Remedy: unset it")


def test_a_system_folder_is_taken_where_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (cache.ENVIRONMENT, "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    system = tmp_path / "system"
    monkeypatch.setattr(cache, "_SYSTEM_FOLDER", system)
    own = Path("~/.cache/kafka-log-recovery").expanduser()
    assert cache._root("kernels-x") == own
    system.mkdir()
    assert cache._root("kernels-x") == system
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache._root("kernels-x") == own
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache._root("kernels-x") == Path("/caches/kafka-log-recovery")
    (system / "kernels-x").mkdir()
    assert cache._root("kernels-x") == system
    monkeypatch.setenv(cache.ENVIRONMENT, "/elsewhere")
    assert cache._root("kernels-x") == Path("/elsewhere")
