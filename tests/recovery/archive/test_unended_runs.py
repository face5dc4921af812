"""What a run in place has replaced is told, by that run or the next one, whenever it was ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.stores.local_store import LocalStore
from recovery.stop_request import StopRequest
from tests.logs.archives import made_copies, write_archive
from tests.runs.goings import run_through

_DAMAGED = 4


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with malformed time indexes."""
    write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=6))
    for index in sorted((tmp_path / "archive").rglob("*.timeindex"))[:_DAMAGED]:
        index.write_bytes(index.read_bytes() + b"\0")
    return tmp_path / "archive"


def recovered(archive: Path, stop: StopRequest | None = None) -> ArchiveReport:
    return run_through(CheckOptions(url=str(archive), rebuilds=True, is_in_place=True), stop=stop)[0]


def ended_at_the_second(
    monkeypatch: pytest.MonkeyPatch, archive: Path, end: KeyboardInterrupt | StopRequest
) -> None:
    """Let the run on *archive* end when the second object has been replaced."""
    replace, done = LocalStore.replace, 0

    def replaced(self: LocalStore, key: str, data: bytes) -> None:
        nonlocal done
        replace(self, key, data)
        done += self.url == str(archive)
        if done >= 2 and isinstance(end, StopRequest):
            end.request(signal.SIGINT)
        elif done >= 2 and isinstance(end, KeyboardInterrupt):
            raise end

    monkeypatch.setattr(LocalStore, "replace", replaced)


def test_an_interrupted_run_says_what_it_has_replaced(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequest()
    with monkeypatch.context() as patched:
        ended_at_the_second(patched, archive, stop)
        report = recovered(archive, stop)
    saved = [path for path in Path(report.quarantine or "").rglob("*") if path.is_file()]
    assert report.exit_code == 130
    assert report.saved_objects == len(saved) >= 2
    assert (
        f"copied to {report.quarantine} before replacing them in the archive: {len(saved)};"
        in report.to_text()
    )
    assert f"the same command resumes from {archive}.quarantine" in report.to_text()
    assert json.loads(report.to_json())["savedObjects"] == len(saved)


def test_the_next_run_tells_of_one_that_did_not_end(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        ended_at_the_second(patched, archive, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            recovered(archive)
    (folder,) = Path(f"{archive}.quarantine", "quarantine").iterdir()
    count = len([path for path in folder.rglob("*") if path.is_file()])
    report = recovered(archive)
    assert report.summary.rebuilt == _DAMAGED - count
    (unended,) = json.loads(report.to_json())["unendedRuns"]
    assert unended == {"run": folder.name, "quarantine": str(folder), "objects": count}
    assert f"note: run {folder.name} did not end" in report.to_text()
    assert f"copied to {folder} before replacing them in the archive: {count}" in report.to_text()
    third = recovered(archive)
    assert [one.run for one in third.unended_runs] == [folder.name]


def test_a_run_that_ended_is_not_told_of(archive: Path) -> None:
    assert recovered(archive).summary.rebuilt == _DAMAGED
    report = recovered(archive)
    assert report.unended_runs == ()
    assert "did not end" not in report.to_text()
