"""What a newcomer runs first: `python3 dev.py demo`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from native.kernels.cache import ENVIRONMENT, of_this_process
from tests import ROOT


@pytest.fixture
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demonstration_recovers_and_finds_nothing_left(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # In the environment that there is: another one would be made for a checkout that has none.
    monkeypatch.setattr(dev, "ENVIRONMENT", Path(sys.prefix))
    monkeypatch.setattr(dev, "make_environment", lambda **_: True)
    assert dev.main(["demo", "--bytes", "64MiB"]) == 0
    said = capfd.readouterr()
    first, second = said.out.split("Once more: there is nothing left to do.")
    assert re.search(r"^29 recovered ", first, re.MULTILINE)
    assert re.search(r"^29 unchanged, in ", second, re.MULTILINE)
    assert re.search(r"^2\. 64 MiB of logs are made here", second, re.MULTILINE)
    assert len(re.findall(r"^CUT .*/bench-\d: offsets \d+ to \d+", second, re.MULTILINE)) == 1
    assert re.search(
        r"^/.*/d1: run .*, 4 partitions, .* restored, .* of the run's own removed$", second, re.MULTILINE
    )
    assert "Traceback" not in said.err


def test_the_demonstration_goes_on_where_kafka_cannot_be_fetched(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Java, too, so that the machine need not have it.
    for name in ("java", "javac", "mvn"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\ncase $1 in *-version) exit ;; esac\necho "no network"\nexit 1\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(ENVIRONMENT, str(cast(Path, of_this_process().folder).parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dev, "ENVIRONMENT", Path(sys.prefix))
    monkeypatch.setattr(dev, "make_environment", lambda **_: True)
    assert dev.main(["demo", "--bytes", "64MiB"]) == 0
    said = capfd.readouterr()
    assert "made without a broker, and the topic has no settings: mvn failed: no network\n" in said.out
    assert len(re.findall(r"^CUT .*/bench-\d: offsets \d+ to \d+", said.out, re.MULTILINE)) == 1
    assert "Traceback" not in said.err


@pytest.mark.parametrize("what", ["environment", pytest.param("packages", marks=pytest.mark.long)])
def test_what_keeps_it_from_its_environment_is_said(
    what: str,
    dev: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "env"
    if what == "environment":
        place = tmp_path / "file" / "env"
        place.parent.write_text("no folder")
    else:
        monkeypatch.setenv("PIP_NO_INDEX", "1")  # no index can be reached
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(dev, "ENVIRONMENT", place)
    monkeypatch.setattr(dev, "STAMP", place / "made-from")
    assert dev.main(["demo"]) == 1
    said = capfd.readouterr().err
    assert f"the {what} could not be" in said or f"no {what} can be" in said
    assert "Remedy" in said
    assert "Traceback" not in said
    assert not dev.STAMP.exists()


def test_what_the_machine_lacks_is_said_before_the_tests(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def noted(*arguments: str) -> subprocess.CompletedProcess[str]:
        begun.append(arguments[1])
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(dev, "make_environment", lambda **_: True)
    monkeypatch.setattr(dev, "python", noted)
    assert dev.main(["test"]) == 0
    assert begun == ["tests.servers.machine", "pytest"]


@pytest.mark.parametrize(
    ("arguments", "is_all"), [((), True), (("tests/kafka",), True), (("--quick",), False)]
)
def test_what_the_tests_download_is_said_before(
    arguments: tuple[str, ...],
    is_all: bool,
    dev: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(dev, "make_environment", lambda **_: True)
    monkeypatch.setattr(dev, "python", lambda *run: subprocess.CompletedProcess(run, 0))
    assert dev.main(["test", *arguments]) == 0
    assert ("downloaded" in capfd.readouterr().err) is is_all


@pytest.mark.parametrize("asked", [["--help"], ["-h"], ["help"], ["clean", "--help"], ["docs", "-h"]])
def test_help_does_nothing_else(
    asked: list[str], dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev.shutil, "rmtree", None)
    monkeypatch.setattr(dev, "python", None)
    assert dev.main(asked) == 0
    said = capsys.readouterr().out
    assert ("python3 dev.py demo" in said) == (len(asked) == 1)
    assert asked[0] in said or len(asked) == 1


@pytest.mark.parametrize("command", ["check", "docs", "clean"])
def test_what_takes_no_arguments_refuses_them(
    command: str, dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev.shutil, "rmtree", None)
    monkeypatch.setattr(dev, "python", None)
    assert dev.main([command, "--dry-run"]) == 1
    assert f"{command} takes no arguments: --dry-run" in capsys.readouterr().err


def test_clean_leaves_what_it_did_not_make(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, caches, elsewhere = tmp_path / "checkout", tmp_path / "caches", tmp_path / "elsewhere"
    monkeypatch.setattr(dev, "ROOT", checkout)
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    ignored = {
        line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.endswith("/")
    }
    made = ignored - {"__pycache__", "*.egg-info", "target", ".cache"} | {"recovery/__pycache__"}
    kept = {checkout / "recovery", checkout / "notes", caches / "another", elsewhere}
    for folder in (*(checkout / name for name in made - {"build"}), caches / "kafka-log-recovery", *kept):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").touch()
    (checkout / "build").symlink_to(elsewhere)
    assert dev.main(["clean"]) == 0
    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {folder / "file" for folder in kept}
    assert not any((checkout / name).is_dir() for name in made - {"build"})


@pytest.mark.parametrize("arguments", [[], ["--quick"], ["tests/native", "-k", "crc"], ["-m", "not java"]])
def test_the_suites_are_side_by_side(dev: ModuleType, arguments: list[str]) -> None:
    assert dev.workers(arguments)[0] == "-n"


@pytest.mark.parametrize(
    "arguments", [["-n", "4"], ["-n0"], ["-p", "no:xdist"], ["-pno:xdist"], ["--pdb"], ["--trace"], ["-s"]]
)
def test_they_are_not_where_that_is_asked_for(dev: ModuleType, arguments: list[str]) -> None:
    assert dev.workers(["tests/native", *arguments]) == []
