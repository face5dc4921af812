"""What several suites about whole brokers share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.sample_brokers import copy_of, crash_broker
from tests.logs.samples import Sample


@pytest.fixture(scope="session")
def crashed_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Sample]:
    """Copies the log dirs of a killed broker of a version into a new folder; each version is killed once."""

    @functools.cache
    def crashed(version: str) -> Sample:
        return crash_broker(version, tmp_path_factory.mktemp("crashed") / version)

    return lambda version, root: copy_of(crashed(version), root)
