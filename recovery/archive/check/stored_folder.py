"""A partition's folder in an archive, read as one of a file system is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from recovery.archive.check.scanned import PartitionHead
from recovery.archive.copy.comparison import other_bytes
from recovery.archive.copy.findings import difference_finding
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.finding import Finding, unreadable
from recovery.check.folder_files import MOST_SMALL_FILE_BYTES, FolderFiles, read_folder
from recovery.load.model import FileStat


class StoredFolder:
    """The objects of a plain copy.

    Args:
        store: where they are.
        objects: of the folder.
        copied_sha256: of some of them as they were copied, by name.

    Attributes:
        findings: on those of them that were read, and are not as they were copied, or cannot be read.
    """

    def __init__(
        self,
        store: Store,
        objects: list[StoredObject],
        copied_sha256: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._objects = {stored.name: stored for stored in objects}
        self._uncompared = dict(copied_sha256)
        self.findings: list[Finding] = []

    def list(self) -> tuple[dict[str, FileStat], dict[str, str]]:
        """Return the objects; a store has nothing else."""
        return {name: FileStat(size_bytes=stored.size_bytes) for name, stored in self._objects.items()}, {}

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the first bytes of an object."""
        sha256 = self._uncompared.pop(name, None)
        data = self._store.read(self._objects[name].key, most_bytes=most_bytes)
        if sha256 is not None and len(data) == self._objects[name].size_bytes:
            difference = other_bytes(name, data, sha256)
            self.findings += [] if difference is None else [difference_finding(difference)]
        return data

    def read_rest(self) -> None:
        """Compare what was copied, and not read for the checks."""
        for name in self._objects.keys() & self._uncompared.keys():
            try:
                self.read(name, MOST_SMALL_FILE_BYTES)
            except OSError as error:
                self.findings.append(unreadable(name, error))


def scan_folder(store: Store, head: PartitionHead) -> FolderFiles:
    """Read and check the small files of a plain copy's folder."""
    folder = StoredFolder(store, head.archived.objects, head.copied_sha256)
    files = read_folder(folder, is_live=False, is_metadata_log=head.facts.is_metadata_log, is_archived=True)
    folder.read_rest()
    files.findings += folder.findings
    return files
