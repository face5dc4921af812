"""What the documents say of this project is there: files, tests, options, links, bytes, edge cases."""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import recovery
from recovery.cli.main import build_parser
from recovery.errors import RecoveryError
from recovery.plan.manifest import read_lines, read_manifest
from recovery.version import VERSION
from tests import ROOT
from tests.damage.edge_cases import CASES
from tests.damage.judgement import IDENTICAL, OUT_OF_ORDER, REFUSED, REWRITTEN, WAITING
from tests.documents.texts import (
    DOCUMENTS,
    FENCE,
    OPERATORS,
    assert_none,
    fences,
    name_of,
    text_of,
    without_fences,
)
from tests.logs.samples import unpack

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:segfmt|native|recovery|tests|docs|sample_logs|benchmarks|\.ci)/[\w./-]*[\w/]$")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:::(\w+))?`")
_PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_EXAMPLE = re.compile(
    r"^`(tests/segfmt/golden/[\w.-]+)`[^\n]*:\n\n```(hex|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_HEX_LINE = re.compile(r" *(\d+)  ([0-9a-f]{2}(?: [0-9a-f]{2})*)(?= {2,}| \.\.)")
_VERDICTS = {
    "same": IDENTICAL,
    "refused": REFUSED,
    "tail only": OUT_OF_ORDER,
    "left alone": WAITING,
    "rewritten": REWRITTEN,
}
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

_OTHER_TOOLS_OPTIONS = {
    *("--strict", "--describe", "--branch", "--source"),
    *("--archives", "--conf", "--py-files", "--what"),
    *("--no-deps", "--wheel-dir", "--timestamps", "--replicas"),
    *("--group", "--transactional-id"),
    *("--target", "--build-arg", "--pull", "--no-cache"),
}
"""Options in the documents that are not ours: of mypy, Kafka's tools, coverage, spark-submit, pip, kubectl, docker."""

_OPTIONS_OF_CAMPAIGNS = ("--cases", "--seed", "--seeds", "--mode", "--only", "--jobs", "--threads", "--json")
_OPTIONS_OF_OUR_TOOLS = {
    "dev.py": (*_OPTIONS_OF_CAMPAIGNS, "--quick"),
    "tests.damage.campaign": _OPTIONS_OF_CAMPAIGNS,
    "tests.faults": (
        *("--seed", "--seeded", "--stride", "--jobs", "--kills-every", "--sync-each", "--only", "--point"),
    ),
    "tests.damage.archive_campaign": ("--brokers",),
    "benchmarks.tiering": ("--expired",),
    "kafka-configs": ("--bootstrap-controller", "--alter", "--entity-type", "--entity-name", "--add-config"),
    "tests.busy": ("--times",),
    "tests.damage.rows": ("--filters",),
    "tests.brokers.watched_broker": ("--bytes", "--cpus"),
    "tests.damage.sequences": ("--folder", "--places"),
    "tests.damage.verify_campaign": ("--seeds", "--first", "--show"),
    "tests.fuzz": (
        *("--runs", "--seconds", "--target", "--corpus", "--replay", "--bounds-check", "--cases", "--seed"),
    ),
}
"""The options of commands of this project's tests and benchmarks and of Kafka's, known where the command is named."""


def test_every_document_that_the_readme_needs_is_there() -> None:
    targets = {target.partition("#")[0] for target in _LINK.findall(text_of(ROOT / "README.md"))}
    linked = {target for target in targets if target.startswith("docs/") and target.endswith(".md")}
    written = {name_of(path) for path in ROOT.glob("docs/**/*.md")}
    assert written == linked


def test_links_lead_somewhere() -> None:
    missing = []
    for document in DOCUMENTS:
        for target in _LINK.findall(without_fences(text_of(document))):
            if re.match(r"https?://", target):
                continue
            path, _, anchor = target.partition("#")
            place = (document.parent / path).resolve() if path else document
            if not place.exists() or (anchor and anchor not in anchors_of(text_of(place))):
                missing.append(f"{name_of(document)}: {target}")
    assert_none(missing)


def test_files_that_are_named_exist() -> None:
    missing = []
    for document in DOCUMENTS:
        for code in _CODE.findall(without_fences(text_of(document))):
            path = code.split("::")[0].split(":")[0]
            if _PATH.match(path) and "*" not in path and not (ROOT / path).exists():
                missing.append(f"{name_of(document)}: {code}")
    assert_none(missing)


def test_functions_that_are_named_exist() -> None:
    places = _PLACE.findall(text_of(ROOT / "docs/reference/recovery-rules.md"))
    assert len(places) > 30
    for path, name in places:
        assert name in names_of(path), f"{path}:{name}"


def test_tests_that_are_named_exist() -> None:
    assert_none(
        f"{name_of(document)}: {path}::{names}"
        for document in DOCUMENTS
        for path, *names in _TEST.findall(text_of(document))
        if ".".join(filter(None, names)) not in names_of(path)
    )


def test_packages_in_the_architecture_are_those_there_are() -> None:
    named = set(re.findall(r"`([a-z]+(?:/[a-z]+)*)`", text_of(ROOT / "docs/internals/architecture.md")))
    packages = {
        path.parent.relative_to(ROOT / "recovery").as_posix()
        for path in (ROOT / "recovery").glob("**/__init__.py")
        if path.parent.name != "recovery"
    }
    assert packages - named == set()


def test_options_that_are_named_exist() -> None:
    ours = options()
    assert_none(
        f"{name_of(document)}: {option}"
        for document in OPERATORS
        for option in _OPTION.findall(text_of(document))
        if option not in ours | others_options(text_of(document))
    )


def test_every_option_is_described() -> None:
    described = {option for path in ROOT.glob("docs/**/*.md") for option in _OPTION.findall(text_of(path))}
    assert options() - {"--help"} - described == set()


def test_commands_that_are_shown_exist() -> None:
    commands = set(subcommands())
    shown = {
        command
        for path in OPERATORS
        for command in re.findall(
            r"^ *(?:\$ )?kafka-log-recovery ([a-z-]+)", fences(text_of(path)), re.MULTILINE
        )
    }
    assert "recover" in shown
    assert shown <= commands


def test_commands_of_a_fresh_machine_are_those_of_dev_py() -> None:
    commands = set(re.findall(r"^ *python3 dev\.py (\w+)", text_of(ROOT / "dev.py"), re.MULTILINE))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"python3 dev\.py (\w+)", text_of(path))) <= commands
    readme = text_of(ROOT / "README.md")
    assert "python3 dev.py demo" in readme
    assert "python3 dev.py test" in readme
    ci = text_of(ROOT / ".ci/run").splitlines()
    assert ci[-3:] == ["python3 dev.py check", "python3 dev.py docs", "python3 dev.py test"]


def test_exit_codes_are_those_of_the_errors_and_the_help() -> None:
    commands = {
        name: parser
        for name, parser in subcommands().items()
        if name not in ("quarantine", "archive", "help")
    }
    for command in ("quarantine", "archive"):
        commands |= {f"{command} {name}": parser for name, parser in actions_of(command).items()}
    documented = documented_exit_codes()
    assert documented.keys() == commands.keys()
    for command, parser in commands.items():
        codes = re.findall(r"^  (\d+)(?:, (\d+))?  ", parser.format_help(), re.MULTILINE)
        in_help = {int(code) for row in codes for code in row if code}
        assert in_help | {130, 143} == documented[command], command
    assert documented["recover"] == {0, 1, 2, 3, 4, 130, 143}
    assert {error.exit_code for error in all_errors(RecoveryError)} <= documented["recover"]


def test_the_library_call_in_the_readme_works() -> None:
    source = next(
        code for language, code in FENCE.findall(text_of(ROOT / "README.md")) if language == "python"
    )
    call = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    assert ast.unparse(call.func) == "recovery.recover"
    assert {keyword.arg for keyword in call.keywords} <= {
        field.name for field in fields(recovery.RecoverOptions)
    }


def test_the_report_in_the_readme_is_real(tmp_path: Path) -> None:
    """Two partitions of the sample `crashed`, a bit flipped in the last segment but one of the first."""
    sample = unpack("crashed", tmp_path)
    log_dir = tmp_path / "data" / "kafka"
    log_dir.mkdir(parents=True)
    for folder in ("d1/codec-none-0", "d1/late-0", "d1/__cluster_metadata-0"):
        shutil.copytree(sample.root / folder, log_dir / Path(folder).name)
    shutil.copy(sample.root / "d1" / "meta.properties", log_dir)
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\ncodec-none 0 400\nlate 0 0\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
    log = log_dir / "codec-none-0" / f"{481:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    log.write_bytes(data)
    text = recovery.recover([str(log_dir)], is_config_complete=True, now_ms=sample.now_ms).to_text()
    printed = re.sub(r"\d{8}T\d{6}Z", "20261121T141906Z", text.replace(str(tmp_path), ""))
    printed = re.sub(r"\d+\.\d s\b", "0.1 s", printed)
    assert printed in [code.strip("\n") for _, code in FENCE.findall(text_of(ROOT / "README.md"))], printed


def test_the_command_line_knows_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_the_changelog_knows_this_version() -> None:
    version = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[.*{re.escape(version)}", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)


def test_examples_of_the_formats_are_bytes_of_real_files() -> None:
    examples = _EXAMPLE.findall(text_of(ROOT / "docs/reference/formats.md"))
    assert len(examples) >= 15
    for name, kind, content in examples:
        data = (ROOT / name).read_bytes()
        if kind == "text":
            assert content.rstrip("\n") == data.decode().rstrip("\n"), name
            continue
        lines = _HEX_LINE.findall(content)
        assert len(lines) == content.count("\n"), name
        for position, octets in lines:
            found = bytes.fromhex(octets)
            assert data[int(position) : int(position) + len(found)] == found, f"{name} at {position}"


def test_the_manifest_lines_in_the_formats_are_read() -> None:
    examples = [
        code
        for language, code in FENCE.findall(text_of(ROOT / "docs/reference/formats.md"))
        if language == "json"
    ]
    found = read_manifest(read_lines(io.BytesIO("".join(examples).encode()).read))
    assert found.problems == ()
    assert [(entry.kind, list(entry.contents or ())) for entry in found.entries] == [
        ("tail", []),
        ("moved", ["", "deep", "deep/file"]),
    ]


class TestEdgeCases:
    """The table of docs/reference/recovery-rules.md against the table that Kafka is asked about."""

    def rows(self) -> dict[int, list[str]]:
        lines = re.findall(
            r"^\| (\d+) \| (.*) \|$", text_of(ROOT / "docs/reference/recovery-rules.md"), re.MULTILINE
        )
        return {int(number): [cell.strip() for cell in rest.split(" | ")] for number, rest in lines}

    def test_all_are_there(self) -> None:
        assert list(self.rows()) == list(range(1, 87))

    def test_outcomes_here_are_those_that_are_tested(self) -> None:
        tested: dict[int, set[str]] = {}
        for case in CASES:
            tested.setdefault(case.row, set()).update(case.verdicts.values())
        for number, cells in self.rows().items():
            here = cells[-1]
            if number in tested:
                words = {word for word in _VERDICTS if re.search(rf"\b{word}\b", here)}
                assert {_VERDICTS[word] for word in words} == tested[number], f"row {number}: {here}"

    def test_each_names_its_test(self) -> None:
        named = re.findall(
            rf"^\* (\d+): {_TEST.pattern}$", text_of(ROOT / "docs/reference/recovery-rules.md"), re.MULTILINE
        )
        assert {int(number) for number, *_ in named} == set(self.rows()) - {case.row for case in CASES}


def documented_exit_codes() -> dict[str, set[int]]:
    """By command, those in the table of docs/reference/exit-codes.md, and those of signals, which all have."""
    rows = re.findall(
        r"^\| `([a-z -]+)` \| (.*) \|$", text_of(ROOT / "docs/reference/exit-codes.md"), re.MULTILINE
    )
    return {
        command: {code for code, means in enumerate(row.split(" | ")) if means != "–"} | {130, 143}
        for command, row in rows
    }


# -- what there is -------------------------------------------------------------------------------------------


def anchors_of(text: str) -> set[str]:
    headings = _HEADING.findall(without_fences(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def names_of(path: str) -> set[str]:
    """Functions and classes of a module, and `Class.method`."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def subcommands() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._actions
    return dict(next(a for a in actions if isinstance(a, argparse._SubParsersAction)).choices)


def actions_of(command: str) -> dict[str, argparse.ArgumentParser]:
    actions = subcommands()[command]._actions
    return dict(next(a for a in actions if isinstance(a, argparse._SubParsersAction)).choices)


def options() -> set[str]:
    return {
        name
        for parser in (
            build_parser(),
            *subcommands().values(),
            *actions_of("quarantine").values(),
            *actions_of("archive").values(),
        )
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--")
    }


def others_options(text: str) -> set[str]:
    """The options that a document may name beside ours: those of other tools, and of the commands in it."""
    of_commands = (words for command, words in _OPTIONS_OF_OUR_TOOLS.items() if command in text)
    return _OTHER_TOOLS_OPTIONS.union(*of_commands)


def all_errors(root: type[RecoveryError]) -> Iterator[type[RecoveryError]]:
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)
