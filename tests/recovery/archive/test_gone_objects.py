"""Objects that were listed and are not there are never sound: the list is old, or they were deleted meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from tests.logs.archives import WrittenArchive, made_copies, write_archive
from tests.runs.goings import objects_of, run_through

LAYOUTS = ("plain", "local-tiered", "aiven")


def listed(archive: WrittenArchive, form: str) -> Path:
    path = archive.root.with_name("list")
    lines = {
        "keys": lambda key: key,
        "sizes": lambda key: f"{key}\t{(archive.root / key).stat().st_size}",
        "ETags": lambda key: f"{key}\t{(archive.root / key).stat().st_size}\tetag",
    }
    path.write_text("".join(f"{lines[form](key)}\n" for key in sorted(archive.keys())))
    return path


def verified(archive: WrittenArchive, files_from: Path) -> tuple[ArchiveReport, list[PartitionVerdict]]:
    return run_through(CheckOptions(url=str(archive.root), files_from=str(files_from)))


@pytest.mark.parametrize("form", ["sizes", "ETags"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_object_that_has_gone_is_not_checked(layout: str, form: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", layout, made_copies(segments=4))
    files_from = listed(archive, form)
    for part in archive.parts(archive.copies[1]):
        path = archive.place(archive.copies[1], part)
        held = path.read_bytes()
        path.unlink()
        report, verdicts = verified(archive, files_from)
        key = path.relative_to(archive.root).as_posix()
        assert (report.exit_code, objects_of(verdicts)[key].verdict.is_valid) == (4, None), key
        path.write_bytes(held)
    assert verified(archive, files_from)[0].exit_code == 0


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_no_object_of_a_segment_that_has_gone_is_sound(layout: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", layout, made_copies(segments=4))
    files_from = listed(archive, "sizes")
    gone = [archive.place(archive.copies[1], part) for part in archive.parts(archive.copies[1])]
    for path in gone:
        path.unlink()
    objects = objects_of(verified(archive, files_from)[1])
    valid = {path.name: objects[path.relative_to(archive.root).as_posix()].verdict.is_valid for path in gone}
    assert True not in valid.values()


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_alone_that_are_not_there_are_named(layout: str, number: int, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", layout, made_copies(segments=4))
    files_from = listed(archive, "keys")
    copy = archive.copies[number]
    gone = sorted(
        archive.place(copy, part) for part in archive.parts(copy) if layout != "plain" or part == "log"
    )
    for path in gone:
        path.unlink()
    options = ArchiveOptions(url=str(archive.root), files_from=str(files_from))
    for report in (verified(archive, files_from)[0], inventory(options)):
        assert report.exit_code == 4
        (unlisted,) = report.unlisted
        assert unlisted.prefix == gone[0].relative_to(archive.root).as_posix()
        assert f"as {len(gone)} in all" in unlisted.error
