"""What lines of brokers from 2.8 to 4.4, and of this tool, say of a load.

tests/kafka/test_watch.py reads those of real brokers; the words of older releases are those of their sources."""

import pytest

from recovery.follow.broker_lines import (
    KEYWORDS,
    BrokerBegan,
    BrokerEnded,
    BrokerRuns,
    LoadBegan,
    LoadEnded,
    LogDirFailed,
    LogDirListed,
    LogLoaded,
    LogTouched,
    SegmentBegan,
    SegmentCut,
    Trouble,
    partition_of,
    said_in,
)

A, B = "/data 0", "/mnt/d-1"
LOG = "highWatermark=0, lastStableOffset=0, logStartOffset=3, logEndOffset=77)"

LOADED = LogLoaded(
    log_dir=A,
    folder="t.x-1",
    partition="t.x-1",
    segment_count=5,
    log_start_offset=3,
    log_end_offset=77,
    duration_ms=41,
    finished_count=2,
    log_count=9,
)


def began(base_offset: int = 20, **fields: int) -> SegmentBegan:
    return SegmentBegan(log_dir=A, partition="t.x-1", base_offset=base_offset, **fields)


LINES = {
    # 2.8
    f"[Log partition=t.x-1, dir={A}] Recovering unflushed segment 20 (kafka.log.Log)": began(),
    f"Attempting recovery for all logs in {A} since no clean shutdown file was found (k.LogManager)": LogDirListed(
        log_dir=A, had_clean_shutdown=False
    ),
    f"Skipping recovery for all logs in {A} since clean shutdown file was found (kafka.log.LogManager)": LogDirListed(
        log_dir=A, had_clean_shutdown=True
    ),
    f"Completed load of Log(dir={A}/t.x-1, topic=t.x, partition=1, {LOG} with 5 segments in 41ms (2/9 loaded in {A}) "
    "(kafka.log.LogManager)": LOADED,
    "Loaded 9 logs in 93ms. (kafka.log.LogManager)": LoadEnded(log_count=9),
    "[KafkaServer id=0] started (kafka.server.KafkaServer)": BrokerRuns(),
    "[KafkaServer id=0] shut down completed (kafka.server.KafkaServer)": BrokerEnded(
        text="[KafkaServer id=0] shut down completed (kafka.server.KafkaServer)"
    ),
    # 3.0 to 3.2
    f"[LogLoader partition=t.x-1, dir={A}] Recovering unflushed segment 20 (kafka.log.LogLoader$)": began(),
    f"Completed load of Log(dir={A}/t.x-1, topicId=oLO3hrDgRiqCYk6UbBSLyQ, topic=t.x, partition=1, {LOG} with 5 "
    f"segments in 41ms (2/9 loaded in {A}) (kafka.log.LogManager)": LOADED,
    # 3.3 to 3.9
    f"[LogLoader partition=t.x-1, dir={A}] Recovering unflushed segment 20. 1/5 recovered for t.x-1. "
    "(kafka.log.LogLoader)": began(ordinal=1, count=5),
    f"Completed load of Log(dir={A}/t.x-1, topicId=Some(oLO3hrDgRiqCYk6UbBSLyQ), topic=t.x, partition=1, {LOG} with 5 "
    f"segments, local-log-start-offset 3 and log-end-offset 77 in 41ms (2/9 completed in {A}) (k)": LOADED,
    f"Error while loading logs in {A}/t.x-1 in 41ms (2/9 completed in {A}) (kafka.log.LogManager)": LogLoaded(
        log_dir=A,
        folder="t.x-1",
        partition="t.x-1",
        is_failed=True,
        duration_ms=41,
        finished_count=2,
        log_count=9,
    ),
    # 4.x
    f"Loading logs from log dirs ArrayBuffer({A}, {B}) (kafka.log.LogManager)": LoadBegan(
        log_dirs=(A, B), has_java_log_manager=False
    ),
    f"Loading logs from log dirs [{A}, {B}] (org.apache.kafka.storage.internals.log.LogManager)": LoadBegan(
        log_dirs=(A, B), has_java_log_manager=True
    ),
    f"Recovering 9 logs from {A} since no clean shutdown file was found (kafka.log.LogManager)": LogDirListed(
        log_dir=A, had_clean_shutdown=False, log_count=9
    ),
    f"Skipping recovery of 9 logs from {A} since clean shutdown file was found": LogDirListed(
        log_dir=A, had_clean_shutdown=True, log_count=9
    ),
    f"No logs found to be loaded in {A} (kafka.log.LogManager)": LogDirListed(
        log_dir=A, had_clean_shutdown=False, log_count=0
    ),
    f"[LogLoader partition=t.x-1, dir={A}] Recovering unflushed segment 20. 0 recovered for t.x-1. (o.a.k.LogLoader)": (
        began()
    ),
    f"[LogLoader partition=t.x-1, dir={A}] Loading producer state till offset 77 (o.a.k.UnifiedLog)": LogTouched(
        log_dir=A, partition="t.x-1"
    ),
    f"[LogLoader partition=t.x-1, dir={A}] Corruption found in segment 20, truncating to offset 25 (o)": SegmentCut(
        log_dir=A,
        partition="t.x-1",
        base_offset=20,
        text="Corruption found in segment 20, truncating to offset 25",
    ),
    f"Found invalid messages in log segment {A}/t.x-1/00000000000000000020.log at byte offset 123. (o)": SegmentCut(
        log_dir=A,
        partition="t.x-1",
        base_offset=20,
        text=f"Found invalid messages in log segment {A}/t.x-1/00000000000000000020.log at byte offset 123",
        position=123,
    ),
    f"[LogLoader partition=t.x-1, dir={A}] Found an orphaned index file x.index": Trouble(
        level="warning",
        text="Found an orphaned index file x.index",
        log_dir=A,
        partition="t.x-1",
    ),
    f"Completed load of Log(dir={A}/t.x-1.0123456789abcdef-stray, topicId=oLO3hrDgRiqCYk6UbBSLyQ, topic=t.x, "
    f"partition=1, {LOG} with 5 segments, local-log-start-offset 3 in 41ms (2/9 completed in {A})": LogLoaded(
        **{name: getattr(LOADED, name) for name in LOADED.__slots__ if name not in ("folder",)},
        folder="t.x-1.0123456789abcdef-stray",
    ),
    f"Error while loading log dir {A} (kafka.log.LogManager)": LogDirFailed(
        log_dir=A, text=f"Error while loading log dir {A} (kafka.log.LogManager)"
    ),
    f"Loaded 9 logs in 93ms (unclean log dirs = ArrayBuffer({A})) (kafka.log.LogManager)": LoadEnded(
        log_count=9
    ),
    "Registered `kafka:type=kafka.Log4jController` MBean (kafka.utils.Log4jControllerRegistration$)": BrokerBegan(),
    "[BrokerServer id=1] Transition from STARTING to STARTED (kafka.server.BrokerServer)": BrokerRuns(),
    "[BrokerServer id=1] shut down completed (kafka.server.BrokerServer)": BrokerEnded(
        text="[BrokerServer id=1] shut down completed (kafka.server.BrokerServer)"
    ),
    "App info kafka.server for 1 unregistered (org.apache.kafka.common.utils.AppInfoParser)": BrokerEnded(
        text="App info kafka.server for 1 unregistered (org.apache.kafka.common.utils.AppInfoParser)"
    ),
    # this tool
    f"Recovering 9 logs from {A} since no clean shutdown file was found unflushed_segments=4 unflushed_bytes=900": (
        LogDirListed(
            log_dir=A, had_clean_shutdown=False, log_count=9, unflushed_segments=4, unflushed_bytes=900
        )
    ),
    f"[LogLoader partition=t.x-1, dir={A}] Recovering unflushed segment 20. 1/5 recovered for t.x-1. size_bytes=300 "
    "thread=1": began(ordinal=1, count=5, size_bytes=300),
    f"Loading logs from log dirs ArrayBuffer({A}, {B}) cpu_path=portable kernels=cache": LoadBegan(
        log_dirs=(A, B), has_java_log_manager=False
    ),
    "Recovery ended early. exit_code=1": LoadEnded(log_count=0, is_complete=False),
    "Interrupted; start the same command again to resume. exit_code=143": LoadEnded(
        log_count=0, is_complete=False
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_says(line: str) -> None:
    assert said_in(line) == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_what_is_around_a_line_does_not_matter(line: str) -> None:
    said = said_in(f"2026-11-22T10:00:00.123456789Z [2026-11-22 10:00:00,123] INFO {line}")
    assert said == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_says_anything_has_a_keyword(line: str) -> None:
    assert any(keyword.decode() in line for keyword in KEYWORDS)


@pytest.mark.parametrize(
    "line",
    [
        "[LogLoader partition=__cluster_metadata-0, dir=/d] Recovering unflushed segment 0. 0 recovered for x.",
        "Found invalid messages in log segment /d/__cluster_metadata-0/00000000000000000000.log at byte offset 3.",
        "[UnifiedLog partition=t-0, dir=/d] Rolled new log segment at offset 20 in 3 ms. (o.a.k.UnifiedLog)",
        "[LocalLog partition=t-0, dir=/d] Rolled new log segment at offset 20 in 3 ms.",
        "[Log partition=t-0, dir=/d] Rolled new log segment at offset 20 in 3 ms. (kafka.log.Log)",
        "[LogLoader partition=t-0, dir=/d] Deleting segments as part of log recovery: x",
        "[ReplicaFetcherManager on broker 1] Removed fetcher for partitions Set(t-0)",
        "[ControllerServer id=1] shut down completed (kafka.server.ControllerServer)",
        "App info kafka.producer for p1 unregistered (org.apache.kafka.common.utils.AppInfoParser)",
        "[SocketServer listenerType=BROKER, nodeId=1] started",
        "logs in 3ms",
        "",
    ],
)
def test_lines_that_say_nothing(line: str) -> None:
    assert said_in(line) is None


@pytest.mark.parametrize(
    ("folder", "partition"),
    [
        ("t-0", "t-0"),
        ("t-0.0123-future", "t-0"),
        ("a.b-12.0123-stray", "a.b-12"),
        ("t-1.9-delete", "t-1"),
        ("x-future", "x-future"),
    ],
)
def test_the_partition_of_a_folder(folder: str, partition: str) -> None:
    assert partition_of(folder) == partition
