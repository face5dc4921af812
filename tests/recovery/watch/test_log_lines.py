"""Kafka's words, the right x/y, the fields behind them; and the JSON lines."""

import dataclasses
import io
import json
import re
import typing
from datetime import datetime

import pytest

from recovery.printable import printable
from recovery.quantity import bytes_text, duration_text, rate_text
from recovery.watch.events import (
    BytesScanned,
    Event,
    IndexFileProblem,
    LogDirHandedOver,
    LogDirOffline,
    LogDirSampled,
    Remark,
    RunFinished,
    SegmentsDeleted,
)
from recovery.watch.gauges import Gauges
from recovery.watch.json_lines import JsonLines
from recovery.watch.kafka_lines import KafkaLines, topic_and_partition
from recovery.watch.log_lines import LogLines
from recovery.watch.notifier import Notifier
from recovery.watch.text import progress_text
from tests import ROOT
from tests.runs.event_streams import (
    START_MS,
    A,
    B,
    at,
    checking,
    corruption,
    dir_started,
    log_finished,
    log_started,
    one_of_each,
    restoring,
    run_started,
    scanned,
    segment_started,
    watching,
)

LOADER = "[LogLoader partition=t-0, dir=/data/a] "


def lines(*stream):
    kafka = KafkaLines()
    return [line for event in stream for line in kafka.lines(event)]


def text(event):
    [line] = lines(event)
    return line.text


class TestKafkasWords:
    def test_loading(self):
        assert text(run_started()) == "Loading logs from log dirs ArrayBuffer(/data/a, /data/b)"

    def test_from_4_4_on_log_dirs_are_listed_as_java_does(self):
        started = run_started(release="4.4")
        assert text(started) == "Loading logs from log dirs [/data/a, /data/b]"
        stream = [started, dir_started(), RunFinished(exit_code=0, **at(1.5))]
        assert lines(*stream)[-1].text == "Loaded 2 logs in 1500ms (unclean log dirs = [/data/a])"

    def test_unclean_dir(self):
        expected = "Recovering 2 logs from /data/a since no clean shutdown file was found"
        assert text(dir_started()) == expected

    def test_clean_dir(self):
        expected = "Skipping recovery of 2 logs from /data/a since clean shutdown file was found"
        assert text(dir_started(had_clean_shutdown=True)) == expected

    @pytest.mark.parametrize("had_clean_shutdown", [True, False])
    def test_empty_dir(self, had_clean_shutdown):
        event = dir_started(log_count=0, had_clean_shutdown=had_clean_shutdown)
        assert text(event) == "No logs found to be loaded in /data/a"

    def test_segments_of_a_log_count_up_from_0(self):
        texts = [text(segment_started(base_offset=x * 20, ordinal=x, count=3)) for x in range(3)]
        assert texts == [
            LOADER + "Recovering unflushed segment 0. 0/3 recovered for t-0.",
            LOADER + "Recovering unflushed segment 20. 1/3 recovered for t-0.",
            LOADER + "Recovering unflushed segment 40. 2/3 recovered for t-0.",
        ]

    def test_corruption(self):
        found, corrupt = lines(corruption())
        assert found.text == (
            "Found invalid messages in log segment /data/a/t-0/00000000000000000020.log at byte offset 123."
        )
        assert corrupt.text == LOADER + "Corruption found in segment 20, truncating to offset 25"
        assert {found.level, corrupt.level} == {"warning"}
        assert corrupt.fields == {"position": 123, "reason": "CRC mismatch"}

    def test_torn_tail_says_nothing_of_messages(self):
        [line] = lines(corruption(found_invalid_messages=False))
        assert line.text == LOADER + "Corruption found in segment 20, truncating to offset 25"

    def test_invalid_offset_empties_the_segment(self):
        texts = [
            line.text for line in lines(corruption(found_invalid_messages=False, found_invalid_offset=True))
        ]
        assert texts == [
            LOADER
            + "Found invalid offset during recovery. Deleting the corrupt segment and creating an empty one "
            "with starting offset 20",
            LOADER + "Corruption found in segment 20, truncating to offset 25",
        ]

    def test_deleted_segments(self):
        event = SegmentsDeleted(log_dir=A, partition="t-0", base_offsets=(40, 60))
        assert text(event) == LOADER + (
            "Deleting segments as part of log recovery: LogSegment(baseOffset=40), LogSegment(baseOffset=60)"
        )

    def test_log_that_ends_before_its_start(self):
        event = SegmentsDeleted(
            log_dir=A, partition="t-0", base_offsets=(0,), log_end_offset=7, log_start_offset=9
        )
        warning, deleting = lines(event)
        assert warning.level == "warning"
        assert warning.text == LOADER + (
            "Deleting all segments because logEndOffset (7) is smaller than logStartOffset 9. "
            "This could happen if segment files were deleted from the file system."
        )
        assert deleting.text.endswith("log recovery: LogSegment(baseOffset=0)")

    @pytest.mark.parametrize(
        ("problem", "level", "expected"),
        [
            (
                "missing",
                "error",
                "Could not find offset index file corresponding to log file /p, "
                "recovering segment and rebuilding index files...",
            ),
            (
                "corrupt",
                "warning",
                "Found a corrupted index file corresponding to log file /p due to why, "
                "recovering segment and rebuilding index files...",
            ),
            ("orphaned", "warning", "Found an orphaned index file /p, with no corresponding log file."),
        ],
    )
    def test_index_files(self, problem, level, expected):
        event = IndexFileProblem(log_dir=A, partition="t-0", path="/p", problem=problem, error="why")
        [line] = lines(event)
        assert (line.text, line.level) == (LOADER + expected, level)

    def test_completed_load(self):
        event = log_finished(
            "my-topic-7", log_start_offset=5, local_log_start_offset=20, topic_id="AbCdEfGhIjKlMnOpQrStUv"
        )
        assert text(event) == (
            "Completed load of Log(dir=/data/a/my-topic-7, topicId=AbCdEfGhIjKlMnOpQrStUv, topic=my-topic, "
            "partition=7, highWatermark=20, lastStableOffset=20, logStartOffset=5, logEndOffset=40) "
            "with 3 segments, local-log-start-offset 20 and log-end-offset 40 in 12ms "
            "(1/2 completed in /data/a)"
        )

    def test_completed_load_without_topic_id_or_tiered_segments(self):
        line = text(log_finished(log_start_offset=5))
        assert "Log(dir=/data/a/t-0, topic=t, partition=0," in line
        assert "local-log-start-offset 5 and" in line

    @pytest.mark.parametrize("status", ["refused", "failed"])
    def test_log_that_could_not_be_loaded(self, status):
        [line] = lines(log_finished(status=status, reason="leader-epoch-checkpoint line 3"))
        assert line.text == "Error while loading logs in /data/a/t-0 in 12ms (1/2 completed in /data/a)"
        assert line.level == "error"
        assert line.fields["reason"] == "leader-epoch-checkpoint line 3"

    def test_cut_is_told_in_fields(self):
        [line] = lines(log_finished(status="truncated", truncated_bytes=477, truncated_batches=4))
        assert line.fields == {
            "status": "truncated",
            "thread": 0,
            "truncated_bytes": 477,
            "truncated_batches": 4,
        }

    def test_dir_with_an_io_error(self):
        [line] = lines(LogDirOffline(log_dir=A, error="[Errno 5] Input/output error: '/data/a/t-0/x.log'"))
        assert (line.text, line.level) == ("Error while loading log dir /data/a", "error")
        assert "Errno 5" in line.fields["error"]

    def test_loaded_counts_all_logs_and_names_unclean_dirs(self):
        stream = [
            run_started(),
            dir_started(),
            dir_started(B, log_count=3),
            RunFinished(exit_code=0, **at(1.5)),
        ]
        expected = "Loaded 5 logs in 1500ms (unclean log dirs = ArrayBuffer(/data/a, /data/b))"
        assert lines(*stream)[-1].text == expected

    def test_loaded_without_unclean_dirs(self):
        stream = [
            run_started(),
            dir_started(had_clean_shutdown=True),
            dir_started(B, log_count=0),
            RunFinished(exit_code=0, **at(1)),
        ]
        assert lines(*stream)[-1].text == "Loaded 2 logs in 1000ms"

    @pytest.mark.parametrize(
        ("exit_code", "level"), [(130, "warning"), (143, "warning"), (1, "error"), (3, "error")]
    )
    def test_a_run_that_did_not_get_to_the_end_does_not_say_loaded(self, exit_code, level):
        [line] = lines(RunFinished(exit_code=exit_code, **at(1)))
        assert "Loaded" not in line.text
        assert (line.level, line.fields) == (level, {"exit_code": exit_code})


def test_hand_over_without_marker_is_a_warning_only_where_one_was_asked_for():
    def level(handoff, wrote_marker):
        [line] = lines(LogDirHandedOver(log_dir=A, handoff=handoff, wrote_marker=wrote_marker))
        return line.level

    assert level("clean-shutdown", True) == "info"
    assert level("clean-shutdown", False) == "warning"
    assert level("recovery-point", False) == level("none", False) == "info"


def test_a_dry_run_says_so():
    [line] = lines(run_started(dry_run=True))
    assert line.fields == {"dry_run": True}


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("t-0", ("t", "0")),
        ("a-b-12", ("a-b", "12")),
        ("a.b-1", ("a.b", "1")),
        ("t-0.0123456789abcdef0123456789abcdef-future", ("t", "0")),
        ("a.b-3.0123456789abcdef0123456789abcdef-stray", ("a.b", "3")),
        ("t-0.0123456789abcdef0123456789abcdef-delete", ("t", "0")),
        ("lost+found", ("lost+found", "")),
    ],
)
def test_topic_and_partition_are_read_from_the_folder(folder, expected):
    assert topic_and_partition(folder) == expected


class TestLogLines:
    def printed(self, *stream):
        out = io.StringIO()
        gauges = Gauges()
        log_lines = LogLines(out, gauges)
        for event in stream:
            gauges(event)
            log_lines(event)
        return out.getvalue().splitlines()

    def test_are_laid_out_as_a_brokers(self):
        [line] = self.printed(corruption(found_invalid_messages=False))
        stamp = datetime.fromtimestamp(START_MS / 1000).strftime("%Y-%m-%d %H:%M:%S,045")
        assert line == (
            f"[{stamp}] WARN {LOADER}Corruption found in segment 20, truncating to offset 25 "
            'position=123 reason="CRC mismatch"'
        )

    def test_every_event_prints_well(self):
        printed = self.printed(*one_of_each())
        for line in printed:
            assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (INFO|WARN|ERROR) \S", line), line
        assert len(printed) == len(lines(*one_of_each()))

    def test_a_check_says_what_it_does(self):
        printed = [line.split("] ", 1)[1] for line in self.printed(*checking())]
        assert printed == [
            "INFO Verifying logs in log dirs ArrayBuffer(/data/a)",
            "INFO Verifying 2 logs in /data/a segments=4 bytes=1000",
            "INFO Verified /data/a/t-0 with 3 segments (1/2 completed in /data/a)",
            'WARN Verified /data/a/t-1 with 1 segments (2/2 completed in /data/a) found="2 findings"',
            "WARN Verified 2 logs in 500ms exit_code=2",
        ]

    def test_the_recovery_of_an_archive_is_not_called_a_verify(self):
        printed = self.printed(*checking("archive recover", "s3://bucket/logs"))
        assert printed[0].endswith("INFO Recovering logs in log dirs ArrayBuffer(s3://bucket/logs)")
        assert "Recovered 2 logs in 500ms" in printed[-1]
        assert "erif" not in "".join(printed)

    @pytest.mark.parametrize(
        ("exit_code", "last"),
        [
            (0, "INFO Copied 2 logs in 500ms exit_code=0"),
            (4, "WARN Copied 2 logs in 500ms exit_code=4"),
            (143, "WARN Interrupted; start the same command again to resume. exit_code=143"),
            (1, "ERROR Copying ended early. exit_code=1"),
        ],
    )
    def test_a_copy_says_how_it_ended(self, exit_code, last):
        stream = [*checking("archive copy")[:-1], RunFinished(exit_code=exit_code, **at(0.5))]
        printed = self.printed(*stream)
        assert printed[0].endswith("INFO Copying logs in log dirs ArrayBuffer(/data/a)")
        assert printed[-1].endswith(last)

    @pytest.mark.parametrize(
        ("statuses", "last"),
        [
            (("recovered", "unchanged"), "INFO Restored 2 logs in 500ms exit_code=0"),
            (("recovered", "failed"), "WARN Restored 1 of 2 logs in 500ms exit_code=4"),
            (("refused", "failed"), "WARN Restored 0 of 2 logs in 500ms exit_code=4"),
        ],
    )
    def test_a_restore_counts_what_it_has_restored(self, statuses, last):
        stream = [run_started(command="archive restore", log_dirs=(A,)), dir_started()]
        stream += [log_finished(status=status) for status in statuses]
        exit_code = 4 if "failed" in statuses else 0
        printed = self.printed(*stream, RunFinished(exit_code=exit_code, **at(0.5)))
        assert printed[-1].endswith(last)

    def test_progress_comes_every_ten_seconds_of_work(self):
        stream = [
            run_started(log_dirs=(A,)),
            dir_started(bytes_total=10 << 30),
            log_started(recover_bytes=10 << 30),
        ]
        stream += [scanned(10 << 20, **at(i)) for i in range(1, 32)]
        printed = [line for line in self.printed(*stream) if " of " in line]
        assert len(printed) == 3
        assert printed[0].endswith(
            "INFO 0/2 logs, 0/4 segments, 110 MiB of 10.0 GiB (1 %), 10.0 MiB/s, about 16m 55s left"
        )

    def test_a_file_name_cannot_forge_a_line(self):
        name = "t\n[2026-01-01 00:00:00,000] INFO Loaded 0 logs\x1b[2J-0"
        printed = self.printed(log_started(name), segment_started(name), corruption(name, reason="a\nb"))
        assert len(printed) == 3
        assert "\x1b" not in "".join(printed)

    def test_a_broker_that_is_watched_by_its_gauges(self):
        printed = [line.partition("] ")[2] for line in self.printed(*watching())]
        assert printed == [
            f"INFO Loading logs from log dirs ArrayBuffer({A})",
            f"INFO 10 logs left to load in {A}",
            "WARN the broker was started again",
            f"INFO Loading logs from log dirs ArrayBuffer({A})",
            f"INFO 10 logs left to load in {A}",
            "ERROR server.log: there is no such file any more",
            "INFO Loaded 10 logs in 2500ms exit_code=0",
        ]

    def test_words_without_an_event(self):
        out = io.StringIO()
        LogLines(out, Gauges()).say("Serving metrics at 100 %s", "warning")
        assert out.getvalue().endswith("] WARN Serving metrics at 100 %s\n")

    def test_a_run_says_what_its_kernels_are(self):
        (line,) = self.printed(run_started(dry_run=True, cpu_path="portable", kernel_origin="cache"))
        assert line.endswith(" dry_run=true cpu_path=portable kernels=cache")

    def test_structlogs_global_configuration_is_left_alone(self):
        import structlog

        before = structlog.get_config()
        self.printed(*one_of_each())
        assert structlog.get_config() == before
        assert not structlog.is_configured()


class TestJsonLines:
    def printed(self, *stream):
        out = io.StringIO()
        gauges = Gauges()
        json_lines = JsonLines(out, gauges)
        for event in stream:
            gauges(event)
            json_lines(event)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_each_event_is_an_object_with_its_fields(self):
        stream = [*one_of_each(), *checking(), *restoring(), *watching()]
        printed = [line for line in self.printed(*stream) if line["event"] != "Progress"]
        expected = [event for event in stream if not isinstance(event, (BytesScanned, LogDirSampled))]
        for line, event in zip(printed, expected, strict=True):
            fields = json.loads(json.dumps(dataclasses.asdict(event)))
            del fields["monotonic_s"]
            assert line == {"version": 1, "event": type(event).__name__} | fields

    def test_progress_at_most_once_a_second_and_at_the_end(self):
        stream = [run_started(), dir_started(), log_started(recover_bytes=1000)]
        stream += [scanned(10, **at(i / 10)) for i in range(1, 31)]
        stream += [log_finished(**at(3.05)), RunFinished(exit_code=0, **at(3.1))]
        printed = self.printed(*stream)
        progress = [line for line in printed if line["event"] == "Progress"]
        assert [line["now_ms"] - START_MS for line in progress] == [100, 1100, 2100, 3100]
        assert progress[2]["scanned_bytes"] == 210
        assert progress[2]["log_dirs"][0]["remaining_logs"] == 2
        assert [line["event"] for line in printed[-2:]] == ["Progress", "RunFinished"]
        assert (progress[-1]["state"], progress[-1]["exit_code"]) == ("complete", 0)
        assert progress[-1]["log_dirs"][0]["remaining_logs"] is None

    def test_sums_are_over_the_dirs(self):
        stream = [
            run_started(),
            dir_started(),
            dir_started(B, log_count=5),
            RunFinished(exit_code=0, **at(1)),
        ]
        [progress] = [line for line in self.printed(*stream) if line["event"] == "Progress"]
        assert (progress["log_count"], progress["bytes_total"]) == (7, 2000)

    def test_names_that_are_not_utf_8_are_escaped(self):
        out = io.BytesIO()
        stream = io.TextIOWrapper(out, encoding="utf-8")
        JsonLines(stream, Gauges())(Remark(text="x", partition="t\udcff-0", **at(0)))
        assert b'"partition":"t\\udcff-0"' in out.getvalue()

    def test_words_without_an_event(self):
        out = io.StringIO()
        JsonLines(out, Gauges()).say("hello", "warning")
        message = json.loads(out.getvalue())
        assert (message["event"], message["level"], message["text"]) == ("Message", "warning", "hello")


def test_documented_events_are_those_of_the_union():

    document = (ROOT / "docs/reference/progress.md").read_text(encoding="utf-8")
    for event_type in typing.get_args(Event):
        assert f"`{event_type.__name__}`" in document
        for field in dataclasses.fields(event_type):
            assert f"`{field.name}`" in document, f"{event_type.__name__}.{field.name}"


def test_log_lines_that_break_are_switched_off_and_the_run_goes_on(caplog):
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    seen = []
    notifier = Notifier([LogLines(Broken(), Gauges()), seen.append])
    for event in one_of_each():
        notifier(event)
    assert seen == one_of_each()
    assert "Broken pipe" in caplog.text


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (10 * 1024, "10.0 KiB"),
        (123 << 30, "123 GiB"),
        (99.96 * 1024, "100 KiB"),
        ((1 << 20) - 1, "1.00 MiB"),
        (5000 << 50, "5000 PiB"),
    ],
)
def test_bytes_are_readable(size_bytes, expected):
    assert bytes_text(size_bytes) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (0.1, "1s"),
        (59, "59s"),
        (59.5, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (86399, "23h 59m"),
        (90000, "1d 01h"),
        (-3, "0s"),
    ],
)
def test_durations_are_readable(seconds, expected):
    assert duration_text(seconds) == expected


def test_rates_and_counts_are_readable():
    assert (rate_text(None), rate_text(1 << 30)) == ("-", "1.00 GiB/s")


def test_printable_escapes_what_a_terminal_obeys():
    assert printable("orders-3 ü") == "orders-3 ü"
    assert printable("a\x1b[31m\n\udcff\u202e") == "a\\x1b[31m\\n\\udcff\\u202e"


def test_progress_text_leaves_out_what_is_not_known():
    gauges = Gauges()
    gauges(run_started())
    assert progress_text(gauges.values()) == "0/0 logs, 0/0 segments"
