"""Copies as they come: of log dirs with the names of partitions, within copies, of copies, cut short in the middle."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.copy import listing
from recovery.archive.copy.manifest import MANIFEST_KEY, read_document
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.report import CopyReport
from recovery.archive.copy.run import copy
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoreReport
from recovery.archive.restore.run import restore
from recovery.archive.stores.local_store import LocalStore
from recovery.engine.api import recover
from recovery.engine.options import RecoverOptions
from recovery.errors import UnsafeError, UsageError
from recovery.saved.undo import undo
from recovery.spark import archive as archive_module
from recovery.watch.events import Event, Remark
from recovery.write.undo_notice import UNDO_NOTICE
from segfmt.checkpoint import read_leader_epoch_checkpoint
from tests.logs.samples import Sample, tree_of, unpack

NAME = "plain-1"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


@pytest.fixture
def log_dir(sample: Sample) -> Path:
    (found,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    return found


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "copies" / "here"


def copied(output: Path, *log_dirs: Path, **options: object) -> CopyReport:
    return copy(CopyOptions(output=str(output), log_dirs=tuple(map(str, log_dirs)), **options))  # type: ignore[arg-type]  # by name


def restored(sample: Sample, archive: Path, *names: str, **options: object) -> RestoreReport:
    return restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(archive), partitions=names),
            broker=RecoverOptions(config=sample.properties, is_config_complete=True, now_ms=sample.now_ms),
            **options,  # type: ignore[arg-type]  # by name
        )
    )


def lose(sample: Sample, *names: str) -> None:
    for log_dir in sample.log_dirs:
        for name in names:
            shutil.rmtree(log_dir / name, ignore_errors=True)


def leave_unfinished(output: Path, log_dir: Path) -> None:
    """Take the last segment of a partition out of a copy, and say so in its manifest."""
    last = max((output / log_dir.name / NAME).glob("*.log"))
    last.unlink()
    manifest = output / MANIFEST_KEY
    head, *lines = manifest.read_text().splitlines(keepends=True)
    left = [line for line in lines if not line.startswith(f'["{log_dir.name}/{NAME}/{last.name}"')]
    head = head.replace('"unfinished": []', f'"unfinished": ["{log_dir.name}/{NAME}/"]')
    manifest.write_text(head.replace(f'"files": {len(lines)}', f'"files": {len(left)}') + "".join(left))


@pytest.mark.parametrize("name", ["kafka-1", "plain-1"])
def test_a_log_dir_that_is_named_like_a_partition(
    sample: Sample, log_dir: Path, tmp_path: Path, name: str
) -> None:
    """By `archive copy`, by `cp -r`, and as the archive itself."""
    named = tmp_path / "other" / name
    shutil.copytree(log_dir, named)
    before = tree_of(log_dir / NAME)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert copied(ours, named).log_dirs[0].folder == f"{name}.log-dir"
    shutil.copytree(named, theirs / name)
    for archive in (ours, ours / f"{name}.log-dir", theirs, theirs / name):
        lose(sample, NAME)
        (one,) = restored(sample, archive, NAME).partitions
        assert one.status == "restored"
        logs = {file: data for file, data in tree_of(log_dir / NAME).items() if str(file).endswith(".log")}
        assert logs == {file: data for file, data in before.items() if str(file).endswith(".log")}
        found = inventory(ArchiveOptions(url=str(archive)))
        assert ("plain", "") in found.topics
        assert ("kafka", "") not in found.topics


def test_folders_of_log_dirs_are_none_of_partitions(sample: Sample, log_dir: Path, tmp_path: Path) -> None:
    """Also in a copy of an earlier version, which numbered them so."""
    output = tmp_path / "copy"
    copied(output, log_dir)
    (output / log_dir.name).rename(output / "kafka-2")
    manifest = output / MANIFEST_KEY
    manifest.write_text(
        manifest.read_text()
        .replace(f'"{log_dir.name}/', '"kafka-2/')
        .replace(f': "{log_dir.name}"', ': "kafka-2"')
    )
    lose(sample, NAME)
    report = restored(sample, output)
    assert {f"{one.topic}-{one.partition}": one.status for one in report.partitions}[NAME] == "restored"
    assert all(one.topic != "kafka" for one in report.partitions)
    assert report.exit_code == 0


@pytest.mark.parametrize("first", [True, False])
def test_a_compaction_that_was_cut_short_is_finished_first(tmp_path: Path, first: bool) -> None:
    sample = unpack("crashed", tmp_path)
    (log_dir,) = (one for one in sample.log_dirs if (one / "compacted-0").is_dir())
    logs = sorted((log_dir / "compacted-0").glob("*.log"))
    chosen = logs[0] if first else logs[1]
    for suffix in (".log", ".index", ".timeindex"):
        path = chosen.with_suffix(suffix)
        path.rename(f"{path}.swap")
    output = tmp_path / "copy"
    copied(output, log_dir)
    lose(sample, "compacted-0")
    (one,) = restored(sample, output, "compacted-0").partitions
    assert one.status == "refused"
    assert one.reasons[0].startswith(f"{chosen.name}.swap: a compaction was cut short")
    # The remedy
    copied_dir = output / log_dir.name
    (copied_dir / "recovery-point-offset-checkpoint").unlink()
    recover([str(copied_dir)], force=True, topic_configs=sample.topic_configs, now_ms=sample.now_ms)
    (output / MANIFEST_KEY).unlink()
    (one,) = restored(sample, output, "compacted-0").partitions
    assert one.status == "restored"
    assert one.log_start_offset == 0
    assert (log_dir / "compacted-0" / chosen.name).exists()


def test_what_could_be_read_of_a_file_is_not_forgotten(
    sample: Sample, log_dir: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(output, log_dir)
    leave_unfinished(output, log_dir)
    whole = max((log_dir / NAME).glob("*.log"))
    part = output / log_dir.name / NAME / f"{whole.name}{listing.PARTIAL_SUFFIX}"
    part.write_bytes(whole.read_bytes()[:-1])
    lose(sample, NAME)
    (one,) = restored(sample, output, NAME).partitions
    assert f"rename {part.name}, what could be read of that file, to {whole.name}" in one.reasons[0]
    (output / MANIFEST_KEY).unlink()
    (one,) = restored(sample, output, NAME).partitions
    assert any(
        text.startswith(f"{part.name}, what could be read of that file")
        for text in [*one.warnings, *one.reasons]
    )
    lose(sample, NAME)
    # The remedy
    part.rename(part.with_name(whole.name))
    copied_dir = output / log_dir.name
    (copied_dir / "recovery-point-offset-checkpoint").unlink()
    recover([str(copied_dir)], force=True, now_ms=sample.now_ms)
    (one,) = restored(sample, output, NAME).partitions
    assert one.status == "restored"
    assert (one.log_end_offset or 0) > int(whole.stem)


def test_a_copy_that_is_not_whole_is_not_copied(
    sample: Sample, log_dir: Path, output: Path, tmp_path: Path
) -> None:
    copied(output, log_dir)
    assert copied(tmp_path / "second", output / log_dir.name).exit_code == 0
    leave_unfinished(output, log_dir)
    with pytest.raises(UsageError, match=r"that is not whole, .* Remedy: take it with cp -r"):
        copied(tmp_path / "third", output / log_dir.name)
    with pytest.raises(UsageError, match="what archive copy has made, and no log dir"):
        copied(tmp_path / "third", output)
    assert not (tmp_path / "third").exists()


def test_no_copy_goes_into_another(sample: Sample, log_dir: Path, output: Path) -> None:
    copied(output, log_dir)
    (other,) = (one for one in sample.log_dirs if one != log_dir)
    for inner in (output / log_dir.name, output / log_dir.name / "deeper", output / "beside"):
        with pytest.raises(
            UsageError,
            match=rf"it is in the copy of .*, by {output}/{MANIFEST_KEY}\. Remedy: choose another output",
        ):
            copied(inner, other)
    assert copied(output, other).exit_code == 0


def test_a_manifest_above_that_cannot_be_read_is_an_error(
    sample: Sample, log_dir: Path, output: Path
) -> None:
    copied(output, log_dir)
    (output / MANIFEST_KEY).unlink()
    (output / MANIFEST_KEY).mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        restored(sample, output / log_dir.name, NAME)


def test_a_log_dir_of_a_copy_may_be_a_link(
    sample: Sample, log_dir: Path, output: Path, tmp_path: Path
) -> None:
    copied(output, log_dir)
    leave_unfinished(output, log_dir)
    shutil.move(output / log_dir.name, tmp_path / "disk")
    (output / log_dir.name).symlink_to(tmp_path / "disk")
    lose(sample, NAME)
    for archive in (output, output / log_dir.name):
        (one,) = restored(sample, archive, NAME).partitions
        assert one.status == "refused"
        assert one.reasons[0].startswith("archive copy has not copied all of it")


def test_a_log_dir_that_was_not_read_is_told_wherever_the_archive_begins(
    sample: Sample, log_dir: Path, tmp_path: Path
) -> None:
    """Also if the archive is a part of what another copy has made."""
    outer = tmp_path / "outer"
    output = outer / "site" / "b1"
    copied(output, log_dir, tmp_path / "d9")
    copied(outer, *(one for one in sample.log_dirs if one != log_dir))
    for archive in (outer, outer / "site", output):
        report = restored(sample, archive)
        assert report.exit_code == 4
        assert [text.partition(": ")[0] for text in report.in_part] == [f"{output}/d9/"]


def test_an_output_of_which_only_the_manifest_is_left_is_missed(
    sample: Sample, log_dir: Path, output: Path, tmp_path: Path
) -> None:
    (other,) = (one for one in sample.log_dirs if one != log_dir)
    copied(output, log_dir)
    copied(output.parent / "there", other)
    shutil.rmtree(output / log_dir.name)
    report = restored(sample, output.parent)
    assert report.exit_code == 4
    (one,) = (one for one in report.partitions if f"{one.topic}-{one.partition}" == NAME)
    assert one.reasons[0].startswith("it was copied, and is not there")


def test_a_manifest_that_was_cut_short_is_none(sample: Sample, log_dir: Path, output: Path) -> None:
    copied(output, log_dir)
    manifest = output / MANIFEST_KEY
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(lines[:-1]))
    with pytest.raises(UsageError, match=f"cut short: {len(lines) - 2} of {len(lines) - 1} files"):
        restored(sample, output, NAME)


def test_a_part_copied_anew_leaves_the_checkpoints_of_the_rest(
    sample: Sample, log_dir: Path, output: Path
) -> None:
    copied(output, log_dir)
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    before = checkpoint.read_bytes()
    checkpoint.write_bytes(before.replace(b" ", b"  "))
    report = copied(output, log_dir, topics=("plain",))
    assert any("its own files stay at the output as they are" in text for text in report.warnings)
    assert (output / log_dir.name / checkpoint.name).read_bytes() == before
    assert copied(output, log_dir).warnings == []
    assert (output / log_dir.name / checkpoint.name).read_bytes() != before


def test_a_file_that_is_emptied_after_the_listing_is_not_copied(
    log_dir: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = max((log_dir / NAME).glob("*.log"))
    real = listing.find_files

    def find(*arguments: object) -> listing.FoundFiles:
        found = real(*arguments)  # type: ignore[arg-type]  # as they come
        os.truncate(chosen, 0)
        return found

    monkeypatch.setattr("recovery.archive.copy.plan.find_files", find)
    report = copied(output, log_dir)
    assert report.exit_code == 4
    ((failed,),) = (one.failed for one in report.log_dirs)
    assert (failed.file, failed.error) == (str(chosen), "the file became shorter after it was listed")
    assert f"{log_dir.name}/{NAME}/" in read_document(LocalStore(str(output))).unfinished


def test_what_no_run_has_come_to_and_has_gone_is_not_missed(log_dir: Path, output: Path) -> None:
    copied(output, log_dir)
    manifest = output / MANIFEST_KEY
    head, _, rest = manifest.read_text().partition("\n")
    head = head.replace('"unfinished": []', f'"unfinished": ["{log_dir.name}/gone-0/"]')
    manifest.write_text(f"{head}\n{rest}")
    assert copied(output, log_dir, topics=("plain",)).exit_code == 0
    assert read_document(LocalStore(str(output))).unfinished == {f"{log_dir.name}/gone-0/"}
    (log_dir / "plain-1" / "extra").touch()  # else nothing is written
    assert copied(output, log_dir).exit_code == 0
    assert read_document(LocalStore(str(output))).unfinished == frozenset()


def test_deleted_files_do_not_make_a_copy_unsound(sample: Sample, log_dir: Path, output: Path) -> None:
    (log_dir / NAME / "00000000000000000000.log.deleted").write_bytes(b"old")
    copied(output, log_dir)
    (output / log_dir.name / NAME / "00000000000000000000.log.deleted").unlink()
    lose(sample, NAME)
    (one,) = restored(sample, output, NAME).partitions
    assert one.status == "restored"


def test_an_interrupted_undo_comes_first(sample: Sample, log_dir: Path, output: Path) -> None:
    """The next one would take back what is restored."""
    copied(output, log_dir)
    lose(sample, NAME)
    assert restored(sample, output, NAME).exit_code == 0

    def stop() -> None:
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        undo([str(one) for one in sample.log_dirs], check_stop=stop)
    assert any((one / UNDO_NOTICE).exists() for one in sample.log_dirs)
    with pytest.raises(
        UnsafeError, match=r"an undo was .* Remedy: let it finish first: kafka-log-recovery undo"
    ):
        restored(sample, output, NAME)
    report = copied(output.parent / "second", log_dir)
    assert any("an undo was interrupted" in text for text in report.warnings)
    assert not (output.parent / "second" / log_dir.name / UNDO_NOTICE).exists()
    undo([str(one) for one in sample.log_dirs])
    assert restored(sample, output, NAME).exit_code == 0


def test_the_room_of_a_file_system_counts_once(
    sample: Sample, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(output, *sample.log_dirs)
    names = [path.name for one in sample.log_dirs for path in one.glob("plain-*")]
    assert len({one for one in sample.log_dirs for _ in one.glob("plain-*")}) == 2
    lose(sample, *names)
    whole = restored(
        sample,
        output,
        *names,
    )
    needed = [one.needed_bytes for one in whole.log_dirs]
    lose(sample, *names)
    real = os.statvfs

    def statvfs(path: str) -> object:
        status = real(path)
        fields = list(status)
        fields[1], fields[4] = 1, max(needed) + min(needed) // 2  # f_frsize, f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", statvfs)
    report = restored(sample, output, *names)
    assert {one.status for one in report.partitions} == {"refused"}
    assert "are needed there" in report.partitions[0].reasons[0]


def test_a_topic_of_the_longest_name(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    name = "t" * 249
    source = tmp_path / "archive" / f"{name}-0"
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    shutil.copytree(log_dir / NAME, source)
    shutil.rmtree(next(log_dir.glob("__cluster_metadata-0"), tmp_path / "none"), ignore_errors=True)
    for one in sample.log_dirs:
        shutil.rmtree(one / "__cluster_metadata-0", ignore_errors=True)
    report = restored(sample, tmp_path / "archive", topic_ids={name: "AAAAAAAHAAAAAAAAAAAAAA"})
    (one,) = report.partitions
    assert (one.status, one.reasons) == ("restored", ())


def test_without_any_word_on_leader_epochs_they_become_0(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    shutil.copytree(log_dir / NAME, tmp_path / "archive" / NAME)
    (tmp_path / "archive" / NAME / "leader-epoch-checkpoint").unlink()
    lose(sample, NAME, "__cluster_metadata-0")
    (one,) = restored(sample, tmp_path / "archive", topic_ids={"plain": "AAAAAAAHAAAAAAAAAAAAAA"}).partitions
    assert (one.status, one.leader_epochs) == ("restored", "renumbered")


@pytest.mark.parametrize("leader_epochs", ["auto", "keep", "renumber"])
def test_leader_epochs_begin_with_the_first_batch_that_has_one(tmp_path: Path, leader_epochs: str) -> None:
    """A log that was begun by old brokers, and one in which no batch has any."""
    sample = unpack("crashed-v0-v1", tmp_path)
    shutil.copytree(sample.log_dirs[0], tmp_path / "archive")
    lose(sample, "up-v1v2-0", "old-v0-0")
    report = restored(sample, tmp_path / "archive", "up-v1v2-0", "old-v0-0", leader_epochs=leader_epochs)
    assert {one.status for one in report.partitions} == {"restored"}
    for name, expected in (("up-v1v2-0", [(0, 2000)]), ("old-v0-0", [])):
        data = (sample.log_dirs[0] / name / "leader-epoch-checkpoint").read_bytes()
        assert list(read_leader_epoch_checkpoint(data) if data else ()) == expected


@pytest.mark.parametrize("has_other_logs", [False, True])
def test_a_new_log_dir_gets_the_log_starts_that_a_broker_leaves(tmp_path: Path, has_other_logs: bool) -> None:
    """In one that has logs a missing checkpoint is a loss, which a file without lines would hide."""
    sample = unpack("intact", tmp_path)
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    shutil.copytree(log_dir, tmp_path / "archive")
    for path in log_dir.iterdir():
        if path.name.endswith("-checkpoint"):
            path.unlink()
    others = [path.name for path in log_dir.iterdir() if path.is_dir() and "__cluster" not in path.name]
    lose(sample, *([NAME] if has_other_logs else others))
    before = tree_of(log_dir, ignore=(".lock",))
    assert restored(sample, tmp_path / "archive", NAME).exit_code == 0
    starts = log_dir / "log-start-offset-checkpoint"
    if has_other_logs:
        assert not starts.exists()
    else:
        assert starts.read_bytes() == b"0\n0\n"
        after = tree_of(log_dir, ignore=(".lock",))
        options = RecoverOptions(
            config=sample.properties, is_config_complete=True, now_ms=sample.now_ms, force=True, dry_run=True
        )
        report = recover(None, options)
        (own,) = (one for one in report.log_dirs if one.log_dir == str(log_dir))
        assert (own.notes, own.actions) == ((), ())
        assert tree_of(log_dir, ignore=(".lock",)) == after
    undo([str(log_dir)])
    assert tree_of(log_dir, ignore=(".lock",)) == before


def checks(archive: Path) -> list[tuple[int, list[tuple[str, str]]]]:
    """Return exit code and findings of `archive verify` and of `archive inventory`."""
    verified = archive_module.check(CheckOptions(url=str(archive)), engine="process")
    listed = inventory(ArchiveOptions(url=str(archive)))
    return [
        (verified.exit_code, [(one.rule, one.file) for one in verified.metadata_findings]),
        (
            listed.exit_code,
            [(one.rule, one.file) for _, one in listed.findings if one.severity == "unchecked"],
        ),
    ]


def test_verify_and_inventory_leave_earlier_copies_out(log_dir: Path, output: Path) -> None:
    """What they say of the copy is what they say of one that was made now."""
    copied(output, log_dir)
    os.truncate(max((log_dir / NAME).glob("*.log")), 1000)
    copied(output, log_dir)
    copied(output.parent / "new", log_dir)
    assert list((output / log_dir.name / NAME).glob("*.earlier"))
    assert checks(output) == checks(output.parent / "new")


def test_verify_and_inventory_take_a_copy_at_its_word(log_dir: Path, output: Path) -> None:
    copied(output, log_dir)
    assert checks(output) == [(0, []), (0, [])]
    leave_unfinished(output, log_dir)
    in_part = [("copy-in-part", f"{log_dir.name}/{NAME}/")]
    assert checks(output) == [(4, in_part)] * 2
    assert [code for code, _ in checks(output.parent)] == [4, 4]
    manifest = output / MANIFEST_KEY
    copied(output, log_dir)
    assert checks(output) == [(0, []), (0, [])]
    last = max((output / log_dir.name / NAME).glob("*.log"))
    kept = last.read_bytes()
    last.unlink()
    assert [code for code, _ in checks(output)] == [2, 2]
    last.write_bytes(kept[:-1])
    assert [code for code, _ in checks(output)] == [2, 2]
    last.write_bytes(kept)
    manifest.rename(output / "away")
    assert checks(output) == [(0, []), (0, [])]
    (output / MANIFEST_KEY).write_text("junk")
    assert [code for code, _ in checks(output / log_dir.name)] == [4, 4]


def test_the_end_of_an_unchanged_log_is_known(sample: Sample, log_dir: Path, output: Path) -> None:
    copied(output, *sample.log_dirs)
    lose(sample, NAME)
    (first,) = restored(sample, output, NAME).partitions
    (again,) = restored(sample, output, NAME).partitions
    assert (first.status, again.status) == ("restored", "unchanged")
    assert again.log_end_offset == first.log_end_offset is not None
    last = max((log_dir / NAME).glob("*.log"))
    last.write_bytes(last.read_bytes() + b"more of a broker")
    (later,) = restored(sample, output, NAME).partitions
    assert (later.status, later.log_end_offset) == ("unchanged", None)


def test_a_damaged_segment_is_not_told_as_missing(sample: Sample, output: Path) -> None:
    """Beside a sound log, for whose sake what was fetched is recovered."""
    name, sound = "plain-0", "deleted-records-0"
    copied(output, *sample.log_dirs)
    lose(sample, name, sound)
    path = sorted(output.glob(f"*/{name}/*.log"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 5] ^= 1
    path.write_bytes(data)
    events: list[Event] = []
    options = RestoreOptions(
        archive=ArchiveOptions(url=str(output), partitions=(name, sound)),
        broker=RecoverOptions(config=sample.properties, is_config_complete=True, now_ms=sample.now_ms),
    )
    other, one = restore(options, observers=[events.append]).partitions
    assert other.status == "restored"
    assert one.status == "refused"
    assert path.name in one.reasons[0]
    assert not [event for event in events if isinstance(event, Remark) and "missing" in event.text]


def test_an_undo_of_a_restore_counts_what_it_removes(sample: Sample, log_dir: Path, output: Path) -> None:
    copied(output, *sample.log_dirs)
    lose(sample, NAME)
    assert restored(sample, output, NAME).exit_code == 0
    size_bytes = sum(path.stat().st_size for path in (log_dir / NAME).iterdir())
    (announced,) = undo([str(log_dir)], dry_run=True)
    (done,) = undo([str(log_dir)])
    assert announced.removed_bytes == done.removed_bytes >= size_bytes
