"""The partitions of an archive in all of its layouts, one layout after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.layouts import AUTO, OtherLayouts, all_but, layout_of, make_layout
from recovery.archive.layouts.walk import OtherLayout, UnlistedPrefix, Walked, walk
from recovery.archive.stores.archived import PartitionPrefix
from recovery.archive.stores.store import Level, Store


class ArchiveWalk:
    """Goes through an archive: in the layout that is named, or in all that it comes by.

    Args:
        store: the archive.
        name: of the layout, or auto.
        is_chosen: which partitions.
        on_level: is told each prefix above partitions, and what is there.
        on_unlisted: is told each prefix, or key, that could not be looked at.

    Attributes:
        layouts: that were looked for so far, at least one.
        unlisted: what could not be listed.

    Raises:
        UsageError: no partition was found.
        OSError: the archive cannot be listed.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        is_chosen: Callable[[PartitionPrefix], bool],
        on_level: Callable[[str, Level], None] = lambda _prefix, _level: None,
        on_unlisted: Callable[[str], None] = lambda _prefix: None,
    ) -> None:
        self.layouts: list[Layout] = [layout_of(store, name)]
        self.unlisted: list[UnlistedPrefix] = []
        self._store = store
        self._finds_others = name == AUTO
        self._is_chosen = is_chosen
        self._on_level = on_level
        self._on_unlisted = on_unlisted
        self._others = OtherLayouts()

    @property
    def names(self) -> list[str]:
        """The names of the layouts."""
        return [layout.name for layout in self.layouts]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not looked at."""
        return tuple(self._others.notes(self.names))

    @property
    def tiered(self) -> Layout:
        """The first layout of remote storage; without one the first of all."""
        return next((layout for layout in self.layouts if layout.is_tiered), self.layouts[0])

    def partitions(self) -> Iterator[tuple[Layout, Walked]]:
        """Yield each partition, and its layout.

        Raises:
            OSError: the archive itself cannot be listed.
        """
        for layout in self.layouts:
            for walked in walk(
                self._store,
                layout,
                is_chosen=self._is_chosen,
                others=all_but(layout),
                on_level=self._on_level,
            ):
                if isinstance(walked, Walked):
                    yield layout, walked
                elif isinstance(walked, OtherLayout):
                    self._others.note(walked)
                elif walked not in self.unlisted:
                    self._on_unlisted(walked.prefix)
                    self.unlisted.append(walked)
            further = self._others.next_name(self.names)
            if self._finds_others and further is not None:
                self.layouts.append(make_layout(further))
