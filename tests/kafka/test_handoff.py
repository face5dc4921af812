"""A whole broker starts on what `recover` leaves: nothing is left to recover, and consumers read every record."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recovery.logdir.quarantine_place import INSIDE_FOLDER
from tests.brokers import KAFKA_VERSION, Broker, TopicReads
from tests.brokers.broker import dump_segments, sanity_check_indexes
from tests.brokers.sample_brokers import OTHER_VERSIONS, broker_of
from tests.logs.samples import MARKER, SAMPLE_NAMES, Sample, unpack
from tests.runs.command import recover
from tests.runs.driving import quarantine_of

pytestmark = [pytest.mark.java, pytest.mark.broker]

Reads = Mapping[str, Mapping[str, TopicReads]]

RECOVERING = re.compile(r"LogLoader partition=(\S+),.*Recovering unflushed segment (\d+)")
SKIPPING = re.compile(r"Skipping recovery of (\d+) logs from (\S+) since clean shutdown file was found")
UNCLEAN = re.compile(r"Recovering (\d+) logs from (\S+) since no clean shutdown file was found")
REPAIRING = re.compile(
    r"Could not find offset index|Found a corrupted index|Corruption found|Found invalid|Deleting segment|orphaned"
)
METADATA = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a broker said when it started, and what was read from it."""

    log: str
    reads: Reads

    @property
    def recovered(self) -> list[tuple[str, int]]:
        """(partition, base offset) of each segment that it recovered, apart from the metadata log's."""
        found = ((partition, int(base)) for partition, base in RECOVERING.findall(self.log))
        return sorted(one for one in found if one[0] != METADATA)

    def counts(self, pattern: re.Pattern[str]) -> dict[str, int]:
        """Logs by log dir, by the lines of *pattern*."""
        return {log_dir: int(count) for count, log_dir in pattern.findall(self.log)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """Log dirs that `recover` has done and a broker has started on, beside a broker that did its own recovery."""

    report: Mapping[str, Any]
    dumped: tuple[str, ...]
    ours: Start
    theirs: Start


def start_and_read(broker: Broker) -> Start:
    broker.start()
    return Start(log=broker.log, reads=broker.read_all())


def start_both(ours: Broker, theirs: Broker) -> list[Start]:
    with ours, theirs, ThreadPoolExecutor(2) as pool:
        return list(pool.map(start_and_read, (ours, theirs)))


def hand_over(ours: Sample, theirs: Sample, work_dir: Path, version: str = KAFKA_VERSION) -> HandedOver:
    """Recover *ours* from the command line, then start a broker on either.

    For a broker of another version quarantine is moved into the log dirs, where it lies if they are mount points.
    """
    done = recover(ours)
    assert done.exit_code == 0, done.stderr
    if version != KAFKA_VERSION:
        for log_dir in ours.log_dirs:
            quarantine_of(log_dir).rename(log_dir / INSIDE_FOLDER)
    dumped = complaints(ours)
    starts = start_both(
        broker_of(ours, work_dir / "ours", version), broker_of(theirs, work_dir / "theirs", version)
    )
    return HandedOver(report=done.report, dumped=dumped, ours=starts[0], theirs=starts[1])


def complaints(sample: Sample) -> tuple[str, ...]:
    """What DumpLogSegments finds wrong with any segment, its indexes alone and against the log."""
    own = (METADATA, "remote-log-index-cache")
    paths = sorted(
        path
        for log_dir in sample.log_dirs
        for path in log_dir.glob("*/*")
        if path.suffix in (".log", ".txnindex", ".snapshot", ".index", ".timeindex")
        and path.parent.name not in own
        and not path.parent.name.endswith("-delete")
    )
    assert len(paths) > 10
    return (
        *sanity_check_indexes(sample.log_dirs).complaints,
        *(line for line in dump_segments(paths).complaints if "isvalid: true" not in line),
    )


@pytest.fixture(scope="module", params=SAMPLE_NAMES)
def handed_over(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HandedOver]:
    root = tmp_path_factory.mktemp(request.param)
    yield hand_over(unpack(request.param, root / "ours"), unpack(request.param, root / "theirs"), root)
    shutil.rmtree(root)


@pytest.fixture(scope="module", params=OTHER_VERSIONS)
def handed_over_to_another(
    request: pytest.FixtureRequest,
    crashed_copy: Callable[[str, Path], Sample],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HandedOver]:
    root = tmp_path_factory.mktemp(f"kafka-{request.param}")
    ours, theirs = (crashed_copy(request.param, root / one) for one in ("ours", "theirs"))
    done = hand_over(ours, theirs, root, request.param)
    assert "quarantine" not in done.ours.log
    assert all((log_dir / INSIDE_FOLDER).is_dir() for log_dir in ours.log_dirs)
    yield done
    shutil.rmtree(root)


def assert_nothing_to_recover(done: HandedOver) -> None:
    assert done.ours.recovered == []
    assert done.ours.counts(UNCLEAN) == {}
    assert done.ours.counts(SKIPPING) == {
        log_dir["logDir"]: len(log_dir["partitions"]) for log_dir in done.report["logDirs"]
    }
    lines = [line for line in done.ours.log.splitlines() if "LogLoader" in line or "LogManager" in line]
    assert [line for line in lines if REPAIRING.search(line) and METADATA not in line] == []


def assert_every_record_is_read(done: HandedOver) -> None:
    assert set(done.ours.reads) == {"read_uncommitted", "read_committed"}
    assert comparable(done.ours.reads) == comparable(done.theirs.reads)
    assert sum(read.records for read in done.ours.reads["read_uncommitted"].values()) > 200


def comparable(reads: Reads) -> Reads:
    """Without the checksum of a log to which the broker itself writes the time."""
    return {
        level: {
            name: replace(read, crc32c=0) if name.startswith("__transaction_state") else read
            for name, read in partitions.items()
        }
        for level, partitions in reads.items()
    }


class TestSamples:
    def test_the_broker_has_nothing_left_to_recover(self, handed_over: HandedOver) -> None:
        assert_nothing_to_recover(handed_over)

    def test_a_consumer_reads_what_it_reads_after_the_brokers_own_recovery(
        self, handed_over: HandedOver
    ) -> None:
        assert_every_record_is_read(handed_over)

    def test_dump_log_segments_finds_every_segment_sound(self, handed_over: HandedOver) -> None:
        assert handed_over.dumped == ()


class TestOtherVersions:
    """A 4.4, a 4.0 and a 3.9 broker on what is left of their own crashed dirs."""

    def test_its_release_is_known_by_what_it_has_registered(self, handed_over_to_another: HandedOver) -> None:
        release = handed_over_to_another.report["release"]
        is_newer = "Kafka version: 4.4.0" in handed_over_to_another.theirs.log
        assert (release["name"], release["origin"][:6]) == ("4.4" if is_newer else "4.3", "node 1")

    def test_the_broker_has_nothing_left_to_recover(self, handed_over_to_another: HandedOver) -> None:
        assert handed_over_to_another.theirs.recovered != []
        assert_nothing_to_recover(handed_over_to_another)

    def test_a_consumer_reads_what_it_reads_after_the_brokers_own_recovery(
        self, handed_over_to_another: HandedOver
    ) -> None:
        assert_every_record_is_read(handed_over_to_another)
        assert handed_over_to_another.dumped == ()


@pytest.fixture(scope="module")
def starts(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Start, Sample, list[tuple[str, int]]]]:
    """By `--handoff`: what a broker did, on what, and what was unflushed before."""
    starts = {}
    for handoff in ("recovery-point", "none"):
        root = tmp_path_factory.mktemp(handoff)
        sample = unpack("crashed", root)
        unflushed = unflushed_segments(sample)
        assert recover(sample, "--handoff", handoff).exit_code == 0
        assert not any((log_dir / MARKER).exists() for log_dir in sample.log_dirs)
        with broker_of(sample, root) as broker:
            starts[handoff] = (start_and_read(broker), sample, unflushed)
    return starts


class TestHandoffChoices:
    """docs/reference/recover.md, "What the broker finds"."""

    def test_with_recovery_points_alone_it_reads_the_active_segments(self, starts) -> None:
        start, sample, _ = starts["recovery-point"]
        assert start.counts(SKIPPING) == {}
        assert sorted(start.counts(UNCLEAN)) == sorted(map(str, sample.log_dirs))
        assert start.recovered == sorted((folder.name, segments(folder)[-1]) for folder in logs(sample))

    def test_with_none_it_reads_all_that_was_unflushed_and_finds_it_sound(self, starts) -> None:
        start, _, unflushed = starts["none"]
        assert start.counts(SKIPPING) == {}
        assert start.recovered == unflushed
        assert not re.search("Corruption found|Could not find offset index", start.log)

    def test_a_consumer_reads_the_same_after_either(self, starts) -> None:
        assert starts["recovery-point"][0].reads == starts["none"][0].reads


def logs(sample: Sample) -> list[Path]:
    """The folders of the logs that a broker recovers."""
    own = re.compile(r"__cluster_metadata-0$|remote-log-index-cache$|.*-delete$")
    return [
        path
        for log_dir in sample.log_dirs
        for path in log_dir.iterdir()
        if path.is_dir() and not own.match(path.name)
    ]


def segments(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def unflushed_segments(sample: Sample) -> list[tuple[str, int]]:
    """By the checkpoints: what a broker recovers that is started on *sample* as it is."""
    points: dict[str, int] = {}
    for log_dir in sample.log_dirs:
        for line in (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]:
            topic, partition, offset = line.split()
            points[f"{topic}-{partition}"] = int(offset)
    found = []
    for folder in logs(sample):
        bases = segments(folder)
        first = max((base for base in bases if base <= points.get(folder.name, 0)), default=bases[0])
        found += [(folder.name, base) for base in bases if base >= first]
    return sorted(found)
