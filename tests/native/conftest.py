"""Each test of a kernel runs once for every CPU path that this machine has."""

from __future__ import annotations

import pytest

from native import cpu
from native.cpu_path import CpuPath


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cpu_path" in metafunc.fixturenames:
        metafunc.parametrize("cpu_path", cpu.supported(), ids=[path.name.lower() for path in cpu.supported()])


@pytest.fixture
def other_paths(cpu_path: CpuPath) -> list[CpuPath]:
    return [path for path in cpu.supported() if path is not cpu_path]
