"""The sample logs: unpacked for a test, and trees of files compared as this project compares them.

sample_logs/README.md says what is in them and how they were made.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import lzma
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

SAMPLE_DIR = ROOT / "sample_logs"
SAMPLE_NAMES = ("crashed", "crashed-v0-v1", "intact", "stopped")
NEWEST_NAME = "crashed-4.4"  # of a broker of the newest release
AIVEN_NAME = "aiven"  # storage roots of the Aiven plugin, no log dirs
TIERED_NAME = (
    "tiered"  # an archive, and the log dirs of the broker that made it (tests/brokers/tiered_broker.py)
)
MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
_HUGE_BYTES = 64 << 20
_PAGE_BYTES = 4096
_ZERO_PAGE = bytes(_PAGE_BYTES)
_OFFSET_CHECKPOINT = re.compile(r"(recovery-point|log-start|replication|cleaner)-offset-checkpoint$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One unpacked sample: a broker's log dirs, and what it takes to recover them as that broker would."""

    name: str
    root: Path  # holds server.properties, topic-configs.json and the log dirs
    log_dirs: tuple[Path, ...]
    properties: Mapping[str, str]  # server.properties; log.dirs are the unpacked ones
    topic_configs: Mapping[str, Mapping[str, str]]  # overrides per topic, as the broker reported them
    now_ms: int  # the clock of recoveries

    @property
    def config(self) -> Path:
        """A server.properties whose log.dirs are the unpacked ones."""
        return self.root / "server.properties"


def unpack(name: str, into: Path) -> Sample:
    """Unpack sample *name* (of SAMPLE_NAMES, NEWEST_NAME, TIERED_NAME) below *into*, holes in files included."""
    _extract(name, into)
    root = into / name
    facts = json.loads((root / "sample.json").read_text())
    log_dirs = tuple(root / log_dir for log_dir in facts["log_dirs"])
    text = (root / "server.properties").read_text().replace("@ROOT@", str(root))
    (root / "server.properties").write_text(text)
    return Sample(
        name=name,
        root=root,
        log_dirs=log_dirs,
        properties=read_properties(text),
        topic_configs=json.loads((root / "topic-configs.json").read_text()),
        now_ms=facts["now_ms"],
    )


def unpack_aiven(into: Path) -> Path:
    """Unpack what the Aiven plugin stored below *into*; return the folder that holds its two storage roots."""
    root = into / AIVEN_NAME
    _extract(AIVEN_NAME, root)
    return root


def _extract(name: str, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    command = ["tar", "--extract", "--preserve-permissions", "--directory", str(into)]
    try:
        subprocess.run(command, input=_decompressed(name), capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"tar cannot unpack {name}:\n{error.stderr.decode()}") from error


@functools.cache
def _decompressed(name: str) -> bytes:
    """The tar file of a sample: decompressed once in a process, since that takes twenty times as long as `tar` does."""
    return lzma.decompress((SAMPLE_DIR / f"{name}.tar.xz").read_bytes())


def read_properties(text: str) -> dict[str, str]:
    """The plain `key=value` lines of a server.properties (no escapes, no continuations: ours have none)."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def tree_of(root: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> dict[str, bytes]:
    """Everything below *root*: path relative to it -> content.

    A folder is `name/` -> b"", a symbolic link `name@` -> its target. Entries of *root* itself whose name is
    in *ignore* are left out.
    """
    tree: dict[str, bytes] = {}
    base = os.fspath(root)
    for folder, folder_names, file_names in os.walk(base):
        prefix = os.path.relpath(folder, base)
        prefix = "" if prefix == "." else f"{prefix}/"
        if not prefix:
            folder_names[:] = [name for name in folder_names if name not in ignore]
            file_names = [name for name in file_names if name not in ignore]
        for name in (*folder_names, *file_names):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                tree[f"{prefix}{name}@"] = os.fsencode(os.readlink(path))
            elif name in folder_names:
                tree[f"{prefix}{name}/"] = b""
            elif os.path.isfile(path):
                tree[f"{prefix}{name}"] = content_of(path)
            else:
                tree[f"{prefix}{name}|"] = b""  # a FIFO, a socket, a device
    return tree


def write_tree(tree: Mapping[str, bytes], root: str | os.PathLike[str]) -> None:
    """Write what `tree_of` has read into the new folder *root*; long runs of zeros become holes."""
    base = os.fspath(root)
    os.makedirs(base)
    for name in sorted(tree):  # a folder comes before what is in it
        path = os.path.join(base, name[:-1] if name[-1] in "/@|" else name)
        if name.endswith("/"):
            os.mkdir(path)
        elif name.endswith("@"):
            os.symlink(os.fsdecode(tree[name]), path)
        elif name.endswith("|"):
            os.mkfifo(path)
        else:
            _write_with_holes(path, tree[name])


class HugeFile(bytes):
    """A sparse file too large to be held: its size, and the pages that are not all zeros.

    As bytes it is a digest-like text of both, so two of them are equal where their files are.
    """

    size_bytes: int
    pages: tuple[tuple[int, bytes], ...]

    @classmethod
    def read(cls, path: str) -> HugeFile:
        """Read the pages of *path* that the file system has."""
        pages = []
        with open(path, "rb", buffering=0) as file:
            size_bytes, position = os.fstat(file.fileno()).st_size, 0
            while position < size_bytes:
                try:
                    position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                except OSError:
                    break  # nothing but a hole up to the end
                page = os.pread(file.fileno(), _PAGE_BYTES, position)
                if any(page):
                    pages.append((position, page))
                position += _PAGE_BYTES
        digest = hashlib.sha256(b"".join(page for _, page in pages)).hexdigest()
        found = cls(f"{size_bytes} bytes, pages {[position for position, _ in pages]}, {digest}".encode())
        found.size_bytes, found.pages = size_bytes, tuple(pages)
        return found


def content_of(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file; of a huge one with holes a `HugeFile`."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_size > _HUGE_BYTES and found.st_blocks * 512 < found.st_size // 2:
            return HugeFile.read(os.fspath(path))
        return file.read()


def _write_with_holes(path: str, content: bytes) -> None:
    pages = [(0, content)]
    size_bytes = len(content)
    if isinstance(content, HugeFile):
        pages, size_bytes = list(content.pages), content.size_bytes
    elif size_bytes > 4 * _PAGE_BYTES and not any(content[-_PAGE_BYTES:]):  # preallocated
        end = size_bytes
        while end > _PAGE_BYTES and content[end - _PAGE_BYTES : end] == _ZERO_PAGE:
            end -= _PAGE_BYTES
        pages = [(0, content[:end])]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for position, page in pages:
            if page:
                os.pwrite(descriptor, page, position)
        os.ftruncate(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def differences(expected: Mapping[str, bytes], actual: Mapping[str, bytes]) -> list[str]:
    """How *actual* differs from *expected*, one line per file; empty when the trees are the same.

    Files are compared byte for byte, offset checkpoints as sets of lines, the clean-shutdown marker by
    presence. A `.lock` is a difference wherever it is.
    """
    found = [f"{name}: a lock is left" for name in actual if _file_name(name) == LOCK]
    for name in sorted(expected.keys() | actual.keys()):
        if _file_name(name) == LOCK:
            continue
        if name not in actual:
            found.append(f"{name}: missing ({len(expected[name])} bytes expected)")
        elif name not in expected:
            found.append(f"{name}: not expected ({len(actual[name])} bytes)")
        elif _comparable(name, expected[name]) != _comparable(name, actual[name]):
            found.append(f"{name}: {_how(expected[name], actual[name])}")
    return found


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def _comparable(name: str, content: bytes) -> object:
    if _file_name(name) == MARKER:
        return True
    if _OFFSET_CHECKPOINT.search(name):
        return sorted(content.splitlines())
    return content


def _how(expected: bytes, actual: bytes) -> str:
    if len(expected) <= 400 and len(actual) <= 400:
        return f"expected {expected!r}, got {actual!r}"
    shorter = min(len(expected), len(actual))
    position = next((i for i in range(shorter) if expected[i] != actual[i]), shorter)
    return f"expected {len(expected)} bytes, got {len(actual)}; first difference at position {position}"


def main() -> None:
    """`python -m tests.logs.samples NAME DIR`: unpack a sample below DIR, print where its server.properties is."""
    parser = argparse.ArgumentParser(prog="python -m tests.logs.samples", description=main.__doc__)
    parser.add_argument("name", choices=(*SAMPLE_NAMES, NEWEST_NAME, TIERED_NAME))
    parser.add_argument("into", type=Path)
    arguments = parser.parse_args()
    print(unpack(arguments.name, arguments.into).config)


if __name__ == "__main__":
    main()
