"""Lines of a report, of which many may say the same of several files: these are counted, and so is what is too long."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from recovery.quantity import count_text

_MOST_LINES = 20
_MOST_ALIKE = 3
"""Lines that differ in the file alone, and are listed each."""


def alike_lines(told: Iterable[tuple[Hashable, str]], noun: str, *, is_each: bool) -> list[str]:
    """Return lines for one screen, or each of them: those that say the same together.

    Args:
        told: what a line says, the same of each file, and the line.
        noun: what a line is about: "file", "object".
    """
    groups: dict[Hashable, list[str]] = {}
    for said, line in told:
        groups.setdefault(said, []).append(line)
    if is_each:
        return [line for alike in groups.values() for line in alike]
    lines: list[str] = []
    for alike in groups.values():
        lines += alike[: 1 if len(alike) > _MOST_ALIKE else _MOST_ALIKE]
        if len(alike) > _MOST_ALIKE:
            lines.append(f"    the same of {count_text(len(alike) - 1, f'more {noun}')} (-v lists them)")
    if len(lines) > _MOST_LINES:
        more = count_text(len(lines) - _MOST_LINES, "more line")
        lines = [*lines[:_MOST_LINES], f"... {more} (-v lists them)"]
    return lines
