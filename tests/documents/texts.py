"""The texts of this project, the blocks of code in its documents, and a test that lists what offends in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("sample_logs/*.md")])
OPERATORS = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
"""Language and content of a block."""


@cache
def text_of(path: Path) -> str:
    """The whole text."""
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    """The path of a text below the project's folder."""
    return str(path.relative_to(ROOT))


def assert_none(offenders: Iterable[str]) -> None:
    """Fail with a line for each offender."""
    found = list(offenders)
    assert not found, "\n".join(["", *found])


def without_fences(text: str) -> str:
    """A document without its blocks."""
    return FENCE.sub("", text)


def fences(text: str) -> str:
    """The blocks of a document alone."""
    return "\n".join(code for _, code in FENCE.findall(text))


def section_of(path: Path, heading: str) -> str:
    """What stands below a *heading* (`## Rules`) of a document, up to the next one of level 2."""
    text = text_of(path)
    assert f"\n{heading}\n" in text, f"{name_of(path)} has no {heading}"
    return text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
