"""A run that was killed is gone on with: nothing is read twice, and the end is the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from recovery.engine.partition_run import PartitionRun
from recovery.engine.report import RecoveryReport
from recovery.engine.resume import RunJournal
from recovery.errors import JournalError, UnsafeError
from recovery.load.model import LogSettings
from recovery.watch.events import BytesScanned, Event, LogDirStarted, PartitionFinished, SegmentRecovered
from recovery.write.apply import apply_partition
from recovery.write.journal import Journal
from tests.damage.mutilate import Victim, make_victim
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack
from tests.runs.driving import footprint, own_leftovers, quarantine_of, recover, settings_of
from tests.runs.killing import killed_at


class Killed(BaseException):
    """Ends a child at an event."""


def killed_at_event(kind: type[Event], number: int, run: Callable[[Callable[[Event], None]], object]) -> None:
    """Do *run* in a child that ends, without a word, at the *number*th event of *kind*."""
    child = os.fork()
    if child == 0:
        seen = 0

        def watch(event: Event) -> None:
            nonlocal seen
            seen += isinstance(event, kind)
            if seen == number:
                os._exit(7)

        try:
            run(watch)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


@pytest.fixture
def expected(ram_path: Path) -> dict[str, bytes]:
    whole = unpack("crashed", ram_path / "whole")
    recover(whole)
    return tree_of(whole.root)


def scanned(run: Callable[[Callable[[Event], None]], RecoveryReport]) -> tuple[int, int, RecoveryReport]:
    """Do *run*; bytes that were announced, bytes that were read, report."""
    events: list[Event] = []
    report = run(events.append)
    announced = sum(event.bytes_total for event in events if isinstance(event, LogDirStarted))
    return announced, sum(event.scanned_bytes for event in events if isinstance(event, BytesScanned)), report


def shown(report: RecoveryReport) -> list[object]:
    """What is said of the partitions, whenever it was done."""
    return [
        (replace(one, duration_ms=0, quarantined=tuple(map(os.path.basename, one.quarantined))))
        for one in report.partitions
    ]


def logs_of(tree: dict[str, bytes]) -> dict[str, bytes]:
    """The log dirs alone, without what names the folder that they are in."""
    return {
        name: data
        for name, data in tree.items()
        if ".quarantine" not in name and name not in ("server.properties", "sample.json")
    }


def a_log(sample: Sample, root: Path) -> tuple[Victim, Path, bytes]:
    """A log dir with one partition, the first of its segments that a recovery reads, and that one's bytes."""
    folder = next(log_dir / "late-1" for log_dir in sample.log_dirs if (log_dir / "late-1").exists())
    victim = make_victim(sample, folder, root / "victim")
    log = victim.unflushed()[0]
    return victim, log, log.read_bytes()


def flipped(data: bytes) -> bytes:
    """One bit in the last batch changed."""
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def overwrite(path: Path, data: bytes) -> None:
    """Write *data* over a file as `cp -p` does: the same inode, size and time of change."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


def committed_and_killed(*arguments: object, enter: Callable[..., None], **options: object) -> None:
    """`apply_partition` of a run that is killed right behind the commit."""

    def entered(*commit: object) -> None:
        enter(*commit)
        os._exit(7)

    apply_partition(*arguments, enter=entered, **options)


def ended(run: Callable[[], object]) -> int:
    """Do *run* in a child, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class TestGoingOn:
    @pytest.mark.parametrize("number", [1, 5, 12, 20])
    def test_finished_partitions_are_not_read_again(
        self, sample: Sample, expected: dict[str, bytes], number: int, ram_path: Path
    ) -> None:
        whole = unpack("crashed", ram_path / "again")
        total, everything, uninterrupted = scanned(lambda watch: recover(whole, observers=[watch]))
        killed_at_event(
            PartitionFinished, number, lambda watch: recover(sample, thread_count=1, observers=[watch])
        )
        announced, read, report = scanned(lambda watch: recover(sample, observers=[watch]))
        assert announced == read < everything <= total
        assert differences(logs_of(expected), logs_of(tree_of(sample.root))) == []
        assert report.exit_code == uninterrupted.exit_code
        for log_dir in sample.log_dirs:
            assert own_leftovers(log_dir) == []
            assert not (quarantine_of(log_dir) / "journal").exists()

    def test_it_says_what_an_uninterrupted_run_says(self, sample: Sample, ram_path: Path) -> None:
        whole = unpack("crashed", ram_path / "again")
        # One log dir: the thread of another one would be killed anywhere, between two pending deletions for one.
        log_dirs = [max(one.log_dirs, key=lambda path: len(list(path.iterdir()))) for one in (sample, whole)]
        killed_at_event(
            PartitionFinished,
            9,
            lambda watch: recover(sample, log_dirs[:1], thread_count=1, observers=[watch]),
        )
        reports = [
            [replace(one, log_dir="") for one in shown(report)]
            for report in (recover(sample, log_dirs[:1]), recover(whole, log_dirs[1:]))
        ]
        assert reports[0] == reports[1]

    def test_finished_segments_are_not_read_again(self, sample: Sample, monkeypatch) -> None:
        monkeypatch.setattr("recovery.engine.forecast.LEAST_KEPT_SCAN_BYTES", 1)
        partition = max(
            (folder for log_dir in sample.log_dirs for folder in log_dir.glob("late-*")),
            key=lambda folder: len(list(folder.glob("*.log"))),
        )
        log_dir = partition.parent
        for other in list(log_dir.iterdir()):
            if other.is_dir() and other != partition:
                shutil.rmtree(other)
        untouched = shutil.copytree(log_dir, log_dir.with_name("untouched"))
        everything = scanned(lambda watch: recover(sample, [untouched], observers=[watch]))[1]
        killed_at_event(
            SegmentRecovered, 2, lambda watch: recover(sample, [log_dir], thread_count=1, observers=[watch])
        )
        announced, read, _ = scanned(lambda watch: recover(sample, [log_dir], observers=[watch]))
        assert 0 < announced == read < everything
        assert differences(tree_of(untouched), tree_of(log_dir)) == []

    @pytest.mark.parametrize("is_committed", [False, True])
    def test_what_was_mended_meanwhile_is_not_cut(
        self, sample: Sample, ram_path: Path, monkeypatch, is_committed: bool
    ) -> None:
        """`cp -p` keeps inode, size and time of change: damage is looked at again before anything goes by it."""
        monkeypatch.setattr("recovery.engine.forecast.LEAST_KEPT_SCAN_BYTES", 1)
        victim, log, sound = a_log(sample, ram_path)
        overwrite(log, flipped(sound))
        if is_committed:
            with mock.patch("recovery.engine.partition_run.apply_partition", committed_and_killed):
                assert ended(lambda: recover(sample, [victim.log_dir])) == 7
        else:
            killed_at_event(
                SegmentRecovered,
                1,
                lambda watch: recover(sample, [victim.log_dir], thread_count=1, observers=[watch]),
            )
            journal = Journal.open(str(quarantine_of(victim.log_dir) / "journal"))
            assert journal is not None
            assert journal.scan_count == 0  # nor where a file system keeps no ctime
        overwrite(log, sound)
        assert recover(sample, [victim.log_dir]).exit_code == 0
        assert log.read_bytes() == sound

    def test_what_is_committed_and_not_done_is_still_to_be_cut(self, sample: Sample, ram_path: Path) -> None:
        victim, log, sound = a_log(sample, ram_path)
        overwrite(log, flipped(sound))
        with mock.patch("recovery.engine.partition_run.apply_partition", committed_and_killed):
            assert ended(lambda: recover(sample, [victim.log_dir])) == 7
        for dry_run, word in ((True, "TO BE CUT"), (False, "CUT")):
            report = recover(sample, [victim.log_dir], dry_run=dry_run)
            assert [one.is_to_be_finished for one in report.partitions if one.losses] == [dry_run]
            assert report.log_dirs[0].earlier_cuts == ()
            assert ("kept in " in report.to_text()) is not dry_run
            words = [line.partition(" /")[0] for line in report.to_text().splitlines() if "CUT " in line]
            assert words == [word]

    def test_what_was_damaged_meanwhile_is_cut(self, sample: Sample, ram_path: Path, monkeypatch) -> None:
        monkeypatch.setattr("recovery.engine.forecast.LEAST_KEPT_SCAN_BYTES", 1)
        victim, log, sound = a_log(sample, ram_path)
        killed_at_event(
            SegmentRecovered,
            2,
            lambda watch: recover(sample, [victim.log_dir], thread_count=1, observers=[watch]),
        )
        overwrite(log, flipped(sound))
        assert recover(sample, [victim.log_dir]).exit_code == 2
        assert len(log.read_bytes()) < len(sound)

    def test_small_segments_are(self, sample: Sample) -> None:
        killed_at_event(SegmentRecovered, 2, lambda watch: recover(sample, thread_count=1, observers=[watch]))
        journals = (Journal.open(str(quarantine_of(log_dir) / "journal")) for log_dir in sample.log_dirs)
        assert {journal.scan_count for journal in journals if journal is not None} == {0}

    def test_killed_at_the_hand_over(self, sample: Sample, expected: dict[str, bytes]) -> None:
        """Each run gets one call further than the one before it, from the last partitions on."""
        killed_at_event(
            PartitionFinished, 20, lambda watch: recover(sample, thread_count=1, observers=[watch])
        )
        for number in range(1, 400):
            alive = not killed_at(number, lambda: recover(sample, thread_count=1))
            if all((log_dir / MARKER).exists() for log_dir in sample.log_dirs):
                break
        report = recover(sample)
        assert not alive or report.exit_code == 0
        assert differences(logs_of(expected), logs_of(tree_of(sample.root))) == []

    def test_a_dry_run_reads_no_more_and_changes_nothing(self, sample: Sample) -> None:
        killed_at_event(
            PartitionFinished, 20, lambda watch: recover(sample, thread_count=1, observers=[watch])
        )
        before = footprint(sample.root)
        _, announced, told = scanned(lambda watch: recover(sample, dry_run=True, observers=[watch]))
        assert footprint(sample.root) == before
        _, read, done = scanned(lambda watch: recover(sample, observers=[watch]))
        assert announced == read
        assert told.exit_code == done.exit_code

    def test_a_clean_dir_is_still_taken_for_one(self, ram_path: Path) -> None:
        sample, whole = unpack("stopped", ram_path), unpack("stopped", ram_path / "whole")
        recover(whole)
        alive, number = False, 0
        while not alive:
            number += 7
            again = unpack("stopped", ram_path / str(number))
            alive = not killed_at(number, lambda again=again: recover(again, thread_count=1))
            recover(again)
            found = logs_of(tree_of(again.root))
            assert differences(logs_of(tree_of(whole.root)), found) == [], number
        assert sample.name == "stopped"


class TestAnother:
    """What was found out under other circumstances does not count."""

    @pytest.fixture
    def begun(self, sample: Sample) -> Sample:
        for log_dir in sample.log_dirs:  # one after the other: each has its journal then
            killed_at_event(
                PartitionFinished,
                6,
                lambda watch, log_dir=log_dir: recover(sample, [log_dir], thread_count=1, observers=[watch]),
            )
        return sample

    def test_configuration_is_refused(self, begun: Sample) -> None:
        before = tree_of(begun.root)
        settings = settings_of(begun)

        def others(topic: str) -> LogSettings:
            return replace(settings(topic), index_interval_bytes=1)

        with pytest.raises(
            UnsafeError,
            match=r"here: index.interval.bytes, settings of [0-9]+ topics: 4096 then, 1 now; .*--restart",
        ):
            recover(begun, settings_of_topics=others)
        with pytest.raises(UnsafeError, match="--topic: none then, tiny-batches now"):
            recover(begun, topics=("tiny-batches",))
        with pytest.raises(UnsafeError, match="--handoff: clean-shutdown then, none now"):
            recover(begun, handoff="none")
        assert logs_of(tree_of(begun.root)) == logs_of(before)  # with the locks of the killed run

    def test_clock_is_refused_and_the_old_one_is_taken(self, begun: Sample) -> None:
        with pytest.raises(UnsafeError, match=f"--now: {begun.now_ms} then, {begun.now_ms + 1} now"):
            recover(replace(begun, now_ms=begun.now_ms + 1))
        assert recover(begun, now_ms=None).now_ms == begun.now_ms

    def test_each_log_dir_goes_on_by_its_own_clock(self, sample: Sample) -> None:
        for number, log_dir in enumerate(sample.log_dirs):
            own = replace(sample, now_ms=sample.now_ms + number)
            killed_at_event(
                PartitionFinished,
                3,
                lambda watch, own=own, log_dir=log_dir: recover(
                    own, [log_dir], thread_count=1, observers=[watch]
                ),
            )
        journals = [RunJournal(str(log_dir)) for log_dir in sample.log_dirs]
        assert [journal.now_ms for journal in journals] == [sample.now_ms, sample.now_ms + 1]
        with mock.patch.object(
            PartitionRun, "__init__", autospec=True, side_effect=PartitionRun.__init__
        ) as made:
            assert recover(sample, now_ms=None).exit_code == 0
        clocks = sorted({(task.log_dir, task.now_ms) for task in (call.args[1] for call in made.mock_calls)})
        assert [now_ms for _, now_ms in clocks] == [sample.now_ms, sample.now_ms + 1]

    def test_restart_forgets_everything(self, begun: Sample, expected: dict[str, bytes]) -> None:
        report = recover(begun, restart=True, now_ms=begun.now_ms)
        assert report.exit_code == 0
        assert differences(logs_of(expected), logs_of(tree_of(begun.root))) == []

    def test_a_partition_that_somebody_else_has_changed_is_read_again(self, begun: Sample) -> None:
        log = next(log for log_dir in begun.log_dirs for log in sorted(log_dir.glob("late-*/*.log"))[-1:])
        with log.open("ab") as file:
            file.write(b"torn")
        report = recover(begun)
        assert [one.folder for one in report.partitions if one.status == "truncated"] == [log.parent.name]

    def test_configuration_does_not_matter_where_a_broker_has_been_there_since(self, begun: Sample) -> None:
        journals = [RunJournal(str(log_dir)).path for log_dir in begun.log_dirs]
        for log_dir in begun.log_dirs:
            checkpoint = log_dir / "recovery-point-offset-checkpoint"
            checkpoint.write_bytes(checkpoint.read_bytes())
        report = recover(begun, handoff="none", now_ms=begun.now_ms + 5)
        assert report.exit_code == 0
        assert report.now_ms == begun.now_ms + 5
        assert "checkpoint has changed since: beginning anew" in report.to_text()
        assert not any(map(os.path.exists, journals))

    def test_nor_where_one_was_killed_while_it_recovered(self, begun: Sample) -> None:
        log = next(log for log_dir in begun.log_dirs for log in sorted(log_dir.glob("late-*/*.log"))[-1:])
        with log.open("ab") as file:
            file.write(b"torn")
        with pytest.raises(UnsafeError, match="--handoff"):  # of the other log dir
            recover(begun, handoff="none")
        other = next(log_dir for log_dir in begun.log_dirs if log_dir != log.parents[1])
        os.unlink(RunJournal(str(other)).path)
        report = recover(begun, handoff="none")
        assert "so has the configuration: beginning anew" in report.to_text()
        assert [one.folder for one in report.partitions if one.status == "truncated"] == [log.parent.name]

    def test_an_obsolete_run_does_not_set_the_clock(self, begun: Sample) -> None:
        for log_dir in begun.log_dirs:
            checkpoint = log_dir / "recovery-point-offset-checkpoint"
            checkpoint.write_bytes(checkpoint.read_bytes())
        with mock.patch.object(
            PartitionRun, "__init__", autospec=True, side_effect=PartitionRun.__init__
        ) as made:
            report = recover(begun, now_ms=None)
        assert report.now_ms > begun.now_ms
        assert {call.args[1].now_ms for call in made.mock_calls} == {report.now_ms}

    def test_version_goes_on_and_reads_again(
        self, begun: Sample, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("recovery.engine.resume.VERSION", "9.9.9")
        report = recover(begun)
        assert report.exit_code == 0
        assert "resuming the run that was interrupted" in report.to_text()
        assert not any(RunJournal(str(log_dir)).has_scans for log_dir in begun.log_dirs)
        assert differences(logs_of(expected), logs_of(tree_of(begun.root))) == []

    @pytest.mark.parametrize("content", [b"garbage", b"KLRJ\0\0\0\x63more", b"KLRJ"])
    def test_restart_forgets_what_it_cannot_read(
        self, sample: Sample, expected: dict[str, bytes], content: bytes
    ) -> None:
        place = Path(RunJournal(str(sample.log_dirs[0])).path)
        place.parent.mkdir()
        place.write_bytes(content)
        if content != b"KLRJ":
            with pytest.raises(JournalError, match="--restart"):
                recover(sample)
        assert recover(sample, restart=True, dry_run=True).exit_code == 0
        assert place.read_bytes() == content
        assert recover(sample, restart=True).exit_code == 0
        assert not place.exists()
        assert differences(logs_of(expected), logs_of(tree_of(sample.root))) == []

    def test_checkpoints_that_somebody_else_has_written(self, begun: Sample) -> None:
        for log_dir in begun.log_dirs:
            checkpoint = log_dir / "recovery-point-offset-checkpoint"
            checkpoint.write_bytes(checkpoint.read_bytes())
        total, read, _ = scanned(lambda watch: recover(begun, observers=[watch]))
        assert total == read > 0


def test_where_no_journal_can_be_written_the_run_goes_on(
    sample: Sample, expected: dict[str, bytes], monkeypatch
) -> None:
    from recovery.write.journal import Journal

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "create", fail)
    events: list[Event] = []
    assert recover(sample, observers=[events.append]).exit_code == 0
    assert "no journal" in str(events)
    assert differences(logs_of(expected), logs_of(tree_of(sample.root))) == []
