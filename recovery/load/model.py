"""The values that travel from the inventory to the plan: frozen, picklable, and free of any file handle.

`PartitionTask` says what lies in a partition's folder and what the broker knows of it. `ScanRequest` asks a
driver for the scan of one segment. `PartitionOutcome` is the tree that the broker would leave, given as
origins of bytes, with its reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from native.raw_scan import RawScan
from recovery.load.release import Release
from recovery.problem import Problem
from segfmt.java_text import LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """A topic and a partition number. Kafka: org.apache.kafka.common.TopicPartition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What the inventory knows of a regular file, or of a link to one.

    Attributes:
        ctime_ns: when anything about it last changed, its names included: it shows whether a file was touched, not
            which file it is.
    """

    size_bytes: int
    mtime_ns: int = 0
    inode: int = 0
    ctime_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of one log on which bytes depend, and some on which only messages depend. Kafka: LogConfig.

    Attributes:
        remote_log_known: whether `remote_log_enabled` is set somewhere, and not just Kafka's default.
        remote_log_prevented_by: the setting, `key=value`, that makes the log a plain one although its topic asks for
            tiered storage; empty if there is none.
        is_config_complete: whether the broker's whole configuration is known.
        is_compacted: whether `cleanup.policy` has `compact`: then offsets may be missing. None if it is not known.
        topic_id: of the topic in the cluster, 22 characters; empty: it has no such topic; None: that is not known.

    No byte depends on these five, so they are not compared when an interrupted run is resumed.
    """

    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_bytes: int = 1024 * 1024 * 1024
    preallocate: bool = False
    remote_log_enabled: bool = False
    remote_log_known: bool = field(default=True, repr=False)
    remote_log_prevented_by: str = field(default="", repr=False)
    is_config_complete: bool = field(default=True, repr=False)
    is_compacted: bool | None = field(default=None, repr=False)
    topic_id: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition's folder, as found.

    Attributes:
        log_dir: the log dir, absolute.
        folder: name of the partition's folder in it.
        files: the regular files in the folder by name.
        had_clean_shutdown: whether the log dir had its marker.
        recovery_point: from the log dir's checkpoint, 0 if it has no line.
        log_start_offset: from the log dir's checkpoint, 0 if it has no line.
        high_watermark: from the log dir's checkpoint, 0 if it has no line.
        doubtful_high_watermark: the same if the checkpoint is older than the log: of a deleted topic of its name, most
            likely, or of a copy without times.
        cleaned_offset: up to where the log cleaner has compacted the log, whatever its policy is now; from the log
            dir's checkpoint, 0 if it has no line.
        now_ms: the clock of the recovery; producers expire by it.
        release: of the broker that will load the log.
        others: what else lies there, by name: `folder`, `dangling link`, `pipe`, ...
        problems: what the listing shows that keeps a broker from loading the log: owners, modes, a second copy.
        unreadable: files that this process may not read.
    """

    log_dir: str
    folder: str
    topic_partition: TopicPartition
    files: Mapping[str, FileStat]
    had_clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    settings: LogSettings
    now_ms: int
    high_watermark: int = 0
    doubtful_high_watermark: int = 0
    cleaned_offset: int = 0
    producer_id_expiration_ms: int = 86_400_000
    release: Release = Release.UNKNOWN
    others: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    unreadable: frozenset[str] = frozenset()

    @property
    def is_recovered(self) -> bool:
        """Whether a broker recovers the log, not only loads it. Kafka: LogLoader.recoverLog."""
        return not (self.had_clean_shutdown or self.is_delete_folder)

    def recovers(self, base_offset: int, first_unflushed_base: int) -> bool:
        """Return whether a broker recovers the segment at *base_offset*, and so writes its indexes anew."""
        return self.is_recovered and base_offset >= first_unflushed_base

    @property
    def is_delete_folder(self) -> bool:
        """Whether the folder is about to be deleted (`-delete`): its log is loaded but not recovered."""
        return self.folder.endswith("-delete")

    @property
    def is_future_folder(self) -> bool:
        """Whether the folder holds a copy on its way to another log dir (`-future`)."""
        return self.folder.endswith("-future")

    @property
    def is_stray_folder(self) -> bool:
        """Whether the folder was set aside as stray (`-stray`): its log is recovered, and never closed."""
        return self.folder.endswith("-stray")

    @property
    def is_current_folder(self) -> bool:
        """Whether the folder is the partition's own, without a mark: the log dir's checkpoints are about its log."""
        return not (self.is_delete_folder or self.is_future_folder or self.is_stray_folder)

    @property
    def known_end_offset(self) -> int:
        """Up to where the log went, by the log dir's checkpoints; 0 if they do not tell, or of another folder's log.

        Under a marker the high watermark does not tell: a recovery that has cut the log leaves it as it is.
        """
        if not self.is_current_folder:
            return 0
        ends = (self.recovery_point, self.high_watermark if self.is_recovered else 0)
        return max((end for end in ends if end < LONG_MAX), default=0)

    @property
    def created_log_bytes(self) -> int:
        """The final size of a `.log` file that the load makes: closing the log trims a preallocated one.

        Kafka: FileRecords.open, FileRecords.close.
        """
        return self.settings.segment_bytes if self.settings.preallocate and self.is_stray_folder else 0


class ScanMode(Enum):
    """Why a segment is read."""

    RECOVER = "recover"  # check every batch, build indexes; Kafka: LogSegment.recover
    REPLAY = "replay"  # producer state only; Kafka: UnifiedLog.loadProducersFromRecords
    TRANSACTIONS = "transactions"  # the same, with the events of settled transactions
    INDEX = "index"  # build indexes without checking; Kafka: LogSegment.append while a segment is split
    WALK = "walk"  # batch headers only, to find the end; Kafka: LogSegment.readNextOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """Part of a file as it was at the start: *size_bytes* from *origin_position* on, of the file then named *file*."""

    file: str
    size_bytes: int
    origin_position: int = 0

    def after(self, position: int) -> Original:
        """Return the rest of this part from *position* in it on."""
        return Original(
            file=self.file,
            size_bytes=self.size_bytes - position,
            origin_position=self.origin_position + position,
        )


class BatchSpan(NamedTuple):
    """A batch by its header: where it begins in its part, its first and last offset, the checksum it holds.

    Attributes:
        has_compacted: whether it holds fewer records than offsets.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    magic: int = 2
    crc: int = 0
    has_compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProblem:
    """Why the load recovers a segment before its turn: its offset index is missing, or its transaction index wrong.

    Attributes:
        is_reported: whether observers are to hear of it: a broker says nothing of an index that it writes anew anyway.
    """

    kind: Literal["missing", "corrupt"]
    detail: str = ""
    is_reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """Ask for the scan of a segment's bytes, from *start_position* on.

    Attributes:
        part: the bytes of the segment; positions count from its beginning.
        ordinal: the place of this segment in the walk over the unflushed ones, from 1; 0 if the scan is not part of it.
        count: how many segments are unflushed; 0 if this is none of them, or none in the recovery of a whole segment.
        index_problem: why the segment is recovered while the log is loaded; None in the walk.
    """

    part: Original
    base_offset: int
    start_position: int = 0
    mode: ScanMode = ScanMode.RECOVER
    ordinal: int = 0
    count: int = 0
    index_problem: IndexProblem | None = None

    def recovers_whole_file(self, size_bytes: int) -> bool:
        """Whether this is for the recovery of all of a file of *size_bytes*."""
        is_whole = (
            self.start_position == self.part.origin_position == 0 and self.part.size_bytes == size_bytes
        )
        return self.mode is ScanMode.RECOVER and is_whole


class PartitionSource(Protocol):
    """What the fold may ask of the outside world: bytes and scans of the files in its task, by their first names."""

    def read(self, file: str) -> bytes:
        """Return all bytes of a small file."""
        ...

    def read_part(self, part: Original) -> bytes:
        """Return some bytes of a file that may be large, no more than fit into memory."""
        ...

    def scan(self, request: ScanRequest) -> RawScan:
        """Return the scan of a segment."""
        ...

    def batches(
        self, part: Original, start_position: int, *, opens_message_sets: bool = True
    ) -> Iterator[BatchSpan]:
        """Yield the batches of *part* by their headers, from *start_position* in it on, but not a torn one.

        Args:
            opens_message_sets: whether to decompress a message set to get its base offset, which is inside it;
                otherwise the last offset stands for it.

        Raises:
            FormatError: an impossible batch length, or a message set that cannot be opened.
        """
        ...

    def is_zero(self, part: Original) -> bool:
        """Return whether *part* is all zeros."""
        ...

    def keep(self, data: bytes) -> Blob:
        """Return *data*, or a stand-in for it that takes less memory."""
        ...


class Blob(Protocol):
    """Bytes, or a stand-in for them: `bytes(blob)` and `len(blob)`."""

    def __bytes__(self) -> bytes: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Bytes made by the fold, followed by zeros up to *size_bytes*."""

    data: Blob
    size_bytes: int


Content = Original | Generated


class RemovalKind(Enum):
    """Why a file is gone from the tree."""

    PENDING_DELETION = "pending deletion"  # `.deleted` found at the start: the broker's own
    CUT_OFF = "pending deletion, with offsets that are missing"  # the same, but nothing else may have them
    LEFTOVER = "leftover"  # `.cleaned` and `.swap` of an interrupted cleaning or split
    DERIVED = "derived"  # indexes and snapshots that the log rebuilds
    COMPACTED = "compacted"  # replaced by a `.swap`


CutRule = Literal[
    "trailing-bytes",
    "torn-batch",
    "batch-length",
    "checksum",
    "control-record",
    "offset-order",
    "after-cut",
    "log-start",
    "replaced",
    "leftover",
    "unreferenced",
    "preallocated",
    "unknown",  # cut by a version that did not say
]


class CutCause(NamedTuple):
    """Why batches leave the live log."""

    rule: CutRule
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Batches that leave the live log.

    Attributes:
        file: the `.log`, or a `.log.swap` or `.log.cleaned`, by its first name.
        position: where the cut begins; 0 if the whole file goes.
        size_bytes: bytes cut.
        batch_count: batches in them, as far as their headers can be followed.
        first_offset: the first offset that is lost.
        last_offset: of the last of these batches; -1 if there is none.
        is_followed: whether the headers of these batches lead to the end of the cut, or to zeros: else more offsets may
            be lost than up to the last one.
        is_preallocated: whether it is nothing but the zeros that `preallocate` puts after the log: no loss.
        rule, reason: why, as an identifier and as text.
        is_scattered: whether other batches of the file, between these or after them, are still live.
    """

    file: str
    base_offset: int
    position: int
    size_bytes: int
    batch_count: int
    rule: CutRule
    reason: str
    is_preallocated: bool = False
    first_offset: int = -1
    last_offset: int = -1
    is_scattered: bool = False
    is_followed: bool = True

    @property
    def known_last_offset(self) -> int:
        """The last offset that is lost; -1 if the headers do not tell."""
        return self.last_offset if self.is_followed and self.last_offset >= self.first_offset else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Offsets that a broker does not find: no batch has them, or it looks for them in the wrong segment.

    Attributes:
        first_offset, last_offset: the first and the last of them.
        before: the `.log` with the batch that comes next, or that a broker looks into, or that ends too early.
        position: of that batch in it, or of its end.
        is_hidden: whether *before* is where a broker looks, and does not find them, whoever has them.
        is_at_end: whether they came last in the log: *before* has none of them, nor what came next.
    """

    first_offset: int
    last_offset: int
    before: str
    position: int = 0
    is_hidden: bool = False
    is_at_end: bool = False

    def to_json(self) -> dict[str, str | int]:
        """Return the object of this hole in the JSON report."""
        return {
            "firstOffset": self.first_offset,
            "lastOffset": self.last_offset,
            "before": self.before,
            "position": self.position,
            "isHidden": self.is_hidden,
            "isAtEnd": self.is_at_end,
        }

    def __str__(self) -> str:
        offsets = f"offsets {self.first_offset} to {self.last_offset}"
        if self.is_hidden:
            remedy = "Remedy: if it does not belong there, take this run back with undo, move it away, recover again"
            told = f"{offsets} are hidden: a broker looks for them in {self.before}, and finds none of them"
            return told if self.position else f"{told}. {remedy}"
        location = (
            "at the end of the log"
            if self.is_at_end
            else f"before {self.before}"
            if self.position == 0
            else f"in {self.before} before byte {self.position}"
        )
        return f"{offsets} are missing {location}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """What the broker would leave of a partition, and why.

    Attributes:
        tree: file names and contents after load and clean shutdown.
        removed: files that are gone without a successor, by name, with the kind.
        recovery_point: after the clean shutdown; None: the log end.
        checkpoints_log_start: whether the log start offset gets a line in its checkpoint.
        is_loaded: False for `-delete` and `-stray` folders, which no checkpoint names.
        recovered_bytes: of `.log` files that were recovered and kept.
        topic_id: from `partition.metadata`, 22 characters; None without that file.
        warnings: what the operator should know although the broker would load the log.
        holes: offsets missing from what was read, if the topic is known not to be compacted.
        deleted_base_offsets: of the segments that the recovery has renamed to `.deleted`.
        dropped_end_offset: where the log ended, if all of it was dropped because it ended before its start; else None.
        orphaned_indexes: index files without a log, which the load has dropped.
    """

    log_start_offset: int
    log_end_offset: int
    segment_count: int
    recovered_segments: int
    scanned_bytes: int
    recovered_bytes: int
    tree: Mapping[str, Content]
    removed: Mapping[str, RemovalKind]
    cuts: tuple[Cut, ...] = ()
    checkpoints_log_start: bool = False
    is_loaded: bool = True
    local_log_start_offset: int = 0
    recovery_point: int | None = None
    producer_count: int = 0
    topic_id: str | None = None
    warnings: tuple[str, ...] = ()
    holes: tuple[Hole, ...] = ()
    deleted_base_offsets: tuple[int, ...] = ()
    dropped_end_offset: int | None = None
    orphaned_indexes: tuple[str, ...] = ()

    @property
    def bounds(self) -> LogBounds:
        """Where the log begins and ends."""
        return LogBounds(
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            local_log_start_offset=self.local_log_start_offset,
            checkpoints_log_start=self.checkpoints_log_start,
            is_loaded=self.is_loaded,
            topic_id=self.topic_id,
            recovery_point=self.recovery_point,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Where a log begins and ends: what the log dir's checkpoints are to record of it.

    Attributes:
        checkpoints_log_start, is_loaded, recovery_point: see `PartitionOutcome`.
        local_log_start_offset: offset of the first local segment, at which a tiered log continues locally.
    """

    log_start_offset: int
    log_end_offset: int
    local_log_start_offset: int
    checkpoints_log_start: bool
    is_loaded: bool
    topic_id: str | None
    recovery_point: int | None = None
