"""No rebuild hides that a log is not what it was: the log, and what contradicts it, stay as they are."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.check.scanned import ScannedSegment
from recovery.archive.check.trust import Row
from recovery.archive.check.verdict import ObjectVerdict
from recovery.archive.stores.archived import ArchivedSegment
from tests.brokers.tiered_broker import TieredArchive
from tests.damage.archive_campaign import ArchiveBench
from tests.damage.laundering import Launderer
from tests.logs.archives import batch_positions
from tests.runs.goings import bad_objects, gone_through, objects_of

CASES = 60
CUTS = 40


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, stored_archive: TieredArchive) -> ArchiveBench:
    return ArchiveBench(tmp_path_factory.mktemp("archives"), stored_archive)


@pytest.fixture
def partition(stored_archive: TieredArchive, tmp_path: Path) -> Path:
    """The folder of one partition, of a real broker's tiered storage."""
    (folder,) = stored_archive.path.glob("plain-0-*")
    return Path(shutil.copytree(folder, tmp_path / "archive" / folder.name))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def recover_in_place(archive: Path, output: Path) -> dict[str, ObjectVerdict]:
    """Recover *archive*; return the verdicts by the names of objects."""
    verdicts = gone_through(archive, output, is_in_place=True)
    return {Path(key).name: judged for key, judged in objects_of(verdicts).items()}


@pytest.mark.long
def test_whatever_was_found_is_found_after_any_recovers(bench: ArchiveBench, tmp_path: Path) -> None:
    launderer, counts = Launderer(bench, tmp_path / "case"), Counter[str]()
    assert [hidden for seed in range(CASES) if (hidden := launderer.run(seed, counts))] == []
    assert counts["rebuilt"] > CASES // 6
    assert counts["found"] > CASES * 0.9


@pytest.mark.long
def test_a_log_that_is_cut_between_batches_keeps_its_evidence(
    stored_archive: TieredArchive, tmp_path: Path
) -> None:
    logs = [path for path in sorted(stored_archive.path.rglob("*.log")) if "stuck" not in path.parent.name]
    rng = random.Random(1)
    for number, log in enumerate(rng.sample(logs, CUTS)):
        positions = batch_positions(log.read_bytes())
        if len(positions) < 3:
            continue
        folder = Path(shutil.copytree(log.parent, tmp_path / f"{number}" / log.parent.name))
        (folder / log.name).write_bytes(log.read_bytes()[: rng.choice(positions[1:-1])])
        before, files = bad_objects(gone_through(folder.parent)), contents(folder)
        assert before, log
        recover_in_place(folder.parent, tmp_path / f"{number}.output")
        assert bad_objects(gone_through(folder.parent)) == before, log
        assert contents(folder) == files, log
        shutil.rmtree(folder)


def test_what_contradicts_a_cut_log_is_not_blamed_and_the_remedy_restores(
    partition: Path, tmp_path: Path
) -> None:
    log = sorted(partition.glob("*.log"))[2]
    data = log.read_bytes()
    log.write_bytes(data[: batch_positions(data)[1]])
    verdicts = recover_in_place(partition.parent, tmp_path / "output")
    bad = {name for name, judged in verdicts.items() if judged.verdict.is_valid is not True}
    assert log.name in bad
    assert not bad & {log.with_suffix(suffix).name for suffix in (".index", ".timeindex", ".snapshot")}
    notes = [
        finding.detail
        for judged in verdicts.values()
        for finding in judged.verdict.findings
        if finding.severity == "note"
    ]
    assert any(detail.endswith("the log is damaged, not this file") for detail in notes)
    assert {path.name for path in (tmp_path / "output").iterdir()} == {
        "history",
        "partitions",
        "scans",
        "verdicts",
    }


def test_the_last_log_cut_is_told_by_its_indexes_alone_and_they_stay(partition: Path, tmp_path: Path) -> None:
    """No segment follows it: only what was derived from the whole log knows of the rest."""
    log = sorted(partition.glob("*.log"))[-1]
    data = log.read_bytes()
    log.write_bytes(data[: batch_positions(data)[-2]])
    files = contents(partition)
    for number in range(2):
        verdicts = recover_in_place(partition.parent, tmp_path / f"output {number}")
        bad = {name: judged for name, judged in verdicts.items() if judged.verdict.is_valid is not True}
        assert bad
        assert all(name.startswith(log.stem) for name in bad)
        assert contents(partition) == files
    obstacles = {judged.obstacle for name, judged in bad.items() if not name.endswith(".log")}
    assert all("contradict each other" in obstacle or "is damaged" in obstacle for obstacle in obstacles)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".index", lambda data: data[:-3]),
        (".timeindex", lambda data: data[:-3]),
        (".index", lambda _: None),
        (".snapshot", lambda data: data[:-1]),
        (".leader_epoch_checkpoint", lambda _: b"0\nx\n"),
    ],
)
def test_what_says_nothing_about_its_log_is_rebuilt(
    suffix: str, damage: Callable[[bytes], bytes | None], partition: Path, tmp_path: Path
) -> None:
    path = sorted(partition.glob(f"*{suffix}"))[2]
    before = path.read_bytes()
    damaged = damage(before)
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    verdicts = recover_in_place(partition.parent, tmp_path / "output")
    assert verdicts[path.name].rebuilt is not None
    assert bad_objects(gone_through(partition.parent)) == {}
    if damaged is not None:
        (kept,) = (tmp_path / "output").rglob(path.name)
        assert kept.read_bytes() == damaged


@pytest.mark.parametrize("suffix", [".txnindex", ".timeindex"])
def test_zeros_and_noise_are_no_evidence(suffix: str, stored_archive: TieredArchive, tmp_path: Path) -> None:
    rng = random.Random(1)
    (source,) = stored_archive.path.glob("transactions-0-*")
    folder = Path(shutil.copytree(source, tmp_path / "archive" / source.name))
    paths = [path for path in sorted(folder.glob(f"*{suffix}")) if path.stat().st_size][:8]
    before = contents(folder)
    for number, path in enumerate(paths):
        size_bytes = len(before[path.name])
        path.write_bytes(rng.randbytes(size_bytes) if number % 2 else bytes(size_bytes))
    verdicts = recover_in_place(folder.parent, tmp_path / "output")
    assert all(verdicts[path.name].rebuilt is not None for path in paths)
    assert bad_objects(gone_through(folder.parent)) == {}
    if suffix == ".txnindex":
        assert contents(folder) == before


def test_an_index_that_contradicts_its_log_stays_until_somebody_removes_it(
    partition: Path, tmp_path: Path
) -> None:
    """Log, neighbours and the other index agree, and yet the log may be another one of the same length."""
    path = max(sorted(partition.glob("*.index")), key=lambda index: index.stat().st_size)
    data = bytearray(path.read_bytes())
    assert len(data) >= 24
    data[len(data) // 16 * 8 - 1] ^= 1  # of an entry before the last: a position within a batch
    path.write_bytes(data)
    verdicts = recover_in_place(partition.parent, tmp_path / "output")
    assert verdicts[path.name].rebuilt is None
    assert verdicts[path.name].obstacle.startswith("its offset index and its log contradict each other")
    assert path.read_bytes() == data
    path.unlink()
    verdicts = recover_in_place(partition.parent, tmp_path / "again")
    assert verdicts[path.name].rebuilt is not None
    assert bad_objects(gone_through(partition.parent)) == {}


def test_a_log_that_changes_before_its_index_is_rebuilt_is_left_alone(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sorted(partition.glob("*.log"))[2]
    log.with_suffix(".index").unlink()
    judge = Row.is_continued

    def changing(row: Row, offset: int) -> bool:
        log.write_bytes(log.read_bytes())
        return judge(row, offset)

    monkeypatch.setattr(Row, "is_continued", changing)
    verdicts = recover_in_place(partition.parent, tmp_path / "output")
    assert "replaced after it was read" in verdicts[log.with_suffix(".index").name].obstacle
    assert not log.with_suffix(".index").exists()


class TestRow:
    """Which offsets the segments of a partition have."""

    @staticmethod
    def row(*ends: tuple[int, int | None], gone: tuple[tuple[int, int], ...] = ()) -> Row:
        return Row(
            [
                ScannedSegment(segment=ArchivedSegment(base_offset=base, parts={}), end_offset=end)
                for base, end in ends
            ],
            gone,
        )

    def test_the_next_one_begins_where_it_ends(self) -> None:
        assert self.row((0, 10), (10, 20)).is_continued(10)
        assert self.row((0, 10), (10, 20)).begins_at(10)

    def test_none_follows(self) -> None:
        assert self.row((0, 10), (10, 20)).is_continued(20)
        assert not self.row((0, 10), (10, 20)).begins_at(20)

    def test_offsets_are_missing(self) -> None:
        assert not self.row((0, 9), (10, 20)).is_continued(9)
        assert self.row((0, 9), (10, 20), gone=((0, 9),)).is_continued(9)

    def test_another_history_has_them(self) -> None:
        assert self.row((0, 9), (5, 15), (12, 20)).is_continued(9)
        assert not self.row((0, 9), (5, None), (12, 20)).is_continued(9)
