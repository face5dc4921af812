"""What the site has beside docs/: the README as its home page, and the documents that lie elsewhere in the project.

MkDocs calls the two functions whose names begin with `on_` (mkdocs.yml). GitHub shows the documents where they lie.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/CONTRIBUTING.md",
    "CHANGELOG.md": "project/CHANGELOG.md",
    "LICENSE": "project/LICENSE.txt",
    "benchmarks/README.md": "project/benchmarks.md",
    "sample_logs/README.md": "project/sample-logs.md",
}
"""Paths in the project -> paths in the site."""

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"`[^`\n]+`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents that are not in docs/."""
    from mkdocs.structure.files import File

    for source, target in ELSEWHERE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the text of a page for the site: its links lead to pages, and pipes in the code of tables are pipes."""
    return for_site(markdown, page.file.src_uri)


def for_site(markdown: str, page: str) -> str:
    """Return the text of *page*, a path in the site, with links and tables as the site needs them."""
    source = next((path for path, target in ELSEWHERE.items() if target == page), f"docs/{page}")

    def linked(match: re.Match[str]) -> str:
        return f"{match[1]}{site_link(match[2], source, page)}{match[3]}"

    lines = _LINK.sub(linked, markdown).split("\n")
    return "\n".join(
        # GitHub wants these escaped in tables; Markdown's own code shows the backslash.
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in lines
    )


def site_link(link: str, source: str, page: str) -> str:
    """Return where a *link* leads that stands in the file *source* of the project, from its *page* of the site."""
    if re.match(r"\w+:|#", link):
        return link
    path, mark, anchor = link.partition("#")
    in_project = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    in_site = ELSEWHERE.get(in_project, in_project.removeprefix("docs/"))
    return posixpath.relpath(in_site, posixpath.dirname(page) or ".") + mark + anchor
