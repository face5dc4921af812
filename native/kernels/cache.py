"""Where compiled kernels are kept between processes, and when they are used.

A folder holds the kernels of one compiler, one set of sources, one CPU and one set of numba's settings; its
name is a digest of all that. Another CPU, version or setting has another folder, so one home may serve many
machines, and nothing in a folder is ever out of date. Files get their names when they are complete, and are
used only if their checksum is right.

What is in a folder is executed, so a folder that somebody else could write to is not used: it must belong to
this user, or to root, who could do anything anyway.

Importing this module imports neither numba nor llvmlite.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

import segfmt.byte_layout

ENVIRONMENT: Final = "KAFKA_LOG_RECOVERY_KERNEL_CACHE"
"""Environment variable that names the folder for the kernels of all versions and CPUs."""
_SYSTEM_FOLDER: Final = Path("/var/cache/kafka-log-recovery")
"""Of images and packages: whoever installs compiles there, and every user finds it."""
_MAGIC: Final = b"klrkern1"
_DIGEST_BYTES: Final = 32
_FOLDER_NAME: Final = re.compile(r"kernels-[0-9a-f]{16}")
_UNUSED_S: Final = 30 * 86_400
_TOUCH_S: Final = 86_400
"""How old the mark that a folder is in use may become; it need not be exact to the day."""
_CPU_FACTS: Final = frozenset(
    b"vendor_id, cpu family, model, model name, stepping, flags, "  # x86
    b"CPU implementer, CPU architecture, CPU variant, CPU part, CPU revision, Features".split(b", ")  # Arm
)


class KernelCache:
    """A folder of checked files.

    Attributes:
        folder: where it is, or would be; None if no place for it is known.
        problem: why nothing can be kept there; empty if something can.
    """

    def __init__(self, folder: Path | None, key: bytes) -> None:
        self.folder = folder
        self._key = key
        self.problem = "" if folder is not None else "there is no home folder"
        self._is_readable = False
        if folder is None:
            return
        try:
            is_new = _make(folder)
            status = folder.stat()
            if not _is_ours_alone(status):
                self.problem = f"{folder} could be written to by others"
                return
            self._is_readable = True
            if is_new:
                remove_unused(folder.parent)
            elif time.time() - status.st_mtime > _TOUCH_S:
                with contextlib.suppress(OSError):  # one that can only be read
                    os.utime(folder)
            if not os.access(folder, os.W_OK):
                self.problem = f"{folder} cannot be written to"
        except OSError as error:
            self.problem = f"{folder}: {error.strerror}"

    def read(self, name: str) -> bytes | None:
        """Return what was written under *name*; None if nothing was, or if it is incomplete or changed."""
        if not self._is_readable or self.folder is None:
            return None
        try:
            with (self.folder / name).open("rb") as file:
                if not _is_ours_alone(os.fstat(file.fileno())):
                    return None
                data = file.read()
        except OSError:
            return None
        header, payload = data[: len(_MAGIC) + _DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
        return payload if header == self._header(name, payload) else None

    def write(self, name: str, payload: bytes) -> bool:
        """Keep *payload* under *name*; any number of processes may do so at once. Return False if it cannot be kept."""
        if self.problem or self.folder is None:
            return False
        temporary = self.folder / f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with open(descriptor, "wb") as file:
                file.write(self._header(name, payload) + payload)
            temporary.replace(self.folder / name)
        except OSError as error:
            self.problem = f"{self.folder}: {error.strerror}"
            with contextlib.suppress(OSError):
                temporary.unlink()
            return False
        return True

    def _header(self, name: str, payload: bytes) -> bytes:
        return _MAGIC + hashlib.sha256(self._key + name.encode() + b"\0" + payload).digest()


@functools.cache
def of_this_process() -> KernelCache:
    """Return the cache for this machine, this compiler, these sources and this environment."""
    key = _key()
    name = f"kernels-{key.hex()[:16]}"
    root = _root(name)
    return KernelCache(root and root / name, key)


def _root(name: str) -> Path | None:
    """Return where the folder *name* is, or is to be made."""
    if chosen := os.environ.get(ENVIRONMENT) or os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    if (_SYSTEM_FOLDER / name).is_dir():
        return _SYSTEM_FOLDER
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "kafka-log-recovery"
    if os.access(_SYSTEM_FOLDER, os.W_OK):
        return _SYSTEM_FOLDER
    try:
        return Path("~/.cache/kafka-log-recovery").expanduser()
    except RuntimeError:  # no home
        return None


def _make(folder: Path) -> bool:
    """Make *folder* if it does not exist; return whether it was made."""
    try:
        folder.mkdir(mode=0o755, parents=True)
    except OSError:  # it exists, perhaps made by another process just now, or it cannot be made
        if not folder.is_dir():
            raise
        return False
    return True


def remove_unused(root: Path) -> None:
    """Remove the folders of kernels in *root* that are this user's and that nobody has used for 30 days. Never raises.

    A process that is using one has its kernels in memory; one that looks for them finds nothing and compiles them.
    Anything that is not a file stays, and the folder with it.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            if _FOLDER_NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    _remove_if_unused(root / name)


def _remove_if_unused(folder: Path) -> None:
    # By its descriptor, so that nobody can put another folder in its place meanwhile.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or time.time() - status.st_mtime <= _UNUSED_S:
            return
        for name in os.listdir(descriptor):
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    folder.rmdir()


def _is_ours_alone(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _key() -> bytes:
    """Return a digest of everything that the machine code depends on."""
    digest = hashlib.sha256()
    for part in (*_sources(), *_versions(), *_settings(), _cpu_facts()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _sources() -> Iterator[bytes]:
    """Yield the sources that a kernel may be made of; numba itself looks at a kernel's own file only."""
    package = Path(__file__).parents[1]
    for folder in (package, *sorted(path for path in package.iterdir() if path.is_dir())):
        for file in sorted(folder.glob("*.py")):
            yield os.fsencode(file.relative_to(package)) + b"\0" + file.read_bytes()
    yield Path(segfmt.byte_layout.__file__).read_bytes()


def _versions() -> Iterator[bytes]:
    yield sys.version.encode()
    yield np.__version__.encode()
    for package in ("numba", "llvmlite"):
        found = importlib.util.find_spec(package)  # does not import it
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"{package} is not installed", name=package)
        yield (Path(found.origin).parent / "_version.py").read_bytes()


def _settings() -> Iterator[bytes]:
    """Yield numba's settings: which CPU to compile for, whether to check bounds, and any it may add later."""
    for name, value in sorted(os.environ.items()):
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR":
            yield os.fsencode(f"{name}={value}")
    with contextlib.suppress(OSError):
        yield Path(".numba_config.yaml").read_bytes()


def _cpu_facts() -> bytes:
    """Return the type and features of this machine's first CPU, as the system reports them."""
    try:
        descriptor = os.open("/proc/cpuinfo", os.O_RDONLY)
        try:
            first_cpu = os.read(descriptor, 1 << 16).split(b"\n\n")[0]
        finally:
            os.close(descriptor)
    except OSError:  # not Linux
        from llvmlite import binding

        return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}".encode()
    facts = [line for line in first_cpu.splitlines() if line.partition(b":")[0].strip() in _CPU_FACTS]
    return b"\n".join([os.uname().machine.encode(), *facts])
