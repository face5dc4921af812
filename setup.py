"""The manual pages of a wheel, made from the parsers of the command line, and its long description.

The README's links lead to files of the project. KAFKA_LOG_RECOVERY_URL, if set, is where these can be read: the page of
the repository. All else is in pyproject.toml.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from argparse_manpage.manpage import Manpage
from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
URL = os.environ.get("KAFKA_LOG_RECOVERY_URL", "").rstrip("/")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


class BuildWithManual(build_py):
    """Builds the modules, and a page for each command."""

    def run(self) -> None:
        """Write the pages beside the modules, and have them installed where `man` looks."""
        super().run()
        if self.editable_mode:
            return  # nothing of it is copied then
        sys.path.insert(0, str(ROOT))
        from recovery.cli.main import build_parser  # it needs nothing beyond Python

        folder = Path(self.build_lib).parent / "man1"
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for parser in [*_commands(build_parser())]:
            path = folder / f"{parser.prog.replace(' ', '-')}.1"
            path.write_text(_page(parser, self.distribution.get_version()))
            paths.append(str(path))
        self.distribution.data_files = [("share/man/man1", paths)]


def long_description(text: str) -> str:
    """Return the README's *text* with links that work anywhere; without URL the words alone, and no pictures."""

    def outside(link: re.Match[str]) -> str:
        is_picture, words, target = link.groups()
        if URL:
            return f"{is_picture}[{words}]({URL}/{'raw' if is_picture else 'blob'}/v{VERSION}/{target})"
        return "" if is_picture else words

    return _LINK.sub(outside, text)


def _commands(parser: argparse.ArgumentParser, summary: str = "") -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of all commands below it, each with its line in the list of commands."""
    parser.man_short_description = summary or parser.description  # type: ignore[attr-defined]  # Manpage looks there
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from _commands(command, lines.get(name, ""))


def _page(parser: argparse.ArgumentParser, version: str) -> str:
    """Return the page of a command, with what stands below its options in sections of its own."""
    epilog, parser.epilog = parser.epilog or "", None
    below = _list_commands(parser)
    page = Manpage(parser, _data={"project_name": "kafka-log-recovery", "version": version, "date": " "})
    page.prog = parser.prog.replace(" ", "-")
    page.manual = "kafka-log-recovery"
    for block in epilog.strip().split("\n\n"):
        title, _, text = block.partition(":\n")
        is_titled = title in ("examples", "exit codes")
        heading = {"examples": "examples", "exit codes": "exit status"}[title] if is_titled else "notes"
        body = text if is_titled else block
        if body:
            page.add_section(heading, ">", f".nf\n{_escaped(body)}\n.fi\n")
    others = {"kafka-log-recovery", parser.prog.rpartition(" ")[0].replace(" ", "-"), *below} - {
        "",
        page.prog,
    }
    page.add_section("see also", ">", ", ".join(f"{_escaped(name)}(1)" for name in sorted(others)))
    return str(page)


def _list_commands(parser: argparse.ArgumentParser) -> list[str]:
    """Let the page of *parser* list the commands below it, which have pages of their own; return the names of these."""
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                group.title = "commands"
                pages = [command.prog.replace(" ", "-") for command in action.choices.values()]
                action.choices.clear()
                return pages
    return []


def _escaped(text: str) -> str:
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


setup(
    cmdclass={"build_py": BuildWithManual},
    long_description=long_description((ROOT / "README.md").read_text()),
    long_description_content_type="text/markdown",
    project_urls=(
        {"Source": URL, "Changelog": f"{URL}/blob/v{VERSION}/CHANGELOG.md", "Issues": f"{URL}/issues"}
        if URL
        else {}
    ),
)
