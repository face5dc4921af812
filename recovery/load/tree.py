"""A partition's folder as a value: names, and where the bytes behind each name come from.

The fold plays Kafka's load on this tree instead of on the disk. What is left is what the plan starts from: a name
stands for its own original bytes, for another file's, for a shorter piece, or for bytes that were made. Nothing here
touches a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from recovery.errors import PartitionRefusedError
from recovery.load.model import Content, FileStat, Generated, Original, PartitionSource, RemovalKind
from recovery.problem import Problem, Repair
from segfmt.filenames import FileKind, file_kind, read_offset, snapshot_name
from segfmt.producer_snapshot import EMPTY_SNAPSHOT_BYTES, may_be_snapshot

MOST_WHOLE_BYTES = 256 << 20
"""The longest file that is read at once here, where a broker would: a snapshot of five million producers."""
MAX_READ_BYTES = 2**31 - 9
"""The longest file that Java reads at once. Kafka: Files.readAllBytes."""
LINKS_TO_NOTHING = frozenset({"dangling link", "link that leads nowhere"})


class PartitionTree:
    """The regular files of one partition's folder during the load."""

    def __init__(
        self,
        files: Mapping[str, FileStat],
        source: PartitionSource,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with what lies in the folder.

        Args:
            files: the regular files.
            others: what else is there by name, and what it is; see `PartitionTask`.
        """
        self._source = source
        self._others = others or {}
        self._nodes: dict[str, Content] = {
            name: Original(file=name, size_bytes=stat.size_bytes) for name, stat in files.items()
        }
        self._snapshots = {name: None for name in files if file_kind(name) is FileKind.SNAPSHOT}
        """The names of snapshots in the order of the nodes: each segment asks for them."""
        self._removed: dict[str, RemovalKind] = {}

    @property
    def nodes(self) -> dict[str, Content]:
        """The files by name."""
        return dict(self._nodes)

    @property
    def removed(self) -> dict[str, RemovalKind]:
        """The original files that are nowhere in the tree, by their first names."""
        kept = {node.file for node in self._nodes.values() if isinstance(node, Original)}
        return {name: kind for name, kind in self._removed.items() if name not in kept}

    def names(self) -> list[str]:
        """Return all names in the order of Kafka's sorted listing."""
        return sorted(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def exists(self, name: str) -> bool:
        """Return whether something has this name, a file or not; dangling links do not count, as in Java."""
        return name in self._nodes or self._others.get(name, "dangling link") not in LINKS_TO_NOTHING

    def is_taken(self, name: str) -> bool:
        """Return whether anything has this name."""
        return name in self._nodes or name in self._others

    def size_bytes(self, name: str) -> int:
        """Return the size of a file."""
        self.require_file(name)
        return self._nodes[name].size_bytes

    def read(self, name: str) -> bytes:
        """Return the bytes of a file, small ones only: indexes, snapshots, checkpoints."""
        self.require_file(name)
        node = self._nodes[name]
        if isinstance(node, Original):
            if node.size_bytes > MOST_WHOLE_BYTES:
                raise PartitionRefusedError(
                    file=name,
                    position=MOST_WHOLE_BYTES,
                    rule="file-size",
                    detail=f"{node.size_bytes} bytes are more than the {MOST_WHOLE_BYTES} that this tool reads of such "
                    "a file; a broker loads it",
                    remedy="move it away unless it is known to be right: it is rebuilt from the log where possible",
                )
            end = node.origin_position + node.size_bytes
            return self._source.read(node.file)[node.origin_position : end]
        return bytes(node.data) + bytes(node.size_bytes - len(node.data))

    def pieces(self, name: str, piece_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a file of any size, *piece_bytes* at a time."""
        self.require_file(name)
        node = self._nodes[name]
        if not isinstance(node, Original) or node.size_bytes <= piece_bytes:
            yield self.read(name)
            return
        for position in range(0, node.size_bytes, piece_bytes):
            rest = node.after(position)
            yield self._source.read_part(replace(rest, size_bytes=min(rest.size_bytes, piece_bytes)))

    def original(self, name: str) -> Original | None:
        """Return where the bytes of *name* come from; None if the load made them."""
        node = self._nodes[name]
        return node if isinstance(node, Original) else None

    def put(self, name: str, data: bytes, size_bytes: int | None = None) -> None:
        """Let *name* hold *data*, followed by zeros up to *size_bytes*."""
        self.require_file(name)
        self._forget(name, RemovalKind.DERIVED)
        size_bytes = len(data) if size_bytes is None else size_bytes
        self._set(name, Generated(data=self._source.keep(data), size_bytes=size_bytes))

    def put_part(self, name: str, part: Original) -> None:
        """Let *name* hold a copy of a part of an original file."""
        self.require_file(name)
        self._forget(name, RemovalKind.COMPACTED)
        self._set(name, part)

    def cut(self, name: str, size_bytes: int) -> None:
        """Keep the first *size_bytes* of a file."""
        node = self._nodes[name]
        if size_bytes == node.size_bytes:
            return
        if isinstance(node, Original):
            self._nodes[name] = replace(node, size_bytes=size_bytes)
        else:
            self._nodes[name] = Generated(data=bytes(node.data)[:size_bytes], size_bytes=size_bytes)

    def remove(self, name: str, kind: RemovalKind) -> None:
        """Take *name* away if it is there."""
        self._forget(name, kind)

    def rename(self, old: str, new: str) -> None:
        """Give the file *old* the name *new*; a file of that name is replaced."""
        self.require_file(old)
        self.require_file(new)
        node = self._nodes.pop(old)
        self._snapshots.pop(old, None)
        self._forget(new, RemovalKind.COMPACTED)
        self._set(new, node)

    def require_file(self, name: str) -> None:
        """Refuse the partition if something that is not a file has the *name* of one that is to be opened or made.

        Differs: a 4.x broker meets an I/O error there, which makes it empty a segment or give up the log dir.
        """
        kind = self._others.get(name)
        if kind is not None:
            detail = f"a {kind} where a file is needed (a 4.x broker meets an I/O error, and may empty the segment)"
            remedy = "move it out of the partition's folder"
            # The link may be meant to lead to data
            repair = None if kind in LINKS_TO_NOTHING else Repair(names=(name,))
            problem = Problem(file=name, rule="file-type", detail=detail, remedy=remedy, repair=repair)
            raise PartitionRefusedError.of([problem])

    def _set(self, name: str, node: Content) -> None:
        self._nodes[name] = node
        if file_kind(name) is FileKind.SNAPSHOT:
            self._snapshots[name] = None

    def _forget(self, name: str, kind: RemovalKind) -> None:
        node = self._nodes.pop(name, None)
        self._snapshots.pop(name, None)
        if isinstance(node, Original):
            self._removed[node.file] = kind

    # -- SnapshotFiles --------------------------------------------------------------------------------------

    def list_snapshots(self) -> dict[int, str]:
        """Return the producer snapshots by offset. Kafka: ProducerStateManager.listSnapshotFiles.

        Raises:
            FileNameError: a name has no offset; the broker halts.
        """
        return {read_offset(name): name for name in self._snapshots}

    def read_snapshot(self, name: str) -> bytes:
        """Return the bytes of a snapshot.

        Raises:
            PartitionRefusedError: it does not fit a Java array. Kafka: ProducerStateManager.readSnapshot.
        """
        if self.size_bytes(name) > MAX_READ_BYTES:
            raise PartitionRefusedError(
                file=name,
                position=MAX_READ_BYTES,
                rule="file-size",
                detail=f"a snapshot of more than {MAX_READ_BYTES} bytes stops the broker (OutOfMemoryError)",
                remedy="move it away: it is made again from the log",
            )
        if self.size_bytes(name) > MOST_WHOLE_BYTES:
            head = next(self.pieces(name, EMPTY_SNAPSHOT_BYTES))
            if not may_be_snapshot(head, self.size_bytes(name)):
                return head  # enough to show that the file is corrupt
        return self.read(name)

    def write_snapshot(self, offset: int, data: bytes) -> str:
        """Write the snapshot of *offset* over what is there; a longer file is not cut first, as in Kafka.

        Kafka: ProducerStateManager.writeSnapshot.
        """
        name = snapshot_name(offset)
        rest = self.read(name)[len(data) :] if name in self._nodes else b""
        self.put(name, data + rest)
        return name

    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot if it is there."""
        self.remove(name, RemovalKind.DERIVED)
