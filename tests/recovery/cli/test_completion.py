"""`kafka-log-recovery completion`: a shell asks it, as on a Tab."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import run
from tests.servers.machine import SHELLS, needs


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell, under the name by which the shell finds it."""
    folder = tmp_path_factory.mktemp("completion")
    for shell, name in (("bash", "bash"), ("zsh", "_kafka-log-recovery"), ("fish", "fish")):
        done = run("completion", shell)
        assert (done.exit_code, done.stderr) == (0, "")
        (folder / name).write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def script(scripts: Path) -> Path:
    return scripts / "bash"


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
    assert completed(script, "kafka-log-recovery", "help", "quar") == {"quarantine"}
    assert completed(script, "kafka-log-recovery", "help", "quarantine", "pur") == {"purge"}
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


class Zsh:
    """An interactive zsh on a terminal of its own, whose keyboard we are."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def types(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def waits_for(self, shown: str) -> None:
        """Read what it shows until *shown* is there."""
        seen, latest = "", time.monotonic() + LONGEST_WAIT_SECONDS
        while shown not in seen:
            readable, *_ = select.select([self._terminal], [], [], max(latest - time.monotonic(), 0))
            assert readable, f"{shown!r} is not in {seen!r}"
            seen += os.read(self._terminal, 1 << 16).decode(errors="replace")


@contextmanager
def zsh(home: Path, functions: Path) -> Iterator[Zsh]:
    keyboard, terminal = pty.openpty()
    started = subprocess.Popen(
        ["setsid", "--ctty", "--wait", "zsh", "-f", "-i"],
        env={**os.environ, "HOME": str(home), "TERM": "dumb", "PS1": ""},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shell = Zsh(keyboard)
    try:
        shell.types(
            f"fpath=({shlex.quote(str(functions))} $fpath); autoload -Uz compinit; compinit -u; echo re''ady\n"
        )
        shell.waits_for("ready")
        yield shell
    finally:
        os.close(keyboard)  # a hangup
        started.wait()


def completed_by_fish(scripts: Path, typed: str) -> set[str]:
    """What fish offers for the end of *typed*."""
    asked = f"source {shlex.quote(str(scripts / 'fish'))}; complete -C {shlex.quote(typed)}"
    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=True)
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@needs(SHELLS)
def test_help_is_followed_by_what_it_can_show(scripts: Path) -> None:
    commands = completed_by_fish(scripts, "kafka-log-recovery help ") - {"-h", "--help"}
    assert commands == completed_by_fish(scripts, "kafka-log-recovery ") - {
        "help",
        "-h",
        "--help",
        "--version",
    }
    below = completed_by_fish(scripts, "kafka-log-recovery help quarantine ")
    assert {"list", "purge"} <= below
    assert not below & commands


@needs(SHELLS)
def test_what_is_offered_has_a_short_line(scripts: Path) -> None:
    asked = f"source {shlex.quote(str(scripts / 'fish'))}; complete -C 'kafka-log-recovery recover --'"
    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=True)
    lines = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert lines["--dry-run"]
    assert max(map(len, lines.values())) < 120, max(lines.values(), key=len)


@needs(SHELLS)
def test_fish_completes_as_bash_does(scripts: Path) -> None:
    assert {"recover", "undo", "verify", "archive"} <= completed_by_fish(scripts, "kafka-log-recovery ")
    assert completed_by_fish(scripts, "kafka-log-recovery recover --dry") == {"--dry-run"}
    assert completed_by_fish(scripts, "kafka-log-recovery archive ret") == {"retention"}
    assert completed_by_fish(scripts, "kafka-log-recovery recover --format ") == {"text", "json"}


@needs(SHELLS)
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kafka-log-recovery und", "kafka-log-recovery undo "),
        ("kafka-log-recovery archive ret", "kafka-log-recovery archive retention "),
        ("kafka-log-recovery recover --dry", "kafka-log-recovery recover --dry-run "),
    ],
)
def test_zsh_completes_as_bash_does(typed: str, completed: str, scripts: Path, tmp_path: Path) -> None:
    with zsh(tmp_path, scripts) as shell:
        shell.types(f"{typed}\t")
        shell.waits_for(completed)


def test_another_shell_is_refused_with_those_there_are() -> None:
    done = run("completion", "bsh")
    assert done.exit_code == 1
    assert "is bash meant?" in done.stderr
