"""A disk that is full says which file was not written, what is undone, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.engine.run import OutputError
from recovery.archive.stores.local_store import LocalStore
from tests.logs.archives import made_copies, write_archive
from tests.runs.full_output import fill_disk
from tests.runs.goings import run_through


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(tmp_path / "archive", "local-tiered", made_copies(segments=3))
    index = sorted((tmp_path / "archive").rglob("*.timeindex"))[1]
    index.write_bytes(index.read_bytes() + b"\0")
    return tmp_path / "archive"


@pytest.mark.parametrize(
    ("folder", "undone"),
    [
        ("/scans/", "not judged to the end"),
        ("/history/", "not judged to the end"),
        ("/summary.json", "all was judged, but not all verdicts"),
        ("/verdicts/", "all was judged, but not all verdicts"),
    ],
)
@pytest.mark.parametrize("is_in_place", [False, True])
def test_the_file_and_what_is_undone_are_named(
    folder: str, undone: str, is_in_place: bool, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = archive.parent / "output"
    options = CheckOptions(url=str(archive), output=str(output), rebuilds=True, is_in_place=is_in_place)
    with monkeypatch.context() as patched:
        fill_disk(patched, folder)
        with pytest.raises(OutputError) as told:
            run_through(options)
    text = str(told.value)
    assert text.startswith(f"{output}/")
    assert folder in text.partition(": ")[0]
    assert "No space left on device: " in text
    assert undone in text
    assert f"{output}/{'quarantine' if is_in_place else 'recovered'}/" in text
    assert "Remedy: make room, or give another --output, and start again" in text
    assert not list(output.rglob("*-tmp"))
    assert run_through(options)[0].exit_code in (0, 2)


def test_a_temporary_file_that_was_not_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, "/a")
    with pytest.raises(OSError, match=r"No space left on device: .*/a'"):
        LocalStore(str(tmp_path)).replace("a", b"1")
    assert list(tmp_path.iterdir()) == []
