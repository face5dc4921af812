"""The commands of the documents, where each is run, and what the samples are in their place."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recovery.cli.main import build_parser
from tests import ROOT
from tests.documents.texts import DOCUMENTS, FENCE, text_of
from tests.logs.samples import Sample, unpack

PLAIN, CLIENT, ARCHIVE, SPARK, BOTH = "", "client", "archive", "spark", "archive,spark"
EXTRAS = (PLAIN, CLIENT, ARCHIVE, SPARK, BOTH)

CONFIG = "-c /etc/kafka/server.properties"
S3 = "kafka-log-recovery archive"

FAULTS = ROOT / "docs" / "operate" / "faults.md"
"""Its commands are run by `tests/documents/test_faults_page.py`."""
RUN: dict[str, tuple[str, int]] = {
    f"kafka-log-recovery recover {CONFIG} --dry-run": (PLAIN, 0),
    f"kafka-log-recovery recover {CONFIG}": (PLAIN, 0),
    f"kafka-log-recovery recover {CONFIG} --threads 8 --metrics-port 9404 --format json > report.json": (
        PLAIN,
        0,
    ),
    "kafka-log-recovery recover --log-dirs /data/1/kafka --property log.index.interval.bytes=8192 "
    "--topic-config topics.json": (PLAIN, 0),
    f"kafka-log-recovery recover {CONFIG} --handoff recovery-point --quarantine-dir /spare/quarantine": (
        PLAIN,
        0,
    ),
    "kafka-log-recovery quarantine list -c FILE": (PLAIN, 0),
    "kafka-log-recovery quarantine list -c FILE --verify": (PLAIN, 0),
    "kafka-log-recovery quarantine purge -c FILE --older-than 30d": (PLAIN, 0),
    f"kafka-log-recovery verify {CONFIG} --max-bytes-per-second 50M --format json > verdicts.json": (
        PLAIN,
        0,
    ),
    f"kafka-log-recovery undo {CONFIG} --dry-run": (PLAIN, 0),
    f"kafka-log-recovery undo {CONFIG}": (PLAIN, 0),
    f"kafka-log-recovery quarantine list {CONFIG} --verify": (PLAIN, 0),
    f"kafka-log-recovery quarantine purge {CONFIG} --older-than 30d": (PLAIN, 0),
    "kafka-log-recovery completion bash": (PLAIN, 0),
    f"kafka-log-recovery verify {CONFIG} --deep": (PLAIN, 0),
    f"kafka-log-recovery verify {CONFIG} --topic orders": (PLAIN, 0),
    f"kafka-log-recovery log-dirs --describe {CONFIG}": (PLAIN, 0),
    f"kafka-log-recovery estimate {CONFIG}": (PLAIN, 0),
    f"{S3} inventory s3://backups/kafka --metadata /var/lib/kafka/d1,/var/lib/kafka/d2": (PLAIN, 0),
    f"{S3} metrics s3://backups/kafka --metadata /var/lib/kafka/d1,/var/lib/kafka/d2": (PLAIN, 0),
    f"{S3} metrics --metadata /var/lib/kafka/d1,/var/lib/kafka/d2 {CONFIG}": (PLAIN, 0),
    f"{S3} retention --metadata /var/lib/kafka/d1,/var/lib/kafka/d2 {CONFIG}": (PLAIN, 2),
    f"{S3} copy {CONFIG} --output s3://backups/copy": (PLAIN, 0),
    f"{S3} restore s3://backups/kafka {CONFIG} --dry-run": (PLAIN, 4),
    f"{S3} restore s3://backups/kafka {CONFIG}": (PLAIN, 4),
    f"{S3} verify s3://backups/kafka": (ARCHIVE, 0),
    f"{S3} recover s3://backups/kafka --output s3://backups/recovered": (ARCHIVE, 0),
    f"{S3} verify s3://backups/kafka --engine spark": (BOTH, 0),
    f"{S3} verify s3://backups/kafka --logs-only --output s3://backups/checked": (ARCHIVE, 0),
}
"""The extras with which a command is run, and its exit code. Buckets are folders here;
tests/recovery/spark/test_s3.py has real ones."""

ELSEWHERE = {
    f"kafka-log-recovery watch /var/log/kafka/server.log {CONFIG}": "tests/kafka/test_watch.py",
    "kafka-log-recovery watch /logs/server.log --forever --progress log --metrics-port 9405 --metrics-host 0.0.0.0": (
        "tests/recovery/follow/test_watch.py"
    ),
    "kafka-log-recovery warm --kernel-cache /var/cache/kafka-log-recovery": "tests/recovery/cli/test_warm.py",
    "python3 -m venv /opt/kafka-log-recovery": "tests/deploy/test_systemd.py",
    "kafka-log-recovery watch http://kafka-0:9404/metrics": "tests/kafka/test_watch_gauges.py",
    "kafka-log-recovery watch http://localhost:8778/jolokia": "the same",
    "pip install .": "the environment of the extra that it names is made by it",
    "pip install '.[archive,spark]'": "the same",
    "pip wheel --no-deps --wheel-dir dist .": "the same",
    "pip install dist/kafka_log_recovery-0.1.0-py3-none-any.whl": "the same",
    "pip install 'dist/kafka_log_recovery-0.1.0-py3-none-any.whl[archive,spark]'": "the same",
    "kafka-log-recovery log-dirs --describe --bootstrap-server broker:9092 --format json": (
        "tests/kafka/test_log_dirs_of_brokers.py"
    ),
    "python3 dev.py demo": "tests/install/test_dev.py",
    "python3 dev.py test": "CI itself (.ci/run)",
    "python3 dev.py check": "CI itself (.ci/run)",
    "python3 dev.py docs": "CI itself (.ci/run)",
    "python3 dev.py release": "tests/install/test_release.py",
    "python3 dev.py clean": "tests/install/test_dev.py",
    "python3 dev.py test --quick": "CI itself (.ci/run)",
    "python3 dev.py test tests/kafka -k SeededDamage": "a part of what CI runs",
    ".venv/bin/python -m tests.damage.campaign --cases 1000 --seed 7": "tests/kafka/test_differential.py",
    ".venv/bin/python -m tests.damage.campaign --only combined-7/123": "the same",
}
"""Commands that are not run here, and why."""

SCRIPTS = {
    "README.md": PLAIN,
    "docs/reference/progress.md": PLAIN,
    "docs/archives/tiering.md": PLAIN,
    "docs/archives/restore.md": PLAIN,
    "docs/archives/archive.md": BOTH,
    "docs/archives/spark.md": BOTH,
    "docs/archives/dataframes.md": BOTH,
}
"""The extras with which the Python of a document is run."""

_SHELL = re.compile(r"^ *(?:\$ )?((?:kafka-log-recovery|pip|python3?|\S*/python) .*)$", re.MULTILINE)
_SYSTEMD = re.compile(r"^ExecStart\w*=\S*/(kafka-log-recovery .*)$", re.MULTILINE)
_KUBERNETES = re.compile(r"^ *command: \[(kafka-log-recovery, .*)\]$", re.MULTILINE)
_SYNOPSIS = re.compile(r"[(\[].*[)\]]|\bARCHIVE\b|\w\|\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Samples that stand for what the documents name.

    Attributes:
        crashed: a broker's log dirs, new for each command.
        tiered: root of the sample with an archive.
        folder: for what commands write.
    """

    crashed: Sample
    tiered: Path
    folder: Path

    def put_into(self, text: str) -> str:
        """Replace what a document names by what is here."""
        archive = self.tiered / "remote"
        for named, here in (
            ("/etc/kafka/server.properties", self.crashed.config),
            ("-c FILE", f"-c {self.crashed.config}"),
            ("/data/1/kafka", self.crashed.log_dirs[0]),
            ("/data/kafka", self.crashed.log_dirs[0]),
            ("/data-0", self.crashed.log_dirs[0]),
            ("topics.json", self.crashed.root / "topic-configs.json"),
            ("/spare/quarantine", self.folder / "quarantine"),
            ("--topic orders", "--topic late"),
            ("--metrics-port 9404", "--metrics-port 0"),
            ("/var/lib/kafka/", f"{self.tiered}/"),
            ("s3://backups/kafka", archive),
            ("s3://backups/", f"{self.folder}/"),
            ('"orders"', '"plain"'),
            ("'orders'", "'plain'"),
        ):
            text = text.replace(named, str(here))
        return text


def place_in(folder: Path, tiered: Path) -> Place:
    """Unpack a sample of its own for a command."""
    folder.mkdir()
    return Place(crashed=unpack("crashed", folder), tiered=tiered, folder=folder)


def documented() -> dict[str, Path]:
    """Return the commands in blocks of the documents and in `--help`, without comments, and where each stands first."""
    found: dict[str, Path] = {}
    for document in DOCUMENTS:
        if document == FAULTS:
            continue
        for _, code in FENCE.findall(text_of(document)):
            for command in _commands(code):
                found.setdefault(command, document)
    for parser in parsers(build_parser()):
        for command in _commands(parser.epilog or ""):
            found.setdefault(command, ROOT / "recovery/cli/main.py")
    return found


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of all commands below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


def synopses() -> list[str]:
    """Return the lines that say what a command takes."""
    return [
        line
        for document in DOCUMENTS
        for _, code in FENCE.findall(text_of(document))
        for line in _SHELL.findall(code)
        if line.startswith("kafka-log-recovery ") and _SYNOPSIS.search(line)
    ]


def scripts(document: Path) -> list[str]:
    """Return the Python programs of a document; SQL as one."""
    found = []
    for language, code in FENCE.findall(text_of(document)):
        if language == "python":
            found.append(code)
        if language == "sql":
            found += [f"spark.sql('''{one.strip()}''').show()" for one in code.split(";") if one.strip()]
    return found


def _commands(code: str) -> Iterator[str]:
    for line in (*_SHELL.findall(code), *_SYSTEMD.findall(code)):
        if not _SYNOPSIS.search(line) or line.startswith("pip "):
            yield re.split(r"\s+#", line)[0].strip()
    for line in _KUBERNETES.findall(code):
        yield " ".join(word.strip() for word in line.split(","))
