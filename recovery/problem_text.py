"""Problems as text for people: what is the same of several files is told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recovery.printable import shell_word
from recovery.problem import Problem
from recovery.quantity import listed_text

_MOST_NAMED = 3
"""Files that a text about several with the same problem names."""


def problem_texts(problems: Iterable[Problem], folder: str) -> Iterator[str]:
    """Yield *problems* of what is in *folder*: what is the same of several files once, with their names."""
    alike: dict[str, list[Problem]] = {}
    for problem in problems:
        text = f"{problem.detail}. Remedy: {shared_remedy(problem, folder)}"
        alike.setdefault(text, []).append(problem)
    for text, ones in alike.items():
        names = sorted({problem.file for problem in ones})
        yield str(ones[0]) if len(ones) == 1 else f"{listed_text(names, _MOST_NAMED)}: {text}"


def shared_remedy(problem: Problem, folder: str) -> str:
    """Return the remedy for all files with the same problem, of which *folder* has all."""
    return problem.remedy if problem.remedy_below is None else f"{problem.remedy_below} {shell_word(folder)}"
