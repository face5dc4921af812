"""Offsets that `recover` says are hidden are those that a consumer of a real broker does not get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.load.model import Hole
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.filenames import log_name
from tests.brokers.restoring import ask
from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import run
from tests.runs.driving import recover
from tests.runs.verifying import damage_of, verified

pytestmark = [pytest.mark.java, pytest.mark.broker]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


def plain_of(sample: Sample) -> Path:
    """A log whose segments begin at 0, 28 and 60, and which ends at 93."""
    return next(sample.root.glob("d?/plain-0"))


def unmark(sample: Sample) -> None:
    for log_dir in sample.log_dirs:
        (log_dir / MARKER).unlink()


def asked(sample: Sample, work_dir: Path, tool: str, *words: str) -> str:
    """What a tool prints about a broker that was started on the sample."""
    with broker_of(sample, work_dir) as broker:
        broker.start()
        printed = ask(broker, tool, *words)
        broker.stop()
    return printed


def first_read_from(offset: int, sample: Sample, work_dir: Path) -> int:
    """The first offset that a consumer gets which begins at *offset*."""
    words = ("--topic", "plain", "--partition", "0", "--offset", str(offset), "--max-messages", "1")
    words += ("--formatter-property", "print.offset=true")
    shown = asked(sample, work_dir, "consumer.ConsoleConsumer", *words)
    return int(shown.partition("Offset:")[2].split()[0])


def holes_of(sample: Sample) -> list[Hole]:
    report = recover(sample)
    assert report.exit_code == (2 if any(one.holes for one in report.partitions) else 0)
    return [hole for one in report.partitions for hole in one.holes]


@pytest.mark.parametrize("empty", ["12.log", log_name(12)])
def test_what_an_empty_segment_hides(empty: str, sample: Sample, tmp_path: Path) -> None:
    unmark(sample)
    (plain_of(sample) / empty).touch()
    assert holes_of(sample) == [Hole(first_offset=12, last_offset=27, before=log_name(12), is_hidden=True)]
    assert first_read_from(16, sample, tmp_path / "work") == 28


def test_the_remedy_shows_it_again(sample: Sample, tmp_path: Path) -> None:
    unmark(sample)
    stray = plain_of(sample) / "12.log"
    stray.touch()
    (hole,) = holes_of(sample)
    assert "take this run back with undo, move it away, recover again" in str(hole)
    undone = run("undo", "-c", sample.config)
    assert undone.exit_code == 0, undone.stderr
    stray.rename(tmp_path / stray.name)
    assert holes_of(sample) == []
    assert first_read_from(16, sample, tmp_path / "work") == 16


def test_what_a_segment_hides_that_begins_later_than_its_name_says(sample: Sample, tmp_path: Path) -> None:
    unmark(sample)
    for log_dir in sample.log_dirs:
        (log_dir / "recovery-point-offset-checkpoint").unlink()
    for suffix in (".log", ".index", ".timeindex"):
        segment = plain_of(sample) / log_name(28).replace(".log", suffix)
        segment.rename(segment.with_name(log_name(22).replace(".log", suffix)))
    assert holes_of(sample) == [Hole(first_offset=22, last_offset=27, before=log_name(22), is_hidden=True)]
    assert first_read_from(23, sample, tmp_path / "work") == 28


def test_what_a_wrong_marker_hides(sample: Sample, tmp_path: Path) -> None:
    active = plain_of(sample) / log_name(60)
    size_bytes = active.stat().st_size - 100
    os.truncate(active, size_bytes)
    (hole,) = holes_of(sample)
    assert hole == Hole(
        first_offset=hole.first_offset,
        last_offset=92,
        before=active.name,
        position=size_bytes,
        is_hidden=True,
    )
    printed = asked(sample, tmp_path / "work", "GetOffsetShell", "--topic-partitions", "plain:0")
    assert printed.split() == [f"plain:0:{hole.first_offset}"]


def test_what_an_empty_first_segment_hides(sample: Sample, tmp_path: Path) -> None:
    unmark(sample)
    os.truncate(plain_of(sample) / log_name(0), 0)
    assert holes_of(sample) == [Hole(first_offset=0, last_offset=27, before=log_name(0), is_hidden=True)]
    assert first_read_from(0, sample, tmp_path / "work") == 28


def test_an_end_that_is_below_the_high_watermark(sample: Sample, tmp_path: Path) -> None:
    """As writes that were never flushed and a power failure took away, while other replicas have them."""
    unmark(sample)
    for log_dir in sample.log_dirs:
        (log_dir / "recovery-point-offset-checkpoint").unlink()
    for suffix in (".log", ".index", ".timeindex"):
        (plain_of(sample) / log_name(60).replace(".log", suffix)).unlink()
    size_bytes = (plain_of(sample) / log_name(28)).stat().st_size
    ended = Hole(first_offset=60, last_offset=92, before=log_name(28), position=size_bytes, is_at_end=True)
    assert [one.rule for one in damage_of(verified(sample))] == ["high-watermark"]
    assert holes_of(sample) == [ended]
    assert damage_of(verified(sample)) == []
    printed = asked(sample, tmp_path / "work", "GetOffsetShell", "--topic-partitions", "plain:0")
    assert printed.split() == ["plain:0:60"]


def test_the_high_watermark_of_a_deleted_topic_is_not_that_of_its_successor(sample: Sample) -> None:
    """A broker that was killed within seconds after it had made the topic anew has left the other one's line."""
    unmark(sample)
    marks = plain_of(sample).parent / "replication-offset-checkpoint"
    lines = read_offset_checkpoint(marks.read_bytes())
    marks.write_bytes(encode_offset_checkpoint(lines | {("plain", 0): 900}))
    made_ns = (plain_of(sample) / "partition.metadata").stat().st_mtime_ns
    os.utime(marks, ns=(made_ns - 1, made_ns - 1))
    assert damage_of(verified(sample)) == []
    assert holes_of(sample) == []
    assert damage_of(verified(sample)) == []
    unmark(sample)
    os.utime(marks, ns=(made_ns, made_ns))
    assert [one.rule for one in damage_of(verified(sample))] == ["high-watermark"]
    (hole,) = holes_of(sample)
    assert (hole.first_offset, hole.last_offset) == (93, 899)
