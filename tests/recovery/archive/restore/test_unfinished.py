"""A restore that was killed while it moved folders in, and what a broker did before it goes on, without a broker."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoredPartition, RestoreReport
from recovery.archive.restore.run import restore
from recovery.engine.api import recover
from recovery.engine.options import RecoverOptions
from recovery.errors import UnsafeError
from recovery.saved.purge import purge
from recovery.saved.undo import undo
from recovery.write.move_in import STAGE_FOLDER, finish_move_in
from recovery.write.quarantine import Quarantine
from segfmt.checkpoint import encode_offset_checkpoint, read_offset_checkpoint
from segfmt.record_batch import read_record_batch_header
from tests import ROOT
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.faults.killed import KillPoint
from tests.logs.samples import read_properties, tree_of
from tests.patience import LONGEST_WAIT_SECONDS

NAMES = ("codecs-0", "plain-0")
"""Both go into the second log dir, in this order."""
AMID_FETCH = KillPoint(event="os.rename", path=rf"{STAGE_FOLDER}/log-dir/codecs-0/\d+\.log$", number=4)
BEFORE_FOLDERS = KillPoint(event="os.rename", path=rf"{STAGE_FOLDER}/log-dir/codecs-0$")
BETWEEN_FOLDERS = KillPoint(event="os.rename", path=rf"{STAGE_FOLDER}/log-dir/plain-0$")
BEFORE_LINES = KillPoint(event="os.rename", path="/d2/recovery-point-offset-checkpoint", number=2)
AMID_LINES = KillPoint(event="os.rename", path="/d2/replication-offset-checkpoint", number=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Log dirs whose second one has empty folders of partitions that are archived."""

    archive: TieredArchive

    @property
    def log_dir(self) -> Path:
        return self.archive.log_dirs[1]

    def options(self) -> RestoreOptions:
        config = read_properties((self.archive.root / "server.properties").read_text())
        return RestoreOptions(
            archive=ArchiveOptions(
                url=str(self.archive.path), partitions=NAMES, metadata=tuple(map(str, self.archive.log_dirs))
            ),
            broker=RecoverOptions(config=config, is_config_complete=True),
        )

    def killed(self, point: KillPoint, *options: str) -> None:
        """Start a restore that kills itself."""
        archive, words = self.archive, [word for name in NAMES for word in ("--partition", name)]
        metadata = ",".join(map(str, archive.log_dirs))
        command = [*point.command(), "archive", "restore", str(archive.path)]
        command += ["-c", str(archive.root / "server.properties"), "--metadata", metadata, *words, *options]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_WAIT_SECONDS
        )
        assert done.returncode == -9, done.stderr[-2000:]

    def restored(self) -> tuple[RestoreReport, Mapping[str, RestoredPartition]]:
        report = restore(self.options())
        return report, {f"{one.topic}-{one.partition}": one for one in report.partitions}

    def folder_of_a_broker(self, name: str, *, data: bytes = b"", log_dir: Path | None = None) -> Path:
        """Make the folder of a partition as a broker that knows of none does, perhaps with records."""
        folder = (log_dir or self.log_dir) / name
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(data)
        shutil.copyfile(
            self.archive.root / "kept" / name / "partition.metadata", folder / "partition.metadata"
        )
        return folder

    def trees(self) -> list[dict[str, bytes]]:
        return [tree_of(log_dir, ignore=(".lock",)) for log_dir in self.archive.log_dirs]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(archive=unpack_tiered(tmp_path))
    for name in NAMES:
        for log_dir in made.archive.log_dirs:
            if (log_dir / name).is_dir():
                (made.archive.root / "kept").mkdir(exist_ok=True)
                (log_dir / name).rename(made.archive.root / "kept" / name)
        made.folder_of_a_broker(name)
    return made


def test_lines_never_stand_beside_another_log(bench: Bench) -> None:
    """Neither those of the logs to come before these are there, nor those of the logs that have gone."""
    starts = bench.log_dir / "log-start-offset-checkpoint"
    lines = read_offset_checkpoint(starts.read_bytes())
    starts.write_bytes(encode_offset_checkpoint(lines | {("plain", 0): 9}))
    for point in (BEFORE_FOLDERS, BETWEEN_FOLDERS, BEFORE_LINES):
        if point is not BEFORE_FOLDERS:
            assert bench.restored()[0].exit_code == 0
            undo([str(log_dir) for log_dir in bench.archive.log_dirs])
        bench.killed(point)
        for path in bench.log_dir.glob("*-offset-checkpoint"):
            found = read_offset_checkpoint(path.read_bytes())
            assert not {("plain", 0), ("codecs", 0)} & found.keys(), path


@pytest.mark.parametrize("batches", [0, 1])
def test_a_staged_log_that_lost_bytes_is_fetched_again(bench: Bench, batches: int) -> None:
    """By a power failure: nothing is synced before it has its name. Between batches no check would find it short."""
    bench.killed(AMID_FETCH, "--threads", "1")
    staged = sorted((bench.log_dir / STAGE_FOLDER / "log-dir" / "codecs-0").glob("*.log"))
    assert len(staged) > 2
    data = staged[1].read_bytes()
    staged[1].write_bytes(data[: batches * read_record_batch_header(data, 0).size_bytes])
    report, found = bench.restored()
    assert report.exit_code == 0
    (warning,) = found["codecs-0"].warnings
    assert warning.startswith("this broker's log had offsets 2086 to 2174, by ")
    archived = {path.name[:20]: path.read_bytes() for path in bench.archive.path.glob("codecs-0-*/*.log")}
    assert {path.stem: path.read_bytes() for path in (bench.log_dir / "codecs-0").glob("*.log")} == archived


def test_it_goes_on_once_all_is_moved_in_without_the_stage(bench: Bench) -> None:
    """Somebody has removed it, and `recover`, `undo` and a purge wait for that."""
    before = bench.trees()
    bench.killed(BEFORE_LINES)
    shutil.rmtree(bench.log_dir / STAGE_FOLDER / "log-dir")
    report, _ = bench.restored()
    assert report.exit_code == 0, report.to_text()
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


@pytest.mark.parametrize("point", [BEFORE_FOLDERS, BETWEEN_FOLDERS, BEFORE_LINES, AMID_LINES])
def test_undo_takes_both_runs_back(bench: Bench, point: KillPoint) -> None:
    before = bench.trees()
    bench.killed(point)
    report, _ = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert bench.trees() != before
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


@pytest.mark.parametrize("point", [BEFORE_FOLDERS, BEFORE_LINES, AMID_LINES])
def test_checkpoints_that_are_links_come_back_as_links(bench: Bench, point: KillPoint) -> None:
    elsewhere = bench.log_dir.with_name("elsewhere")
    elsewhere.mkdir()
    for path in bench.log_dir.glob("*-offset-checkpoint"):
        path.rename(elsewhere / path.name)
        path.symlink_to(f"../elsewhere/{path.name}")
    before, targets = bench.trees(), tree_of(elsewhere)
    bench.killed(point)
    assert bench.restored()[0].exit_code == 0
    assert bench.trees() != before
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before
    assert tree_of(elsewhere) == targets


def test_an_empty_folder_that_a_broker_made_again_is_replaced(bench: Bench) -> None:
    """There is one in quarantine already, so the account goes on in a run of its own, which `undo` takes back."""
    bench.killed(BEFORE_FOLDERS)
    for name in NAMES:
        bench.folder_of_a_broker(name)
    before = bench.trees()[1]
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert {one.status for one in found.values()} == {"unchanged"}
    assert len(list(Path(f"{bench.log_dir}.quarantine").iterdir())) == 2
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    after = bench.trees()[1]
    stage = {name for name in before if name.startswith(STAGE_FOLDER)}
    assert after == {name: data for name, data in before.items() if name not in stage}


def test_records_that_a_broker_took_are_left(bench: Bench) -> None:
    bench.killed(BETWEEN_FOLDERS)
    folder = bench.folder_of_a_broker("plain-0", data=b"records")
    report, found = bench.restored()
    assert report.exit_code == 4
    assert found["codecs-0"].status == "unchanged"
    assert found["plain-0"].status == "refused"
    assert "has records" in found["plain-0"].reasons[0]
    assert any(
        "what an interrupted restore has made of plain-0 is given up" in text for text in report.warnings
    )
    assert (folder / "00000000000000000000.log").read_bytes() == b"records"
    assert not (bench.log_dir / STAGE_FOLDER).exists()


def test_records_in_the_way_are_refused_before_anything_changes(bench: Bench) -> None:
    """Whoever calls it: a folder with records never goes to quarantine."""
    bench.killed(BETWEEN_FOLDERS)
    bench.folder_of_a_broker("plain-0", data=b"records")
    before = bench.trees()[1]

    def quarantine(
        run: str | None, quarantine_dir: str | None, on_created: Callable[[str], None]
    ) -> Quarantine:
        return Quarantine(str(bench.log_dir), root=quarantine_dir, run=run, on_created=on_created)

    with pytest.raises(UnsafeError, match="it has records"):
        finish_move_in(str(bench.log_dir), quarantine)
    assert bench.trees()[1] == before


def test_a_folder_that_a_broker_made_elsewhere_is_restored_there(bench: Bench) -> None:
    bench.killed(BETWEEN_FOLDERS)
    bench.folder_of_a_broker("plain-0", log_dir=bench.archive.log_dirs[0])
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert found["plain-0"].status == "restored"
    assert found["plain-0"].log_dir == str(bench.archive.log_dirs[0])
    assert not (bench.log_dir / "plain-0").exists()
    assert any("its folder is in" in text for text in report.warnings)


def test_a_log_that_a_broker_has_gone_on_with_is_not_taken_back(bench: Bench) -> None:
    bench.killed(BEFORE_LINES)
    last = max((bench.log_dir / "plain-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"more")
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert found["plain-0"].status == "unchanged"
    assert found["plain-0"].log_end_offset is None
    with pytest.raises(UnsafeError, match=r"changed since .*plain-0"):
        undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert last.read_bytes().endswith(b"more")


def test_lines_that_a_broker_wrote_stay(bench: Bench) -> None:
    """Of a log that was moved in and loaded before its lines came; a log start is never set back."""
    bench.killed(BEFORE_LINES)
    for name, offset in (("recovery-point", 9000), ("replication", 9001), ("log-start", 400)):
        path = bench.log_dir / f"{name}-offset-checkpoint"
        lines = read_offset_checkpoint(path.read_bytes())
        path.write_bytes(encode_offset_checkpoint(lines | {("codecs", 0): offset}))
    assert bench.restored()[0].exit_code == 0
    for name, offset in (("recovery-point", 9000), ("replication", 9001), ("log-start", 400)):
        lines = read_offset_checkpoint((bench.log_dir / f"{name}-offset-checkpoint").read_bytes())
        assert lines["codecs", 0] == offset


def test_a_log_that_a_broker_has_cut_off_gets_no_lines(bench: Bench) -> None:
    """It ends below its log start now, and with that line a broker would delete all of it."""
    bench.killed(BEFORE_LINES)
    for path in (bench.log_dir / "codecs-0").glob("*.log"):
        path.unlink()
    (bench.log_dir / "codecs-0" / "00000000000000000000.log").write_bytes(b"records of the leader")
    report, found = bench.restored()
    assert report.exit_code == 4
    assert found["codecs-0"].status == "refused"
    assert found["plain-0"].status == "unchanged"
    assert _finished(report) == ["plain-0"]
    for path in bench.log_dir.glob("*-offset-checkpoint"):
        assert ("codecs", 0) not in read_offset_checkpoint(path.read_bytes())
    starts = read_offset_checkpoint((bench.log_dir / "log-start-offset-checkpoint").read_bytes())
    assert starts["plain", 0] == 0


def test_what_an_interrupted_run_had_fetched_is_named_by_the_run_that_moves_it_in(bench: Bench) -> None:
    """Also by a run for other partitions, which has nothing to say of these."""
    before = bench.trees()
    bench.killed(BEFORE_FOLDERS)
    lost = bench.archive.log_dirs[1] / "transactions-1"
    kept = bench.archive.root / "kept" / "transactions-1"
    lost.rename(kept)
    options = bench.options()
    others = replace(options, archive=replace(options.archive, partitions=("transactions-1",)))
    dry = restore(replace(others, broker=replace(others.broker, dry_run=True)))
    (told,) = (text for text in dry.warnings if "would be finished first" in text)
    assert all(name in told for name in NAMES)
    everything = restore(replace(options, broker=replace(options.broker, dry_run=True)))
    foretold = {f"{one.topic}-{one.partition}": one.status for one in everything.partitions}
    assert {foretold[name] for name in NAMES} == {"unchanged"}
    assert all(one.needed_bytes == 0 for one in everything.log_dirs)
    report = restore(others)
    (second,) = (one for one in report.log_dirs if one.log_dir == str(bench.log_dir))
    assert second.finished is not None
    assert sorted(second.finished.partitions) == sorted(NAMES)
    assert {second.quarantine, second.finished.quarantine} & {None} == set()
    text = report.to_text()
    assert f"FINISHED {bench.log_dir}: moved in what an interrupted run had fetched: " in text
    assert "this, 2 times, takes it back run by run: kafka-log-recovery undo --log-dirs " in text
    for _ in range(2):
        undo([str(bench.log_dir)])
    kept.rename(lost)
    assert bench.trees() == before


@pytest.mark.parametrize("names", [("plain-0",), NAMES])
def test_what_is_gone_from_the_stage_was_not_moved_in(bench: Bench, names: tuple[str, ...]) -> None:
    before = bench.trees()
    bench.killed(BEFORE_FOLDERS)
    for name in names:
        shutil.rmtree(bench.log_dir / STAGE_FOLDER / "log-dir" / name)
    left = [name for name in NAMES if name not in names]
    options = bench.options()
    dry = restore(replace(options, broker=replace(options.broker, dry_run=True)))
    assert any(text.endswith(f"which moves in {', '.join(left) or 'nothing more'}") for text in dry.warnings)
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert _finished(report) == left
    assert ("FINISHED" in report.to_text()) == bool(left)
    assert {name: one.status for name, one in found.items()} == {
        name: "restored" if name in names else "unchanged" for name in NAMES
    }
    for _ in range(2):
        undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


def _finished(report: RestoreReport) -> list[str]:
    return [name for one in report.log_dirs if one.finished for name in one.finished.partitions]


@pytest.mark.parametrize("point", [BEFORE_FOLDERS, BETWEEN_FOLDERS, BEFORE_LINES, AMID_LINES])
def test_it_goes_on_without_the_option_that_chose_its_quarantine(bench: Bench, point: KillPoint) -> None:
    before = bench.trees()
    place = bench.archive.root / "elsewhere"
    bench.killed(point, "--quarantine-dir", str(place))
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert {one.status for one in found.values()} == {"unchanged"}
    assert f"--quarantine-dir {place}" in report.to_text()
    undo([str(log_dir) for log_dir in bench.archive.log_dirs], quarantine_dir=str(place))
    assert bench.trees() == before


def test_recover_leaves_a_half_restored_log_dir_alone(bench: Bench) -> None:
    """What it changed the next restore would not know, and `undo` could not take either back."""
    bench.killed(BETWEEN_FOLDERS)
    before = bench.trees()
    with pytest.raises(UnsafeError, match="start archive restore again"):
        recover([str(log_dir) for log_dir in bench.archive.log_dirs], bench.options().broker)
    assert bench.trees() == before


def test_a_half_recovered_log_dir_is_left_alone(bench: Bench) -> None:
    """The recovery would begin anew beside what was restored, and nothing could take its first part back."""
    for log_dir in bench.archive.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
    before = bench.trees()
    point = KillPoint(event="os.rename", path="/d2/.*", number=9)
    command = [*point.command(), "recover", "-c", str(bench.archive.root / "server.properties")]
    assert (
        subprocess.run(
            command, cwd=ROOT, capture_output=True, check=False, timeout=LONGEST_WAIT_SECONDS
        ).returncode
        == -9
    )
    left = bench.trees()
    for dry_run in (True, False):
        options = bench.options()
        with pytest.raises(
            UnsafeError, match=r"its recovery was interrupted .* Remedy: let recover finish it first"
        ):
            restore(replace(options, broker=replace(options.broker, dry_run=dry_run)))
    assert bench.trees() == left
    recover([str(log_dir) for log_dir in bench.archive.log_dirs], bench.options().broker)
    assert bench.restored()[0].exit_code == 0
    for _ in range(2):
        undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


def test_a_stage_that_cannot_be_removed_is_no_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is moved in, and said to be; the next restore removes the stage."""
    remove = shutil.rmtree

    def refuse(path: str, **options: Any) -> None:
        if path.endswith(STAGE_FOLDER):
            raise OSError(errno.EIO, "Input/output error", path)
        remove(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        report, found = bench.restored()
    assert {one.status for one in found.values()} == {"restored"}
    assert report.exit_code == 0, report.to_text()
    assert any("the stage is left" in text for text in report.warnings)
    assert (bench.log_dir / STAGE_FOLDER).exists()
    _, found = bench.restored()
    assert {one.status for one in found.values()} == {"unchanged"}
    assert not (bench.log_dir / STAGE_FOLDER).exists()


@pytest.mark.parametrize(
    "point",
    [
        KillPoint(event="os.rename", path=r"/d2/plain-0$"),
        KillPoint(event="shutil.rmtree", path="taken-out/plain-0$"),
        KillPoint(event="shutil.rmtree", path="taken-out/codecs-0$"),
        KillPoint(event="os.rename", path=r"/codecs-0$", number=2),
    ],
)
def test_a_killed_undo_leaves_a_whole_log_or_none(bench: Bench, point: KillPoint) -> None:
    """A broker would take what is left of a log for all of it."""
    before = bench.trees()
    assert bench.restored()[0].exit_code == 0
    restored = bench.trees()[1]
    config = str(bench.archive.root / "server.properties")
    command = [*point.command(), "undo", "-c", config]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_WAIT_SECONDS
    )
    assert done.returncode == -9, done.stderr[-2000:]
    left = bench.trees()[1]
    for name in NAMES:
        here, there, empty = (
            {path: data for path, data in tree.items() if path.startswith(f"{name}/")}
            for tree in (left, restored, before[1])
        )
        assert here in ({}, there, empty), name
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


def test_what_a_broker_made_while_an_undo_was_interrupted_is_left(bench: Bench) -> None:
    before = bench.trees()
    assert bench.restored()[0].exit_code == 0
    point = KillPoint(event="shutil.rmtree", path="taken-out/plain-0$")
    command = [*point.command(), "undo", "-c", str(bench.archive.root / "server.properties")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_WAIT_SECONDS
    )
    assert done.returncode == -9, done.stderr[-2000:]
    made = bench.folder_of_a_broker("plain-0", data=b"records")
    with pytest.raises(UnsafeError, match="move it out of the log dir"):
        undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert (made / "00000000000000000000.log").read_bytes() == b"records"
    made.rename(bench.archive.root / "made")
    undo([str(log_dir) for log_dir in bench.archive.log_dirs])
    assert bench.trees() == before


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_a_checkpoint_without_place_for_lines_is_known_before_anything_is_done(
    bench: Bench, name: str
) -> None:
    path = bench.log_dir / f"{name}-offset-checkpoint"
    path.write_bytes(b"0\n1\ngarbage\n")
    before = bench.trees()
    for dry_run in (True, False):
        options = bench.options()
        report = restore(replace(options, broker=replace(options.broker, dry_run=dry_run)))
        error = report.log_dirs[1].error or ""
        assert (report.exit_code, error.startswith(f"{path}: line 3: ")) == (4, True)
        assert error.endswith("Remedy: kafka-log-recovery recover --repair moves it away")
        assert {one.status for one in report.partitions} == {"refused"}
        assert bench.trees() == before
    recover(
        [str(log_dir) for log_dir in bench.archive.log_dirs], replace(bench.options().broker, repair=True)
    )
    assert bench.restored()[0].exit_code == 0


def test_an_interrupted_restore_and_a_malformed_checkpoint_do_not_wait_for_each_other(bench: Bench) -> None:
    """`recover --repair` refuses until the restore is finished."""
    bench.killed(BETWEEN_FOLDERS)
    path = bench.log_dir / "log-start-offset-checkpoint"
    path.write_bytes(b"0\n1\ngarbage\n")
    report, _ = bench.restored()
    error = report.log_dirs[1].error or ""
    assert error.endswith("Remedy: move it out of the log dir, and start again")
    path.rename(bench.archive.root / "moved-out")
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert {one.status for one in found.values()} == {"unchanged"}


def test_what_an_interrupted_restore_has_saved_is_not_purged(bench: Bench) -> None:
    bench.killed(BETWEEN_FOLDERS)
    with pytest.raises(UnsafeError, match=r"Nothing was purged\. Remedy: start archive restore again"):
        purge([str(bench.log_dir)], None, lambda _run: True)


@pytest.mark.parametrize("point", [BEFORE_FOLDERS, BETWEEN_FOLDERS, BEFORE_LINES, AMID_LINES])
def test_it_goes_on_without_its_quarantine(bench: Bench, point: KillPoint) -> None:
    """Removed by hand, or left beside the path that the log dir had before."""
    bench.killed(point)
    shutil.rmtree(f"{bench.log_dir}.quarantine")
    before = bench.trees()[1]
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert {one.status for one in found.values()} == {"unchanged"}
    assert any("undo takes back what comes now alone" in text for text in report.warnings)
    undo([str(bench.log_dir)])
    after = bench.trees()[1]
    for name in before:
        if "/" not in name and name.endswith("-offset-checkpoint"):
            assert read_offset_checkpoint(after[name]) == read_offset_checkpoint(before[name])
    assert not {name for name in after if name.startswith(NAMES)}


def _with_another_id(folder: Path) -> None:
    (folder / "partition.metadata").write_bytes(b"junk")


def _without_an_id(folder: Path) -> None:
    (folder / "partition.metadata").unlink()


def _without_a_log(folder: Path) -> None:
    sorted(folder.glob("*.log"))[1].unlink()


def _with_another_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("do not delete")


@pytest.mark.parametrize("alter", [_with_another_id, _without_an_id, _without_a_log, _with_another_file])
def test_a_staged_folder_that_was_altered_is_made_anew(bench: Bench, alter: Callable[[Path], None]) -> None:
    bench.killed(BETWEEN_FOLDERS)
    alter(bench.log_dir / STAGE_FOLDER / "log-dir" / "plain-0")
    report, found = bench.restored()
    assert report.exit_code == 0, report.to_text()
    assert {name: one.status for name, one in found.items()} == {
        "codecs-0": "unchanged",
        "plain-0": "restored",
    }
    assert any("made of plain-0 is given up: it was altered since" in text for text in report.warnings)
    folder = Path(str(found["plain-0"].log_dir)) / "plain-0"
    archived = {path.name[:20]: path.read_bytes() for path in bench.archive.path.glob("plain-0-*/*.log")}
    assert {path.stem: path.read_bytes() for path in folder.glob("*.log")} == archived
    assert not (folder / "notes.txt").exists()
