"""The documents of this project, and the blocks of code in them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("sample_logs/*.md")])
OPERATORS = [ROOT / "README.md", *ROOT.glob("docs/*.md")]

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
"""Language and content of a block."""


@cache
def text_of(path: Path) -> str:
    """The whole document."""
    return path.read_text(encoding="utf-8")


def without_fences(text: str) -> str:
    """A document without its blocks."""
    return FENCE.sub("", text)


def fences(text: str) -> str:
    """The blocks of a document alone."""
    return "\n".join(code for _, code in FENCE.findall(text))
