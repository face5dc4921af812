"""`verify` and the `.txnindex` files of followers, which append many batches at once and truncate their logs."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from recovery.check.api import verify
from recovery.check.finding import Finding
from segfmt.transaction_index import encode_transaction_index, view_transaction_index
from tests.brokers.jars import class_path, oracle_classes
from tests.logs.builders import ABORT, COMMIT, data_batch, marker_batch

pytestmark = pytest.mark.java

PRODUCERS = range(1, 4)
LOGS = 40
NOW_MS = 1795268400000


@dataclass(slots=True)
class History:
    """What a follower gets of leaders that follow one another; each step may be written to a file."""

    folder: Path
    fetched: Path
    """What the names of the files begin with that an append takes."""
    rng: random.Random
    end_offset: int = 0
    epoch: int = 0
    batches: list[tuple[int, int, bool]] = field(default_factory=list)
    """Base offset, producer (0: none) and whether a transaction is open behind it."""

    def batch(self) -> bytes:
        """The next batch: of a transaction, its end, or of nobody."""
        offset, rng = self.end_offset, self.rng
        producer_id = rng.choice(PRODUCERS)
        kind = rng.choices(("end" if self.open_after[producer_id] else "data", "data", "plain"), (9, 2, 1))[0]
        self.end_offset += 1
        self.batches.append((offset, 0 if kind == "plain" else producer_id, kind == "data"))
        known = {"leader_epoch": self.epoch, "producer_id": producer_id, "producer_epoch": 0}
        if kind == "end":
            return marker_batch(offset, rng.choice((ABORT, ABORT, ABORT, COMMIT)), **known)
        if kind == "data":
            sequence = sum(one == producer_id and is_data for _, one, is_data in self.batches[:-1])
            return data_batch(offset, transactional=True, base_sequence=sequence, **known)
        return data_batch(offset, leader_epoch=self.epoch)

    @property
    def open_after(self) -> dict[int, bool]:
        """Whether each producer has a transaction open at the end."""
        return dict.fromkeys(PRODUCERS, False) | {one: is_open for _, one, is_open in self.batches if one}

    def steps(self) -> Iterator[str]:
        yield f"open {self.folder}"
        for number in range(self.rng.randrange(5, 25)):
            file = self.fetched.with_name(f"{self.fetched.name}.{number}")
            file.write_bytes(b"".join(self.batch() for _ in range(self.rng.randrange(1, 12))))
            yield f"append {file} {self.epoch}"
            drawn = self.rng.random()
            if drawn < 0.1:
                yield "roll"
            elif drawn < 0.3:  # to the next leader, which has less
                self.end_offset = max(0, self.end_offset - self.rng.randrange(12))
                self.batches = [one for one in self.batches if one[0] < self.end_offset]
                self.epoch += 1
                yield f"truncate {self.end_offset}"
        yield "close"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("followers")
    (root / "d").mkdir()
    steps = [
        step
        for seed in range(LOGS)
        for step in History(
            root / "d" / f"t{seed}-0", root / f"t{seed}", random.Random(f"follower {seed}")
        ).steps()
    ]
    command = ["java", "-Xmx256m", "-cp", class_path(after=[oracle_classes()]), "FollowerLog"]
    subprocess.run(command, input="\n".join(steps), text=True, check=True, stdout=subprocess.DEVNULL)
    return root / "d"


def found_in(log_dir: Path, *, has_policy: bool = True) -> list[tuple[str, Finding]]:
    """What is found of transaction indexes."""
    topics = {f"t{seed}": {"cleanup.policy": "delete"} for seed in range(LOGS)} if has_policy else {}
    report = verify([str(log_dir)], topic_configs=topics, now_ms=NOW_MS)
    return [
        (file.path, found)
        for file in report.files
        for found in file.findings
        if file.path.endswith(".txnindex") and found.severity == "damage"
    ]


def test_what_followers_write_is_sound(log_dir: Path) -> None:
    assert found_in(log_dir) == []
    assert found_in(log_dir, has_policy=False) == []


@pytest.mark.parametrize("has_policy", [True, False])
@pytest.mark.parametrize("name", ["producer_id", "first_offset", "last_offset", "last_stable_offset"])
def test_a_changed_entry_is_found(name: str, has_policy: bool, log_dir: Path) -> None:
    """A last stable offset is found but where the log may have been truncated behind it."""
    before = {path: path.read_bytes() for path in sorted(log_dir.rglob("*.txnindex"))}
    try:
        for path, data in before.items():
            entries = view_transaction_index(data).copy()
            if len(entries):
                entries[name][random.Random(str(path.parent.name)).randrange(len(entries))] += 1
                path.write_bytes(encode_transaction_index(entries))
        changed = {str(path) for path, data in before.items() if len(view_transaction_index(data))}
        found = {path for path, _ in found_in(log_dir, has_policy=has_policy)}
        assert found <= changed
        assert len(changed) > LOGS
        assert len(changed - found) <= (len(changed) // 3 if name == "last_stable_offset" else 0)
    finally:
        for path, data in before.items():
            path.write_bytes(data)


def test_they_are_not_what_a_leader_writes(log_dir: Path) -> None:
    """Else this shows nothing: last stable offsets behind the marker, also of transactions that are cut."""
    behind = [
        int(entry["last_stable_offset"] - entry["last_offset"])
        for path in log_dir.rglob("*.txnindex")
        for entry in view_transaction_index(path.read_bytes())
    ]
    assert np.count_nonzero(np.array(behind) > 1) > 20
