"""What is restored of the samples' archives, what is refused, and that `undo` takes it back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoredPartition, RestoreReport
from recovery.archive.restore.run import restore
from recovery.engine.api import recover
from recovery.engine.options import RecoverOptions
from recovery.errors import UsageError
from recovery.saved.undo import undo
from recovery.write.move_in import STAGE_FOLDER
from segfmt.checkpoint import read_leader_epoch_checkpoint, read_offset_checkpoint
from segfmt.record_batch import read_record_batch_header
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.logs.aiven_archive import KEY_ID, finished_segments, store_segment, write_private_key
from tests.logs.samples import read_properties, tree_of, unpack
from tests.servers.file_systems import mounting
from tests.servers.machine import MOUNTS, needs

LOST = {"plain-0": "d1", "codecs-0": "d2", "transactions-1": "d2", "stuck-copy-0": "d2"}


def with_losses(tmp_path: Path) -> TieredArchive:
    """The sample, some of whose partitions have lost their disk."""
    found = unpack_tiered(tmp_path)
    for name, log_dir in LOST.items():
        (tmp_path / "lost" / log_dir).mkdir(parents=True, exist_ok=True)
        (found.root / log_dir / name).rename(tmp_path / "lost" / log_dir / name)
    return found


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return with_losses(tmp_path)


def options_of(
    archive: TieredArchive,
    *,
    url: str | None = None,
    names: Sequence[str] = tuple(LOST),
    metadata: bool = True,
    broker: dict[str, Any] | None = None,
    **options: Any,
) -> RestoreOptions:
    config = read_properties((archive.root / "server.properties").read_text())
    return RestoreOptions(
        archive=ArchiveOptions(
            url=url or str(archive.path),
            partitions=tuple(names),
            metadata=tuple(map(str, archive.log_dirs)) if metadata else (),
        ),
        broker=RecoverOptions(config=config, is_config_complete=True, **(broker or {})),
        **options,
    )


def restored(archive: TieredArchive, **options: Any) -> RestoreReport:
    return restore(options_of(archive, **options))


def one_of(report: RestoreReport, name: str) -> RestoredPartition:
    (found,) = (one for one in report.partitions if f"{one.topic}-{one.partition}" == name)
    return found


def trees(archive: TieredArchive) -> list[dict[str, bytes]]:
    return [tree_of(log_dir, ignore=(".lock",)) for log_dir in archive.log_dirs]


def test_logs_are_the_archives_and_lines_are_in_the_checkpoints(archive: TieredArchive) -> None:
    report = restored(archive)
    assert report.exit_code == 0
    for name, log_dir in LOST.items():
        one = one_of(report, name)
        assert (one.status, one.mode, one.leader_epochs) == ("restored", "full", "kept")
        assert one.log_dir is not None
        folder = Path(one.log_dir) / name
        expected = archive.expected["partitions"][name]
        assert one.log_end_offset == expected["latest_tiered_offset"] + 1, log_dir
        assert one.log_start_offset == expected["earliest_offset"]
        archived = {path.name[:20]: path for path in archive.path.glob(f"{name}-*/*.log")}
        logs = {path.stem: path for path in folder.glob("*.log")}
        assert len(logs) == one.segments > 1
        for base, path in logs.items():
            assert path.read_bytes() == archived[base].read_bytes()
            assert path.stat().st_mode & 0o777 == 0o644
        key = one.topic, one.partition
        for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            lines = read_offset_checkpoint((Path(one.log_dir) / checkpoint).read_bytes())
            assert lines[key] == one.log_end_offset
        starts = read_offset_checkpoint((Path(one.log_dir) / "log-start-offset-checkpoint").read_bytes())
        assert starts[key] == one.log_start_offset
    assert not any((log_dir / STAGE_FOLDER).exists() for log_dir in archive.log_dirs)
    again = restored(archive)
    assert {one.status for one in again.partitions} == {"unchanged"}
    assert {one.leader_epochs for one in again.partitions} == {None}


def test_undo_leaves_the_log_dirs_as_they_were(archive: TieredArchive) -> None:
    (archive.log_dirs[0] / "plain-0").mkdir()
    (archive.log_dirs[0] / "plain-0" / "00000000000000000000.log").touch()
    before = trees(archive)
    assert restored(archive).exit_code == 0
    assert trees(archive) != before
    undo([str(log_dir) for log_dir in archive.log_dirs])
    assert trees(archive) == before
    assert (archive.log_dirs[0] / "plain-0").is_dir()
    assert not (archive.log_dirs[1] / "codecs-0").exists()


def test_a_dry_run_writes_nothing(archive: TieredArchive) -> None:
    before = trees(archive)
    report = restored(archive, broker={"dry_run": True})
    assert {one.status for one in report.partitions} == {"restored"}
    assert sum(log_dir.needed_bytes for log_dir in report.log_dirs) > sum(
        one.size_bytes for one in report.partitions
    )
    assert "Nothing was written" in report.to_text()
    assert trees(archive) == before
    assert not any((log_dir / STAGE_FOLDER).exists() for log_dir in archive.log_dirs)


def test_renumbered_epochs_are_in_headers_and_checkpoint(archive: TieredArchive) -> None:
    report = restored(archive, leader_epochs="renumber")
    assert {one.leader_epochs for one in report.partitions} == {"renumbered"}
    epochs = set()
    for name in LOST:
        folder = Path(str(one_of(report, name).log_dir)) / name
        assert read_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes()) == ((0, 0),)
        for path in folder.glob("*.log"):
            data, position = path.read_bytes(), 0
            while position < len(data):
                header = read_record_batch_header(data, position)
                epochs.add(header.partition_leader_epoch)
                position += header.size_bytes
    assert epochs == {0}


def _without_a_log(archive: TieredArchive) -> None:
    sorted(archive.path.glob("plain-0-*/*.log"))[3].unlink()


def _without_a_segment(archive: TieredArchive) -> None:
    (stem,) = {path.stem for path in [sorted(archive.path.glob("plain-0-*/*.log"))[3]]}
    for path in archive.path.glob(f"plain-0-*/{stem}.*"):
        path.unlink()


def _with_a_damaged_batch(archive: TieredArchive) -> None:
    path = sorted(archive.path.glob("plain-0-*/*.log"))[3]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut_short(archive: TieredArchive) -> None:
    path = sorted(archive.path.glob("plain-0-*/*.log"))[3]
    path.write_bytes(path.read_bytes()[:-7])


def _with_records(archive: TieredArchive) -> None:
    folder = archive.log_dirs[0] / "plain-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(b"something")


REFUSED: dict[str, tuple[Callable[[TieredArchive], None], str]] = {
    "a log is missing": (_without_a_log, "log is not in the archive"),
    "a segment is missing": (_without_a_segment, "log is not in the archive"),
    "a batch is damaged": (_with_a_damaged_batch, ""),
    "a log is cut short": (_cut_short, "is not complete: "),
    "records are there": (_with_records, "has records"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_guessed(archive: TieredArchive, case: str) -> None:
    disturb, words = REFUSED[case]
    disturb(archive)
    before = [
        name for log_dir in archive.log_dirs for name in sorted(path.name for path in log_dir.iterdir())
    ]
    report = restored(archive, names=["plain-0", "codecs-0"])
    assert report.exit_code == 4
    assert one_of(report, "plain-0").status == "refused"
    assert words in " ".join(one_of(report, "plain-0").reasons) != ""
    assert one_of(report, "codecs-0").status == "restored"
    after = [name for log_dir in archive.log_dirs for name in sorted(path.name for path in log_dir.iterdir())]
    assert sorted(set(after) - {".lock"}) == sorted({*before, "codecs-0"} - {".lock"})


@pytest.mark.parametrize("row", [0, 3])
def test_the_log_of_a_later_segment_is_damage(archive: TieredArchive, row: int) -> None:
    """All of it would be left to the next segment, and the log would lack what its own one had."""
    logs = sorted(archive.path.glob("plain-0-*/*.log"))
    shutil.copyfile(logs[row + 1], logs[row])
    report = restored(archive, names=["plain-0"], metadata=False)
    assert report.exit_code == 4
    (reason,) = one_of(report, "plain-0").reasons
    assert "it is the log of another segment" in reason
    assert "Remedy: " in reason


def test_an_archive_without_partitions_is_an_error(archive: TieredArchive, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    options = options_of(archive, url=str(tmp_path / "nothing"), names=())
    with pytest.raises(UsageError, match="no folder of a partition was found"):
        restore(options)
    with pytest.raises(UsageError, match="no partition was found"):
        restore(replace(options, archive=replace(options.archive, layout="local-tiered")))


@pytest.mark.parametrize("is_aux", [False, True])
def test_what_is_left_of_a_deleted_topic_is_not_in_the_way(archive: TieredArchive, is_aux: bool) -> None:
    """Of the same name: brokers leave its objects in remote storage if they cannot be deleted."""
    (folder,) = archive.path.glob("codecs-0-*")
    shutil.copytree(folder, archive.path / "codecs-0-AAAAAAAHAAAAAAAAAAAAAA")
    report = restored(archive, names=["codecs-0"], is_aux=is_aux)
    assert report.exit_code == 0, report.to_text()
    folder.rename(archive.path / "codecs-0-AAAAAAAIAAAAAAAAAAAAAA")
    lost = LOST["codecs-0"]
    shutil.rmtree(archive.root / lost / "codecs-0")
    (reason,) = one_of(restored(archive, names=["codecs-0"], is_aux=is_aux), "codecs-0").reasons
    assert reason.startswith("the archive has it 2 times: ")
    assert reason.endswith("Remedy: name the one that is meant as the archive")


def test_the_empty_folder_of_a_deleted_topic_is_not_in_the_way(archive: TieredArchive) -> None:
    """LocalTieredStorage leaves it behind the last segment; in a new cluster no id tells which topic is meant."""
    (folder,) = archive.path.glob("codecs-0-*")
    folder.rename(archive.path / "codecs-0-AAAAAAAIAAAAAAAAAAAAAA")
    (archive.path / "codecs-0-AAAAAAAHAAAAAAAAAAAAAA").mkdir()
    report = restored(archive, names=["codecs-0"], metadata=False)
    assert (report.exit_code, one_of(report, "codecs-0").segments) == (0, 32), report.to_text()


def test_a_topic_of_another_cluster_is_refused(archive: TieredArchive) -> None:
    report = restored(archive, names=["gone-0"], metadata=False)
    assert "the cluster does not know the topic" in " ".join(one_of(report, "gone-0").reasons)


def test_all_cordoned(archive: TieredArchive, tmp_path: Path) -> None:
    """Where the cluster has assigned no log dir; a topic id is given, as there is no metadata log."""
    config = read_properties((archive.root / "server.properties").read_text()) | {"cordoned.log.dirs": "*"}
    for name in ("e1", "e2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    options = RestoreOptions(
        archive=ArchiveOptions(url=str(archive.path), partitions=("plain-0",)),
        broker=RecoverOptions(
            config=config | {"log.dirs": f"{tmp_path}/e1,{tmp_path}/e2"}, topic_configs={"plain": {}}
        ),
        topic_ids={"plain": archive.expected["partitions"]["plain-0"]["topic_id"]},
    )
    (one,) = restore(options).partitions
    assert one.status == "refused"
    assert "are cordoned" in one.reasons[0]
    assert "INVALID_REPLICA_ASSIGNMENT" in one.reasons[0]
    (one,) = restore(replace(options, ignore_cordon=True)).partitions
    assert (one.status, one.log_dir) == ("restored", str(tmp_path / "e1"))
    assert (tmp_path / "e1" / "plain-0").is_dir()


def test_a_copied_log_dir(tmp_path: Path) -> None:
    """Folders of a broker that has stopped come back as its own logs, to the byte."""
    sample = unpack("stopped", tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(sample.log_dirs[0], copy)
    folders = [
        path.name
        for path in sorted(sample.log_dirs[0].iterdir())
        if path.is_dir() and "__cluster" not in path.name and path.name.rpartition("-")[2].isdecimal()
    ]
    for name in folders:
        shutil.rmtree(sample.log_dirs[0] / name)
    report = restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(copy)),
            broker=RecoverOptions(config=sample.properties, is_config_complete=True, now_ms=sample.now_ms),
        )
    )
    found = {f"{one.topic}-{one.partition}": one for one in report.partitions}
    done = [name for name in folders if found[name].status == "restored"]
    assert len(done) == len(folders) > 1, [one.reasons for one in report.partitions if one.reasons]
    for name in done:
        for path in (copy / name).glob("*.log"):
            twin = Path(str(found[name].log_dir)) / name / path.name
            assert twin.read_bytes() == path.read_bytes(), twin


def test_ids_of_topics_are_checked_before_anything_is_done(archive: TieredArchive) -> None:
    for ids, said in (
        ({"plain": "short"}, "--topic-id plain=short: "),
        ({"plian": "AAAAAAAAAAAAAAAAAAAAAQ"}, "--topic-id plian: no such topic in "),
    ):
        with pytest.raises(UsageError, match=said):
            restored(archive, topic_ids=ids)


def test_a_quarantine_that_cannot_be_made_is_known_before_a_byte_is_fetched(archive: TieredArchive) -> None:
    before = trees(archive)
    with pytest.raises(OSError, match="/proc/nowhere"):
        restored(archive, broker={"quarantine_dir": "/proc/nowhere"})
    assert trees(archive) == before
    assert not any((log_dir / STAGE_FOLDER).exists() for log_dir in archive.log_dirs)


def test_settings_without_effect_are_told(archive: TieredArchive) -> None:
    notes = ("log.retention.mss is not a setting of a broker, and has no effect; is log.retention.ms meant?",)
    report = restored(
        archive,
        names=["codecs-0"],
        broker={
            "dry_run": True,
            "config_notes": notes,
            "topic_configs": {"codecs": {"retention.ms": "1"}, "codec": {"retention.ms": "1"}},
        },
    )
    assert report.warnings[0] == notes[0]
    assert ["no log of codec lies among what is chosen" in text for text in report.warnings[1:]] == [True]


@pytest.mark.parametrize(
    ("configs", "is_deleted"),
    [
        ({"cleanup.policy": "delete"}, True),
        ({"cleanup.policy": "compact,delete"}, True),
        ({"cleanup.policy": "compact"}, False),
        ({"cleanup.policy": ""}, True),
        ({"cleanup.policy": "", "remote.log.copy.disable": "true"}, False),
        ({"cleanup.policy": "", "remote.storage.enable": "false"}, False),
        ({}, True),
    ],
)
def test_what_retention_deletes_is_a_matter_of_the_cleanup_policy(
    archive: TieredArchive, configs: dict[str, str], is_deleted: bool
) -> None:
    broker = {"dry_run": True, "topic_configs": {"plain": configs | {"retention.ms": "1"}}}
    one = one_of(restored(archive, names=["plain-0"], broker=broker), "plain-0")
    assert one.retained is not None
    assert bool(one.retained[0]) == is_deleted


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_the_brokers_cleanup_policy_is_the_default(archive: TieredArchive, policy: str) -> None:
    broker = {"dry_run": True, "topic_configs": {"plain": {"retention.ms": "1"}}}
    options = options_of(archive, names=["plain-0"], broker=broker)
    config = {**(options.broker.config or {}), "log.cleanup.policy": policy}
    one = one_of(restore(replace(options, broker=replace(options.broker, config=config))), "plain-0")
    assert one.retained is not None
    assert bool(one.retained[0]) == (policy == "delete")


def test_leader_epochs_of_remote_batches_cannot_be_renumbered(archive: TieredArchive) -> None:
    with pytest.raises(UsageError, match="--leader-epochs renumber with --aux: "):
        restored(archive, is_aux=True, leader_epochs="renumber")


def test_an_id_of_another_topic_is_refused(archive: TieredArchive) -> None:
    ids = {one: archive.expected["partitions"][f"{one}-0"]["topic_id"] for one in ("plain", "codecs")}
    before = trees(archive)
    with pytest.raises(UsageError, match=rf"--topic-id codecs={ids['plain']}: in .* that is the id of plain"):
        restored(archive, names=["plain-0", "codecs-0"], topic_ids={"codecs": ids["plain"]})
    with pytest.raises(UsageError, match=r"--topic-id codecs=.*: it was given for plain"):
        restored(archive, topic_ids={"plain": ids["plain"], "codecs": ids["plain"]})
    assert trees(archive) == before
    (reason,) = one_of(
        restored(archive, names=["codecs-0"], topic_ids={"codecs": "AAAAAAAHAAAAAAAAAAAAAA"}), "codecs-0"
    ).reasons
    assert reason.endswith(f": in this cluster it is {ids['codecs']}. Remedy: leave it out")


def test_a_log_of_another_topic_id_is_called_so(archive: TieredArchive) -> None:
    _with_records(archive)
    folder = archive.log_dirs[0] / "plain-0"
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAHAAAAAAAAAAAAAA\n")
    (reason,) = one_of(restored(archive, names=["plain-0"]), "plain-0").reasons
    own = archive.expected["partitions"]["plain-0"]["topic_id"]
    assert reason.startswith(
        f"{folder} has records, and is of the topic id AAAAAAAHAAAAAAAAAAAAAA; what is restored would be of {own}. "
    )


def test_damaged_leader_epochs_are_named(archive: TieredArchive) -> None:
    path = max(archive.path.glob("codecs-0-*/*.leader_epoch_checkpoint"))
    path.write_bytes(b"0\n1\n000\n")
    for is_aux in (False, True):
        (reason,) = one_of(restored(archive, names=["codecs-0"], is_aux=is_aux), "codecs-0").reasons
        assert reason.startswith(f"{path.name}: ")
        assert reason.endswith(". Remedy: archive recover rebuilds it")


@pytest.mark.parametrize("is_aux", [False, True])
def test_an_archive_whose_key_is_not_given_asks_for_it(
    archive: TieredArchive, tmp_path: Path, is_aux: bool
) -> None:
    """No rebuilding helps there."""
    for segment, files in finished_segments(archive.root, archive.log_dirs, ["plain"]):
        store_segment(tmp_path / "aiven", segment, files, is_encrypted=True)
    key = write_private_key(tmp_path)

    def of(**keys: Path) -> RestoredPartition:
        options = options_of(archive, url=str(tmp_path / "aiven"), names=["plain-0"], is_aux=is_aux)
        return one_of(restore(replace(options, aiven_keys=keys)), "plain-0")

    (reason,) = of().reasons
    assert f"encrypted with the RSA key '{KEY_ID}', which was not given" in reason
    assert reason.endswith(". Remedy: give the key that the plugin had by this id with --aiven-key")
    assert of(**{KEY_ID: key}).status == "restored"


def test_a_metadata_topic_without_its_end_is_refused_with_a_remedy(archive: TieredArchive) -> None:
    for log in archive.root.glob("*/__remote_log_metadata-*/*.log"):
        os.truncate(log, log.stat().st_size * 2 // 3)
    (reason,) = one_of(restored(archive, names=["plain-0"]), "plain-0").reasons
    assert reason.startswith("what became of its segments is not known: ")
    assert (
        ". Remedy: give another replica of __remote_log_metadata with --metadata, or leave that out" in reason
    )
    assert one_of(restored(archive, names=["plain-0"], metadata=False), "plain-0").status == "restored"


def test_a_damaged_manifest_of_a_segment_is_refused_with_a_remedy(
    archive: TieredArchive, tmp_path: Path
) -> None:
    for segment, files in finished_segments(archive.root, archive.log_dirs, ["plain"]):
        store_segment(tmp_path / "aiven", segment, files)
    max((tmp_path / "aiven").glob("plain-*/0/*.rsm-manifest")).write_bytes(b"{")
    options = options_of(archive, url=str(tmp_path / "aiven"), names=["plain-0"], metadata=False)
    (reason,) = one_of(restore(options), "plain-0").reasons
    assert reason.startswith("segment 377: not JSON: ")
    assert reason.endswith(". Remedy: put its objects there from another copy of the archive")


def test_a_log_dir_of_the_option_can_be_cordoned(archive: TieredArchive) -> None:
    """Then no setting of the configuration names the log dirs."""
    log_dirs = tuple(map(str, archive.log_dirs))
    options = options_of(archive, names=["plain-0"], log_dirs=log_dirs, broker={"dry_run": True})
    config = {"cordoned.log.dirs": log_dirs[0]}
    report = restore(replace(options, broker=replace(options.broker, config=config)))
    assert [one.is_cordoned for one in report.log_dirs] == [True, False]


def test_what_retention_deletes_may_not_be_known(archive: TieredArchive, tmp_path: Path) -> None:
    log_dir = tmp_path / "alone"
    log_dir.mkdir()
    shutil.copy(archive.log_dirs[0] / "meta.properties", log_dir)
    ids = {"plain": archive.expected["partitions"]["plain-0"]["topic_id"]}
    for is_told in (False, True):
        broker = {"topic_configs": {"plain": {"retention.ms": "-1"}} if is_told else {}}
        options = options_of(
            archive,
            names=["plain-0"],
            log_dirs=(str(log_dir),),
            topic_ids=ids,
            broker={"dry_run": True, **broker},
        )
        one = one_of(restore(options), "plain-0")
        assert one.retained == ((0, 0) if is_told else None)
        assert any("what retention deletes" in text for text in one.warnings) != is_told


@needs(MOUNTS)
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_dry_run_on_a_read_only_mount_says_what_a_run_needs(
    archive: TieredArchive, is_restored: bool
) -> None:
    disk = archive.log_dirs[1]
    kept = disk.parent / "kept"
    shutil.copytree(disk, kept)
    with mounting(disk, "tmpfs", "size=64m"):
        shutil.copytree(kept, disk, dirs_exist_ok=True)
        if is_restored:
            assert restored(archive).exit_code == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        report = restored(archive, broker={"dry_run": True})
        refused = [one for one in restored(archive).partitions if one.status == "refused"]
    assert report.exit_code == 0
    assert all(one.status == "unchanged" for one in report.partitions) == is_restored
    count = sum(one.log_dir == str(disk) for one in report.partitions)
    assert len(refused) == count
    (warning,) = report.warnings
    assert f"{disk}: mounted read-only, so a restore now would refuse {count} partition" in warning


def test_a_log_that_is_being_moved_to_another_log_dir_is_left_alone(archive: TieredArchive) -> None:
    folder = archive.log_dirs[0] / f"codecs-0.{'0' * 32}-future"
    folder.mkdir()
    report = restored(archive, names=["codecs-0", "plain-0"])
    assert one_of(report, "plain-0").status == "restored"
    assert one_of(report, "codecs-0").status == "refused"
    assert str(folder) in one_of(report, "codecs-0").reasons[0]


def test_the_local_part_of_a_tiered_log_comes_back_with_what_tells_of_the_remote_part(tmp_path: Path) -> None:
    """Without its leader epochs a broker would delete the remote segments as unreferenced."""
    archive = unpack_tiered(tmp_path)
    output = tmp_path / "copy"
    before_expiry = {"now_ms": 1_795_325_156_990}  # of its producers
    options = options_of(archive, broker=before_expiry).broker
    assert recover(None, replace(options, force=True)).exit_code == 0
    assert copy(CopyOptions(output=str(output), log_dirs=tuple(map(str, archive.log_dirs)))).exit_code == 0
    folders = [
        path
        for log_dir in archive.log_dirs
        for path in log_dir.iterdir()
        if path.name.rpartition("-")[0]
        in ("plain", "codecs", "transactions", "deleted-records", "stuck-copy")
    ]
    names = [path.name for path in folders]
    before = {path: tree_of(path) for path in folders}
    for path in folders:
        shutil.rmtree(path)
    report = restored(archive, url=str(output), names=names, metadata=False, broker=before_expiry)
    assert report.exit_code == 0, report.to_text(1)
    for path in folders:
        found = tree_of(path)
        for name in before[path].keys() | found.keys():
            if not str(name).endswith((".index", ".timeindex")):
                assert found.get(name) == before[path].get(name), (path.name, name)


@needs(MOUNTS)
def test_a_quarantine_to_which_no_folder_can_be_moved_is_known_before_anything_is_done(
    archive: TieredArchive, tmp_path: Path
) -> None:
    empty = archive.log_dirs[1] / "codecs-0"
    empty.mkdir()
    (empty / "00000000000000000000.log").touch()
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounting(disk, "tmpfs", "size=64m"):
        for is_dry in (True, False):
            report = restored(archive, broker={"quarantine_dir": str(disk), "dry_run": is_dry})
            assert "cannot be moved to another file system" in one_of(report, "codecs-0").reasons[0]
            assert one_of(report, "plain-0").status == "restored"
            assert [path.name for path in empty.iterdir()] == ["00000000000000000000.log"]
    report = restored(archive)
    assert one_of(report, "codecs-0").status == "restored"
