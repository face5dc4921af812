"""`archive metrics ARCHIVE`: what lies in remote storage, beside what the metadata topic knows of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.inventory.run import inventory
from recovery.archive.layouts.tiered_layout import LocalTieredLayout
from recovery.archive.options import ArchiveOptions
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Level
from recovery.archive.tiering.figures import OF_ARCHIVE
from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.prometheus import metrics_text
from recovery.archive.tiering.report import TieringReport
from recovery.archive.tiering.run import measure_tiering
from recovery.errors import UsageError
from segfmt.kafka_uuid import format_uuid
from segfmt.partition_metadata import read_partition_metadata
from tests.brokers.tiered_broker import TieredArchive, opened, unpack_tiered
from tests.logs.aiven_archive import finished_segments, store_segment
from tests.runs.command import Done, run
from tests.runs.driving import footprint

NEW_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("tiering"))


@pytest.fixture
def archive(unpacked: TieredArchive, tmp_path: Path) -> TieredArchive:
    return opened(shutil.copytree(unpacked.root, tmp_path / "tiered"))


def metrics(archive: TieredArchive, *arguments: object) -> Done:
    log_dirs = ",".join(map(str, archive.log_dirs))
    return run("archive", "metrics", *map(str, arguments), "--metadata", log_dirs, "--format", "json")


def measured(sample: TieredArchive, **options: Any) -> TieringReport:
    options = {"archive": str(sample.path)} | options
    return measure_tiering(TieringOptions(metadata=tuple(map(str, sample.log_dirs)), **options))


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['topic']}-{one['partition']}": one for one in report["partitions"]}


def folder_of(archive: TieredArchive, name: str) -> Path:
    (folder,) = archive.path.glob(f"{name}-*")
    return folder


def segment_files(folder: Path, number: int) -> list[Path]:
    """The objects of the segment with this number in a folder."""
    stem = sorted(path.stem for path in folder.glob("*.log"))[number]
    return sorted(folder.glob(f"{stem}.*"))


def log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def test_without_an_archive_nothing_is_counted(archive: TieredArchive) -> None:
    report = measured(archive, archive=None)
    assert report.exit_code == 0
    assert report.archive is None
    for figures in (one.figures for found in (report.topics, report.partitions) for one in found):
        assert {getattr(figures, name) for name in OF_ARCHIVE} == {None}
    text = metrics_text(report).decode()
    assert "archive" not in text
    assert "orphan" not in text
    assert '"archive": null' in report.to_json()


def test_a_whole_archive(archive: TieredArchive) -> None:
    before = footprint(archive.path)
    done = metrics(archive, archive.path)
    assert (done.exit_code, done.report["warnings"]) == (0, [])
    assert done.report["archive"] == {
        "url": str(archive.path),
        "layout": "local-tiered",
        "otherPartitions": 0,
        "otherSegments": 0,
        "otherLogBytes": 0,
    }
    found = by_name(done.report)
    deleted = Counter(
        f"{one['topic']}-{one['partition']}"
        for one in archive.expected["segments"].values()
        if one["states"][-1] == "DELETE_SEGMENT_FINISHED"
    )
    for name, one in found.items():
        folders = list(archive.path.glob(f"{name}-*"))
        assert one["archivedLogBytes"] == sum(map(log_bytes, folders)), name
        assert one["archivedSegments"] == sum(len(list(folder.glob("*.log"))) for folder in folders)
        assert one["missingSegments"] == one["missingBytes"] == one["incompleteSegments"] == 0
        assert one["orphanSegments"] == one["orphanBytes"] == 0
        assert one["uncomparedSegments"] == 0
        assert one["undeletedSegments"] == (deleted[name] if name == "lost-delete-0" else 0)
    lost = found["lost-delete-0"]
    assert lost["archivedLogBytes"] > lost["remoteLogSizeBytes"]
    assert lost["undeletedBytes"] > lost["archivedLogBytes"] - lost["remoteLogSizeBytes"]
    assert found["plain-0"]["archivedLogBytes"] == found["plain-0"]["remoteLogSizeBytes"]
    (plain,) = (one for one in done.report["topics"] if one["topic"] == "plain")
    parts = [found["plain-0"]["archivedLogBytes"], found["plain-1"]["archivedLogBytes"]]
    assert plain["archivedLogBytes"] == sum(parts)
    assert footprint(archive.path) == before


def damage(archive: TieredArchive) -> dict[str, Any]:
    """Take and add segments of plain-0; what is then to be said of it, and the segments by their inventory."""
    folder = folder_of(archive, "plain-0")
    gone, without_log, without_index = (segment_files(folder, number) for number in (1, 3, 5))
    copied = segment_files(folder, 7)
    after = folder / f"{10**6:020d}-{NEW_ID}.log"
    shutil.copy(
        folder_of(archive, "plain-1") / segment_files(folder_of(archive, "plain-1"), 0)[-1].name, after
    )
    for path in copied:
        shutil.copy(path, folder / f"{path.name[:20]}-{NEW_ID}{path.suffix}")
    (log,) = (path for path in without_log if path.suffix == ".log")
    missing_bytes = sum(path.stat().st_size for path in gone if path.suffix == ".log") + log.stat().st_size
    for path in (*gone, log):
        path.unlink()
    (index,) = (path for path in without_index if path.suffix == ".index")
    index.unlink()
    return {
        "missingSegments": 2,
        "missingBytes": missing_bytes,
        "incompleteSegments": 1,
        "orphanSegments": 1,
        "orphanBytes": sum(path.stat().st_size for path in copied),
        "undeletedSegments": 0,
        "uncomparedSegments": 1,
        "archivedLogBytes": log_bytes(folder),
        "archivedSegments": len(list(folder.glob("*.log"))),
    }


def test_what_is_missing_and_what_nobody_knows(archive: TieredArchive) -> None:
    expected = damage(archive)
    done = metrics(archive, archive.path)
    assert done.exit_code == 0  # a figure, not a failure
    found = by_name(done.report)["plain-0"]
    assert {key: found[key] for key in expected} == expected
    listed = run(
        *("archive", "inventory", str(archive.path), "--topic", "plain", "--partition", "plain-0"),
        *("--metadata", ",".join(map(str, archive.log_dirs)), "--format", "json"),
    )
    (of_topic,) = listed.report["topics"]
    statuses = of_topic["statuses"]
    assert statuses["missing"] + statuses["incomplete"] == 3
    assert (statuses["orphan"], statuses["not-compared"]) == (1, 1)
    text = run("archive", "metrics", archive.path, "--metadata", ",".join(map(str, archive.log_dirs)))
    first, second, *_ = text.stdout.splitlines()
    assert first.startswith("MISSING plain-0: 2 finished segments, ")
    assert second.startswith("MISSING plain-0: 1 finished segment without indexes")
    assert "orphans: 1, " in text.stdout
    assert "not compared: 1" in text.stdout
    samples = metrics_text(measured(archive)).decode()
    assert 'remote_missing_segments{partition="0",topic="plain"} 2.0' in samples
    assert f'remote_orphan_bytes{{partition="0",topic="plain"}} {float(expected["orphanBytes"])}' in samples


def test_a_partition_that_is_not_there_and_one_that_is_too_much(archive: TieredArchive) -> None:
    folder = folder_of(archive, "plain-1")
    stranger = folder.with_name(f"stranger-3-{NEW_ID}")
    folder.rename(stranger)
    done = metrics(archive, archive.path)
    found = by_name(done.report)["plain-1"]
    assert (found["archivedSegments"], found["archivedLogBytes"]) == (0, 0)
    assert found["missingSegments"] == found["remoteLogMetadataCount"] > 0
    assert found["missingBytes"] == found["remoteLogSizeBytes"]
    others = done.report["archive"]
    assert others["otherPartitions"] == 1
    assert others["otherLogBytes"] == log_bytes(stranger) > 0
    assert "stranger-3" not in by_name(done.report)
    text = measured(archive).to_text()
    assert "also has 1 partition of deleted topics or other clusters" in text
    assert "remote_archive_other_segments 15.0" in metrics_text(measured(archive)).decode()
    only = metrics(archive, archive.path, "--topic", "plain").report["archive"]
    assert only["otherPartitions"] == 0


def test_a_segment_of_another_size_is_not_whole(archive: TieredArchive) -> None:
    log = next(path for path in segment_files(folder_of(archive, "plain-0"), 1) if path.suffix == ".log")
    log.write_bytes(b"")
    done = metrics(archive, archive.path)
    assert done.exit_code == 0
    plain = by_name(done.report)["plain-0"]
    assert (plain["wrongSizeSegments"], plain["missingSegments"], plain["incompleteSegments"]) == (1, 0, 0)
    assert sum(one["wrongSizeSegments"] for one in done.report["partitions"]) == 1
    assert "DAMAGED plain-0: 1 finished segment in " in measured(archive).to_text()


def test_an_archive_of_another_cluster_is_refused(archive: TieredArchive) -> None:
    for folder in archive.path.iterdir():
        name, _, number = folder.name[:-23].rpartition("-")
        if folder.is_dir():
            folder.rename(folder.with_name(f"{name}-{number}-{NEW_ID}"))
    with pytest.raises(
        UsageError, match=r"no segment of these log dirs' partitions is in it, and [0-9]+ segments of"
    ):
        measured(archive)


def test_a_topic_of_which_nothing_was_copied_is_known_to_be_empty(archive: TieredArchive) -> None:
    done = metrics(archive, archive.path, "--topic", "empty")
    (one,) = done.report["partitions"]
    assert done.exit_code == 0
    assert one["archivedSegments"] == one["missingSegments"] == one["orphanSegments"] == 0
    (folder,) = (path / "empty-0" for path in archive.log_dirs if (path / "empty-0").is_dir())
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")  # as a recovery leaves it
    done = metrics(archive, archive.path, "--topic", "empty")
    assert (done.exit_code, done.report["partitions"][0]["highestCopiedOffset"]) == (0, -1)


def test_segments_of_a_partition_that_no_record_is_about_are_not_compared(archive: TieredArchive) -> None:
    """The records may be in no log dir that was read: an inventory does not call them orphans, either."""
    (folder,) = (path / "empty-0" for path in archive.log_dirs if (path / "empty-0").is_dir())
    topic_id = read_partition_metadata((folder / "partition.metadata").read_bytes()).topic_id
    stray = archive.path / f"empty-0-{format_uuid(topic_id)}"
    stray.mkdir(exist_ok=True)
    for path in segment_files(folder_of(archive, "plain-0"), 0):
        shutil.copy(path, stray / path.name)
    done = metrics(archive, archive.path, "--topic", "empty")
    (one,) = done.report["partitions"]
    assert (done.exit_code, one["archivedSegments"], one["archivedLogBytes"]) == (0, 1, log_bytes(stray))
    assert (one["uncomparedSegments"], one["orphanSegments"], one["missingSegments"]) == (1, 0, 0)


def test_what_cannot_be_listed_is_not_known(archive: TieredArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    list_level: Callable[[LocalStore, str], Level] = LocalStore.list_level

    def refusing(store: LocalStore, prefix: str) -> Level:
        if prefix.startswith("plain-0-"):
            raise PermissionError(13, "Permission denied", prefix)
        return list_level(store, prefix)

    monkeypatch.setattr(LocalStore, "list_level", refusing)
    report = measured(archive)
    assert report.exit_code == 4
    unknown = {
        f"{one.topic}-{one.partition}"
        for one in report.partitions
        if any(getattr(one.figures, name) is None for name in OF_ARCHIVE)
    }
    # of what has no folder, it may be the one that could not be listed
    assert unknown == {"plain-0", "empty-0"}
    assert any("plain-0-" in text and "it was not listed" in text for text in report.warnings)
    (plain,) = (one for one in report.topics if one.topic == "plain")
    assert plain.figures.archived_log_bytes is None
    assert 'remote_archived_segments{partition="0",topic="plain"}' not in metrics_text(report).decode()


def test_a_partition_of_which_one_object_could_not_be_looked_at_is_not_known(
    archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_level: Callable[[LocalStore, str], Level] = LocalStore.list_level

    def missing_one(store: LocalStore, prefix: str) -> Level:
        level = list_level(store, prefix)
        if "plain-0-" in prefix:
            return replace(
                level, objects=level.objects[1:], unread=[(level.objects[0].key, "Input/output error")]
            )
        return level

    monkeypatch.setattr(LocalStore, "list_level", missing_one)
    for place in (archive.path, archive.root):  # the root is gone through in two layouts
        report = measured(archive, archive=str(place))
        figures = {f"{one.topic}-{one.partition}": one.figures for one in report.partitions}
        assert {getattr(figures["plain-0"], name) for name in OF_ARCHIVE} == {None}
        assert figures["plain-1"].missing_segments == 0
        assert report.exit_code == 4
        (warning,) = report.warnings
        assert "Input/output error: it was not listed" in warning
        assert len(inventory(ArchiveOptions(url=str(place), topics=("plain",))).unlisted) == 1


def test_a_damaged_metadata_topic_leaves_what_lies_there(archive: TieredArchive) -> None:
    for log_dir in archive.log_dirs:
        for log in log_dir.glob("__remote_log_metadata-*/*.log"):
            data = bytearray(log.read_bytes())
            if len(data) > 300:
                data[200] ^= 0xFF
                log.write_bytes(data)
    report = measured(archive)
    assert report.exit_code == 4
    hidden = [one for one in report.partitions if one.figures.remote_log_size_bytes is None]
    assert hidden
    for one in hidden:
        folders = archive.path.glob(f"{one.topic}-{one.partition}-*")
        assert one.figures.archived_log_bytes == sum(map(log_bytes, folders))
        assert one.figures.missing_segments is None
        assert one.figures.orphan_segments is None
    assert "what is missing there is unknown" in report.to_text()


def test_a_partition_that_is_there_twice_is_not_compared(archive: TieredArchive, tmp_path: Path) -> None:
    twice = tmp_path / "twice"
    shutil.copytree(archive.path, twice / "a")
    shutil.copytree(folder_of(archive, "plain-0"), twice / "b" / folder_of(archive, "plain-0").name)
    report = measured(archive, archive=str(twice))
    (plain,) = (one for one in report.partitions if (one.topic, one.partition) == ("plain", 0))
    assert plain.figures.archived_log_bytes == 2 * log_bytes(folder_of(archive, "plain-0"))
    assert plain.figures.missing_segments is None
    assert any(text.startswith("plain-0: it lies there twice") for text in report.warnings)
    assert report.exit_code == 4


def test_logs_of_the_aiven_plugin_count_as_they_lie_there(archive: TieredArchive, tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    for segment, files in finished_segments(archive.root, archive.log_dirs, {"plain"}):
        store_segment(root, segment, files, is_compressed=True)
    done = metrics(archive, root, "--topic", "plain")
    assert done.exit_code == 0
    assert done.report["archive"]["layout"] == "aiven"
    for one in done.report["partitions"]:
        folders = root.glob(f"plain-*/{one['partition']}")
        assert one["archivedLogBytes"] == sum(map(log_bytes, folders)) < one["remoteLogSizeBytes"]
        assert one["archivedSegments"] == one["remoteLogMetadataCount"]
        assert one["missingSegments"] == one["incompleteSegments"] == one["orphanSegments"] == 0
    for path in list(root.iterdir()):
        path.rename(root / f"prod-{path.name}")  # key.prefix=prod-
    prefixed = metrics(archive, root, "--topic", "plain")
    assert [one["archivedLogBytes"] for one in prefixed.report["partitions"]] == [
        one["archivedLogBytes"] for one in done.report["partitions"]
    ]
    manifests = sorted(root.rglob("*.rsm-manifest"))
    manifests[0].unlink()
    for path in root.rglob(f"{manifests[1].stem}.*"):
        path.unlink()
    topic = metrics(archive, root, "--topic", "plain").report["topics"][0]
    assert (topic["incompleteSegments"], topic["missingSegments"]) == (1, 1)


def test_wrong_places_are_refused_and_never_count_as_empty(archive: TieredArchive, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        measured(archive, archive=str(tmp_path / "nowhere"))
    nothing, copies = (
        "no folder of a partition was found .* Remedy: ",
        "copies of log dirs .* Remedy: name the folder",
    )
    for place, layout, message in (
        (tmp_path / "empty", "auto", nothing),
        (tmp_path / "empty", "local-tiered", nothing),
        (archive.path, "aiven", nothing),
        (archive.log_dirs[0], "auto", copies),
        (archive.log_dirs[0], "plain", copies),
    ):
        with pytest.raises(UsageError, match=message):
            measured(archive, archive=str(place), layout=layout)
    done = metrics(archive, tmp_path / "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Remedy: check the path" in done.stderr
    with pytest.raises(UsageError, match="--topic nope: not found"):
        measured(archive, topics=("nope",))
    with pytest.raises(UsageError, match="--layout flat: expected one of auto, plain"):
        measured(archive, layout="flat")


def test_a_root_that_also_holds_log_dirs_is_gone_through_for_remote_segments(archive: TieredArchive) -> None:
    whole = metrics(archive, archive.root)
    assert whole.exit_code == 0
    assert whole.report["archive"]["layout"] == f"plain, {LocalTieredLayout.name}"
    assert by_name(whole.report)["plain-0"]["archivedSegments"] > 0
