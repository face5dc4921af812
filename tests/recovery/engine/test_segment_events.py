"""Each segment that is recovered is told once, in every kind of run, and the sums are those of the report."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from native.raw_scan import Stop
from recovery.engine import partition_scans
from recovery.engine.segment_news import SegmentNews
from recovery.load.model import Original, ScanRequest
from recovery.load.segment_recovery import SegmentRecovery
from recovery.read.partition_files import PartitionFiles
from recovery.watch.events import (
    Event,
    IndexFileProblem,
    PartitionFinished,
    PartitionStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
)
from recovery.watch.gauges import Gauges
from tests.damage.campaign import memory_folder
from tests.damage.event_campaign import KINDS, RARE, EventCampaign
from tests.logs.samples import MARKER
from tests.recovery.engine.test_engine import RECOVERY_POINTS, checkpoint, log_dir, run
from tests.recovery.engine.test_resume import killed_at_event
from tests.recovery.load.memory import Folded, name, task_of
from tests.recovery.load.test_partition import flipped, segment, three_segments
from tests.runs.event_rules import broken_rules

BASES = (0, 10, 20)


def without_indexes(files: dict[str, bytes], *bases: int) -> dict[str, bytes]:
    return {
        file: data for file, data in files.items() if file not in [name(base, ".index") for base in bases]
    }


def told(path: Path, **options: object) -> list[Event]:
    """Recover and return the events, which break no rule."""
    events: list[Event] = []
    reads_all_once = not options.pop("is_resumed", False)
    report = run(path, observers=[events.append], **({"thread_count": 1} | options))
    assert broken_rules(events, report, reads_all_once=reads_all_once) == []
    return events


def counted(events: list[Event]) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Return (base offset, remaining) of each recovered segment, and (base offset, x, y) of each that was begun."""
    return (
        [(e.base_offset, e.remaining_segments) for e in events if isinstance(e, SegmentRecovered)],
        [(e.base_offset, e.ordinal, e.count) for e in events if isinstance(e, SegmentRecoveryStarted)],
    )


def figures(events: list[Event]) -> tuple[int, int, int]:
    """Return recovered segments, their bytes, and bytes scanned, as the gauges have them at the end."""
    gauges = Gauges()
    for event in events:
        gauges(event)
    (values,) = gauges.values().log_dirs
    return values.recovered_segments, values.recovered_bytes, values.scanned_bytes


SIZE = len(segment(0))


class TestOneByOne:
    def test_with_their_indexes(self, tmp_path: Path) -> None:
        events = told(log_dir(tmp_path / "d", t_0=three_segments()))
        assert counted(events) == ([(0, 2), (10, 1), (20, 0)], [(0, 0, 3), (10, 1, 3), (20, 2, 3)])
        assert figures(events) == (3, 3 * SIZE, 3 * SIZE)

    def test_without_an_index_while_the_log_is_loaded(self, tmp_path: Path) -> None:
        events = told(log_dir(tmp_path / "d", t_0=without_indexes(three_segments(), *BASES)))
        assert counted(events) == ([(0, 2), (10, 1), (20, 0)], [(0, 0, 3), (10, 1, 3), (20, 2, 3)])
        assert figures(events) == (3, 3 * SIZE, 3 * SIZE)

    def test_those_without_an_index_have_their_turn_first(self, tmp_path: Path) -> None:
        events = told(log_dir(tmp_path / "d", t_0=without_indexes(three_segments(), 10)))
        assert counted(events) == ([(10, 2), (0, 1), (20, 0)], [(10, 0, 3), (0, 1, 3), (20, 2, 3)])

    def test_a_cut_while_the_log_is_loaded_leaves_the_others_to_come(self, tmp_path: Path) -> None:
        files = three_segments()
        files[name(10)] = flipped(files[name(10)], 400)
        events = told(log_dir(tmp_path / "d", t_0=without_indexes(files, *BASES)))
        assert [remaining for _, remaining in counted(events)[0]] == [2, 1, 0]

    def test_a_cut_in_the_walk_drops_the_others(self, tmp_path: Path) -> None:
        files = three_segments()
        files[name(0)] = flipped(files[name(0)], 400)
        events = told(log_dir(tmp_path / "d", t_0=files))
        assert counted(events) == ([(0, 0)], [(0, 0, 3)])
        (recovered,) = [event for event in events if isinstance(event, SegmentRecovered)]
        assert 0 < recovered.valid_bytes < SIZE

    def test_in_a_clean_log_dir_none_is_waited_for(self, tmp_path: Path) -> None:
        path = log_dir(tmp_path / "d", t_0=without_indexes(three_segments(), 10))
        (path / MARKER).write_bytes(b"")
        events = told(path)
        assert counted(events) == ([(10, 0)], [])
        assert [event.problem for event in events if isinstance(event, IndexFileProblem)] == ["missing"]
        assert figures(events)[:2] == (1, SIZE)

    def test_a_flushed_one_takes_no_turn(self, tmp_path: Path) -> None:
        path = log_dir(tmp_path / "d", t_0=without_indexes(three_segments(), 0))
        (path / RECOVERY_POINTS).write_text("0\n1\nt 0 10\n")
        events = told(path)
        assert counted(events) == ([(0, 2), (10, 1), (20, 0)], [(10, 0, 2), (20, 1, 2)])
        assert checkpoint(path / RECOVERY_POINTS) == {"t-0": 30}

    def test_finished_swaps_are_counted_before_the_first_segment(self, tmp_path: Path) -> None:
        files = three_segments()
        files |= {
            f"{name(base, suffix)}.swap": files.pop(name(base, suffix))
            for base in (0, 10)
            for suffix in (".log", ".index")
        }
        events = told(log_dir(tmp_path / "d", t_0=files))
        (started,) = [event for event in events if isinstance(event, PartitionStarted)]
        assert started.unflushed_segment_count == 3
        assert [remaining for _, remaining in counted(events)[0]] == [2, 1, 0]


class TestSegmentNews:
    """What a load may ask for once more, as it does after a split, or where a scan was too large to be kept."""

    def _told(self, *scans: tuple[int, int, Stop]) -> list[SegmentRecovered]:
        """Return what is told of segments of 100 bytes: (base offset, place in the walk, how the scan stops)."""
        events: list[Event] = []
        news = SegmentNews(task_of(three_segments()), events.append)
        news.start(0, len(scans))
        for base_offset, ordinal, stop in scans:
            part = Original(file=name(base_offset), size_bytes=100)
            request = ScanRequest(part=part, base_offset=base_offset, ordinal=ordinal, count=len(scans))
            scan = Folded(three_segments()).source.scan(
                ScanRequest(part=Original(file=name(0), size_bytes=SIZE), base_offset=0)
            )
            news.begin(request)
            news.end(request, scan._replace(stop=stop, valid_bytes=100), was_scanned_before=False)
        news.finish()
        return [event for event in events if isinstance(event, SegmentRecovered)]

    def test_one_that_is_read_again_is_told_once(self) -> None:
        told = self._told((0, 1, Stop.END), (10, 2, Stop.END), (0, 1, Stop.END))
        assert [event.base_offset for event in told] == [0, 10]

    def test_one_that_is_to_be_split_is_not_recovered(self) -> None:
        told = self._told(
            (0, 1, Stop.END), (10, 2, Stop.OFFSET_OVERFLOW), (0, 1, Stop.END), (12, 2, Stop.END)
        )
        assert [event.base_offset for event in told] == [0, 12]


class TestLogsThatEndEarly:
    def test_a_refused_log_counts_what_was_in_order_before(self, tmp_path: Path, monkeypatch) -> None:
        files = three_segments()
        real = PartitionFiles.scan

        def scan(files, request):
            if request.base_offset == 10:
                raise MemoryError
            return real(files, request)

        monkeypatch.setattr(PartitionFiles, "scan", scan)
        events = told(log_dir(tmp_path / "d", t_0=files))
        (finished,) = [event for event in events if isinstance(event, PartitionFinished)]
        assert (finished.status, finished.recovered_segments, finished.recovered_bytes) == (
            "refused",
            1,
            SIZE,
        )

    def test_a_segment_that_is_refused_once_it_is_scanned_is_not_recovered(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        """The scan is sound: what it does to leader epochs or producers may still stop a broker."""
        real = SegmentRecovery._observe_epochs

        def refuse(recovery, segment, scan):
            if segment.base_offset == 20:
                raise partition_scans.refusal_for_memory(segment.log)
            real(recovery, segment, scan)

        monkeypatch.setattr(SegmentRecovery, "_observe_epochs", refuse)
        events = told(log_dir(tmp_path / "d", t_0=three_segments()))
        assert [base for base, _ in counted(events)[0]] == [0, 10]
        assert figures(events) == (2, 2 * SIZE, 3 * SIZE)

    def test_a_failed_log_counts_what_was_read(self, tmp_path: Path, monkeypatch) -> None:
        real = PartitionFiles.scan

        def scan(files, request):
            if request.base_offset == 20:
                raise OSError(errno.EIO, "Input/output error", "x")
            return real(files, request)

        monkeypatch.setattr(PartitionFiles, "scan", scan)
        assert figures(told(log_dir(tmp_path / "d", t_0=three_segments()), is_resumed=True))[:2] == (
            2,
            2 * SIZE,
        )


class TestResumed:
    def test_what_an_interrupted_run_has_committed_counts(self, tmp_path: Path) -> None:
        logs = {f"t_{number}": three_segments() for number in range(3)}
        path = log_dir(tmp_path / "d", **logs)
        killed_at_event(PartitionFinished, 3, lambda watch: run(path, thread_count=1, observers=[watch]))
        events = told(path, is_resumed=True)
        assert figures(events) == (9, 9 * SIZE, 0)

    def test_what_it_has_scanned_is_not_waited_for(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr("recovery.engine.forecast.LEAST_KEPT_SCAN_BYTES", 1)
        path = log_dir(tmp_path / "d", t_0=three_segments())
        killed_at_event(SegmentRecovered, 2, lambda watch: run(path, thread_count=1, observers=[watch]))
        events = told(path, is_resumed=True)
        known = [event.was_scanned_before for event in events if isinstance(event, SegmentRecovered)]
        assert known in ([True, True, False], [True, True, True])
        gauges = Gauges()
        for event in events:
            gauges(event)
            (values,) = gauges.values().log_dirs
            if isinstance(event, SegmentRecovered) and event.base_offset == 10:
                assert values.remaining_bytes == (0 if known[2] else SIZE)


@pytest.fixture(scope="module")
def campaign() -> Iterator[EventCampaign]:
    with memory_folder() as root:
        yield EventCampaign(root)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in RARE])
def test_rules_hold_whatever_is_damaged(campaign: EventCampaign, kind: str) -> None:
    for number in range(4):
        case, damages, broken = campaign.run(f"{kind}-seed0/{number}")
        assert not broken, (case, damages, broken)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_rules_hold_in_more_of_them(campaign: EventCampaign, kind: str) -> None:
    for number in range(10 if kind in RARE else 60):
        case, damages, broken = campaign.run(f"{kind}-seed1/{number}")
        assert not broken, (case, damages, broken)


def test_folders_that_are_refused_count_one_by_one(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", t_0=three_segments(), t_1=three_segments())
    for name_of_none in ("x", "y", "z"):
        (path / name_of_none).mkdir()
    finished = [event for event in told(path) if isinstance(event, PartitionFinished)]
    assert [event.finished_count for event in finished] == [1, 2, 3, 4, 5]
    assert {event.log_count for event in finished} == {5}
    assert [event.status for event in finished][:3] == ["refused"] * 3
