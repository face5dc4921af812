"""`kafka-log-recovery completion`: a shell asks it, as on a Tab."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runs.command import run

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "kafka-log-recovery"
    path.write_text(run("completion", "bash").stdout)
    return path


def completed(script: Path, *words: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last of *words*."""
    typed = shlex.join(words)
    asked = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; "
        f"$(complete -p kafka-log-recovery | sed 's/.*-F \\([^ ]*\\).*/\\1/') kafka-log-recovery "
        f"{shlex.quote(words[-1])} {shlex.quote(words[-2])}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, cwd=cwd)
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def test_commands_options_and_choices_are_offered(script: Path) -> None:
    assert {"recover", "undo", "verify", "archive"} <= completed(script, "kafka-log-recovery", "")
    assert completed(script, "kafka-log-recovery", "recover", "--dry") == {"--dry-run"}
    assert completed(script, "kafka-log-recovery", "archive", "ret") == {"retention"}
    assert completed(script, "kafka-log-recovery", "recover", "--format", "") == {"text", "json"}


def test_paths_are_offered(script: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "server.properties").touch()
    offered = completed(script, "kafka-log-recovery", "recover", "-c", "", cwd=tmp_path)
    assert {one.rstrip("/") for one in offered} == {"data", "server.properties"}
    assert {
        one.rstrip("/")
        for one in completed(script, "kafka-log-recovery", "recover", "--log-dirs", "", cwd=tmp_path)
    } == {"data"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_it_can_read(shell: str, tmp_path: Path) -> None:
    done = run("completion", shell)
    assert (done.exit_code, done.stderr) == (0, "")
    for word in ("kafka-log-recovery", "retention", "max-bytes-per-second"):
        assert word in done.stdout
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(done.stdout)
        assert subprocess.run([shell, "-n", path], check=False).returncode == 0


def test_another_shell_is_refused_with_those_there_are() -> None:
    done = run("completion", "bsh")
    assert done.exit_code == 1
    assert "is bash meant?" in done.stderr
