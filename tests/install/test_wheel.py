"""What a wheel installs, alone and with each extra, into an environment that has nothing else, does what is documented.

pip fetches the packages once, and keeps them; Spark's are 450 MB.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from recovery.cli.main import build_parser
from recovery.version import VERSION
from tests import ROOT
from tests.documents.test_docs import actions_of, subcommands
from tests.install.commands import (
    ARCHIVE,
    BOTH,
    CLIENT,
    ELSEWHERE,
    PLAIN,
    RUN,
    SCRIPTS,
    SPARK,
    documented,
    parsers,
    place_in,
    scripts,
    synopses,
)
from tests.install.environment import Environment, environment, project_copy, run_pip
from tests.logs.samples import Sample, tree_of, unpack
from tests.patience import wait_until
from tests.recovery.spark.patience import TOO_LATE

pytestmark = [pytest.mark.install, pytest.mark.spark]

WHEEL = f"dist/kafka_log_recovery-{VERSION}-py3-none-any.whl"
INSTALLS = {
    PLAIN: f"pip install {WHEEL}",
    CLIENT: f"pip install '{WHEEL}[client]'",
    ARCHIVE: f"pip install '{WHEEL}[archive]'",
    SPARK: f"pip install '{WHEEL}[spark]'",
    BOTH: "pip install '.[archive,spark]'",
}
WITHOUT = {
    PLAIN: {
        "archive inventory @ --output out": "--output .*out needs the package pyarrow",
        "archive inventory s3://bucket/logs": "s3://bucket/logs needs the package obstore",
        "archive verify @": "archive verify or recover needs the package pyarrow",
        "archive recover @ --output out": "archive verify or recover needs the package pyarrow",
        "archive verify @ --master spark://host:7077": "--master spark://host:7077 needs the package pyspark",
        "archive verify @ --remote sc://host:15002": "--remote sc://host:15002 needs the package pyspark",
        "log-dirs --describe --bootstrap-server localhost:1": "--bootstrap-server needs the package kafka",
    },
    CLIENT: {"archive verify @": "archive verify or recover needs the package pyarrow"},
    ARCHIVE: {
        "archive verify @ --engine spark": "--engine spark needs the package pyspark",
        "archive verify @ --remote sc://host:15002": "--remote sc://host:15002 needs the package pyspark",
    },
    SPARK: {
        "archive inventory s3://bucket/logs": "s3://bucket/logs needs the package obstore",
        "archive verify @ --aiven-key a=b --progress none": "the RSA key a=b needs the package cryptography",
    },
    BOTH: {},
}
"""What is said where an extra was left out: one line, exit code 1."""
SESSION = "from recovery.spark.session import open_session\nspark = open_session()"
ASKED = """\
import recovery, socket
from recovery.errors import UsageError
with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))
    server = f"127.0.0.1:{nobody.getsockname()[1]}"
    given = {"default.api.timeout.ms": "1000"}
    try:
        recovery.describe_log_dirs(bootstrap_servers=server, client_config=given)
    except UsageError as error:
        assert "Connection refused" in str(error), error
    else:
        raise AssertionError("nobody listens there")
"""
"""A connection is tried, so the library is there; tests/kafka/test_log_dirs_of_brokers.py has brokers."""
OF_EXTRA = {
    PLAIN: "import recovery, segfmt, native; from recovery.spark import archive",
    CLIENT: ASKED,
    ARCHIVE: "import pyarrow.parquet, obstore, cryptography, Crypto",
    SPARK: "import pyspark.sql.connect.session; from recovery.spark import archive, data_source",
    BOTH: "import obstore, cryptography, Crypto, pyspark.sql.connect.session; from recovery.spark import data_source",
}


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """A copy of the project with its wheel in `dist`."""
    with project_copy() as folder:
        run_pip(folder, "pip wheel --no-deps --wheel-dir dist .")
        yield folder


def test_every_command_of_the_documents_is_known_here() -> None:
    found = documented()
    known = RUN.keys() | ELSEWHERE.keys()
    assert {command: str(found[command]) for command in found.keys() - known} == {}
    assert known - found.keys() == set()
    assert {str(path.relative_to(ROOT)) for path in set(found.values())} >= {
        "README.md",
        "docs/archives/archive.md",
    }


def test_a_wheel_holds_what_is_needed_and_nothing_else(project: Path) -> None:
    names = set(zipfile.ZipFile(project / WHEEL).namelist())
    manual = {name for name in names if "/share/man/man1/" in name}
    names -= manual
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "segfmt",
        "native",
        "recovery",
    }
    commands = {parser.prog.replace(" ", "-"): parser for parser in parsers(build_parser())}
    assert {Path(name).name for name in manual} == {f"{name}.1" for name in commands}
    for name in manual:
        page = zipfile.ZipFile(project / WHEEL).read(name).decode()
        epilog = commands[Path(name).stem].epilog or ""
        assert page.startswith(".TH KAFKA")
        assert (".SH EXIT STATUS" in page, ".SH EXAMPLES" in page) == (
            "exit codes:" in epilog,
            "examples:" in epilog,
        )
        assert page.count(".SH SYNOPSIS") == 1
        assert "usage:" not in page  # of the commands below, which have pages of their own
        assert (".SH\nCOMMANDS" in page) == any(
            other != Path(name).stem and other.startswith(f"{Path(name).stem}-") for other in commands
        )
        for option in re.findall(r"^  (\S+).*", epilog, re.MULTILINE):
            assert option.replace("-", "\\-") in page
    made = {
        str(path.relative_to(ROOT))
        for one in ("segfmt", "native", "recovery")
        for path in (ROOT / one).rglob("*.py")
    }
    data = {
        "segfmt/py.typed",
        "native/py.typed",
        "recovery/py.typed",
        "recovery/spark/embedded-log4j2.properties",
        "recovery/watch/http/page.html",
    }
    assert {name for name in names if ".dist-info/" not in name} == made | data


@pytest.mark.parametrize("extras", INSTALLS, ids=lambda extras: extras or "alone")
def test_what_is_installed_does_what_is_documented(extras: str, project: Path, tmp_path: Path) -> None:
    with environment(project, INSTALLS[extras]) as installed:
        tiered = unpack("tiered", tmp_path).root
        problems = [
            *imported(installed, extras),
            *said_without(installed, extras, tiered),
            *run_documented(installed, extras, tmp_path, tiered),
            *run_scripts(installed, extras, tmp_path, tiered),
        ]
        if extras == PLAIN:
            problems += [*helped(installed), *recovered_and_undone(installed, tmp_path)]
        assert problems == []


def imported(installed: Environment, extras: str) -> Iterator[str]:
    done = installed.script(OF_EXTRA[extras])
    if done.returncode:
        yield f"{OF_EXTRA[extras]}\n{done.stderr}"
    if extras in (PLAIN, ARCHIVE):
        done = installed.script("from recovery.spark import data_source")
        if "recovery.spark.data_source needs the package" not in done.stderr or "Remedy: " not in done.stderr:
            yield f"the data source without Spark: {done.stderr}"


def helped(installed: Environment) -> Iterator[str]:
    """`--help` of all commands; the options of a synopsis are in it."""
    commands = [(), *((name,) for name in subcommands())]
    commands += [(name, action) for name in ("quarantine", "archive") for action in actions_of(name)]
    helps = {}
    for words in commands:
        done = installed.shell(" ".join(["kafka-log-recovery", *words, "--help"]))
        helps[words] = done.stdout
        if done.returncode or not done.stdout.startswith(" ".join(["usage: kafka-log-recovery", *words])):
            yield f"{words} --help: {done.returncode}\n{done.stderr}"
    for synopsis in synopses():
        words = tuple(takewhile(re.compile("[a-z][a-z-]*").fullmatch, synopsis.split()[1:]))
        missing = set(re.findall(r"--[a-z-]+", synopsis)) - set(re.findall(r"--[a-z-]+", helps[words]))
        if missing:
            yield f"{synopsis}: {missing}"


def said_without(installed: Environment, extras: str, tiered: Path) -> Iterator[str]:
    """What an extra that was left out would do is refused in one line, before anything is done."""
    for command, words in WITHOUT[extras].items():
        done = installed.shell(f"kafka-log-recovery {command.replace('@', str(tiered / 'remote'))}")
        said = [line for line in done.stderr.splitlines() if line.startswith("kafka-log-recovery: ")]
        is_right = len(said) == 1 and re.search(
            rf"{words}, which is not installed\. Remedy: pip install '\.\[", said[0]
        )
        if done.returncode != 1 or done.stdout or not is_right:
            yield f"{command}: {done.returncode}\n{done.stderr}"


def run_documented(installed: Environment, extras: str, folder: Path, tiered: Path) -> Iterator[str]:
    """The commands of the documents that need these extras."""
    for number, (command, (needed, exit_code)) in enumerate(RUN.items()):
        if needed == extras:
            line = place_in(folder / f"command-{number}", tiered).put_into(command)
            done = installed.shell(line)
            if done.returncode != exit_code or "Traceback" in done.stderr:
                yield f"{line}: {done.returncode}\n{done.stdout[-500:]}{done.stderr}"


def run_scripts(installed: Environment, extras: str, folder: Path, tiered: Path) -> Iterator[str]:
    """The Python and SQL of the documents: what belongs to a session in one, what is a program by itself."""
    for number, (name, needed) in enumerate(SCRIPTS.items()):
        if needed != extras:
            continue
        place = place_in(folder / f"script-{number}", tiered)
        programs = [place.put_into(one) for one in scripts(ROOT / name)]
        alone = [one for one in programs if "sys.argv" in one]
        session = "\n".join([SESSION if extras else "", *(one for one in programs if one not in alone)])
        arguments = (str(tiered / "remote"), str(place.folder / "argument"))
        for source, given, codes in [(session, (), {0}), *((one, arguments, {0, 2}) for one in alone)]:
            done = run_until_up(lambda source=source, given=given: installed.script(source, *given))
            if done.returncode not in codes:
                yield f"{name}: {done.returncode}\n{source}\n{done.stdout[-500:]}{done.stderr[-3000:]}"


def run_until_up(run: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """Run a program of the documents; again where Spark did not wait for its Python process."""
    results: list[subprocess.CompletedProcess[str]] = []

    def is_up() -> bool:
        results.append(run())
        return TOO_LATE not in results[-1].stderr

    wait_until(is_up, lambda: results[-1].stderr[-3000:])
    return results[-1]


def recovered_and_undone(installed: Environment, folder: Path) -> Iterator[str]:
    """A recovery, a look at its quarantine, and its end; all of it changes what it says."""
    sample = unpack("crashed", folder)
    before = files_of(sample)
    options = f"-c {sample.config}"
    for command in (
        "recover {} --now {} --keep-deleted",
        "quarantine list {} --verify",
        "verify {}",
        "undo {}",
    ):
        line = "kafka-log-recovery " + command.format(options, sample.now_ms)
        done = installed.shell(line)
        if done.returncode or not done.stdout:
            yield f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        is_as_before = files_of(sample) == before
        if is_as_before != command.startswith("undo"):
            yield f"{line}: as before: {is_as_before}"


def files_of(sample: Sample) -> dict[str, bytes]:
    """The files of a log dir; pending deletions without a byte are not kept, so they do not come back."""
    tree = tree_of(sample.log_dirs[0], ignore=(".lock",))
    return {name: data for name, data in tree.items() if data or not name.endswith(".deleted")}
