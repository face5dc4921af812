"""Lines of reports on a terminal: broken between words, commands whole."""

from __future__ import annotations

import io
import shlex

import pytest

from recovery.cli.wrapping import for_terminal, wrapped

UNDO = "what was cut is kept; this puts it back: kafka-log-recovery undo --log-dirs /var/lib/kafka/data-0,/kafka/data-1"


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_words_are_whole_and_what_follows_a_break_is_indented(width: int) -> None:
    text = "REFUSED /data/t-0: the name is that of nothing which a broker knows, and it would not start"
    lines = wrapped(text, width).split("\n")
    assert " ".join(line.strip() for line in lines) == text
    assert len(lines) > 1
    assert all(len(line) <= width for line in lines)
    assert all(line.startswith("    ") for line in lines[1:])


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_command_is_typed_as_it_stands(width: int) -> None:
    command = UNDO.partition(": ")[2]
    assert [line.strip() for line in wrapped(UNDO, width).split("\n")][-1] == command
    assert shlex.split(command)[0] == "kafka-log-recovery"
    assert wrapped(f"  {command}", width) == f"  {command}"


def test_the_name_of_the_tool_before_a_message_is_no_command() -> None:
    text = "kafka-log-recovery log-dirs: the following arguments are required: --describe. Remedy: see log-dirs --help"
    assert all(len(line) <= 60 for line in wrapped(text, 60).split("\n"))


def test_what_fits_and_what_has_no_blank_is_left_as_it_is() -> None:
    table = "log dir   rate\n/d           7\n\n" + "x" * 90
    assert wrapped(table, 80) == table


def test_nested_lines_keep_their_indent() -> None:
    first, second = wrapped(f"    {'word ' * 20}".rstrip(), 80).split("\n")
    assert first.startswith("    word")
    assert second.startswith("        word")


def test_a_pipe_gets_lines_as_they_are() -> None:
    assert for_terminal(UNDO, io.StringIO()) == UNDO
