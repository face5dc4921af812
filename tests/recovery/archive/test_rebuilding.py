"""What is rebuilt of a real broker's tiered storage are the bytes that the broker had put there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery import recover
from segfmt.checkpoint import read_leader_epoch_checkpoint
from tests.brokers.oracle import Oracle
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.runs.goings import bad_objects, gone_through, objects_of, recovered_in

_DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _remove(path: Path) -> None:
    path.unlink()


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    """The sample, without the segment whose copy was interrupted."""
    archive = unpack_tiered(tmp_path_factory.mktemp("tiered"))
    for path in archive.path.glob("**/stuck-copy-0-*"):
        shutil.rmtree(path)
    return archive


@pytest.fixture(scope="module")
def topic_configs(tiered: TieredArchive) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((tiered.root / "topic-configs.json").read_text())
    return found


@pytest.fixture
def copied(tiered: TieredArchive, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiered.path, tmp_path / "archive"))


def test_a_healthy_archive_has_no_finding(tiered: TieredArchive) -> None:
    assert bad_objects(gone_through(tiered.path)) == {}


@pytest.mark.long
@pytest.mark.parametrize("damage", [_remove, _flip, _cut])
@pytest.mark.parametrize("suffix", _DERIVED)
def test_every_third_file_is_found_and_comes_back(
    suffix: str,
    damage: Callable[[Path], None],
    tiered: TieredArchive,
    topic_configs: dict[str, dict[str, str]],
    copied: Path,
    tmp_path: Path,
) -> None:
    paths = [path for path in sorted(copied.rglob(f"*{suffix}")) if path.stat().st_size][1::3]
    for path in paths:
        damage(path)
    if (
        suffix == ".leader_epoch_checkpoint" and damage is _cut
    ):  # a last line without its end is one, as with Kafka
        assert bad_objects(gone_through(copied)) == {}
        return
    output = tmp_path / "output"
    verdicts = gone_through(copied, output, topic_configs=topic_configs)
    objects = objects_of(verdicts)
    assert set(bad_objects(verdicts)) == {str(path.relative_to(copied)) for path in paths}
    keys = [key for key in bad_objects(verdicts) if objects[key].rebuilt is not None]
    if damage is _flip and suffix in (".index", ".timeindex", ".txnindex"):
        # One that is well-formed, and contradicts its log, is evidence.
        kept = bad_objects(verdicts).keys() - set(keys)
        assert all("contradict each other" in objects[key].obstacle for key in kept)
    else:
        assert len(keys) > 0.8 * len(paths)  # not at the start of a log that retention has cut
    for key in keys if suffix in (".txnindex", ".snapshot") else ():
        assert (recovered_in(output) / key).read_bytes() == (tiered.path / key).read_bytes(), key
    for key in keys if suffix == ".leader_epoch_checkpoint" else ():
        base = int(Path(key).name[:20])
        known = _epochs_from(base, (tiered.path / key).read_bytes())
        assert _epochs_from(base, (recovered_in(output) / key).read_bytes()) == known, key


def _epochs_from(offset: int, data: bytes) -> list[tuple[int, int]]:
    """Return the epochs of the offsets from *offset* on; retention has a broker forget others."""
    entries = read_leader_epoch_checkpoint(data)
    before = [entry.epoch for entry in entries if entry.start_offset <= offset]
    behind = [(entry.epoch, entry.start_offset) for entry in entries if entry.start_offset > offset]
    return [*((epoch, offset) for epoch in before[-1:]), *behind]


def test_all_that_a_log_tells_is_what_the_local_engine_makes_of_it(
    copied: Path, topic_configs: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The local engine recovers the same logs in a log dir, byte for byte as a broker does."""
    for suffix in _DERIVED[:-1]:
        for path in copied.rglob(f"*{suffix}"):
            path.unlink()
    output, log_dir = tmp_path / "output", tmp_path / "log-dir"
    gone_through(copied, output, topic_configs=topic_configs)
    compared = 0
    for source in sorted(path for path in copied.rglob("*-*-*") if path.is_dir()):
        logs = sorted(source.glob("*.log"))
        if not logs or int(logs[0].name[:20]):
            continue
        folder = log_dir / source.name[:-23]
        folder.mkdir(parents=True)
        for log in logs:
            shutil.copy(log, folder / f"{log.name[:20]}.log")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    report = recover([str(log_dir)], topic_configs=topic_configs, now_ms=0)
    assert report.exit_code == 0, report.to_text()
    for rebuilt in sorted(recovered_in(output).rglob("*")):
        source = copied / rebuilt.relative_to(recovered_in(output)).parent
        folder = log_dir / source.name[:-23]
        if rebuilt.is_dir() or not folder.exists():
            continue
        name = f"{rebuilt.name[:20]}{rebuilt.suffix}"
        if rebuilt.suffix == ".snapshot":
            starts = sorted(path.name[:20] for path in folder.glob("*.log"))
            place = starts.index(rebuilt.name[:20]) + 1
            if place == len(starts):
                continue
            name = f"{starts[place]}.snapshot"
        assert rebuilt.read_bytes() == (folder / name).read_bytes(), rebuilt
        compared += 1
    assert compared > 400


@pytest.mark.java
def test_what_is_rebuilt_behind_a_snapshot_is_what_kafka_makes_of_the_same_segments(
    copied: Path, topic_configs: dict[str, dict[str, str]], oracle: Oracle, tmp_path: Path
) -> None:
    """Kafka: LogSegment.recover, with the producers that the snapshot before the segment tells."""
    output, log_dir = tmp_path / "output", tmp_path / "log-dir"
    log_dir.mkdir()
    halves, recovery_points = {}, []
    for source in sorted(path for path in copied.rglob("*-*-*") if path.is_dir()):
        logs = sorted(source.glob("*.log"))
        if len(logs) < 4:
            continue
        middle = len(logs) // 2
        folder = log_dir / source.name[:-23]
        folder.mkdir()
        for log in logs[middle:]:
            shutil.copy(log, folder / f"{log.name[:20]}.log")
        # Kafka forgets a snapshot at the log start, so the log begins with one more segment, which was flushed.
        for kept in source.glob(f"{logs[middle - 1].stem}.*[gx]"):
            shutil.copy(kept, folder / f"{kept.name[:20]}{kept.suffix}")
        before = logs[middle - 1].with_suffix(".snapshot")
        shutil.copy(before, folder / f"{logs[middle].name[:20]}.snapshot")
        recovery_points.append((*folder.name.rsplit("-", 1), int(logs[middle].name[:20])))
        halves[source] = logs[middle:]
        for log in logs[middle:]:
            for suffix in _DERIVED[:-1]:
                log.with_suffix(suffix).unlink(missing_ok=True)
    lines = [f"{topic} {partition} {offset}\n" for topic, partition, offset in recovery_points]
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    assert oracle.load([log_dir], now_ms=0, topic_configs=topic_configs).outcome == "loaded"
    gone_through(copied, output, topic_configs=topic_configs)
    compared = Counter[str]()
    for source, logs in halves.items():
        folder = log_dir / source.name[:-23]
        snapshots = [*(log.name[:20] for log in logs[1:]), max(folder.glob("*.snapshot")).stem]
        for log, end in zip(logs, snapshots, strict=True):
            for suffix in _DERIVED[:-1]:
                made = folder / f"{end if suffix == '.snapshot' else log.name[:20]}{suffix}"
                rebuilt = recovered_in(output) / log.relative_to(copied).with_suffix(suffix)
                assert rebuilt.exists() == made.exists(), rebuilt
                if made.exists():
                    assert rebuilt.read_bytes() == made.read_bytes(), rebuilt
                    compared[suffix] += 1
    assert min(compared[suffix] for suffix in _DERIVED[:-1]) > 5, compared


def test_no_snapshot_is_made_up(copied: Path, tmp_path: Path) -> None:
    """Without the snapshot before it, and a start above 0, nobody knows the producers at a segment's end."""
    folder = next(copied.rglob("transactions-0-*"))
    second = sorted(folder.glob("*.snapshot"))[1]
    for path in (
        *sorted(folder.glob("*"))[:6],
        second,
    ):  # the whole first segment, and the second one's snapshot
        path.unlink(missing_ok=True)
    verdicts = gone_through(folder, tmp_path / "output")
    assert objects_of(verdicts)[second.name].rebuilt is None
    assert bad_objects(verdicts)[second.name] == ["missing-object"]


def test_nothing_is_rebuilt_from_a_damaged_log(copied: Path, tmp_path: Path) -> None:
    folder = next(copied.rglob("plain-0-*"))
    log = sorted(folder.glob("*.log"))[2]
    _flip(log)
    index = log.with_suffix(".index")
    index.unlink()
    verdicts = gone_through(folder, tmp_path / "output")
    assert bad_objects(verdicts)[log.name] == ["checksum"]
    assert objects_of(verdicts)[index.name].rebuilt is None
    assert {path.name for path in (tmp_path / "output").iterdir()} == {
        "history",
        "partitions",
        "scans",
        "verdicts",
    }


def test_segments_that_are_missing_or_doubled_are_told(copied: Path) -> None:
    folder = next(copied.rglob("plain-0-*"))
    stems = sorted({path.name.partition(".")[0] for path in folder.iterdir()})
    for path in folder.glob(f"{stems[3]}.*"):
        path.unlink()
    for path in folder.glob(f"{stems[6]}.*"):  # the same segment, copied twice
        shutil.copy(path, folder / path.name.replace(path.name[21:43], "AAAAAAAAAAAAAAAAAAAAAQ"))
    verdicts = gone_through(folder)
    assert bad_objects(verdicts) == {f"{stems[4]}.log": ["offset-gap"]}
    notes = [
        (one.verdict.path, found.rule)
        for one in objects_of(verdicts).values()
        for found in one.verdict.findings
        if found.severity == "note"
    ]
    assert [rule for _, rule in notes] == ["overlap", "duplicate"]
