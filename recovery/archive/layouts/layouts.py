"""The list of layouts, and which one an archive has.

The modules of the layouts are imported when one is made: the command line needs only their names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from recovery.errors import UsageError
from recovery.quantity import count_text

if TYPE_CHECKING:
    from recovery.archive.layouts.aiven_cipher import AivenKeys
    from recovery.archive.layouts.layout import Layout, PartitionLayouts
    from recovery.archive.layouts.walk import OtherLayout
    from recovery.archive.stores.store import Store

AUTO: Final = "auto"
_MOST_PREFIXES = 2_000
"""How many prefixes are examined before an archive counts as unknown."""


def _plain(_keys: AivenKeys | None) -> Layout:
    from recovery.archive.layouts.plain_layout import PlainLayout

    return PlainLayout()


def _local_tiered(_keys: AivenKeys | None) -> Layout:
    from recovery.archive.layouts.tiered_layout import LocalTieredLayout

    return LocalTieredLayout()


def _aiven(keys: AivenKeys | None) -> Layout:
    from recovery.archive.layouts.aiven_cipher import NO_KEYS
    from recovery.archive.layouts.aiven_layout import AivenLayout

    return AivenLayout(NO_KEYS if keys is None else keys)


LAYOUTS: Final[dict[str, Callable[[AivenKeys | None], Layout]]] = {
    "plain": _plain,
    "local-tiered": _local_tiered,
    "aiven": _aiven,
}
"""The makers of layouts by name; `auto` begins with the first layout that recognises a partition in the archive."""


def make_layout(name: str, keys: AivenKeys | None = None) -> Layout:
    """Return the layout called *name*, one of `LAYOUTS`; *keys* are for encrypted segments."""
    return LAYOUTS[name](keys)


class MixedLayouts:
    """The layouts of an archive that has several: that of a partition follows from its prefix."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self._layouts = layouts

    def at(self, prefix: str) -> Layout:
        """Return the layout of the partition at *prefix*."""
        return next(one for one in self._layouts if one.partition_at(prefix.rstrip("/")) is not None)


def make_layouts(names: str, keys: AivenKeys | None = None) -> PartitionLayouts:
    """Return the layouts called *names*: one, or several separated by commas; *keys* are for encrypted segments."""
    layouts = [make_layout(name, keys) for name in names.split(",")]
    return layouts[0] if len(layouts) == 1 else MixedLayouts(layouts)


class OtherLayouts:
    """Partitions that a walk in one layout came by in other ones."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def note(self, other: OtherLayout) -> None:
        """Note a partition in another layout."""
        self._found.setdefault(other.layout, []).append(other.prefix)

    def next_name(self, surveyed: Collection[str]) -> str | None:
        """Return the name of a layout that is not among those *surveyed*, None if there is none."""
        return next((name for name in self._found if name not in surveyed), None)

    def notes(self, surveyed: Collection[str]) -> list[str]:
        """Return a note on each layout that is not among those *surveyed*."""
        return [
            f"{len(prefixes)} partitions in the layout {name} were not looked at, the first is {prefixes[0]}: "
            f"choose the layout {name} for these"
            for name, prefixes in self._found.items()
            if name not in surveyed
        ]


def all_but(layout: Layout, keys: AivenKeys | None = None) -> list[Layout]:
    """Return the other layouts."""
    return [make_layout(name, keys) for name in LAYOUTS if name != layout.name]


def layout_of(store: Store, name: str = AUTO, keys: AivenKeys | None = None) -> Layout:
    """Return the layout called *name*, or the one that the first partition found in *store* has.

    Raises:
        UsageError: no partition was found.
        OSError: the archive cannot be listed; or no partition was found, and there may be some in what cannot.
    """
    if name != AUTO:
        return make_layout(name, keys)
    layout = _recognised(store.url.rstrip("/"), keys)
    if layout is not None:
        return layout
    pending = [""]
    prefix_count = 0
    unlisted: OSError | None = None
    while pending and prefix_count < _MOST_PREFIXES:
        deeper: list[str] = []
        for prefix in pending:
            prefix_count += 1
            try:
                paths = store.list_level(prefix).prefixes
            except OSError as error:
                if not prefix:
                    raise
                unlisted = unlisted or error  # whoever walks through the archive reports it
                continue
            for path in paths:
                layout = _recognised(path.rstrip("/"), keys)
                if layout is not None:
                    return layout
                deeper.append(path)
        pending = deeper
    if unlisted is not None:
        raise unlisted
    from recovery.archive.stores.listed_store import ListedStore  # not earlier: --help needs no store

    listed = " of what the list of its objects names" if isinstance(store, ListedStore) else ""
    raise UsageError(
        f"{store.url}: no folder of a partition was found in {count_text(prefix_count, 'folder')}{listed}, in any "
        f"layout ({', '.join(LAYOUTS)}). Remedy: check the path, name the folder that holds the partitions, or choose "
        "the layout"
    )


def refuse_nothing(store: Store, layout: Layout) -> None:
    """Refuse a *store* without a partition in the named *layout*, lest an empty result be taken for a sound archive.

    Raises:
        UsageError: in any case.
    """
    raise UsageError(
        f"{store.url}: no folder of a partition was found in the layout {layout.name}. Remedy: let the layout be "
        "auto, which looks for others, or name the folder that holds the partitions"
    )


def _recognised(path: str, keys: AivenKeys | None) -> Layout | None:
    layouts = (make_layout(name, keys) for name in LAYOUTS)
    return next((layout for layout in layouts if layout.partition_at(path) is not None), None)
