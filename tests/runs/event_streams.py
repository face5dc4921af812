"""Streams of events as a driver sends them, with times of their own: what the observers' tests replay."""

from recovery.watch.events import (
    AuxStateBuilt,
    BrokerRestarted,
    BytesScanned,
    CorruptionFound,
    CutByEarlierRun,
    Event,
    IndexFileProblem,
    LogDirFinished,
    LogDirHandedOver,
    LogDirOffline,
    LogDirSampled,
    LogDirStarted,
    PartitionChecked,
    PartitionFinished,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
    SegmentsDeleted,
    SegmentsLeft,
    SourceLost,
)

START_MS = 1_795_267_859_045
A = "/data/a"
B = "/data/b"


def at(seconds: float) -> dict:
    """Return the time fields of an event *seconds* after the start; the monotonic clock starts at 1000."""
    return {"now_ms": START_MS + round(seconds * 1000), "monotonic_s": 1000.0 + seconds}


def run_started(**fields) -> RunStarted:
    return RunStarted(**({"log_dirs": (A, B), "threads_per_dir": 2} | at(0) | fields))


def dir_started(log_dir=A, **fields) -> LogDirStarted:
    defaults = {"had_clean_shutdown": False, "log_count": 2, "segment_count": 4, "bytes_total": 1000}
    return LogDirStarted(**({"log_dir": log_dir} | defaults | at(0) | fields))


def log_started(partition="t-0", **fields) -> PartitionStarted:
    defaults = {"log_dir": A, "thread_num": 0, "unflushed_segment_count": 3, "recover_bytes": 900}
    return PartitionStarted(**({"partition": partition} | defaults | at(0) | fields))


def segment_started(partition="t-0", **fields) -> SegmentRecoveryStarted:
    defaults = {"log_dir": A, "thread_num": 0, "base_offset": 0, "size_bytes": 300, "ordinal": 0, "count": 3}
    return SegmentRecoveryStarted(**({"partition": partition} | defaults | at(0) | fields))


def scanned(scanned_bytes, partition="t-0", **fields) -> BytesScanned:
    defaults = {"log_dir": A, "thread_num": 0, "scanned_bytes": scanned_bytes}
    return BytesScanned(**({"partition": partition} | defaults | at(0) | fields))


def segment_recovered(remaining_segments, partition="t-0", **fields) -> SegmentRecovered:
    defaults = {
        "log_dir": A,
        "thread_num": 0,
        "base_offset": 0,
        "size_bytes": 300,
        "valid_bytes": 300,
        "remaining_segments": remaining_segments,
    }
    return SegmentRecovered(**({"partition": partition} | defaults | at(0) | fields))


def log_finished(partition="t-0", status="recovered", **fields) -> PartitionFinished:
    defaults = {
        "log_dir": A,
        "thread_num": 0,
        "log_start_offset": 0,
        "log_end_offset": 40,
        "segment_count": 3,
        "truncated_bytes": 0,
        "truncated_batches": 0,
        "duration_ms": 12,
        "finished_count": 1,
        "log_count": 2,
    }
    return PartitionFinished(**({"partition": partition, "status": status} | defaults | at(0) | fields))


def corruption(partition="t-0", **fields) -> CorruptionFound:
    defaults = {
        "log_dir": A,
        "base_offset": 20,
        "truncate_position": 123,
        "truncate_offset": 25,
        "reason": "CRC mismatch",
    }
    return CorruptionFound(**({"partition": partition} | defaults | at(0) | fields))


def log_checked(partition="t-0", **fields) -> PartitionChecked:
    defaults = {
        "log_dir": A,
        "thread_num": 0,
        "segment_count": 3,
        "finding_count": 0,
        "finished_count": 1,
        "log_count": 2,
    }
    return PartitionChecked(**({"partition": partition} | defaults | at(0) | fields))


def sampled(remaining_logs, remaining_segments=(), **fields) -> LogDirSampled:
    """Return a sample of gauges, *remaining_segments* of the threads from 0 on."""
    defaults = {"log_dir": A, "remaining_segments": dict(enumerate(remaining_segments))}
    return LogDirSampled(**({"remaining_logs": remaining_logs} | defaults | at(0) | fields))


def checking(command="verify", place=A) -> list[Event]:
    """Return a run that checks and recovers nothing: two logs, damage in the second."""
    return [
        run_started(log_dirs=(place,), command=command, dry_run=True),
        dir_started(place),
        log_started(log_dir=place),
        SegmentsLeft(log_dir=place, thread_num=0, remaining_segments=2, **at(0.1)),
        scanned(900, log_dir=place, **at(0.2)),
        log_checked(log_dir=place, **at(0.3)),
        log_started("t-1", log_dir=place, unflushed_segment_count=1, recover_bytes=100, **at(0.3)),
        log_checked("t-1", log_dir=place, segment_count=1, finding_count=2, finished_count=2, **at(0.4)),
        LogDirFinished(log_dir=place, duration_ms=400, **at(0.4)),
        RunFinished(exit_code=2, **at(0.5)),
    ]


def restoring() -> list[Event]:
    """Return a restore of three partitions: one in full, one whose auxiliary state is built, one where it is not."""
    return [
        run_started(log_dirs=(A,), command="archive restore"),
        Remark(text="refused: nothing of it is archived", level="error", partition="aux-1", **at(0.1)),
        AuxStateBuilt(topic="aux", error="nothing of it is archived", **at(0.1)),
        dir_started(bytes_total=1800),
        log_started(recover_bytes=1800, **at(0.2)),
        scanned(900, **at(0.3)),
        log_started(recover_bytes=1800, **at(0.4)),
        SegmentsLeft(log_dir=A, thread_num=0, remaining_segments=3, **at(0.4)),
        segment_started(**at(0.4)),
        scanned(900, **at(0.5)),
        segment_recovered(2, **at(0.5)),
        log_finished(**at(0.6)),
        log_finished("aux-0", finished_count=2, **at(0.6)),
        AuxStateBuilt(topic="aux", **at(0.6)),
        LogDirFinished(log_dir=A, duration_ms=600, **at(0.6)),
        RunFinished(exit_code=4, **at(0.7)),
    ]


def watching() -> list[Event]:
    """Return the recovery of a broker that is watched by its gauges: ten logs, one finished each second."""
    samples = [sampled(10 - second, (2, 1), **at(second)) for second in range(8)]
    return [
        run_started(log_dirs=(A,), command="watch"),
        dir_started(had_clean_shutdown=None, log_count=10, segment_count=0, bytes_total=0),
        *samples,
        BrokerRestarted(text="the broker was started again", **at(7.5)),
        run_started(log_dirs=(A,), command="watch", **at(7.5)),
        dir_started(had_clean_shutdown=None, log_count=10, segment_count=0, bytes_total=0, **at(7.5)),
        SourceLost(text="server.log: there is no such file any more", **at(9)),
        sampled(0, (0, 0), **at(10)),
        LogDirFinished(log_dir=A, duration_ms=10_000, **at(10)),
        RunFinished(exit_code=0, **at(10)),
    ]


def one_of_each() -> list[Event]:
    """Return a recovery in which every kind of event of one occurs, in the order a driver keeps."""
    return [
        run_started(),
        dir_started(),
        dir_started(B, had_clean_shutdown=True, log_count=1, segment_count=0, bytes_total=0),
        Remark(text="__cluster_metadata-0 is left alone", log_dir=A, **at(0)),
        log_started(),
        IndexFileProblem(
            log_dir=A,
            partition="t-0",
            path=f"{A}/t-0/00000000000000000000.log",
            problem="missing",
            **at(0.1),
        ),
        segment_started(**at(0.1)),
        scanned(300, **at(0.2)),
        segment_recovered(2, **at(0.3)),
        segment_started(base_offset=20, ordinal=1, **at(0.3)),
        scanned(300, **at(0.4)),
        corruption(**at(0.5)),
        SegmentsDeleted(log_dir=A, partition="t-0", base_offsets=(40,), **at(0.5)),
        segment_recovered(0, base_offset=20, valid_bytes=123, **at(0.5)),
        log_finished(
            status="truncated",
            truncated_bytes=477,
            truncated_batches=4,
            loss="offsets 20 to 47 (at most 28 records), 477 bytes, 4 batches: CRC mismatch",
            **at(0.6),
        ),
        log_started("t-1", unflushed_segment_count=1, recover_bytes=100, thread_num=1, **at(0.6)),
        log_finished("t-1", status="refused", thread_num=1, reason="no", finished_count=2, **at(0.7)),
        CutByEarlierRun(
            log_dir=A,
            partition="t-2",
            truncated_bytes=71,
            truncated_batches=1,
            text="cut by an earlier run",
            **at(0.8),
        ),
        LogDirHandedOver(log_dir=A, handoff="clean-shutdown", wrote_marker=False, **at(0.8)),
        LogDirFinished(log_dir=A, duration_ms=800, **at(0.8)),
        LogDirOffline(log_dir=B, error=f"{B}/u-0: [Errno 5] Input/output error", **at(0.9)),
        RunFinished(exit_code=4, **at(1.0)),
    ]
