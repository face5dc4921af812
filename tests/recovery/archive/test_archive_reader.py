"""The records of whole archives: those that a real consumer read of the broker, and those of a consumer in Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from recovery.archive.layouts.tiered_layout import LocalTieredLayout
from recovery.archive.records import planned_partition
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.read_plan import plan_reads
from recovery.archive.records.read_request import ReadRequest, Selection
from recovery.archive.records.record_schema import Include
from recovery.archive.records.segment_choice import choose_segments
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable
from recovery.archive.stores.stores import open_store
from recovery.errors import DamagedSegmentError
from segfmt.control_record import read_end_transaction_marker
from segfmt.errors import FormatError
from segfmt.record_batch import read_record_batch_header, walk_batches
from segfmt.remote_log_metadata import RemoteSegment
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.samples import unpack, unpack_aiven
from tests.runs.readings import SMALL_TASK, checksum, of_partition, read
from tests.servers.s3_server import S3Server, in_environment


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("crashed", tmp_path_factory.mktemp("crashed")).root


class TestTieredArchive:
    @pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
    def test_gives_what_a_real_consumer_read(self, stored_archive: TieredArchive, isolation: str) -> None:
        """To the byte, although tasks end within transactions; copies and deletions that failed lie there, too."""
        names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        options = ReadOptions(is_committed=isolation == "read_committed")
        rows = read(stored_archive.path, *names, options=options, metadata=stored_archive.log_dirs)
        hours = 0
        for name, said in stored_archive.expected["partitions"].items():
            own, expected = of_partition(rows, name), said[isolation]
            assert len(own) == expected["tiered"]["records"], name
            assert checksum(own) == expected["tiered"]["crc32c"], name
            by_hour: dict[str, int] = {}
            for row in own:
                hour = str(row["timestamp"] // 3_600_000)
                by_hour[hour] = by_hour.get(hour, 0) + 1
            assert by_hour == expected["tiered_by_hour"], name
            hours += len(by_hour)
        assert hours > 10

    def test_without_the_log_dirs_ends_at_its_own_last_stable_offset(
        self, stored_archive: TieredArchive
    ) -> None:
        """What became of a transaction whose marker was not archived nobody can know there."""
        committed = ReadOptions(is_committed=True)
        known = read(
            stored_archive.path, "topic", "offset", options=committed, metadata=stored_archive.log_dirs
        )
        alone = read(stored_archive.path, "topic", "offset", options=committed)
        for topic in ("transactions", "plain", "codecs"):
            offsets = [row["offset"] for row in known if row["topic"] == topic]
            own = [row["offset"] for row in alone if row["topic"] == topic]
            assert (len(own) < len(offsets)) is (topic == "transactions")

    def test_small_segments_are_divided_by_their_number(self, stored_archive: TieredArchive) -> None:
        """In the order of one task, however small they are."""
        store, names = open_store(str(stored_archive.path)), ("topic", "partition", "offset")
        selection = Selection(task_bytes=1 << 40, task_segments=3)
        request = ReadRequest(
            url=store.url,
            layout="local-tiered",
            options=ReadOptions(),
            selection=selection,
            needs_aborted=False,
        )
        tasks = list(plan_reads(store, LocalTieredLayout(), request))
        counts = [sum(len(run.segments) for run in task) for task in tasks]
        assert set(counts[:-1]) == {3}
        assert len(counts) > 20
        at_once = read(stored_archive.path, *names, selection=Selection(task_bytes=1 << 40))
        assert read(stored_archive.path, *names, selection=selection) == at_once

    @pytest.mark.parametrize("most_following", [1, 64])
    def test_markers_are_found_however_far_behind(
        self, stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch, most_following: int
    ) -> None:
        """One segment a task: all transactions end in another one."""
        monkeypatch.setattr(planned_partition, "MOST_FOLLOWING", most_following)
        names = ("topic", "partition", "offset", "aborted")
        at_once = read(stored_archive.path, *names, selection=Selection(task_bytes=1 << 40))
        one_by_one = read(stored_archive.path, *names, selection=Selection(task_bytes=1))
        assert one_by_one == at_once
        assert sum(row["aborted"] for row in at_once) > 400

    def test_batches_are_all_that_lies_there(self, stored_archive: TieredArchive) -> None:
        rows = read(stored_archive.path, options=ReadOptions(include=Include.BATCHES))
        assert {row["crc_valid"] for row in rows} == {True}
        stored = sum(path.stat().st_size for path in stored_archive.path.glob("*/*.log"))
        assert sum(row["size_bytes"] for row in rows) == stored
        assert {row["codec"] for row in rows} == {"none", "gzip", "snappy", "lz4", "zstd"}


class TestCopies:
    def test_of_one_start_offset_the_whole_one_is_read(self) -> None:
        """Of whole ones the largest; each segment up to where the next one begins."""
        layout = LocalTieredLayout()
        segments = [
            copy_of(0, "cut", layout.required_parts - {PartKind.SNAPSHOT}, 900),
            copy_of(0, "small", layout.required_parts, 700),
            copy_of(0, "whole", layout.required_parts, 800),
            copy_of(50, "next", layout.required_parts, 10),
            copy_of(70, "last", layout.required_parts - {PartKind.OFFSET_INDEX}, 10),
        ]
        where = PartitionPrefix(prefix="t-0-x/", topic="t", partition=0)
        partition = ArchivedPartition(where=where, segments=SegmentTable.of("", segments))
        planned = choose_segments(partition, layout)
        assert [(one.segment.segment_id, one.end_offset, one.is_last) for one in planned] == [
            ("whole", 50, False),
            ("next", 70, False),
            ("last", None, True),
        ]
        lineage = {
            segment.segment_id: RemoteSegment(
                owner=None,
                segment_id=uuid4(),
                start_offset=segment.base_offset,
                end_offset=segment.base_offset,
                broker_id=1,
                max_timestamp_ms=segment.base_offset,
                event_timestamp_ms=0,
                leader_epochs=(),
                size_bytes=1,
            )
            for segment in segments
            if segment.segment_id in ("small", "next")
        }
        known = choose_segments(partition, layout, lineage)
        assert [one.told.max_timestamp_ms for one in known if one.told is not None] == [0, 50]
        assert [(one.segment.segment_id, one.end_offset, one.is_last) for one in known] == [
            ("small", 50, False),
            ("next", None, False),
        ]


def copy_of(base: int, segment_id: str, kinds: Iterable[PartKind], log_bytes: int) -> ArchivedSegment:
    parts = {
        kind: StoredObject(key=f"{base}-{segment_id}.{kind.value}", size_bytes=log_bytes) for kind in kinds
    }
    return ArchivedSegment(base_offset=base, segment_id=segment_id, parts=parts)


class TestWhatIsWanted:
    @pytest.mark.parametrize("uses_time_index", [True, False])
    def test_ranges_leave_out_the_others_alone(
        self, stored_archive: TieredArchive, uses_time_index: bool
    ) -> None:
        names = ("topic", "partition", "offset", "timestamp")
        everything = read(stored_archive.path, *names)
        times = sorted(row["timestamp"] for row in everything)
        early, late = times[len(times) // 3], times[len(times) // 2]
        options = ReadOptions(
            lowest_offset=40, highest_offset=300, lowest_timestamp_ms=early, highest_timestamp_ms=late
        )
        selection = Selection(
            task_bytes=SMALL_TASK,
            topics=frozenset({"plain", "codecs", "transactions"}),
            partitions=frozenset({0}),
            uses_time_index=uses_time_index,
        )
        expected = [
            row
            for row in everything
            if row["topic"] in selection.topics and row["partition"] == 0 and 40 <= row["offset"] <= 300
        ]
        found = read(
            stored_archive.path,
            *names,
            options=replace(options, lowest_timestamp_ms=None, highest_timestamp_ms=None),
            selection=selection,
        )
        assert found == expected
        assert read(stored_archive.path, *names, options=options, selection=selection) == [
            row for row in expected if early <= row["timestamp"] <= late
        ]

    def test_segments_are_passed_over_by_names_and_time_index(
        self, stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[str] = []
        from recovery.archive.stores.local_store import LocalStore

        true_open = LocalStore.open
        monkeypatch.setattr(LocalStore, "open", lambda self, key: opened.append(key) or true_open(self, key))
        everything = read(stored_archive.path, "topic", "offset", "timestamp")
        total = len(opened)
        opened.clear()
        read(stored_archive.path, "offset", options=ReadOptions(lowest_offset=2000))
        assert 0 < len(opened) < total / 3  # the ends of some before the last one are looked up
        opened.clear()
        latest = ReadOptions(lowest_timestamp_ms=max(row["timestamp"] for row in everything))
        read(stored_archive.path, "offset", options=latest, metadata=stored_archive.log_dirs)
        assert 0 < len(opened) < total / 3  # the ends of some before the last one are looked up
        opened.clear()
        read(stored_archive.path, "offset", options=latest)  # nothing confirms the time indexes
        assert len(opened) >= total / 2

    @pytest.mark.parametrize("has_metadata", [True, False])
    def test_no_row_is_lost_where_time_indexes_are_cut_between_entries(
        self, has_metadata: bool, stored_archive: TieredArchive, tmp_path: Path
    ) -> None:
        archive = Path(shutil.copytree(stored_archive.path, tmp_path / "archive"))
        names = ("topic", "partition", "offset", "timestamp")
        metadata = stored_archive.log_dirs if has_metadata else ()
        everything = read(archive, *names, metadata=metadata)
        cut = 0
        for path in archive.rglob("*.timeindex"):
            data = path.read_bytes()
            if len(data) > 12:
                path.write_bytes(data[:12])
                cut += 1
        assert cut > 10
        times = sorted(row["timestamp"] for row in everything)
        left_out: list[LeftOut] = []
        for lowest_ms in times[:: len(times) // 7]:
            options = ReadOptions(lowest_timestamp_ms=lowest_ms, corrupt=Corrupt.SKIP)
            found = read(archive, *names, options=options, metadata=metadata, left_out=left_out)
            assert found == [row for row in everything if row["timestamp"] >= lowest_ms]
        assert {(one.rule, one.name.endswith(".timeindex")) for one in left_out} == (
            {("index-sparse", True)} if has_metadata else set()
        )
        latest = ReadOptions(lowest_timestamp_ms=times[-1])
        if has_metadata:
            with pytest.raises(DamagedSegmentError, match=r"\.timeindex: .*index-sparse: .*timeIndex=false"):
                read(archive, *names, options=latest, metadata=metadata)


class TestPlaces:
    @pytest.mark.s3
    def test_a_bucket_gives_what_a_folder_gives(
        self, stored_archive: TieredArchive, s3_server: S3Server
    ) -> None:
        s3_server.upload(stored_archive.path, "backups/kafka")
        names = ("topic", "partition", "offset", "value", "aborted")
        selection = Selection(topics=frozenset({"plain", "transactions"}), task_bytes=200_000)
        expected = read(stored_archive.path, *names, selection=selection)
        with in_environment(s3_server.environment()):
            assert read(s3_server.url("backups/kafka"), *names, selection=selection) == expected

    @pytest.mark.parametrize("mode", ["plain", "zstd"])
    def test_the_objects_of_a_real_plugin(self, tmp_path: Path, mode: str) -> None:
        root = unpack_aiven(tmp_path) / mode
        rows = read(root, "offset", "value", options=ReadOptions(is_committed=True))
        assert [row["offset"] for row in rows] == list(range(2879))
        assert {type(row["value"]) for row in rows} == {bytes}


def consumed(log_dir: Path, name: str) -> list[int]:
    """Offsets that a consumer with read_committed gets of a partition: all of its log in one pass, in Python."""
    begins: dict[int, int] = {}
    held: list[tuple[int, int, list[int]]] = []
    plain: list[tuple[int, list[int]]] = []
    for path in sorted((log_dir / name).glob("*.log")):
        data = path.read_bytes()
        for batch in whole_batches(data):
            header = read_record_batch_header(data, batch.position)
            offsets = [row["offset"] for row in rows_of_batch(data, batch)]
            if header.is_control and header.is_transactional:
                marker = read_end_transaction_marker(data, batch.position)
                if marker is not None and header.producer_id in begins:
                    own = [one for one in held if one[0] == header.producer_id]
                    held = [one for one in held if one[0] != header.producer_id]
                    plain += [] if marker.is_abort else [(one[1], one[2]) for one in own]
                    del begins[header.producer_id]
            elif header.is_transactional:
                begins.setdefault(header.producer_id, header.base_offset)
                held.append((header.producer_id, header.base_offset, offsets))
            elif not header.is_control:
                plain.append((header.base_offset, offsets))
    stable = min(begins.values(), default=2**63)
    return sorted(offset for base, offsets in plain for offset in offsets if base < stable)


def whole_batches(data: bytes) -> Iterator[Any]:
    try:
        yield from walk_batches(data)
    except FormatError:
        return


def rows_of_batch(data: bytes, batch: Any) -> list[dict[str, Any]]:
    from tests.recovery.archive.test_record_columns import expected_records

    return list(expected_records(data[batch.position : batch.position + batch.size_bytes]))


class TestPlainCopies:
    @pytest.mark.parametrize("name", ["d1/transactions-2", "d2/transactions-0", "d2/transactions-1"])
    def test_committed_is_what_a_consumer_sees(self, crashed: Path, name: str) -> None:
        """Two transactions are open at the end of one of them, of which no snapshot tells: the broker was killed."""
        log_dir, _, folder = name.partition("/")
        found = read(crashed / log_dir / folder, "offset", options=ReadOptions(is_committed=True))
        expected = consumed(crashed / log_dir, folder)
        assert [row["offset"] for row in found] == expected
        everything = read(crashed / log_dir / folder, "offset")
        assert 100 < len(expected) < len(everything)

    def test_a_log_begins_where_the_checkpoint_says(self, crashed: Path) -> None:
        (name,) = [log_dir for log_dir in ("d1", "d2") if (crashed / log_dir / "deleted-records-0").is_dir()]
        selection = Selection(topics=frozenset({"deleted-records"}))
        assert min(row["offset"] for row in read(crashed / name, "offset", selection=selection)) == 137
        batches = read(crashed / name, options=ReadOptions(include=Include.BATCHES), selection=selection)
        assert min(row["base_offset"] for row in batches) < 137

    def test_damage_is_named_by_object_and_position(self, crashed: Path) -> None:
        folder = next(crashed.glob("d?/codec-zstd-0"))
        log = sorted(folder.glob("*.log"))[0]
        data = bytearray(log.read_bytes())
        data[100] ^= 1
        log.write_bytes(data)
        with pytest.raises(DamagedSegmentError, match=rf"^{log}: byte 0: checksum: batch at offset 0"):
            read(folder, "value")
        left_out: list[LeftOut] = []
        kept = read(folder, "offset", options=ReadOptions(corrupt=Corrupt.SKIP), left_out=left_out)
        assert kept
        assert [(one.name, one.position) for one in left_out if one.is_damage] == [(str(log), 0)]

    def test_a_malformed_transaction_index_is_not_read_as_an_empty_one(self, tmp_path: Path) -> None:
        folder = next(unpack("crashed", tmp_path).root.glob("d?/transactions-2"))
        index = sorted(folder.glob("*.txnindex"))[0]
        index.write_bytes(index.read_bytes()[:-1])
        with pytest.raises(DamagedSegmentError, match=r"transaction index.*isolation=read_uncommitted"):
            read(folder, "offset", "aborted")
        assert read(folder, "offset")
