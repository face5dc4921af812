"""`watch` from its source to its exit code: a log on disk or through a pipe, whole, growing, or of a dead broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import recovery
from recovery.errors import UsageError
from recovery.follow import api, broker_log
from recovery.follow import source as source_module
from recovery.follow.report import WatchReport
from recovery.stop_request import StopRequest
from recovery.watch.events import BrokerRestarted, Event, Remark, RunFinished, RunStarted, SourceLost
from recovery.watch.gauges import Gauges
from segfmt.filenames import LOCK_FILE
from tests.logs.samples import Sample, unpack
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.recovery.follow.test_broker_load import END, began, listed, loaded, segment
from tests.runs.command import RECOVERY, run

STARTS = "Registered `kafka:type=kafka.Log4jController` MBean"
BEGINNING = (STARTS, began("/d"), listed("/d"), segment("/d", "t-0", 0), loaded("/d", "t-0", 1))
WHOLE = (*BEGINNING, *(loaded("/d", f"t-{number - 1}", number) for number in (2, 3, 4)), END)
WRITTEN_S = datetime(2026, 11, 22, 15, 0, 0, tzinfo=UTC).timestamp()
"""When a log was written to, hours west of the zone of its stamps."""
HEADER = "[2026-11-22 10:00:{:02},000] INFO {} (kafka.log.LogManager)\n"


def log_text(lines: Sequence[str], seconds: int = 0) -> str:
    return "".join(HEADER.format(seconds + number, line) for number, line in enumerate(lines))


class Watching:
    """A watch in a thread of its own, and what it has told."""

    def __init__(self, source: str, **options: object) -> None:
        self.events: list[Event] = []
        self.gauges = Gauges()
        self.stop = StopRequest()
        self.report: WatchReport | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, args=(source, options))
        self._thread.start()

    def _watch(self, source: str, options: dict[str, object]) -> None:
        try:
            self.report = recovery.watch_broker(
                source,
                observers=[self.gauges, self.events.append],
                stop=self.stop,
                **({"interval_s": 0.05} | options),
            )
        except Exception as error:
            self.error = error

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        wait_until(lambda: is_so() or not self._thread.is_alive(), lambda: self.events, pause_seconds=0.01)
        assert is_so(), self.error

    def ended(self) -> WatchReport:
        self._thread.join(LONGEST_WAIT_SECONDS)
        assert not self._thread.is_alive(), self.events
        assert self.report is not None, self.error
        return self.report


@contextmanager
def watching(source: object, **options: object) -> Iterator[Watching]:
    found = Watching(str(source), **options)
    try:
        yield found
    finally:
        found.stop.request(signal.SIGTERM)
        found._thread.join(LONGEST_WAIT_SECONDS)


def of(kind: type, events: Sequence[Event]) -> list:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


class TestWholeLogs:
    def test_a_load_that_is_over(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text(WHOLE))
        done = run("watch", log, "--progress", "log", "--format", "json")
        assert (done.exit_code, done.report["outcome"], done.report["restarts"]) == (0, "over", 0)
        (log_dir,) = done.report["logDirs"]
        assert (log_dir["logDir"], log_dir["logs"], log_dir["finishedLogs"], log_dir["finished"]) == (
            "/d",
            4,
            4,
            True,
        )
        assert done.report["durationMs"] == 7000
        assert "Completed load of Log(dir=/d/t-3" in done.stderr

    def test_a_recover_that_left_something_is_not_over(self, sample: Sample, tmp_path: Path) -> None:
        (sample.log_dirs[0] / "backup").mkdir()
        log, metrics = tmp_path / "recover.log", tmp_path / "m.prom"
        recovered = run("recover", "-c", sample.config, "--now", str(sample.now_ms), "--progress", "log")
        log.write_text(recovered.stderr)
        done = run("watch", log, "--progress", "log", "--format", "json", "--metrics-textfile", metrics)
        assert (recovered.exit_code, done.exit_code, done.report["outcome"]) == (4, 4, "incomplete")
        assert [log_dir["refusedLogs"] for log_dir in done.report["logDirs"]] == [1, 0]
        assert "kafka_log_recovery_exit_code 4" in metrics.read_text()
        (told,) = (line for line in recovered.stderr.splitlines() if "Error while loading logs" in line)
        (again,) = (line for line in done.stderr.splitlines() if "Error while loading logs" in line)
        assert again.partition(" status=")[2] == told.partition(" status=")[2]

    def test_a_recover_that_cut_ends_as_that_one(self, sample: Sample, tmp_path: Path) -> None:
        torn = max(next(sample.root.glob("d?/late-1")).glob("*.log"))
        os.truncate(torn, torn.stat().st_size - 3)
        log = tmp_path / "recover.log"
        recovered = run("recover", "-c", sample.config, "--now", str(sample.now_ms), "--progress", "log")
        log.write_text(recovered.stderr)
        done = run("watch", log, "--format", "json")
        assert (recovered.exit_code, done.exit_code, done.report["outcome"]) == (2, 2, "over")

    def test_once_shows_no_history_unless_it_is_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "server.log").write_text(log_text(BEGINNING))
        done = run("watch", tmp_path / "server.log", "--once")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "recovering" in done.stdout
        done = run("watch", tmp_path / "server.log", "--once", "--progress", "log")
        assert "t-0" in done.stderr
        done = run("watch", tmp_path / "server.log", "--once", "--format", "json")
        (log_dir,) = json.loads(done.stdout)["logDirs"]
        assert (log_dir["segments"], log_dir["bytes"], log_dir["remainingBytes"]) == (None, None, None)

    @pytest.mark.parametrize("text", ["", "nothing\n" * 1000, "[LogLoader partition=t-0, dir=/d] Rolled\n"])
    def test_a_pipe_with_nothing_about_a_load(self, text: str) -> None:
        done = run("watch", "-", input=text)
        assert done.exit_code == 1
        assert "standard input: nothing in it about a broker that loads its logs. Remedy: " in done.stderr

    def test_a_pipe_that_ends_before_the_load(self) -> None:
        done = run("watch", "-", "--progress", "log", input=log_text(BEGINNING))
        assert done.exit_code == 4
        assert "ERROR standard input has ended before the recovery was over" in done.stderr
        assert "1 of 4 logs" in done.stdout
        assert "standard input: ended, but not all is recovered after" in done.stdout

    def test_the_last_line_may_have_no_end(self) -> None:
        assert run("watch", "-", "--progress", "none", input=log_text(WHOLE).rstrip("\n")).exit_code == 0

    def test_the_last_of_many_starts_counts(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING) * 3 + log_text(WHOLE) + log_text(BEGINNING))
        done = run("watch", log, "--once", "--progress", "log", "--format", "json")
        assert (done.exit_code, done.report["outcome"], done.report["restarts"]) == (0, "running", 0)
        assert done.report["logDirs"][0]["finishedLogs"] == 1
        assert "the log holds 5 starts of the broker: the last one counts" in done.stderr
        assert run("watch", "-", "--progress", "none", input=log.read_text()).exit_code == 4

    def test_once_says_that_there_is_nothing(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text("nothing\n")
        done = run("watch", log, "--once", "--progress", "none")
        assert done.exit_code == 1
        assert f"{log}: nothing in it about a broker that loads its logs. Remedy: " in done.stderr

    @pytest.mark.parametrize("arguments", [("--interval", "0"), ("--interval", "x"), ("--once", "--forever")])
    def test_wrong_options(self, arguments: tuple[str, ...]) -> None:
        done = run("watch", "-", *arguments, input="")
        assert done.exit_code == 1
        assert "Remedy: " in done.stderr or "expected" in done.stderr

    def test_no_such_file(self, tmp_path: Path) -> None:
        done = run("watch", tmp_path / "none.log")
        assert (done.exit_code, done.stdout) == (1, "")
        assert "none.log: No such file or directory. Remedy: " in done.stderr

    def test_names_cannot_forge_lines(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text([began("/d\x1b[2J"), listed("/d\x1b[2J")]))
        done = run("watch", log, "--once", "--progress", "log")
        assert "\x1b" not in done.stdout + done.stderr

    def test_the_library_says_what_is_wrong(self) -> None:
        with pytest.raises(UsageError, match=r"--stall-seconds 0"):
            recovery.watch_broker("-", stall_seconds=0)


class TestTimes:
    def test_a_recovery_that_began_before_it_was_watched_began_then(self, tmp_path: Path) -> None:
        """The broker prints the time of another zone; the file was written to just now."""
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING, seconds=20))
        os.utime(log, (WRITTEN_S, WRITTEN_S))
        with watching(log) as watch:
            watch.wait_until(lambda: bool(of(RunStarted, watch.events)))
            (start,) = of(RunStarted, watch.events)
            assert WRITTEN_S * 1000 - start.now_ms == pytest.approx(3000, abs=2)
            least_ms = time.time() * 1000 - start.now_ms
            elapsed_ms = (time.monotonic() - start.monotonic_s) * 1000
            most_ms = time.time() * 1000 - start.now_ms
            assert least_ms - 50 <= elapsed_ms <= most_ms + 50
            watch.wait_until(lambda: watch.gauges.values().log_dirs[0].finished_logs == 1)

    def test_a_pipe_from_a_machine_with_utc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An hour east of UTC, a stamp of a moment ago in UTC is not taken for one of an hour ago."""
        now = int(time.time())
        stamps = [datetime.fromtimestamp(now - 20 + 2 * i, tz=UTC).strftime("%F %T,000") for i in range(5)]
        text = "".join(f"[{stamp}] INFO {line}\n" for stamp, line in zip(stamps, BEGINNING, strict=True))
        report = run(
            "watch",
            "-",
            "--once",
            "--format",
            "json",
            "--progress",
            "none",
            input=text,
            env={**os.environ, "TZ": "UTC-1"},
        ).report
        assert report["startedMs"] == (now - 18) * 1000

    def test_times_never_go_back(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text([began("/d"), listed("/d")], 30) + log_text([segment("/d", "t-0", 0)]))
        with watching(log) as watch:
            watch.wait_until(lambda: len(watch.events) > 3)
            times = [event.now_ms for event in watch.events]
            assert times == sorted(times)


class TestGrowingLogs:
    def test_followed_over_rotation_until_it_is_over(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text(WHOLE[:4]))
        with watching(log) as watch:
            watch.wait_until(lambda: watch.gauges.values().state == "recovering")
            assert watch.gauges.values().log_dirs[0].remaining_logs == 4
            with log.open("a") as file:
                log.rename(tmp_path / "server.log.1")
                file.write(log_text(WHOLE[4:6]))
            watch.wait_until(lambda: watch.gauges.values().log_dirs[0].remaining_logs == 2)
            log.write_text(log_text(WHOLE[6:7]))
            watch.wait_until(lambda: watch.gauges.values().log_dirs[0].remaining_logs == 1)
            assert watch.report is None
            with log.open("a") as file:
                file.write(log_text(WHOLE[7:]))
            assert watch.ended().exit_code == 0

    def test_a_restart_is_told(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING))
        with watching(log) as watch:
            watch.wait_until(lambda: bool(watch.gauges.values().log_dirs))
            with log.open("a") as file:
                file.write(log_text(WHOLE))
            report = watch.ended()
        assert (report.exit_code, report.restarts) == (0, 1)
        (restart,) = of(BrokerRestarted, watch.events)
        assert "started again before its recovery was over" in restart.text

    def test_a_log_that_is_never_silent_is_told_as_it_is_written(self, tmp_path: Path) -> None:
        """A broker with many small segments has no pause between its lines."""
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING))
        deadline_s = time.monotonic() + LONGEST_WAIT_SECONDS
        with watching(log, forever=True) as watch, log.open("a") as file:
            while not watch.gauges.values().log_dirs:
                assert time.monotonic() < deadline_s, "nothing is told while lines come"
                file.write(log_text(["Nothing that matters (kafka.server.BrokerServer)"]))
                file.flush()
                time.sleep(0.02)

    def test_a_broker_that_was_started_again_need_not_hurry(self, tmp_path: Path) -> None:
        """What the old process had not done in time is no reason to kill the new one, which does not load logs yet."""
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING))
        with watching(log, forever=True) as watch:
            watch.wait_until(lambda: watch.gauges.values().state == "recovering")
            with log.open("a") as file:
                file.write(log_text(["Registered `kafka:type=kafka.Log4jController` MBean"]))
            watch.wait_until(lambda: bool(of(BrokerRestarted, watch.events)))
            values = watch.gauges.values(time.monotonic() + 1000)
            assert (values.state, values.seconds_without_progress, values.log_dirs) == ("waiting", None, ())

    def test_forever_goes_on_to_the_next_start(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        with watching(log, forever=True) as watch:
            time.sleep(0.2)
            assert watch.gauges.values().state == "waiting"
            log.write_text(log_text(WHOLE))
            watch.wait_until(lambda: watch.gauges.values().state == "complete")
            with log.open("a") as file:
                file.write(log_text(BEGINNING))
            watch.wait_until(lambda: watch.gauges.values().state == "recovering")
            assert watch.gauges.values().exit_code is None
            with log.open("a") as file:
                file.write(log_text(["[BrokerServer id=1] shut down completed (kafka.server.BrokerServer)"]))
            watch.wait_until(lambda: watch.gauges.values().state == "incomplete")
            watch.stop.request(signal.SIGTERM)
            assert watch.ended().exit_code == 143

    def test_a_broker_that_shuts_down(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text(
            log_text([*BEGINNING, "[BrokerServer id=1] shut down completed (kafka.server.BrokerServer)"])
        )
        with watching(log) as watch:
            assert watch.ended().exit_code == 4
        assert "the broker has ended: [BrokerServer id=1]" in of(Remark, watch.events)[-1].text

    def test_a_file_that_is_gone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recovery.follow.log_feed._MISSING_S", 0.1)
        monkeypatch.setattr("recovery.follow.api.LOST_S", LONGEST_WAIT_SECONDS)
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING))
        with watching(log) as watch:
            watch.wait_until(lambda: bool(watch.gauges.values().log_dirs))
            log.unlink()
            watch.wait_until(lambda: watch.gauges.values().is_source_gone)
            log.write_text("")
            watch.wait_until(lambda: not watch.gauges.values().is_source_gone)
            monkeypatch.setattr("recovery.follow.api.LOST_S", 0.5)
            log.unlink()
            assert watch.ended().exit_code == 4
        assert len(of(SourceLost, watch.events)) == 2
        assert of(RunFinished, watch.events)[-1].exit_code == 4
        assert source_module.LOST_S == 30

    def test_a_log_of_something_else_is_waited_for_with_a_word(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api, "_SILENT_S", 0.2)
        log = tmp_path / "other.log"
        log.write_text("nothing here is of a broker\n" * 9)
        with watching(log, interval_s=0.05) as watch:
            watch.wait_until(lambda: bool(of(Remark, watch.events)))
            time.sleep(0.3)
            (remark,) = of(Remark, watch.events)
            assert "nothing in it yet about a broker that loads its logs" in remark.text
            log.write_text(log_text(WHOLE))
            watch.wait_until(lambda: watch.report is not None)
        assert watch.report is not None
        assert watch.report.exit_code == 0

    def test_nothing_moves(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        stamp = datetime.fromtimestamp(time.time() - 100, tz=UTC).strftime("%FT%TZ")
        log.write_text("".join(f"{stamp} {line}\n" for line in BEGINNING))
        with watching(log, stall_seconds=60) as watch:
            watch.wait_until(
                lambda: any("no progress for 60 seconds" in one.text for one in of(Remark, watch.events))
            )
        with watching(log, stall_seconds=600) as watch:
            watch.wait_until(lambda: bool(watch.gauges.values().log_dirs))
            time.sleep(0.3)
            assert of(Remark, watch.events) == []

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_signals(self, tmp_path: Path, number: int, code: int) -> None:
        log = tmp_path / "server.log"
        log.write_text(log_text(BEGINNING))
        process = subprocess.Popen(
            [*RECOVERY, "watch", log, "--format", "json", "--progress", "log"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while "Completed load" not in process.stderr.readline():
            pass
        process.send_signal(number)
        out, _ = process.communicate(timeout=LONGEST_WAIT_SECONDS)
        assert (process.returncode, json.loads(out)["exitCode"], json.loads(out)["outcome"]) == (
            code,
            code,
            "interrupted",
        )


class TestLocks:
    """Whether the broker lives is seen by the locks of its log dirs, where these are known."""

    @pytest.fixture
    def held(self, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
        """A process that holds the lock of tmp_path/d, as a broker does."""
        (tmp_path / "d").mkdir()
        program = textwrap.dedent(f"""
            import fcntl, sys
            file = open({str(tmp_path / "d" / LOCK_FILE)!r}, "w")
            fcntl.lockf(file, fcntl.LOCK_EX)
            print("held", flush=True)
            sys.stdin.read()
        """)
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()
        process.communicate()

    def test_a_broker_that_is_killed(
        self, tmp_path: Path, held: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_log, "FREE_S", 0.3)
        log = tmp_path / "server.log"
        log_dir = tmp_path / "d"
        log.write_text(log_text([began(log_dir), listed(log_dir)]))
        with watching(log, log_dirs=[str(log_dir)]) as watch:
            watch.wait_until(lambda: bool(watch.gauges.values().log_dirs))
            time.sleep(0.6)
            assert watch.report is None
            held.kill()
            assert watch.ended().exit_code == 4
        assert "nobody holds the locks" in of(Remark, watch.events)[-1].text
        assert sorted(os.listdir(log_dir)) == [LOCK_FILE]

    def test_log_dirs_of_another_broker_do_not_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_log, "FREE_S", 0.0)
        log, other = tmp_path / "server.log", tmp_path / "other"
        other.mkdir()
        log.write_text(log_text([began("/d"), listed("/d")]))
        with watching(log, log_dirs=[str(other)]) as watch:
            watch.wait_until(
                lambda: any("is of a broker on /d" in one.text for one in of(Remark, watch.events))
            )
            time.sleep(0.3)
            assert watch.report is None
            log.write_text(log_text([began("/d"), listed("/d"), *WHOLE]))
            assert watch.ended().exit_code == 0

    def test_log_dirs_by_other_names_tell_once_they_were_held(
        self, tmp_path: Path, held: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As those of a broker in a container."""
        monkeypatch.setattr(broker_log, "FREE_S", 0.3)
        log = tmp_path / "server.log"
        log.write_text(log_text([began("/d"), listed("/d")]))
        with watching(log, log_dirs=[str(tmp_path / "d")]) as watch:
            watch.wait_until(lambda: bool(watch.gauges.values().log_dirs))
            time.sleep(0.6)
            held.kill()
            assert watch.ended().exit_code == 4
        assert "nobody holds the locks" in of(Remark, watch.events)[-1].text

    def test_a_broker_that_has_loaded_its_logs_may_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_log, "FREE_S", 0.0)
        log = tmp_path / "server.log"
        (tmp_path / "d").mkdir()
        log.write_text(log_text(WHOLE))
        with watching(log, log_dirs=[str(tmp_path / "d")]) as watch:
            assert watch.ended().exit_code == 0


@pytest.mark.long
def test_a_long_log_in_bounded_memory_and_the_last_start_in_it(tmp_path: Path) -> None:
    """200 MB of a broker's days, with a start of 20,000 logs in the middle and one at the end."""
    log = tmp_path / "server.log"
    day = (
        log_text(["[UnifiedLog partition=t-0, dir=/d] Rolled new log segment at offset 20 in 3 ms."] * 59)
        * 5000
    )
    start = log_text([began("/d"), listed("/d", 20_000)])
    start += "".join(log_text([loaded("/d", f"t-{number}", number + 1, 20_000)]) for number in range(20_000))
    with log.open("w") as file:
        for _ in range(2):
            for _ in range(3):
                file.write(day)
            file.write(start)
        file.write(log_text(["Loaded 20000 logs in 93ms"]))
    # Not getrusage: its maximum begins with that of the process that has started this one.
    program = "import sys; from recovery.cli.main import main; code = main(sys.argv[1:]); "
    program += "status = open('/proc/self/status').read(); "
    program += "print(status.partition('VmHWM:')[2].split()[0], file=sys.stderr); sys.exit(code)"
    done = run("watch", log, "--progress", "none", command=(sys.executable, "-c", program))
    assert (done.exit_code, log.stat().st_size > 150 << 20) == (0, True)
    assert "20,000 of 20,000 logs" in done.stdout
    assert int(done.stderr) < 200 << 10  # KiB
