"""Archives that hold several topics of one name, or one partition twice: never mixed, and always named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from recovery.archive.layouts.layouts import layout_of
from recovery.archive.records.broker_view import BrokerView
from recovery.archive.records.read_options import ReadOptions
from recovery.archive.records.read_plan import plan_reads
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.stores.stores import open_store
from recovery.errors import UsageError
from segfmt.partition_metadata import read_partition_metadata
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.samples import unpack
from tests.runs.readings import read

OLD_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PLAIN = frozenset({"plain"})


@pytest.fixture
def recreated(stored_archive: TieredArchive, tmp_path: Path) -> Path:
    """`plain-0` twice, the older one of fewer segments."""
    root = tmp_path / "archive"
    folder = next(stored_archive.path.glob("plain-0-*"))
    shutil.copytree(folder, root / folder.name)
    old = root / f"plain-0-{OLD_ID}"
    old.mkdir()
    first = min(path.name.partition(".")[0] for path in folder.glob("*.log"))
    for path in folder.glob(f"{first}.*"):
        shutil.copy(path, old)
    return root


def selected(*ids: str) -> Selection:
    return Selection(topics=PLAIN, topic_ids=frozenset(ids) if ids != ("live",) else None)


def ids_of(rows: list[dict[str, Any]]) -> set[str]:
    return {row["topic_id"] for row in rows}


def test_several_are_an_error_that_names_them(recreated: Path) -> None:
    with pytest.raises(
        UsageError, match=rf"plain: the archive holds 2 topics .*{OLD_ID} \(1 partitions, 1 seg"
    ):
        read(recreated, "topic_id", "offset", selection=selected("live"))


def test_topic_id_chooses(recreated: Path, stored_archive: TieredArchive) -> None:
    live_id = next(stored_archive.path.glob("plain-0-*")).name.removeprefix("plain-0-")
    old = read(recreated, "topic_id", "offset", selection=selected(OLD_ID))
    live = read(recreated, "topic_id", "offset", selection=selected(live_id))
    both = read(recreated, "topic_id", "offset", selection=selected())
    assert (ids_of(old), ids_of(live), ids_of(both)) == ({OLD_ID}, {live_id}, {OLD_ID, live_id})
    assert len(both) == len(old) + len(live) > len(live) > len(old) > 0
    with pytest.raises(UsageError, match=r"topicId=B{21}A: no topic that is read has this id; plain: "):
        read(recreated, "offset", selection=selected("B" * 21 + "A"))


def test_with_metadata_the_live_one_is_read(recreated: Path, stored_archive: TieredArchive) -> None:
    store, notes = open_store(str(recreated)), []
    request = ReadRequest(
        url=str(recreated),
        layout="local-tiered",
        options=ReadOptions(),
        selection=selected("live"),
        needs_aborted=False,
    )
    with BrokerView(open_store(str(log_dir)) for log_dir in stored_archive.log_dirs) as broker:
        tasks = list(plan_reads(store, layout_of(store), request, broker, on_note=notes.append))
    assert {run.topic_id for task in tasks for run in task}.isdisjoint({OLD_ID})
    assert len(tasks) == 1
    (note,) = notes
    assert note.startswith("plain: left out")
    assert OLD_ID in note


def test_a_named_topic_of_which_only_an_old_one_is_archived_is_an_error(
    recreated: Path, stored_archive: TieredArchive
) -> None:
    """Not an empty result; among all topics it is only left out."""
    for folder in recreated.glob("plain-*"):
        if OLD_ID not in folder.name:
            shutil.rmtree(folder)
    with pytest.raises(UsageError, match=rf"plain: the log dirs .* nothing of it: {OLD_ID}"):
        read(recreated, "offset", selection=selected("live"), metadata=stored_archive.log_dirs)
    assert read(recreated, "offset", metadata=stored_archive.log_dirs) == []


def test_plain_copies_have_the_id_of_their_partition_metadata(tmp_path: Path) -> None:
    folder = next(unpack("intact", tmp_path).root.glob("d?/plain-0"))
    expected = read_partition_metadata((folder / "partition.metadata").read_bytes()).topic_id
    (found,) = ids_of(read(folder, "topic_id"))
    assert found is not None
    (folder / "partition.metadata").unlink()
    assert ids_of(read(folder, "topic_id")) == {None}
    assert len(found) == 22
    assert expected is not None


def test_an_id_leaves_out_nothing_that_is_requested_by_name(
    recreated: Path, stored_archive: TieredArchive
) -> None:
    """Nor a partition that may be of it: the id of a plain copy is in a file, which may be lost."""
    other = next(stored_archive.path.glob("transactions-0-*"))
    shutil.copytree(other, recreated / other.name)
    both = Selection(topics=PLAIN | {"transactions"}, topic_ids=frozenset({OLD_ID}))
    with pytest.raises(UsageError, match=r"transactions: no id in topicId is one of this topic"):
        read(recreated, "offset", selection=both)
    assert read(recreated, "offset", selection=Selection(topic_ids=frozenset({OLD_ID})))


def test_partitions_without_an_id_are_named(tmp_path: Path) -> None:
    root = unpack("intact", tmp_path).root
    folders = {name: next(root.glob(f"d?/{name}")) for name in ("plain-0", "plain-1")}
    archive = tmp_path / "archive"
    for name, folder in folders.items():
        shutil.copytree(folder, archive / name)
    (topic_id,) = ids_of(read(archive / "plain-1", "topic_id"))
    (archive / "plain-0" / "partition.metadata").unlink()
    notes: list[str] = []
    rows = read(archive, "partition", selection=selected("live"), notes=notes)
    assert {row["partition"] for row in rows} == {0, 1}
    (note,) = notes
    assert "1 partitions, " in note
    assert "are without a topic id, and are read as of this topic" in note
    with pytest.raises(UsageError, match=r"plain: 1 partitions, .* so topicId cannot choose them"):
        read(archive, "partition", selection=selected(topic_id))
    one = Selection(topics=PLAIN, partitions=frozenset({1}), topic_ids=frozenset({topic_id}))
    assert {row["partition"] for row in read(archive, "partition", selection=one)} == {1}


def test_two_folders_of_one_partition_are_an_error(tmp_path: Path) -> None:
    root = unpack("intact", tmp_path).root
    folder = next(root.glob("d?/plain-0"))
    shutil.copytree(folder, root / "backup" / "plain-0")
    with pytest.raises(
        UsageError, match=r"plain-0: two folders of the archive hold it, backup/plain-0/ and d\d/"
    ):
        read(root, "offset")
