"""The red-black bins of Java's HashMap, as far as they change the order in which a map is iterated.

A bucket of nine keys becomes a tree that is also a linked list. Iteration follows the list, and the list
depends on the tree: the root is moved to the front, a new key is linked after its parent in the tree. So the
tree has to be built. Keys are compared by (hash, key), both signed, which is a total order for Long keys.

Java: java.util.HashMap.TreeNode (treeify, putTreeVal, split, moveRootToFront).
"""

from __future__ import annotations

from collections.abc import Iterator


class _Node:
    __slots__ = ("is_red", "left", "next", "order", "parent", "previous", "right")

    def __init__(self, order: tuple[int, int]) -> None:
        self.order = order
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.next: _Node | None = None
        self.previous: _Node | None = None
        self.is_red = True


class TreeBin:
    """One bucket that has become a tree.

    Args:
        orders: (hash, key) of each node in list order, both signed.
    """

    def __init__(self, orders: list[tuple[int, int]]) -> None:
        self._root: _Node | None = None
        self._first: _Node | None = None
        last: _Node | None = None
        for order in orders:
            node = _Node(order)
            node.previous = last
            if last is None:
                self._first = node
            else:
                last.next = node
            last = node
            self._insert(node)
        self._move_root_to_front()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (hash, key) in the order in which Java iterates this bucket."""
        node = self._first
        while node is not None:
            yield node.order
            node = node.next

    def put(self, order: tuple[int, int]) -> None:
        """Add a (hash, key) that is not yet there."""
        node = _Node(order)
        parent = self._insert(node)
        assert parent is not None
        node.next, node.previous = parent.next, parent
        if parent.next is not None:
            parent.next.previous = node
        parent.next = node
        self._move_root_to_front()

    def _move_root_to_front(self) -> None:
        root, first = self._root, self._first
        assert root is not None  # a bucket without keys is not a tree
        assert first is not None
        if root.previous is None:
            return
        root.previous.next = root.next
        if root.next is not None:
            root.next.previous = root.previous
        root.previous, root.next = None, first
        first.previous = root
        self._first = root

    def _insert(self, node: _Node) -> _Node | None:
        """Insert *node* into the tree and balance it; return its parent before the balancing."""
        parent, below = None, self._root
        while below is not None:
            parent = below
            below = below.left if node.order < below.order else below.right
        node.parent = parent
        if parent is None:
            self._root = node
        elif node.order < parent.order:
            parent.left = node
        else:
            parent.right = node
        self._balance_insertion(node)
        return parent

    def _balance_insertion(self, node: _Node) -> None:
        while (parent := node.parent) is not None and parent.is_red:
            grandparent = parent.parent
            assert grandparent is not None  # a red node is never the root
            is_left = parent is grandparent.left
            uncle = grandparent.right if is_left else grandparent.left
            if uncle is not None and uncle.is_red:
                parent.is_red = uncle.is_red = False
                grandparent.is_red = True
                node = grandparent
                continue
            if node is (parent.right if is_left else parent.left):
                self._rotate(parent, to_left=is_left)
                node, parent = parent, node
            parent.is_red = False
            grandparent.is_red = True
            self._rotate(grandparent, to_left=not is_left)
        assert self._root is not None
        self._root.is_red = False

    def _rotate(self, node: _Node, *, to_left: bool) -> None:
        child = node.right if to_left else node.left
        assert child is not None
        inner = child.left if to_left else child.right
        if to_left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        self._replace_child(node, child)
        node.parent = child

    def _replace_child(self, node: _Node, other: _Node) -> None:
        """Put *other* in the place of *node* below its parent."""
        parent = node.parent
        if parent is None:
            self._root = other
        elif parent.left is node:
            parent.left = other
        else:
            parent.right = other
        other.parent = parent
