"""Kafka's own jars and the project's small Java programs, fetched and compiled once into a cache.

Needs Java 17 (a JDK: `java`, `javac`) and Maven. The cache is `$XDG_CACHE_HOME/kafka-log-recovery` (default
`~/.cache`); its folders are keyed by a hash of what they are made from: nothing built twice, nothing stale.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KAFKA_VERSION = "4.3.1"
ORACLE_DIR = Path(__file__).parent / "oracle"
_COMMANDS = ("java", "javac", "mvn")


class KafkaUnavailableError(RuntimeError):
    """Java, Maven, or what Maven should fetch is not there."""


def missing_commands() -> list[str]:
    """The commands these suites need and this machine does not have."""
    return [command for command in _COMMANDS if shutil.which(command) is None]


@functools.cache
def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of Kafka *version*: broker, clients, tools, LocalTieredStorage, logging."""
    pom = ORACLE_DIR / "pom.xml"
    logging_profile = "legacy-logging" if version.startswith("3.") else "current-logging"

    def fetch(into: Path) -> None:
        command = ["mvn", "-B", "-q", "-f", str(pom), f"-P{logging_profile}", f"-Dkafka.version={version}"]
        _run(
            [*command, "dependency:copy-dependencies", f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
        )

    return _cached(f"kafka-{version}", [pom], [version], fetch)


def class_path(version: str = KAFKA_VERSION, *, before: Sequence[Path] = ()) -> str:
    """The class path of Kafka *version*, with the folders *before* it."""
    return os.pathsep.join([*map(str, before), f"{kafka_jars(version)}/*"])


@functools.cache
def compiled(*folders: Path) -> Path:
    """The classes of all `.java` files below *folders*, compiled against Kafka 4.3.1."""
    sources = sorted(source for folder in folders for source in folder.rglob("*.java"))

    def compile_all(into: Path) -> None:
        options = ["-proc:none", "-implicit:none", "-Xlint:all,-options", "-d", str(into)]
        _run(["javac", *options, "-cp", class_path(), *map(str, sources)])

    return _cached("classes", sources, [str(kafka_jars())], compile_all)


def oracle_classes() -> Path:
    """The compiled programs of tests/oracle/src."""
    return compiled(ORACLE_DIR / "src")


def clock_classes() -> Path:
    """The clock that makes a whole broker believe it is another day (tests/oracle/clock)."""
    return compiled(ORACLE_DIR / "clock")


def cache_dir() -> Path:
    """Where jars and classes are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-log-recovery"


def _cached(name: str, sources: Sequence[Path], more: Sequence[str], build: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256("\0".join(more).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    place = cache_dir() / f"{name}-{digest.hexdigest()[:16]}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.parent / ".building"):
        if not place.is_dir():
            building = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.parent))
            try:
                build(building)
                building.rename(place)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    missing = missing_commands()
    if missing:
        raise KafkaUnavailableError(f"Java 17 and Maven are needed, not found: {', '.join(missing)}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KafkaUnavailableError(f"{command[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
