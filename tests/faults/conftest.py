"""What the suites of this folder share: one fork server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.bench import Bench
from tests.faults.campaign import memory_folder


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """The samples and a fork server for the whole run."""
    with memory_folder() as root, Bench(root) as running:
        yield running
