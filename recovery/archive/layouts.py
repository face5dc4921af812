"""The layouts that there are, and which one an archive has."""

from __future__ import annotations

from typing import Final

from recovery.archive.layout import Layout
from recovery.archive.plain_layout import PlainLayout
from recovery.archive.store import Store
from recovery.archive.tiered_layout import LocalTieredLayout
from recovery.errors import UsageError

LAYOUTS: Final[dict[str, Layout]] = {layout.name: layout for layout in (LocalTieredLayout(), PlainLayout())}
AUTO: Final = "auto"
_MOST_PREFIXES = 2_000
"""How many prefixes are looked at before an archive counts as none of ours."""


def layout_of(store: Store, name: str = AUTO) -> Layout:
    """Return the layout called *name*, or the one that the first partition found in *store* has.

    Raises:
        UsageError: no partition was found.
        OSError: the archive cannot be listed.
    """
    if name != AUTO:
        return LAYOUTS[name]
    root = store.url.rstrip("/").rpartition("/")[2]
    found = _recognised(root)
    if found is not None:
        return found
    pending = [""]
    looked_at = 0
    while pending and looked_at < _MOST_PREFIXES:
        deeper: list[str] = []
        for prefix in pending:
            looked_at += 1
            for path in store.list_level(prefix).prefixes:
                found = _recognised(path.rstrip("/"))
                if found is not None:
                    return found
                deeper.append(path)
        pending = deeper
    raise UsageError(
        f"{store.url}: no folder of a partition was found in {looked_at} prefixes, in any layout "
        f"({', '.join(LAYOUTS)}); name the layout by --layout, or the folder that holds the partitions"
    )


def _recognised(path: str) -> Layout | None:
    return next((layout for layout in LAYOUTS.values() if layout.partition_at(path) is not None), None)
