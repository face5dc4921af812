"""A real broker's tiered storage, verified with what its metadata topic says: no false alarm, and damage is found."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.cli.main import main
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.archives import (
    EPOCHS,
    INDEXES,
    LAYOUTS,
    LOG,
    MANIFEST,
    SNAPSHOT,
    SegmentCopy,
    made_copies,
    metadata_records,
    write_archive,
)
from tests.logs.metadata_topic import write_metadata
from tests.runs.goings import bad_objects, gone_through, objects_of


@pytest.fixture
def copied(stored_archive: TieredArchive, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored_archive.path, tmp_path / "archive"))


def segments_of(folder: Path) -> list[str]:
    """Return the stems of a folder's segments, ascending."""
    return sorted({path.name.partition(".")[0] for path in folder.iterdir()})


def remove_segment(folder: Path, place: int) -> str:
    stem = segments_of(folder)[place]
    for path in folder.glob(f"{stem}.*"):
        path.unlink()
    return stem


@pytest.mark.parametrize("is_deep", [False, True])
def test_what_a_broker_has_left_is_sound(is_deep: bool, stored_archive: TieredArchive) -> None:
    """With an interrupted copy, unfinished and lost deletions, several epochs, aborted transactions, all codecs."""
    verdicts = gone_through(stored_archive.path, metadata=stored_archive.log_dirs, is_deep=is_deep)
    assert bad_objects(verdicts) == {}
    ends = {
        f"{verdict.head.where.topic}-{verdict.head.where.partition}": verdict.end_offset
        for verdict in verdicts
        if verdict.segment_count
    }
    expected = {
        name: facts["latest_tiered_offset"] + 1
        for name, facts in stored_archive.expected["partitions"].items()
        if facts["latest_tiered_offset"] >= 0
    }
    assert ends == expected


def test_segments_are_those_that_the_broker_names(stored_archive: TieredArchive) -> None:
    report = inventory(
        ArchiveOptions(url=str(stored_archive.path), metadata=tuple(map(str, stored_archive.log_dirs)))
    )
    found = Counter[str]()
    for one in report.topics.values():
        found.update(one.statuses)
    states = Counter(segment["states"][-1] for segment in stored_archive.expected["segments"].values())
    assert found["archived"] == states["COPY_SEGMENT_FINISHED"]
    assert found["copy-started"] == states["COPY_SEGMENT_STARTED"]
    assert found["delete-started"] == states["DELETE_SEGMENT_STARTED"]
    assert report.exit_code == 0


def test_a_segment_that_is_gone_is_missed(stored_archive: TieredArchive, copied: Path) -> None:
    folder = next(copied.rglob("plain-0-*"))
    stem = remove_segment(folder, 3)
    report = inventory(ArchiveOptions(url=str(copied), metadata=tuple(map(str, stored_archive.log_dirs))))
    assert [(found.file, found.rule) for _, found in report.findings if found.severity == "damage"] == [
        (f"{stem}.log", "missing-segment")
    ]
    assert report.exit_code == 2
    bad = bad_objects(gone_through(copied, metadata=stored_archive.log_dirs))
    assert {Path(key).name: rules for key, rules in bad.items()} == {
        f"{stem}.log": ["missing-segment"],
        f"{segments_of(folder)[3]}.log": ["offset-gap"],
    }


def test_a_hole_that_a_deletion_has_left_is_no_gap(stored_archive: TieredArchive, copied: Path) -> None:
    """Segments before it are still there, as their deletion has failed; without the metadata topic nobody knows."""
    (folder,) = copied.rglob("failing-delete-0-*")
    deleted = next(stem for stem in segments_of(folder) if int(stem[:20]) == 145)
    for path in folder.glob(f"{deleted}.*"):
        path.unlink()
    assert bad_objects(gone_through(copied, metadata=stored_archive.log_dirs)) == {}
    (found,) = (
        rules
        for key, rules in bad_objects(gone_through(copied)).items()
        if "failing-delete" in key and key.endswith(".log")
    )
    assert found == ["offset-gap"]


def test_a_partition_that_is_gone_is_missed(stored_archive: TieredArchive, copied: Path) -> None:
    folder = next(copied.rglob("codecs-0-*"))
    count = len(segments_of(folder))
    shutil.rmtree(folder)
    bad = bad_objects(gone_through(copied, metadata=stored_archive.log_dirs))
    assert list(bad.values()) == [["missing-segment"]] * count
    assert {Path(key).parent.name for key in bad} == {folder.name}


def test_a_segment_of_another_name_is_an_orphan(stored_archive: TieredArchive, copied: Path) -> None:
    folder = next(copied.rglob("plain-1-*"))
    stem = segments_of(folder)[-1]
    for path in folder.glob(f"{stem}.*"):
        shutil.copy(path, folder / path.name.replace(path.name[21:43], "AAAAAAAAAAAAAAAAAAAAAQ"))
    report = inventory(ArchiveOptions(url=str(copied), metadata=tuple(map(str, stored_archive.log_dirs))))
    assert [found.rule for _, found in report.findings if found.file.startswith(stem[:20])] == ["orphan"]


@pytest.mark.parametrize(
    ("layout", "part"), [("local-tiered", SNAPSHOT), ("local-tiered", LOG), ("aiven", INDEXES)]
)
def test_all_commands_call_an_incomplete_orphan_one(layout: str, part: str, tmp_path: Path) -> None:
    """Nobody reads it, so that it lacks something is no damage; without metadata a sound twin says so."""
    archive = write_archive(tmp_path / "archive", layout, made_copies())
    copy = archive.copies[2]
    orphan = replace(copy, remote=replace(copy.remote, segment_id=UUID(int=77)))
    for path, content in LAYOUTS[layout](archive, orphan, 9).items():
        path.write_bytes(content)
    archive.place(orphan, part).unlink()
    write_metadata(tmp_path / "log-dir", metadata_records(archive.metadata), segment_batches=1000)
    known = [tmp_path / "log-dir"]
    report = inventory(ArchiveOptions(url=str(archive.root), metadata=tuple(map(str, known))))
    (finding,) = (found for _, found in report.findings)
    assert (finding.rule, finding.severity, report.exit_code) == ("orphan", "note", 0)
    assert "which has no" in finding.detail
    for verdicts in (
        gone_through(archive.root, metadata=known),
        gone_through(archive.root, metadata=known, is_logs_only=True),
        gone_through(archive.root, tmp_path / "output", metadata=known),
    ):
        assert bad_objects(verdicts) == {}
        assert not any(one.rebuilt for one in objects_of(verdicts).values())
        assert finding in [found for one in objects_of(verdicts).values() for found in one.verdict.findings]
    for is_logs_only in (False, True):
        assert bad_objects(gone_through(archive.root, is_logs_only=is_logs_only)) == {}
    verdicts = gone_through(archive.root, tmp_path / "output of names")
    assert bad_objects(verdicts) == {}
    assert not any(one.rebuilt for one in objects_of(verdicts).values())


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        *(
            (layout, fault)
            for layout in ("local-tiered", "aiven")
            for fault in ("damaged", "shorter", "incomplete")
        ),
        ("local-tiered", "another history"),  # without a manifest nothing is known of a log but its size
    ],
)
def test_an_incomplete_segment_is_damage_unless_its_twin_is_sound(
    layout: str, fault: str, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path / "archive", layout, made_copies())
    copy = archive.copies[2]
    own = made_copies(seed=2)[2] if fault == "another history" else copy
    files = {**copy.files, LOG: own.files[LOG]}
    own = SegmentCopy(remote=replace(copy.remote, segment_id=UUID(int=77)), files=files)
    for path, content in LAYOUTS[layout](archive, own, 9).items():
        path.write_bytes(content)
    lost = archive.place(own, EPOCHS if layout == "local-tiered" else MANIFEST)
    lost.unlink()
    path = archive.place(copy, LOG)
    data = path.read_bytes()
    if fault == "damaged":
        path.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    elif fault == "shorter":
        path.write_bytes(data[:-70])
    elif fault == "incomplete":
        archive.place(copy, SNAPSHOT if layout == "local-tiered" else INDEXES).unlink()
    bad = bad_objects(gone_through(archive.root))
    assert lost.relative_to(archive.root).as_posix() in bad


@pytest.mark.parametrize("layout", ["plain", "local-tiered", "aiven"])
def test_topics_without_ids_are_no_damage(layout: str, tmp_path: Path) -> None:
    """Copies of clusters before 2.8 have no `partition.metadata`, and a plugin may have written an id of zeros."""

    def without_id(copy: SegmentCopy) -> SegmentCopy:
        owner = replace(copy.owner, topic_id=UUID(int=0))
        return replace(copy, remote=replace(copy.remote, owner=owner))

    archive = write_archive(tmp_path / "archive", layout, map(without_id, made_copies(segments=3)))
    for path in archive.root.rglob("partition.metadata"):
        path.unlink()
    verdicts = gone_through(archive.root)
    assert bad_objects(verdicts) == {}
    notes = [found.rule for one in objects_of(verdicts).values() for found in one.verdict.findings]
    assert notes == (["topic-id"] if layout == "plain" else [])
    if layout != "plain":
        write_metadata(tmp_path / "log-dir", metadata_records(archive.metadata), segment_batches=1000)
        assert bad_objects(gone_through(archive.root, metadata=[tmp_path / "log-dir"])) == {}


def test_a_log_that_is_not_the_one_that_was_copied(stored_archive: TieredArchive, copied: Path) -> None:
    """Sound in itself, but the metadata topic speaks of other offsets and sizes."""
    folder = next(copied.rglob("plain-1-*"))
    first, second = segments_of(folder)[:2]
    shutil.copy(folder / f"{first}.log", folder / f"{second}.log")
    bad = bad_objects(gone_through(folder.parent, metadata=stored_archive.log_dirs))
    rules = bad[f"{folder.name}/{second}.log"]
    assert {"metadata", "offset-range"} <= set(rules)


class TestCommand:
    def test_text(self, stored_archive: TieredArchive, capsys: pytest.CaptureFixture[str]) -> None:
        metadata = ",".join(map(str, stored_archive.log_dirs))
        assert main(["archive", "inventory", str(stored_archive.path), "--metadata", metadata]) == 0
        out = capsys.readouterr().out
        assert "below-log-start: offsets 29 to 57" in out
        assert "more notes (-v lists them)" in out
        assert "compared with the metadata topic" in out
        assert main(["archive", "inventory", str(stored_archive.path), "--metadata", metadata, "-v"]) == 0
        each = capsys.readouterr().out
        assert "more notes" not in each
        assert len(each.splitlines()) > len(out.splitlines())
        assert main(["archive", "inventory", str(stored_archive.path), "--metadata", metadata, "-q"]) == 0
        assert capsys.readouterr().out == ""

    def test_json_and_parquet(
        self, stored_archive: TieredArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import pyarrow.parquet as pq

        output = tmp_path / "output"
        arguments = ["--output", str(output), "--format", "json", "--topic", "plain"]
        assert main(["archive", "inventory", str(stored_archive.path), *arguments]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(one["topic"], one["partitions"]) for one in report["topics"]] == [("plain", 2)]
        table = pq.read_table(report["output"])
        assert table.num_rows == report["topics"][0]["segments"]
        assert set(table["status"].to_pylist()) == {"archived"}

    def test_an_inventory_needs_no_spark(
        self, stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        assert main(["archive", "inventory", str(stored_archive.path), "--topic", "plain"]) == 0

    def test_a_wrong_option_is_said(
        self, stored_archive: TieredArchive, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["archive", "verify", str(stored_archive.path), "--aiven-key", "nokey"]) == 1
        assert "--aiven-key nokey: expected ID=FILE" in capsys.readouterr().err

    def test_what_is_no_archive(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["archive", "inventory", str(tmp_path)]) == 1
        assert "no folder of a partition was found" in capsys.readouterr().err
        assert main(["archive", "inventory", str(tmp_path / "nowhere")]) == 1
        assert main(["archive", "inventory", "hdfs://name/dir"]) == 1
        assert "HDFS is not" in capsys.readouterr().err


def test_objects_have_one_verdict_each(stored_archive: TieredArchive) -> None:
    verdicts = gone_through(stored_archive.path, metadata=stored_archive.log_dirs)
    keys = [one.verdict.path for verdict in verdicts for one in verdict.objects]
    assert len(keys) == len(set(keys)) == len(objects_of(verdicts))
    files = {
        str(path.relative_to(stored_archive.path))
        for path in stored_archive.path.rglob("*")
        if path.is_file()
    }
    nowhere = {
        key for key in keys if "stuck-copy" in key
    } - files  # of the segment whose copy was interrupted
    assert set(keys) == files | nowhere
    assert len(nowhere) == 3


@pytest.mark.parametrize("keep", [0, 1])
def test_a_time_index_that_was_cut_between_entries_is_found_and_rebuilt(
    keep: int, stored_archive: TieredArchive, tmp_path: Path
) -> None:
    (source,) = stored_archive.path.glob("plain-0-*")
    folder = Path(shutil.copytree(source, tmp_path / "archive" / source.name))
    path = next(path for path in sorted(folder.glob("*.timeindex")) if path.stat().st_size >= 24)
    path.write_bytes(path.read_bytes()[: 12 * keep])
    assert bad_objects(gone_through(folder.parent)) == {f"{folder.name}/{path.name}": ["index-sparse"]}
    verdicts = gone_through(folder.parent, tmp_path / "output", is_in_place=True)
    assert objects_of(verdicts)[f"{folder.name}/{path.name}"].rebuilt is not None
    assert bad_objects(gone_through(folder.parent)) == {}


@pytest.mark.parametrize("is_interval_known", [True, False])
@pytest.mark.parametrize("keep", [0, 1])
def test_an_offset_index_that_was_cut_between_entries_is_found(
    keep: int, is_interval_known: bool, stored_archive: TieredArchive, tmp_path: Path
) -> None:
    (source,) = stored_archive.path.glob("plain-0-*")
    folder = Path(shutil.copytree(source, tmp_path / "archive" / source.name))
    path = max(sorted(folder.glob("*.index")), key=lambda index: index.stat().st_size)
    assert path.stat().st_size > 24
    path.write_bytes(path.read_bytes()[: 8 * keep])
    configs = {"plain": {"index.interval.bytes": "1024"}} if is_interval_known else None
    verdicts = gone_through(folder.parent, topic_configs=configs)
    (finding,) = objects_of(verdicts)[f"{folder.name}/{path.name}"].verdict.findings
    assert finding.rule == "index-sparse"
    assert finding.severity == ("damage" if is_interval_known else "note")
