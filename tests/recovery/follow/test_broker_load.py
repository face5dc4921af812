"""A broker's load as events: from its lines, with and without its log dirs, from the middle, over restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from recovery.follow.broker_lines import said_in
from recovery.follow.broker_load import BrokerLoad
from recovery.follow.unflushed import WatchedDirs, unflushed_logs
from recovery.watch.events import (
    BrokerRestarted,
    BytesScanned,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    PartitionFinished,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
)
from recovery.watch.figures import GaugeValues
from recovery.watch.gauges import Gauges
from recovery.watch.http.metrics import metrics_text
from recovery.watch.json_lines import progress
from segfmt.checkpoint import encode_offset_checkpoint
from segfmt.filenames import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT, log_name

SIZES = {"t-0": (100, 200, 300), "t-1": (50,), "u-0.0123-future": (70, 80)}
"""Bytes of segments, by folder; base offsets 0, 10, 20. The recovery point of t-0 is in its second segment."""
POINTS = {("t", 0): 15}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "d 1"
    for folder, sizes in (*SIZES.items(), ("gone-0.0123-delete", (900,)), ("__cluster_metadata-0", (900,))):
        (path / folder).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (path / folder / log_name(10 * number)).write_bytes(bytes(size))
            (path / folder / f"{log_name(10 * number)}.deleted").write_bytes(bytes(999))
    (path / "remote-log-index-cache").mkdir()
    (path / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offset_checkpoint(POINTS))
    return path


def began(*log_dirs: object) -> str:
    return f"Loading logs from log dirs ArrayBuffer({', '.join(map(str, log_dirs))})"


def listed(log_dir: object, count: int = 4) -> str:
    return f"Recovering {count} logs from {log_dir} since no clean shutdown file was found"


def segment(log_dir: object, partition: str, base: int, progress: str = "0") -> str:
    return (
        f"[LogLoader partition={partition}, dir={log_dir}] Recovering unflushed segment {base}. "
        f"{progress} recovered for {partition}."
    )


def loaded(log_dir: object, folder: str, number: int, count: int = 4) -> str:
    topic, partition = folder.partition(".")[0].split("-")
    return (
        f"Completed load of Log(dir={log_dir}/{folder}, topicId=x, topic={topic}, partition={partition}, "
        "highWatermark=0, lastStableOffset=0, logStartOffset=0, logEndOffset=30) with 3 segments, "
        f"local-log-start-offset 0 and log-end-offset 30 in 7ms ({number}/{count} completed in {log_dir})"
    )


def touched(log_dir: object, partition: str) -> str:
    return f"[LogLoader partition={partition}, dir={log_dir}] Loading producer state till offset 30"


END = "Loaded 4 logs in 93ms (unclean log dirs = ArrayBuffer(/d))"


def told(
    lines: Iterable[str],
    dirs: Sequence[Path] | None = None,
    *,
    load: BrokerLoad | None = None,
    threads: int = 0,
) -> list[Event]:
    """Return the events of *lines*, a second apart."""
    if load is None:
        load = BrokerLoad(None if dirs is None else WatchedDirs([*map(str, dirs)]), threads)
    found = []
    for number, line in enumerate(lines):
        said = said_in(line)
        assert said is not None, line
        found += load.take(said, 1000 * number)
    return found


def of(kind: type, events: Iterable[Event]) -> list:
    return [event for event in events if isinstance(event, kind)]


def figures(events: Iterable[Event]) -> GaugeValues:
    gauges = Gauges()
    for event in events:
        gauges(event)
    return gauges.values(0)


class TestWithTheDirs:
    def test_what_is_to_be_recovered_is_known_before(self, log_dir: Path) -> None:
        found = {log.folder: log.sizes_bytes for log in unflushed_logs(str(log_dir))}
        assert found == {
            "t-0": {10: 200, 20: 300},
            "t-1": {0: 50},
            "u-0.0123-future": {0: 70, 10: 80},
            "gone-0.0123-delete": {},
        }

    def test_the_broker_says_whether_a_dir_was_clean_since_it_deletes_the_marker(self, log_dir: Path) -> None:
        (log_dir / CLEAN_SHUTDOWN_FILE).write_text("")
        (start,) = of(LogDirStarted, told([began(log_dir), listed(log_dir)], [log_dir]))
        assert (start.segment_count, start.bytes_total, start.had_clean_shutdown) == (5, 700, False)
        (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
        skipped = f"Skipping recovery of 4 logs from {log_dir} since clean shutdown file was found"
        (start,) = of(LogDirStarted, told([began(log_dir), skipped], [log_dir]))
        assert (start.segment_count, start.bytes_total, start.had_clean_shutdown) == (0, 0, True)

    def test_a_whole_load(self, log_dir: Path) -> None:
        events = told(
            [
                began(log_dir),
                listed(log_dir),
                segment(log_dir, "t-0", 10),
                segment(log_dir, "u-0", 0),
                segment(log_dir, "t-0", 20),
                touched(log_dir, "t-0"),
                loaded(log_dir, "t-0", 1),
                segment(log_dir, "t-1", 0),
                loaded(log_dir, "t-1", 2),
                segment(log_dir, "u-0", 10),
                loaded(log_dir, "gone-0.0123-delete", 3),
                loaded(log_dir, "u-0.0123-future", 4),
                END,
            ],
            [log_dir],
        )
        place = str(log_dir)
        assert events[0] == RunStarted(
            log_dirs=(place,), threads_per_dir=0, command="watch", has_shared_pace=events[0].has_shared_pace
        )
        assert [
            (one.partition, one.thread_num, one.recover_bytes) for one in of(PartitionStarted, events)
        ] == [
            ("t-0", 0, 500),
            ("u-0.0123-future", 1, 150),
            ("t-1", 0, 50),
            ("gone-0.0123-delete", 0, 0),
        ]
        assert [
            (one.partition, one.base_offset, one.size_bytes, one.ordinal, one.count)
            for one in of(SegmentRecoveryStarted, events)
        ] == [
            ("t-0", 10, 200, 0, 2),
            ("u-0.0123-future", 0, 70, 0, 2),
            ("t-0", 20, 300, 1, 2),
            ("t-1", 0, 50, 0, 1),
            ("u-0.0123-future", 10, 80, 1, 2),
        ]
        assert [(one.base_offset, one.remaining_segments) for one in of(SegmentRecovered, events)] == [
            (10, 1),
            (20, 0),
            (0, 0),
            (0, 1),
            (10, 0),
        ]
        assert [one.scanned_bytes for one in of(BytesScanned, events)] == [200, 300, 50, 70, 80]
        assert [(one.partition, one.status, one.finished_count) for one in of(PartitionFinished, events)] == [
            ("t-0", "recovered", 1),
            ("t-1", "recovered", 2),
            ("gone-0.0123-delete", "unchanged", 3),
            ("u-0.0123-future", "recovered", 4),
        ]
        assert events[-2:] == [
            LogDirFinished(log_dir=place, duration_ms=10_000),
            RunFinished(exit_code=0),
        ]
        (values,) = figures(events).log_dirs
        assert (values.finished_segments, values.recovered_bytes, values.remaining_bytes) == (5, 700, 0)

    def test_dirs_that_slow_each_other_down(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.cpu_count", lambda: 64)
        assert WatchedDirs([str(tmp_path), "/proc"]).share_pace(0) is False
        assert WatchedDirs([str(tmp_path), str(tmp_path.parent)]).share_pace(0) is True
        monkeypatch.setattr("os.cpu_count", lambda: 4)
        assert WatchedDirs([str(tmp_path), "/proc"]).share_pace(2) is False
        assert WatchedDirs([str(tmp_path), "/proc"]).share_pace(3) is True

    def test_bytes_left_are_those_of_segments_not_recovered_yet(self, log_dir: Path) -> None:
        lines = [
            began(log_dir),
            listed(log_dir),
            segment(log_dir, "t-0", 10),
            segment(log_dir, "u-0", 0),
            segment(log_dir, "t-0", 20),
        ]
        left = [figures(told(lines[:count], [log_dir])).log_dirs[0].remaining_bytes for count in range(2, 6)]
        assert left == [700, 700, 700, 500]
        (values,) = figures(told(lines, [log_dir])).log_dirs
        assert (values.threads, values.remaining_segments) == ({0: "t-0", 1: "u-0.0123-future"}, (1, 2))

    def test_a_cut(self, log_dir: Path) -> None:
        path = f"{log_dir}/t-0/{log_name(10)}"
        events = told(
            [
                began(log_dir),
                listed(log_dir),
                segment(log_dir, "t-0", 10),
                f"Found invalid messages in log segment {path} at byte offset 120.",
                f"[LogLoader partition=t-0, dir={log_dir}] Corruption found in segment 10, truncating to offset 15",
                loaded(log_dir, "t-0", 1),
            ],
            [log_dir],
        )
        (recovered,) = of(SegmentRecovered, events)
        assert (recovered.size_bytes, recovered.valid_bytes, recovered.remaining_segments) == (200, 120, 0)
        (finished,) = of(PartitionFinished, events)
        assert (finished.status, finished.truncated_bytes) == ("truncated", 80 + 300)
        assert [(one.level, one.partition) for one in of(Remark, events)] == [("warning", "t-0")] * 2
        (values,) = figures(events).log_dirs
        assert (values.remaining_bytes, values.finished_segments) == (200, 2)

    def test_a_torn_tail_of_which_the_broker_names_no_place(self, log_dir: Path) -> None:
        load = BrokerLoad(WatchedDirs([str(log_dir)]))
        told([began(log_dir), listed(log_dir), segment(log_dir, "t-0", 20)], load=load)
        (log_dir / "t-0" / log_name(20)).write_bytes(bytes(290))  # as the broker has cut it
        cut = f"[LogLoader partition=t-0, dir={log_dir}] Corruption found in segment 20, truncating to offset 15"
        events = told([cut, loaded(log_dir, "t-0", 1)], load=load)
        (finished,) = of(PartitionFinished, events)
        assert (finished.status, finished.truncated_bytes) == ("truncated", 10 + 200)

    def test_a_stray_that_was_renamed_is_the_log_that_was_listed(self, log_dir: Path) -> None:
        events = told(
            [
                began(log_dir),
                listed(log_dir),
                segment(log_dir, "t-1", 0),
                loaded(log_dir, "t-1.0123-stray", 1),
            ],
            [log_dir],
        )
        (finished,) = of(PartitionFinished, events)
        assert (finished.partition, finished.thread_num) == ("t-1", 0)
        assert figures(events).log_dirs[0].remaining_bytes == 650

    def test_a_log_and_one_about_to_be_deleted_of_the_same_name(self, log_dir: Path) -> None:
        (log_dir / "t-1.0123-delete").mkdir()
        events = told(
            [
                began(log_dir),
                listed(log_dir, 5),
                loaded(log_dir, "t-1.0123-delete", 1, 5),
                segment(log_dir, "t-1", 0),
                loaded(log_dir, "t-1", 2, 5),
            ],
            [log_dir],
        )
        assert [(one.partition, one.status) for one in of(PartitionFinished, events)] == [
            ("t-1.0123-delete", "unchanged"),
            ("t-1", "recovered"),
        ]

    def test_from_the_middle_what_was_done_before_does_not_count(self, log_dir: Path) -> None:
        order = [log.folder for log in unflushed_logs(str(log_dir))]
        sizes = {log.folder: log.size_bytes for log in unflushed_logs(str(log_dir))}
        last = order[-1]
        events = told([loaded(log_dir, last, 3)], [log_dir])
        starts = of(LogDirStarted, events)
        assert starts[0].bytes_total == 700
        assert starts[-1].bytes_total == 700 - sizes[order[0]] - sizes[order[1]]
        (values,) = figures(events).log_dirs
        assert (values.remaining_logs, values.finished_logs) == (1, 3)
        assert values.remaining_bytes == sizes[order[2]]

    def test_from_the_middle_of_a_log(self, log_dir: Path) -> None:
        events = told([segment(log_dir, "t-0", 20)], [log_dir])
        (values,) = figures(events).log_dirs
        assert (values.bytes_total, values.segment_count, values.remaining_segments) == (500, 4, (1,))

    def test_log_dirs_of_another_broker(self, log_dir: Path) -> None:
        events = told(
            [began("/d"), listed("/d"), segment("/d", "t-0", 10), loaded("/d", "t-0", 1)], [log_dir]
        )
        (start,) = of(LogDirStarted, events)
        assert (start.log_count, start.bytes_total) == (4, 0)


class TestByTheLogAlone:
    def test_segments_are_counted_as_they_are_recovered(self) -> None:
        lines = [began("/d"), listed("/d"), segment("/d", "t-0", 0), segment("/d", "t-0", 10)]
        (values,) = figures(told(lines)).log_dirs
        assert (values.is_foreseen, values.segment_count, values.recovered_segments) == (False, 0, 1)
        shown = metrics_text(figures(told(lines))).decode()
        assert 'kafka_log_recovery_recovered_segments_total{dir="/d"} 1.0' in shown
        for unknown in ("segments", "bytes", "remaining_bytes", "remaining_segments", "scanned_bytes_total"):
            assert f"kafka_log_recovery_{unknown}{{" not in shown
        told_as_json = progress(figures(told(lines)))
        for figures_as_json in (told_as_json, *told_as_json["log_dirs"]):
            assert figures_as_json["recovered_segments"] == 1
            for unknown in (
                "segment_count",
                "finished_segments",
                "bytes_total",
                "remaining_bytes",
                "scanned_bytes",
            ):
                assert figures_as_json[unknown] is None, unknown
        assert values.remaining_segments == ()
        (values,) = figures(told([*lines, loaded("/d", "t-0", 1)])).log_dirs
        assert (values.recovered_segments, values.remaining_logs) == (2, 3)

    def test_releases_that_say_how_many_segments_a_log_has(self) -> None:
        lines = [
            began("/d"),
            listed("/d"),
            segment("/d", "t-0", 0, "0/3"),
            segment("/d", "t-1", 0, "0/9"),
            segment("/d", "t-0", 10, "1/3"),
        ]
        (values,) = figures(told(lines)).log_dirs
        assert values.remaining_segments == (2, 9)

    def test_releases_that_do_not_say_how_many_logs_there_are(self) -> None:
        lines = [
            began("/d", "/e"),
            "Attempting recovery for all logs in /d since no clean shutdown file was found",
            "[Log partition=t-0, dir=/d] Recovering unflushed segment 0",
            "Completed load of Log(dir=/d/t-0, topic=t, partition=0, highWatermark=0, lastStableOffset=0, "
            "logStartOffset=0, logEndOffset=30) with 3 segments in 7ms (1/2 loaded in /d)",
        ]
        (values, _) = figures(told(lines)).log_dirs
        assert (values.log_count, values.remaining_logs) == (2, 1)

    def test_this_tool_says_sizes_itself(self) -> None:
        lines = [
            began("/d"),
            f"{listed('/d', 2)} unflushed_segments=4 unflushed_bytes=1000",
            f"{segment('/d', 't-0', 0, '0/3')} size_bytes=100 thread=0",
            f"{segment('/d', 't-0', 10, '1/3')} size_bytes=200 thread=0",
            f"{segment('/d', 't-0', 20, '2/3')} size_bytes=300 thread=0",
        ]
        (values,) = figures(told(lines, threads=1)).log_dirs
        assert (values.bytes_total, values.remaining_bytes, values.remaining_segments) == (1000, 700, (1,))
        (values,) = figures(told([*lines, loaded("/d", "t-0", 1, 2)], threads=1)).log_dirs
        assert (values.remaining_bytes, values.finished_segments) == (400, 3)
        end = "Interrupted; start the same command again to resume. exit_code=143"
        assert told([*lines, end])[-1] == RunFinished(exit_code=4)

    def test_this_tool_says_how_each_log_ended(self) -> None:
        """Its cut of a preallocated log's zeros is none, and batches cannot be counted from what a broker says."""
        cut = f"{segment('/d', 't-0', 0, '0/1')} size_bytes=100 thread=0"
        place = "[LogLoader partition={}, dir=/d] Corruption found in segment 0, truncating to offset 3"
        lines = [
            began("/d"),
            f"{listed('/d', 2)} unflushed_segments=2 unflushed_bytes=200",
            cut,
            place.format("t-0"),
            f"{loaded('/d', 't-0', 1, 2)} status=recovered thread=0",
            cut.replace("t-0", "t-1"),
            place.format("t-1"),
            f"{loaded('/d', 't-1', 2, 2)} status=truncated thread=0 truncated_bytes=40 truncated_batches=7",
        ]
        events = told(lines, threads=1)
        ends = [
            (end.status, end.truncated_bytes, end.truncated_batches) for end in of(PartitionFinished, events)
        ]
        assert ends == [("recovered", 0, 0), ("truncated", 40, 7)]

    def test_from_the_middle(self) -> None:
        events = told([segment("/d", "t-0", 10), loaded("/d", "t-0", 7, 9)])
        assert of(RunStarted, events) == [RunStarted(log_dirs=("/d",), threads_per_dir=0, command="watch")]
        (values,) = figures(events).log_dirs
        assert (values.log_count, values.finished_logs, values.remaining_logs) == (9, 7, 2)

    def test_lines_of_two_threads_overtake_each_other(self) -> None:
        """A broker counts, and prints afterwards; and i/N of the first line says what was done before it."""
        lines = [began("/d"), listed("/d"), *(loaded("/d", f"t-{number}", number) for number in (2, 1, 4))]
        assert figures(told(lines)).log_dirs[0].remaining_logs == 1
        assert of(LogDirFinished, told([*lines, loaded("/d", "t-3", 3)])) == [
            LogDirFinished(log_dir="/d", duration_ms=4000)
        ]
        from_the_middle = [loaded("/d", f"t-{number}", number, 9) for number in (6, 5, 8)]
        assert figures(told(from_the_middle)).log_dirs[0].finished_logs == 7
        assert figures(told([*from_the_middle, loaded("/d", "t-7", 7, 9)])).log_dirs[0].finished_logs == 8

    def test_a_clean_start(self) -> None:
        skipped = "Skipping recovery of 1 logs from /d since clean shutdown file was found"
        events = told([began("/d"), skipped, touched("/d", "t-0"), loaded("/d", "t-0", 1, 1), END])
        assert of(PartitionStarted, events)[0].unflushed_segment_count is None
        assert of(PartitionFinished, events)[0].status == "unchanged"
        assert events[-1] == RunFinished(exit_code=0)

    def test_a_broker_without_logs(self) -> None:
        events = told([began("/d"), "No logs found to be loaded in /d", "Loaded 0 logs in 3ms"])
        assert [type(event) for event in events] == [RunStarted, LogDirStarted, LogDirFinished, RunFinished]

    def test_the_end_of_the_load_ends_dirs_of_which_lines_are_missing(self) -> None:
        events = told([began("/d"), listed("/d"), loaded("/d", "t-0", 1), END])
        assert of(LogDirFinished, events) == [LogDirFinished(log_dir="/d", duration_ms=2000)]

    @pytest.mark.parametrize("exit_code", [0, 2, 4])
    def test_a_run_of_this_tool_says_how_it_ended_and_why(self, exit_code: int) -> None:
        failed = (
            "Error while loading logs in /d/t-0 in 7ms (1/1 completed in /d) status=refused thread=0 "
            r'reason="t-0: \"x\" is neither"'
        )
        events = told([began("/d"), listed("/d", 1), failed, f"Loaded 1 logs in 3ms exit_code={exit_code}"])
        (finished,) = of(PartitionFinished, events)
        assert (finished.status, finished.reason) == ("refused", 't-0: "x" is neither')
        assert of(RunFinished, events) == [RunFinished(exit_code=exit_code)]

    def test_a_log_that_fails_and_a_dir_that_goes_offline(self) -> None:
        failed = "Error while loading logs in /d/t-0 in 7ms (1/2 completed in /d)"
        events = told(
            [
                began("/d", "/e"),
                listed("/d", 2),
                failed,
                "Error while loading log dir /e (kafka.log.LogManager)",
            ]
        )
        (finished,) = of(PartitionFinished, events)
        assert (finished.status, finished.partition) == ("failed", "t-0")
        assert of(LogDirOffline, events)[0].log_dir == "/e"

    @pytest.mark.parametrize(
        "line",
        [
            "Loaded 9 logs in 3ms",
            "[KafkaRaftServer nodeId=1] Kafka Server started",
        ],
    )
    def test_a_log_that_begins_after_the_load_says_that_it_is_over(self, line: str) -> None:
        events = told([line, "Kafka Server started", touched("/d", "t-0")])
        assert of(RunFinished, events) == [RunFinished(exit_code=0)]

    def test_lines_after_the_load_are_of_new_logs(self) -> None:
        before = told([began("/d"), listed("/d"), END])
        assert told([began("/d"), listed("/d"), END, touched("/d", "new-0")]) == before


class TestRestarts:
    def test_a_restart_is_said_and_counting_begins_anew(self) -> None:
        lines = [
            began("/d"),
            listed("/d"),
            segment("/d", "t-0", 0),
            loaded("/d", "t-0", 1),
            "Registered `kafka:type=kafka.Log4jController` MBean",
            began("/d"),
            listed("/d"),
        ]
        events = told(lines)
        (restart,) = of(BrokerRestarted, events)
        assert "started again before its recovery was over" in restart.text
        values = figures(events)
        assert (values.log_dirs[0].finished_logs, values.exit_code) == (0, None)

    def test_the_next_start_after_a_load_is_no_news(self) -> None:
        events = told([began("/d"), listed("/d"), END, began("/d"), listed("/d"), END])
        assert of(Remark, events) == []
        assert of(RunFinished, events) == [RunFinished(exit_code=0)] * 2

    @pytest.mark.parametrize(
        "line",
        [
            "[BrokerServer id=1] shut down completed (kafka.server.BrokerServer)",
            "Exiting Kafka due to fatal exception during startup. (kafka.Kafka$)",
            "Shutdown broker because all log dirs in /d have failed (kafka.log.LogManager)",
        ],
    )
    def test_a_broker_that_ends_before_its_load(self, line: str) -> None:
        events = told([began("/d"), listed("/d"), line, line])
        assert events[-1] == RunFinished(exit_code=4)
        assert len(of(RunFinished, events)) == 1
        assert of(RunFinished, told([began("/d"), END, line])) == [RunFinished(exit_code=0)]
