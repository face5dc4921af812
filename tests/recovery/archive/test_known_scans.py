"""Files of kept scans that no run needs any more are removed by one that has ended; nothing else is."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from recovery.archive.check import kept_scans
from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.scanned import VERSION
from recovery.archive.engine.process import ProcessEngine
from recovery.archive.layouts.aiven_cipher import NO_KEYS, load_aiven_keys
from recovery.archive.stores.local_store import LocalStore
from tests.logs.aiven_archive import KEY_ID, write_private_key
from tests.logs.archives import LOG, made_copies, write_archive
from tests.runs.goings import NOW_MS, run_through


class Verified:
    """An archive of three and two segments in two partitions, verified with one output."""

    def __init__(self, folder: Path) -> None:
        self.root, self.output = folder / "archive", folder / "output"
        copies = [*made_copies(segments=3), *made_copies(partition=1, segments=2)]
        archive = write_archive(self.root, "local-tiered", copies)
        self.logs = [archive.place(copy, LOG) for copy in copies]

    def run(self, **options: Any) -> ArchiveReport:
        """A run with a task, and so a file of kept scans, for each segment."""
        options = {"task_bytes": 1, "now_ms": NOW_MS, **options}
        return run_through(CheckOptions(url=str(self.root), output=str(self.output), **options))[0]

    def kept(self) -> set[Path]:
        return set(self.output.glob("scans/*"))


@pytest.fixture
def verified(tmp_path: Path) -> Verified:
    return Verified(tmp_path)


def replace(log: Path) -> None:
    """Put another object with the same bytes in its place."""
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data)


def remove_partition(log: Path) -> None:
    for path in log.parent.iterdir():
        path.unlink()
    log.parent.rmdir()


def test_what_stands_for_a_replaced_segment_is_removed(verified: Verified) -> None:
    verified.run()
    first = verified.kept()
    assert len(first) == 5
    assert (verified.run().known_segments, verified.kept()) == (5, first)
    replace(verified.logs[1])
    report = verified.run()
    assert (report.known_segments, report.exit_code) == (4, 0)
    assert len(verified.kept()) == 5
    assert len(verified.kept() & first) == 4
    assert verified.run().known_segments == 5


def test_a_file_stays_until_the_last_of_its_segments_is_replaced(verified: Verified) -> None:
    verified.run(task_bytes=1 << 30)
    (joint,) = verified.kept()
    for log in verified.logs[:4]:
        replace(log)
        verified.run()
        assert joint in verified.kept()
    replace(verified.logs[4])
    verified.run()
    assert joint not in verified.kept()


def test_other_options_use_the_same_output(verified: Verified) -> None:
    """What is kept of other depths and partitions stands for segments that exist."""
    runs: list[dict[str, Any]] = [{}, {"is_deep": True}, {"is_logs_only": True}]
    for options in runs * 2:
        report = verified.run(**options)
    assert report.known_segments == 5
    assert [verified.run(**options).known_segments for options in runs] == [5, 5, 5]
    partition = f"made-{verified.logs[0].parent.name.split('-')[1]}"
    assert verified.run(partitions=(partition,)).known_segments == 3
    assert [verified.run(**options).known_segments for options in runs] == [5, 5, 5]


def test_what_was_kept_of_a_partition_goes_with_it_once_all_is_gone_through(verified: Verified) -> None:
    verified.run()
    remove_partition(verified.logs[-1])
    verified.run(layout="local-tiered")
    verified.run(topics=("made",))
    assert len(verified.kept()) == 5
    assert verified.run().exit_code == 0
    assert len(verified.kept()) == 3


def test_what_an_older_version_has_kept_is_removed(
    verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setitem(kept_scans._FORMAT, b"kafka-log-recovery.version", b"%d" % (VERSION - 1))
        verified.run()
    first = verified.kept()
    assert len(first) == 5
    report = verified.run()
    assert "5 files of kept scans" in " ".join(note.text for note in report.notes)
    assert not verified.kept() & first
    assert verified.run().notes == ()
    newer = rewritten(next(iter(verified.kept())), b"%d" % (VERSION + 1))
    verified.run()
    assert newer in verified.kept()


def rewritten(path: Path, version: bytes) -> Path:
    """Write a file of kept scans anew, as one of another version."""
    metadata = {b"kafka-log-recovery.format": b"kept-scans", b"kafka-log-recovery.version": version}
    table = pq.read_table(path).replace_schema_metadata(metadata)
    pq.write_table(table, path, use_dictionary=False)
    return path.rename(path.with_name(kept_scans._checksum(path.read_bytes()) + ".segments.parquet"))


def test_what_no_run_knows_again_is_not_kept(verified: Verified, tmp_path: Path) -> None:
    """Each run reads segments without ETags anew, and would add the same rows."""
    listed = tmp_path / "list"
    objects = [path for path in verified.root.rglob("*") if path.is_file()]
    listed.write_text(
        "".join(f"{path.relative_to(verified.root)}\t{path.stat().st_size}\n" for path in objects)
    )
    for _ in range(2):
        report = verified.run(files_from=str(listed))
        assert (report.exit_code, report.summary.segments, report.known_segments) == (0, 5, 0)
    assert verified.kept() == set()


def test_what_could_not_be_read_is_read_again(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each kind of object fails in one run."""
    targets = {path.name for path in verified.logs[1].parent.glob(f"{verified.logs[1].stem}*")}
    assert len(targets) >= 5
    real_open, real_read = LocalStore.open, LocalStore.read

    def fail(key: str, name: str) -> None:
        if key.endswith(name):
            raise OSError(errno.EIO, "the disk is not well", key)

    for name in sorted(targets):
        with monkeypatch.context() as broken:

            def opened(store: LocalStore, key: str, name: str = name) -> Any:
                fail(key, name)
                return real_open(store, key)

            def read(store: LocalStore, key: str, *, most_bytes: int, name: str = name) -> bytes:
                fail(key, name)
                return real_read(store, key, most_bytes=most_bytes)

            broken.setattr(LocalStore, "open", opened)
            broken.setattr(LocalStore, "read", read)
            assert verified.run().exit_code == 4, name
        assert len(verified.kept()) == 4
        report = verified.run()
        assert (report.exit_code, report.known_segments) == (0, 4)
        replace(verified.logs[1])


@pytest.mark.parametrize("options", [{}, {"is_logs_only": True}])
def test_what_was_encrypted_with_an_unknown_key_is_read_with_the_key(
    options: dict[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    write_archive(root, "aiven, encrypted", made_copies(segments=3))
    keys = load_aiven_keys({KEY_ID: write_private_key(tmp_path)})
    for given, exit_code, known in ((NO_KEYS, 4, 0), (keys, 0, 0), (keys, 0, 3)):
        checked = CheckOptions(
            url=str(root), output=str(tmp_path / "output"), keys=given, now_ms=NOW_MS, **options
        )
        report, _ = run_through(checked)
        assert (report.exit_code, report.known_segments) == (exit_code, known)


def test_what_was_changed_stays_for_somebody_to_look_at(verified: Verified) -> None:
    verified.run()
    changed = next(iter(verified.kept()))
    changed.write_bytes(changed.read_bytes()[:-1])
    kept = changed.rename(changed.with_name(f"{'0' * 32}.segments.parquet"))
    verified.run()
    assert kept in verified.kept()


def test_a_run_that_does_not_end_removes_nothing(verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(_engine: ProcessEngine) -> None:
        raise Killed

    verified.run()
    first = verified.kept()
    replace(verified.logs[1])
    monkeypatch.setattr(ProcessEngine, "fold", killed)
    with pytest.raises(Killed):
        verified.run()
    assert verified.kept() > first


def test_a_run_that_misses_what_another_has_removed_says_so(
    verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found a segment before that was replaced; the other run, which began later and ended earlier, has not."""
    verified.run()
    real = ProcessEngine._load_kept

    def load(engine: ProcessEngine) -> None:
        monkeypatch.setattr(ProcessEngine, "_load_kept", real)
        replace(verified.logs[1])
        assert verified.run().exit_code == 0
        real(engine)

    monkeypatch.setattr(ProcessEngine, "_load_kept", load)
    report = verified.run()
    assert report.exit_code == 4
    assert "1 segments were not checked: " in str(report)
    assert verified.run().exit_code == 0
