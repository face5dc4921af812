"""All reasons why a broker would not load a log are told at once, and nothing is touched where there is one."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.engine.report import RecoveryReport
from recovery.errors import PartitionRefusedError
from recovery.load.model import FileStat, LogSettings, PartitionTask, TopicPartition
from recovery.load.preflight import fold_checked, problems_of
from recovery.logdir.inventory import list_log_dir
from recovery.logdir.listing import access_problem
from recovery.logdir.user import BrokerUser, broker_user
from recovery.problem import Problem, Repair
from recovery.read.partition_files import PartitionFiles
from tests.brokers import Oracle
from tests.damage.edge_cases import BASES, NOW_MS, PROPERTIES, Log, segment
from tests.damage.unloadable import EPOCHS, LOG_STARTS, RECOVERY_POINTS, SAFE, UNSAFE, Damage, segment_file
from tests.logs.builders import data_batch, marker_batch
from tests.logs.edge_log import make_log, make_pristine, sample_of
from tests.logs.samples import MARKER, differences, tree_of
from tests.recovery.load import memory
from tests.recovery.load.memory import MemorySource, task_of
from tests.runs.driving import footprint, recover
from tests.servers.machine import OTHERS_FILES, needs

CASES = [(damage, state) for damage in (*SAFE, *UNSAFE) for state in damage.states]
LINK = {"dangling link": lambda path: path.symlink_to("nowhere"), "pipe": os.mkfifo, "folder": Path.mkdir}


@pytest.fixture(scope="module")
def pristine(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log dir that every case starts from, as Kafka left it."""
    log_dir = make_pristine(oracle, tmp_path_factory.mktemp("pristine") / "d")
    yield log_dir
    shutil.rmtree(log_dir.parent)


def problems_by_file(report: RecoveryReport) -> dict[str, list[Problem]]:
    """Problems by file, relative to the log dir."""
    found: dict[str, list[Problem]] = {}
    for log_dir in report.log_dirs:
        for problem in log_dir.problems:
            found.setdefault(problem.file, []).append(problem)
    for partition in report.partitions:
        for problem in partition.problems:
            is_folder = problem.file == partition.folder and "/" not in problem.file
            path = problem.file if is_folder else f"{partition.folder}/{problem.file}"
            found.setdefault(path, []).append(problem)
    return found


def untouched(log_dir: Path) -> dict[str, tuple[int, ...]]:
    """The footprint of the partition, and of what else lies in the log dir, but for the dir itself and its lock."""
    return {path: at for path, at in footprint(log_dir).items() if path not in (".", ".lock")}


@pytest.mark.java
class TestOneReason:
    @pytest.mark.parametrize(("damage", "state"), CASES, ids=lambda value: str(value))
    def test_a_broker_dies_of_it_and_here_it_is_told(
        self, damage: Damage, state: str, pristine: Path, oracle: Oracle, ram_path: Path
    ) -> None:
        theirs = make_log(pristine, ram_path / "theirs" / "d", state)
        ours = make_log(pristine, ram_path / "ours" / "d", state)
        for log in (theirs, ours):
            damage.make(log)
        outcome = oracle.load([theirs.log_dir], now_ms=NOW_MS, properties=PROPERTIES)
        assert outcome.outcome == damage.outcome
        found = {path: at for path, at in untouched(ours.log_dir).items() if path.startswith("t-0")}
        report = recover(sample_of(ours), [ours.log_dir])
        assert report.exit_code in (1, 4)
        problems = problems_by_file(report)[damage.file]
        assert all(bool(problem.repair) == bool(damage.moved) for problem in problems)
        assert all(problem.rule and problem.detail and problem.remedy for problem in problems)
        text = report.to_text()  # which names several files of one problem once
        assert all(str(problem).removeprefix(f"{problem.file}: ") in text for problem in problems)
        is_refused = damage.file.startswith("t-0") or report.exit_code == 1
        now = {path: at for path, at in untouched(ours.log_dir).items() if path.startswith("t-0")}
        assert not is_refused or now == found
        assert (ours.log_dir / MARKER).is_file() == (state == "C" and damage.file != MARKER)

    def test_a_folder_for_the_index_of_a_flushed_segment_is_passed_over_and_noted(
        self, pristine: Path, oracle: Oracle, ram_path: Path
    ) -> None:
        for name in ("theirs", "ours"):
            log = make_log(pristine, ram_path / name / "d", "F")
            log.file(12, ".index").unlink()
            log.file(12, ".index").mkdir()
        theirs = ram_path / "theirs" / "d"
        assert oracle.load([theirs], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
        report = recover(sample_of(log), [log.log_dir])
        assert differences(tree_of(theirs), tree_of(log.log_dir)) == []
        (warning,) = report.partitions[0].warnings
        assert "until it needs the name" in warning

    @pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex"])
    @pytest.mark.parametrize("kind", sorted(LINK))
    def test_nothing_is_written_over_what_is_no_file(
        self, kind: str, suffix: str, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        log.file(24, suffix).unlink()
        LINK[kind](log.file(24, suffix))
        found = untouched(log.log_dir)
        report = recover(sample_of(log), [log.log_dir])
        (problem,) = problems_by_file(report)[segment_file(24, suffix)]
        assert f"a {kind}" in problem.detail
        assert untouched(log.log_dir).keys() - found.keys() <= {LOG_STARTS}
        assert {path: at for path, at in untouched(log.log_dir).items() if path.startswith("t-0")} == {
            path: at for path, at in found.items() if path.startswith("t-0")
        }


@pytest.mark.java
class TestAllReasons:
    def test_of_a_partition(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        names = {str(damage): damage for damage in (*SAFE, *UNSAFE)}
        chosen = [
            "the file foo.log",
            "the file x.index",
            "leader-epoch-checkpoint of another version",
            "partition.metadata empty",
            "the version in 12.txnindex",
            "a control batch that makes no sense",
        ]
        for name in chosen:
            names[name].make(log)
        found = untouched(log.log_dir)
        for dry_run in (True, False):
            report = recover(sample_of(log), [log.log_dir], dry_run=dry_run)
            (partition,) = report.partitions
            assert {f"t-0/{problem.file}" for problem in partition.problems} == {
                names[name].file for name in chosen
            }
            assert len(partition.reasons) == len(chosen)
            assert report.exit_code == 4
        assert {path: at for path, at in untouched(log.log_dir).items() if path.startswith("t-0")} == {
            path: at for path, at in found.items() if path.startswith("t-0")
        }

    def test_of_several_segments(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        for damage in UNSAFE:
            if str(damage) == "a control batch that makes no sense":
                damage.make(log)
        data = log.file(24).read_bytes()[len(segment(24)) :]
        log.append(0, data[:8] + data[8:])
        log.patch(0, len(segment(0)), (12).to_bytes(8, "big"))
        report = recover(sample_of(log), [log.log_dir])
        assert sorted(problems_by_file(report)) == [segment_file(0, ".log"), segment_file(24, ".log")]

    def test_of_a_log_dir(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        (log.log_dir / RECOVERY_POINTS).write_text("1\n0\n")
        (log.log_dir / LOG_STARTS).write_text("x\n")
        (log.log_dir / "topic").mkdir()
        (log.log_dir / "t-00").mkdir()
        other = make_log(pristine, ram_path / "e", "U")
        found = untouched(log.log_dir)
        report = recover(sample_of(log), [log.log_dir, other.log_dir])
        first, second = report.log_dirs
        assert (first.status, second.status) == ("offline", "partial")
        assert untouched(log.log_dir) == found
        assert [problem.file for problem in first.problems] == [
            RECOVERY_POINTS, LOG_STARTS, "topic", "t-0", "t-00",
        ]  # fmt: skip
        assert "lies in 3 folders" in str(second.partitions[0].problems[0])
        assert report.exit_code == 4

    def test_the_rest_of_the_dir_is_recovered(self, pristine: Path, ram_path: Path) -> None:
        log = make_log(pristine, ram_path / "d", "U")
        shutil.copytree(log.folder, log.log_dir / "u-0")
        (log.folder / EPOCHS).write_bytes(b"x")
        report = recover(sample_of(log), [log.log_dir])
        assert [(partition.folder, partition.status) for partition in report.partitions] == [
            ("t-0", "refused"),
            ("u-0", "recovered"),
        ]
        assert report.exit_code == 4
        assert not (log.log_dir / MARKER).exists()

    def test_a_clean_dir_in_which_nothing_changes_keeps_its_marker(
        self, pristine: Path, ram_path: Path
    ) -> None:
        log = make_log(pristine, ram_path / "d", "C")
        shutil.copytree(log.folder, log.log_dir / "u-0")
        (log.log_dir / RECOVERY_POINTS).write_text("0\n2\nt 0 36\nu 0 36\n")
        (log.folder / EPOCHS).write_bytes(b"x")
        found = untouched(log.log_dir)
        report = recover(sample_of(log), [log.log_dir])
        assert [partition.status for partition in report.partitions] == ["refused", "unchanged"]
        assert untouched(log.log_dir) == found


class TestNotes:
    def test_a_folder_where_epochs_will_be_written_is_told_and_costs_nothing(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "d")
        log.folder.mkdir(parents=True)
        for base in BASES:
            log.file(base).write_bytes(segment(base))
            log.file(base, ".index").touch()  # so nothing is recovered, and no epoch written
        (log.log_dir / MARKER).touch()
        (log.folder / f"{EPOCHS}.tmp").mkdir()
        report = recover(sample_of(log), [log.log_dir])
        assert report.exit_code == 0
        (partition,) = report.partitions
        assert "at the first election of a leader" in " ".join(partition.warnings)

    @pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
    @pytest.mark.parametrize("repair", [False, True])
    def test_a_checkpoint_that_is_read_later(self, name: str, repair: bool, tmp_path: Path) -> None:
        log = Log(tmp_path / "d")
        log.folder.mkdir(parents=True)
        (log.log_dir / name).write_text("1\n0\n")
        report = recover(sample_of(log), [log.log_dir], repair=repair)
        (log_dir,) = report.log_dirs
        assert (log_dir.status, report.exit_code) == ("recovered", 0 if repair else 4)
        assert (log.log_dir / name).exists() != repair
        said = log_dir.repairs[0] if repair else str(log_dir.problems[0])
        assert name in said
        assert "takes the log dir offline" in said
        assert f"{'REPAIRED' if repair else 'PROBLEM'} {log.log_dir}: {said}" in report.to_text()


class TestUsers:
    OWNER, OTHER = 61234, 61235

    def stat(self, tmp_path: Path, mode: int, uid: int, gid: int) -> os.stat_result:
        path = tmp_path / "file"
        path.touch()
        found = list(path.stat())
        found[0], found[4], found[5] = 0o100000 | mode, uid, gid
        return os.stat_result(found)

    @pytest.mark.parametrize(
        ("mode", "uid", "gid", "lacking"),
        [
            (0o644, 61234, 7, ""), (0o444, 61234, 7, "w"), (0o044, 61234, 61234, "rw"),
            (0o664, 0, 61234, ""), (0o644, 0, 61234, "w"), (0o604, 0, 61234, "rw"),
            (0o644, 0, 0, "w"), (0o666, 0, 0, ""), (0o660, 0, 0, "rw"),
        ],
    )  # fmt: skip
    def test_rights_by_owner_group_and_mode(
        self, mode: int, uid: int, gid: int, lacking: str, tmp_path: Path
    ) -> None:
        user = BrokerUser(uid=self.OWNER, gid=self.OWNER, gids=frozenset({self.OWNER}))
        assert user.lacks(self.stat(tmp_path, mode, uid, gid), "rw") == lacking

    def test_root_may_do_everything(self, tmp_path: Path) -> None:
        root = BrokerUser(uid=0, gid=0, gids=frozenset({0}))
        assert root.lacks(self.stat(tmp_path, 0, self.OWNER, self.OWNER), "rwx") == ""

    @needs(OTHERS_FILES)
    def test_whose_broker_it_is(self, tmp_path: Path) -> None:
        os.chown(tmp_path, self.OWNER, self.OWNER)
        assert broker_user(str(tmp_path)).uid == self.OWNER
        (tmp_path / RECOVERY_POINTS).touch()
        assert broker_user(str(tmp_path)).uid == self.OWNER  # root ran something here once
        os.chown(tmp_path / RECOVERY_POINTS, self.OTHER, self.OTHER)
        assert broker_user(str(tmp_path)).uid == self.OTHER

    @needs(OTHERS_FILES)
    def test_what_the_broker_cannot_open_is_told_with_a_command(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "d")
        log.folder.mkdir(parents=True)
        for base in BASES:
            log.file(base).write_bytes(segment(base))
            os.chown(log.file(base), self.OWNER, self.OWNER)
        for path in (log.log_dir, log.folder):
            os.chown(path, self.OWNER, self.OWNER)
        os.chown(log.file(12), 0, 0)
        os.chmod(log.file(24), 0o400)
        problems = problems_by_file(recover(sample_of(log), [log.log_dir]))
        assert sorted(problems) == [segment_file(12, ".log"), segment_file(24, ".log")]
        assert problems[segment_file(12, ".log")][0].remedy == (
            f"chown {self.OWNER}:{self.OWNER} {log.file(12)}"
        )
        assert problems[segment_file(24, ".log")][0].remedy == f"chmod u+w {log.file(24)}"

    @needs(OTHERS_FILES)
    def test_a_path_in_a_command_is_quoted(self, tmp_path: Path) -> None:
        path = tmp_path / "a dir" / "x"
        user = BrokerUser(uid=self.OWNER, gid=self.OWNER, gids=frozenset())
        remedies = [
            access_problem("x", str(path), self.stat(tmp_path, 0, owner, 0), "r", user).remedy
            for owner in (self.OWNER, self.OTHER)
        ]
        assert [shlex.split(remedy)[-1] for remedy in remedies] == [str(path)] * 2


def test_a_file_with_a_name_that_no_broker_gives_is_told_of(pristine: Path, ram_path: Path) -> None:
    log = make_log(pristine, ram_path / "d", "U")
    (log.folder / "5.log").write_bytes(b"x")
    report = recover(sample_of(log), [log.log_dir])
    (told,) = [text for text in report.partitions[0].warnings if text.startswith("5.log: ")]
    assert f"it never reads this file, and makes an empty {5:020}.log. Remedy: " in told
    assert (log.folder / "5.log").read_bytes() == b"x"


class TestProblemsOf:
    def task(self, folder: Path, /, **fields: object) -> PartitionTask:
        files = {path.name: FileStat(size_bytes=path.stat().st_size) for path in folder.iterdir()}
        options = {
            "log_dir": str(folder.parent),
            "folder": folder.name,
            "topic_partition": TopicPartition(topic="t", partition=0),
            "files": files,
            "had_clean_shutdown": True,
            "recovery_point": 0,
            "log_start_offset": 0,
            "settings": LogSettings(segment_index_bytes=4096),
            "now_ms": 0,
        } | fields
        return PartitionTask(**options)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        path = tmp_path / "t-0"
        path.mkdir()
        (path / f"{0:020d}.log").write_bytes(segment(0))
        (path / f"{0:020d}.index").write_bytes(bytes(8000))
        return path

    def found(self, folder: Path, /, **fields: object) -> list[str]:
        task = self.task(folder, **fields)
        return [problem.file for problem in problems_of(task, PartitionFiles(str(folder), task.settings))]

    def test_an_index_that_is_too_large_counts_where_the_segment_is_not_recovered(self, folder: Path) -> None:
        name = f"{0:020d}.index"
        assert self.found(folder) == [name]
        assert self.found(folder, had_clean_shutdown=False) == []
        assert self.found(folder, had_clean_shutdown=False, recovery_point=2**63 - 1) == [name]
        assert self.found(folder, log_start_offset=5) == []
        assert self.found(folder, **{"folder": "t-0.0123-delete"}) == []
        (folder / f"{7:020d}.log.swap").touch()
        assert self.found(folder) == []

    def test_a_repair_names_files_that_are_there(self, folder: Path) -> None:
        (folder / f"{0:020d}.timeindex").write_bytes(bytes(8000))
        (folder / f"{0:020d}.index").write_bytes(b"")
        task = self.task(folder)
        (problem,) = problems_of(task, PartitionFiles(str(folder), task.settings))
        assert problem.repair == Repair(names=(f"{0:020d}.index", f"{0:020d}.timeindex"))

    def test_a_folder_for_the_topics_id(self, folder: Path) -> None:
        others = {"partition.metadata": "folder"}
        assert self.found(folder, had_clean_shutdown=False, others=others) == ["partition.metadata"]

    def test_an_unreadable_file_is_not_read(self, folder: Path) -> None:
        (folder / EPOCHS).write_bytes(b"x")
        assert self.found(folder, had_clean_shutdown=False) == [EPOCHS]
        hidden = {"unreadable": frozenset({EPOCHS}), "had_clean_shutdown": False}
        assert self.found(folder, **hidden) == []


def test_links_that_lead_in_circles_are_no_trouble(tmp_path: Path) -> None:
    folder = tmp_path / "d" / "t-0"
    folder.mkdir(parents=True)
    for path in (folder / "circle.log", tmp_path / "d" / "circle-0"):
        path.symlink_to(path.name)
    found = list_log_dir(str(tmp_path / "d"), settings_of=lambda _topic: LogSettings(), now_ms=0)
    assert [task.folder for task in found.tasks] == ["t-0"]
    assert found.tasks[0].others == {"circle.log": "link that leads nowhere"}


def test_a_pipe_for_a_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RECOVERY_POINTS)
    found = list_log_dir(str(tmp_path), settings_of=lambda _topic: LogSettings(), now_ms=0)
    (problem,) = found.problems
    assert problem.detail.startswith("a pipe where a checkpoint must be")


class TestWhatIsLeft:
    """What the fold meets is told with what the listing shows."""

    def problems(self, files: dict[str, bytes], **fields: object) -> list[str]:
        task = task_of(files, **fields)
        with pytest.raises(PartitionRefusedError) as raised:
            fold_checked(task, MemorySource(files, task.settings))
        return [problem.file for problem in raised.value.problems]

    @staticmethod
    def stopping(base: int) -> bytes:
        """A control batch with a good CRC and an unknown type."""
        return marker_batch(base, 7, producer_id=200)

    def test_segments_behind_one_that_stops_the_broker_are_looked_at(self) -> None:
        files = memory.partition({0: self.stopping(0), 10: b"", 20: self.stopping(20), 30: data_batch(30)})
        assert self.problems(files) == [f"{0:020d}.log", f"{20:020d}.log"]
        files[f"{10:020d}.log"] = data_batch(10) + b"torn"  # what is behind a cut is never read
        assert self.problems(files) == [f"{0:020d}.log"]

    def test_where_a_log_cannot_be_read_there_is_no_more_to_tell(self) -> None:
        log = f"{0:020d}.log"
        files = memory.partition({0: self.stopping(0)}) | {EPOCHS: b"x"}
        hidden = Problem(file=log, rule="access", detail="the file may not be read", remedy="none")
        assert self.problems(files, unreadable=frozenset({log}), problems=(hidden,)) == [log, EPOCHS]
