"""Right rows, or a failed query: what no checksum shows, in three modes of `corrupt`, on a real broker's archive."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from native.batch_headers import HEADER_ROW_DTYPE
from native.crc32c import crc32c_of_bytes
from recovery.archive.records.batch_faults import BatchFaults
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_request import Selection
from recovery.archive.records.record_schema import Include
from recovery.errors import DamagedSegmentError, UsageError
from segfmt import byte_layout
from segfmt.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epoch_checkpoint,
    read_leader_epoch_checkpoint,
)
from tests.brokers.tiered_broker import TieredArchive
from tests.damage.archive_campaign import ArchiveBench
from tests.damage.rows import RowBench, filter_failures
from tests.logs.archives import EPOCHS, LOG, batch_positions, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.logs.samples import SAMPLE_NAMES, unpack
from tests.runs.readings import read

CASES, FILTERS = 24, 30
NAMES = ("offset", "value", "leader_epoch", "fault")


@pytest.fixture
def partition(stored_archive: TieredArchive, tmp_path: Path) -> Path:
    """The folder of one partition, of a real broker's tiered storage."""
    (folder,) = stored_archive.path.glob("plain-0-*")
    return Path(shutil.copytree(folder, tmp_path / "archive" / folder.name))


def batches_of(log: Path) -> list[bytes]:
    data = log.read_bytes()
    positions = batch_positions(data)
    return [data[start:end] for start, end in pairwise(positions)]


def repeat_a_batch(log: Path) -> None:
    first, second, *others = batches_of(log)
    log.write_bytes(b"".join([first, second, first, *others]))


def drop_a_batch(log: Path) -> None:
    first, _, *others = batches_of(log)
    log.write_bytes(b"".join([first, *others]))


def cut_between_batches(log: Path) -> None:
    log.write_bytes(b"".join(batches_of(log)[:-1]))


def place_a_batch(by: int) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        first, second, *others = batches_of(log)
        (base,) = struct.unpack_from(">q", second)
        log.write_bytes(b"".join([first, struct.pack(">q", base + by) + second[8:], *others]))

    return damage


def change_an_epoch(log: Path) -> None:
    first, second, *others = batches_of(log)
    log.write_bytes(b"".join([first, second[:12] + struct.pack(">i", 9) + second[16:], *others]))


def take_the_first_epoch(log: Path) -> None:
    first, *others = batches_of(log)
    log.write_bytes(b"".join([first[:12] + struct.pack(">i", -1) + first[16:], *others]))


def mark_as_control(log: Path) -> None:
    """A data batch without a producer, with a right checksum."""
    first, second, *others = batches_of(log)
    at = byte_layout.ATTRIBUTES_POSITION
    changed = bytes([second[at], second[at + 1] | byte_layout.CONTROL_MASK]) + second[at + 2 :]
    crc = struct.pack(">I", crc32c_of_bytes(changed))
    log.write_bytes(b"".join([first, second[: byte_layout.BATCH_CRC_POSITION], crc, changed, *others]))


def remove_the_segment(log: Path) -> None:
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a batch twice": (repeat_a_batch, "offset-order"),
    "a batch less": (drop_a_batch, "offset-gap"),
    "cut between batches": (cut_between_batches, "offset-gap"),
    "a batch that goes back": (place_a_batch(-1), "offset-order"),
    "a batch below the segment": (place_a_batch(-100_000), "offset-range"),
    "a batch that jumps ahead": (place_a_batch(10_000), "offset-order"),
    "a batch of another epoch": (change_an_epoch, "leader-epoch"),
    "a first batch without an epoch": (take_the_first_epoch, "leader-epoch"),
    "a control batch without a producer": (mark_as_control, "producer-fields"),
    "no log": (Path.unlink, "missing-object"),
    "an empty log": (lambda log: log.write_bytes(b""), "empty-log"),
    "no segment": (remove_the_segment, "offset-gap"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_that_no_checksum_shows(name: str, partition: Path) -> None:
    damage, rule = DAMAGES[name]
    sound = {row["offset"]: row for row in read(partition.parent, *NAMES)}
    log = sorted(partition.glob("*.log"))[2]
    damage(log)
    with pytest.raises(
        DamagedSegmentError, match=rf"^{re.escape(str(partition))}/\d.*: byte \d+: .*Remedy: "
    ) as error:
        read(partition.parent, *NAMES)
    assert f": {rule}: " in str(error.value)
    left_out: list[LeftOut] = []
    kept = read(partition.parent, *NAMES, options=ReadOptions(corrupt=Corrupt.SKIP), left_out=left_out)
    assert all(row == sound[row["offset"]] for row in kept)
    assert len({row["offset"] for row in kept}) == len(kept)
    assert rule in {one.rule for one in left_out}
    rows = read(partition.parent, *NAMES, options=ReadOptions(corrupt=Corrupt.INCLUDE))
    assert [row for row in rows if row["fault"] is None] == kept
    assert {row["fault"].partition(":")[0] for row in rows if row["fault"]} == {one.rule for one in left_out}
    batches = read(partition.parent, options=ReadOptions(include=Include.BATCHES))
    assert {row["fault"].partition(":")[0] for row in batches if row["fault"]} & {rule, "offset-gap"}


class TestLeaderEpochs:
    """Compared in each segment that is read, so that it does not matter which task reads it."""

    TASKS = Selection(), Selection(task_segments=1)

    @pytest.mark.parametrize("said", ["metadata", "checkpoint"])
    def test_an_epoch_begins_within_a_batch(self, said: str, tmp_path: Path) -> None:
        copies = made_copies(segments=5)
        archive = write_archive(tmp_path / "archive", "local-tiered", copies)
        remote = copies[2].remote
        later = LeaderEpochEntry(remote.leader_epochs[-1].epoch + 1, remote.end_offset)
        (log_dir := tmp_path / "log-dir").mkdir()
        rule = "metadata"
        metadata: tuple[Path, ...] = (log_dir,)
        if said == "metadata":
            archive.metadata[2] = replace(remote, leader_epochs=(*remote.leader_epochs, later))
        else:
            rule, metadata = "epoch-content", ()
            lines = read_leader_epoch_checkpoint(copies[2].files[EPOCHS])
            archive.rewrite(copies[2], EPOCHS, encode_leader_epoch_checkpoint([*lines, later]))
        write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
        for tasks in self.TASKS:
            with pytest.raises(DamagedSegmentError, match=rf": {rule}: .*{remote.end_offset}.*Remedy: "):
                read(archive.root, *NAMES, selection=tasks, metadata=metadata)
            include = ReadOptions(corrupt=Corrupt.INCLUDE)
            rows = read(archive.root, *NAMES, options=include, selection=tasks, metadata=metadata)
            faulty = [row["offset"] for row in rows if row["fault"]]
            assert faulty[-1] == remote.end_offset
            assert len(faulty) == faulty[-1] - faulty[0] + 1 <= 8  # one batch

    def test_a_checkpoint_without_its_last_line(self, tmp_path: Path) -> None:
        """In a segment within one epoch, which has no other than the one before it."""
        copies = made_copies(segments=5)
        archive = write_archive(tmp_path / "archive", "local-tiered", copies)
        lines = read_leader_epoch_checkpoint(copies[3].files[EPOCHS])
        assert lines[-1].start_offset < copies[3].remote.start_offset
        archive.rewrite(copies[3], EPOCHS, encode_leader_epoch_checkpoint(lines[:-1]))
        include, found = ReadOptions(corrupt=Corrupt.INCLUDE), []
        for tasks in self.TASKS:
            with pytest.raises(DamagedSegmentError, match=r": epoch-content: .*Remedy: "):
                read(archive.root, *NAMES, selection=tasks)
            found.append(read(archive.root, *NAMES, options=include, selection=tasks))
        assert found[0] == found[1]

    def test_in_each_window_of_a_segment(self) -> None:
        """Batches that go on in an epoch after the offset at which another one begins."""
        rows = np.zeros(4, HEADER_ROW_DTYPE)
        rows["base_offset"] = rows["last_offset"] = np.arange(4)
        rows["magic"], rows["record_count"] = 2, 1
        epochs = [LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 3)]
        faults = BatchFaults(log="00.log", base_offset=0, told_epochs=epochs)
        is_valid = np.ones(2, np.bool_)
        assert [faults.judge(part, is_valid)[0].tolist() for part in (rows[:2], rows[2:])] == [[0, 0], [0, 2]]


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        ("plain", (2, 2)),
        ("plain", (3, 2)),
        ("local-tiered", (2, 2)),
        ("local-tiered", (0, 0)),  # both begin at the same offset; the metadata topic knows their sizes
    ],
)
def test_exchanged_logs(layout: str, places: tuple[int, int], tmp_path: Path) -> None:
    """No row of another partition comes without a fault, though each batch is sound by itself."""
    copies = [made_copies(segments=5, batches=14, partition=partition) for partition in (0, 1)]
    archive = write_archive(tmp_path / "archive", layout, [*copies[0], *copies[1]])
    (log_dir := tmp_path / "log-dir").mkdir()
    write_metadata(log_dir, metadata_records(archive.metadata), segment_batches=1000)
    metadata = (log_dir,) if layout == "local-tiered" else ()
    names = ("partition", *NAMES)
    sound = {(row["partition"], row["offset"]): row for row in read(archive.root, *names, metadata=metadata)}
    one, other = (own[place] for own, place in zip(copies, places, strict=True))
    archive.place(one, LOG).write_bytes(other.files[LOG])
    archive.place(other, LOG).write_bytes(one.files[LOG])
    for corrupt in (Corrupt.SKIP, Corrupt.INCLUDE):
        rows = read(archive.root, *names, options=ReadOptions(corrupt=corrupt), metadata=metadata)
        right = [row for row in rows if row["fault"] is None]
        assert all(sound[row["partition"], row["offset"]] == row for row in right)
        assert len(right) > len(sound) / 2


def test_missing_offsets_alone_can_be_passed_over(partition: Path) -> None:
    """As with Spark's Kafka source: failOnDataLoss=false is about offsets that are gone, not about wrong ones."""
    log = sorted(partition.glob("*.log"))[2]
    drop_a_batch(log)
    left_out: list[LeftOut] = []
    read(partition.parent, "offset", options=ReadOptions(lost=Corrupt.SKIP), left_out=left_out)
    assert [one.rule for one in left_out if one.is_damage] == ["offset-gap"]
    repeat_a_batch(log)
    with pytest.raises(DamagedSegmentError, match="offset-order"):
        read(partition.parent, "offset", options=ReadOptions(lost=Corrupt.SKIP))
    with pytest.raises(DamagedSegmentError, match="offset-gap"):
        read(partition.parent, "offset", options=ReadOptions(corrupt=Corrupt.SKIP, lost=Corrupt.FAIL))


def test_a_damaged_segment_that_was_not_asked_for_fails_nothing(partition: Path) -> None:
    drop_a_batch(sorted(partition.glob("*.log"))[2])
    first = int(sorted(partition.glob("*.log"))[4].name[:20])
    assert read(partition.parent, "offset", options=ReadOptions(lowest_offset=first))


def test_the_last_log_cut_between_batches_is_told_by_its_indexes(partition: Path) -> None:
    cut_between_batches(sorted(partition.glob("*.log"))[-1])
    with pytest.raises(DamagedSegmentError, match=r": cut-end: other files know of later ones"):
        read(partition.parent, "offset")


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_nothing_is_wrong_with_the_logs_of_real_brokers(name: str, tmp_path: Path) -> None:
    """Compacted ones have gaps; some begin late, were killed, or have epochs that a recovery has cut."""
    read_count = 0
    for log_dir in unpack(name, tmp_path).log_dirs:
        left_out: list[LeftOut] = []
        rows = read(log_dir, "offset", "aborted", "fault", left_out=left_out)
        batches = read(log_dir, options=ReadOptions(include=Include.BATCHES))
        assert not any(row["fault"] for row in [*rows, *batches])
        assert not any(one.is_damage for one in left_out)
        read_count += len(rows)
    assert read_count > 100


def test_uploads_and_deletions_that_are_not_finished_are_counted(stored_archive: TieredArchive) -> None:
    """A broker reads none of these segments; the rows are those that a consumer read (`test_archive_reader`)."""
    notes: list[str] = []
    read(stored_archive.path, "offset", metadata=stored_archive.log_dirs, notes=notes)
    said = {note.partition("-0-")[0]: note.partition(": ")[2] for note in notes}
    assert said.keys() == {"failing-delete", "lost-delete", "stuck-copy"}
    assert said["stuck-copy"] == "no broker reads 1 COPY_SEGMENT_STARTED: these segments are left out"
    assert "3 DELETE_SEGMENT_STARTED, 10 below the log start or outside the lineage" in said["failing-delete"]


class TestTransactions:
    COMMITTED = ReadOptions(is_committed=True)

    @pytest.fixture
    def archive(self, stored_archive: TieredArchive, tmp_path: Path) -> Path:
        return Path(shutil.copytree(stored_archive.path, tmp_path / "archive"))

    @pytest.mark.parametrize("has_metadata", [True, False])
    def test_without_transaction_indexes_the_markers_in_the_logs_tell(
        self, archive: Path, stored_archive: TieredArchive, has_metadata: bool
    ) -> None:
        metadata = stored_archive.log_dirs if has_metadata else ()
        expected = read(archive, "topic", "partition", "offset", options=self.COMMITTED, metadata=metadata)
        gone = [path for path in archive.rglob("*.txnindex") if path.unlink() is None]
        assert len(gone) > 3
        found = read(archive, "topic", "partition", "offset", options=self.COMMITTED, metadata=metadata)
        assert found == expected
        uncommitted = read(archive, "topic", "partition", "offset", metadata=metadata)
        assert len(uncommitted) > len(found)

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            (lambda entries: entries[1:], "transaction-index-missing"),
            (lambda entries: with_marker(entries), "transaction-index-entry"),
            (lambda entries: begun_later(entries), "transaction-index-entry"),
        ],
    )
    def test_an_index_that_contradicts_the_markers_fails(
        self,
        change: Callable[[np.ndarray], np.ndarray],  # type: ignore[type-arg]  # of entries
        rule: str,
        archive: Path,
        stored_archive: TieredArchive,
    ) -> None:
        path = max(archive.rglob("*.txnindex"), key=lambda index: index.stat().st_size)
        entries = np.frombuffer(path.read_bytes(), byte_layout.ABORTED_TXN_DTYPE).copy()
        path.write_bytes(change(entries).astype(entries.dtype).tobytes())
        for metadata in ((), stored_archive.log_dirs):
            for corrupt in Corrupt:
                options = ReadOptions(is_committed=True, corrupt=corrupt)
                with pytest.raises(DamagedSegmentError, match=f"{path.stem}.*{rule}.*Remedy: ") as error:
                    read(archive, "offset", options=options, metadata=metadata)
                assert "isolation=read_uncommitted" in str(error.value)


def begun_later(entries: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]  # of entries
    """The longest transaction begins an offset later: its first record would be read as committed."""
    longest = int(np.argmax(entries["last_offset"] - entries["first_offset"]))
    entries["first_offset"][longest] += 1
    return entries


def with_marker(entries: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]  # of entries
    """With an abort in the middle of the last transaction, of a producer that is not there."""
    made = entries[-1:].copy()
    made["producer_id"] = 99
    made["last_offset"] -= 2
    return np.concatenate([entries[:-1], made, entries[-1:]])


class TestQuarantine:
    @pytest.fixture
    def quarantine(self, partition: Path, tmp_path: Path) -> Path:
        """As `recover` keeps what it cuts: the account of the run, and the partition's folder beside it."""
        run = tmp_path / "logs" / "d1.quarantine" / "2026-11-23T10-00-00Z"
        folder = run / "plain-0"
        folder.mkdir(parents=True)
        line = {"version": 1, "log_dir": "/d1", "kind": "tail", "partition": "plain-0"}
        (run / "manifest.jsonl").write_text(json.dumps(line) + "\n")
        log = sorted(partition.glob("*.log"))[0]
        shutil.copy(log, folder / f"{log.name[:20]}.log")
        (folder / f"{log.name[:20]}.log.from-100").write_bytes(log.read_bytes()[100:])
        return run

    @pytest.mark.parametrize("path", ["..", ".", "plain-0"])
    def test_is_refused_in_a_sentence(self, quarantine: Path, path: str) -> None:
        with pytest.raises(
            UsageError, match=r"plain-0/?: a quarantine folder of this tool .* Read the log dir"
        ):
            read((quarantine / path).resolve(), "offset")

    @pytest.mark.parametrize("content", ["", "garbage\n", '{"backup": "nightly"}\n'])
    def test_another_file_of_that_name_hides_nothing(self, content: str, quarantine: Path) -> None:
        (quarantine / "manifest.jsonl").write_text(content)
        assert read(quarantine, "offset")

    def test_beside_a_log_dir_it_is_passed_over(self, quarantine: Path) -> None:
        log_dir = quarantine.parent.parent / "d1"
        shutil.copytree(quarantine / "plain-0", log_dir / "plain-0")
        rows = read(log_dir.parent, "offset")
        assert max(Counter(row["offset"] for row in rows).values()) == 1


@pytest.mark.long
def test_rows_of_damaged_archives_are_right_or_say_that_they_are_not(
    stored_archive: TieredArchive, tmp_path: Path
) -> None:
    """Some cases of `python -m tests.damage.rows`."""
    bench = RowBench(ArchiveBench(tmp_path, stored_archive), tmp_path / "case")
    assert [failure for seed in range(CASES) if (failure := bench.run(seed))] == []
    assert bench.counts["fail: failed"] >= CASES / 8


@pytest.mark.long
@pytest.mark.parametrize("has_metadata", [True, False])
def test_random_filters_leave_out_the_others_alone(stored_archive: TieredArchive, has_metadata: bool) -> None:
    metadata = stored_archive.log_dirs if has_metadata else ()
    assert list(filter_failures(stored_archive.path, range(FILTERS), metadata=metadata)) == []
