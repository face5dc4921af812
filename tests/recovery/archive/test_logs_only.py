"""The logs of an archive alone: what is found is what a whole verify finds of them, and each log has its row."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from recovery.archive.check.logs import log_scan
from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.check.verdict import ObjectVerdict, PartitionVerdict
from recovery.archive.check.verdict_rows import object_row, object_schema, sound_table
from recovery.archive.stores.archived import PartKind
from recovery.archive.stores.local_store import LocalStore
from recovery.check.finding import FileVerdict, Finding
from recovery.cli.main import main
from recovery.read import windows
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import batch_positions
from tests.logs.samples import Sample, unpack
from tests.runs.goings import gone_through, log_dir_configs
from tests.runs.log_findings import of_logs, with_found_ends


def found_in(verdicts: Iterable[PartitionVerdict]) -> list[tuple[str, Finding]]:
    """Key and finding of everything that is to be said."""
    return [
        (one.verdict.path, found)
        for verdict in verdicts
        for one in verdict.objects
        for found in one.verdict.findings
    ]


def assert_agreement(
    root: Path,
    *,
    topic_configs: Mapping[str, Mapping[str, str]],
    now_ms: int,
    metadata: Iterable[Path] = (),
) -> list[PartitionVerdict]:
    """Hold the verdicts on the logs against those of a whole verify; return them."""
    known = {"topic_configs": topic_configs, "now_ms": now_ms, "metadata": list(metadata)}
    whole = gone_through(root, **known)  # type: ignore[arg-type]  # its own arguments
    logs = gone_through(root, is_logs_only=True, **known)  # type: ignore[arg-type]  # the same
    assert with_found_ends(of_logs(found_in(logs)), of_logs(found_in(whole))) == of_logs(found_in(whole))
    assert len(of_logs(found_in(logs))) == len(
        [one for _, one in found_in(logs) if one.rule != "foreign-file"]
    )
    for mine, other in zip(logs, whole, strict=True):
        if of_logs(found_in([mine])) != of_logs(found_in([other])):
            continue  # a lost end, and with it the batches behind
        assert (mine.segment_count, mine.batch_count, mine.log_bytes) == (
            other.segment_count,
            other.batch_count,
            other.log_bytes,
        )
        assert (mine.start_offset, mine.end_offset, mine.chain_count) == (
            other.start_offset,
            other.end_offset,
            other.chain_count,
        )
    return logs


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if len(data) > 70:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + bytes(rng.choice([5, 100, 4096])))


def without_a_batch(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    places = batch_positions(data) if data else []
    if len(places) > 3:
        at = rng.randrange(1, len(places) - 2)
        path.write_bytes(data[: places[at]] + data[places[at + 1] :])


def remove(path: Path, _rng: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bits": flip,
    "cut logs": cut,
    "zeros behind": zeros,
    "missing batches": without_a_batch,
    "missing logs": remove,
}


@pytest.fixture(scope="module", params=["crashed", "crashed-v0-v1", "intact", "stopped"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    found = unpack(request.param, tmp_path_factory.mktemp("sample"))
    shutil.rmtree(found.root / "remote", ignore_errors=True)  # tiered storage, which has a layout of its own
    return found


def test_logs_of_a_sound_copy_are_sound(sample: Sample) -> None:
    verdicts = assert_agreement(sample.root, topic_configs=log_dir_configs(sample), now_ms=sample.now_ms)
    assert sum(len(one) for verdict in verdicts for one in verdict.sound) > 10
    assert sum(len(verdict.objects) for verdict in verdicts) < 5


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_as_by_a_whole_verify(name: str, sample: Sample, tmp_path: Path) -> None:
    root, rng = Path(shutil.copytree(sample.root, tmp_path / "copy")), random.Random(3)
    logs = sorted(root.glob("d?/*/*.log"))
    for path in logs[::3]:
        DAMAGES[name](path, rng)
    verdicts = assert_agreement(root, topic_configs=log_dir_configs(sample), now_ms=sample.now_ms)
    assert of_logs(found_in(verdicts))


@pytest.mark.long
@pytest.mark.parametrize("has_metadata", [False, True], ids=["by names", "by the metadata topic"])
@pytest.mark.parametrize(
    "name", ["nothing", *DAMAGES, "segments that are gone", "segments that are there twice"]
)
def test_tiered_storage(name: str, has_metadata: bool, stored_archive: TieredArchive, tmp_path: Path) -> None:
    root, rng = Path(shutil.copytree(stored_archive.path, tmp_path / "copy")), random.Random(7)
    for path in rng.sample(sorted(root.rglob("*.log")), 15):
        beside = sorted(path.parent.glob(f"{path.stem}.*"))
        if name in DAMAGES:
            DAMAGES[name](path, rng)
        elif name == "segments that are gone":
            for one in beside:
                one.unlink()
        elif name == "segments that are there twice":
            other = path.stem[:-1] + ("A" if path.stem[-1] != "A" else "Q")
            for one in beside:
                shutil.copy2(one, one.with_name(other + one.suffix))
    metadata = stored_archive.log_dirs if has_metadata else ()
    verdicts = assert_agreement(root, topic_configs={}, now_ms=1, metadata=metadata)
    assert (not any(one.severity == "damage" for _, one in found_in(verdicts))) == (
        name in ("nothing", "segments that are there twice")
    )


def test_a_sound_log_has_the_row_of_any_sound_object(stored_archive: TieredArchive) -> None:
    rows, others = {}, set()
    verdicts = gone_through(stored_archive.path, is_logs_only=True)
    for verdict in verdicts:
        others |= {one.verdict.path for one in verdict.objects}
        for sound in verdict.sound:
            table = sound_table([(verdict.head.where, sound)])
            table.validate(full=True)
            assert table.schema == object_schema()
            for row, segment, read_bytes in zip(
                table.to_pylist(), sound.segments, sound.log_bytes.tolist(), strict=True
            ):
                log = segment.parts[PartKind.LOG]
                alone = ObjectVerdict(
                    base_offset=segment.base_offset,
                    segment_id=segment.segment_id,
                    size_bytes=log.size_bytes,
                    version=log.version,
                    verdict=FileVerdict(path=log.key, kind="log", checked_bytes=read_bytes),
                )
                assert row == object_row(verdict, alone)
                rows[row["key"]] = row
    together = sound_table([(verdict.head.where, one) for verdict in verdicts for one in verdict.sound])
    assert together.to_pylist() == list(rows.values())
    assert sound_table([]).num_rows == 0
    assert len(others) < 5
    assert not others & set(rows)
    assert others | set(rows) == {
        str(path.relative_to(stored_archive.path)) for path in stored_archive.path.rglob("*.log")
    }


def test_logs_that_share_no_buffer_are_judged_alike(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a group, some in a row, and large ones in windows."""
    expected = found_in(gone_through(sample.root, is_logs_only=True))
    for name, value in {"_SEGMENTS_TOGETHER": 3, "_BUFFER_BYTES": 1 << 20, "MOST_SMALL_BYTES": 4000}.items():
        monkeypatch.setattr(log_scan, name, value)
        monkeypatch.setattr(windows, "_threads", threading.local())
        assert found_in(gone_through(sample.root, is_logs_only=True)) == expected


class TornStore(LocalStore):
    """Where objects become other ones behind the listing."""

    change: Callable[[Path], None] = lambda _: None

    def read_into(self, key: str, target: memoryview) -> int:
        TornStore.change(Path(self.url, key))
        return super().read_into(key, target)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda path: path.unlink(), "unreadable"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "changing"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "changing"),
    ],
    ids=["gone", "shorter", "longer"],
)
def test_an_object_that_changes_while_it_is_read_is_not_judged(
    change: Callable[[Path], None], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = unpack("intact", tmp_path)
    changed: list[Path] = []

    def once(path: Path) -> None:
        if not changed and path.stat().st_size > 100 and path.parent.name == "plain-1":
            changed.append(path)
            change(path)

    monkeypatch.setattr(TornStore, "change", staticmethod(once))
    monkeypatch.setattr("recovery.archive.engine.tasks.open_store", TornStore)
    verdicts = gone_through(sample.root / "d1", is_logs_only=True)
    found = [(key, one.rule) for key, one in found_in(verdicts) if one.severity == "unchecked"]
    assert found == [(str(changed[0].relative_to(sample.root / "d1")), rule)]


def test_a_kept_scan_of_logs_is_none_of_a_whole_verify(sample: Sample) -> None:
    digests = [
        {
            verdict.head.digests[at : at + DIGEST_BYTES]
            for at in range(0, len(verdict.head.digests), DIGEST_BYTES)
        }
        for is_logs_only in (False, True)
        for verdict in gone_through(sample.root, is_logs_only=is_logs_only)
    ]
    half = len(digests) // 2
    assert any(digests[:half])
    assert not set.union(*digests[:half]) & set.union(*digests[half:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "somewhere", "--deep", "--logs-only"], "not allowed with argument"),
        (["recover", "somewhere", "--output", "elsewhere", "--logs-only"], "unrecognized arguments"),
        (["inventory", "somewhere", "--logs-only"], "unrecognized arguments"),
    ],
)
def test_what_goes_with_logs_alone(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["archive", *arguments])
    except SystemExit as error:
        code = error.code  # type: ignore[assignment]  # a number here
    assert code == 1
    assert words in capsys.readouterr().err
