"""A restore is killed, a broker is started before it goes on, is written to, and ends; then it is started again.

Records that the broker took are never lost: a log that was moved in has gone on, one that was not is refused.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from recovery.write.move_in import STAGE_FOLDER
from tests import ROOT
from tests.brokers.broker import Broker
from tests.brokers.restoring import (
    LEVELS,
    QUIET,
    UNLIMITED,
    archived,
    ask,
    counts_of,
    create,
    restored,
    statuses,
)
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.faults.killed import KillPoint
from tests.patience import LONGEST_WAIT_SECONDS

pytestmark = [pytest.mark.java, pytest.mark.broker]

TOPICS = {"codecs": 1, "deleted-records": 1, "plain": 2}
NAMES = ("codecs-0", "deleted-records-0", "plain-0", "plain-1")
"""In the order in which they are moved in."""
WRITTEN_TO = "codecs-0"
NEW_RECORDS = 7
COMPLAINT = re.compile(
    r"ERROR .*(LogManager|LogLoader|UnifiedLog|ReplicaManager|LogDirFailure)|-stray|offline|"
    r"Deleting all segments|caused truncation",
    re.IGNORECASE,
)
EXPECTED_STRAYS = re.compile(r"numStray=0|Found directory .*restore-stray")
STAGE = re.escape(STAGE_FOLDER)

KILLED = {
    "as a log is fetched": KillPoint(event="open", path=rf"{STAGE}/log-dir/plain-0/.*\.log\.", number=3),
    "as it is recovered": KillPoint(event="os.rename", path=rf"{STAGE}/log-dir/plain-0/.*\.index", number=3),
    "before the intent": KillPoint(event="os.rename", path=rf"{STAGE}/intent\.json"),
    "before lines leave": KillPoint(event="os.rename", path="/d/recovery-point-offset-checkpoint"),
    "as lines leave": KillPoint(event="os.rename", path="/d/replication-offset-checkpoint"),
    "as empty folders go": KillPoint(event="os.rename", path="/d/plain-0$"),
    "before logs come": KillPoint(event="os.rename", path=rf"{STAGE}/log-dir/codecs-0$"),
    "as logs come": KillPoint(event="os.rename", path=rf"{STAGE}/log-dir/deleted-records-0$"),
    "before lines come": KillPoint(event="os.rename", path="/d/recovery-point-offset-checkpoint", number=2),
    "as lines come": KillPoint(event="os.rename", path="/d/replication-offset-checkpoint", number=2),
    "before the end": KillPoint(event="os.remove", path=rf"{STAGE}/intent\.json"),
    "as the stage goes": KillPoint(event="shutil.rmtree", path=rf"{STAGE}$"),
}
MOVED_IN = {"as logs come": 1} | dict.fromkeys(
    ("before lines come", "as lines come", "before the end", "as the stage goes"), len(NAMES)
)
"""How many are in the log dir at that point; none at the others."""
CRASHES = ("as lines leave", "before logs come", "as logs come", "before lines come")
"""Where the broker is killed, not stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """A stopped broker whose topics are empty, and what is restored to it."""

    archive: TieredArchive
    broker: Broker
    kept: Path

    def fresh(self) -> None:
        """Begin anew."""
        (log_dir,) = self.broker.log_dirs
        for path in (log_dir, log_dir.with_name("d.quarantine")):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.kept, log_dir)

    @property
    def chosen(self) -> Sequence[str]:
        return [word for topic in TOPICS for word in ("--topic", topic)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> NewCluster:
    root = tmp_path_factory.mktemp("killed")
    broker = Broker([root / "d"], work_dir=root / "work", properties=QUIET)
    with broker:
        broker.format()
        broker.start()
        for topic, partitions in TOPICS.items():
            create(broker, topic, partitions, *UNLIMITED)
        broker.stop()
    shutil.copytree(root / "d", root / "kept")
    return NewCluster(archive=unpack_tiered(root), broker=broker, kept=root / "kept")


def killed(cluster: NewCluster, point: KillPoint) -> None:
    """Start a restore that kills itself."""
    metadata = ",".join(map(str, cluster.archive.log_dirs))
    arguments = ("archive", "restore", str(cluster.archive.path), "-c", str(cluster.broker.config))
    done = subprocess.run(
        [*point.command(), *arguments, "--metadata", metadata, *cluster.chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT_SECONDS,
    )
    assert done.returncode == -9, done.stdout + done.stderr[-2000:]


def complaints(broker: Broker) -> list[str]:
    return [
        line
        for line in broker.log.splitlines()
        if COMPLAINT.search(line) and not EXPECTED_STRAYS.search(line)
    ]


def produce(broker: Broker) -> None:
    words = (
        "--topic",
        WRITTEN_TO.rpartition("-")[0],
        "--num-records",
        str(NEW_RECORDS),
        "--record-size",
        "99",
    )
    printed = ask(broker, "ProducerPerformance", *words, "--throughput", "-1")
    assert f"{NEW_RECORDS} records sent" in printed


@pytest.mark.parametrize("where", KILLED)
def test_a_broker_is_started_on_a_killed_restore(cluster: NewCluster, where: str) -> None:
    archive, broker = cluster.archive, cluster.broker
    cluster.fresh()
    killed(cluster, KILLED[where])
    moved_in = NAMES[: MOVED_IN.get(where, 0)]
    with broker:
        broker.start()
        assert complaints(broker) == []
        produce(broker)
        reads = broker.read_all()["read_uncommitted"]
        for name in NAMES:
            here = archived(archive, name, "read_uncommitted")[0] if name in moved_in else 0
            least = here + (NEW_RECORDS if name == WRITTEN_TO else 0)
            # Below a log start whose line is not there yet, records of the first segment are seen
            assert reads[name].records >= least, name
            assert name in moved_in or reads[name].records == least, name
        if where in CRASHES:
            broker.kill()
        else:
            broker.stop()

        is_lost = WRITTEN_TO not in moved_in
        report = restored(
            broker, archive.path, *cluster.chosen, metadata=archive.log_dirs, exit_code=4 if is_lost else 0
        )
        expected = {name: "unchanged" if name in moved_in else "restored" for name in NAMES}
        found = statuses(report)
        assert found.pop(WRITTEN_TO) == ("refused" if is_lost else "unchanged")
        del expected[WRITTEN_TO]
        assert found.keys() == expected.keys()
        assert all(found[name] in (status, "unchanged") for name, status in expected.items()), found
        assert not any((log_dir / STAGE_FOLDER).exists() for log_dir in broker.log_dirs)

        broker.start()
        assert complaints(broker) == []
        assert "caused truncation" not in broker.log
        after = broker.read_all()
        for name in NAMES:
            for isolation in LEVELS:
                one = after[isolation][name]
                if name == WRITTEN_TO:
                    here = 0 if is_lost else archived(archive, name, isolation)[0]
                    assert one.records == here + NEW_RECORDS, (name, isolation)
                else:
                    assert counts_of(one) == archived(archive, name, isolation), (name, isolation)
            start = archive.expected["partitions"][name]["earliest_offset"]
            assert name == WRITTEN_TO or after["read_uncommitted"][name].beginning_offset == start
        broker.stop()
