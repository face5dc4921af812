"""A reader that goes before it has the report: every command says so and ends with 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from recovery.cli.main import main
from tests.logs.archives import made_copies, write_archive
from tests.logs.samples import unpack

_COMMANDS = {
    "archive inventory": ["archive", "inventory", "{archive}"],
    "archive verify": ["archive", "verify", "{archive}", "--engine", "process", "--progress", "none"],
    "archive recover": [
        "archive",
        "recover",
        "{archive}",
        "--in-place",
        "--engine",
        "process",
        "--progress",
        "none",
    ],
    "verify": ["verify", "--log-dirs", "{log_dir}", "--progress", "none"],
    "recover": ["recover", "--log-dirs", "{log_dir}", "--dry-run", "--progress", "none"],
    "quarantine list": ["quarantine", "list", "--log-dirs", "{log_dir}"],
}


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_reader_that_has_gone(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=1))
    log_dir = unpack("intact", tmp_path / "sample").log_dirs[0]
    read, write = os.pipe()
    os.close(read)
    arguments = [part.format(archive=tmp_path / "archive", log_dir=log_dir) for part in _COMMANDS[command]]
    with open(write, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        code = main(arguments)
    told = capsys.readouterr().err.splitlines()
    assert (code, len(told)) == (1, 1), told
    assert "the report could not be written: Broken pipe" in told[0]
