"""What went wrong, in plain words: for the terminal, the page and `/api/v1/status`.

Kafka's words for the same events, and for more, are in `kafka_lines`.
"""

import os.path
from collections import deque
from dataclasses import dataclass
from threading import Lock

from recovery.watch.events import (
    BrokerRestarted,
    CutByEarlierRun,
    Event,
    IndexFileProblem,
    Level,
    LogDirHandedOver,
    LogDirOffline,
    PartitionFinished,
    Remark,
    SourceLost,
)

LATEST_COUNT = 100
"""Notices that are kept; a power cut can tear thousands of logs, and the report has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One sentence for an operator.

    Attributes:
        text: what is wrong, beginning with the name of the file if it is about one.
        log_dir: None if it concerns the whole run.
        partition: None if it concerns the whole log dir.
    """

    text: str
    level: Level
    log_dir: str | None = None
    partition: str | None = None
    is_about_file: bool = False

    @property
    def line(self) -> str:
        """The text with its place in front."""
        place = "/".join(filter(None, (self.log_dir, self.partition)))
        if self.is_about_file:
            return os.path.join(place, self.text)
        return f"{place}: {self.text}" if place else self.text


class Notices:
    """An observer that keeps the latest notices and counts them all; may be read from another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._latest: deque[Notice] = deque(maxlen=LATEST_COUNT)
        self._count = 0

    def __call__(self, event: Event) -> None:
        """Keep the notice of *event*, if it has one."""
        if (notice := notice_of(event)) is not None:
            self._keep(notice)

    def say(self, text: str, level: Level) -> None:
        """Keep a message that belongs to no event."""
        self._keep(Notice(text=text, level=level))

    def latest(self) -> tuple[tuple[Notice, ...], int]:
        """Return the latest notices, the oldest first, and how many there were in all."""
        with self._lock:
            return tuple(self._latest), self._count

    def _keep(self, notice: Notice) -> None:
        with self._lock:
            self._latest.append(notice)
            self._count += 1


def notice_of(event: Event) -> Notice | None:
    """Return the notice of *event*; None if the figures say all."""
    match event:
        case IndexFileProblem():
            text = f"{os.path.basename(event.path)}: index file {event.problem}"
            return _of_log(event, text, "warning", is_about_file=True)
        case PartitionFinished(status="refused" | "failed"):
            reason = event.reason.removeprefix(f"{event.partition}: ")
            return _of_log(event, f"{event.status}: {reason}", "error")
        case PartitionFinished() if event.loss:  # in a dry run, too
            return _of_log(event, f"loses {event.loss}", "warning")
        case CutByEarlierRun():
            text = event.text.removeprefix(f"{event.partition}: ")
            return Notice(
                text=text, level="warning", log_dir=event.log_dir, partition=event.partition or None
            )
        case LogDirHandedOver(handoff="clean-shutdown", wrote_marker=False):
            text = "no clean shutdown file, not all logs are recovered"
            return Notice(text=text, level="warning", log_dir=event.log_dir)
        case LogDirOffline():
            return Notice(text=f"offline: {event.error}", level="error", log_dir=event.log_dir)
        case BrokerRestarted():
            return Notice(text=event.text, level="warning")
        case SourceLost():
            return Notice(text=event.text, level="error")
        case Remark() if event.level != "info":
            return Notice(
                text=event.text, level=event.level, log_dir=event.log_dir, partition=event.partition
            )
        case _:
            return None


def _of_log(
    event: IndexFileProblem | PartitionFinished,
    text: str,
    level: Level,
    *,
    is_about_file: bool = False,
) -> Notice:
    return Notice(
        text=text, level=level, log_dir=event.log_dir, partition=event.partition, is_about_file=is_about_file
    )
