"""The figures of a recovery at one moment, as values: what `Gauges` returns and every display reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from recovery.watch.events import Command, PartitionStatus

RunState = Literal[
    "waiting",
    "listing",
    "recovering",
    "verifying",
    "copying",
    "complete",
    "incomplete",
    "interrupted",
    "failed",
]
"""Waiting for RunStarted; listing the log dirs; at work on them; then how it ended, by the exit code."""

WORKING: dict[Command, RunState] = {
    "recover": "recovering",
    "verify": "verifying",
    "archive verify": "verifying",
    "archive recover": "recovering",
    "archive copy": "copying",
    "archive restore": "recovering",
    "watch": "recovering",
}
"""The state in which a command reads its log dirs."""

LogStatus = PartitionStatus | Literal["checked", "damaged"]
"""How a log ended: the status of `PartitionFinished`; for `PartitionChecked`, whether anything was found."""

Source = Literal["run", "watch"]
"""Whose recovery the figures are of: of this process, or of a broker that it watches."""

DOING: dict[Command, str] = {
    "recover": "Recovering",
    "verify": "Verifying",
    "archive verify": "Verifying",
    "archive recover": "Recovering",
    "archive copy": "Copying",
    "archive restore": "Restoring",
    "watch": "Recovering",
}
DONE: dict[Command, str] = {
    "recover": "Recovered",
    "verify": "Verified",
    "archive verify": "Verified",
    "archive recover": "Recovered",
    "archive copy": "Copied",
    "archive restore": "Restored",
    "watch": "Recovered",
}
OF_ARCHIVES: frozenset[Command] = frozenset(("archive verify", "archive recover"))
"""Commands whose "log dirs" are archives: these are neither offline nor cordoned."""

WRITERS: frozenset[Command] = frozenset(("recover", "archive restore"))
"""Commands that change log dirs, but in a dry run."""

RESUMED: frozenset[Command] = frozenset((*WRITERS, "archive copy"))
"""Commands that go on where they were interrupted when they are started again."""

RUN_STATES: tuple[RunState, ...] = get_args(RunState)
LOG_STATUSES: tuple[LogStatus, ...] = (*get_args(PartitionStatus), "checked", "damaged")

_FORESEEN = frozenset(
    (
        "segment_count",
        "finished_segments",
        "bytes_total",
        "remaining_bytes",
        "scanned_bytes",
        "recovered_bytes",
        "truncated_bytes",
        "truncated_batches",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirValues:
    """The figures of one log dir at one moment.

    Attributes:
        remaining_logs: Kafka's remainingLogsToRecover; None when that gauge does not exist (any more).
        remaining_segments: Kafka's remainingSegmentsToRecover by thread number; empty when the gauges do not exist.
        log_count: logs in the dir.
        finished_logs: those that are done, in whatever way.
        is_foreseen: whether it is known what is to be recovered: not of a broker that is watched by its log or its
            gauges alone. If not, segments and bytes are 0, but for `recovered_segments`: see `known`.
        segment_count: segments to recover, as known at the start.
        finished_segments: those of them that need not be waited for: recovered, or dropped by a cut or a refusal.
        recovered_segments: segments that were recovered, as the report counts them.
        bytes_total: bytes to scan, as known at the start.
        remaining_bytes: `bytes_total` less the bytes that need not be read any more.
        scanned_bytes: bytes read.
        recovered_bytes: their valid bytes, likewise.
        truncated_bytes: bytes of `.log` files cut off.
        truncated_batches: record batches among them.
        partitions: how many logs ended in each status.
        bytes_per_second: over the last half minute; None before there is anything to divide.
        eta_seconds: None while it would be a guess; 0 when the dir is finished.
        threads: the log that each thread is working on, by thread number.
        is_finished: whether nothing is left to do.
        is_offline: whether an I/O error ended it.
        is_cordoned: whether the broker was told to place no new logs there; None where that is not known.
    """

    log_dir: str
    had_clean_shutdown: bool | None
    remaining_logs: int | None
    remaining_segments: tuple[int, ...]
    log_count: int
    finished_logs: int
    is_foreseen: bool
    segment_count: int
    finished_segments: int
    recovered_segments: int
    bytes_total: int
    remaining_bytes: int
    scanned_bytes: int
    recovered_bytes: int
    truncated_bytes: int
    truncated_batches: int
    partitions: dict[LogStatus, int]
    bytes_per_second: float | None
    eta_seconds: float | None
    threads: dict[int, str]
    is_finished: bool
    is_offline: bool
    is_cordoned: bool | None

    def known(self, name: str) -> int | None:
        """Return the figure *name*, None if it is 0 for want of knowledge: what is to be recovered is not foreseen."""
        value = int(getattr(self, name))
        return value if value or self.is_foreseen or name not in _FORESEEN else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeValues:
    """The figures of a run at one moment.

    Attributes:
        log_dirs: in the order configured.
        bytes_per_second: of all log dirs together; None before there is anything to divide.
        eta_seconds: that of the last dir to end; None while that of any unfinished dir would be a guess.
        last_progress_ms: wall clock of the last byte scanned or log finished; None before the first.
        seconds_without_progress: since anything but a remark was heard of the work; None if there is none.
        elapsed_seconds: since RunStarted.
        exit_code: None before the end.
        aux_requests, aux_errors: by topic: partitions whose auxiliary state was to be built, and of these, where that
            failed.
        is_source_gone: whether a broker that is watched cannot be seen any more.
    """

    state: RunState
    command: Command
    dry_run: bool
    log_dirs: tuple[LogDirValues, ...]
    bytes_per_second: float | None
    eta_seconds: float | None
    started_ms: int | None
    last_progress_ms: int | None
    seconds_without_progress: float | None
    elapsed_seconds: float
    exit_code: int | None
    aux_requests: Mapping[str, int] = field(default_factory=dict)
    aux_errors: Mapping[str, int] = field(default_factory=dict)
    is_source_gone: bool = False
