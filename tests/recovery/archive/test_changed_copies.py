"""Copies that are not as `archive copy` made them: what restore refuses, `verify` and `inventory` do not call sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.inventory.report import InventoryReport
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from tests.logs.samples import Sample, unpack
from tests.runs.goings import run_through

PARTITION = "plain-0"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


@pytest.fixture
def log_dir(sample: Sample, tmp_path: Path) -> Path:
    """The copy of the log dir that has the partition."""
    copied(sample, tmp_path / "copy")
    (found,) = (tmp_path / "copy").glob(f"*/{PARTITION}")
    return found.parent


def copied(sample: Sample, output: Path, **options: object) -> None:
    log_dirs = tuple(map(str, sample.log_dirs))
    report = copy(CopyOptions(output=str(output), log_dirs=log_dirs, **options))  # type: ignore[arg-type]  # by name
    assert report.exit_code == 0


def unsound(archive: Path, *, is_logs_only: bool = False) -> tuple[int, dict[str, set[str]]]:
    """Return the exit code of a verify, and the rules of damage by key."""
    report, verdicts = run_through(CheckOptions(url=str(archive), is_logs_only=is_logs_only))
    found: dict[str, set[str]] = {}
    for judged in (one for verdict in verdicts for one in verdict.objects):  # some keys are there twice
        for one in judged.verdict.findings:
            if one.severity == "damage":
                found.setdefault(judged.verdict.path, set()).add(one.rule)
    return report.exit_code, found


def listed(archive: Path) -> tuple[int, set[tuple[str, str]]]:
    """Return the exit code of an inventory, and key and rule of its findings."""
    report: InventoryReport = inventory(ArchiveOptions(url=str(archive)))
    return report.exit_code, {(prefix + one.file, one.rule) for prefix, one in report.findings}


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def other_digit(path: Path) -> None:
    """Make the last digit of a checkpoint another one: it stays well-formed, and as large."""
    text = path.read_text().rstrip("\n")
    path.write_text(f"{text[:-1]}{(int(text[-1]) + 1) % 10}\n")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("log-start-offset-checkpoint", removed, "missing-file"),
        ("log-start-offset-checkpoint", emptied, "changed-file"),
        ("log-start-offset-checkpoint", other_digit, "changed-file"),
        ("recovery-point-offset-checkpoint", removed, "missing-file"),
        ("replication-offset-checkpoint", removed, "missing-file"),
        ("meta.properties", removed, "missing-file"),
        ("meta.properties", flipped, "changed-file"),
        ("bootstrap.checkpoint", flipped, "changed-file"),
    ],
)
def test_a_file_of_the_log_dir_that_is_not_as_it_was_copied(
    log_dir: Path, name: str, change: Callable[[Path], None], rule: str
) -> None:
    change(log_dir / name)
    code, found = unsound(log_dir.parent)
    assert code == 2
    assert rule in found[f"{log_dir.name}/{name}"]
    code, in_list = listed(log_dir.parent)
    assert (code, (f"{log_dir.name}/{name}", rule) in in_list) == (2, True)
    code, found = unsound(log_dir)  # the manifest above counts
    assert (code, rule in found[name]) == (2, True)


@pytest.mark.parametrize(
    ("name", "change", "rule", "is_in_listing"),
    [
        ("partition.metadata", removed, "missing-file", True),
        ("partition.metadata", emptied, "changed-file", True),
        ("leader-epoch-checkpoint", removed, "missing-file", True),
        ("leader-epoch-checkpoint", other_digit, "changed-file", False),
        ("*.snapshot", removed, "missing-file", True),
        ("*.snapshot", flipped, "changed-file", False),
        ("*.log", removed, "missing-file", True),
        ("*.log", emptied, "changed-file", True),
    ],
)
def test_a_file_of_a_partition_that_is_not_as_it_was_copied(
    log_dir: Path,
    name: str,
    change: Callable[[Path], None],
    rule: str,
    is_in_listing: bool,
) -> None:
    path = min((log_dir / PARTITION).glob(name))
    key = f"{log_dir.name}/{PARTITION}/{path.name}"
    change(path)
    code, found = unsound(log_dir.parent)
    assert (code, rule in found[key]) == (2, True)
    _, in_list = listed(log_dir.parent)
    assert ((key, rule) in in_list) == is_in_listing
    (log_dir.parent / MANIFEST_KEY).unlink()  # the remedy if it was changed on purpose
    _, found = unsound(log_dir.parent)
    assert rule not in found.get(key, set())


def test_indexes_are_made_anew_and_need_not_be_as_copied(log_dir: Path) -> None:
    for path in (log_dir / PARTITION).glob("*index"):
        path.unlink()
    _, found = unsound(log_dir.parent)
    assert not {"missing-file", "changed-file"} & set().union(*found.values())


def test_a_file_that_no_check_reads_is_compared(sample: Sample, tmp_path: Path) -> None:
    (folder,) = (one / PARTITION for one in sample.log_dirs if (one / PARTITION).is_dir())
    (folder / "remark.txt").write_text("as it was")
    copied(sample, tmp_path / "copy")
    (at,) = (tmp_path / "copy").glob("*/*/remark.txt")
    assert unsound(tmp_path / "copy") == (0, {})
    at.write_text("as it is!")
    assert unsound(tmp_path / "copy")[1] == {
        f"{at.parent.parent.name}/{PARTITION}/remark.txt": {"changed-file"}
    }


def test_logs_alone_are_compared_with_logs_only(log_dir: Path) -> None:
    assert unsound(log_dir.parent, is_logs_only=True) == (0, {})
    (log_dir / PARTITION / "partition.metadata").unlink()
    (log_dir / "log-start-offset-checkpoint").unlink()
    assert unsound(log_dir.parent, is_logs_only=True) == (0, {})
    last = max((log_dir / PARTITION).glob("*.log"))
    last.unlink()
    code, found = unsound(log_dir.parent, is_logs_only=True)
    assert (code, found) == (2, {f"{log_dir.name}/{PARTITION}/{last.name}": {"missing-file"}})


def test_a_snapshot_that_only_differs_from_the_copy_is_not_rebuilt(log_dir: Path, tmp_path: Path) -> None:
    path = max((log_dir / PARTITION).glob("*.snapshot"))
    manifest = log_dir.parent / MANIFEST_KEY
    head, *lines = manifest.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if row[0].endswith(f"{PARTITION}/{path.name}"):
            row[4] = "0" * 64
    manifest.write_text("\n".join([head, *map(json.dumps, rows), ""]))
    report, _ = run_through(
        CheckOptions(url=str(log_dir.parent), output=str(tmp_path / "out"), rebuilds=True)
    )
    (row,) = report.objects
    assert (row["rule"], row["not_rebuilt"], row["rebuilt"]) == ("changed-file", None, None)
    assert "archive copy --restart" in row["remedy"]


def test_what_was_not_chosen_is_not_missing(sample: Sample, tmp_path: Path) -> None:
    output = tmp_path / "copy"
    copied(sample, output, topics=("plain",))
    report, _ = run_through(CheckOptions(url=str(output)))
    assert (report.exit_code, dict(report.summary.rules)) == (0, {})
    assert report.summary.notes["missing-folder"] == 2  # one for each log dir
    assert {one.severity for _, one in inventory(ArchiveOptions(url=str(output))).findings} == {"note"}
    copied(sample, output)
    assert not run_through(CheckOptions(url=str(output)))[0].summary.notes
    copied(sample, output, topics=("plain",))  # the others stay copied
    assert json.loads((output / MANIFEST_KEY).read_text().splitlines()[0])["chosen"] == []


def test_a_folder_that_the_log_dir_did_not_have_stays_missing(sample: Sample, tmp_path: Path) -> None:
    (folder,) = (one / PARTITION for one in sample.log_dirs if (one / PARTITION).is_dir())
    folder.rename(tmp_path / "lost")
    copied(sample, tmp_path / "copy")
    report, _ = run_through(CheckOptions(url=str(tmp_path / "copy")))
    assert (report.exit_code, dict(report.summary.rules)) == (4, {"missing-folder": 1})


def test_a_folder_whose_name_is_not_utf8_is_not_listed_and_not_missed(sample: Sample, tmp_path: Path) -> None:
    odd = sample.log_dirs[0] / "u\udcff-0"
    odd.mkdir()
    (odd / f"{0:020}.log").write_bytes(b"")
    copied(sample, tmp_path / "copy")
    report, _ = run_through(CheckOptions(url=str(tmp_path / "copy")))
    assert dict(report.summary.rules) == {}
    assert [one.error for one in report.unlisted] == ["the name of the folder is not UTF-8"]


def test_a_folder_that_was_copied_is_missed_once(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / PARTITION).rename(tmp_path / "lost")
    report, _ = run_through(CheckOptions(url=str(log_dir.parent)))
    (found,) = report.metadata_findings
    assert (report.exit_code, found.rule, found.file) == (4, "missing-folder", f"{log_dir.name}/{PARTITION}/")
    assert "missing-folder" not in {one["rule"] for row in report.objects for one in row["findings"]}
