"""What is at the output of a copy before a run: objects by key, asked for a folder at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress

from recovery.archive.stores.archived import is_temporary
from recovery.archive.stores.segment_table import ObjectTable
from recovery.archive.stores.store import Level, OutputStore
from recovery.printable import is_utf8
from recovery.threads import PoolAhead

NAME_ERRNOS = frozenset({errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ})
"""Of an output that takes other names, and not this one."""
_LISTINGS_AHEAD = 4
_NOTHING = Level(prefixes=(), objects=ObjectTable())


class OutputFiles:
    """The objects at the output beside those that are to be copied.

    What a killed run was writing is removed on the way: nobody else writes below the folder of a log dir.

    Args:
        store: the output.
    """

    def __init__(self, store: OutputStore) -> None:
        self._store = store
        self._sizes_bytes: dict[str, int] = {}

    def list_beside(self, folder: str, keys: Iterable[str], pool: PoolAhead, thread_count: int) -> None:
        """List those folders below *folder* that *keys* are in, as far as they are there."""
        wanted = {key[: key.rindex("/") + 1] for key in keys} - {f"{folder}/"}
        top = self._list(f"{folder}/")
        # A new copy is not asked for folder by folder. A store escapes names that are not UTF-8.
        below = set(top.prefixes)
        there = {one for one in wanted if one.count("/") > 2 or not is_utf8(one) or one in below}
        levels = [top, *pool.map_ahead(self._list, sorted(there), _LISTINGS_AHEAD * thread_count)]
        for level in levels:
            for stored in level.objects:
                if is_temporary(stored.name):
                    self.remove(stored.key)
                else:
                    self._sizes_bytes[stored.key] = stored.size_bytes

    def remove_temporaries(self, prefix: str) -> None:
        """Remove what a killed run was writing directly below *prefix*."""
        for stored in self._list(prefix).objects:
            if is_temporary(stored.name):
                self.remove(stored.key)

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            self._store.remove(key)

    def keys(self, folder: str) -> Iterator[str]:
        """Yield the keys that were listed below *folder*."""
        yield from (key for key in self._sizes_bytes if key.startswith(f"{folder}/"))

    def size_bytes(self, key: str) -> int | None:
        """Return the size of an object, None if there is none."""
        if is_utf8(key):
            return self._sizes_bytes.get(key)
        try:
            return self._store.stat(key).size_bytes
        except OSError:
            return None

    def _list(self, prefix: str) -> Level:
        try:
            return self._store.list_level(prefix)
        except (FileNotFoundError, NotADirectoryError):
            return _NOTHING
        except OSError as error:
            if error.errno not in NAME_ERRNOS:
                raise
            return _NOTHING  # who sends the files below it reports that it does not take the name
