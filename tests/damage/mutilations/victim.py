"""What is damaged: a log dir with one partition of a sample, and what the damages ask it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from segfmt.errors import FormatError
from segfmt.record_batch import BatchSlice, walk_batches
from tests.logs.samples import MARKER, Sample, tree_of, write_tree

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
SECOND_LOG_DIR = "second"
"""Name of the log dir that a damage may make beside the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A log dir with one partition."""

    log_dir: Path
    folder: Path
    recovery_point: int

    @property
    def log_dirs(self) -> list[Path]:
        """The log dir, and the second one if a damage has made it."""
        second = self.second_log_dir
        return [self.log_dir, second] if second.exists() else [self.log_dir]

    @property
    def second_log_dir(self) -> Path:
        return self.log_dir.with_name(SECOND_LOG_DIR)

    @property
    def topic_partition(self) -> tuple[str, str]:
        return topic_partition_of(self.folder.name)

    def file(self, offset: int, suffix: str) -> Path:
        """The file of *offset*, there or not."""
        return self.folder / f"{offset:020d}{suffix}"

    def logs(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.log") if path.is_file())

    def bases(self) -> list[int]:
        return [int(log.stem) for log in self.logs() if log.stem.isdecimal()]

    def unflushed(self) -> list[Path]:
        logs = [log for log in self.logs() if log.stem.isdecimal()]
        floor = max((int(log.stem) for log in logs if int(log.stem) <= self.recovery_point), default=-1)
        return [log for log in logs if int(log.stem) >= floor and log.stat().st_size]

    def flushed(self) -> list[Path]:
        unflushed = set(self.unflushed())
        return [log for log in self.logs() if log not in unflushed and log.stat().st_size]

    def set_marker(self, *, is_there: bool) -> None:
        """Make the log dir a clean or an unclean one."""
        marker = self.log_dir / MARKER
        marker.write_text('{"version":0,"brokerEpoch":7}') if is_there else marker.unlink(missing_ok=True)


Damage = Callable[[Victim, random.Random], str | None]
"""Changes files in place and returns words for the report, or None where it has nothing to bite on."""


def topic_partition_of(folder_name: str) -> tuple[str, str]:
    """Topic and partition number of a folder's name, as a checkpoint's line has them."""
    stem = (
        folder_name.rpartition(".")[0]
        if folder_name.endswith(("-delete", "-stray", "-future"))
        else folder_name
    )
    topic, _, number = stem.rpartition("-")
    return topic, number


def copy_partition(sample: Sample, folder: Path, into: Path, tree: dict[str, bytes] | None = None) -> Victim:
    """Copy *folder* of *sample* into the new log dir *into*, with its own lines of the checkpoints and the marker.

    Args:
        tree: what is in *folder*, if that is known.
    """
    into.mkdir(parents=True)
    write_tree(tree_of(folder) if tree is None else tree, into / folder.name)
    key = list(topic_partition_of(folder.name))
    recovery_point = 0
    for name in CHECKPOINTS:
        lines = (folder.parent / name).read_text().splitlines() if (folder.parent / name).exists() else []
        kept = [line for line in lines[2:] if line.split()[:2] == key]
        (into / name).write_text(f"0\n{len(kept)}\n" + "".join(f"{line}\n" for line in kept))
        if kept and name.startswith("recovery-point"):
            recovery_point = int(kept[0].split()[2])
    for name in ("meta.properties", MARKER):
        if (folder.parent / name).exists():
            (into / name).write_bytes((folder.parent / name).read_bytes())
    return Victim(log_dir=into, folder=into / folder.name, recovery_point=recovery_point)


def pick(paths: list[Path], rng: random.Random) -> Path | None:
    """One of *paths*, None if there is none."""
    return rng.choice(paths) if paths else None


def batches_of(data: bytes) -> list[BatchSlice]:
    """The batches at the start of a log, up to the first that is none (a preallocated log ends in zeros)."""
    found: list[BatchSlice] = []
    with contextlib.suppress(FormatError):
        found.extend(walk_batches(data))
    return found


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def insert(path: Path, position: int, data: bytes) -> None:
    """Put bytes into a file."""
    content = path.read_bytes()
    path.write_bytes(content[:position] + data + content[position:])
