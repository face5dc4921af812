"""What is there, and was not listed, is never taken for missing: it was not judged, and may be evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.stores.local_store import LocalStore
from tests.logs.archives import made_copies, write_archive
from tests.runs.goings import run_through


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=3))
    return tmp_path / "archive"


def recovered(archive: Path, *, is_in_place: bool, files_from: Path | None = None) -> ArchiveReport:
    options = CheckOptions(
        url=str(archive),
        output=str(archive.parent / "output"),
        rebuilds=True,
        is_in_place=is_in_place,
        files_from=None if files_from is None else str(files_from),
    )
    return run_through(options)[0]


def written(archive: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(archive)): path.read_bytes() for path in archive.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot", "leader_epoch_checkpoint"])
def test_what_a_list_does_not_have_is_not_rebuilt(suffix: str, is_in_place: bool, archive: Path) -> None:
    unlisted = sorted(archive.rglob(f"*.{suffix}"))[1]
    unlisted.write_bytes(unlisted.read_bytes() + b"\0")
    before = written(archive)
    key = str(unlisted.relative_to(archive))
    files_from = archive.parent / "list"
    files_from.write_text("".join(f"{name}\n" for name in before if name != key))
    report = recovered(archive, is_in_place=is_in_place, files_from=files_from)
    (row,) = report.objects
    assert (row["key"], row["rule"], row["rebuilt"]) == (key, "missing-object", None)
    assert row["detail"].startswith(
        f"{unlisted.name} exists, but the list or listing of the archive does not have it"
    )
    assert row["not_rebuilt"].startswith(
        "the object exists, but the list or listing of the archive does not have it. "
    )
    assert report.exit_code == 2
    assert written(archive) == before
    assert not list((archive.parent / "output").glob("recovered/*/**/*.*"))


def test_the_other_index_of_the_segment_is_rebuilt_and_said(archive: Path) -> None:
    index, unlisted = (sorted(archive.rglob(f"*.{suffix}"))[1] for suffix in ("index", "timeindex"))
    index.unlink()
    files_from = archive.parent / "list"
    files_from.write_text(
        "".join(f"{key}\n" for key in written(archive) if key != str(unlisted.relative_to(archive)))
    )
    report = recovered(archive, is_in_place=True, files_from=files_from)
    told = {row["key"].rpartition(".")[2]: row["rebuilt"] is not None for row in report.objects}
    assert told == {"index": True, "timeindex": False}
    assert index.exists()


@pytest.mark.parametrize("is_listed", [False, True])
def test_what_came_after_the_listing_is_not_replaced(
    is_listed: bool, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = sorted(archive.rglob("*.timeindex"))[1]
    if is_listed:
        index.write_bytes(index.read_bytes() + b"\0")
    else:
        index.unlink()
    stat: Callable[[LocalStore, str], object] = LocalStore.stat

    def stat_late(self: LocalStore, key: str) -> object:
        if key.endswith(".log"):  # looked at before the indexes are rebuilt
            index.write_bytes(b"another upload")
        return stat(self, key)

    monkeypatch.setattr(LocalStore, "stat", stat_late)
    report = recovered(archive, is_in_place=True)
    (row,) = report.objects
    assert row["rebuilt"] is None
    assert ("is not the one that was listed" if is_listed else "exists, but the list") in row["not_rebuilt"]
    assert index.read_bytes() == b"another upload"
