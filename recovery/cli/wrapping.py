"""Lines that fit the screen: broken between words, but never within a command, which is typed as it stands."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from textwrap import TextWrapper, fill
from typing import TextIO

_COMMAND = re.compile(r"(?:(?<=: )|(?<=  ))kafka-[a-z-]+(?:\.sh)? .*$")
_USAGE_PART = re.compile(r"--\S+ [A-Z]\S*|\([^)]*\)")
"""What a usage has in one line: an option with its value, and a group."""
_HANGING = 4
_USAGE_HANGING = len("usage: ")
_JOINT = "\0"  # stands for a blank that is no place for a break; no printable text has it


def for_terminal(text: str, stream: TextIO) -> str:
    """Return *text* as *stream* is to get it: with its lines broken if it is a terminal, else as it is."""
    return wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def wrapped(text: str, width: int) -> str:
    """Return *text* with lines of at most *width* columns, where words and commands allow it.

    What follows a break is indented by four more columns than its line.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, width))


def wrapped_usage(line: str, width: int) -> str:
    """Return a usage with lines of at most *width* columns, broken between options and groups alone."""
    joined = _joined(_USAGE_PART, line)
    filled = fill(
        joined,
        max(width, 2 * _USAGE_HANGING),
        subsequent_indent=" " * _USAGE_HANGING,
        break_on_hyphens=False,
    )
    return filled.replace(_JOINT, " ")


def _joined(unbroken: re.Pattern[str], line: str) -> str:
    return unbroken.sub(lambda part: part[0].replace(" ", _JOINT), line)


def _pieces(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
        return
    joined = _joined(_COMMAND, line)
    body = joined.lstrip(" ")
    indent = len(line) - len(body)
    hanging = indent + _HANGING
    wrapper = TextWrapper(
        width=max(width, 2 * hanging),
        initial_indent=" " * indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    yield from (piece.replace(_JOINT, " ") for piece in wrapper.wrap(body))
