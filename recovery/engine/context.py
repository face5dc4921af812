"""What the log dirs that one process recovers have in common."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from recovery.watch.events import Observer
from recovery.watch.phases import Phases
from recovery.write.space import SpaceLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Handed down whole, from the pool to each partition.

    Attributes:
        notify: tells the observers.
        phases: count the time.
        stop: ends the work early; threads look at it between windows and between partitions.
        limit: on the reads of `.log` files by all threads together.
        space: what plans have reserved on each file system.
    """

    notify: Observer
    phases: Phases
    stop: StopRequest
    limit: RateLimit
    space: SpaceLedger
