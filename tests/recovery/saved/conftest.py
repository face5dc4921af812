"""A log dir and the quarantine beside it, with one run to be filled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs.quarantine_builder import NEW_RUN, RunBuilder, a_log_dir
from tests.logs.samples import Sample, unpack


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return a_log_dir(tmp_path / "d1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "d1.quarantine"


@pytest.fixture
def builder(root: Path, log_dir: Path) -> RunBuilder:
    return RunBuilder(root, NEW_RUN, log_dir)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    root = tmp_path_factory.mktemp("samples")
    yield unpack("crashed", root)
    shutil.rmtree(root)
