"""Text that is safe to print: names on disk may hold any byte, and a terminal obeys some of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable


def is_utf8(name: str) -> bool:
    """Return whether *name*, as Python has it, has only bytes that are UTF-8: a store lists no others."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def printable(text: str) -> str:
    r"""Return *text* with control characters and bytes that are not UTF-8 escaped, as "\x1b" or "\udcff"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shell_word(text: str) -> str:
    r"""Return *text* quoted for a shell; if it has control characters, or bytes that are no text, for bash and zsh.

    "/d1" stays, "/d 1" becomes "'/d 1'", a line feed "$'/d\\x0a1'".
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\\\" else f"\\x{byte:02x}"
        for byte in os.fsencode(text)
    )
    return f"$'{escaped}'"


def shell_line(words: Iterable[str]) -> str:
    """Return the line for a shell that is split into *words*."""
    return " ".join(map(shell_word, words))
