"""Lines of a report, of which many may say the same of several files: these are counted, and so is what is too long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.quantity import count_text

_MOST_LINES = 20
_MOST_ALIKE = 3
"""Lines that differ in the file alone, and are listed each."""


def alike_lines(groups: Iterable[Sequence[str]], noun: str, *, is_each: bool) -> list[str]:
    """Return the lines of *groups* for one screen, or each of them.

    Args:
        groups: lines that say the same, each of another file.
        noun: what such a line is about: "file", "object".
    """
    if is_each:
        return [line for alike in groups for line in alike]
    lines: list[str] = []
    for alike in groups:
        lines += alike[: 1 if len(alike) > _MOST_ALIKE else _MOST_ALIKE]
        if len(alike) > _MOST_ALIKE:
            lines.append(f"    the same of {count_text(len(alike) - 1, f'more {noun}')} (-v lists them)")
    if len(lines) > _MOST_LINES:
        more = count_text(len(lines) - _MOST_LINES, "more line")
        lines = [*lines[:_MOST_LINES], f"... {more} (-v lists them)"]
    return lines
