"""What is kept between runs: plain columns that give the same verdicts, and are not believed where they are wrong."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from native.producer_sequences import BREAK_DTYPE, SEQUENCE_DTYPE
from native.raw_scan import PRODUCER_DTYPE, TIME_INDEX_ROW_DTYPE, TXN_EVENT_DTYPE
from recovery.archive.check import kept_scans
from recovery.archive.check.kept_scans import (
    KeptLogs,
    KeptScanError,
    KeptSegment,
    keep_scans,
    kept_keys,
    read_scans,
    schema_of,
)
from recovery.archive.check.known_scans import KnownScans
from recovery.archive.check.packing import PackedTask
from recovery.archive.check.scan_rows import ScanRow, fold_rows, scan_task
from recovery.archive.check.scanned import VERSION, ScanOptions
from recovery.archive.check.survey import SurveyedPartition, survey
from recovery.archive.check.survey_spool import spooled_head
from recovery.archive.check.verdict_rows import object_row, partition_row
from recovery.archive.layouts.layouts import layout_of
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.stores import open_archive
from tests.brokers.tiered_broker import unpack_tiered
from tests.documents.texts import fences
from tests.logs.archives import made_copies, write_archive

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "kept-scans.md"
RUN = b"0123456789abcdef"


class Runs:
    """An archive that is verified again and again with one output."""

    def __init__(
        self, root: Path, output: Path, *, is_logs_only: bool = False, files_from: Path | None = None
    ) -> None:
        self.output = output
        self._is_logs_only = is_logs_only
        self._store = open_archive(str(root), None if files_from is None else str(files_from))
        self._layout = layout_of(self._store)
        self._kept = LocalStore(str(output))
        self.read_count = 0
        self.notes: list[str] = []

    def verdicts(self) -> list[dict[str, Any]]:
        """Verify the archive; return the rows of its objects and partitions."""
        known = KnownScans(self._kept)
        self.notes = [note.text for note in known.notes]
        self.read_count = 0
        for surveyed in self._survey():
            unknown = known.without(surveyed)
            self.read_count += len(unknown.works)
            task = PackedTask(heads=[spooled_head(surveyed.head)], works=[unknown.works])
            rows = scan_task(task, self._store, self._layout, run=RUN, is_logs_only=self._is_logs_only)
            assert all(row.value is None for row in keep_scans(self._kept, rows, heads_of=RUN))
        return self.folded()

    def folded(self) -> list[dict[str, Any]]:
        """Fold what is kept."""
        verdicts = fold_rows(self._rows(), self._layout, run=RUN, is_logs_only=self._is_logs_only)
        return [
            row
            for verdict in verdicts
            for row in (partition_row(verdict), *(object_row(verdict, one) for one in verdict.objects))
        ]

    def _survey(self) -> Iterator[SurveyedPartition]:
        options = ScanOptions(
            url=self._store.url, layout=self._layout.name, is_logs_only=self._is_logs_only, now_ms=1
        )
        for surveyed in survey(self._store, self._layout, options):
            assert isinstance(surveyed, SurveyedPartition)
            yield surveyed

    def _rows(self) -> list[ScanRow]:
        rows = []
        for key in kept_keys(self._kept, RUN):
            try:
                rows += read_scans(self._kept, key)
            except KeptScanError:
                continue
        return sorted(rows, key=lambda row: row[:3])

    def kept(self) -> Path:
        """The only file of scans."""
        (path,) = self.output.glob("scans/*.parquet")
        return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four segments with producers and transactions; one log has a wrong byte."""
    root = tmp_path_factory.mktemp("made") / "archive"
    write_archive(root, "local-tiered", made_copies(segments=4))
    damaged = sorted(root.rglob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    return root


def plain(value: Any) -> Any:
    """A value of ours as lists and dicts, in which a tuple is no different from a list."""
    if dataclasses.is_dataclass(value):
        fields = (field for field in dataclasses.fields(value) if field.metadata.get("is_kept", True))
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def rewritten(path: Path, table: pa.Table) -> Path:
    """Put *table* in the place of the file of scans at *path*, under the name that its bytes give it."""
    path.unlink()
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary, use_dictionary=False, write_statistics=False)
    return renamed(temporary, "." + path.name.partition(".")[2])


def renamed(path: Path, suffix: str) -> Path:
    return path.rename(path.parent / (kept_scans._checksum(path.read_bytes()) + suffix))


@pytest.mark.parametrize("is_logs_only", [False, True])
def test_a_kept_scan_gives_the_verdicts_of_the_scan(
    is_logs_only: bool, archive: Path, tmp_path: Path
) -> None:
    runs = Runs(archive, tmp_path, is_logs_only=is_logs_only)
    first = runs.verdicts()
    assert (runs.read_count, runs.notes) == (4, [])
    files = {path: path.read_bytes() for path in tmp_path.glob("scans/*")}
    assert runs.verdicts() == first
    assert (runs.read_count, runs.notes) == (0, [])
    assert {path: path.read_bytes() for path in tmp_path.glob("scans/*")} == files
    assert [row["rule"] for row in first if row.get("valid") is False and row["kind"] == "log"] == [
        "checksum"
    ]


@pytest.mark.parametrize("layout", ["local-tiered", "plain", "aiven"])
def test_what_a_scan_of_damage_results_in_is_taken(layout: str, tmp_path: Path) -> None:
    """What is refused is never the result of a scan: else it would be refused in each run."""
    root = tmp_path / "archive"
    write_archive(root, layout, made_copies(segments=7))
    logs = [path.read_bytes() for path in sorted(root.rglob("*.log"))]
    damages = [
        b"",
        bytes(len(logs[1])),
        logs[2][:-3],
        logs[3] + b"more",
        b"\xff" * len(logs[4]),
        logs[4] + logs[5],
        None,
    ]
    for path, damaged in zip(sorted(root.rglob("*.log")), damages, strict=True):
        if damaged is None:
            path.unlink()
        else:
            path.write_bytes(damaged)
    runs = Runs(root, tmp_path / "output")
    verdicts = runs.verdicts()
    assert (runs.verdicts(), runs.read_count, runs.notes) == (verdicts, 0, [])


def test_all_values_of_a_real_archive_come_back(tmp_path: Path) -> None:
    """Every field of every result, heads and folders of a plain copy included."""
    archive = unpack_tiered(tmp_path / "archive")
    for root in (archive.path, *sorted(path for path in archive.root.iterdir() if path.name.startswith("d"))):
        runs = Runs(root, tmp_path / f"output-{root.name}")
        kept = LocalStore(str(runs.output))
        values: dict[tuple[Any, ...], Any] = {}

        def noted(rows: Iterator[ScanRow], values: dict[tuple[Any, ...], Any] = values) -> Iterator[ScanRow]:
            for row in rows:
                values[row[:4]] = plain(row.value)
                yield row

        for surveyed in runs._survey():
            task = PackedTask(heads=[spooled_head(surveyed.head)], works=[surveyed.works])
            list(keep_scans(kept, noted(scan_task(task, runs._store, runs._layout, run=RUN)), heads_of=RUN))
        assert len(values) > 3
        assert {row[:4]: plain(row.value) for row in runs._rows()} == values


def test_anybody_can_read_it(archive: Path, tmp_path: Path) -> None:
    runs = Runs(archive, tmp_path)
    runs.verdicts()
    table = pq.read_table(runs.kept())
    assert table.schema.metadata[b"kafka-log-recovery.version"] == b"%d" % VERSION
    rows = table.to_pylist()
    assert {row["prefix"] for row in rows} == {path.parent.name + "/" for path in archive.rglob("*.log")}
    assert sum(row["scanned"]["result"] is not None for row in rows) == 4


def _leaves(kind: pa.DataType, name: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{name}.{field.name}" if name else field.name)
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{name}[]")
    else:
        yield name, str(kind)


def test_the_document_has_every_column() -> None:
    """A column that is added, removed or renamed needs a line there, and a new VERSION."""
    text = DOCUMENT.read_text()
    stated = re.findall(r"version (\d+),|version` is\s`(\d+)`", text)
    assert [one or other for one, other in stated] == [str(VERSION)] * 2
    for kind, title in ((KeptSegment, "Segments"), (KeptLogs, "Logs alone")):
        section = text.partition(f"\n## {title}")[2].partition("\n## ")[0]
        documented = re.findall(r"^(\w[\w.\[\]]*) +(\w+)", fences(section), re.M)
        columns = [leaf for field in schema_of(kind) for leaf in _leaves(field.type, field.name)]
        assert documented == columns, title
    for dtype in (PRODUCER_DTYPE, TXN_EVENT_DTYPE, TIME_INDEX_ROW_DTYPE, SEQUENCE_DTYPE, BREAK_DTYPE):
        fields = ", ".join(f"{name} {code}" for name, code in dtype.descr)
        assert fields in " ".join(text.split()), fields


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-7],
        lambda data: b"",
        lambda data: b"PAR1" + bytes(2000) + b"PAR1",
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    ],
    ids=["cut", "empty", "zeros", "a bit"],
)
def test_a_file_that_was_changed_is_named_and_its_segments_are_read_again(
    change: Any, archive: Path, tmp_path: Path
) -> None:
    runs = Runs(archive, tmp_path)
    verdicts = runs.verdicts()
    kept = runs.kept()
    whole = kept.read_bytes()
    kept.write_bytes(change(whole))
    assert runs.verdicts() == verdicts
    assert runs.read_count == 4
    (note,) = runs.notes
    assert f"scans/{kept.name}" in note
    assert "cut or changed" in note
    assert kept.read_bytes() == whole  # written anew
    assert (runs.verdicts(), runs.read_count, runs.notes) == (verdicts, 0, [])


def test_an_older_version_is_never_unpickled(archive: Path, tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "harm",)

    runs = Runs(archive, tmp_path / "output")
    scans = tmp_path / "output" / "scans"
    scans.mkdir(parents=True)
    table = pa.table({"digest": [bytes(16)], "record": [pickle.dumps(Harm())]})
    pq.write_table(table, scans / f"{'0' * 32}.parquet")
    (scans / f"{'0' * 32}.keys").write_bytes(bytes(32))
    pq.write_table(table, scans / "forged")
    renamed(scans / "forged", ".segments.parquet")
    runs.verdicts()
    assert runs.read_count == 4
    refused, others = runs.notes
    assert f"it is not of version {VERSION}" in refused
    assert f"{'0' * 32}.parquet" in others
    assert "can be removed" in others
    assert not (tmp_path / "harm").exists()


_HOSTILE: dict[str, list[Any]] = {
    "int64": [-1, -(2**63), 2**63 - 1],
    "string": ["", "../../etc/passwd", "\x00\x1b[2J"],
    "binary": [b"", b"\xff" * 7, b"\xff" * 480],
    "bool": [],
}


def _altered(array: Any, path: list[str], value: Any) -> Any:
    """Return a list of rows with *value* wherever *path* leads."""
    name, *rest = path
    is_list = name.endswith("[]")
    name = name.removesuffix("[]")

    def put(inner: Any) -> Any:
        if not rest:
            return [value for _ in inner] if is_list else value
        if inner is None:
            return None
        return _altered(inner, rest, value) if is_list else _altered([inner], rest, value)[0]

    return [row | {name: put(row[name])} for row in array]


@pytest.mark.parametrize("kind", [KeptSegment, KeptLogs])
def test_hostile_values_end_no_run(kind: type, archive: Path, tmp_path: Path) -> None:
    """Each column with each wrong value, in a file whose name and columns are right: refused, or the fold gets by."""
    runs = Runs(archive, tmp_path, is_logs_only=kind is KeptLogs)
    verdicts = runs.verdicts()
    kept = next(path for path in tmp_path.glob("scans/*") if (".logs" in path.name) == (kind is KeptLogs))
    table = pq.read_table(kept).slice(0, 2)  # one of them is damaged
    rows, columns = (
        table.to_pylist(),
        [leaf for field in table.schema for leaf in _leaves(field.type, field.name)],
    )
    refused = set()
    for name, type_name in columns:
        for value in (*_HOSTILE[type_name], None):
            altered = _altered(rows, name.split("."), value)
            kept = rewritten(kept, pa.Table.from_pylist(altered, schema=table.schema))
            try:
                read_scans(LocalStore(str(tmp_path)), f"scans/{kept.name}")
            except KeptScanError:
                refused.add((name, value))
            else:
                runs.folded()
    assert runs.verdicts() != verdicts or runs.notes  # the last one was of some harm
    for name in ("prefix", "digest") if kind is KeptSegment else ("prefix", "logs.digests"):
        assert (name, None) in refused
    wrong_key = "scanned.segment.parts[].value.key" if kind is KeptSegment else "logs.segments.objects.prefix"
    assert (wrong_key, "../../etc/passwd") in refused


def _of_results(**values: Any) -> Any:
    """Return a change of all rows: *values* in their results."""
    return lambda scanned: {**scanned, "result": {**scanned["result"], **values}}


_FORGED = {
    "not read": (lambda scanned: {**scanned, "result": None}, "a log that was not read"),
    "not whole": (_of_results(is_whole=False), "a log not read to its end"),
    "no bytes read": (_of_results(checked_bytes=[]), "of which other bytes were read"),
    "no batches": (_of_results(batch_count=0), "batches without a last offset"),
    "nothing in it": (
        _of_results(batch_count=0, first_offset=None, last_offset=None, epoch_runs=[]),
        "a log without a batch",
    ),
    "many batches": (_of_results(batch_count=10**18), "a count of 1000000000000000000"),
    "no agreements": (_of_results(agreements=[]), "agreements of other files"),
    "no epochs": (_of_results(epoch_runs=[]), "leader epochs of other batches than there are"),
    "all batches legacy": (
        lambda scanned: _of_results(legacy_count=scanned["result"]["batch_count"])(scanned),
        "leader epochs of other batches than there are",
    ),
    "more legacy batches than batches": (_of_results(legacy_count=10**6), "a count of 1000000"),
    "one epoch twice": (
        lambda scanned: _of_results(epoch_runs=scanned["result"]["epoch_runs"] * 2)(scanned),
        "leader epochs that do not follow each other",
    ),
    "an early offset": (_of_results(first_offset=-7), "offsets from -7"),
    "another last offset": (_of_results(last_offset=2**62), "the end "),
    "another end": (lambda scanned: {**scanned, "end_offset": -5}, "the end -5"),
    "no end": (lambda scanned: {**scanned, "end_offset": None}, "the end None"),
    "a large log": (lambda scanned: {**scanned, "log_bytes": 2**62}, "a log of 4611686018427387904 bytes"),
    "a small log": (lambda scanned: {**scanned, "log_bytes": 3}, "of which other bytes were read"),
    "no objects": (
        lambda scanned: {**scanned, "segment": {**scanned["segment"], "parts": []}},
        "another segment than",
    ),
    "without an index": (
        lambda scanned: {
            **scanned,
            "segment": {**scanned["segment"], "parts": scanned["segment"]["parts"][:-1]},
        },
        "another segment than",
    ),
    "another id": (
        lambda scanned: {**scanned, "segment": {**scanned["segment"], "segment_id": "../../PWNED"}},
        "another segment than",
    ),
}


@pytest.mark.parametrize("forged", _FORGED)
def test_a_row_that_no_scan_results_in_is_refused(forged: str, archive: Path, tmp_path: Path) -> None:
    """One of a sound segment, so that no finding explains it."""
    runs = Runs(archive, tmp_path)
    verdicts = runs.verdicts()
    change, reason = _FORGED[forged]
    table = pq.read_table(runs.kept())
    rows = table.to_pylist()
    assert not rows[0]["scanned"]["result"]["findings"]
    rows[0]["scanned"] = change(rows[0]["scanned"])
    rewritten(runs.kept(), pa.Table.from_pylist(rows, schema=table.schema))
    assert runs.verdicts() == verdicts
    assert runs.read_count == 4
    (note,) = runs.notes
    assert reason in note


_FORGED_LOGS = {
    "many batches": ("batch_counts", 10**18, "counts that do not fit"),
    "no batches": ("batch_counts", 0, "a sound log without a batch"),
    "a large log": ("log_bytes", 2**62, "counts that do not fit"),
    "an early offset": ("first_offsets", -7, "offsets that do not fit"),
    "no last offset": ("last_offsets", -1, "offsets that do not fit"),
    "another segment": ("base_offsets", 5, "another segment than"),
}


@pytest.mark.parametrize("forged", _FORGED_LOGS)
def test_a_row_of_logs_that_no_check_results_in_is_refused(
    forged: str, archive: Path, tmp_path: Path
) -> None:
    runs = Runs(archive, tmp_path, is_logs_only=True)
    verdicts = runs.verdicts()
    name, value, reason = _FORGED_LOGS[forged]
    (kept,) = tmp_path.glob("scans/*.logs.parquet")
    table = pq.read_table(kept)
    rows = table.to_pylist()
    logs = rows[0]["logs"]
    owner = logs["segments"] if name in logs["segments"] else logs
    owner[name][0] = value
    rewritten(kept, pa.Table.from_pylist(rows, schema=table.schema))
    assert runs.verdicts() == verdicts
    (note,) = runs.notes
    assert reason in note


def test_a_log_that_has_not_its_listed_size_is_not_kept_as_read(archive: Path, tmp_path: Path) -> None:
    """A list may have sizes of another day: what was read is not what the row would stand for."""
    listed = tmp_path / "list"
    keys = sorted(str(path.relative_to(archive)) for path in archive.rglob("*") if path.is_file())
    short = next(key for key in keys if key.endswith(".log"))
    stored = [LocalStore(str(archive)).stat(key) for key in keys]
    listed.write_text(
        "".join(f"{one.key}\t{one.size_bytes - (one.key == short)}\t{one.version}\n" for one in stored)
    )
    runs = Runs(archive, tmp_path / "output", files_from=listed)
    rows = runs.verdicts()
    assert [row["key"] for row in rows if row.get("rule") == "changing"] == [short]
    assert (runs.verdicts(), runs.read_count, runs.notes) == (rows, 1, [])


@pytest.mark.parametrize("is_logs_only", [False, True])
def test_segments_without_etags_are_kept_for_their_run_alone(
    is_logs_only: bool, archive: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "list"
    objects = [path for path in archive.rglob("*") if path.is_file()]
    listed.write_text("".join(f"{path.relative_to(archive)}\t{path.stat().st_size}\n" for path in objects))
    runs = Runs(archive, tmp_path / "output", is_logs_only=is_logs_only, files_from=listed)
    plain_runs = Runs(archive, tmp_path / "other", is_logs_only=is_logs_only)
    rows = [{**row, "version": ""} for row in plain_runs.verdicts()]
    assert [{**row, "version": ""} for row in runs.verdicts()] == rows
    assert not (tmp_path / "output" / "scans").exists()
    assert runs.read_count == 4


def test_enormous_counts_are_refused_before_they_are_read(archive: Path, tmp_path: Path) -> None:
    runs = Runs(archive, tmp_path)
    verdicts = runs.verdicts()
    row = pq.read_table(runs.kept()).slice(0, 1)
    table = pa.concat_tables([row] * 6_000)
    rewritten(runs.kept(), table)
    assert runs.verdicts() == verdicts
    assert "more than a task writes" in runs.notes[0]


def test_dictionaries_are_refused_by_that_name(archive: Path, tmp_path: Path) -> None:
    runs = Runs(archive, tmp_path)
    verdicts = runs.verdicts()
    kept = runs.kept()
    table = pq.read_table(kept)
    kept.unlink()
    pq.write_table(table, tmp_path / "file", use_dictionary=True)
    (tmp_path / "file").rename(kept)
    renamed(kept, ".segments.parquet")
    assert runs.verdicts() == verdicts
    assert "encoded with dictionaries" in runs.notes[0]


def test_large_results_are_divided_into_files(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_scans, "_MOST_BYTES", 1)
    runs = Runs(archive, tmp_path)
    verdicts = runs.verdicts()
    assert len(list(tmp_path.glob("scans/*"))) == 4
    assert (runs.verdicts(), runs.read_count) == (verdicts, 0)
