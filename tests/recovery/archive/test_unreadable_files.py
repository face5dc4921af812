"""What may not be read, or listed, is not checked; no damage, and no loss, is concluded from it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.archive.stores.local_store import LocalStore
from tests.logs.samples import Sample, unpack
from tests.runs.goings import run_through

_REAL_PATH = LocalStore._path


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Keys, and prefixes, that nobody may open."""
    keys: set[str] = set()

    def path_of(store: LocalStore, key: str) -> str:
        if key in keys:
            raise PermissionError(errno.EACCES, "Permission denied", key)
        return _REAL_PATH(store, key)

    monkeypatch.setattr(LocalStore, "_path", path_of)
    return keys


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


def copied(sample: Sample, output: Path) -> Path:
    copy(CopyOptions(output=str(output), log_dirs=tuple(map(str, sample.log_dirs))))
    return output


def damage(report: ArchiveReport) -> list[tuple[str, str]]:
    """Return key and rule of all damage."""
    of_objects = [
        (row["key"], one["rule"])
        for row in report.objects
        for one in row["findings"]
        if one["severity"] == "damage"
    ]
    return of_objects + [(one.file, one.rule) for one in report.metadata_findings if one.severity == "damage"]


def files_in(archive: Path, pattern: str) -> list[str]:
    """Return keys of files; without the cluster's settings, all is judged by those of Kafka."""
    return [
        str(path.relative_to(archive))
        for path in sorted(archive.rglob(pattern))
        if path.parent.name != "__cluster_metadata-0" and path.name != "bootstrap.checkpoint"
    ]


@pytest.mark.parametrize(
    ("name", "patterns", "is_logs_only"),
    [
        ("intact", ("*.log",), True),
        ("intact", ("*.log", "*.snapshot", "*.txnindex", "*checkpoint", "*.metadata"), False),
        ("crashed", ("*offset-checkpoint",), False),
    ],
)
def test_a_file_that_may_not_be_read(
    name: str, patterns: tuple[str, ...], is_logs_only: bool, tmp_path: Path, forbidden: set[str]
) -> None:
    archive = copied(unpack(name, tmp_path), tmp_path / "copy")
    options = CheckOptions(url=str(archive), is_logs_only=is_logs_only)
    for key in (key for pattern in patterns for key in files_in(archive, pattern)):
        forbidden.add(key)
        report, _ = run_through(options)
        assert (key, damage(report), report.exit_code) == (key, [], 4)
        forbidden.clear()


def test_a_segment_of_tiered_storage_that_may_not_be_read(tmp_path: Path, forbidden: set[str]) -> None:
    archive = unpack("tiered", tmp_path).root / "remote" / "kafka-tiered-storage"
    # What is left of a copy that stuck is none but beside a sound segment
    folders = sorted(path for path in archive.iterdir() if not path.name.startswith("stuck-copy"))
    logs = [str(path.relative_to(archive)) for folder in folders for path in sorted(folder.glob("*.log"))[:2]]
    for is_logs_only in (False, True):
        for key in logs:
            forbidden.add(key)
            report, _ = run_through(CheckOptions(url=str(archive), is_logs_only=is_logs_only))
            assert (key, damage(report), report.exit_code) == (key, [], 4)
            forbidden.clear()


def test_folders_that_may_not_be_listed_are_not_missing(
    sample: Sample, tmp_path: Path, forbidden: set[str]
) -> None:
    archive = copied(sample, tmp_path / "copy")
    for prefix in ("d2/plain-0/", "d1/", "d2/"):
        forbidden.add(prefix)
        report, _ = run_through(CheckOptions(url=str(archive)))
        listed = inventory(ArchiveOptions(url=str(archive)))
        assert (prefix, damage(report), report.metadata_findings) == (prefix, [], ())
        assert (report.exit_code, listed.exit_code) == (4, 4)
        assert [one.prefix for one in (*report.unlisted, *listed.unlisted)] == [prefix] * 2
        assert not [one for _, one in listed.findings if one.severity != "note"]
        forbidden.clear()


def test_what_copies_lack_is_said_and_counted_as_not_checked(sample: Sample, tmp_path: Path) -> None:
    archive = copied(sample, tmp_path / "copy")
    (archive / "d2" / "plain-0").rename(tmp_path / "away")
    report, _ = run_through(CheckOptions(url=str(archive)))
    line = "NOT CHECKED d2/plain-0/: missing-folder: it was copied, and is not there. Remedy: copy the folder as well"
    assert line in report.to_text()
    summary = report.summary
    assert (summary.unchecked, summary.rules["missing-folder"]) == (1, 1)
    assert summary.objects == summary.valid + summary.damaged + summary.unchecked
