"""Temporary files of a run in place that was killed: named as such, and removed by the next one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.stores.local_store import LocalStore
from recovery.stop_request import StopRequest
from tests.logs.archives import made_copies, write_archive
from tests.runs.goings import run_through


def checked(archive: Path, *, is_in_place: bool = True) -> ArchiveReport:
    output = str(archive.parent / "output")
    options = CheckOptions(url=str(archive), output=output, rebuilds=is_in_place, is_in_place=is_in_place)
    return run_through(options)[0]


@pytest.mark.parametrize("layout", ["local-tiered", "plain"])
@pytest.mark.parametrize("call", ["rename", "link", "fsync"])
def test_the_next_run_in_place_removes_what_a_killed_one_has_left(
    call: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    write_archive(archive, layout, made_copies(segments=3))
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    index = sorted(archive.rglob("*.timeindex"))[1]
    if call == "link":
        index.unlink()
    else:
        index.write_bytes(index.read_bytes() + b"\0")

    class Killed(BaseException):
        """No handler of the tool's runs after SIGKILL."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda *_: None)
        store = LocalStore(str(archive))
        key = str(index.relative_to(archive))
        patched.setattr(os, call, die)
        with pytest.raises(Killed):
            store.create(key, b"1") if call == "link" else store.replace(key, b"1")
    (left,) = [path for path in archive.rglob("*") if path.is_file() and path not in before]
    seen = checked(archive, is_in_place=False)
    (note,) = [row for row in seen.noted if row["key"] == str(left.relative_to(archive))]
    assert "the next `archive recover --in-place` removes it" in note["findings"][0]["detail"]
    assert left.exists()
    report = checked(archive)
    assert not left.exists()
    assert f"removed: 1, the first {left.relative_to(archive)}" in report.to_text()
    assert report.summary.rebuilt == 1
    assert {path for path in archive.rglob("*") if path.is_file()} == set(before)
    assert "removed" not in checked(archive).to_text()


def test_verdicts_are_read_past_a_file_that_was_being_written(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_archive(archive, "local-tiered", made_copies(segments=1))
    report = checked(archive)
    LocalStore(str(tmp_path / "output")).replace(
        "verdicts/.objects.parquet.0123456789abcdef.recovery-tmp", b"half"
    )
    assert len(pq.read_table(tmp_path / "output" / "verdicts")) == report.summary.objects


def test_a_link_leads_no_removal_out_of_the_archive(tmp_path: Path) -> None:
    archive, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    write_archive(archive, "local-tiered", made_copies(segments=1))
    (folder,) = [path for path in archive.iterdir() if path.is_dir()]
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    left = elsewhere / ".a.index.0123456789abcdef.recovery-tmp"
    left.write_bytes(b"")
    report = checked(archive)
    assert left.exists()
    assert any(row["key"].endswith(left.name) for row in report.noted)


def test_an_interrupted_run_says_what_it_has_removed(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_archive(archive, "local-tiered", made_copies(segments=1))
    folder = next(path for path in archive.iterdir() if path.is_dir())
    left = folder / ".a.index.0123456789abcdef.recovery-tmp"
    left.write_bytes(b"")
    stop = StopRequest()
    stop.request(signal.SIGINT)
    options = CheckOptions(url=str(archive), rebuilds=True, is_in_place=True)
    report, _ = run_through(options, stop=stop)
    assert not left.exists()
    assert f"removed: 1, the first {folder.name}/{left.name}" in report.to_text()
    assert "nothing was replaced or added in the archive" in report.to_text()
