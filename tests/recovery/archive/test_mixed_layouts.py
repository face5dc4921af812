"""Archives with several layouts: `auto` goes through all, and a named layout names what it has not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.report import ArchiveReport
from recovery.archive.engine.process import ProcessEngine
from recovery.archive.engine.run import ArchiveRun
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.errors import UsageError
from tests.logs.archives import made_copies, write_archive


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Plain copies, tiered storage of two kinds, one of them below a folder with the name of a partition."""
    root = tmp_path / "archive"
    write_archive(root, "plain", made_copies())
    write_archive(root / "tiered", "local-tiered", made_copies(topic="tiered"))
    aiven = [*made_copies(topic="events-2024"), *made_copies(topic="events-2024", partition=1)]
    write_archive(root / "backup-2024", "aiven", aiven)
    return root


def verified(root: Path, **options: object) -> ArchiveReport:
    chosen = CheckOptions(url=str(root), **options)  # type: ignore[arg-type]  # as the tests give them
    return ArchiveRun(chosen, lambda plan, _size, stop: (ProcessEngine(plan, stop), ())).run()


def test_auto_goes_through_all(mixed: Path) -> None:
    report = verified(mixed)
    assert report.layout == "plain, aiven, local-tiered"
    assert (report.exit_code, report.summary.partitions, report.summary.segments) == (0, 4, 24)
    assert report.notes == ()
    listed = inventory(ArchiveOptions(url=str(mixed)))
    assert sorted(topic for topic, _ in listed.topics) == ["events-2024", "made", "tiered"]
    assert (listed.exit_code, listed.notes) == (0, ())


def test_damage_is_found_in_each_and_rebuilt_in_its_layout(mixed: Path, tmp_path: Path) -> None:
    indexes = [next((mixed / name).rglob("*.index")) for name in ("made-0", "tiered")]
    for path in indexes:
        path.unlink()
    assert verified(mixed).exit_code == 2
    output = tmp_path / "output"
    report = verified(mixed, rebuilds=True, output=str(output))
    assert (report.exit_code, report.summary.rebuilt) == (0, 2)
    rebuilt = [output / "recovered" / report.run / path.relative_to(mixed) for path in indexes]
    assert all(path.exists() for path in rebuilt)


@pytest.mark.parametrize(
    ("layout", "others"), [("plain", ["local-tiered", "aiven"]), ("local-tiered", ["plain", "aiven"])]
)
def test_a_named_layout_names_the_others(mixed: Path, layout: str, others: list[str]) -> None:
    report = verified(mixed, layout=layout)
    assert report.layout == layout
    texts = [note.text for note in report.notes]
    assert sorted(texts) == sorted(listed_notes(mixed, layout))
    for other in others:
        (text,) = [text for text in texts if f"in the layout {other} " in text]
        assert "were not looked at, the first is " in text


def listed_notes(root: Path, layout: str) -> list[str]:
    report = inventory(ArchiveOptions(url=str(root), layout=layout))
    notes = json.loads(report.to_json())["notes"]
    assert all(f"note: {one['text']}" in report.to_text() for one in notes)
    return [one["text"] for one in notes]


def test_topics_are_chosen_in_all_of_them(mixed: Path) -> None:
    report = verified(mixed, topics=("tiered",))
    assert (report.exit_code, report.summary.partitions) == (0, 1)
    with pytest.raises(UsageError, match="nosuch"):
        verified(mixed, topics=("nosuch",))
    with pytest.raises(UsageError, match="nosuch"):
        inventory(ArchiveOptions(url=str(mixed), topics=("nosuch",)))


def test_in_place_is_refused_before_anything_is_written(mixed: Path) -> None:
    """One of the layouts has objects that cannot be replaced."""
    next((mixed / "made-0").glob("*.index")).unlink()
    before = sorted(mixed.rglob("*"))
    with pytest.raises(UsageError, match="--in-place"):
        verified(mixed, rebuilds=True, is_in_place=True)
    assert sorted(mixed.rglob("*")) == before
