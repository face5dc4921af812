"""What has been copied: a line for each file, at the output. It tells the next run what need not be sent again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from recovery.archive.stores.store import Store
from recovery.errors import UsageError

MANIFEST_KEY = "kafka-log-recovery-copy.jsonl"
_VERSION = 1
_MOST_BYTES = 1 << 30
_WRITTEN_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file as it was when it was copied; `inode` and `mtime_ns` tell whether it is still the same."""

    size_bytes: int
    mtime_ns: int
    inode: int
    sha256: str


class CopyManifest:
    """The files at an output, by key. Thread-safe.

    Args:
        store: the output.
        log_dirs: folder by log dir, for people.
        copied: what earlier runs have copied.
    """

    def __init__(self, store: Store, log_dirs: Mapping[str, str], copied: Mapping[str, CopiedFile]) -> None:
        self._store = store
        self._log_dirs = dict(log_dirs)
        self._copied = dict(copied)
        self._lock = threading.Lock()
        self._written_s = time.monotonic()

    def get(self, key: str) -> CopiedFile | None:
        """Return what was copied to *key*, None if nothing was."""
        with self._lock:
            return self._copied.get(key)

    def note(self, key: str, copied: CopiedFile) -> None:
        """Note a file that is at the output now; it is written there now and then."""
        with self._lock:
            self._copied[key] = copied
            if time.monotonic() - self._written_s > _WRITTEN_EVERY_S:
                self._write()

    def write(self) -> None:
        """Write all of it to the output."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        head = {"version": _VERSION, "logDirs": self._log_dirs}
        lines = [json.dumps(head)]
        lines += [
            json.dumps([key, one.size_bytes, one.mtime_ns, one.inode, one.sha256])
            for key, one in sorted(self._copied.items())
        ]
        self._store.replace(MANIFEST_KEY, "\n".join([*lines, ""]).encode())
        self._written_s = time.monotonic()


def read_manifest(store: Store, log_dirs: Mapping[str, str], *, is_forgotten: bool) -> CopyManifest:
    """Return the manifest at the output *store*, an empty one if there is none.

    Args:
        log_dirs: folder by log dir, of this run.
        is_forgotten: whether what earlier runs have copied does not count.

    Raises:
        UsageError: it is of other log dirs, or not a manifest.
    """
    try:
        data = store.read(MANIFEST_KEY, most_bytes=_MOST_BYTES)
    except FileNotFoundError:
        return CopyManifest(store, log_dirs, {})
    try:
        head, *lines = data.decode().splitlines()
        document = json.loads(head)
        copied = {}
        for line in lines:
            key, size_bytes, mtime_ns, inode, sha256 = json.loads(line)
            copied[str(key)] = CopiedFile(int(size_bytes), int(mtime_ns), int(inode), str(sha256))
        others = {str(folder): str(log_dir) for log_dir, folder in document["logDirs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{store.url}/{MANIFEST_KEY}: not the manifest of a copy ({error}). Remedy: choose another output"
        ) from error
    for log_dir, folder in log_dirs.items():
        if others.get(folder, log_dir) != log_dir:
            raise UsageError(
                f"{store.url}/{folder}: the copy of another log dir, {others[folder]}. Remedy: choose another output"
            )
    all_dirs = {log_dir: folder for folder, log_dir in others.items()} | dict(log_dirs)
    return CopyManifest(store, all_dirs, {} if is_forgotten else copied)
