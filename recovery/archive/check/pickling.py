"""What map and fold exchange, as bytes: pickled, and read back with only our own classes.

Some of it is kept in the output of a run, where others may be able to write. So a pickle may name only the classes in
MODULES and what numpy needs for its arrays; anything else is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final

MODULES: Final = (
    "native.producer_sequences",
    "native.raw_scan",
    "recovery.archive.stores.archived",
    "recovery.archive.check.scanned",
    "recovery.archive.stores.segment_table",
    "recovery.archive.check.logs.sound_logs",
    "recovery.archive.check.survey",
    "recovery.check.rules.batches",
    "recovery.check.rules.indexes",
    "recovery.check.folder_files",
    "recovery.load.model",
    "recovery.check.facts",
    "recovery.check.task",
    "recovery.check.finding",
    "segfmt.checkpoint",
    "segfmt.remote_log_metadata",
)
"""Whose classes may be in a pickle."""
_OTHERS: Final = frozenset(
    {
        ("uuid", "UUID"),
        ("uuid", "SafeUUID"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy.core.numeric", "_frombuffer"),
    }
)


def to_pickle(value: object) -> bytes:
    """Return *value*, which is made of our own values, as bytes."""
    return pickle.dumps(value, protocol=5)


def from_pickle(data: bytes) -> Any:  # noqa: ANN401 - what was encoded
    """Return the value in *data*.

    Raises:
        pickle.UnpicklingError: it names something other than our classes.
    """
    return _Reader(io.BytesIO(data)).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class
        known_class = _known.get((module, name))
        if known_class is None:
            known_class = _known[module, name] = _checked(module, name, super().find_class)
        return known_class


_known: dict[tuple[str, str], Any] = {}


def _checked(module: str, name: str, find: Callable[[str, str], Any]) -> Any:  # noqa: ANN401 - a class
    if (module, name) in _OTHERS:
        return find(module, name)
    if module in MODULES and "." not in name:
        value = find(module, name)
        if isinstance(value, type) and value.__module__ == module:
            return value
    raise pickle.UnpicklingError(f"a kept scan names {module}.{name}, which is not a class of this program")
