"""`watch` beside brokers that recover: what it says of them by their log, and what their own gauges say."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import recovery
from benchmarks.generate import TOPIC, Shape, generate
from recovery.follow.report import WatchReport
from recovery.stop_request import StopRequest
from recovery.watch.events import BrokerRestarted, Event, PartitionFinished, Remark, SegmentRecovered
from recovery.watch.gauges import Gauges
from tests.brokers import RELEASES, Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.brokers.sample_brokers import OTHER_VERSIONS
from tests.brokers.watched_broker import share, watch_recovery
from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.runs.command import RECOVERY

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.long]

SHAPE = Shape(bytes_total=200 << 20, batch_bytes=170, partitions=12, segments=4)
THREADS = 2


@pytest.fixture(scope="module", params=(RELEASES["4.3"], *OTHER_VERSIONS))
def crashed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A version, and the log dirs d1 and d2 of a killed broker of it."""
    root = tmp_path_factory.mktemp("watched") / "data"
    generate(root, SHAPE, version=request.param)
    return request.param, root


@pytest.fixture
def newest(tmp_path_factory: pytest.TempPathFactory, ram_path: Path) -> Iterator[Broker]:
    """A broker of 4.3 whose log dirs have not been recovered, not started yet."""
    root = ram_path / "data"
    generate(root, SHAPE)
    with Broker(
        [root / "d1", root / "d2"], work_dir=ram_path / "work", properties=QUIET_PROPERTIES
    ) as broker:
        yield broker


def copy_of(root: Path, into: Path) -> list[Path]:
    shutil.copytree(root, into)
    return [into / "d1", into / "d2"]


class TestBesideItsGauges:
    def test_with_the_log_dirs(self, crashed: tuple[str, Path], ram_path: Path) -> None:
        version, root = crashed
        log_dirs = copy_of(root, ram_path / "data")
        sizes = {
            str(log_dir): [path.stat().st_size for path in log_dir.glob(f"{TOPIC}-*/*.log")]
            for log_dir in log_dirs
        }
        run = watch_recovery(log_dirs, version, work_dir=ram_path / "work", threads=THREADS)
        assert (run.report.exit_code, run.report.outcome) == (0, "over")
        for values in run.report.values.log_dirs:
            of_dir = sizes[values.log_dir]
            assert (values.bytes_total, values.recovered_bytes) == (sum(of_dir), sum(of_dir))
            assert (values.segment_count, values.recovered_segments) == (len(of_dir), len(of_dir))
            assert values.finished_logs == values.log_count == SHAPE.partitions // 2
        assert share(run.equal_logs()) > 0.8  # the rest is a matter of when which thread of this machine runs
        assert share([off <= 1 for off in run.segments_off()]) > 0.8

    def test_by_the_log_alone(self, crashed: tuple[str, Path], ram_path: Path) -> None:
        version, root = crashed
        run = watch_recovery(
            copy_of(root, ram_path / "data"),
            version,
            work_dir=ram_path / "work",
            threads=THREADS,
            with_dirs=False,
        )
        assert run.report.exit_code == 0
        for values in run.report.values.log_dirs:
            assert values.finished_logs == values.log_count == SHAPE.partitions // 2
            assert values.recovered_segments == values.log_count * SHAPE.segments
        assert share(run.equal_logs()) > 0.8


class Watching:
    """`watch` in a thread."""

    def __init__(self, source: Path, **options: object) -> None:
        self.events: list[Event] = []
        self.gauges = Gauges()
        self.stop = StopRequest()
        self.report: WatchReport | None = None
        self._thread = threading.Thread(target=self._watch, args=(str(source), options))
        self._thread.start()

    def _watch(self, source: str, options: dict[str, object]) -> None:
        self.report = recovery.watch_broker(
            source, observers=[self.gauges, self.events.append], stop=self.stop, **options
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        wait_until(lambda: is_so() or not self._thread.is_alive(), pause_seconds=0.01)

    def wait_for_logs(self, count: int) -> None:
        self.wait_until(lambda: sum(one.finished_logs for one in self.gauges.values().log_dirs) >= count)

    def ended(self) -> WatchReport:
        self._thread.join(LONGEST_WAIT_SECONDS)
        assert self.report is not None
        return self.report


def test_a_broker_that_is_killed_is_seen_by_its_locks(newest: Broker) -> None:
    newest.launch()
    watch = Watching(newest.log_path, log_dirs=[str(path) for path in newest.log_dirs])
    watch.wait_for_logs(2)
    newest.kill()
    report = watch.ended()
    assert (report.exit_code, report.outcome) == (4, "incomplete")
    assert "nobody holds the locks of its log dirs" in watch.events[-2].text


def test_a_broker_that_is_killed_ends_the_pipe(newest: Broker) -> None:
    newest.launch()
    tail = subprocess.Popen(
        ["tail", "-n", "+1", "-f", f"--pid={newest.pid}", newest.log_path], stdout=subprocess.PIPE
    )
    watch = subprocess.Popen(
        [*RECOVERY, "watch", "-", "--progress", "log"], stdin=tail.stdout, stderr=subprocess.PIPE, text=True
    )
    while "Completed load" not in newest.log:  # not what the watch says: it may lag behind a fast broker
        time.sleep(0.01)
    newest.kill()
    assert "ended before the recovery was over" in watch.communicate(timeout=LONGEST_WAIT_SECONDS)[1]
    tail.wait()
    tail.stdout.close()
    assert watch.returncode == 4


def test_a_broker_that_is_started_again_after_it_was_killed(newest: Broker) -> None:
    """Its log is appended to, as that of a service is; what the first start has recovered does not count."""
    newest.launch()
    server_log = newest.log_path.parent / "server.log"
    server_log.write_bytes(b"")
    watch = Watching(server_log)
    pump = _Pump(newest, server_log)
    watch.wait_for_logs(2)
    newest.kill()
    pump.stop()
    newest.launch()
    pump = _Pump(newest, server_log)
    report = watch.ended()
    pump.stop()
    assert (report.exit_code, report.restarts) == (0, 1)
    assert (
        sum("started again before" in one.text for one in watch.events if isinstance(one, BrokerRestarted))
        == 1
    )
    assert sum(one.finished_logs for one in report.values.log_dirs) == SHAPE.partitions


class _Pump:
    """Appends what a broker prints to a log that outlives it."""

    def __init__(self, broker: Broker, log: Path) -> None:
        self._source = broker.log_path.open("rb")
        self._log = log
        self._flag = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._log.open("ab", buffering=0) as log:
            while not self._flag.is_set():
                log.write(self._source.read())
                time.sleep(0.01)
            log.write(self._source.read())

    def stop(self) -> None:
        self._flag.set()
        self._thread.join()
        self._source.close()


def test_a_clean_start_and_a_shutdown(newest: Broker) -> None:
    newest.start()
    newest.stop()
    first = recovery.watch_broker(str(newest.log_path))
    assert first.exit_code == 0
    newest.start()
    newest.stop()
    clean = recovery.watch_broker(str(newest.log_path), log_dirs=[str(path) for path in newest.log_dirs])
    assert clean.exit_code == 0
    assert [one.had_clean_shutdown for one in clean.values.log_dirs] == [True, True]
    assert sum(one.bytes_total for one in clean.values.log_dirs) == 0


def test_damage_is_told(newest: Broker) -> None:
    log = sorted(newest.log_dirs[0].glob(f"{TOPIC}-*/*.log"))[0]
    sizes = [path.stat().st_size for path in sorted(log.parent.glob("*.log"))]
    with log.open("r+b") as file:
        file.seek(sizes[0] // 2)
        file.write(bytes(300))
    newest.start()
    events: list[Event] = []
    report = recovery.watch_broker(
        str(newest.log_path), log_dirs=[str(path) for path in newest.log_dirs], observers=[events.append]
    )
    assert report.exit_code == 0
    (cut,) = [one for one in events if isinstance(one, PartitionFinished) and one.status == "truncated"]
    assert cut.partition == log.parent.name
    assert any("Corruption found in segment 0" in one.text for one in events if isinstance(one, Remark))
    recovered = [
        one for one in events if isinstance(one, SegmentRecovered) and one.partition == cut.partition
    ]
    assert [one.remaining_segments for one in recovered] == [0]
