"""A layout is one module and its registration: one of the tests' own goes through everything that reads archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.inventory.run import inventory
from recovery.archive.layouts.layouts import LAYOUTS, layout_of
from recovery.archive.options import ArchiveOptions
from recovery.archive.records.read_options import ReadOptions
from recovery.archive.stores.stores import open_store
from recovery.cli.main import main
from tests.logs.archives import EPOCHS, SegmentCopy, made_copies, write_archive
from tests.recovery.archive.flat_layout import FlatLayout
from tests.runs.goings import bad_objects, gone_through, objects_of, recovered_in
from tests.runs.readings import read

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "aborted")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYOUTS, FlatLayout.name, lambda _keys: FlatLayout())


@pytest.fixture(scope="module")
def copies() -> list[SegmentCopy]:
    return [*made_copies(), *made_copies(partition=1, segments=12)]


@pytest.fixture
def flat(tmp_path: Path, copies: list[SegmentCopy]) -> Path:
    for copy in copies:
        folder = tmp_path / "flat" / f"{copy.owner.topic}.{copy.owner.partition}"
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in copy.files.items():
            suffix = "epochs" if part == EPOCHS else part
            (folder / f"{copy.remote.start_offset}.{suffix}").write_bytes(content)
    return tmp_path / "flat"


@pytest.mark.parametrize("is_logs_only", [False, True])
def test_is_found_and_sound(flat: Path, copies: list[SegmentCopy], *, is_logs_only: bool) -> None:
    assert layout_of(open_store(str(flat))).name == "flat"
    verdicts = gone_through(flat, is_deep=not is_logs_only, is_logs_only=is_logs_only)
    assert bad_objects(verdicts) == {}
    assert sum(one.segment_count for one in verdicts) == len(copies)
    assert [one.chain_count for one in verdicts] == [1, 1]
    assert sum(one.log_bytes for one in verdicts) == sum(len(copy.files["log"]) for copy in copies)


@pytest.mark.parametrize("is_logs_only", [False, True])
def test_damage_is_found(flat: Path, copies: list[SegmentCopy], *, is_logs_only: bool) -> None:
    base, gone = (copies[place].remote.start_offset for place in (1, 3))
    log = flat / "made.0" / f"{base}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    (flat / "made.0" / f"{gone}.log").unlink()
    bad = bad_objects(gone_through(flat, is_deep=not is_logs_only, is_logs_only=is_logs_only))
    assert "checksum" in bad[f"made.0/{base}.log"]
    assert "missing-object" in bad[f"made.0/{gone}.log"]
    assert all(key.startswith("made.0/") for key in bad)


def test_what_its_logs_tell_is_rebuilt(flat: Path, tmp_path: Path, copies: list[SegmentCopy]) -> None:
    base = copies[2].remote.start_offset
    removed = {}
    for suffix in ("index", "timeindex", "snapshot", "epochs"):
        path = flat / "made.0" / f"{base}.{suffix}"
        removed[f"made.0/{base}.{suffix}"] = path.read_bytes()
        path.unlink()
    verdicts = gone_through(flat, tmp_path / "output")
    rebuilt = {key: one.rebuilt for key, one in objects_of(verdicts).items() if one.rebuilt is not None}
    assert set(rebuilt) == set(removed)
    for key, one in rebuilt.items():
        assert one.key == str((recovered_in(tmp_path / "output") / key).relative_to(tmp_path / "output"))
    sound = {key for key in removed if (recovered_in(tmp_path / "output") / key).read_bytes() == removed[key]}
    assert sound >= {key for key in removed if key.endswith(("snapshot", "epochs"))}
    for key in removed:
        (flat / key).write_bytes((recovered_in(tmp_path / "output") / key).read_bytes())
    assert bad_objects(gone_through(flat, is_deep=True)) == {}


@pytest.mark.parametrize("is_committed", [False, True])
def test_its_records_are_those_of_the_same_segments_elsewhere(
    flat: Path, tmp_path: Path, copies: list[SegmentCopy], *, is_committed: bool
) -> None:
    write_archive(tmp_path / "tiered", "local-tiered", copies)
    options = ReadOptions(is_committed=is_committed)
    rows = read(flat, *COLUMNS, options=options)
    assert rows
    assert rows == read(tmp_path / "tiered", *COLUMNS, options=options)


def test_is_taken_stock_of(flat: Path, copies: list[SegmentCopy], capsys: pytest.CaptureFixture[str]) -> None:
    (flat / "made.1" / f"{copies[-1].remote.start_offset}.log").unlink()
    report = inventory(ArchiveOptions(url=str(flat)))
    assert report.layout == "flat"
    assert [found.rule for _, found in report.findings] == ["missing-object"]
    assert main(["archive", "inventory", str(flat), "--layout", "flat"]) == 2
    assert "missing-object" in capsys.readouterr().out
