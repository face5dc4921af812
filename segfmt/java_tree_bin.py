"""The red-black bins of Java's HashMap, as far as they change the order in which a map is iterated.

A bucket of nine keys becomes a tree that is also a linked list. Iteration follows the list, and the list
depends on the tree: the root is moved to the front, a new key is linked behind its parent in the tree. So the
tree has to be there. Keys are compared by (hash, key), both signed, which is a total order for Long keys.

Java: java.util.HashMap.TreeNode (treeify, putTreeVal, removeTreeNode, split, moveRootToFront).
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

    def remove(self, order: tuple[int, int], *, is_movable: bool) -> bool:
        """Take out a (hash, key) that is there.

        Args:
            order: (hash, key).
            is_movable: True for Map.remove; False for removal by an iterator, which neither moves the root
                nor turns a small tree into a list.

        Returns:
            False if the bucket is a plain list from now on (in the order of iteration), else True.
        """
        node = self._find(order)
        root = self._root
        self._unlink(node)
        if self._first is None:
            self._root = None
            return False
        assert root is not None
        if is_movable and (root.right is None or root.left is None or root.left.left is None):
            return False
        self._delete(node)
        if is_movable:
            self._move_root_to_front()
        return True

    def _find(self, order: tuple[int, int]) -> _Node:
        node = self._root
        while node is not None and node.order != order:
            node = node.left if order < node.order else node.right
        assert node is not None
        return node

    def _unlink(self, node: _Node) -> None:
        if node.previous is None:
            self._first = node.next
        else:
            node.previous.next = node.next
        if node.next is not None:
            node.next.previous = node.previous

    def _move_root_to_front(self) -> None:
        root, first = self._root, self._first
        if root is None or root is first:
            return
        self._unlink(root)
        root.previous, root.next = None, first
        if first is not None:
            first.previous = root
        self._first = root

    def _insert(self, node: _Node) -> _Node | None:
        """Hang *node* into the tree and balance it; return the parent under which it was hung at first."""
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

    def _replace_child(self, node: _Node, other: _Node | None) -> None:
        """Put *other* where *node* hangs below its parent."""
        parent = node.parent
        if parent is None:
            self._root = other
        elif parent.left is node:
            parent.left = other
        else:
            parent.right = other
        if other is not None:
            other.parent = parent

    def _delete(self, node: _Node) -> None:
        if node.left is not None and node.right is not None:
            self._swap_with_successor(node)
        child = node.left if node.left is not None else node.right
        if child is not None:
            self._replace_child(node, child)
            if not node.is_red:
                self._balance_deletion(child)
            return
        if not node.is_red:
            self._balance_deletion(node)
        self._replace_child(node, None)

    def _swap_with_successor(self, node: _Node) -> None:
        """Exchange *node* and the next higher one, colours too, so that *node* has one child at most."""
        successor = node.right
        assert successor is not None
        while successor.left is not None:
            successor = successor.left
        successor.is_red, node.is_red = node.is_red, successor.is_red
        left, right, parent, below = node.left, node.right, successor.parent, successor.right
        self._replace_child(node, successor)
        if parent is node:
            successor.right, node.parent = node, successor
        else:
            assert parent is not None
            assert right is not None
            parent.left, node.parent = node, parent
            successor.right, right.parent = right, successor
        assert left is not None
        successor.left, left.parent = left, successor
        node.left, node.right = None, below
        if below is not None:
            below.parent = node

    def _balance_deletion(self, node: _Node) -> None:
        while (parent := node.parent) is not None and not node.is_red:
            is_left = parent.left is node
            sibling = parent.right if is_left else parent.left
            assert sibling is not None  # the side without the missing black node is not empty
            if sibling.is_red:
                sibling.is_red, parent.is_red = False, True
                self._rotate(parent, to_left=is_left)
                sibling = parent.right if is_left else parent.left
                assert sibling is not None
            near, far = (sibling.left, sibling.right) if is_left else (sibling.right, sibling.left)
            if not _is_red(near) and not _is_red(far):
                sibling.is_red = True
                node = parent
                continue
            if not _is_red(far):
                assert near is not None
                near.is_red, sibling.is_red = False, True
                self._rotate(sibling, to_left=not is_left)
                sibling, far = near, sibling
            assert far is not None
            sibling.is_red, parent.is_red, far.is_red = parent.is_red, False, False
            self._rotate(parent, to_left=is_left)
            break
        node.is_red = False
        if self._root is not None:
            self._root.is_red = False


def _is_red(node: _Node | None) -> bool:
    return node is not None and node.is_red
