"""Recovery on file systems that are not as an ordinary disk: overlays, whose files change their inodes when touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from recovery.saved.undo import undo
from tests.faults.states import MADE_STATES, State
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack, write_tree
from tests.recovery.saved.test_undo import without_pending
from tests.runs.driving import log_bytes, lost_batches, quarantine_of, recover
from tests.runs.killing import killed_at
from tests.servers.file_systems import overlay
from tests.servers.machine import MOUNTS, OVERLAYS, needs

pytestmark = pytest.mark.long

STATES = [state for state in MADE_STATES.values() if state.sample == "crashed"]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    root = tmp_path_factory.mktemp("samples")
    return {name: unpack(name, root) for name in ("crashed", "crashed-v0-v1")}


@pytest.fixture
def made(
    samples: dict[str, Sample], ram_path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[State, Path, Path]]:
    """A damaged state twice: on an ordinary file system, and on an overlay."""
    state: State = request.param
    plain = ram_path / "plain"
    plain.mkdir()
    state.make(samples, plain)
    with overlay(tmp_path / "overlay", plain) as merged:
        yield state, plain, merged


@needs(MOUNTS, OVERLAYS)
@pytest.mark.parametrize("made", STATES, indirect=True, ids=lambda state: state.name)
@pytest.mark.parametrize("is_beside", [True, False], ids=["quarantine beside", "quarantine elsewhere"])
class TestOverlay:
    def test_the_same_end_and_back(
        self, samples: dict[str, Sample], made: tuple[State, Path, Path], is_beside: bool, ram_path: Path
    ) -> None:
        state, plain, merged = made
        sample = samples[state.sample]
        place = None if is_beside else str(ram_path / "elsewhere")
        wanted = recover(sample, state.paths(plain))
        log_dirs = state.paths(merged)
        before = {log_dir: (tree_of(log_dir), log_bytes(log_dir)) for log_dir in log_dirs}
        report = recover(sample, log_dirs, quarantine_dir=place)
        assert report.exit_code == wanted.exit_code
        for log_dir, plain_dir in zip(log_dirs, state.paths(plain), strict=True):
            assert differences(tree_of(plain_dir), tree_of(log_dir)) == []
        undo(map(str, log_dirs), quarantine_dir=place)
        for log_dir, (tree, logs) in before.items():
            assert differences(without_pending(tree), tree_of(log_dir)) == []
            assert lost_batches(logs, log_dir) == []


KILLED = ["torn first segment", "interrupted compaction", "overflowed segment", "log start beyond the end"]


@needs(MOUNTS, OVERLAYS)
@pytest.mark.parametrize("made", [MADE_STATES[name] for name in KILLED], indirect=True, ids=KILLED)
def test_a_run_that_is_killed_on_an_overlay_is_gone_on_with(
    samples: dict[str, Sample], made: tuple[State, Path, Path], ram_path: Path
) -> None:
    """The next run knows by names what is done: every file that was touched has another inode."""
    state, plain, merged = made
    sample = samples[state.sample]
    recover(sample, state.paths(plain))
    wanted = [without_pending(tree_of(log_dir)) for log_dir in state.paths(plain)]
    whole = [tree_of(log_dir) for log_dir in state.paths(merged)]
    number = 0
    for number in range(1, 1000, 3):
        log_dirs = state.paths(merged)
        before = [log_bytes(log_dir) for log_dir in log_dirs]
        if not killed_at(number, partial(recover, sample, log_dirs)):
            break
        if all((log_dir / MARKER).exists() for log_dir in log_dirs):
            break  # handed over: the next run is another one
        report = recover(sample, log_dirs)
        assert report.exit_code in (0, 2)
        for log_dir, tree, logs in zip(log_dirs, wanted, before, strict=True):
            left = without_pending(tree_of(log_dir))  # of a run that was all but over the next one drops them
            assert differences(tree, left) == [], f"killed at call {number}"
            assert lost_batches(logs, log_dir) == []
        for log_dir, tree in zip(log_dirs, whole, strict=True):
            shutil.rmtree(quarantine_of(log_dir), ignore_errors=True)
            shutil.rmtree(log_dir)
            write_tree(tree, log_dir)
    assert number > 20


class TestAFileSystemThatLies:
    """A call returns, and nothing was done: the folder is not what the commit says, so nothing is handed over."""

    @pytest.mark.parametrize("call", ["rename", "ftruncate", "unlink"])
    def test_is_found(
        self, samples: dict[str, Sample], call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = MADE_STATES["torn first segment"]
        state.make(samples, tmp_path)
        (log_dir,) = state.paths(tmp_path)
        genuine, told = getattr(os, call), []

        def pretended(*arguments: object, **options: object) -> None:
            name = os.readlink(f"/proc/self/fd/{arguments[0]}") if call == "ftruncate" else str(arguments[0])
            if name.endswith((".log", ".snapshot")) and "quarantine" not in name and not told:
                told.append(os.path.basename(name))
                return None
            return genuine(*arguments, **options)

        monkeypatch.setattr(os, call, pretended)
        report = recover(samples[state.sample], [log_dir])
        monkeypatch.undo()
        assert told
        (of_dir,) = report.log_dirs
        assert (of_dir.status, of_dir.marker, report.exit_code) == ("offline", False, 1)
        assert told[0] in str(of_dir.error)
        assert "failed" in {partition.status for partition in of_dir.partitions}
        assert recover(samples[state.sample], [log_dir]).exit_code == 2
