"""The known name that somebody meant who gave another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def similar_names(name: str, known: Iterable[str], *, least: float = 0.6, most: int = 1) -> list[str]:
    """Return those of the *known* names that are similar to *name*, the most similar first.

    Args:
        name: what was given.
        known: what could have been given.
        least: how similar they are at least, from 0 to 1: twice the letters they share over the letters of both.
        most: how many are returned at most.
    """
    import difflib  # only needed after a mistake

    return difflib.get_close_matches(name, [*known], n=most, cutoff=least)


def question(meant: Sequence[str]) -> str:
    """Return the end of a sentence that asks whether these names were *meant*; empty if there are none."""
    return f"; is {' and '.join(meant)} meant?" if meant else ""
