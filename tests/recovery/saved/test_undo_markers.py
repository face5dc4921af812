"""The clean-shutdown marker comes back with what is taken back, whatever had become of it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from recovery.saved.undo import undo
from tests.damage.mutilate import Victim
from tests.logs.samples import MARKER, differences, tree_of, unpack
from tests.recovery.saved.test_undo import state_of, times_of
from tests.runs.driving import recover
from tests.runs.killing import killed_at


@pytest.mark.parametrize("name", ["intact", "stopped"])
def test_a_repair_of_a_clean_log_dir_leaves_its_marker(name: str, ram_path: Path) -> None:
    sample = unpack(name, ram_path)
    log_dir = sample.log_dirs[0]
    assert (log_dir / MARKER).exists()
    (log_dir / "foreign").mkdir()
    before, times = tree_of(log_dir), times_of(log_dir)
    assert recover(sample, [log_dir], repair=True).exit_code == 0
    assert (log_dir / MARKER).exists()
    undo([str(log_dir)])
    assert differences(before, tree_of(log_dir)) == []
    assert times_of(log_dir) == times


def test_a_marker_that_a_killed_run_had_removed(ram_path: Path) -> None:
    """The next run, which hands nothing over, enters that it is gone, so that it comes back."""
    crashed = unpack("crashed", ram_path / "samples")
    options = {"keep_deleted": True, "handoff": "none"}

    def run(victim: Victim) -> None:
        recover(crashed, [victim.log_dir], **options)

    number, is_killed = 0, True
    while is_killed:
        number += 1
        victim = state_of(crashed, "torn first segment", ram_path / str(number))
        (victim.log_dir / MARKER).write_text('{"version":0,"brokerEpoch":-1}')
        (victim.folder / "00000000000000000000.log.deleted").write_bytes(b"pending")
        before, times = tree_of(victim.log_dir), times_of(victim.log_dir)
        is_killed = killed_at(number, partial(run, victim))
        run(victim)
        while undo([str(victim.log_dir)])[0].run is not None:
            pass  # one killed at its end had done all, and the next one was another run
        assert differences(before, tree_of(victim.log_dir)) == [], number
        assert times_of(victim.log_dir) == times, number
        shutil.rmtree(victim.log_dir)
    assert number > 15
