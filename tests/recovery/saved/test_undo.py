"""What `recover` has done is taken back: the tree as it was, byte for byte, or nothing at all."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from recovery.errors import JournalError, LogDirLockedError, UnsafeError, UsageError
from recovery.load.model import LogSettings
from recovery.plan.actions import action_words
from recovery.saved import run_undoing as module
from recovery.saved.undo import undo
from tests.damage.mutilate import DAMAGES, Victim, make_victim
from tests.faults.states import SINGLE_STATES as STATES
from tests.logs.quarantine_builder import NEW_RUN, RunBuilder, a_foreign_folder, a_log_dir
from tests.logs.samples import MARKER, Sample, differences, tree_of, unpack
from tests.recovery.logdir.test_lock import other_process
from tests.runs.driving import log_bytes, lost_batches, own_leftovers, quarantine_of, recover
from tests.runs.killing import killed_at

SEEDS = range(60)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sample]]:
    root = tmp_path_factory.mktemp("samples")
    yield [unpack(name, root) for name in ("crashed", "crashed-v0-v1", "intact")]
    shutil.rmtree(root)


def damaged(samples: list[Sample], seed: int, root: Path) -> tuple[Sample, Victim]:
    """A partition of a sample with up to three damages."""
    rng = random.Random(f"undo {seed}")
    sample = rng.choice(samples)
    folders = [
        folder
        for log_dir in sample.log_dirs
        for folder in sorted(log_dir.iterdir())
        if folder.is_dir() and not folder.name.startswith(("__cluster_metadata", "remote-log-index-cache"))
    ]
    victim = make_victim(sample, rng.choice(folders), root / "d1")
    for name in rng.choices(sorted(DAMAGES), k=rng.randint(1, 3)):
        DAMAGES[name](victim, rng)
    return sample, victim


def without_pending(tree: dict[str, bytes]) -> dict[str, bytes]:
    """The tree without `.deleted` files: a broker was about to unlink them, so they go for good."""
    return {name: data for name, data in tree.items() if not name.endswith(".deleted")}


def state_of(sample: Sample, name: str, root: Path) -> Victim:
    partition, damage = STATES[name]
    folder = next(log_dir / partition for log_dir in sample.log_dirs if (log_dir / partition).exists())
    victim = make_victim(sample, folder, root / "d1")
    damage(victim)
    return victim


class TestExactly:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_as_before(self, samples: list[Sample], seed: int, ram_path: Path) -> None:
        sample, victim = damaged(samples, seed, ram_path)
        before = without_pending(tree_of(victim.log_dir))
        recover(sample, [victim.log_dir])
        recovered = without_pending(tree_of(victim.log_dir))
        undo([str(victim.log_dir)])
        assert differences(before, without_pending(tree_of(victim.log_dir))) == []
        assert own_leftovers(victim.log_dir) == []
        assert not quarantine_of(victim.log_dir).exists()
        recover(sample, [victim.log_dir])
        assert differences(recovered, without_pending(tree_of(victim.log_dir))) == []

    @pytest.mark.parametrize("seed", range(8))
    def test_with_a_quarantine_on_another_file_system(
        self, samples: list[Sample], seed: int, ram_path: Path, tmp_path: Path
    ) -> None:
        sample, victim = damaged(samples, seed, ram_path)
        before = without_pending(tree_of(victim.log_dir))
        recover(sample, [victim.log_dir], quarantine_dir=str(tmp_path))
        undo([str(victim.log_dir)], quarantine_dir=str(tmp_path))
        assert differences(before, without_pending(tree_of(victim.log_dir))) == []
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["crashed", "crashed-v0-v1", "stopped"])
    def test_a_whole_sample(self, name: str, tmp_path: Path) -> None:
        sample = unpack(name, tmp_path)
        before = without_pending(tree_of(sample.root))
        recover(sample)
        assert without_pending(tree_of(sample.root)) != before
        undone = undo([str(log_dir) for log_dir in sample.log_dirs])
        assert differences(before, without_pending(tree_of(sample.root))) == []
        assert all(one.run is not None for one in undone)

    def test_pending_deletions_come_back_where_they_were_kept(
        self, samples: list[Sample], tmp_path: Path
    ) -> None:
        victim = make_victim(samples[0], samples[0].log_dirs[0] / "late-0", tmp_path / "d1")
        (victim.folder / "00000000000000000000.log.deleted").write_bytes(b"pending")
        (victim.folder / "00000000000000000000.index.deleted").write_bytes(b"")
        before = tree_of(victim.log_dir)
        recover(samples[0], [victim.log_dir], keep_deleted=True)
        undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []

    @pytest.mark.parametrize("keeps", [(True, True), (False, True), (True, False)])
    def test_a_second_run_that_keeps_what_the_first_has_deleted(
        self, samples: list[Sample], keeps: tuple[bool, bool], ram_path: Path
    ) -> None:
        victim = state_of(samples[0], "torn first segment", ram_path)
        before = without_pending(tree_of(victim.log_dir))
        for keep_deleted in keeps:
            recover(samples[0], [victim.log_dir], keep_deleted=keep_deleted)
        undo([str(victim.log_dir)])
        assert differences(before, without_pending(tree_of(victim.log_dir))) == []

    def test_a_pending_deletion_whose_name_was_taken_is_gone(
        self, samples: list[Sample], tmp_path: Path
    ) -> None:
        """A segment behind the cut gets the name of one that a broker was about to unlink."""
        victim = state_of(samples[0], "torn first segment", tmp_path)
        before = tree_of(victim.log_dir)
        for log in victim.logs()[1:]:
            for suffix in (".log", ".index"):
                log.with_name(f"{log.stem}{suffix}.deleted").write_bytes(b"pending")
        recover(samples[0], [victim.log_dir])
        assert list(victim.folder.glob("*.deleted"))
        undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []

    def test_an_empty_file_that_went_comes_back(self, samples: list[Sample], tmp_path: Path) -> None:
        """There is nothing of it to keep in quarantine."""
        victim = make_victim(samples[0], samples[0].log_dirs[0] / "late-0", tmp_path / "d1")
        (victim.folder / "00000000000000000000.log.cleaned").touch()
        before = tree_of(victim.log_dir)
        recover(samples[0], [victim.log_dir])
        assert not list(victim.folder.glob("*.cleaned"))
        undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []

    def test_what_is_put_back_is_told(self, samples: list[Sample], tmp_path: Path) -> None:
        victim = state_of(samples[0], "torn first segment", tmp_path)
        recover(samples[0], [victim.log_dir])
        (undone,) = undo([str(victim.log_dir)], dry_run=True)
        told = [action_words(action) for folder, action in undone.actions if folder == victim.folder.name]
        assert any(words.startswith("append ") and ".log at byte " in words for words in told), told
        assert any(words.startswith("restore ") for words in told), told

    def test_times_of_change_come_back(self, samples: list[Sample], tmp_path: Path) -> None:
        """Retention goes by them where a log has no timestamps."""
        victim = state_of(samples[0], "torn first segment", tmp_path)
        before = {path.name: path.stat().st_mtime_ns for path in victim.logs()}
        recover(samples[0], [victim.log_dir])
        undo([str(victim.log_dir)])
        assert {path.name: path.stat().st_mtime_ns for path in victim.logs()} == before

    @pytest.mark.parametrize("is_far", [False, True])
    def test_what_a_repair_has_moved_away(self, is_far: bool, tmp_path: Path, ram_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        log_dir = sample.log_dirs[0]
        (log_dir / "late-0" / "foreign.log").write_bytes(b"not Kafka's")
        (log_dir / "late-0" / "leader-epoch-checkpoint").write_bytes(b"rubbish")
        (log_dir / "recovery-point-offset-checkpoint").write_bytes(b"rubbish")
        if not is_far:
            (log_dir / "foreign").mkdir()
            (log_dir / "foreign" / "file").write_bytes(b"foreign")
        before = without_pending(tree_of(sample.root))
        place = str(ram_path) if is_far else None
        report = recover(sample, repair=True, quarantine_dir=place)
        assert report.exit_code in (0, 2)
        assert (log_dir / "late-0" / "foreign.log").exists() is False
        undo([str(one) for one in sample.log_dirs], quarantine_dir=place)
        assert differences(before, without_pending(tree_of(sample.root))) == []
        assert not any(quarantine_of(one).exists() for one in sample.log_dirs)

    def test_run_by_run(self, samples: list[Sample], tmp_path: Path) -> None:
        sample = samples[0]
        victim = state_of(sample, "torn first segment", tmp_path)
        trees = [without_pending(tree_of(victim.log_dir))]
        for _ in range(2):
            recover(sample, [victim.log_dir])
            trees.append(without_pending(tree_of(victim.log_dir)))
            log = victim.logs()[-1]
            os.truncate(log, log.stat().st_size - 3)
            (victim.log_dir / MARKER).unlink()
        recover(sample, [victim.log_dir])
        undo([str(victim.log_dir)])
        assert len(list(quarantine_of(victim.log_dir).iterdir())) == 2


class TestSecondNames:
    """What has another name in the folder, a link or a hard link that somebody made, changes with the segment."""

    @pytest.fixture(params=[os.symlink, os.link], ids=["link", "hard link"])
    def victim(self, samples: list[Sample], ram_path: Path, request: pytest.FixtureRequest) -> Victim:
        victim = state_of(samples[0], "torn first segment", ram_path)
        for path in list(victim.folder.iterdir()):
            request.param(path, path.with_name(f"{path.name}.txt"))
        return victim

    def test_is_nobodys_change(self, samples: list[Sample], victim: Victim) -> None:
        before = tree_of(victim.log_dir)
        report = recover(samples[0], [victim.log_dir])
        assert report.exit_code == 2
        undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []

    @pytest.mark.long
    def test_killed_and_gone_on_with(self, samples: list[Sample], victim: Victim) -> None:
        before = tree_of(victim.log_dir)
        number = 0
        for number in range(1, 1000, 4):
            if not killed_at(number, lambda: recover(samples[0], [victim.log_dir])):
                break
            if (victim.log_dir / MARKER).exists():
                break
            assert recover(samples[0], [victim.log_dir]).exit_code == 2
            undo([str(victim.log_dir)])
            assert differences(before, tree_of(victim.log_dir)) == [], f"killed at call {number}"
        assert number > 20


class TestSeveralRuns:
    """From the newest run back to the one that is meant: each leaves what those before it need."""

    @pytest.fixture(params=["beside", "on another file system"])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
        return None if request.param == "beside" else str(tmp_path / "elsewhere")

    @pytest.fixture
    def victim(self, samples: list[Sample], ram_path: Path) -> Victim:
        return state_of(samples[0], "torn first segment", ram_path)

    def test_a_cut_is_taken_back_over_a_run_that_changed_no_partition(
        self, samples: list[Sample], victim: Victim, place: str | None
    ) -> None:
        """A pod that starts twice: the second run drops what the first has called `.deleted`."""
        before, times = tree_of(victim.log_dir), times_of(victim.log_dir)
        for exit_code in (2, 0, 0):
            report = recover(samples[0], [victim.log_dir], quarantine_dir=place)
            assert report.exit_code == exit_code
        assert not list(victim.folder.glob("*.deleted"))
        undone = undo([str(victim.log_dir)], quarantine_dir=place)
        assert [one.partitions for one in undone] == [("late-1",), ("late-1",)]
        assert differences(before, tree_of(victim.log_dir)) == []
        assert times_of(victim.log_dir) == times
        (nothing,) = undo([str(victim.log_dir)], quarantine_dir=place)
        assert nothing.run is None

    @pytest.mark.parametrize("named", [0, 1, 2, None])
    def test_to_the_run_that_is_named(
        self, samples: list[Sample], victim: Victim, place: str | None, named: int | None
    ) -> None:
        trees, runs = self.recovered_three_times(samples[0], victim, place)
        run = None if named is None else runs[named]
        announced = undo([str(victim.log_dir)], quarantine_dir=place, run=run, dry_run=True)
        done = undo([str(victim.log_dir)], quarantine_dir=place, run=run)
        last = 2 if named is None else named
        for undone in (announced, done):
            assert [one.earlier_runs for one in undone] == [()] * (2 - last) + [tuple(reversed(runs[:last]))]
        assert [one.run for one in announced] == [one.run for one in done] == list(reversed(runs[last:]))
        assert [one.restored_bytes for one in announced] == [one.restored_bytes for one in done]
        assert [one.log_bytes for one in announced] == [one.log_bytes for one in done]
        assert differences(trees[last], without_pending(tree_of(victim.log_dir))) == []
        left = undo([str(victim.log_dir)], quarantine_dir=place, run=runs[0]) if last else ()
        assert [one.run for one in left] == list(reversed(runs[:last]))
        assert differences(trees[0], without_pending(tree_of(victim.log_dir))) == []

    def test_none_is_taken_back_where_one_cannot_be(
        self, samples: list[Sample], victim: Victim, place: str | None
    ) -> None:
        def change_a_log() -> None:
            with victim.logs()[-1].open("ab") as log:
                log.write(b"x")

        _, runs = self.recovered_three_times(samples[0], victim, place, after_the_first=change_a_log)
        before = tree_of(victim.log_dir.parent)
        with pytest.raises(UnsafeError, match=f"changed since run {runs[0]} .*log. Nothing was changed"):
            undo([str(victim.log_dir)], quarantine_dir=place, run=runs[0])
        assert differences(before, tree_of(victim.log_dir.parent)) == []
        assert len(undo([str(victim.log_dir)], quarantine_dir=place, run=runs[1])) == 2

    @staticmethod
    def recovered_three_times(
        sample: Sample, victim: Victim, place: str | None, after_the_first: Callable[[], None] = lambda: None
    ) -> tuple[list[dict[str, bytes]], list[str]]:
        """Recover with another index interval each time; return what was there before each run, and their names."""
        trees, runs = [], []
        for interval in (4096, 1 << 20, 4096):
            trees.append(without_pending(tree_of(victim.log_dir)))
            settings = LogSettings(index_interval_bytes=interval)
            report = recover(
                sample,
                [victim.log_dir],
                quarantine_dir=place,
                force=True,
                settings_of_topics=lambda _topic, settings=settings: settings,
            )
            runs.append(os.path.basename(report.log_dirs[0].quarantine or ""))
            if len(runs) == 1:
                after_the_first()
        assert len(set(runs)) == 3
        return trees, runs

    @pytest.mark.long
    def test_killed_between_two_runs(self, samples: list[Sample], victim: Victim, ram_path: Path) -> None:
        before = tree_of(victim.log_dir)
        original = shutil.copytree(victim.log_dir, ram_path / "original")
        for number in range(1, 400, 3):
            for path in (victim.log_dir, quarantine_of(victim.log_dir)):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(original, victim.log_dir)
            for _ in range(2):
                recover(samples[0], [victim.log_dir])
            if not killed_at(number, lambda: undo([str(victim.log_dir)])):
                break
            undo([str(victim.log_dir)])
            assert differences(before, tree_of(victim.log_dir)) == [], number
            assert own_leftovers(victim.log_dir) == []
            assert not quarantine_of(victim.log_dir).exists(), (
                number,
                list(quarantine_of(victim.log_dir).rglob("*")),
            )
        assert number > 50


class TestARunThatNobodyWentOnWith:
    """It was killed, and the next one began anew: what the first has changed is in its account all the same."""

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["torn first segment", "interrupted compaction", "overflowed segment"])
    @pytest.mark.parametrize("is_elsewhere", [False, True], ids=["restart", "another quarantine"])
    def test_all_of_it_is_taken_back(
        self, samples: list[Sample], name: str, is_elsewhere: bool, ram_path: Path
    ) -> None:
        victim = state_of(samples[0], name, ram_path)
        before, logs = tree_of(victim.log_dir), log_bytes(victim.log_dir)
        original = shutil.copytree(victim.log_dir, ram_path / "original")
        place = str(ram_path / "elsewhere") if is_elsewhere else None
        count = 0
        for number in range(1, 400, 3):
            for path in (victim.log_dir, quarantine_of(victim.log_dir), ram_path / "elsewhere"):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(original, victim.log_dir)
            if not killed_at(number, lambda: recover(samples[0], [victim.log_dir])):
                break
            recover(samples[0], [victim.log_dir], restart=not is_elsewhere, quarantine_dir=place)
            if is_elsewhere and (quarantine_of(victim.log_dir) / "journal").exists():
                recover(samples[0], [victim.log_dir])  # it had all but ended
            for one in [place, None] if is_elsewhere else [None]:
                while undo([str(victim.log_dir)], quarantine_dir=one)[0].run is not None:
                    saved = [quarantine_of(victim.log_dir), ram_path / "elsewhere"]
                    assert not lost_from_all(logs, victim.log_dir, saved), number
                    count += 1
            assert differences(without_pending(before), without_pending(tree_of(victim.log_dir))) == [], (
                number
            )
        assert count > 20

    def test_what_its_account_does_not_say_is_not_thrown_away(
        self, samples: list[Sample], ram_path: Path
    ) -> None:
        victim = state_of(samples[0], "torn first segment", ram_path)
        recover(samples[0], [victim.log_dir])
        (manifest,) = quarantine_of(victim.log_dir).glob("*/manifest.jsonl")
        lines = manifest.read_text().splitlines()
        manifest.write_text(
            "".join(f"{line}\n" for line in lines if '"kind": "change"' not in line or "log-dir" in line)
        )
        found = tree_of(victim.log_dir.parent)
        with pytest.raises(
            UnsafeError, match=r"its manifest does not say.*Nothing was changed\. Remedy: .* put back by hand"
        ):
            undo([str(victim.log_dir)])
        assert differences(found, tree_of(victim.log_dir.parent)) == []

    def test_one_that_changed_nothing_is_in_nobodys_way(self, samples: list[Sample], ram_path: Path) -> None:
        victim = state_of(samples[0], "torn first segment", ram_path)
        before = tree_of(victim.log_dir)
        with mock.patch("recovery.write.apply.stage", side_effect=OSError(errno.EIO, "Input/output error")):
            assert recover(samples[0], [victim.log_dir]).exit_code == 1
        assert list(quarantine_of(victim.log_dir).glob("*/manifest.jsonl"))
        recover(samples[0], [victim.log_dir], restart=True)
        while undo([str(victim.log_dir)])[0].run is not None:
            pass
        assert differences(before, tree_of(victim.log_dir)) == []


def lost_from_all(logs: dict[str, bytes], log_dir: Path, places: list[Path]) -> set[str]:
    """The batches that are neither live nor in one of the quarantines."""
    return set.intersection(*(set(lost_batches(logs, log_dir, place)) for place in places))


class TestFound:
    """Quarantine is found where `quarantine list` finds it, whoever asks and by whatever name."""

    def test_by_a_link(self, samples: list[Sample], tmp_path: Path) -> None:
        victim = state_of(samples[0], "torn first segment", tmp_path / "real")
        before = tree_of(victim.log_dir)
        link = tmp_path / "link"
        link.symlink_to(victim.log_dir)
        recover(samples[0], [link])
        (undone,) = undo([str(victim.log_dir)])
        assert undone.run is not None
        assert differences(before, tree_of(victim.log_dir)) == []
        recover(samples[0], [victim.log_dir])
        (undone,) = undo([str(link)])
        assert undone.run is not None
        assert differences(before, tree_of(victim.log_dir)) == []

    def test_beside_a_log_dir_whose_parent_may_not_be_written(
        self, samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        victim = state_of(samples[0], "torn first segment", tmp_path)
        before = tree_of(victim.log_dir)
        recover(samples[0], [victim.log_dir])
        assert quarantine_of(victim.log_dir).exists()
        parent = str(victim.log_dir.parent)
        allowed = os.access
        monkeypatch.setattr(
            os, "access", lambda path, *mode: os.fspath(path) != parent and allowed(path, *mode)
        )
        (undone,) = undo([str(victim.log_dir)])
        assert undone.run is not None
        assert differences(before, tree_of(victim.log_dir)) == []


def times_of(log_dir: Path) -> dict[str, int]:
    """When the segments and their indexes were changed."""
    return {str(path.relative_to(log_dir)): path.stat().st_mtime_ns for path in log_dir.glob("*/0*")}


class TestRefused:
    """Nothing is touched where the log dir is not as the recovery has left it."""

    @pytest.fixture
    def victim(self, samples: list[Sample], tmp_path: Path) -> Victim:
        victim = state_of(samples[0], "torn first segment", tmp_path)
        recover(samples[0], [victim.log_dir])
        return victim

    @pytest.mark.parametrize("change", ["appended", "started", "saved"])
    def test_changed_since(self, victim: Victim, change: str) -> None:
        if change == "appended":
            with victim.logs()[-1].open("ab") as log:
                log.write(b"x")
        elif change == "started":
            (victim.log_dir / MARKER).unlink()
        else:
            next(quarantine_of(victim.log_dir).rglob("*.log.from-*")).write_bytes(b"rubbish")
        before = tree_of(victim.log_dir.parent)
        with pytest.raises(UnsafeError, match="Nothing was changed"):
            undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir.parent)) == []

    def test_one_dir_that_has_changed_keeps_all_as_they_are(self, tmp_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        recover(sample)
        (sample.log_dirs[1] / MARKER).unlink()
        before = tree_of(sample.root)
        with pytest.raises(UnsafeError, match="changed since"):
            undo([str(log_dir) for log_dir in sample.log_dirs])
        assert differences(before, tree_of(sample.root)) == []

    def test_a_recovery_that_is_not_finished(self, samples: list[Sample], tmp_path: Path) -> None:
        victim = state_of(samples[0], "torn first segment", tmp_path)
        assert killed_at(40, lambda: recover(samples[0], [victim.log_dir], thread_count=1))
        with pytest.raises(
            UnsafeError, match=r"interrupted \(.*/journal\).*let recover finish it, then undo"
        ):
            undo([str(victim.log_dir)])

    def test_what_is_no_journal_is_no_interrupted_recovery(self, victim: Victim) -> None:
        os.mkfifo(quarantine_of(victim.log_dir) / "journal")
        with pytest.raises(JournalError, match="not a regular file, so not a journal of this tool"):
            undo([str(victim.log_dir)])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("stored", "../../../etc/passwd"),
            ("partition", ".."),
            ("file", "../x"),
            ("stored", "/etc/passwd"),
            ("file", 7),
        ],
    )
    def test_a_manifest_that_leads_elsewhere(self, victim: Victim, key: str, value: object) -> None:
        (manifest,) = quarantine_of(victim.log_dir).glob("*/manifest.jsonl")
        lines = [json.loads(line) for line in manifest.read_text().splitlines()]
        next(line for line in lines if line["kind"] == "tail")[key] = value
        manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
        before = tree_of(victim.log_dir)
        with pytest.raises(UnsafeError, match="not of this tool"):
            undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []

    def test_a_locked_dir(self, victim: Victim) -> None:
        with other_process(victim.log_dir / ".lock"), pytest.raises(LogDirLockedError):
            undo([str(victim.log_dir)])

    def test_an_unknown_run(self, victim: Victim) -> None:
        with pytest.raises(UsageError, match="no run 2020"):
            undo([str(victim.log_dir)], run="2020")

    def test_a_run_of_some_log_dirs(self, victim: Victim, samples: list[Sample]) -> None:
        """The others have nothing of it to take back."""
        (name,) = (path.name for path in quarantine_of(victim.log_dir).iterdir())
        other = samples[2].log_dirs[0]
        before = tree_of(other)
        results = undo([str(victim.log_dir), str(other)], run=name)
        assert [(one.log_dir, one.run) for one in results] == [
            (str(victim.log_dir), name),
            (str(other), None),
        ]
        assert differences(before, tree_of(other)) == []

    def test_nothing_to_take_back(self, samples: list[Sample]) -> None:
        (one,) = undo([str(samples[2].log_dirs[0])])
        assert one.run is None


class TestAFolderThatWasMoved:
    """It comes back as it was, or as it is by the operator's own hand."""

    @pytest.fixture
    def log_dir(self, tmp_path: Path) -> Path:
        return a_log_dir(tmp_path / "d1")

    @pytest.fixture
    def builder(self, tmp_path: Path, log_dir: Path) -> RunBuilder:
        return RunBuilder(tmp_path / "d1.quarantine", NEW_RUN, log_dir)

    @pytest.fixture
    def moved(self, builder: RunBuilder, log_dir: Path) -> Path:
        return builder.move(a_foreign_folder(log_dir))

    def refused(self, log_dir: Path, match: str) -> None:
        before = tree_of(log_dir.parent)
        for dry_run in (True, False):
            with pytest.raises(
                UnsafeError, match=rf"(?s){match}.*Nothing was changed\. Remedy: .* by hand to "
            ):
                undo([str(log_dir)], dry_run=dry_run)
        assert differences(before, tree_of(log_dir.parent)) == []

    def back(self, log_dir: Path) -> None:
        undo([str(log_dir)])
        assert (log_dir / "topic").is_dir()
        assert not quarantine_of(log_dir).exists()

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"12346", "a: its SHA-256 is not the one in the manifest"),
            (b"1234", "a: 4 bytes instead of 5"),
            (None, "a: missing"),
        ],
    )
    def test_a_file_in_it_is_another(
        self, moved: Path, log_dir: Path, data: bytes | None, problem: str
    ) -> None:
        (moved / "a").unlink() if data is None else (moved / "a").write_bytes(data)
        self.refused(log_dir, problem)
        (moved / "a").write_bytes(b"12345")
        self.back(log_dir)

    def test_what_is_changed_comes_back_by_hand(self, moved: Path, log_dir: Path) -> None:
        (moved / "a").write_bytes(b"12346")
        self.refused(log_dir, "a: its SHA-256")
        moved.rename(log_dir / "topic")
        self.back(log_dir)

    def test_what_is_new_or_no_file_is_no_reason(self, moved: Path, log_dir: Path) -> None:
        (moved / "pipe").unlink()
        (moved / "deep" / "empty").rmdir()
        (moved / "deep" / "new").mkdir()
        (moved / "deep" / "new" / "file").write_bytes(b"new")
        self.back(log_dir)
        assert (log_dir / "topic" / "deep" / "new" / "file").read_bytes() == b"new"

    def test_all_of_it_is_gone(self, moved: Path, log_dir: Path) -> None:
        shutil.rmtree(moved)
        self.refused(log_dir, "log-dir/topic: missing")
        (log_dir / "topic").mkdir()
        self.back(log_dir)

    def test_a_line_before_the_one_that_it_was_moved_by_counts_for_nothing(
        self, builder: RunBuilder, moved: Path, log_dir: Path
    ) -> None:
        """The run was killed in between."""
        moved.rename(log_dir / "topic")
        (log_dir / "topic" / "a").write_bytes(b"changed")
        builder.move(log_dir / "topic")
        self.back(log_dir)
        assert (log_dir / "topic" / "a").read_bytes() == b"changed"

    def test_a_run_that_was_killed_before_a_newer_one_has_moved_it(
        self, builder: RunBuilder, moved: Path, log_dir: Path
    ) -> None:
        moved.rename(log_dir / "topic")
        RunBuilder(builder.root, "20261122T000000Z", log_dir).move(log_dir / "topic")
        undo([str(log_dir)], run=NEW_RUN)
        assert (log_dir / "topic" / "a").exists()
        assert not builder.root.exists()

    def test_an_earlier_version_has_listed_nothing(
        self, builder: RunBuilder, moved: Path, log_dir: Path
    ) -> None:
        line = json.loads((builder.path / "manifest.jsonl").read_text())
        del line["contents"], line["moved"]
        (builder.path / "manifest.jsonl").write_text(json.dumps(line) + "\n")
        (moved / "a").write_bytes(b"12346")
        self.back(log_dir)

    def test_an_undo_that_was_killed_behind_it_goes_on(
        self, moved: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            error = OSError(errno.EIO, "killed here")
            patch.setattr(module, "sync_below", mock.Mock(side_effect=[None, error]))
            with pytest.raises(OSError, match="killed here"):
                undo([str(log_dir)])
        assert (log_dir / "topic").is_dir()
        self.back(log_dir)


class TestDryRun:
    def test_it_changes_nothing_and_says_what_is_then_done(
        self, samples: list[Sample], tmp_path: Path
    ) -> None:
        victim = state_of(samples[0], "torn with transactions", tmp_path)
        recover(samples[0], [victim.log_dir])
        before = tree_of(tmp_path)
        (announced,) = undo([str(victim.log_dir)], dry_run=True)
        assert differences(before, tree_of(tmp_path)) == []
        (done,) = undo([str(victim.log_dir)])
        assert set(announced.actions) <= set(done.actions)
        assert announced.restored_bytes == done.restored_bytes
        assert announced.log_bytes == done.log_bytes
        assert done.partitions == ("transactions-1",)


class TestKilled:
    @pytest.mark.long
    @pytest.mark.parametrize("name", STATES)
    def test_the_next_one_goes_on(self, samples: list[Sample], name: str, ram_path: Path) -> None:
        victim = state_of(samples[0], name, ram_path)
        before = without_pending(tree_of(victim.log_dir))
        original = shutil.copytree(victim.log_dir, ram_path / "original")
        number, is_alive = 0, False
        while not is_alive:
            number += 3
            for place in (victim.log_dir, quarantine_of(victim.log_dir)):
                shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(original, victim.log_dir)
            recover(samples[0], [victim.log_dir])
            is_alive = not killed_at(number, lambda: undo([str(victim.log_dir)]))
            if not is_alive and (quarantine_of(victim.log_dir) / "undo").exists():
                with pytest.raises(
                    UnsafeError,
                    match=f"let it finish first: kafka-log-recovery undo --log-dirs {victim.log_dir}$",
                ):
                    recover(samples[0], [victim.log_dir])
            undo([str(victim.log_dir)])
            assert differences(before, without_pending(tree_of(victim.log_dir))) == [], number
            assert own_leftovers(victim.log_dir) == []
        assert number > 10

    @pytest.mark.parametrize("kept_count", range(4))
    def test_a_quarantine_that_is_half_removed_is_not_asked_again(
        self, samples: list[Sample], kept_count: int, ram_path: Path, monkeypatch
    ) -> None:
        def remove_some(root: str, run: str) -> None:
            files = [path for path in Path(root, run).rglob("*") if path.is_file()]
            files.sort(key=lambda path: (path.name != "manifest.jsonl", path))  # it goes last
            for path in files[kept_count:]:
                path.unlink()
            raise OSError(errno.EIO, "Input/output error", run)

        victim = state_of(samples[0], "torn first segment", ram_path)
        before = tree_of(victim.log_dir)
        recover(samples[0], [victim.log_dir])
        with monkeypatch.context() as patch:
            patch.setattr(module, "remove_undone", remove_some)
            with pytest.raises(OSError, match="Input/output error"):
                undo([str(victim.log_dir)])
        undo([str(victim.log_dir)])
        assert differences(before, tree_of(victim.log_dir)) == []
        assert own_leftovers(victim.log_dir) == []
        assert not quarantine_of(victim.log_dir).exists()


class TestAnAccountThatLostSomething:
    """A line, a bit or the whole manifest is gone, or the journal was: no cut is passed over, no byte thrown away."""

    @pytest.fixture
    def victim(self, samples: list[Sample], ram_path: Path) -> Victim:
        victim = state_of(samples[0], "torn first segment", ram_path / "place")
        recover(samples[0], [victim.log_dir])
        return victim

    @staticmethod
    def manifest_of(victim: Victim) -> Path:
        (manifest,) = quarantine_of(victim.log_dir).glob("*/manifest.jsonl")
        return manifest

    @pytest.mark.parametrize(
        "harm",
        [
            lambda line: line.replace(b"{", b"[", 1),
            lambda line: line.replace(b'"kind": "tail"', b'"kind": "tahl"'),
            lambda line: line.replace(b'"position": ', b'"position": 1'),
            lambda line: b"",
        ],
        ids=["bracket", "kind", "position", "line"],
    )
    def test_a_line_about_a_tail(self, victim: Victim, harm: Callable[[bytes], bytes]) -> None:
        manifest = self.manifest_of(victim)
        lines = manifest.read_bytes().splitlines(keepends=True)
        manifest.write_bytes(b"".join(harm(line) if b'"kind": "tail"' in line else line for line in lines))
        before = tree_of(victim.log_dir.parent)
        with pytest.raises(UnsafeError, match="Nothing was changed"):
            undo([str(victim.log_dir)])
        assert tree_of(victim.log_dir.parent) == before

    def test_each_bit_of_a_line_about_a_tail(self, victim: Victim, ram_path: Path) -> None:
        manifest, rng = self.manifest_of(victim), random.Random("bits")
        data = manifest.read_bytes()
        begin = data.rfind(b"\n", 0, data.index(b'"kind": "tail"')) + 1
        end = data.index(b"\n", begin)
        whole = ram_path / "whole"
        shutil.copytree(victim.log_dir.parent, whole, symlinks=True)
        logs = log_bytes(victim.log_dir)
        for _ in range(60):
            place = rng.randrange(begin, end)
            changed = bytearray(data)
            changed[place] ^= 1 << rng.randrange(8)
            manifest.write_bytes(changed)
            try:
                undo([str(victim.log_dir)])
            except (UnsafeError, LogDirLockedError):
                pass
            else:
                found = {
                    path: blob for path, blob in tree_of(victim.log_dir).items() if path.endswith(".log")
                }
                assert not any(blob.endswith(bytes(8)) for blob in found.values()), f"{place}"
            assert lost_batches(logs, victim.log_dir) == []
            shutil.rmtree(victim.log_dir.parent)
            shutil.copytree(whole, victim.log_dir.parent, symlinks=True)

    def test_all_of_the_manifest(self, victim: Victim) -> None:
        self.manifest_of(victim).unlink()
        before = tree_of(victim.log_dir.parent)
        with pytest.raises(UnsafeError, match="no line of the manifest says what was done with it"):
            undo([str(victim.log_dir)])
        assert tree_of(victim.log_dir.parent) == before

    def test_the_journal_between_a_kill_and_the_next_run(self, samples: list[Sample], ram_path: Path) -> None:
        """The next run takes what the first one left for how it was."""
        refused = 0
        for number in range(1, 1000, 5):
            root = ram_path / f"{number}"
            victim = state_of(samples[0], "torn first segment", root)
            before, logs = tree_of(victim.log_dir), log_bytes(victim.log_dir)
            if not killed_at(number, lambda: recover(samples[0], [victim.log_dir])):  # noqa: B023
                break
            journal = quarantine_of(victim.log_dir) / "journal"
            if journal.exists():
                os.truncate(journal, journal.stat().st_size * 2 // 3)
                if (victim.log_dir / MARKER).exists():
                    break
                try:
                    recover(samples[0], [victim.log_dir])
                    undo([str(victim.log_dir)])
                except (UnsafeError, JournalError):
                    refused += 1
                else:
                    after = without_pending(tree_of(victim.log_dir))
                    wrong = differences(without_pending(before), after)
                    assert [words for words in wrong if ".log:" in words] == [], f"killed at call {number}"
            assert lost_batches(logs, victim.log_dir) == []
            shutil.rmtree(root)
        assert refused > 0
