"""What the terminal shows, at which sizes; and that a terminal that goes away ends nothing."""

import contextlib
import io
import json
import logging
import os
import pty
import time
import urllib.request

import pytest
from rich.console import Console

from recovery.errors import UsageError
from recovery.watch.events import (
    IndexFileProblem,
    LogDirFinished,
    LogDirHandedOver,
    LogDirOffline,
    Remark,
    RunFinished,
)
from recovery.watch.gauges import Gauges
from recovery.watch.notices import notice_of
from recovery.watch.notifier import Notifier
from recovery.watch.open import ObserverOptions, open_observers
from recovery.watch.terminal import NOTICE_LIMIT, Terminal
from recovery.watch.terminal_view import short_names, view
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.event_streams import (
    A,
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
    segment_recovered,
    watching,
)


def picture(*stream, width=120, height=30, monotonic_s=1000.0):
    gauges = Gauges()
    for event in stream:
        gauges(event)
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(view(gauges.values(monotonic_s), width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def busy_dir(log_dir=A, seconds=20):
    yield dir_started(log_dir, log_count=40, segment_count=80, bytes_total=400 << 20)
    yield log_started("orders-3", log_dir=log_dir, recover_bytes=300 << 20)
    yield log_started("payments-0", log_dir=log_dir, thread_num=1, unflushed_segment_count=1)
    for i in range(1, seconds + 1):
        yield scanned(10 << 20, "orders-3", log_dir=log_dir, **at(i))
    yield segment_recovered(2, "orders-3", log_dir=log_dir, size_bytes=100 << 20, **at(seconds))


def damaged(name):
    return log_finished(
        name, status="truncated", truncated_bytes=9, loss="offsets 1 to 2, 9 bytes: CRC mismatch"
    )


def squeezed(lines):
    """Return lines with runs of blanks and bars shortened, for comparing words."""
    return [" ".join(line.replace("━", "").replace("╸", "").replace("╺", "").split()) for line in lines]


def test_one_dir_in_the_middle_of_its_work():
    lines = picture(run_started(log_dirs=(A,)), *busy_dir(), monotonic_s=1020.0)
    assert squeezed(lines) == [
        "Recovering 1 log dir, 20s so far",
        "log dir logs segments bytes rate left",
        "/data/a 50 % 0/40 1/80 200 MiB of 400 MiB 10.0 MiB/s 22s",
        "/data/a 0: orders-3, 2 segments left 1: payments-0, 1 segment left",
    ]


def test_a_broker_that_is_watched_by_its_gauges_tells_segments_and_no_logs():
    assert squeezed(picture(*watching()[:8], monotonic_s=1005.0)) == [
        "Recovering 1 log dir, 5s so far",
        "log dir logs segments bytes rate left",
        "/data/a 50 % 5/10 0/0 - - 5s",
        "/data/a 0: 2 segments left 1: 1 segment left",
    ]


def test_a_broker_that_is_watched_by_its_log_may_tell_logs_and_no_segments():
    stream = [run_started(log_dirs=(A,), command="watch", threads_per_dir=0), dir_started()]
    stream += [log_started(), log_started("t-1", thread_num=1, unflushed_segment_count=None)]
    assert squeezed(picture(*stream))[-1] == "/data/a 0: t-0, 3 segments left 1: t-1"


def test_several_dirs_have_a_line_each_and_one_for_all():
    stream = [run_started(), *busy_dir(), *busy_dir("/data/b")]
    lines = squeezed(picture(*stream, monotonic_s=1020.0))
    assert lines[2].startswith("/data/a 50 %")
    assert lines[3].startswith("/data/b 50 %")
    assert lines[4] == "all 50 % 0/80 2/160 400 MiB of 800 MiB 20.0 MiB/s 22s"


@pytest.mark.parametrize(
    ("command", "doing", "done"),
    [
        ("verify", "Verifying 1 log dir, 0s so far", "Verified 1 log dir in 1s"),
        ("archive verify", "Verifying 1 archive, 0s so far", "Verified 1 archive in 1s"),
        ("archive recover", "Recovering 1 archive, 0s so far", "Recovered 1 archive in 1s"),
        ("archive copy", "Copying 1 log dir, 0s so far", "Copied 1 log dir in 1s"),
    ],
)
def test_a_check_is_not_called_a_recovery(command, doing, done):
    assert squeezed(picture(*checking(command)[:5]))[0] == doing
    lines = squeezed(picture(*checking(command)))
    assert lines[0].startswith(done)
    assert lines[-1] == "1 log damaged"
    interrupted = picture(*checking(command)[:-1], RunFinished(exit_code=130, **at(0.5)))
    again = " (start again to resume)" if command == "archive copy" else ""
    assert interrupted[0].startswith(f"Interrupted{again}: 1 ")


def test_a_restore_is_called_one():
    assert squeezed(picture(*restoring()[:6]))[0] == "Restoring 1 log dir, 0s so far"
    assert squeezed(picture(*restoring()))[0].startswith("Restored in part: 1 log dir in 1s")
    started = run_started(log_dirs=(A,), command="archive restore", dry_run=True)
    dry = picture(started, RunFinished(exit_code=0, **at(1)))
    assert dry[0].startswith("Checked 1 log dir (dry run: nothing is written)")
    interrupted = picture(*restoring()[:-1], RunFinished(exit_code=143, **at(1)))
    assert interrupted[0].startswith("Interrupted (start again to resume): 1 log dir")


def test_eta_that_would_be_a_guess_is_a_dash():
    lines = squeezed(picture(run_started(log_dirs=(A,)), *busy_dir(seconds=3), monotonic_s=1003.0))
    assert lines[2].endswith("10.0 MiB/s -")


def test_before_the_inventory_there_are_no_bars():
    assert picture() == [
        "Starting; the first run on a machine compiles its kernels, which takes some seconds"
    ]
    assert squeezed(picture(run_started(log_dirs=(A,))))[0] == "Listing 1 log dir, 0s so far"


def test_finished_clean_and_offline_dirs_say_so():
    stream = [
        run_started(log_dirs=("/a", "/b", "/c")),
        dir_started("/a"),
        LogDirFinished(log_dir="/a", duration_ms=1, **at(1)),
        dir_started("/b", had_clean_shutdown=True, bytes_total=0, segment_count=0),
        LogDirFinished(log_dir="/b", duration_ms=1, **at(1)),
        LogDirOffline(log_dir="/c", error="EIO", **at(1)),
    ]
    assert [line.split()[-1] for line in picture(*stream)[2:5]] == ["done", "clean", "offline"]


def test_the_bar_is_not_full_before_the_last_log_is_written():
    stream = [run_started(log_dirs=(A,)), dir_started(bytes_total=900), log_started(), scanned(900)]
    assert " 99 % " in picture(*stream)[2]
    assert " 100 % " in picture(*stream, LogDirFinished(log_dir=A, duration_ms=1, **at(1)))[2]


def test_a_dir_without_bytes_is_measured_by_its_logs():
    stream = [run_started(log_dirs=(A,)), dir_started(bytes_total=0, segment_count=0), log_finished()]
    assert " 50 % " in picture(*stream)[2]


def test_losses_are_told_at_the_bottom():
    cut = {"status": "truncated", "truncated_bytes": 3 << 20, "truncated_batches": 7}
    stream = [run_started(log_dirs=(A,)), dir_started(log_count=9), log_finished(**cut)]
    assert picture(*stream)[-1] == "cut 3.00 MiB off 1 log, 7 batches"
    stream += [log_finished(status="refused"), log_finished(status="failed"), log_finished(status="failed")]
    assert picture(*stream)[-1] == "cut 3.00 MiB off 1 log, 7 batches   1 log refused   2 logs failed"


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        (0, "Recovered 1 log dir in 25s, 200 MiB read at 8.00 MiB/s"),
        (4, "Recovered in part: 1 log dir in 25s, 200 MiB read at 8.00 MiB/s"),
        (143, "Interrupted (start again to resume): 1 log dir in 25s, 200 MiB read at 8.00 MiB/s"),
        (1, "Failed: 1 log dir in 25s, 200 MiB read at 8.00 MiB/s"),
    ],
)
def test_title_says_how_it_ended(exit_code, expected):
    stream = [run_started(log_dirs=(A,)), *busy_dir(), RunFinished(exit_code=exit_code, **at(25))]
    assert picture(*stream, monotonic_s=1099.0)[0] == expected


def test_title_says_that_a_dry_run_writes_nothing():
    cut = log_finished(status="truncated", truncated_bytes=3 << 20)
    stream = [run_started(dry_run=True), dir_started(), cut, RunFinished(exit_code=2, **at(3))]
    lines = picture(*stream)
    assert lines[0] == "Checked 2 log dirs (dry run: nothing is written) in 3s"
    assert lines[-1] == "to cut: 3.00 MiB off 1 log"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_screen_and_the_bar_has_room(width):
    stream = [run_started(log_dirs=("/var/lib/kafka/data-0/kafka-log0",))]
    stream += busy_dir("/var/lib/kafka/data-0/kafka-log0")
    lines = picture(*stream, width=width, monotonic_s=1020.0)
    assert max(len(line) for line in lines) <= width
    bar = sum(lines[2].count(c) for c in "━╸╺")
    assert bar >= (3 if width < 60 else 5)
    assert lines[2].endswith("22s")


def test_narrow_screens_lose_segments_then_bytes_then_the_rate():
    stream = [run_started(log_dirs=(A,)), *busy_dir()]
    headings = {width: picture(*stream, width=width)[1].split()[2:] for width in (112, 92, 60, 59)}
    assert headings == {
        112: ["logs", "segments", "bytes", "rate", "left"],
        92: ["logs", "bytes", "rate", "left"],
        60: ["logs", "rate", "left"],
        59: ["logs", "left"],
    }


def test_low_screens_keep_unfinished_dirs_and_the_line_of_all():
    dirs = tuple(f"/d{i}" for i in range(20))
    stream = [run_started(log_dirs=dirs), *(dir_started(log_dir) for log_dir in dirs)]
    stream += [LogDirFinished(log_dir=log_dir, duration_ms=1, **at(1)) for log_dir in dirs[:15]]
    stream += [log_finished(log_dir="/d19", status="refused")]
    lines = picture(*stream, height=14)
    assert len(lines) < 14
    shown = [line.split()[0] for line in lines[2:10]]
    assert shown == ["/d0", "/d1", "/d2", "/d15", "/d16", "/d17", "/d18", "/d19"]
    assert lines[10] == "and 12 more"
    assert lines[11].startswith("all")
    assert lines[12] == "1 log refused"


def test_names_of_dirs_are_cut_where_they_still_differ():
    assert short_names(["/a", "/b"], 20) == ["/a", "/b"]
    assert short_names(["/var/lib/kafka/data-0", "/var/lib/kafka/data-1"], 10) == ["…ka/data-0", "…ka/data-1"]
    same_ends = ["/disk1/kafka/data/logs", "/disk2/kafka/data/logs"]
    assert short_names(same_ends, 14) == ["/disk1…ta/logs", "/disk2…ta/logs"]


def test_names_cannot_steer_the_terminal():
    stream = [run_started(log_dirs=("/d\x1b[2J",)), dir_started("/d\x1b[2J")]
    stream += [log_started("t\x07-0", log_dir="/d\x1b[2J")]
    text = "\n".join(picture(*stream))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[2J" in text


class TestNotices:
    @pytest.mark.parametrize(
        ("event", "level", "expected"),
        [
            (
                log_finished(status="truncated", loss="offsets 20 to 24, 123 bytes: CRC mismatch"),
                "warning",
                "/data/a/t-0: loses offsets 20 to 24, 123 bytes: CRC mismatch",
            ),
            (
                IndexFileProblem(log_dir=A, partition="t-0", path=f"{A}/t-0/1.log", problem="missing"),
                "warning",
                "/data/a/t-0/1.log: index file missing",
            ),
            (log_finished(status="refused", reason="why"), "error", "/data/a/t-0: refused: why"),
            (log_finished(status="failed", reason="EIO"), "error", "/data/a/t-0: failed: EIO"),
            (LogDirOffline(log_dir=A, error="EIO"), "error", "/data/a: offline: EIO"),
            (
                LogDirHandedOver(log_dir=A, handoff="clean-shutdown", wrote_marker=False),
                "warning",
                "/data/a: no clean shutdown file, not all logs are recovered",
            ),
            (Remark(text="odd", level="warning"), "warning", "odd"),
            (Remark(text="odd", level="error", log_dir=A, partition="t-0"), "error", "/data/a/t-0: odd"),
        ],
    )
    def test_of_damage(self, event, level, expected):
        line = notice_of(event)
        assert (line.line, line.level) == (expected, level)

    def test_what_the_figures_tell_needs_none(self):
        assert notice_of(corruption()) is None  # preallocated zeros are found like damage
        assert notice_of(log_finished(status="truncated", truncated_bytes=1)) is None
        assert notice_of(Remark(text="x")) is None
        assert notice_of(LogDirHandedOver(log_dir=A, handoff="none", wrote_marker=False)) is None


class TestTerminal:
    def screen(self, *stream):
        """Return all that is written to a terminal of 120 columns, colours and cursor left out."""
        console = Console(
            file=io.StringIO(),
            width=120,
            height=30,
            force_terminal=True,
            color_system=None,
            legacy_windows=False,
        )
        gauges = Gauges()
        with Terminal(console.file, gauges, console=console) as terminal:
            notifier = Notifier([gauges, terminal])
            for event in stream:
                notifier(event)
        return console.file.getvalue()

    def test_last_picture_stays_on_the_screen(self):
        written = self.screen(*one_of_each())
        assert "Recovered in part: 2 log dirs in 1s" in written
        assert written.rstrip().endswith("\x1b[?25h"), "the cursor is shown again"

    def test_notices_are_printed_above(self):
        written = self.screen(*one_of_each())
        assert "ERROR /data/a/t-1: refused: no" in written
        assert "WARN  /data/a/t-0: loses offsets 20 to 47" in written
        assert written.index("ERROR /data/a/t-1") < written.index("Recovered in part")

    def test_a_notice_is_one_line_where_a_report_has_it_whole(self):
        long = Remark(text=f"{'long ' * 40}end", level="warning", **at(0))
        cropped = self.screen(run_started(), long)
        assert cropped.count("long") == 22
        assert "end" not in cropped
        whole = self.screen(run_started(command="watch"), long)
        assert "end" in whole

    def test_a_flood_of_warnings_is_counted_not_printed(self):
        written = self.screen(run_started(), dir_started(), *(damaged(f"t-{i}") for i in range(500)))
        assert written.count("WARN ") == NOTICE_LIMIT
        assert written.count("More warnings follow") == 1

    def test_warnings_do_not_use_up_the_room_of_errors(self):
        stream = [damaged(f"t-{i}") for i in range(50)] + [log_finished(status="refused", reason="why")]
        assert "ERROR /data/a/t-0: refused: why" in self.screen(run_started(), *stream)

    def test_draws_on_its_own_timer(self):
        console = Console(file=io.StringIO(), width=120, height=30, force_terminal=True, color_system=None)
        gauges = Gauges()
        with Terminal(console.file, gauges, console=console):
            gauges(run_started())
            wait_until(lambda: "Listing 2 log dirs" in console.file.getvalue(), pause_seconds=0.02)

    def test_what_follows_in_a_pipe_has_a_line_of_its_own(self):
        console = Console(file=io.StringIO(), width=120, height=30)
        gauges = Gauges()
        with Terminal(console.file, gauges, console=console):
            gauges(run_started())
        assert console.file.getvalue().endswith("\n")

    def test_events_do_not_draw(self):
        """10,000 partitions in seconds: an event must not cost a redraw."""
        console = Console(file=io.StringIO(), width=120, height=30, force_terminal=True, color_system=None)
        gauges = Gauges()
        with Terminal(console.file, gauges, console=console) as terminal:
            notifier = Notifier([gauges, terminal])
            notifier(run_started())
            started_s = time.perf_counter()
            for i in range(20_000):
                notifier(log_started(f"t-{i}"))
                notifier(log_finished(f"t-{i}"))
            elapsed_s = time.perf_counter() - started_s
        assert console.file.getvalue().count("log dir ") < 10 * (elapsed_s + 1)

    def test_a_terminal_that_goes_away_is_switched_off_and_the_run_goes_on(self, caplog):
        class Gone(io.StringIO):
            def write(self, text):
                raise OSError(5, "Input/output error")

        console = Console(file=io.StringIO(), width=120, height=30, force_terminal=True, color_system=None)
        gauges, seen = Gauges(), []
        with Terminal(console.file, gauges, console=console) as terminal:
            console.file = Gone()
            notifier = Notifier([gauges, terminal, seen.append])
            notifier(run_started())
            deadline = time.monotonic() + LONGEST_WAIT_SECONDS
            while terminal in notifier.observers:
                assert time.monotonic() < deadline
                notifier(Remark(text="x"))
                time.sleep(0.02)
            count = len(seen)
            notifier(dir_started())
            assert len(seen) == count + 1
            console.file = io.StringIO()
        assert "Input/output error" in caplog.text


def read_to_the_end(controller: int) -> str:
    """What was written to a terminal that is closed by now.

    The kernel hands it over in the pieces in which it was written; Linux ends it with EIO.
    """
    written = b""
    with open(controller, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        while piece := stream.read(65536):
            written += piece
    return written.decode("utf-8")


class TestOpenObservers:
    def test_none_without_metrics_is_nothing_at_all(self):
        with open_observers(ObserverOptions(progress="none")) as observers:
            assert observers == []

    def test_auto_is_lines_where_there_is_no_terminal(self):
        out = io.StringIO()
        with open_observers(stream=out) as observers:
            for event in one_of_each():
                Notifier(observers)(event)
        assert "INFO Loading logs from log dirs ArrayBuffer(/data/a, /data/b)" in out.getvalue()

    @pytest.mark.parametrize(("term", "is_bar"), [("xterm-256color", True), ("dumb", False)])
    def test_auto_draws_on_a_terminal_that_can(self, monkeypatch, term, is_bar):
        monkeypatch.setenv("TERM", term)
        controller, terminal = pty.openpty()
        try:
            with (
                open(terminal, "w", encoding="utf-8", closefd=False) as stream,
                open_observers(stream=stream) as observers,
            ):
                notifier = Notifier(observers)
                notifier(run_started())
                notifier(RunFinished(exit_code=0))
        finally:
            os.close(terminal)
        written = read_to_the_end(controller)
        assert ("\x1b[?25l" in written) is is_bar
        assert ("Recovered 2 log dirs" in written) is is_bar
        assert ("Loading logs" in written) is not is_bar

    def test_json(self):
        out = io.StringIO()
        with open_observers(ObserverOptions(progress="json"), stream=out) as observers:
            notifier = Notifier(observers)
            for event in one_of_each():
                notifier(event)
        printed = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [printed[i]["event"] for i in (0, -2, -1)] == ["RunStarted", "Progress", "RunFinished"]
        assert printed[-2]["exit_code"] == 4, "the gauges see each event before who reads them"

    @pytest.mark.parametrize("progress", ["log", "json", "none"])
    def test_metrics_are_served_when_the_context_opens(self, progress):
        out = io.StringIO()
        with open_observers(ObserverOptions(progress=progress, metrics_port=0), out) as observers:
            notifier = Notifier(observers)
            for event in one_of_each()[:3]:
                notifier(event)
            if progress != "none":
                url = out.getvalue().partition("http://")[2].partition("/metrics")[0]
                with urllib.request.urlopen(
                    f"http://{url}/metrics", timeout=LONGEST_WAIT_SECONDS
                ) as response:
                    assert b"kafka_log_logmanager_remaininglogstorecover" in response.read()
        assert ("Serving metrics at http://127.0.0.1:" in out.getvalue()) is (progress != "none")

    def test_unknown_progress_is_a_usage_error(self):
        with pytest.raises(UsageError, match="--progress fancy: expected one of auto, bar, log, json, none"):
            open_observers(ObserverOptions(progress="fancy")).__enter__()

    def test_a_switched_off_observer_is_told_where_the_rest_is(self):
        def breaks(event):
            raise RuntimeError("oops")

        out = io.StringIO()
        with open_observers(ObserverOptions(progress="json"), stream=out) as observers:
            Notifier([*observers, breaks])(run_started())
            handlers = logging.getLogger("recovery").handlers[:]
        assert logging.getLogger("recovery").handlers != handlers
        message = json.loads(out.getvalue().splitlines()[-1])
        assert message["level"] == "warning"
        assert "breaks" in message["text"]
        assert "oops" in message["text"]
