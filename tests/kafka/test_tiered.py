"""The stored tiered archive and a fresh one: their files are what the broker says, and they show what they are for."""

from __future__ import annotations

import itertools
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.broker import dump_segments
from tests.brokers.tiered_broker import TieredArchive

STARTED, FINISHED = "COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"
DELETING, DELETED = "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"
MANDATORY = {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"}
SEGMENT_FILE = re.compile(r"(\d{20})-(.{22})\.(\w+)")
EPOCHS = [0, 2, 4]


@pytest.fixture(params=["stored", pytest.param("fresh", marks=pytest.mark.broker)])
def archive(request: pytest.FixtureRequest) -> TieredArchive:
    return request.getfixturevalue(f"{request.param}_archive")


def segments_of(archive: TieredArchive, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    """The segments of one partition that the metadata topic tells of, by start offset."""
    of = [
        segment | {"uuid": uuid}
        for uuid, segment in archive.expected["segments"].items()
        if (segment["topic"], segment["partition"]) == (topic, partition)
    ]
    return sorted(of, key=lambda segment: segment["start_offset"])


def files_of(archive: TieredArchive) -> dict[str, dict[str, Path]]:
    """uuid -> suffix -> file, of everything in the archive."""
    files: dict[str, dict[str, Path]] = {}
    for path in archive.path.glob("*/*"):
        named = SEGMENT_FILE.fullmatch(path.name)
        assert named is not None, path
        files.setdefault(named[2], {})[named[3]] = path
    return files


def log_of(archive: TieredArchive, segment: dict[str, Any]) -> bytes:
    return files_of(archive)[segment["uuid"]]["log"].read_bytes()


def batches(log: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Codec, whether transactional, whether control, producer id of each batch."""
    position = 0
    while position < len(log):
        attributes = log[position + 22]
        yield (
            attributes & 7,
            attributes >> 4 & 1,
            attributes >> 5 & 1,
            struct.unpack_from(">q", log, position + 43)[0],
        )
        position += 12 + struct.unpack_from(">i", log, position + 8)[0]
    assert position == len(log)


def test_each_segment_has_the_files_of_its_state(archive: TieredArchive) -> None:
    files = files_of(archive)
    for uuid, segment in archive.expected["segments"].items():
        there, state = set(files.pop(uuid, {})), segment["states"][-1]
        whole = MANDATORY if segment["is_txn_index_empty"] else MANDATORY | {"txnindex"}
        if state in (FINISHED, DELETING) or segment["topic"] == "lost-delete":
            assert there == whole, (uuid, segment)
        else:
            assert there < whole if state == STARTED else there == set(), (uuid, segment)
    assert files == {}


def test_folders_and_files_are_named_as_the_metadata_says(archive: TieredArchive) -> None:
    for uuid, files in files_of(archive).items():
        segment = archive.expected["segments"][uuid]
        for path in files.values():
            assert path.parent.name == "{topic}-{partition}-{topic_id}".format(**segment)
            assert int(path.name[:20]) == segment["start_offset"]


def test_logs_are_as_large_as_the_metadata_says(archive: TieredArchive) -> None:
    for uuid, files in files_of(archive).items():
        assert files["log"].stat().st_size == archive.expected["segments"][uuid]["size_bytes"]


def test_finished_segments_are_a_chain_up_to_the_latest_tiered_offset(archive: TieredArchive) -> None:
    for name, partition in archive.expected["partitions"].items():
        topic, _, number = name.rpartition("-")
        there = (FINISHED, DELETING)  # deletes that failed have left holes among the finished ones
        chain = [s for s in segments_of(archive, topic, int(number)) if s["states"][-1] in there]
        assert all(one["end_offset"] + 1 == two["start_offset"] for one, two in itertools.pairwise(chain))
        assert (partition["latest_tiered_offset"] == -1) == (chain == [])
        if chain:
            assert chain[-1]["end_offset"] == partition["latest_tiered_offset"]
            assert chain[0]["start_offset"] <= partition["earliest_offset"] <= chain[-1]["end_offset"] + 1


def test_records_of_segments_add_up(archive: TieredArchive) -> None:
    for level in ("read_uncommitted", "read_committed"):
        counted: Counter[str] = Counter()
        for segment in archive.expected["segments"].values():
            if segment["states"][-1] == FINISHED:
                counted["{topic}-{partition}".format(**segment)] += segment[level]
        for name, partition in archive.expected["partitions"].items():
            counts = partition[level]
            assert counted[name] == counts["tiered"]["records"] <= counts["all"]["records"]
            assert counted[name] == sum(counts["tiered_by_hour"].values())


@pytest.mark.broker
def test_the_log_dirs_have_the_metadata_that_the_consumer_read(archive: TieredArchive) -> None:
    logs = [path for log_dir in archive.log_dirs for path in log_dir.glob("__remote_log_metadata-*/*.log")]
    dumped = dump_segments(sorted(logs), "--remote-log-metadata-decoder").output
    states: dict[str, str] = {}
    for line in dumped.splitlines():
        found = re.search(r"remoteLogSegmentId=RemoteLogSegmentId\{.*?, id=(.{22})\}.*state=(\w+)", line)
        if found is not None:
            states[found[1]] = found[2]
    assert states == {uuid: segment["states"][-1] for uuid, segment in archive.expected["segments"].items()}


def test_every_fault_has_left_its_trace(archive: TieredArchive) -> None:
    last_states = {
        topic: {s["states"][-1] for s in segments_of(archive, topic)}
        for topic in ("stuck-copy", "failing-delete", "lost-delete", "gone")
    }
    assert last_states == {
        "stuck-copy": {STARTED, FINISHED},
        "failing-delete": {FINISHED, DELETING},
        "lost-delete": {FINISHED, DELETED},
        "gone": {DELETED},
    }
    (interrupted,) = (s for s in segments_of(archive, "stuck-copy") if s["states"] == [STARTED])
    starts = [s["start_offset"] for s in segments_of(archive, "stuck-copy")]
    assert starts.count(interrupted["start_offset"]) == 2
    folders = [path.name for path in archive.path.iterdir() if not list(path.iterdir())]
    assert sorted(name[:7] for name in folders) == ["gone-0-", "gone-1-"]


def test_log_starts_have_moved(archive: TieredArchive) -> None:
    for topic in ("expired-by-size", "expired-by-time", "deleted-records"):
        states = Counter(segment["states"][-1] for segment in segments_of(archive, topic))
        assert states[FINISHED] > 0 < states[DELETED]
        assert set(states) == {FINISHED, DELETED}
    first = next(s for s in segments_of(archive, "deleted-records") if s["states"][-1] == FINISHED)
    start = archive.expected["partitions"]["deleted-records-0"]["earliest_offset"]
    assert first["start_offset"] < start < first["end_offset"]


def test_transactions_are_open_across_segments_and_end_both_ways(archive: TieredArchive) -> None:
    for partition in (0, 1):
        counts = archive.expected["partitions"][f"transactions-{partition}"]
        read = {level: counts[level]["tiered"]["records"] for level in ("read_uncommitted", "read_committed")}
        assert 0 < read["read_committed"] < read["read_uncommitted"]
        seams = 0
        open_producers: set[int] = set()
        for segment in segments_of(archive, "transactions", partition):
            seams += bool(open_producers)
            for _, is_transactional, is_control, producer_id in batches(log_of(archive, segment)):
                if is_control:
                    open_producers.discard(producer_id)
                elif is_transactional:
                    open_producers.add(producer_id)
        assert seams >= 8


def test_epochs_codecs_and_what_is_not_there(archive: TieredArchive) -> None:
    for topic in ("plain", "transactions", "codecs", "stuck-copy"):
        epochs = {int(epoch) for s in segments_of(archive, topic) for epoch in s["leader_epochs"]}
        assert sorted(epochs) == EPOCHS
    finished = segments_of(archive, "codecs")
    assert {codec for s in finished for codec, *_ in batches(log_of(archive, s))} == {0, 1, 2, 3, 4}
    assert segments_of(archive, "empty") == segments_of(archive, "untiered") == []
    assert any(s["is_txn_index_empty"] for s in segments_of(archive, "plain"))
    assert any(not s["is_txn_index_empty"] for s in segments_of(archive, "transactions"))
