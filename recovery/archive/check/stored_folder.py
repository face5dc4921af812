"""A partition's folder in an archive, read as one of a file system is."""

from __future__ import annotations

from recovery.archive.check.scanned import PartitionHead
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.store import Store
from recovery.check.folder_files import FolderFiles, read_folder
from recovery.load.model import FileStat


class StoredFolder:
    """The objects of a plain copy.

    Args:
        store: where they are.
        objects: of the folder.
    """

    def __init__(self, store: Store, objects: list[StoredObject]) -> None:
        self._store = store
        self._objects = {stored.name: stored for stored in objects}

    def list(self) -> tuple[dict[str, FileStat], dict[str, str]]:
        """Return the objects; a store has nothing else."""
        return {name: FileStat(size_bytes=stored.size_bytes) for name, stored in self._objects.items()}, {}

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the first bytes of an object."""
        return self._store.read(self._objects[name].key, most_bytes=most_bytes)


def scan_folder(store: Store, head: PartitionHead) -> FolderFiles:
    """Read and check the small files of a plain copy's folder."""
    folder = StoredFolder(store, head.archived.objects)
    return read_folder(folder, is_live=False, is_metadata_log=head.facts.is_metadata_log, is_archived=True)
