"""The options of a verify: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from recovery.logdir.options import LogDirOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(LogDirOptions):
    """The options of `verify`, as its command line has them: those of `LogDirOptions`, and its own.

    Attributes:
        deep: open and parse every record.
        topics: only these; all by default.
        partitions: only these folders ("orders-3"), in addition to *topics*.
    """

    deep: bool = False
    topics: Collection[str] = ()
    partitions: Collection[str] = ()
