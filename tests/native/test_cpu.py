"""Which path is taken, what is said when it cannot be, and that asking never ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native import cpu, kernels
from native.cpu_path import CpuPath, Target
from native.errors import NativeError, UnsupportedCpuPathError


def run_python(code: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_fastest_path_is_the_default() -> None:
    assert cpu.choose() is cpu.supported()[-1]
    assert cpu.supported()[0] is CpuPath.PORTABLE


def test_supported_path_can_be_forced(cpu_path: CpuPath) -> None:
    assert cpu.choose(cpu_path) is cpu_path


def test_missing_path_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.supported.cache_clear()
    features = "+sse4.2,+crc32,+pclmul,-avx512f"
    monkeypatch.setattr(kernels, "target", lambda: Target("x86_64-unknown-linux-gnu", "nehalem", features))
    try:
        assert cpu.supported() == (CpuPath.PORTABLE, CpuPath.SSE42_PCLMUL)
        with pytest.raises(
            UnsupportedCpuPathError, match=r"AVX512_VPCLMUL .* lacks .*avx512f.*possible: PORTABLE"
        ):
            cpu.choose(CpuPath.AVX512_VPCLMUL)
    finally:
        cpu.supported.cache_clear()


def test_paths_have_names_for_a_command_line() -> None:
    assert cpu.named("portable") is CpuPath.PORTABLE
    assert cpu.named("avx512-vpclmul") is CpuPath.AVX512_VPCLMUL
    with pytest.raises(NativeError, match=r"'neon'.*sse42-pclmul"):
        cpu.named("neon")


@pytest.mark.parametrize(("name", "path"), [("Portable", CpuPath.PORTABLE), ("", cpu.supported()[-1])])
def test_the_environment_names_the_path_of_a_process(name: str, path: CpuPath) -> None:
    code = "from native import cpu; print(cpu.choose().name, cpu.choose(cpu.CpuPath.PORTABLE).name)"
    assert run_python(code, KAFKA_LOG_RECOVERY_CPU_PATH=name) == f"{path.name} PORTABLE"


def test_the_environment_names_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu.ENVIRONMENT, "neon")
    with pytest.raises(UnsupportedCpuPathError, match=r"KAFKA_LOG_RECOVERY_CPU_PATH: .*'neon'"):
        cpu.default.__wrapped__()


def test_cpu_without_the_instructions_computes_all_the_same(tmp_path: Path) -> None:
    """numba is told of a CPU that has nothing: compiling for any other path would end the process."""
    code = """
import numpy as np
from native import cpu
from native.cpu_path import CpuPath
from native.crc32c import crc32c
assert cpu.supported() == (CpuPath.PORTABLE,), cpu.supported()
try:
    crc32c(np.zeros(1, np.uint8), cpu_path=CpuPath.AVX512_VPCLMUL)
except cpu.UnsupportedCpuPathError:
    print(hex(crc32c(np.frombuffer(b"123456789", np.uint8))))
"""
    out = run_python(
        code, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="", XDG_CACHE_HOME=str(tmp_path), NUMBA_CACHE_DIR=""
    )
    assert out == "0xe3069283"


def test_importing_the_typed_modules_does_not_import_numba() -> None:
    run_python(
        "import sys, native.batch_headers, native.crc32c, native.record_walk, native.segment_scan\n"
        "assert 'numba' not in sys.modules and 'llvmlite' not in sys.modules"
    )
