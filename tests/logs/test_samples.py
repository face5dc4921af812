"""The samples hold what their README says, and trees are compared as this project compares them.

The batches are read here with struct alone: these checks must not lean on the code that the samples are for.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.logs.samples import (
    MARKER,
    NEWEST_NAME,
    SAMPLE_DIR,
    SAMPLE_NAMES,
    TIERED_NAME,
    Sample,
    differences,
    sha256_of,
    tree_of,
    unpack,
)

ABORT, COMMIT = 0, 1
CONTROL_KEY_VERSION = b"\x08\0\0\0"  # a key of 4 bytes, its version 0, the first byte of its type
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME = 1 << 4, 1 << 5, 1 << 3


@dataclass(frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    max_timestamp_ms: int
    producer_id: int
    record_count: int
    records: bytes


def batches(log: Path) -> Iterator[Batch]:
    data, position = log.read_bytes(), 0
    while position + 17 < len(data):
        base, size, epoch, magic = struct.unpack_from(">qiib", data, position)
        if size < 14 or position + 12 + size > len(data):
            return
        if magic < 2:
            yield Batch(base, base, -1, magic, data[position + 17], -1, -1, 1, b"")
        else:
            attributes, delta, _, max_timestamp = struct.unpack_from(">hiqq", data, position + 21)
            producer_id, _, _, count = struct.unpack_from(">qhii", data, position + 43)
            records = data[position + 61 : position + 12 + size]
            last = base + delta
            yield Batch(base, last, epoch, magic, attributes, max_timestamp, producer_id, count, records)
        position += 12 + size


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return unpack("crashed", tmp_path_factory.mktemp("samples"))


def folder(sample: Sample, name: str) -> Path:
    (found,) = sample.root.glob(f"d?/{name}")
    return found


def all_batches(sample: Sample, name: str) -> list[Batch]:
    return [batch for log in sorted(folder(sample, name).glob("*.log")) for batch in batches(log)]


def checkpoint(sample: Sample, name: str) -> dict[str, int]:
    lines = [line for log_dir in sample.log_dirs for line in (log_dir / name).read_text().splitlines()[2:]]
    return {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines}


@pytest.mark.parametrize("name", [*SAMPLE_NAMES, NEWEST_NAME, TIERED_NAME])
def test_the_readme_names_the_archives_and_their_clocks(name: str, tmp_path: Path) -> None:
    readme = (SAMPLE_DIR / "README.md").read_text()
    archive = SAMPLE_DIR / f"{name}.tar.xz"
    assert f"{sha256_of(archive)}  {archive.name}\n" in readme
    (row,) = (line for line in readme.splitlines() if line.startswith(f"| `{archive.name}` |"))
    assert row.endswith(f"| {unpack(name, tmp_path).now_ms} |")


def test_unpacked_files_have_their_holes(crashed: Sample) -> None:
    files = [path.stat() for path in crashed.root.rglob("*") if path.is_file()]
    assert sum(file.st_size for file in files) > 50_000_000
    assert sum(file.st_blocks * 512 for file in files) < 10_000_000


@pytest.mark.parametrize(
    ("codec", "bits"), [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_the_five_codecs(crashed: Sample, codec: str, bits: int) -> None:
    found = all_batches(crashed, f"codec-{codec}-0")
    assert {batch.attributes & 7 for batch in found} == {bits}
    assert len({batch.leader_epoch for batch in found}) == 3
    assert {batch.producer_id >= 0 for batch in found} == {True, False}
    assert len(list(folder(crashed, f"codec-{codec}-0").glob("*.log"))) >= 4


def test_many_producers_in_one_partition(crashed: Sample) -> None:
    for name in ("many-producers-0", "many-producers-1"):
        producer_ids = {batch.producer_id for batch in all_batches(crashed, name)}
        assert len(producer_ids) > 100
        assert len({producer_id // 1000 for producer_id in producer_ids}) == 3


def test_transactions_end_in_every_way(crashed: Sample) -> None:
    still_open = set()
    for partition in (0, 1, 2):
        found = all_batches(crashed, f"transactions-{partition}")
        markers = [batch.records for batch in found if batch.attributes & CONTROL]
        types = {marker[marker.index(CONTROL_KEY_VERSION) + len(CONTROL_KEY_VERSION)] for marker in markers}
        assert len(markers) > 50
        assert types == {ABORT, COMMIT}
        assert any(batch.producer_id >= 0 and not batch.attributes & TRANSACTIONAL for batch in found)
        in_transaction: set[int] = set()
        for batch in found:
            if batch.attributes & CONTROL:
                in_transaction.discard(batch.producer_id)
            elif batch.attributes & TRANSACTIONAL:
                in_transaction.add(batch.producer_id)
        still_open |= {(partition, producer_id) for producer_id in in_transaction}
        assert any(
            path.stat().st_size for path in folder(crashed, f"transactions-{partition}").glob("*.txnindex")
        )
    assert len(still_open) == 2
    assert {partition for partition, _ in still_open} == {1}


def test_the_cleaner_has_been_there(crashed: Sample) -> None:
    found = all_batches(crashed, "compacted-0")
    pairs = list(itertools.pairwise(found))
    assert any(two.base_offset > one.last_offset + 1 for one, two in pairs)
    assert any(batch.record_count == 0 for batch in found)
    assert list(folder(crashed, "compacted-0").glob("*.deleted"))


def test_timestamps(crashed: Sample) -> None:
    assert all(batch.attributes & LOG_APPEND_TIME for batch in all_batches(crashed, "append-time-0"))
    stamps = [batch.max_timestamp_ms for batch in all_batches(crashed, "out-of-order-0")]
    assert stamps != sorted(stamps)
    assert min(stamps) < crashed.now_ms - 86_400_000 < max(stamps)


def test_sizes_of_batches(crashed: Sample) -> None:
    tiny = all_batches(crashed, "tiny-batches-0")
    assert len(tiny) > 2500
    assert sum(batch.record_count == 1 for batch in tiny) > 0.9 * len(tiny)
    assert max(len(batch.records) for batch in all_batches(crashed, "large-batches-0")) > 250_000


def test_log_start_offsets(crashed: Sample) -> None:
    starts = checkpoint(crashed, "log-start-offset-checkpoint")
    bases = sorted(int(log.stem) for log in folder(crashed, "deleted-records-0").glob("*.log"))
    assert bases[0] < starts["deleted-records-0"] < bases[1]
    tiered = sorted(int(log.stem) for log in folder(crashed, "tiered-0").glob("*.log"))
    assert starts["tiered-0"] == 0 < tiered[0]
    assert list((crashed.root / "remote").rglob("*.log"))


def test_what_is_unflushed(crashed: Sample) -> None:
    points = checkpoint(crashed, "recovery-point-offset-checkpoint")
    unflushed = {
        path.parent.name
        for path in crashed.root.glob("d?/*/*.log")
        if int(path.stem) > points.get(path.parent.name, 0)
    }
    assert len(unflushed - {"__cluster_metadata-0"}) > 15
    assert all(not (log_dir / MARKER).exists() for log_dir in crashed.log_dirs)


def test_own_settings_and_leftovers(crashed: Sample) -> None:
    assert crashed.topic_configs["own-index"]["index.interval.bytes"] == "64"
    sizes = [path.stat().st_size for path in folder(crashed, "own-index-0").glob("*.index")]
    assert max(sizes) == 10_485_760
    preallocated = sorted(folder(crashed, "preallocated-0").glob("*.log"))[-1].read_bytes()
    assert preallocated.endswith(bytes(1000))
    assert len(list(crashed.root.glob("d?/to-be-deleted-0.*-delete"))) == 1
    assert "to-be-deleted" not in crashed.topic_configs
    assert all((log_dir / ".lock").exists() for log_dir in crashed.log_dirs)


def test_the_old_magics(tmp_path: Path) -> None:
    sample = unpack("crashed-v0-v1", tmp_path)
    magics = {}
    for name in ("old-v0-0", "old-v0-gzip-0", "old-v1-0", "old-v1-lz4-0", "old-v1-snappy-lat-0", "up-v1v2-0"):
        magics[name] = {batch.magic for batch in all_batches(sample, name)}
        assert (folder(sample, name) / "partition.metadata").stat().st_size > 0
    assert magics["old-v0-0"] == magics["old-v0-gzip-0"] == {0}
    assert magics["old-v1-0"] == magics["old-v1-lz4-0"] == magics["old-v1-snappy-lat-0"] == {1}
    assert magics["up-v1v2-0"] == {1, 2}


@pytest.mark.parametrize("name", ["intact", "stopped"])
def test_clean_samples_have_their_markers(name: str, tmp_path: Path) -> None:
    sample = unpack(name, tmp_path)
    assert all((log_dir / MARKER).exists() for log_dir in sample.log_dirs)
    assert sample.properties["log.dirs"] == ",".join(map(str, sample.log_dirs))


def test_trees_and_their_differences(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "0.log").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("t-0")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\na 0 1\nb 0 2\n")
    (tmp_path / MARKER).write_text("x")
    tree = tree_of(tmp_path)
    assert tree["link@"] == b"t-0"
    assert tree["t-0/"] == b""
    same = tree | {"recovery-point-offset-checkpoint": b"0\n2\nb 0 2\na 0 1\n", MARKER: b""}
    assert differences(tree, same) == []
    assert differences(tree, same | {"t-0/0.log": b"abd"}) != []
    assert differences(tree, same | {"recovery-point-offset-checkpoint": b"0\n2\nb 0 2\na 0 3\n"}) != []
    assert differences(tree, same | {".lock": b""}) == [".lock: a lock is left"]
    assert len(differences(tree, {name: tree[name] for name in tree if name != MARKER})) == 1
    assert len(differences(tree, tree | {"more": b""})) == 1
    assert "t-0/" not in tree_of(tmp_path, ignore=["t-0"])
