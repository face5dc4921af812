"""The layouts that there are, and which one an archive has."""

from __future__ import annotations

from typing import Final

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys
from recovery.archive.layouts.aiven_layout import AivenLayout
from recovery.archive.layouts.layout import Layout
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.layouts.tiered_layout import LocalTieredLayout
from recovery.archive.stores.store import Store
from recovery.errors import UsageError

LAYOUT_NAMES: Final = ("plain", "local-tiered", "aiven")
AUTO: Final = "auto"
_MOST_PREFIXES = 2_000
"""How many prefixes are looked at before an archive counts as none of ours."""


def make_layout(name: str, keys: AivenKeys = NO_KEYS) -> Layout:
    """Return the layout called *name*, one of `LAYOUT_NAMES`; *keys* are for encrypted segments."""
    layouts: tuple[Layout, ...] = (PlainLayout(), LocalTieredLayout(), AivenLayout(keys))
    return next(layout for layout in layouts if layout.name == name)


def layout_of(store: Store, name: str = AUTO, keys: AivenKeys = NO_KEYS) -> Layout:
    """Return the layout called *name*, or the one that the first partition found in *store* has.

    Raises:
        UsageError: no partition was found.
        OSError: the archive cannot be listed.
    """
    if name != AUTO:
        return make_layout(name, keys)
    found = _recognised(store.url.rstrip("/"), keys)
    if found is not None:
        return found
    pending = [""]
    looked_at = 0
    while pending and looked_at < _MOST_PREFIXES:
        deeper: list[str] = []
        for prefix in pending:
            looked_at += 1
            for path in store.list_level(prefix).prefixes:
                found = _recognised(path.rstrip("/"), keys)
                if found is not None:
                    return found
                deeper.append(path)
        pending = deeper
    raise UsageError(
        f"{store.url}: no folder of a partition was found in {looked_at} prefixes, in any layout "
        f"({', '.join(LAYOUT_NAMES)}); name the layout by --layout, or the folder that holds the partitions"
    )


def refuse_nothing(store: Store, layout: Layout) -> None:
    """Say that *store* has no partition in the *layout* that was named: nobody is to take nothing for sound.

    Raises:
        UsageError: in any case.
    """
    raise UsageError(
        f"{store.url}: no folder of a partition was found in the layout {layout.name}; --layout auto looks for "
        "others. Else name the folder that holds the partitions"
    )


def _recognised(path: str, keys: AivenKeys) -> Layout | None:
    layouts = (make_layout(name, keys) for name in LAYOUT_NAMES)
    return next((layout for layout in layouts if layout.partition_at(path) is not None), None)
