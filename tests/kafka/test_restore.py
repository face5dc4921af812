"""Brokers of new clusters on what `archive restore` leaves: they read what the first ones gave, and change nothing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from segfmt.producer_snapshot import read_producer_snapshot
from tests.brokers.broker import Broker
from tests.brokers.restoring import (
    LEVELS,
    QUIET,
    RECOVERED,
    UNLIMITED,
    abort_open_transactions,
    archived,
    counts_of,
    create,
    reads_of,
    restored,
    times_of,
)
from tests.brokers.tiered_broker import (
    TieredArchive,
    set_while_down,
    tiered_broker,
    unpack_tiered,
    wait_until_still,
)
from tests.logs.samples import tree_of
from tests.runs.command import run

pytestmark = [pytest.mark.java, pytest.mark.broker]

KEPT = (
    "codecs",
    "deleted-records",
    "expired-by-size",
    "failing-delete",
    "lost-delete",
    "plain",
    "stuck-copy",
)
TRANSACTIONAL = ("transactions",)

BY_SIZE = ("expired-by-size", "failing-delete", "lost-delete")

TIMES_MS = [1795325156990 + 300_000 * number for number in range(-1, 14)]
"""From before the records of the sample `tiered` to behind the last."""
OTHER_TIMES = frozenset({"deleted-records-0"})
"""Where the first broker answers otherwise: the latest timestamps of the first segment are below the log start, and a
broker looks no further in local logs, while it does in remote storage."""


def times_of_the_first(archive: TieredArchive, work_dir: Path) -> dict[str, list[list[int] | None]]:
    """What the broker of the archive finds by time, in remote storage and in copies of its log dirs."""
    root = work_dir / "copy"
    shutil.copytree(archive.root, root, symlinks=True)
    copy = TieredArchive(root=root, log_dirs=(root / "d1", root / "d2"))
    # Before it is started, or it deletes what it counts twice (KAFKA-20732).
    set_while_down(copy, work_dir / "controller", {topic: {"retention.bytes": -1} for topic in BY_SIZE})
    with tiered_broker(copy, work_dir, {}) as broker:
        broker.start()
        found = times_of(broker, TIMES_MS)
        broker.stop()
    return found


def compare_times(
    first: Mapping[str, list[list[int] | None]],
    found: Mapping[str, list[list[int] | None]],
    report: Mapping[str, Any],
) -> None:
    """The same offsets by time, but for those behind the archive's end."""
    compared = set()
    ends = {f"{one['topic']}-{one['partition']}": one["logEndOffset"] for one in report["partitions"]}
    assert ends.keys() > OTHER_TIMES
    for name in ends.keys() - OTHER_TIMES:
        for there, here in zip(first[name], found[name], strict=True):
            if there is not None and there[0] < ends[name]:
                assert here == there, name
                compared.add((name, there[0]))
            else:
                assert here is None, name
    assert len(compared) > 3 * len(ends.keys() - OTHER_TIMES)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> TieredArchive:
    return unpack_tiered(tmp_path_factory.mktemp("restore"))


def test_a_new_cluster_reads_what_was_archived(archive: TieredArchive, tmp_path: Path) -> None:
    topics = [*KEPT, *TRANSACTIONAL]
    first_times = times_of_the_first(archive, tmp_path / "first")
    broker = Broker([tmp_path / "a", tmp_path / "b"], work_dir=tmp_path / "work", properties=QUIET)
    with broker:
        broker.format()
        broker.start()
        for topic in topics:
            create(broker, topic, 2 if topic in ("plain", "transactions") else 1, *UNLIMITED)
        broker.stop()
        chosen = [word for topic in topics for word in ("--topic", topic)]
        report = restored(broker, archive.path, *chosen, metadata=archive.log_dirs)
        assert {one["status"] for one in report["partitions"]} == {"restored"}
        assert {one["leaderEpochs"] for one in report["partitions"]} == {"renumbered"}
        assert {one["logDir"] for one in report["partitions"]} == {str(tmp_path / "a"), str(tmp_path / "b")}

        broker.start()
        assert not RECOVERED.search(broker.log)
        compare_times(first_times, times_of(broker, TIMES_MS), report)
        held_back = abort_open_transactions(broker, report)
        assert {name.rpartition("-")[0] for name in held_back} == set(TRANSACTIONAL)
        read = broker.read_all()
        ends = [{name: one.end_offset for name, one in read[level].items()} for level in LEVELS]
        assert ends[0] == ends[1]  # no transaction is left open
        reads = {level: {name: counts_of(one) for name, one in read[level].items()} for level in LEVELS}
        compared = 0
        for partition in report["partitions"]:
            name = f"{partition['topic']}-{partition['partition']}"
            for isolation in LEVELS:
                found = archived(archive, name, isolation)
                if isolation == "read_committed" and name in held_back:
                    # Some of these ended with a commit behind the archive's end
                    assert 0 <= found[0] - reads[isolation][name][0] < 20, name
                else:
                    assert reads[isolation][name] == found, (name, isolation)
                compared += 1
        assert compared == 2 * len(report["partitions"])
        broker.stop()
        before = broker.log
        broker.start()
        assert not RECOVERED.search(broker.log.removeprefix(before))
        assert reads_of(broker) == reads


def test_the_rest_is_served_from_remote_storage(tmp_path: Path) -> None:
    """The disk with a partition is gone: its broker serves what is archived, and takes new records behind it."""
    archive = unpack_tiered(tmp_path)
    lost = {"plain-0": "d1", "codecs-0": "d2", "transactions-1": "d2", "deleted-records-0": "d1"}
    for name, log_dir in lost.items():
        shutil.rmtree(archive.root / log_dir / name)
    chosen = [word for name in lost for word in ("--partition", name)]
    with tiered_broker(archive, tmp_path / "work", {}) as broker:
        report = restored(broker, archive.path, "--aux", *chosen, metadata=archive.log_dirs)
        assert {one["status"] for one in report["partitions"]} == {"restored"}
        assert {one["mode"] for one in report["partitions"]} == {"aux"}
        broker.start()
        assert not RECOVERED.search(broker.log)
        reads = broker.read_all()["read_uncommitted"]
        for name in lost:
            expected = archive.expected["partitions"][name]
            found = reads[name]
            assert found.beginning_offset == expected["earliest_offset"]
            assert found.end_offset == expected["latest_tiered_offset"] + 1
            assert counts_of(found) == archived(archive, name, "read_uncommitted"), name
        broker.run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "codecs", "--num-records", "500"),
            *("--record-size", "100", "--throughput", "-1", "--command-property", "batch.size=0"),
        )
        after = broker.read_all()["read_uncommitted"]
        assert after["codecs-0"].records == reads["codecs-0"].records + 500
        broker.stop()
        before = broker.log
        broker.start()
        assert not RECOVERED.search(broker.log.removeprefix(before))
        assert broker.read_all()["read_uncommitted"]["codecs-0"] == after["codecs-0"]
        producers = {
            path.parent.name: read_producer_snapshot(path.read_bytes())["producer_id"].tolist()
            for name, log_dir in lost.items()
            for path in [max((archive.root / log_dir / name).glob("*.snapshot"))]
        }
        assert all(producers.values()), producers


def test_the_local_part_comes_back_beside_its_remote_part(tmp_path: Path) -> None:
    """The disk is gone, a copy of it restored: the broker reads all records, and deletes no remote segment."""
    archive = unpack_tiered(tmp_path)
    lost = {"plain-0": "d1", "codecs-0": "d2", "transactions-1": "d2", "deleted-records-0": "d1"}
    copied = run(
        "archive", "copy", "--log-dirs", f"{archive.root}/d1,{archive.root}/d2", "--output", tmp_path / "copy"
    )
    assert copied.exit_code == 0, copied.stderr
    for name, log_dir in lost.items():
        shutil.rmtree(archive.root / log_dir / name)
    chosen = [word for name in lost for word in ("--partition", name)]
    with tiered_broker(archive, tmp_path / "work", {}) as broker:
        report = restored(broker, tmp_path / "copy", *chosen)
        assert {one["status"] for one in report["partitions"]} == {"restored"}
        assert {one["leaderEpochs"] for one in report["partitions"]} == {"kept"}
        remote = {name: remote_part(archive, name) for name in lost}
        assert all(remote.values())
        broker.start()
        assert not RECOVERED.search(broker.log)
        wait_until_still(archive)
        for name in lost:
            assert remote[name].items() <= remote_part(archive, name).items(), name
        reads = broker.read_all()
        for name in lost:
            expected = archive.expected["partitions"][name]
            found = reads["read_uncommitted"][name]
            assert found.beginning_offset == expected["earliest_offset"]
            assert found.end_offset == expected["latest_offset"]
            for isolation in LEVELS:
                everything = expected[isolation]["all"]
                assert counts_of(reads[isolation][name]) == (
                    everything["records"],
                    everything["bytes"],
                    everything["crc32c"],
                ), (name, isolation)
        broker.stop()
        before = broker.log
        broker.start()
        assert not RECOVERED.search(broker.log.removeprefix(before))
        after = broker.read_all()
        assert [after[level][name] for level in LEVELS for name in lost] == [
            reads[level][name] for level in LEVELS for name in lost
        ]


def remote_part(archive: TieredArchive, name: str) -> dict[str, bytes]:
    """The objects of a partition in remote storage."""
    return {
        f"{folder.name}/{path}": data
        for folder in archive.path.glob(f"{name}-*")
        for path, data in tree_of(folder).items()
    }
