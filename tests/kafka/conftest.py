"""What several suites about whole brokers share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.generate import Shape, generate
from tests.brokers import Oracle
from tests.brokers.sample_brokers import copy_of, crash_broker
from tests.logs.edge_log import END, Log, make_pristine
from tests.logs.samples import MARKER, Sample

MOST_SEGMENTS = 5


@pytest.fixture(scope="session")
def crashed_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Sample]:
    """Copies the log dirs of a killed broker of a version into a new folder; each version is killed once."""

    @functools.cache
    def crashed(version: str) -> Sample:
        return crash_broker(version, tmp_path_factory.mktemp("crashed") / version)

    return lambda version, root: copy_of(crashed(version), root)


@pytest.fixture(scope="session")
def pristine(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log dir that every case starts from, as Kafka left it."""
    log_dir = make_pristine(oracle, tmp_path_factory.mktemp("pristine") / "d")
    assert (log_dir / MARKER).exists()
    assert Log(log_dir).file(END, ".snapshot").exists()
    return log_dir


@pytest.fixture(scope="session")
def crashed_dirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log dirs d1 and d2 of a killed broker: ten logs of one to five segments of 2 MB."""
    return _killed(tmp_path_factory.mktemp("side-by-side") / "data", bytes_total=100 << 20)


@pytest.fixture(scope="session")
def slow_crashed_dirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with segments of 10 MB: a broker takes seconds to recover them, in which it can be asked."""
    return _killed(tmp_path_factory.mktemp("slow") / "data", bytes_total=500 << 20)


def _killed(root: Path, *, bytes_total: int) -> Path:
    generate(root, Shape(bytes_total=bytes_total, batch_bytes=170, partitions=10, segments=MOST_SEGMENTS))
    for number, folder in enumerate(sorted(root.glob("d?/bench-*"))):
        logs = sorted(folder.glob("*.log"))
        for log in logs[: number % len(logs)]:
            for path in folder.glob(f"{log.stem}.*"):
                path.unlink()
    return root
