"""The log of the edge cases: the partition t-0 with three segments of twelve offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.logs import builders
from tests.logs.samples import MARKER, Sample

if TYPE_CHECKING:
    from tests.brokers import Oracle

NOW_MS = builders.BASE_TIMESTAMP_MS + 3_600_000
MAX_LONG = 2**63 - 1
BASES = (0, 12, 24)
END = 36
PROPERTIES = {"log.index.interval.bytes": "100", "log.index.size.max.bytes": "4096"}


class Log:
    """The partition t-0 in a log dir of its own."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.folder = log_dir / "t-0"

    def file(self, base: int, suffix: str = ".log") -> Path:
        return self.folder / f"{base:020d}{suffix}"

    def append(self, base: int, data: bytes) -> None:
        self.file(base).write_bytes(self.file(base).read_bytes() + data)

    def patch(self, base: int, position: int, data: bytes, suffix: str = ".log") -> None:
        content = bytearray(self.file(base, suffix).read_bytes())
        content[position : position + len(data)] = data
        self.file(base, suffix).write_bytes(content)

    def flip(self, base: int, position: int) -> None:
        self.patch(base, position, bytes([self.file(base).read_bytes()[position] ^ 1]))

    def positions(self, base: int) -> list[int]:
        """Where the batches of a segment begin."""
        data, position, found = self.file(base).read_bytes(), 0, []
        while position < len(data):
            found.append(position)
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        return found

    def replace_batch(self, base: int, number: int, batch: bytes) -> None:
        data = self.file(base).read_bytes()
        starts = [*self.positions(base), len(data)]
        self.file(base).write_bytes(data[: starts[number]] + batch + data[starts[number + 1] :])

    def recovery_point(self, offset: int) -> None:
        self.checkpoint("recovery-point-offset-checkpoint", offset)

    def recovered_from(self) -> int:
        """The recovery point in the checkpoint."""
        lines = (self.log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
        return int(lines[2].split()[2])

    def log_start(self, offset: int) -> None:
        self.checkpoint("log-start-offset-checkpoint", offset)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.log_dir / name).write_text(f"0\n1\nt 0 {offset}\n")

    def remove(self, *suffixes: str) -> None:
        for suffix in suffixes:
            for file in self.folder.glob(f"*{suffix}"):
                file.unlink()


def segment(base: int) -> bytes:
    """Twelve offsets: an idempotent producer's batches around a transaction and a batch without producer."""
    marker = builders.ABORT if base == 12 else builders.COMMIT
    at = {"base_timestamp_ms": builders.BASE_TIMESTAMP_MS + base, "leader_epoch": {0: 0, 12: 1, 24: 3}[base]}
    plain = {"producer_id": 100, "producer_epoch": 0, **at}
    transactional = {"producer_id": 200, "producer_epoch": 0, "transactional": True, **at}
    return b"".join(
        [
            builders.data_batch(base, 3, base_sequence=base // 2, **plain),
            builders.data_batch(base + 3, 3, base_sequence=base // 4, **transactional),
            builders.marker_batch(base + 6, marker, producer_id=200, **at),
            builders.data_batch(base + 7, 2, **at),
            builders.data_batch(base + 9, 3, base_sequence=base // 2 + 3, **plain),
        ]
    )


def make_pristine(oracle: Oracle, log_dir: Path) -> Path:
    """Let Kafka load the segments alone, and return *log_dir* as it leaves it: what every case starts from."""
    log = Log(log_dir)
    log.folder.mkdir(parents=True)
    for base in BASES:
        log.file(base).write_bytes(segment(base))
    (log.folder / "partition.metadata").write_text("version: 0\ntopic_id: XVrnN7gyS8qmRkfzoo9a4g")
    assert oracle.load([log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    return log_dir


def make_log(pristine: Path, log_dir: Path, state: str, *, recovery_point: int = END) -> Log:
    """A copy of *pristine*. States: `U`, all is unflushed; `F`, the active segment alone is; `C`, it has its marker."""
    log = Log(shutil.copytree(pristine, log_dir))
    if state != "C":
        (log.log_dir / MARKER).unlink()
        log.recovery_point(0 if state == "U" else recovery_point)
    return log


def sample_of(log: Log, *, topic_configs: dict[str, dict[str, str]] | None = None) -> Sample:
    """The log as a sample, with the settings that its broker had."""
    return Sample(
        name="edge",
        root=log.log_dir.parent,
        log_dirs=(log.log_dir,),
        properties=PROPERTIES,
        topic_configs=topic_configs or {},
        now_ms=NOW_MS,
    )
