"""A copy of a log dir is judged as the local `verify` judges the log dir itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.verdict_rows import remedy
from recovery.check.api import verify
from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.logs.samples import Sample, unpack
from tests.runs.goings import bad_objects, gone_through, log_dir_configs, objects_of, run_through

_OF_LOG_DIRS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, "meta.properties")


def local_words(sample: Sample) -> dict[str, list[str]]:
    """Return what the local engine finds in partitions' folders, by path below the sample's root."""
    report = verify(
        [str(path) for path in sample.log_dirs],
        config=dict(sample.properties),
        topic_configs=log_dir_configs(sample),
        now_ms=sample.now_ms,
    )
    return {
        str(Path(file.path).relative_to(sample.root)): [str(found) for found in file.findings]
        for file in report.files
        if file.findings and Path(file.path).parent not in sample.log_dirs
    }


def archive_words(sample: Sample) -> dict[str, list[str]]:
    """Return what is found in the same dirs as an archive."""
    verdicts = gone_through(sample.root, topic_configs=log_dir_configs(sample), now_ms=sample.now_ms)
    return {
        one.verdict.path: [str(found) for found in one.verdict.findings]
        for verdict in verdicts
        for one in verdict.objects
        if one.verdict.findings and not one.verdict.path.endswith(_OF_LOG_DIRS)
    }


@pytest.mark.parametrize("name", ["crashed", "crashed-v0-v1", "intact", "stopped"])
def test_findings_are_those_of_the_local_engine(name: str, tmp_path: Path) -> None:
    sample = unpack(name, tmp_path)
    shutil.rmtree(sample.root / "remote", ignore_errors=True)  # tiered storage, which has a layout of its own
    assert archive_words(sample) == local_words(sample)


def preallocated_log(sample: Sample) -> str:
    """The key, below the first log dir, of the log that a crash has left with zeros."""
    logs = sample.log_dirs[0].glob("preallocated-0/*.log")
    (path,) = (path for path in logs if not any(path.read_bytes()[-1000:]))
    return path.relative_to(sample.log_dirs[0]).as_posix()


def test_settings_come_from_the_copied_metadata_log(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    copy = sample.log_dirs[0]
    key = preallocated_log(sample)
    for is_logs_only in (False, True):
        log = objects_of(gone_through(copy, is_logs_only=is_logs_only, now_ms=sample.now_ms))[key]
        assert [(one.rule, one.severity) for one in log.verdict.findings] == [("unclean-tail", "note")]
    given = {"preallocated": {"preallocate": "false"}}
    log = objects_of(gone_through(copy, topic_configs=given, now_ms=sample.now_ms))[key]
    assert [one.severity for one in log.verdict.findings] == ["damage"], "what is given wins"


@pytest.mark.parametrize("is_damaged", [True, False])
def test_without_settings_the_remedy_names_the_option(is_damaged: bool, tmp_path: Path) -> None:
    """A metadata log that cannot be read is named in a note; without any there is nothing to say."""
    sample = unpack("crashed", tmp_path)
    copy = sample.log_dirs[0]
    folder = copy / "__cluster_metadata-0"
    if is_damaged:
        (newest,) = sorted(folder.glob("*.checkpoint"))[-1:]
        newest.write_bytes(newest.read_bytes()[:-7])
    else:
        shutil.rmtree(folder)
    report, verdicts = run_through(CheckOptions(url=str(copy), now_ms=sample.now_ms))
    notes = [note.text for note in report.notes if "the settings in it are not known" in note.text]
    assert len(notes) == is_damaged
    log = objects_of(verdicts)[preallocated_log(sample)]
    (found,) = log.verdict.findings
    assert (found.rule, found.severity) == ("unclean-tail", "damage")
    assert "--topic-config" in remedy(log, found)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_changed_byte_is_found_as_the_local_engine_finds_it(suffix: str, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    shutil.rmtree(sample.root / "remote", ignore_errors=True)
    changed = 0
    for path in sorted(sample.root.glob(f"d?/*/*{suffix}")):
        data = bytearray(path.read_bytes())
        if len(data) > 70 or (suffix != ".log" and data):
            data[len(data) // 2] ^= 0x55
            path.write_bytes(data)
            changed += 1
    assert changed > 3
    found = archive_words(sample)
    assert found == local_words(sample)
    assert len(found) > changed // 3


def test_swaps_are_found_as_the_local_engine_finds_them_whatever_their_names(tmp_path: Path) -> None:
    sample = unpack("stopped", tmp_path)
    shutil.rmtree(sample.root / "remote", ignore_errors=True)
    log = max(sample.root.glob("d?/*-0/*.log"), key=lambda path: path.stat().st_size)
    for name in (f"{log.name}.swap", "nothing.log.swap", f"{log.stem}.log.swap.swap"):
        (log.parent / name).write_bytes(log.read_bytes()[:-5])
    found = archive_words(sample)
    assert found == local_words(sample)
    folder = log.parent.relative_to(sample.root)
    assert any("foreign-file" in words for words in found[str(folder / "nothing.log.swap")])
    assert len(found[str(folder / f"{log.name}.swap")]) > 1


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_a_checkpoint_that_cannot_be_read_is_named_once(name: str, tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (sample.root / "d1" / name).write_bytes(b"0\n2\nplain 1")
    assert bad_objects(gone_through(sample.root)) == {f"d1/{name}": ["checkpoint"]}
    assert bad_objects(gone_through(sample.root, is_logs_only=True)) == {}


def test_a_line_beyond_the_end_of_its_log_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (sample.root / "d1" / LOG_START_OFFSET_CHECKPOINT).write_bytes(b"0\n1\nplain 1 99999\n")
    assert bad_objects(gone_through(sample.root)) == {f"d1/{LOG_START_OFFSET_CHECKPOINT}": ["log-start"]}


def test_a_missing_snapshot_is_left_to_the_broker(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    for path in sample.root.glob("d?/transactions-0/*.snapshot"):
        path.unlink()
    verdicts = gone_through(sample.root, tmp_path / "output")
    (judged,) = (one for one in objects_of(verdicts).values() if one.verdict.is_valid is False)
    (finding,) = judged.verdict.findings
    assert finding.rule == "missing-snapshot"
    assert "makes it itself" in judged.obstacle
    assert "without its clean-shutdown marker" in remedy(judged, finding)
    assert judged.rebuilt is None


def test_what_cannot_be_a_partition_is_passed_over(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (sample.root / "d1" / "lost+found").mkdir()
    (sample.root / "notes.txt").write_text("not Kafka's")
    assert bad_objects(gone_through(sample.root)) == {}


def test_a_single_partition_is_an_archive(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    (verdict,) = gone_through(sample.root / "d1" / "plain-1")
    assert (verdict.head.where.topic, verdict.head.where.partition, verdict.segment_count) == ("plain", 1, 4)
