"""What every suite shares: the oracle, real archives and servers, and what happens where they cannot be had."""

from __future__ import annotations

import fcntl
import functools
import getpass
import importlib.util
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.brokers import RELEASES, KafkaUnavailableError, Oracle, kafka_jars
from tests.brokers.tiered_broker import EXPECTED, TieredArchive, make_tiered, opened, unpack_tiered
from tests.servers.chromium import Chromium
from tests.servers.file_systems import unmount_what_killed_runs_left
from tests.servers.machine import JAVA, hide_programs
from tests.servers.s3_server import S3Server, S3UnavailableError, server_program
from tests.servers.spark_versions import SparkUnavailableError, oldest_spark

settings.register_profile("suites", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suites")
"""How long an example takes is a matter of the machine, and of what else it does: no test fails by that."""

_NEEDS_JAVA = ("java", "broker")
_NOT_QUICK = (
    *_NEEDS_JAVA,
    "s3",
    "spark",
    "every_spark",
    "oldest_spark",
    "browser",
    "prometheus",
    "install",
    "long",
)


_ORACLES = frozenset({"oracle", "newest_oracle", "each_oracle"})


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One JVM with Kafka's own LogManager for the whole run."""
    with Oracle() as running:
        yield running


@pytest.fixture(scope="session")
def newest_oracle() -> Iterator[Oracle]:
    """The same of the newest release."""
    with Oracle(version=[*RELEASES.values()][-1]) as running:
        yield running


@pytest.fixture(scope="session", params=RELEASES)
def each_oracle(request: pytest.FixtureRequest) -> Oracle:
    """Those of all releases whose rules are known, one after the other."""
    running: Oracle = request.getfixturevalue("oracle" if request.param == "4.3" else "newest_oracle")
    return running


@pytest.fixture
def ram_path(tmp_path: Path) -> Iterator[Path]:
    """A folder like tmp_path, in memory where the machine has /dev/shm: Kafka's fsyncs cost nothing there."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared_memory, prefix="kafka-log-recovery-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def stored_archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    """The sample `tiered`, for reading only."""
    return unpack_tiered(tmp_path_factory.mktemp("stored"))


@pytest.fixture(scope="session")
def fresh_archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    """A small archive that a real broker has made for this run (marker `broker`), for reading only.

    pytest's processes share it: the first makes it, which takes most of a minute.
    """
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    root = shared / "fresh-archive"
    with (shared / "fresh-archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return opened(root) if (root / EXPECTED).exists() else make_tiered(root, size=2)


@pytest.fixture
def s3_server(tmp_path: Path) -> Iterator[S3Server]:
    """A real S3 server with an empty bucket (marker `s3`)."""
    folder = tmp_path / "s3"
    folder.mkdir()
    with S3Server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser (marker `browser`)."""
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help=f"the gate for a change: no test marked {', '.join(_NOT_QUICK)}"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*what): skipped where the machine lacks that, see tests/servers/machine.py"
    )
    if "PYTEST_XDIST_WORKER" not in os.environ:
        runs = (
            Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
            / f"pytest-of-{getpass.getuser()}"
        )
        unmount_what_killed_runs_left(runs.resolve())
    if config.getoption("quick"):  # in each of pytest's processes: xdist gives them the command line alone
        wanted = f"not ({' or '.join(_NOT_QUICK)})"
        given = config.option.markexpr
        config.option.markexpr = f"({given}) and {wanted}" if given else wanted
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        hide_programs(Path(folder.name), os.environ)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what asks Kafka's own classes by way of a fixture."""
    if not _ORACLES.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker("java")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what needs the real Kafka, S3, Spark or a right where it cannot be had."""
    for need in (need for mark in item.iter_markers("needs") for need in mark.args):
        if need.why_not is not None:
            pytest.skip(need.why_not)
    if any(item.get_closest_marker(name) for name in _NEEDS_JAVA):
        reason = _why_no_kafka()
        if reason is not None:
            pytest.skip(f"the real Kafka is missing: {reason}")
    for name, why_not in (
        ("s3", _why_no_s3),
        ("spark", _why_no_spark),
        ("oldest_spark", _why_no_oldest_spark),
    ):
        reason = why_not() if item.get_closest_marker(name) else None
        if reason is not None:
            pytest.skip(f"marker {name}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: CI has everything."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as a failure in CI: {report.longrepr}"
    return report


@functools.cache
def _why_no_kafka() -> str | None:
    if JAVA.why_not is not None:
        return JAVA.why_not
    try:
        kafka_jars()
    except KafkaUnavailableError as error:
        return str(error)
    return None


@functools.cache
def _why_no_s3() -> str | None:
    try:
        server_program()
    except S3UnavailableError as error:
        return str(error)
    return None


@functools.cache
def _why_no_spark() -> str | None:
    if JAVA.why_not is not None:
        return JAVA.why_not
    return None if importlib.util.find_spec("pyspark") else "no pyspark in this environment"


@functools.cache
def _why_no_oldest_spark() -> str | None:
    try:
        oldest_spark()
    except SparkUnavailableError as error:
        return str(error)
    return None
