"""The site has every document once, and what its links say is true there as well (docs/site_hooks.py)."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import terminal_picture
from tests import ROOT
from tests.documents.texts import text_of


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_names_each_document_once(hooks: ModuleType) -> None:
    named = re.findall(r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    elsewhere = {target for target in hooks.ELSEWHERE.values() if target.endswith(".md")}
    assert sorted(named) == sorted(documents | elsewhere)


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("docs/operate/watch.md#as-a-liveness-probe", "index.md", "operate/watch.md#as-a-liveness-probe"),
        ("../README.md", "project/benchmarks.md", "../index.md"),
        ("../../benchmarks/README.md", "internals/performance.md", "../project/benchmarks.md"),
        ("../docs/internals/performance.md", "project/benchmarks.md", "../internals/performance.md"),
        ("watch.md", "operate/deploy.md", "watch.md"),
        ("#exit-codes", "operate/deploy.md", "#exit-codes"),
        (
            "https://keepachangelog.com/en/1.1.0/",
            "project/CHANGELOG.md",
            "https://keepachangelog.com/en/1.1.0/",
        ),
    ],
)
def test_a_link_leads_to_the_page_of_its_document(
    hooks: ModuleType, link: str, page: str, expected: str
) -> None:
    assert hooks.for_site(f"see [this]({link}).", page) == f"see [this]({expected})."


def test_pipes_in_the_code_of_tables_are_pipes(hooks: ModuleType) -> None:
    assert hooks.for_site("| `auto\\|bar` | a \\| b |\n`a\\|b`", "operate/watch.md") == (
        "| `auto|bar` | a \\| b |\n`a\\|b`"
    )


def test_the_picture_of_a_terminal_is_what_the_view_shows(tmp_path: Path) -> None:
    made = tmp_path / "terminal.svg"
    terminal_picture.main(made)
    drawn = text_in(made)
    assert "loses offsets 81377 to 96560" in drawn
    assert drawn == text_in(ROOT / "docs/pictures/terminal.svg"), "python -m benchmarks.terminal_picture"


def text_in(picture: Path) -> str:
    """The words in an SVG file."""
    words = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))
    return html.unescape(" ".join(words)).replace("\xa0", " ")
