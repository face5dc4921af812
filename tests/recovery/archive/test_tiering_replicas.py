"""`archive metrics` and `archive retention`: which replica of a partition counts, and how far it reaches."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from recovery.archive.tiering.options import TieringOptions
from recovery.archive.tiering.report import TieredPartition, TieringReport
from recovery.archive.tiering.run import measure_tiering
from tests.brokers.tiered_broker import TieredArchive, unpack_tiered


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return unpack_tiered(tmp_path)


def measured(*log_dirs: Path, name: str = "plain-0") -> tuple[TieringReport, TieredPartition]:
    report = measure_tiering(TieringOptions(metadata=tuple(map(str, log_dirs)), partitions=(name,)))
    (found,) = report.partitions
    return report, found


def folder_of(archive: TieredArchive, name: str) -> Path:
    (folder,) = (path / name for path in archive.log_dirs if (path / name).is_dir())
    return folder


def batches_of(log: Path) -> list[tuple[int, int]]:
    """Position and first offset of each batch."""
    data, position, found = log.read_bytes(), 0, []
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        found.append((position, base_offset))
        position += 12 + length
    return found


def other_replica(archive: TieredArchive, name: str) -> Path:
    """The folder of a partition in a log dir of another broker, without anything that tells of its end."""
    source = folder_of(archive, name)
    log_dir = source.parent.with_name("other")
    copy = shutil.copytree(source, log_dir / name)
    for path in (*copy.glob("*.index"), *copy.glob("*.timeindex"), *copy.glob("*.snapshot")):
        path.unlink()
    topic, _, number = name.rpartition("-")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {number} 0\n")
    properties = (source.parent / "meta.properties").read_text()
    (log_dir / "meta.properties").write_text(properties.replace("node.id=1", "node.id=2"))
    return copy


@pytest.mark.parametrize("is_indexed", [True, False])
def test_the_replica_counts_that_reaches_furthest_wherever_its_last_segment_begins(
    archive: TieredArchive, *, is_indexed: bool
) -> None:
    _, leader = measured(*archive.log_dirs)
    follower = other_replica(archive, "plain-0")
    log = max(follower.glob("*.log"))
    *_, (rolled_at, base_offset), _, (end, end_offset), _ = batches_of(log)
    data = log.read_bytes()
    log.write_bytes(data[:rolled_at])
    (follower / f"{base_offset:020}.log").write_bytes(data[rolled_at:end])
    if not is_indexed:
        max(folder_of(archive, "plain-0").glob("*.index")).unlink()
    _, behind = measured(
        *(path for path in archive.log_dirs if not (path / "plain-0").is_dir()), follower.parent
    )
    assert behind.figures.log_end_offset == end_offset
    _, both = measured(*archive.log_dirs, follower.parent)
    assert both.figures.log_end_offset == leader.figures.log_end_offset
    assert both.figures.remote_copy_lag_segments == leader.figures.remote_copy_lag_segments
