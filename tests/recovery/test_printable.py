"""A path in a command that is printed is that path when the command is typed."""

from __future__ import annotations

import os
import subprocess

import pytest

from recovery.printable import printable, shell_line, shell_word

_WORDS = (
    b"/d1", b"/d 1", b"/d'1", b'/d"1', b"/d\\1", b"/d\n1", b"/\x1b[31m", b"/\xff\xfe", b"/d1\x010", "/ä€".encode(),
    "/ä\n'\\".encode(), b"$HOME", b"",
)  # fmt: skip


@pytest.mark.parametrize("word", _WORDS)
def test_bash_reads_what_was_meant(word: bytes) -> None:
    line = shell_line(["printf", "%s", os.fsdecode(word)])
    assert printable(line) == line
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == word


def test_what_is_plain_stays() -> None:
    assert shell_word("/data/kafka") == "/data/kafka"
