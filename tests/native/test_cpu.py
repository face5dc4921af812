"""Which path is taken, what is said when it cannot be, and that asking never ends the process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from native import _jit, cpu
from native.cpu import CpuPath
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
    monkeypatch.setattr(
        _jit, "target_features", lambda: frozenset({"+sse4.2", "+crc32", "+pclmul", "-avx512f"})
    )
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


def test_cpu_without_the_instructions_computes_all_the_same(tmp_path: Path) -> None:
    """numba is told of a CPU that has nothing: compiling for any other path would end the process."""
    code = """
import numpy as np
from native import cpu
from native.cpu import CpuPath
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
        "import sys, native.cpu, native.crc32c, native.segment_scan, native.raw_scan\n"
        "assert 'numba' not in sys.modules and 'llvmlite' not in sys.modules"
    )


CACHE_PROBE = """
import numpy as np
from native import _crc32c, cpu
_crc32c.entry(cpu.CpuPath.PORTABLE)
print(sum(_crc32c._checksum_kernel.stats.cache_hits.values()))
"""


def test_machine_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    assert run_python(CACHE_PROBE, **environment) == "0"
    assert run_python(CACHE_PROBE, **environment) == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kafka-log-recovery"]
    (folder,) = (tmp_path / "kafka-log-recovery").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_folder_that_others_can_write_to_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_jit._config, "CACHE_DIR", "")
    folder = _jit._cache_folder.__wrapped__()
    assert folder is not None
    folder.chmod(0o777)
    assert _jit._cache_folder.__wrapped__() is None


def test_without_a_writable_folder_kernels_are_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(_jit._config, "CACHE_DIR", "")
    assert _jit._cache_folder.__wrapped__() is None
    assert run_python(CACHE_PROBE, XDG_CACHE_HOME=str(blocked), NUMBA_CACHE_DIR="") == "0"
