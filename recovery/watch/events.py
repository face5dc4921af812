"""What a run reports to its observers: one union of events; `recovery/watch/notifier.py` hands them on.

A driver makes events; observers (gauges, log lines, the terminal, HTTP, Spark's driver) take them. The
algorithm knows nothing of either. An event is a value: replaying the same events gives the same gauges and lines.

The order a driver keeps:

    RunStarted
      LogDirStarted            one for each log dir, all of them before the first segment is read,
                               so that every gauge is there before it moves (or LogDirOffline instead)
        PartitionStarted       one for each log, from the thread that owns it
          SegmentRecoveryStarted, BytesScanned*, SegmentRecovered      in the order of its load
          IndexFileProblem                                             when an index is missing or corrupt
          CorruptionFound, SegmentsDeleted                             once it is decided that it is cut
          SegmentsLeft           if only whole tasks are reported
        PartitionFinished      one for each log, after its plan is applied, also when refused or failed;
                               PartitionChecked from the commands that recover nothing
      CutByEarlierRun*         what earlier runs have cut, or found missing, and not reported
      LogDirHandedOver         checkpoints and marker are written
      LogDirFinished | LogDirOffline
    RunFinished

`archive restore` sends PartitionStarted and BytesScanned as it fetches, and both again as it checks what it has
fetched; PartitionFinished comes once the folder is in its log dir.

Where somebody else's recovery is known by its gauges alone, LogDirSampled takes the place of all from PartitionStarted
to PartitionFinished.

Of a broker that is watched (`recovery/follow`) there are no more than its log or its gauges tell. It may be started
again: RunStarted comes once more, and what was counted before does not count any more.

Every byte read is reported once by `BytesScanned`, by whichever thread read it: at the end of a segment, and
several times a second inside a big one. Progress by bytes, the rate and the ETA come from there.

Offsets are record offsets (int64), positions are bytes from the start of a file, log dirs are absolute paths
as configured, partitions are folder names ("orders-3", also "orders-3.<hex>-future").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

UNSTAMPED = -1
"""The value of both times of an event that no notifier has seen yet."""

Command = Literal[
    "recover", "verify", "archive verify", "archive recover", "archive copy", "archive restore", "watch"
]
PartitionStatus = Literal["unchanged", "recovered", "truncated", "refused", "failed"]
Handoff = Literal["clean-shutdown", "recovery-point", "none"]
Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What all events share: when it happened. The notifier fills in what the driver left out.

    Attributes:
        now_ms: wall clock, milliseconds since the epoch.
        monotonic_s: a clock that never goes back, seconds from an arbitrary start.
    """

    now_ms: int = UNSTAMPED
    monotonic_s: float = UNSTAMPED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Timed):
    """A run begins; the log dirs are locked and nothing is read yet. Or a broker that is watched begins to load.

    Attributes:
        log_dirs: absolute paths, in the order configured; of an archive its URL.
        command: the command that runs. `recover` and `archive restore` send `PartitionFinished`, the others
            `PartitionChecked`.
        threads_per_dir: `num.recovery.threads.per.data.dir`; thread numbers go from 0 to one less. 0: not known.
        dry_run: whether the run writes nothing.
        cpu_path: how checksums are computed: portable, sse42-pclmul or avx512-vpclmul.
        kernel_origin: where the kernels come from: cache, compiled (and kept there), memory (of this process).
        release: of the broker that will start: 4.3, 4.4 or unknown.
        cordoned_log_dirs: those of *log_dirs* that get no new logs, as the broker was told; only `recover` and `verify`
            know of any.
        has_shared_pace: whether log dirs go faster once others are done: they share a limit, or a disk.
    """

    log_dirs: tuple[str, ...]
    threads_per_dir: int
    command: Command = "recover"
    dry_run: bool = False
    cpu_path: str = ""
    kernel_origin: str = ""
    release: str = "unknown"
    cordoned_log_dirs: tuple[str, ...] = ()
    has_shared_pace: bool = False

    @property
    def has_java_log_manager(self) -> bool:
        """Whether LogManager is written in Java, as from 4.4 on; not where the release is unknown."""
        return self.release not in ("4.3", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirStarted(Timed):
    """The inventory of a log dir is known and none of its segments is read yet.

    Attributes:
        had_clean_shutdown: None: not known, of a broker that is watched by its gauges.
        log_count: logs in the dir, clean ones included (Kafka: numRemainingLogs).
        segment_count: unflushed segments that are expected to be recovered; 0 after a clean shutdown.
        bytes_total: bytes of all segments that will be scanned.
    """

    log_dir: str
    had_clean_shutdown: bool | None
    log_count: int
    segment_count: int
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStarted(Timed):
    """A thread takes a log. Of a broker that is watched it comes again when more is known of the log.

    Attributes:
        unflushed_segment_count: segments it will recover; None when the log is loaded without recovery.
        recover_bytes: bytes of these segments, this log's share of `LogDirStarted.bytes_total`.
    """

    log_dir: str
    partition: str
    thread_num: int
    unflushed_segment_count: int | None
    recover_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecoveryStarted(Timed):
    """An unflushed segment is recovered next. One without an offset index has its turn while the log is loaded.

    Attributes:
        ordinal: x of "x/y": unflushed segments of this log recovered before this one, from 0.
        count: y of "x/y": unflushed segments of this log.
    """

    log_dir: str
    partition: str
    thread_num: int
    base_offset: int
    size_bytes: int
    ordinal: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesScanned(Timed):
    """A thread has read so many more bytes of a log, its own or one it helps with."""

    log_dir: str
    partition: str
    thread_num: int
    scanned_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecovered(Timed):
    """A segment is recovered: each of a log once, also a flushed one whose index was missing or wrong.

    Such a one has no `SegmentRecoveryStarted`: an `IndexFileProblem` says why it is recovered.

    Attributes:
        thread_num: the thread that owns the log, whoever scanned the segment.
        valid_bytes: bytes kept; less than `size_bytes` when the segment is cut.
        remaining_segments: unflushed segments of this log still to come; 0 after a cut that drops these. None: the
            broker that is watched does not say.
        was_scanned_before: whether an interrupted run has scanned it, so that it was not read again.
    """

    log_dir: str
    partition: str
    thread_num: int
    base_offset: int
    size_bytes: int
    valid_bytes: int
    remaining_segments: int | None
    was_scanned_before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsLeft(Timed):
    """This many segments are left of what a thread is working on, a task of an archive."""

    log_dir: str
    thread_num: int
    remaining_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirSampled(Timed):
    """What the gauges of somebody else's recovery say of a log dir, in place of all events about its logs.

    It is sent when anything in it has changed. What is None is not shown; a broker shows the first two alone.

    Attributes:
        remaining_logs: logs not finished yet.
        remaining_segments: unflushed segments left of the log that a thread works on, by thread number.
        unrecovered_segments: unflushed segments left in the log dir.
        remaining_bytes: still to be scanned.
        scanned_bytes, recovered_segments, recovered_bytes, truncated_bytes, truncated_batches: since the start.
    """

    log_dir: str
    remaining_logs: int
    remaining_segments: Mapping[int, int]
    unrecovered_segments: int | None = None
    remaining_bytes: int | None = None
    scanned_bytes: int | None = None
    recovered_segments: int | None = None
    recovered_bytes: int | None = None
    truncated_bytes: int | None = None
    truncated_batches: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptionFound(Timed):
    """A segment ends before its file does.

    Attributes:
        truncate_position: size in bytes that the `.log` file is cut to.
        truncate_offset: the next offset of the segment after the cut, the one Kafka's line names.
        reason: why the scan stopped, as text.
        found_invalid_messages: False if the bytes merely end early (a torn tail), for which Kafka does not mention
            messages.
        found_invalid_offset: True if Kafka empties the segment because of an offset that an index refuses.
    """

    log_dir: str
    partition: str
    base_offset: int
    truncate_position: int
    truncate_offset: int
    reason: str
    found_invalid_messages: bool = True
    found_invalid_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsDeleted(Timed):
    """Segments after a cut, or all segments of a log that ends before its log start offset, are removed.

    Attributes:
        base_offsets: those of the segments, ascending.
        log_end_offset: given together with `log_start_offset` if the log ends before its start.
        log_start_offset: the checkpointed log start offset.
    """

    log_dir: str
    partition: str
    base_offsets: tuple[int, ...]
    log_end_offset: int | None = None
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileProblem(Timed):
    """An index file was missing, wrong, or without its log.

    Attributes:
        path: the `.log` file for "missing" and "corrupt", the index file for "orphaned".
        error: what was wrong, for "corrupt".
    """

    log_dir: str
    partition: str
    path: str
    problem: Literal["missing", "corrupt", "orphaned"]
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFinished(Timed):
    """A log is done: applied, found in order, refused or failed.

    Attributes:
        status: "refused" if the broker would halt or this version must not guess (nothing touched),
            "failed" for an I/O error.
        log_start_offset: that of the log as left; for a refused or failed one what is known, else 0.
        log_end_offset: likewise.
        segment_count: segments of the log as left.
        truncated_bytes: bytes of `.log` files cut off, deleted segments included.
        truncated_batches: record batches among them, as far as they could be counted.
        recovered_segments: segments that were recovered, as the report has them: of a refused or failed log those
            before the one at which it ended, of one that an interrupted run has committed those that it recovered.
            None: as many as `SegmentRecovered` was sent for.
        recovered_bytes: their valid bytes; None likewise.
        duration_ms: from `PartitionStarted`.
        finished_count: i of "(i/N completed in D)", this log included.
        log_count: N of the same.
        local_log_start_offset: where the local part of a tiered log begins; None: at `log_start_offset`.
        topic_id: as in `partition.metadata` (22 characters), None when there is none.
        reason: why it was refused or failed, with the remedy; empty otherwise.
    """

    log_dir: str
    partition: str
    thread_num: int
    status: PartitionStatus
    log_start_offset: int
    log_end_offset: int
    segment_count: int
    truncated_bytes: int
    truncated_batches: int
    duration_ms: int
    finished_count: int
    log_count: int
    local_log_start_offset: int | None = None
    topic_id: str | None = None
    reason: str = ""
    loss: str = ""
    recovered_segments: int | None = None
    recovered_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChecked(Timed):
    """A log is read and judged, and left as it is.

    Attributes:
        segment_count: segments that were read.
        finding_count: findings of damage, and of what could not be read; None if it is known only at the end.
        finished_count: i of "(i/N completed in D)", this log included.
        log_count: N of the same.
    """

    log_dir: str
    partition: str
    thread_num: int
    segment_count: int
    finding_count: int | None
    finished_count: int
    log_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutByEarlierRun(Timed):
    """An earlier run has cut a log, or missed offsets in it, but was killed before its report, or nobody got that.

    Attributes:
        truncated_bytes: bytes of `.log` files cut off.
        truncated_batches: record batches among them.
        text: when that was, and where the cut bytes are kept, or what is missing.
    """

    log_dir: str
    partition: str
    truncated_bytes: int
    truncated_batches: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirHandedOver(Timed):
    """Checkpoints, and the marker if there is one, are written for the broker.

    Attributes:
        handoff: the requested hand-off.
        wrote_marker: whether `.kafka_cleanshutdown` is there now; not with a refused log, unless the dir was clean.
    """

    log_dir: str
    handoff: Handoff
    wrote_marker: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFinished(Timed):
    """Nothing is left to do in a log dir. `duration_ms` counts from `LogDirStarted`."""

    log_dir: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirOffline(Timed):
    """An I/O error ends the work in a log dir; the others continue. `error` names file and errno."""

    log_dir: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Timed):
    """Something that the operator should read and that has no event of its own.

    Attributes:
        log_dir: None if it concerns the whole run.
        partition: None if it concerns the whole log dir.
        text: one sentence.
    """

    text: str
    level: Level = "info"
    log_dir: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxStateBuilt(Timed):
    """What a broker needs to serve a tiered partition from remote storage was made, or could not be.

    Attributes:
        error: why not; empty if it was made, or would be.

    Kafka: TierStateMachine.buildRemoteLogAuxState, which counts both by topic.
    """

    topic: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLost(Timed):
    """The broker that is watched cannot be seen any more; any later event says that it can. `text` says why."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRestarted(Timed):
    """The broker that is watched was started again before its recovery was over, and loads no logs yet."""

    text: str = "the broker was started again before its recovery was over: counting begins anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Timed):
    """The run is over; no event follows, unless a broker is watched. `exit_code` is the process's."""

    exit_code: int


Event = (
    RunStarted
    | LogDirStarted
    | PartitionStarted
    | SegmentRecoveryStarted
    | BytesScanned
    | SegmentRecovered
    | SegmentsLeft
    | LogDirSampled
    | CorruptionFound
    | SegmentsDeleted
    | IndexFileProblem
    | PartitionFinished
    | PartitionChecked
    | CutByEarlierRun
    | LogDirHandedOver
    | LogDirFinished
    | LogDirOffline
    | AuxStateBuilt
    | Remark
    | SourceLost
    | BrokerRestarted
    | RunFinished
)

Observer = Callable[[Event], None]
"""Takes each event once, in order, never two at a time. It should return soon and not wait for anything."""
