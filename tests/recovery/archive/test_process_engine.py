"""An archive checked in this process: resumed after a kill or a signal, its progress, and how little is in memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.scan_rows import HEAD_OFFSET, ScanRow
from recovery.archive.check.scanned import ScanOptions
from recovery.archive.check.unnamed_file import UnnamedFile
from recovery.archive.engine import verdicts
from recovery.archive.engine.engine import RunPlan
from recovery.archive.engine.process import ProcessEngine
from recovery.archive.engine.row_spool import RowSpool
from recovery.archive.engine.verdicts import LowestRows
from recovery.cli.main import main
from recovery.errors import InterruptedRecoveryError
from recovery.spark import archive
from recovery.stop_request import StopRequest
from recovery.watch.events import BytesScanned, Event, Observer
from recovery.watch.gauges import Gauges
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import made_copies, write_archive
from tests.runs.command import run

TASK_BYTES = 4 << 20
"""A dozen of the sample's segments, so a run over it has many tasks."""
_PAUSED = """
import sys, time
from recovery.archive.check.options import CheckOptions
from recovery.spark import archive
from recovery.watch.events import BytesScanned

def pause(event):
    if isinstance(event, BytesScanned):
        print("paused", flush=True)
        time.sleep(600)

options = CheckOptions(url=sys.argv[1], output=sys.argv[2], cores=1)
archive.check(options, engine="process", observers=[pause])
"""


def checked(
    url: Path, output: Path | None = None, observer: Observer | None = None, stop: StopRequest | None = None
) -> ArchiveReport:
    options = CheckOptions(
        url=str(url), output=None if output is None else str(output), cores=2, task_bytes=TASK_BYTES
    )
    observers = () if observer is None else (observer,)
    return archive.check(options, engine="process", observers=observers, stop=stop)


def test_a_killed_run_costs_the_tasks_in_hand(stored_archive: TieredArchive, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _PAUSED, str(stored_archive.path), str(tmp_path / "output")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "paused\n"
        process.kill()
    resumed = checked(stored_archive.path, tmp_path / "output")
    assert 0 < resumed.known_segments < resumed.summary.segments
    fresh = checked(stored_archive.path)
    assert (resumed.summary, resumed.objects, resumed.noted) == (fresh.summary, fresh.objects, fresh.noted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_it_and_the_next_run_resumes(
    stored_archive: TieredArchive, tmp_path: Path, number: signal.Signals
) -> None:
    stop = StopRequest()

    def stop_soon(event: Event) -> None:
        if isinstance(event, BytesScanned):
            stop.request(number)

    first = checked(stored_archive.path, tmp_path / "output", stop_soon, stop)
    assert first.exit_code == 128 + number
    assert first.to_text().startswith(f"INTERRUPTED by signal {int(number)}: nothing is judged yet")
    assert not (tmp_path / "output" / "history").exists()
    second = checked(stored_archive.path, tmp_path / "output")
    assert 0 < second.known_segments < second.summary.segments
    assert second.exit_code == 0


def test_a_signal_is_seen_between_two_segments(tmp_path: Path) -> None:
    """Not only between tasks: one may take a minute."""
    stop = StopRequest()
    stop.request(signal.SIGINT)
    with closing(ProcessEngine(plan_of(tmp_path), stop, cores=1)) as engine:
        rows = engine._noted([ScanRow("a/", 0, "", b"", 0, b"")])
        with pytest.raises(InterruptedRecoveryError):
            next(rows)


def test_gauges_fall_to_nothing(stored_archive: TieredArchive) -> None:
    gauges, seen = Gauges(), []

    def look(event: Event) -> None:
        gauges(event)
        if isinstance(event, BytesScanned):
            (watched,) = gauges.values().log_dirs
            seen.append((watched.remaining_logs or 0, watched.remaining_bytes))

    report = checked(stored_archive.path, observer=look)
    assert len(seen) >= 8
    assert seen == sorted(seen, reverse=True)
    values = gauges.values()
    assert (values.state, values.exit_code) == ("complete", report.exit_code)
    (watched,) = values.log_dirs
    assert watched.remaining_bytes == 0
    assert watched.finished_segments == watched.segment_count == report.summary.segments
    assert watched.scanned_bytes == watched.bytes_total


def test_jobs_wait_for_those_before_them(tmp_path: Path) -> None:
    """However many there are, only some are in memory."""
    asked: list[int] = []

    def jobs() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    with closing(ProcessEngine(plan_of(tmp_path), StopRequest(), cores=2)) as engine:
        results = engine._side_by_side(lambda number: number * 2, jobs())
        assert [next(results) for _ in range(10)] == list(range(0, 20, 2))
        assert len(asked) <= 10 + 2 * 2
        assert list(results) == list(range(20, 200, 2))


def test_rows_come_back_in_their_order(tmp_path: Path) -> None:
    rows = [
        ScanRow(prefix, offset, name, bytes([number]) * 16, number, b"x" * number)
        for number, (prefix, offset, name) in enumerate(
            [
                ("b/", 5, "z"),
                ("a/", 7, ""),
                ("b/", 5, "a"),
                ("b/", HEAD_OFFSET, ""),
                ("b/", 0, "q"),
                ("a/", 1, ""),
            ]
        )
    ]
    with RowSpool() as spool:
        for row in rows:
            spool.add(row)
        assert spool.prefixes() == ["a/", "b/"]
        for prefix in spool.prefixes():
            own = [row for row in rows if row.prefix == prefix]
            assert list(spool.rows_of(prefix)) == sorted(
                own, key=lambda row: (row.base_offset, row.id_or_file)
            )


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        UnnamedFile("what was listed waits") as kept,
        Path("/dev/full").open("r+b", buffering=0) as full,
        monkeypatch.context() as patched,
    ):
        patched.setattr(kept, "_file", full)
        with pytest.raises(
            OSError, match=r"No space left.*what was listed waits there; set TMPDIR to a folder with more"
        ):
            kept.append(b"a partition")


def test_a_report_has_the_lowest_keys_however_the_work_was_divided() -> None:
    keys = [f"{number * 7919 % 1000:04}" for number in range(1000)]
    lowest = LowestRows(10)
    for part in (keys[:3], keys[3:400], keys[400:]):
        one = LowestRows(10)
        for key in part:
            one.add([{"key": key}])
        lowest.add(one.rows(), total=one.total)
    assert [row["key"] for row in lowest.rows()] == sorted(keys)[:10]
    assert lowest.total == 1000


def test_objects_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MOST_OBJECTS", 2)
    archive = write_archive(tmp_path / "archive", "local-tiered", made_copies())
    for index in archive.root.rglob("*.index"):
        index.unlink()
    report = checked(archive.root)
    assert len(report.objects) == 2
    assert report.left_out == report.summary.damaged - 2 > 0


def test_the_command_line_needs_no_spark(stored_archive: TieredArchive, tmp_path: Path) -> None:
    """Nothing of pyspark is imported, no JVM is started, and standard error says nothing but what was asked for."""
    program = (
        "import sys; from recovery.cli.main import main; code = main(sys.argv[1:]); "
        "assert not any(name.startswith(('pyspark', 'py4j')) for name in sys.modules); sys.exit(code)"
    )
    done = run(
        "verify",
        stored_archive.path,
        *("--progress", "none", "--format", "json", "--output", tmp_path / "output"),
        command=(sys.executable, "-c", program, "archive"),
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["summary"]["segments"] == 206


def test_a_cluster_is_not_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "verify", str(tmp_path), "--engine", "process", "--master", "spark://h:1"]) == 1
    assert "--engine process does not go with --master, --remote" in capsys.readouterr().err


def plan_of(folder: Path) -> RunPlan:
    return RunPlan(options=ScanOptions(url=str(folder), layout="plain"), run=b"run", began_ms=0)


def test_settings_of_a_topic_that_is_not_there_are_named(stored_archive: TieredArchive) -> None:
    report = archive.verify(
        str(stored_archive.path), topics=["plain"], topic_configs={"plane": {"cleanup.policy": "compact"}}
    )
    (note,) = [note.text for note in report.notes if "topic-config" in note.text]
    assert "no log of plane lies in what is checked of the archive" in note
