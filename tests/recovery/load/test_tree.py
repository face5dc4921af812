"""The folder as a value: names, origins of bytes, and what is nowhere any more."""

from __future__ import annotations

import pytest

from recovery.errors import PartitionRefusedError
from recovery.load.model import FileStat, Generated, LogSettings, Original, RemovalKind
from recovery.load.tree import PartitionTree
from segfmt.errors import FileNameError
from tests.recovery.load.memory import MemorySource, task_of

FILES = {"a": b"aaaa", "b": b"bb", "5.snapshot": b"five", "00000000000000000009.snapshot": b"nine and more"}


@pytest.fixture
def tree() -> PartitionTree:
    return PartitionTree(task_of(FILES).files, MemorySource(FILES, LogSettings()))


def test_at_first_every_name_stands_for_itself(tree: PartitionTree) -> None:
    assert tree.nodes == {name: Original(file=name, size_bytes=len(data)) for name, data in FILES.items()}
    assert tree.names() == sorted(FILES)
    assert (tree.read("a"), tree.size_bytes("a"), "a" in tree, "c" in tree) == (b"aaaa", 4, True, False)
    assert tree.removed == {}


def test_a_made_file_and_zeros_behind_it(tree: PartitionTree) -> None:
    tree.put("c", b"c", size_bytes=4)
    assert tree.read("c") == b"c\x00\x00\x00"
    assert tree.nodes["c"] == Generated(data=b"c", size_bytes=4)
    assert tree.original("c") is None


def test_a_cut_keeps_where_the_bytes_come_from(tree: PartitionTree) -> None:
    tree.cut("a", 3)
    assert tree.read("a") == b"aaa"
    assert tree.original("a") == Original(file="a", size_bytes=3)
    assert tree.removed == {}


def test_a_cut_of_a_made_file(tree: PartitionTree) -> None:
    tree.put("c", b"cc", size_bytes=8)
    tree.cut("c", 3)
    assert tree.read("c") == b"cc\x00"


def test_a_renamed_file_keeps_its_bytes_and_is_not_removed(tree: PartitionTree) -> None:
    tree.rename("a", "c")
    assert tree.read("c") == b"aaaa"
    assert "a" not in tree
    assert tree.removed == {}


def test_a_name_that_is_taken_loses_what_it_stood_for(tree: PartitionTree) -> None:
    tree.rename("a", "b")
    assert tree.read("b") == b"aaaa"
    assert tree.removed == {"b": RemovalKind.COMPACTED}


def test_a_file_made_anew_is_gone_as_it_was(tree: PartitionTree) -> None:
    tree.put("a", b"new")
    assert tree.removed == {"a": RemovalKind.DERIVED}


def test_a_removed_file_is_told_with_its_kind_and_its_first_name(tree: PartitionTree) -> None:
    tree.rename("a", "c")
    tree.remove("c", RemovalKind.PENDING_DELETION)
    tree.remove("not there", RemovalKind.LEFTOVER)
    assert tree.removed == {"a": RemovalKind.PENDING_DELETION}


def test_a_part_of_a_file_under_another_name(tree: PartitionTree) -> None:
    tree.put_part("c", Original(file="a", size_bytes=2, origin_position=1))
    tree.remove("a", RemovalKind.DERIVED)
    assert tree.read("c") == b"aa"
    assert tree.removed == {}  # some of its bytes are still somewhere


def test_snapshots_are_listed_by_the_number_in_front(tree: PartitionTree) -> None:
    assert tree.list_snapshots() == {5: "5.snapshot", 9: "00000000000000000009.snapshot"}
    tree.put("x.snapshot", b"")
    with pytest.raises(FileNameError):
        tree.list_snapshots()


def test_a_snapshot_is_written_over_a_longer_one_without_cutting_it(tree: PartitionTree) -> None:
    name = tree.write_snapshot(9, b"NINE")
    assert tree.read_snapshot(name) == b"NINE and more"
    tree.delete_snapshot(name)
    tree.write_snapshot(9, b"NINE")
    assert tree.read_snapshot(name) == b"NINE"


def test_a_snapshot_longer_than_a_java_array_is_refused() -> None:
    name = "00000000000000000007.snapshot"
    longest = PartitionTree(
        {name: FileStat(size_bytes=2**31 - 9)}, MemorySource({name: b"read"}, LogSettings())
    )
    assert longest.read_snapshot(name) == b"read"
    longer = PartitionTree(
        {name: FileStat(size_bytes=2**31 - 8)}, MemorySource({name: b"read"}, LogSettings())
    )
    with pytest.raises(PartitionRefusedError, match="OutOfMemoryError"):
        longer.read_snapshot(name)
