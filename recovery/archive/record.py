"""What map and fold tell each other, as bytes: pickled, compressed, and read back with nothing but our own values.

Records are kept in the output of a run, where others may be able to write. So what is read back may name only the
classes in MODULES and what numpy needs for its arrays; anything else is refused, whatever it would do.
"""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any, Final

MODULES: Final = (
    "native.raw_scan",
    "recovery.archive.archived",
    "recovery.archive.scanned",
    "recovery.archive.survey",
    "recovery.batch_checks",
    "recovery.folder_files",
    "recovery.model",
    "recovery.partition_facts",
    "recovery.segment_task",
    "recovery.verdict",
    "segfmt.checkpoint",
    "segfmt.remote_log_metadata",
)
"""Whose classes may be in a record."""
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
_LEVEL = 1  # records are many and small; a better level costs more than it saves


def encode_record(value: object) -> bytes:
    """Return *value*, which is made of our own values, as bytes."""
    return zlib.compress(pickle.dumps(value, protocol=5), _LEVEL)


def decode_record(data: bytes) -> Any:  # noqa: ANN401 - what was encoded
    """Return the value in *data*.

    Raises:
        pickle.UnpicklingError: it names something else than our values.
        zlib.error: it is no record.
    """
    return _Reader(io.BytesIO(zlib.decompress(data))).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module in MODULES and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"a record of an archive's scan names {module}.{name}: it is not ours")
