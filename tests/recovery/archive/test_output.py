"""What a run leaves in its output: the verdicts of the last run alone, those of all runs, and what each has rebuilt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recovery.archive.check import output as outputs
from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.inventory.report import segment_schema
from recovery.archive.parquet import joined, to_parquet
from recovery.archive.stores.local_store import LocalStore
from tests.logs.archives import made_copies, write_archive
from tests.runs.goings import run_through

_SNAKE_CASE = re.compile(r"[a-z]+(_[a-z]+)*")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=3))
    return tmp_path / "archive"


def checked(archive: Path, *, rebuilds: bool = False, is_logs_only: bool = False) -> ArchiveReport:
    output = str(archive.parent / "output")
    options = CheckOptions(url=str(archive), output=output, rebuilds=rebuilds, is_logs_only=is_logs_only)
    return run_through(options)[0]


def rows_of(archive: Path, kind: str = "verdicts") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(archive.parent / "output" / kind).to_pylist()
    return rows


@pytest.mark.parametrize("is_logs_only", [False, True])
def test_the_verdicts_are_those_of_the_last_run(is_logs_only: bool, archive: Path) -> None:
    first = checked(archive, is_logs_only=is_logs_only)
    count = len(rows_of(archive))
    assert count == first.summary.objects
    log = sorted(archive.rglob("*.log"))[1]
    log.write_bytes(log.read_bytes()[:-1])
    second = checked(archive, is_logs_only=is_logs_only)
    for kind in ("verdicts", "partitions"):
        rows = rows_of(archive, kind)
        assert {row["run_id"] for row in rows} == {second.run}
        assert len({row["run_time"] for row in rows}) == 1
        assert list(rows[0])[:2] == ["run_id", "run_time"]
    assert len(rows_of(archive)) == count
    assert [row["key"] for row in rows_of(archive) if row["valid"] is False] == [
        row["key"] for row in second.objects
    ]
    for report in (first, second):
        rows = rows_of(archive, f"history/{report.run}/objects")
        assert {row["run_id"] for row in rows} == {report.run}
        assert (archive.parent / "output" / "history" / report.run / "summary.json").exists()


@pytest.mark.parametrize("before", ["verdicts/objects.parquet", "partitions/partitions.parquet"])
def test_a_killed_run_leaves_whole_verdicts(
    before: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each of the last writes: each file has the rows of one run."""
    first = checked(archive)

    class Killed(BaseException):
        pass

    def replace(store: LocalStore, key: str, data: bytes) -> None:
        if key == before:
            raise Killed
        real(store, key, data)

    real = LocalStore.replace
    monkeypatch.setattr(LocalStore, "replace", replace)
    with pytest.raises(Killed):
        checked(archive)
    assert {row["run_id"] for row in rows_of(archive, before)} == {first.run}
    assert len({row["run_id"] for row in rows_of(archive)}) == 1


def test_parts_become_one_file(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recovery.archive.engine import verdicts

    monkeypatch.setattr(verdicts, "_ROWS_IN_A_FILE", 1)
    write_archive(archive.parent / "two", "local-tiered", made_copies(partition=1, segments=2))
    for folder in (archive.parent / "two").iterdir():
        folder.rename(archive / folder.name)
    report = checked(archive)
    folder = archive.parent / "output" / "history" / report.run
    assert len(list((folder / "objects").iterdir())) == 2
    assert len(rows_of(archive)) == report.summary.objects
    assert len(rows_of(archive, "partitions")) == 2


def test_parts_are_joined_piece_by_piece() -> None:
    """What was written of one part is given away before the next one is read."""
    schema = pa.schema([("number", pa.int64())])
    taken_bytes: list[int] = []
    seen_bytes: list[int] = []

    def parts() -> Iterator[bytes]:
        for part in range(4):
            seen_bytes.append(sum(taken_bytes))
            rng = np.random.default_rng(part)
            yield to_parquet(
                ({"number": number} for number in rng.integers(2**62, size=5000).tolist()), schema
            )

    whole = b""
    for piece in joined(parts()):
        taken_bytes.append(len(piece))
        whole += piece
    assert all(after - before > 30_000 for before, after in pairwise(seen_bytes))
    assert max(taken_bytes) < len(whole) / 3
    assert len(pq.read_table(pa.BufferReader(whole))) == 20_000


def test_names_of_columns_have_one_style(archive: Path) -> None:
    next(archive.rglob("*.index")).unlink()
    report = checked(archive)
    names = [name for kind in ("verdicts", "partitions") for name in rows_of(archive, kind)[0]]
    names += [*rows_of(archive)[0]["findings"], *segment_schema().names]
    assert [name for name in names if not _SNAKE_CASE.fullmatch(name)] == []
    (row,) = json.loads(report.to_json())["objects"]
    assert {"baseOffset", "firstBadPosition", "notRebuilt", "bytesChecked"} <= row.keys()
    assert not [name for name in row if "_" in name]


def test_what_the_report_names_is_what_is_there(archive: Path) -> None:
    """Also when an earlier run has rebuilt something that has come back since."""
    folder = archive.parent / "output"
    indexes = sorted(archive.rglob("*.index"))
    held = indexes[0].read_bytes()
    indexes[0].unlink()
    first = checked(archive, rebuilds=True)
    indexes[0].write_bytes(held)
    indexes[1].unlink()
    second = checked(archive, rebuilds=True)
    for report in (first, second):
        rebuilt = {row["rebuilt"] for row in report.objects} - {None}
        there = (folder / outputs.RECOVERED / report.run).rglob("*.*")
        assert {str(path.relative_to(folder)) for path in there} == rebuilt
        assert len(rebuilt) == 1
        (row,) = report.objects
        assert row["remedy"] == f"put {row['rebuilt']} of the output in its place"
