"""The options of a watch: made once, by the command line or a caller of the library, and handed down whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of `watch`, as its command line has them.

    Attributes:
        log_dirs: the broker's log dirs on this machine; None for those in `config`, or for none if that is None, too.
        config: the broker's properties.
        interval_s: how often to look, seconds.
        stall_seconds: without progress for so long, a recovery is said to have stalled.
        once: look once, and end.
        forever: go on when the recovery is over, and wait for the next one.
    """

    log_dirs: Sequence[str] | None = None
    config: Mapping[str, str] | None = None
    interval_s: float = 1.0
    stall_seconds: float = 300.0
    once: bool = False
    forever: bool = False

    def refuse_wrong_values(self) -> None:
        """Raise UsageError if a number is out of range, or two options exclude each other."""
        for option, value in (("--interval", self.interval_s), ("--stall-seconds", self.stall_seconds)):
            if not 0 < value < 1e6:
                raise UsageError(
                    f"{option} {value}: expected seconds above 0. Remedy: leave it out for the default"
                )
        if self.once and self.forever:
            raise UsageError("--once and --forever exclude each other. Remedy: choose one")
