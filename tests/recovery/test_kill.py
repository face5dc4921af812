"""Killed, or failing, at any call into the operating system: the next run comes to the same end, and nothing is lost.

The damaged partitions are those of the samples; Java is not needed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.actions import (
    TEMPORARY_SUFFIX,
)
from recovery.report import RecoveryReport
from segfmt.record_batch import walk_batches
from tests.kafka import Oracle
from tests.mutilate import CHECKPOINTS, DAMAGES, Victim, make_victim
from tests.recovery.driving import (
    log_bytes,
    lost_batches,
    manifest_errors,
    own_leftovers,
    quarantine_of,
    recover,
)
from tests.recovery.killing import failing_at, killed_at
from tests.samples import MARKER, Sample, differences, tree_of, unpack


def torn_first_segment(victim: Victim) -> None:
    """The first unflushed segment is cut, those behind it become .deleted."""
    log = victim.unflushed()[0]
    os.truncate(log, log.stat().st_size - 7)


def missing_index_and_torn_tail(victim: Victim) -> None:
    first, last = victim.logs()[0], victim.logs()[-1]
    first.with_suffix(".index").unlink()
    os.truncate(last, last.stat().st_size - 7)


def interrupted_compaction(victim: Victim) -> None:
    """Two segments wait as .swap for those that they replace."""
    logs = victim.logs()
    for log in logs[1:3]:
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copy2(log.with_suffix(suffix), log.with_name(f"{log.stem}{suffix}.swap"))
    logs[1].with_suffix(".index").unlink()


def unfinished_split(victim: Victim) -> None:
    log = victim.logs()[1]
    shutil.copy2(log, log.with_name(f"{log.name}.swap"))
    shutil.copy2(log, log.with_name(f"{log.name}.cleaned"))


def log_start_beyond_the_end(victim: Victim) -> None:
    topic, _, number = victim.folder.name.rpartition("-")
    (victim.log_dir / CHECKPOINTS[1]).write_text(f"0\n1\n{topic} {number} 100000\n")
    log = victim.logs()[-1]
    os.truncate(log, log.stat().st_size - 7)


def overflowed_segment(victim: Victim) -> None:
    """The last two batches of a segment in the middle have offsets too high for it: it is split."""
    log = victim.unflushed()[0]
    data = bytearray(log.read_bytes())
    for batch in list(walk_batches(bytes(data)))[-2:]:
        data[batch.position : batch.position + 8] = (batch.offset + 2**40).to_bytes(8, "big")
    log.write_bytes(data)


def swapped_batches(victim: Victim) -> None:
    DAMAGES["swapped batches"](victim, random.Random(5))


STATES: dict[str, tuple[str, Callable[[Victim], None]]] = {
    "torn first segment": ("late-1", torn_first_segment),
    "torn with transactions": ("transactions-1", torn_first_segment),
    "missing index and torn tail": ("codec-lz4-0", missing_index_and_torn_tail),
    "interrupted compaction": ("compacted-0", interrupted_compaction),
    "unfinished split": ("late-0", unfinished_split),
    "log start beyond the end": ("late-0", log_start_beyond_the_end),
    "batches out of order": ("late-1", swapped_batches),
    "overflowed segment": ("late-0", overflowed_segment),
}


EVERY_CALL = ("torn first segment",)
"""States in which each call is tried; in the others one in STRIDE (all were tried when this was written)."""

STRIDE = 5


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    root = tmp_path_factory.mktemp("samples")
    yield unpack("crashed", root)
    shutil.rmtree(root)


def live_tree(log_dir: Path) -> dict[str, bytes]:
    """The tree without what is called `.deleted`: it goes at the next start, of a broker or of a recovery."""
    return {name: data for name, data in tree_of(log_dir).items() if not name.endswith(".deleted")}


class State:
    """A damaged log dir, from which any number of runs begin."""

    def __init__(self, sample: Sample, name: str, root: Path) -> None:
        partition, damage = STATES[name]
        folder = next(log_dir / partition for log_dir in sample.log_dirs if (log_dir / partition).exists())
        self.sample = sample
        self._root = root
        self.stride = 1 if name in EVERY_CALL else STRIDE
        self._original = make_victim(sample, folder, root / "original")
        damage(self._original)
        self._batches = log_bytes(self._original.log_dir)
        self.expected = live_tree(self._recovered(self.fresh()))
        assert self.expected != live_tree(self._original.log_dir)
        # Killed with the marker in place, the log is loaded once more: a broker's second start adds a snapshot, too.
        self.expected_again = live_tree(self._recovered(self._recovered(self.fresh())))
        assert (self.expected_again == self.expected) == (name != "log start beyond the end")

    def fresh(self) -> Path:
        """A new copy of the damaged log dir."""
        log_dir = self._root / "d1"
        shutil.rmtree(log_dir, ignore_errors=True)
        shutil.rmtree(quarantine_of(log_dir), ignore_errors=True)
        return shutil.copytree(self._original.log_dir, log_dir, symlinks=True)

    def run(self, log_dir: Path, **options: object) -> RecoveryReport:
        return recover(self.sample, [log_dir], **options)

    def _recovered(self, log_dir: Path, **options: object) -> Path:
        self.run(log_dir, **options)
        return log_dir

    def assert_nothing_is_lost(self, log_dir: Path, where: str) -> None:
        assert lost_batches(self._batches, log_dir) == [], where

    def assert_same_end(self, log_dir: Path, where: str, *, is_over: bool = True) -> None:
        found = {name: data for name, data in live_tree(log_dir).items() if is_over or name != ".lock"}
        # Where the run was over but for its locks, the next one is a second load.
        assert [] in (differences(self.expected, found), differences(self.expected_again, found)), where
        assert not is_over or own_leftovers(log_dir) == [], where
        self.assert_nothing_is_lost(log_dir, where)


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, sample: Sample, ram_path: Path) -> State:
    return State(sample, request.param, ram_path)


def test_killed_at_any_call_the_next_run_comes_to_the_same_end(state: State) -> None:
    number, alive = 0, False
    while not alive:
        number += state.stride
        log_dir = state.fresh()
        alive = not killed_at(number, lambda log_dir=log_dir: state.run(log_dir, thread_count=1))
        where = f"killed before call {number}"
        state.assert_nothing_is_lost(log_dir, where)
        if (log_dir / MARKER).exists():
            state.assert_same_end(log_dir, where, is_over=alive)
        state.run(log_dir)
        state.assert_same_end(log_dir, where)
    assert number > 10


@pytest.mark.java
def test_killed_at_any_call_a_broker_that_is_started_instead_reaches_its_own_tree(
    state: State, oracle: Oracle
) -> None:
    def started_broker(log_dir: Path) -> dict[str, bytes]:
        sample = state.sample
        outcome = oracle.load(
            [log_dir],
            now_ms=sample.now_ms,
            properties=sample.properties,
            topic_configs=sample.topic_configs,
        )
        assert outcome.outcome == "loaded", outcome.error
        found = live_tree(log_dir)  # it passes over what a killed run was writing, too
        return {name: data for name, data in found.items() if not name.endswith(TEMPORARY_SUFFIX)}

    brokers = started_broker(state.fresh())
    number, alive = 0, False
    while not alive:
        number += 7
        log_dir = state.fresh()
        alive = not killed_at(number, lambda log_dir=log_dir: state.run(log_dir, thread_count=1))
        is_over = (log_dir / MARKER).exists()
        found = differences(state.expected_again if is_over else brokers, started_broker(log_dir))
        assert found == [], f"killed before call {number}"


def test_killed_twice(state: State) -> None:
    for number in range(3, 60, 9 * state.stride):
        log_dir = state.fresh()
        for again in (number, number // 2 + 1):
            killed_at(again, lambda log_dir=log_dir: state.run(log_dir, thread_count=1))
        state.assert_nothing_is_lost(log_dir, f"killed before call {number}")
        state.run(log_dir)
        state.assert_same_end(log_dir, f"killed before call {number}")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["disk full", "I/O error"])
def test_a_call_that_fails_takes_the_dir_offline_and_the_next_run_comes_to_the_same_end(
    state: State, error: int
) -> None:
    number, has_failed = 0, True
    while has_failed:
        number += state.stride if error == errno.ENOSPC else 3 * state.stride
        log_dir = state.fresh()
        with failing_at(number, error) as failed:
            report = state.run(log_dir, thread_count=1)
        has_failed = bool(failed)
        where = f"call {number} failed: {failed}"
        if report.exit_code not in (0, 2):
            assert report.exit_code == 1, where
            assert report.log_dirs[0].status == "offline", where
            assert os.strerror(error) in str(report.log_dirs[0].error), where
            if (log_dir / MARKER).exists():
                state.assert_same_end(log_dir, where, is_over=False)
        state.assert_nothing_is_lost(log_dir, where)
        state.run(log_dir)
        state.assert_same_end(log_dir, where)
        assert manifest_errors(log_dir) == [], where


def test_a_run_stops_before_the_first_change_where_quarantine_cannot_be_written(state: State) -> None:
    log_dir = state.fresh()
    quarantine_of(log_dir).write_bytes(b"in the way")
    before = log_bytes(log_dir)
    report = state.run(log_dir)
    assert report.log_dirs[0].status == "offline"
    assert log_bytes(log_dir) == before
    quarantine_of(log_dir).unlink()
    state.run(log_dir)
    state.assert_same_end(log_dir, "after all")
