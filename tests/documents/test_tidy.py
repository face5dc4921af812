"""The shape of the code: sizes, names, nothing put off, nothing of one machine, no event forgotten."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import settings

from recovery.watch import events as observer
from tests import ROOT
from tests.documents.texts import assert_none, name_of, text_of

PACKAGES = ("segfmt", "native", "recovery")
PRODUCTION = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SOURCES = sorted(
    [*PRODUCTION, ROOT / "dev.py"]
    + [
        path
        for folder in ("tests", "benchmarks", "docs", "sample_logs")
        for path in (ROOT / folder).rglob("*.py")
    ]
)
TEXTS = sorted(
    [*SOURCES, *ROOT.glob("*.md"), *ROOT.glob("docs/plots/*"), ROOT / "pyproject.toml", ROOT / ".ci/run"]
    + [path for suffix in ("java", "xml", "md", "properties") for path in ROOT.glob(f"[!.]*/**/*.{suffix}")]
)

MOST_MODULE_LINES = 600
MOST_TEST_LINES = 800
MOST_FUNCTION_LINES = 70
MOST_KERNEL_LINES = 160
LONG_FUNCTIONS = {"recovery/cli/recover.py:add_parser": 90}  # a table of options
LONG_MODULES = {"native/_scan_kernel.py": 450}  # one loop, in which numba inlines what it calls

BANNED_NAMES = {"util", "utils", "helper", "helpers", "common", "base", "manager", "misc", "tools", "lib"}
KERNEL_DECORATORS = {"kernel", "inlined", "in_process"}

PUT_OFF = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
OF_ONE_MACHINE = re.compile(
    r"\.\./"
    + r"shared|/"
    + r"(?:work|home|root|Users)/[\w.-]+|\b(?:pypi\."
    + r"org|repo1?\.maven|files\.pythonhosted)"
)
IGNORE_WITHOUT_REASON = re.compile(r"# type: ignore(?!\[[\w, -]+\]  # \S)")
NOT_RUN = re.compile(r"pytest\.mark\.(?:skip|skipif|xfail)\b|pytest\.(?:skip|xfail|importorskip)\(")

TROUBLE = {
    "IndexFileProblem",
    "PartitionFinished",
    "LogDirHandedOver",
    "LogDirOffline",
    "Remark",
    "SourceLost",
    "BrokerRestarted",
}
"""Events that can tell of damage or refusal: the terminal and the page have a line for them.

What `CorruptionFound` and `SegmentsDeleted` come to, `PartitionFinished` says: zeros after a log look like damage.
"""


def test_modules_can_be_read_in_one_go() -> None:
    assert_none(
        f"{name_of(source)}: {count} lines, {limit} at most"
        for source in SOURCES
        for count, limit in [(text_of(source).count("\n"), most_lines(source))]
        if count > limit
    )


def test_functions_can_be_seen_at_once() -> None:
    assert_none(
        f"{at(source, function)}: {function.name} has {line_count(function)} lines, {limit} at most"
        for source in SOURCES
        for function in functions(source)
        for limit in [most_function_lines(source, function)]
        if line_count(function) > limit
    )


def test_modules_are_named_by_what_they_hold() -> None:
    assert_none(
        f"{name_of(source)}: named {', '.join(sorted(banned))}"
        for source in SOURCES
        if (banned := BANNED_NAMES & set(source.stem.strip("_").split("_")))
    )


def test_every_module_says_what_it_is() -> None:
    assert_none(
        f"{name_of(source)}: no docstring"
        for source in SOURCES
        if not source.name.startswith("test_")  # its tests say it
        and text_of(source) != ""
        and not ast.get_docstring(tree_of(source))
    )


def test_an_ignored_type_has_its_reason() -> None:
    assert_none(matches(IGNORE_WITHOUT_REASON, [source for source in SOURCES if source != Path(__file__)]))


def test_no_test_is_switched_off() -> None:
    """But for want of what tests/servers/machine.py names, or of the real Kafka: conftest.py sees to that."""
    decisive = ("conftest.py", Path(__file__).name)
    assert_none(matches(NOT_RUN, [source for source in SOURCES if source.name not in decisive]))


def test_no_example_is_timed() -> None:
    """How long one takes is the machine's matter; tests/conftest.py says so for all suites, this child for itself."""
    assert settings().deadline is None
    assert_none(
        f"{at(source, node)}: a deadline"
        for source in SOURCES
        if source.relative_to(ROOT) not in (Path("tests/conftest.py"), Path("tests/fuzz/test_targets.py"))
        for node in ast.walk(tree_of(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("settings")
        for keyword in node.keywords
        if keyword.arg == "deadline"
    )


def test_nothing_is_put_off() -> None:
    assert_none(matches(PUT_OFF, TEXTS))


def test_nothing_is_of_one_machine() -> None:
    assert_none(matches(OF_ONE_MACHINE, TEXTS))


@pytest.mark.parametrize("name", ["gauges", "kafka_lines"])
def test_every_event_is_matched_by_those_that_need_all(name: str) -> None:
    assert event_names() - matched_classes(ROOT / f"recovery/watch/{name}.py") == set()


def test_there_is_a_notice_for_each_event_of_trouble() -> None:
    assert event_names() >= TROUBLE
    assert TROUBLE - matched_classes(ROOT / "recovery/watch/notices.py") == set()


def test_only_the_writer_and_those_with_files_of_their_own_change_files() -> None:
    """`recovery/write/apply.py` is the only writer of log dirs, by the calls in `recovery/write/durable.py`;
    quarantine, journal and lock have files of their own."""
    writers = {
        "rename",
        "replace",
        "unlink",
        "remove",
        "truncate",
        "ftruncate",
        "link",
        "symlink",
        "rmdir",
        "mkdir",
    }
    found = {
        path.name
        for path in sorted((ROOT / "recovery").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "os"
        and node.func.attr in writers
    }
    assert found == {
        "apply.py",
        "move_in.py",  # whole folders that a restore has made
        "take_out.py",  # the same, the other way
        "stage.py",  # a folder of our own
        "cut_ledger.py",
        "undo_notice.py",
        "durable.py",
        "local_store.py",  # the output of what is done with archives
        "quarantine.py",
        "textfile.py",
        "lock.py",
        "journal.py",
        "journal_file.py",
        "purge.py",
    }


def test_what_may_be_anything_is_opened_by_one_function() -> None:
    """An open that waits, on a pipe that somebody has put there, ends with no signal: `file_system.open_file`."""
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}": ast.unparse(node)
        for path in sorted((ROOT / "recovery").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("open", "os.open")
        and not any(keyword.arg == "opener" for keyword in node.keywords)
        and not ast.unparse(node.args[0]).startswith(("open_file(", "descriptor"))
    }
    elsewhere = {
        "recovery/read/page_cache.py",  # the kernel's own files
        "recovery/read/spool.py",  # without a name
        "recovery/cli/main.py",  # the standard streams
        "recovery/cli/patient_writer.py",  # the same, in a mode in which no open waits
        "recovery/cli/session.py",
        "recovery/logdir/work_lock.py",  # folders
        "recovery/archive/stores/local_store.py",  # new files, and folders
        "recovery/archive/stores/listed_store.py",  # what an option names
        "recovery/spark/session.py",  # the same
        "recovery/follow/log_feed.py",  # the same, a pipe
        "recovery/write/journal_file.py",  # a new file
        "recovery/watch/textfile.py",  # a new file, too
        "recovery/read/file_system.py",
    }
    assert {place.partition(":")[0] for place in found} == elsewhere, found


def test_a_read_that_may_return_less_is_in_a_loop() -> None:
    """`file_system.read_at` and `fill` read on; only who goes on by what has come calls the system himself."""
    found = {
        str(path.relative_to(ROOT))
        for path in PRODUCTION
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.read", "os.pread", "os.preadv")
    }
    assert found == {
        "recovery/read/file_system.py",
        "recovery/cli/nudge.py",  # one byte
        "recovery/follow/log_feed.py",  # a log that grows
        "recovery/archive/copy/reading.py",
        "recovery/write/durable.py",  # a copy, piece by piece
        "recovery/write/digest.py",
        "native/kernels/cache.py",  # the kernel's own file
    }


# -- looking at sources --------------------------------------------------------------


def at(path: Path, node: ast.expr | ast.stmt) -> str:
    return f"{name_of(path)}:{node.lineno}"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def matches(pattern: re.Pattern[str], paths: Iterable[Path]) -> Iterator[str]:
    """A line for each match of *pattern* in the files *paths*."""
    for path in paths:
        text = text_of(path)
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name_of(path)}:{line}: {match[0]}"


def most_lines(path: Path) -> int:
    limit = MOST_MODULE_LINES if path in PRODUCTION else MOST_TEST_LINES
    return LONG_MODULES.get(name_of(path), limit)


def most_function_lines(path: Path, function: ast.FunctionDef) -> int:
    limit = MOST_KERNEL_LINES if is_kernel(function) else MOST_FUNCTION_LINES
    return LONG_FUNCTIONS.get(f"{name_of(path)}:{function.name}", limit)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef))


def line_count(function: ast.FunctionDef) -> int:
    """Lines of a function from its `def` on, its docstring left out."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def is_kernel(function: ast.FunctionDef) -> bool:
    """Whether numba compiles it: a call inside would cost registers, so its body is long."""
    names = {
        node.id for item in function.decorator_list for node in ast.walk(item) if isinstance(node, ast.Name)
    }
    names |= {
        node.attr
        for item in function.decorator_list
        for node in ast.walk(item)
        if isinstance(node, ast.Attribute)
    }
    return bool(names & KERNEL_DECORATORS)


def event_names() -> set[str]:
    return {event.__name__ for event in get_args(observer.Event)}


def matched_classes(path: Path) -> set[str]:
    return {
        node.cls.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }
