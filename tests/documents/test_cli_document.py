"""docs/reference has each option as the parser has it."""

from __future__ import annotations

import argparse
import re

import pytest

from recovery.cli.main import build_parser
from tests import ROOT
from tests.documents.texts import section_of

TABLES = section_of(ROOT / "docs/reference/recover.md", "## Options of `recover`")
ROW = re.compile(r"^\| (`-.*) \|$", re.MULTILINE)


def options_of_recover() -> dict[str, argparse.Action]:
    (commands,) = (
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    actions = commands.choices["recover"]._actions
    return {", ".join(action.option_strings): action for action in actions if action.dest != "help"}


def documented() -> dict[str, tuple[str, str]]:
    """Option strings -> (what stands behind them, the default)."""
    found = {}
    for row in ROW.findall(TABLES.replace("\\|", "/")):
        names, default = (cell.strip().replace("`", "") for cell in row.split("|")[:2])
        strings = ", ".join(part.partition(" ")[0] for part in names.split(", "))
        found[strings] = (names.rpartition(" ")[2] if not names.endswith(strings) else "", default)
    return found


def test_the_options_are_those_of_the_parser() -> None:
    assert sorted(documented()) == sorted(options_of_recover())


@pytest.mark.parametrize("name", options_of_recover())
def test_an_option_has_the_documented_value_and_default(name: str) -> None:
    action = options_of_recover()[name]
    value, default = documented()[name]
    if action.choices is not None:
        assert value == "/".join(action.choices)
        assert default == action.default
    else:
        assert value == (action.metavar or "")
        assert not action.default


def test_the_options_of_quarantine_are_those_of_its_parsers() -> None:
    (commands,) = (
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    actions = next(
        action
        for action in commands.choices["quarantine"]._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    table = section_of(ROOT / "docs/reference/quarantine.md", "## Options of `quarantine`")
    described: dict[str, set[str]] = {"list": set(), "purge": set()}
    for names, of in re.findall(r"^\| (`-.*?) \| ([a-z, ]+) \|", table, re.MULTILINE):
        for action in of.split(", "):
            described[action] |= set(re.findall(r"(?<![\w-])--?[a-z-]+", names))
    for name, parser in actions.choices.items():
        strings = {string for action in parser._actions for string in action.option_strings}
        assert described[name] == strings - {"-h", "--help"}, name
        assert all(action.help for action in parser._actions), name


def test_every_option_is_in_the_help_with_words() -> None:
    for name, action in options_of_recover().items():
        assert action.help, name
