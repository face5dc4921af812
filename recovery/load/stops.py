"""What a scan's stop means: a cut, or a partition that the broker cannot load either.

One table of texts, so that the report, the log lines and the refusals agree.
"""

from __future__ import annotations

from collections.abc import Collection

from native.raw_scan import RawScan, Stop
from recovery.errors import PartitionRefusedError
from recovery.load.model import CutCause, PartitionTask
from recovery.load.segments import first_unflushed, log_base_offsets, pending_bases
from recovery.problem import ProblemRule
from segfmt.filenames import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    SWAP_SUFFIX,
    read_offset,
)
from segfmt.java_text import LONG_MAX

CUTTING_STOPS = frozenset({Stop.END, Stop.TORN, Stop.BAD_LENGTH, Stop.CRC_MISMATCH, Stop.INVALID_CONTROL})
OUT_OF_ORDER_STOPS = frozenset({Stop.INVALID_OFFSET, Stop.TIME_INDEX_INVALID_OFFSET})

_CUT_CAUSES = {
    Stop.END: CutCause("trailing-bytes", "too few bytes for a batch at the end"),
    Stop.TORN: CutCause("torn-batch", "the last batch is torn"),
    Stop.BAD_LENGTH: CutCause("batch-length", "an impossible batch length"),
    Stop.CRC_MISMATCH: CutCause("checksum", "a batch whose CRC does not match"),
    Stop.INVALID_CONTROL: CutCause("control-record", "a control batch that does not parse"),
    Stop.INVALID_OFFSET: CutCause("offset-order", "a batch whose offset is out of order"),
    Stop.TIME_INDEX_INVALID_OFFSET: CutCause("offset-order", "a batch whose offset is out of order"),
}

_LET_OTHERS_LEAD = (
    "start the brokers with the other replicas first; if they find no leader without this one, which as leader would "
    "make them cut theirs, too, copy its folder from one of them before you start it"
)
_FROM_A_REPLICA = "restore the partition from another replica"
_REFUSALS: dict[Stop, tuple[ProblemRule, str, str | None]] = {
    Stop.BAD_LENGTH: (
        "batch-length",
        "an impossible batch length after the last index entry (CorruptRecordException stops the broker)",
        None,
    ),
    Stop.SHORT_HEADER: (
        "batch-length",
        "a batch shorter than its header (KafkaException stops the broker)",
        None,
    ),
    Stop.INVALID_OFFSET: (
        "offset-order",
        "a batch whose offset is out of order, in a segment without an index (InvalidOffsetException stops the broker)",
        _FROM_A_REPLICA,
    ),
    Stop.TIME_INDEX_INVALID_OFFSET: (
        "offset-order",
        "a batch whose offset is out of order, in a segment without an index (InvalidOffsetException stops the broker)",
        _FROM_A_REPLICA,
    ),
    Stop.INDEX_FULL: (
        "index-full",
        "more index entries than segment.index.bytes holds (IllegalArgumentException stops the broker at every start)",
        "raise segment.index.bytes or index.interval.bytes of the topic",
    ),
    Stop.TIME_INDEX_FULL: (
        "index-full",
        "more time index entries than segment.index.bytes holds "
        "(IllegalArgumentException stops the broker at every start)",
        "raise segment.index.bytes or index.interval.bytes of the topic",
    ),
    Stop.INVALID_TXN: (
        "transaction-state",
        "a producer writes outside its open transaction (InvalidTxnStateException stops the broker)",
        _FROM_A_REPLICA,
    ),
    Stop.INVALID_CONTROL: (
        "control-record",
        "a control batch that does not parse (InvalidRecordException stops the broker at every start)",
        _FROM_A_REPLICA,
    ),
    Stop.CONTROL_FATAL: (
        "control-record",
        "a control batch whose CRC is valid but whose content is not (it stops the broker at every start)",
        _FROM_A_REPLICA,
    ),
}


def cut_cause(scan: RawScan) -> CutCause:
    """Return why the bytes after a stop are cut."""
    return _CUT_CAUSES[scan.stop]


def refusal_of_stop(
    file: str, base_offset: int, scan: RawScan, *, while_loading: bool, remedy: str = _FROM_A_REPLICA
) -> PartitionRefusedError:
    """Return the refusal for a stop from which the broker does not recover.

    Args:
        remedy: for stops at which a check of the segment would cut it.
    """
    rule, detail, own_remedy = _REFUSALS.get(
        scan.stop, ("batch-length", f"{scan.stop.name} (segment {base_offset})", _FROM_A_REPLICA)
    )
    when = " while the log is loaded" if while_loading else ""
    return PartitionRefusedError(
        file=file, position=scan.stop_position, rule=rule, detail=detail + when, remedy=own_remedy or remedy
    )


def words_of_a_wrong_marker(
    log: str, end_position: int, byte_count: int, log_end_offset: int, recovery_point: int
) -> str:
    """Return what is wrong with a log that passes for shut down cleanly and does not end as it should.

    Args:
        log: the active segment.
        end_position: where its batches end.
        byte_count: how many bytes follow; 0 if the log ends before its recovery point.
    """
    facts = (
        f"{byte_count:,} bytes of {log} from byte {end_position:,} on are not batches that a broker sees. It takes "
        f"{log_end_offset} for the log end, reuses the offsets from there on and appends after these bytes"
        if byte_count
        else f"the log ends at {log_end_offset}, before its recovery point {recovery_point}. The offsets between "
        "were lost"
    )
    remedy = "recover --force, which ignores the marker" + ("" if byte_count else ", checks what is left")
    return f"the clean-shutdown marker is wrong: {facts}. Remedy: {remedy}"


def words_of_a_missing_end(task: PartitionTask, log_end_offset: int, *, is_hole: bool) -> tuple[str, ...]:
    """Return why a log that ends at *log_end_offset* must have been longer, unless a wrong marker says it.

    Args:
        is_hole: whether offsets are missing there, so that `.deleted` files that may hold them are kept.
    """
    point, high_watermark = task.recovery_point, task.high_watermark
    is_of_point = log_end_offset < point < LONG_MAX
    if is_of_point and task.had_clean_shutdown:
        return ()
    remedy = "compare with the other replicas"
    ends = range(log_end_offset, task.known_end_offset) if is_hole else ()
    cut_off = [base for base in pending_bases(task.files) if base in ends]
    if cut_off:
        why = (
            f"its segments from offset {min(cut_off)} on are .deleted files: the broker had truncated it, most likely "
            "to its leader's, and may have fetched other records since, or a recovery had cut it, the broker's own or "
            "one of this tool"
        )
    elif is_of_point:
        why = "its last flushed segments are gone, or the broker was killed while it truncated the log to its leader's"
    else:
        why = (
            "what every replica in sync had is gone from this one, as after a power failure or a cut before, or the "
            "broker truncated the log to that of a leader that had less"
        )
        remedy = _LET_OTHERS_LEAD
    before = f"recovery point, {point}" if is_of_point else f"high watermark, {high_watermark}"
    return (f"the log ends at offset {log_end_offset}, before its {before}: {why}. Remedy: {remedy}",)


def words_of_an_acknowledged_cut(task: PartitionTask, log_end_offset: int) -> tuple[str, ...]:
    """Return what a cut means that is below the high watermark."""
    if not (task.is_recovered and log_end_offset < task.high_watermark):
        return ()
    return (
        "the cut is below the high watermark: every replica in sync had what it took. "
        f"Remedy: {_LET_OTHERS_LEAD}",
    )


def words_of_an_older_mark(task: PartitionTask, log_end_offset: int) -> tuple[str, ...]:
    """Return why the log's end was not compared with its line in `replication-offset-checkpoint`, if it is lower."""
    high_watermark = task.doubtful_high_watermark
    if not (task.is_current_folder and task.is_recovered and log_end_offset < high_watermark):
        return ()
    return (
        f"the log ends at offset {log_end_offset}, before the high watermark, {high_watermark}, of a "
        f"{REPLICATION_OFFSET_CHECKPOINT} that is older than it: that of a deleted topic of this name, unless the log "
        "dir was copied without its times",
    )


def words_of_kept_deletions(bases: Collection[int]) -> str:
    """Return what becomes of segments that were pending deletion and may hold what no other has.

    Args:
        bases: their base offsets, at least one.
    """
    files = "the .deleted file" if len(bases) == 1 else f"{len(bases)} .deleted files"
    return (
        f"{files} from offset {min(bases)} on may hold what no other segment has: kept in quarantine. A broker that is "
        "killed soon after it has truncated a log, most likely to its leader's, leaves such files. Remedy: compare "
        "with the other replicas; to have the records back, take this run back with undo, remove .deleted from the "
        "names of these files and of their indexes, recover again"
    )


def remedy_by_checking(task: PartitionTask, file: str) -> str:
    """Return how to have the segment *file* checked, and cut where it is bad, which a load does not do."""
    if task.is_delete_folder:
        return "move the folder out of the log dir: it is about to be deleted anyway"
    if file.endswith(SWAP_SUFFIX):
        return (
            "move the .swap files of this offset away if the segments that they replace are there; "
            f"otherwise {_FROM_A_REPLICA}"
        )
    force = "run recover --force, which ignores the clean-shutdown marker"
    if read_offset(file) >= first_unflushed(log_base_offsets(task.files).values(), task.recovery_point):
        return (
            f"{force}: the segment is then checked, and cut here"
            if task.had_clean_shutdown
            else _FROM_A_REPLICA
        )
    whole = f"take the partition's line out of {RECOVERY_POINT_CHECKPOINT}, or move that file away"
    and_force = f", and {force}" if task.had_clean_shutdown else ""
    return f"{whole}{and_force}: the log is then checked from its first segment on, and cut here"
