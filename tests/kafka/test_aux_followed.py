"""The disk with a tiered partition is gone, `--aux` restores what its broker needs, and a second replica joins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from segfmt.producer_snapshot import read_producer_snapshot
from tests.brokers.broker import TopicReads
from tests.brokers.leader_changes import SMALL_SEGMENTS, TieredPair
from tests.brokers.restoring import RECOVERED, counts_of, restored
from tests.brokers.tiered_broker import TieredArchive, wait_until_still

pytestmark = [pytest.mark.java, pytest.mark.broker]

TOPIC, NAME = "lost", "lost-0"
NEW_RECORDS = 300
Reads = dict[str, TopicReads]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TieredPair]:
    (tmp_path / "root").mkdir()
    with ExitStack() as stack:
        yield TieredPair(tmp_path / "root", stack)


def reads_from(pair: TieredPair, node: int) -> Reads:
    return {level: reads[NAME] for level, reads in pair.brokers[node].read_all().items()}


def producers_of(pair: TieredPair) -> dict[int, tuple[int, int]]:
    """Epoch and last sequence of each producer that the leader knows, by id."""
    words = ("describe-producers", "--topic", TOPIC, "--partition", "0")
    rows = [line.split() for line in pair.ask("TransactionsCommand", *words).splitlines()]
    return {int(row[0]): (int(row[1]), int(row[3])) for row in rows if row and row[0].isdigit()}


def add_replica(pair: TieredPair, into: Path) -> None:
    plan = into / "reassignment.json"
    moved = {"topic": TOPIC, "partition": 0, "replicas": [2, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    pair.ask("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")


def test_a_follower_joins_what_was_restored(pair: TieredPair, tmp_path: Path) -> None:
    root = tmp_path / "root"
    archive = TieredArchive(root=root, log_dirs=(root / "d2", root / "d3"))
    pair.create(TOPIC, SMALL_SEGMENTS, replicas="2")
    pair.write(2, TOPIC, 900, transactional_id="writer")
    wait_until_still(archive)
    expected = json.loads(pair.view())["partitions"][NAME]
    next_offset = expected["latest_tiered_offset"] + 1
    assert 0 < next_offset < expected["latest_offset"]
    pair.brokers[2].stop()
    shutil.rmtree(root / "d2" / NAME)

    report = restored(pair.brokers[2], archive.path, "--aux", "--topic", TOPIC, metadata=[root / "d2"])
    (one,) = report["partitions"]
    assert (one["status"], one["mode"], one["logEndOffset"]) == ("restored", "aux", next_offset)
    snapshot = read_producer_snapshot((root / "d2" / NAME / f"{next_offset:020d}.snapshot").read_bytes())
    pair.start(2)
    pair.wait_for_leader(2, TOPIC, replicas=1)
    assert not RECOVERED.search(pair.brokers[2].log)
    known = {
        int(entry["producer_id"]): (int(entry["epoch"]), int(entry["last_sequence"])) for entry in snapshot
    }
    assert len(known) == 1
    assert producers_of(pair) == known
    found = reads_from(pair, 2)["read_uncommitted"]
    tiered = expected["read_uncommitted"]["tiered"]
    assert counts_of(found) == (tiered["records"], tiered["bytes"], tiered["crc32c"])

    pair.write(2, TOPIC, NEW_RECORDS, transactional_id="writer")
    first = reads_from(pair, 2)
    assert first["read_uncommitted"].records == found.records + NEW_RECORDS
    add_replica(pair, tmp_path)
    pair.wait_for_leader(2, TOPIC, replicas=2)
    pair.brokers[2].stop()
    pair.wait_for_leader(3, TOPIC, replicas=1)
    assert reads_from(pair, 3) == first
    assert "Skipping batch" not in pair.brokers[3].log
