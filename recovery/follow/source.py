"""What is watched: a source gives what is new of somebody else's recovery, as events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from recovery.watch.events import Event

LOST_S = 30.0
"""How long a source may be lost during a recovery until it counts as ended: a broker that was killed is started again,
or its exporter answers again, within that time."""


class Source(Protocol):
    """One broker, seen through its log or its metrics. Not thread-safe.

    The events are those of `recover`: RunStarted (with `command="watch"`), LogDirStarted, PartitionStarted, ...,
    RunFinished, whose exit code is 0 when the recovery is over, and 4 when the broker ended before. A source that
    cannot tell logs apart leaves out those of partitions. RunStarted once more, after a Remark that says so: the
    broker has been started again, and counting begins anew.

    SourceLost comes once when the source cannot be reached any more, and a Remark when it is back.

    Events may carry the time at which things happened; without it the notifier gives them the present.
    """

    @property
    def name(self) -> str:
        """What is watched, for people: a path, "standard input", a URL."""

    @property
    def has_history(self) -> bool:
        """Whether it tells of loads that are over, as a log does: one that does not is another log than was meant."""

    @property
    def is_current(self) -> bool:
        """Whether all that was there to be seen at the first look has been given."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can come: the end of standard input."""

    def poll(self, wait_s: float) -> Iterable[Event]:
        """Return what is new, waiting for at most *wait_s* seconds for it."""

    def close(self) -> None:
        """Let go of files and connections."""
