"""Kafka's own jars and the project's small Java programs, fetched and compiled once into a cache.

Needs Java 17 (a JDK: `java`, `javac`) and Maven. tests/servers/build_cache.py says where the cache is.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.servers.build_cache import cached

KAFKA_VERSION = "4.3.1"
RELEASES = {"4.3": KAFKA_VERSION, "4.4": "4.4.0"}
"""The version that stands for each release whose rules are known."""
_TOOLS_VERSIONS = {"4.4.0": "4.3.1"}
"""Versions whose kafka-tools and test jars cannot be had, and the version whose jars run beside them."""
_MOVED_CLASS = "org/apache/kafka/common/utils/LogContext"  # of kafka-clients; the old test jar wants it there
ORACLE_DIR = ROOT / "tests/oracle"
_COMMANDS = ("java", "javac", "mvn")


class KafkaUnavailableError(RuntimeError):
    """Java, Maven, or what Maven should fetch is not there."""


@functools.cache
def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of Kafka *version*: broker, clients, tools, LocalTieredStorage, logging."""
    pom = ORACLE_DIR / "pom.xml"
    logging_profile = "legacy-logging" if version.startswith("3.") else "current-logging"

    def fetch(into: Path) -> None:
        versions = [f"-Dkafka.version={version}", f"-Dkafka.tools.version={tools_version}"]
        command = ["mvn", "-B", "-q", "-f", str(pom), f"-P{logging_profile}", *versions]
        _run(
            [*command, "dependency:copy-dependencies", f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
        )
        if tools_version != version:
            clients = kafka_jars(tools_version) / f"kafka-clients-{tools_version}.jar"
            _copy_moved_class(clients, into / f"moved-classes-{tools_version}.jar")

    tools_version = tools_version_of(version)
    return cached(f"kafka-{version}", [pom], [version, tools_version], fetch)


@functools.cache
def maven_artifact(coordinates: str) -> Path:
    """The jar with the Maven *coordinates* `group:name:version[:jar:classifier]`, without what it depends on."""

    def fetch(into: Path) -> None:
        _run(["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={into}"])

    return next(cached(coordinates.split(":")[1], [], [coordinates], fetch).glob("*.jar"))


def release_of(version: str) -> str:
    """The release that a version belongs to: 4.3 of 4.3.1."""
    return ".".join(version.split(".")[:2])


def tools_version_of(version: str) -> str:
    """The version whose kafka-tools serve for *version*: they run on that version's own classes alone."""
    return _TOOLS_VERSIONS.get(version, version)


def class_path(
    version: str = KAFKA_VERSION, *, before: Sequence[Path] = (), after: Sequence[Path] = ()
) -> str:
    """The class path of Kafka *version*, with the folders and jars *before* and *after* it."""
    return os.pathsep.join([*map(str, before), f"{kafka_jars(version)}/*", *map(str, after)])


@functools.cache
def compiled(*folders: Path, version: str = KAFKA_VERSION) -> Path:
    """The classes of all `.java` files below *folders*, compiled against Kafka *version*."""
    sources = sorted(source for folder in folders for source in folder.rglob("*.java"))

    def compile_all(into: Path) -> None:
        options = ["-proc:none", "-implicit:none", "-Xlint:all,-options", "-d", str(into)]
        _run(["javac", *options, "-cp", class_path(version), *map(str, sources)])

    return cached("classes", sources, [str(kafka_jars(version))], compile_all)


def oracle_classes(version: str = KAFKA_VERSION) -> Path:
    """The compiled programs of tests/oracle/src, with the LogManager of Kafka *version*."""
    return compiled(ORACLE_DIR / "src", ORACLE_DIR / "log_manager" / release_of(version), version=version)


def remote_log_classes() -> Path:
    """The compiled program of tests/oracle/remote: Kafka's own view of the metadata of tiered storage."""
    return compiled(ORACLE_DIR / "remote")


def clock_jar() -> Path:
    """The clock that makes a whole broker believe it is another day (tests/oracle/clock)."""
    classes = compiled(ORACLE_DIR / "clock")

    def pack(into: Path) -> None:
        with zipfile.ZipFile(into / "clock.jar", "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes))

    return cached("clock", [], [str(classes)], pack) / "clock.jar"


def _copy_moved_class(clients: Path, into: Path) -> None:
    with zipfile.ZipFile(clients) as all_classes, zipfile.ZipFile(into, "w") as moved:
        for name in all_classes.namelist():
            if name.partition(".class")[0].partition("$")[0] == _MOVED_CLASS:
                moved.writestr(name, all_classes.read(name))


def _run(command: Sequence[str]) -> None:
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise KafkaUnavailableError(f"Java 17 and Maven are needed, not found: {', '.join(missing)}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KafkaUnavailableError(f"{command[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
