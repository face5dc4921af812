"""Kernels are compiled once, and what was compiled is used where it is right, whole and nobody else's."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native import cpu, kernels
from native.cpu_path import CpuPath
from native.errors import UnlinkableError
from native.kernels import cache as kernel_cache
from native.kernels import compiler, link, loader
from native.kernels.cache import KernelCache
from tests import ROOT
from tests.patience import LONGEST_WAIT_SECONDS

pytestmark = pytest.mark.long

DIGITS = np.frombuffer(b"123456789", np.uint8)
PROBE = """
import json, sys
import numpy as np
from native import kernels
from native.cpu_path import CpuPath
from native.crc32c import crc32c
assert crc32c(np.frombuffer(b"123456789", np.uint8), cpu_path=CpuPath.PORTABLE) == 0xE3069283
account = kernels.account()
print(json.dumps({
    "origin": account.origin.value,
    "remark": account.remark,
    "seconds": account.compile_s,
    "heavy": sorted({"numba", "llvmlite"} & set(sys.modules)),
}))
"""
KERNEL = "checksum_of-portable"


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROBE],
        cwd=cache.parent,
        env={**others, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == 0
    answer: dict[str, Any] = json.loads(out)
    return answer


def probe(cache: Path, **environment: str) -> dict[str, Any]:
    return finish(start(cache, **environment))


def folders(cache: Path) -> list[Path]:
    return sorted((cache / "kafka-log-recovery").iterdir())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that a process has used."""
    cache = tmp_path_factory.mktemp("filled")
    assert probe(cache)["origin"] == "compiled"
    return cache


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_second_process_needs_neither_numba_nor_llvm(cache: Path) -> None:
    assert probe(cache) == {"origin": "cache", "remark": "", "seconds": 0.0, "heavy": []}
    (folder,) = folders(cache)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o022 == 0
    assert {file.name for file in folder.iterdir()} == {KERNEL, "target"}


@pytest.mark.parametrize("source", ["_gf2.py", "kernels/link.py"])
def test_changed_source_is_compiled_anew(cache: Path, tmp_path: Path, source: str) -> None:
    """Also one that the kernel's own module only imports."""
    for package in ("native", "segfmt"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert probe(cache, **environment)["origin"] == "cache"
    with (tmp_path / "native" / source).open("a") as file:
        file.write("# changed\n")
    assert probe(cache, **environment)["origin"] == "compiled"
    assert len(folders(cache)) == 2


def test_damaged_file_is_compiled_anew_and_replaced(cache: Path) -> None:
    (folder,) = folders(cache)
    whole = (folder / KERNEL).read_bytes()
    flipped = bytearray(whole)
    flipped[-9] ^= 4
    for damaged in (whole[:-1], whole[:20], b"", bytes(flipped), (folder / "target").read_bytes()):
        (folder / KERNEL).write_bytes(damaged)
        assert KernelCache(folder, kernel_cache._key()).read(KERNEL) is None
    assert probe(cache)["origin"] == "compiled"
    assert (folder / KERNEL).read_bytes() == whole
    assert probe(cache)["origin"] == "cache"


def test_damaged_target_is_asked_for_again(cache: Path) -> None:
    (folder,) = folders(cache)
    whole = (folder / "target").read_bytes()
    (folder / "target").write_bytes(whole.replace(b"+sse4.2", b"-sse4.2", 1)[:-3])
    assert probe(cache)["heavy"] == ["llvmlite", "numba"]
    assert (folder / "target").read_bytes() == whole


@pytest.mark.parametrize(
    "setting", [{"NUMBA_CPU_NAME": "x86-64"}, {"NUMBA_CPU_FEATURES": ""}, {"NUMBA_ENABLE_AVX": "0"}]
)
def test_other_target_has_its_own_code(cache: Path, setting: dict[str, str]) -> None:
    assert probe(cache, **setting)["origin"] == "compiled"
    assert len(folders(cache)) == 2
    assert probe(cache)["origin"] == probe(cache, **setting)["origin"] == "cache"


def test_other_cpu_of_the_same_home_has_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    here = kernel_cache._key()
    assert kernel_cache._key() == here
    facts = kernel_cache._cpu_facts()
    monkeypatch.setattr(kernel_cache, "_cpu_facts", lambda: facts.replace(b"sse4_2", b"sse4a"))
    assert kernel_cache._key() != here or b"sse4_2" not in facts


def test_processes_that_start_at_once(tmp_path: Path) -> None:
    for one in [start(tmp_path) for _ in range(3)]:
        assert finish(one)["origin"] in ("compiled", "cache")
    (folder,) = folders(tmp_path)
    assert {file.name for file in folder.iterdir()} == {KERNEL, "target"}
    assert probe(tmp_path)["origin"] == "cache"


def test_folder_that_others_can_write_to_is_not_used(cache: Path) -> None:
    (folder,) = folders(cache)
    before = (folder / KERNEL).stat().st_mtime_ns
    folder.chmod(0o777)
    answer = probe(cache)
    assert answer["origin"] == "memory"
    problem, _, remedy = answer["remark"].partition(". Remedy: ")
    assert (
        problem == f"compiled kernels cannot be kept for the next run: {folder} could be written to by others"
    )
    assert "KAFKA_LOG_RECOVERY_KERNEL_CACHE" in remedy
    assert "warm --kernel-cache" in remedy
    assert (folder / KERNEL).stat().st_mtime_ns == before


def test_file_that_others_can_write_to_is_not_used(cache: Path) -> None:
    (folder,) = folders(cache)
    (folder / KERNEL).chmod(0o620)
    assert KernelCache(folder, kernel_cache._key()).read(KERNEL) is None


def test_home_that_cannot_hold_a_folder(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    answer = probe(blocked)
    assert answer["origin"] == "memory"
    assert ": Not a directory. Remedy: " in answer["remark"]
    assert probe(tmp_path, XDG_CACHE_HOME="", HOME="/dev/null")["origin"] == "memory"


def test_read_only_folder_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = folders(cache)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    kept = KernelCache(folder, kernel_cache._key())
    assert kept.read(KERNEL) is not None
    assert kept.problem == f"{folder} cannot be written to"
    assert not kept.write("another", b"")
    assert not (folder / "another").exists()


def days_old(folder: Path, days: float) -> Path:
    """A folder of kernels that was last used so long ago."""
    folder.mkdir()
    (folder / KERNEL).write_bytes(b"code")
    stamp = time.time() - days * 86_400
    os.utime(folder, (stamp, stamp))
    return folder


def test_new_folder_takes_the_place_of_those_that_nobody_uses(tmp_path: Path) -> None:
    root = tmp_path / "kafka-log-recovery"
    root.mkdir()
    old, recent = days_old(root / f"kernels-{'a' * 16}", 31), days_old(root / f"kernels-{'b' * 16}", 29)
    foreign = [days_old(root / name, 400) for name in ("kernels-mine", "kernels-" + "A" * 16, "x" * 16)]
    holds_folder = days_old(root / f"kernels-{'c' * 16}", 0)
    (holds_folder / "folder").mkdir()
    os.utime(holds_folder, (0, 0))
    elsewhere = days_old(tmp_path / f"kernels-{'d' * 16}", 400)
    (root / f"kernels-{'e' * 16}").symlink_to(elsewhere)
    (root / f"kernels-{'f' * 16}").write_text("a file")
    cache = KernelCache(root / f"kernels-{'0' * 16}", b"key")
    assert cache.problem == ""
    assert cache.write("a", b"code")
    assert not old.exists()
    assert {one.name for one in root.iterdir()} == {
        *(one.name for one in (recent, holds_folder, *foreign)),
        *(f"kernels-{letter * 16}" for letter in "0ef"),
    }
    assert (recent / KERNEL).exists()
    assert (elsewhere / KERNEL).exists()


def test_folders_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = days_old(tmp_path / f"kernels-{'a' * 16}", 31)
    monkeypatch.setattr(os, "geteuid", lambda: old.stat().st_uid + 1)
    kernel_cache.remove_unused(tmp_path)
    assert (old / KERNEL).exists()


def test_what_cannot_be_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    days_old(tmp_path / f"kernels-{'a' * 16}", 31)
    monkeypatch.setattr(os, "unlink", refuse)
    assert KernelCache(tmp_path / f"kernels-{'0' * 16}", b"key").problem == ""
    kernel_cache.remove_unused(tmp_path / "nowhere")


def test_used_folder_is_as_young_as_its_use(tmp_path: Path) -> None:
    """And no other one goes where none is made: it would cost each start something."""
    used, old = days_old(tmp_path / f"kernels-{'a' * 16}", 31), days_old(tmp_path / f"kernels-{'b' * 16}", 31)
    KernelCache(used, b"key")
    assert time.time() - used.stat().st_mtime < 60
    assert old.exists()
    stamp = time.time() - 3600
    os.utime(used, (stamp, stamp))
    KernelCache(used, b"key")
    assert used.stat().st_mtime == pytest.approx(stamp, abs=1)  # noted often enough


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path / "kernels", b"key")

    def no_space(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", no_space)
    assert not cache.write("a", b"code")
    assert cache.problem.endswith("No space left on device")
    assert list((tmp_path / "kernels").iterdir()) == []


def test_what_cannot_be_kept_is_compiled_by_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnlinkableError("refused")

    monkeypatch.setattr(compiler, "link", refuse)
    monkeypatch.setattr(kernel_cache.of_this_process(), "_is_readable", False)
    # The account is of the whole process: with a kernel that is not kept, later tests would start no processes.
    monkeypatch.setattr(loader, "_origins", set())
    monkeypatch.setattr(loader, "_compile_s", 0.0)
    checksum = loader._load(kernels.CHECKSUM, CpuPath.PORTABLE)
    assert checksum(DIGITS.ctypes.data, DIGITS.size) == 0xE3069283
    assert kernels.account().origin is kernels.Origin.MEMORY


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda kernel: kernel.function)
def test_every_kernel_can_be_kept(kernel: kernels.Kernel) -> None:
    for path in cpu.supported() if kernel.has_path else [None]:
        kernels.entry(kernel, path)
        name = kernel.function if path is None else f"{kernel.function}-{path.label}"
        assert kernel_cache.of_this_process().read(name) is not None


@pytest.mark.parametrize(
    ("language", "problem"),
    [
        (
            "define i64 @kernel_entry() {\n %a = call i64 @other()\n ret i64 %a\n}\ndeclare i64 @other()",
            "other",
        ),
        ("@v = global i64 1\ndefine i64 @kernel_entry() {\n %a = load i64, ptr @v\n ret i64 %a\n}", "data"),
        ("define i64 @somebody() {\n ret i64 0\n}", "kernel_entry"),
    ],
)
def test_code_that_needs_more_is_refused(language: str, problem: str) -> None:
    with pytest.raises(UnlinkableError, match=problem):
        link.link(compiler.to_object(language, kernels.target()), "kernel_entry")


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(UnlinkableError, match="no ELF object"):
        link.link(b"\xcf\xfa\xed\xfe" + bytes(100), "kernel_entry")
