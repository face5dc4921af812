"""Make the log dirs of a crashed broker, as large as you like, in seconds a GB: what the benchmarks recover.

    python -m benchmarks.generate INTO [--bytes 2GiB] [--batch-bytes 64KiB] [--partitions 8] [--segments 4]
        [--producers 100] [--codec none]

A real 4.3.1 broker formats the dirs and creates the topic, so that it starts on them later; then the
generator fills the partitions as that broker would, had it been written to for an hour and been killed:

* batches of unpredictable sizes, 40 % around the target, one `write` each (the page cache remembers how a
  file was written), records of noise, or compressed ones (`benchmarks.contents`);
* 100 idempotent producers in random order, with sequences and now and then a new epoch; 5 % of the batches in
  transactions of ten more producers, one in ten aborted, some left open; three leader epochs; timestamps that
  are not in order;
* closed segments with their indexes, transaction indexes and producer snapshots, the active one with indexes
  that are still preallocated, the leader epochs, no marker, recovery points 0: every segment is unflushed.

The same seed gives the same batches, but for the clock: the last ones are of now, because producers expire.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from benchmarks import append_kernel
from benchmarks.append_kernel import ABORTED_DTYPE, PRODUCER_DTYPE, STATE_DTYPE, WRITE_FAILED
from benchmarks.contents import Contents, make_contents
from native import cpu
from native.crc32c import crc32c
from segfmt.byte_layout import ABORTED_TXN_DTYPE, OFFSET_INDEX_DTYPE, PRODUCER_ENTRY_DTYPE, TIME_INDEX_DTYPE
from segfmt.checkpoint import encode_leader_epoch_checkpoint, encode_offset_checkpoint
from segfmt.compression import Codec
from segfmt.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from segfmt.java_hash_map import java_hash_map_order
from segfmt.meta_properties import MetaProperties, encode_meta_properties
from segfmt.offset_index import encode_offset_index, preallocated_bytes
from segfmt.producer_snapshot import encode_producer_snapshot
from segfmt.time_index import encode_time_index
from segfmt.time_index import preallocated_bytes as preallocated_time_index_bytes
from segfmt.transaction_index import encode_transaction_index
from tests.brokers.broker import QUIET_PROPERTIES, Broker, BrokerError
from tests.brokers.jars import KAFKA_VERSION

TOPIC = "bench"
CODECS = tuple(codec.name.lower() for codec in Codec)
DATASET_FILE = "dataset.json"
INDEX_INTERVAL_BYTES = 4096
SEGMENT_INDEX_BYTES = 10 << 20
TRANSACTIONAL_PRODUCERS = 10
LEADER_EPOCHS = 3
WRITTEN_FOR_US = 3_600_000_000
_MOST_NOISE_BYTES = 1 << 20
_MOST_UNSYNCED_BYTES = 16 << 20
_MOST_NEW_PARTITIONS = 5000
"""In one request: KRaft refuses operations of 10,000 records, `Excessively large number of partitions`."""
_LONGEST_CREATION_SECONDS = 1800
_SPREAD = 0.4
_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What to make: `bytes_total` of `.log` files in all, cut into equal partitions and segments."""

    bytes_total: int
    batch_bytes: int
    dirs: int = 2
    partitions: int = 8
    segments: int = 4
    producers: int = 100
    codec: str = "none"
    seed: int = 2026


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Log dirs as a crashed broker left them.

    Attributes:
        log_dirs: paths; the first one holds `__cluster_metadata-0`.
        log_bytes, batch_count, transactional_count, marker_count: of all partitions together;
            *batch_count* includes the other two.
        producer_count: producers that have written, of all partitions together, transactional ones as well.
        log_end_offsets: by folder.
    """

    shape: Shape
    log_dirs: tuple[Path, ...]
    log_bytes: int
    batch_count: int
    transactional_count: int
    marker_count: int
    producer_count: int
    log_end_offsets: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What one partition has got."""

    folder: str
    log_bytes: int
    batch_count: int
    transactional_count: int
    marker_count: int
    producer_count: int
    log_end_offset: int


def generate(into: Path, shape: Shape, *, with_broker: bool = True, version: str = KAFKA_VERSION) -> Dataset:
    """Make a dataset below *into*, which must not be there, and bring it to disk.

    Args:
        with_broker: False: nothing that needs Java; no broker starts on such log dirs.
        version: of that broker, and of those that start on the log dirs.
    """
    into.mkdir(parents=True)
    log_dirs = tuple(into / f"d{number}" for number in range(1, shape.dirs + 1))
    if with_broker:
        _create_topic(into, log_dirs, shape.partitions, version)
    else:
        _create_folders(log_dirs, shape.partitions)
    folders = sorted(
        (folder for log_dir in log_dirs for folder in log_dir.glob(f"{TOPIC}-*")),
        key=lambda folder: int(folder.name.rpartition("-")[2]),
    )
    assert len(folders) == shape.partitions
    # Two at a time: more only make the disk slower.
    contents = make_contents(Codec[shape.codec.upper()], *_sizes(shape), shape.seed)
    with ThreadPoolExecutor(max_workers=2) as pool:
        written = list(pool.map(lambda folder: _PartitionWriter(folder, shape, contents).write(), folders))
    for log_dir in log_dirs:
        lines = {(TOPIC, int(path.name.rpartition("-")[2])): 0 for path in log_dir.glob(f"{TOPIC}-*")}
        (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offset_checkpoint(lines))
        (log_dir / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    os.sync()
    dataset = Dataset(
        shape=shape,
        log_dirs=log_dirs,
        log_bytes=sum(one.log_bytes for one in written),
        batch_count=sum(one.batch_count for one in written),
        transactional_count=sum(one.transactional_count for one in written),
        marker_count=sum(one.marker_count for one in written),
        producer_count=sum(one.producer_count for one in written),
        log_end_offsets={one.folder: one.log_end_offset for one in written},
    )
    (into / DATASET_FILE).write_text(json.dumps(asdict(dataset), default=str, indent=1) + "\n")
    return dataset


def log_files(log_dirs: Sequence[Path]) -> list[Path]:
    """Return the `.log` files of the generated partitions, in order."""
    return sorted(path for log_dir in log_dirs for path in log_dir.glob(f"{TOPIC}-*/*.log"))


class _PartitionWriter:
    """Fills one partition's folder, segment after segment."""

    def __init__(self, folder: Path, shape: Shape, contents: Contents) -> None:
        self._folder = folder
        self._shape = shape
        self._contents = contents
        self._least_bytes, self._most_bytes = _sizes(shape)
        total_bytes = shape.bytes_total // shape.partitions
        self._segment_bytes = total_bytes // shape.segments
        partition = int(folder.name.rpartition("-")[2])
        self._random = np.random.default_rng([shape.seed, partition])
        state = self._state = np.zeros(1, STATE_DTYPE)
        state["random"] = self._random.integers(1, 1 << 62)
        state["total_bytes"] = total_bytes
        state["epoch_count"] = LEADER_EPOCHS
        state["clock_us"] = time.time_ns() // 1000 - WRITTEN_FOR_US
        state["clock_step_us"] = WRITTEN_FOR_US * shape.batch_bytes // total_bytes
        state["next_producer_id"] = 1000 * partition
        producers = self._producers = np.zeros(shape.producers + TRANSACTIONAL_PRODUCERS, PRODUCER_DTYPE)
        for name in ("producer_id", "txn_first_offset", "last_sequence", "last_offset"):
            producers[name] = -1
        self._epochs = np.zeros((LEADER_EPOCHS, 2), np.int64)

    def write(self) -> _Written:
        for path in self._folder.iterdir():
            if path.suffix == ".snapshot":
                path.unlink()
        noise_bytes = max(2 * self._most_bytes, min(_MOST_NOISE_BYTES, self._value("total_bytes")))
        noise = self._random.integers(0, 256, noise_bytes, np.uint8)
        # In large batches the offsets of records are longer than what is reckoned for each of them.
        most_bytes = max(self._most_bytes, self._contents.most_bytes)
        buffer = np.zeros(most_bytes + most_bytes // 8 + 1024, np.uint8)
        index_rows = self._segment_bytes // INDEX_INTERVAL_BYTES + 2
        offset_index, time_index = (np.zeros((index_rows, 2), np.int64) for _ in range(2))
        least_bytes = self._contents.least_bytes or self._least_bytes
        aborted = np.zeros(self._segment_bytes // least_bytes // 5 + 64, ABORTED_DTYPE)
        log_bytes = 0
        for ordinal in range(self._shape.segments):
            stem = self._folder / f"{self._value('next_offset'):020}"
            descriptor = os.open(f"{stem}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                size_bytes = append_kernel.append_segment(
                    cpu.choose(),
                    descriptor,
                    self._state,
                    self._producers,
                    self._shape.producers,
                    noise,
                    self._contents.data,
                    self._contents.rows,
                    int(self._contents.codec),
                    buffer,
                    self._segment_bytes,
                    self._least_bytes,
                    self._most_bytes,
                    INDEX_INTERVAL_BYTES,
                    offset_index,
                    time_index,
                    aborted,
                    self._epochs,
                )
                if size_bytes == WRITE_FAILED:
                    raise OSError(f"{stem}.log: a write failed or was short; is the disk full?")
                if size_bytes > _MOST_UNSYNCED_BYTES:  # small ones wait for the sync of all
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            log_bytes += size_bytes
            self._write_indexes(stem, offset_index, time_index, is_active=ordinal == self._shape.segments - 1)
            self._write_aborted(stem, aborted[: self._value("aborted_count")])
            if ordinal < self._shape.segments - 1:
                self._write_snapshot()
        epochs = self._epochs[: self._value("epoch_entry_count")].tolist()
        (self._folder / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint(epochs))
        return _Written(
            folder=self._folder.name,
            log_bytes=log_bytes,
            batch_count=self._value("batch_count"),
            transactional_count=self._value("transactional_count"),
            marker_count=self._value("marker_count"),
            producer_count=self._value("seen_producers"),
            log_end_offset=self._value("next_offset"),
        )

    def _value(self, name: str) -> int:
        return int(self._state[name][0])

    def _write_indexes(
        self,
        stem: Path,
        offset_index: npt.NDArray[np.int64],
        time_index: npt.NDArray[np.int64],
        *,
        is_active: bool,
    ) -> None:
        """Write both indexes: of a closed segment with the last timestamp, of the active one preallocated."""
        offsets = np.empty(self._value("index_count"), OFFSET_INDEX_DTYPE)
        offsets["relative_offset"], offsets["position"] = offset_index[: offsets.size].T
        times = np.empty(self._value("time_index_count") + 1, TIME_INDEX_DTYPE)
        times["timestamp_ms"][:-1], times["relative_offset"][:-1] = time_index[: times.size - 1].T
        times[-1] = (
            self._value("max_timestamp_ms"),
            self._value("max_timestamp_offset") - self._value("base_offset"),
        )
        if is_active or self._value("max_timestamp_ms") <= self._value("last_time_index_ms"):
            times = times[:-1]
        for suffix, data, size_bytes in (
            (".index", encode_offset_index(offsets), preallocated_bytes(SEGMENT_INDEX_BYTES)),
            (".timeindex", encode_time_index(times), preallocated_time_index_bytes(SEGMENT_INDEX_BYTES)),
        ):
            path = stem.with_suffix(suffix)
            path.write_bytes(data)
            if is_active:
                os.truncate(path, size_bytes)

    def _write_aborted(self, stem: Path, aborted: npt.NDArray[np.void]) -> None:
        """Write the transaction index, where a transaction was aborted."""
        if aborted.size:
            entries = np.zeros(aborted.size, ABORTED_TXN_DTYPE)
            for name in ABORTED_DTYPE.names or ():
                entries[name] = aborted[name]
            stem.with_suffix(".txnindex").write_bytes(encode_transaction_index(entries))

    def _write_snapshot(self) -> None:
        """Write the producers as they are when a segment is rolled. Kafka: UnifiedLog.roll."""
        seen = self._producers[self._producers["seen"] > 0]
        seen = seen[np.argsort(seen["seen"])]
        entries = np.zeros(seen.size, PRODUCER_ENTRY_DTYPE)
        for name in PRODUCER_ENTRY_DTYPE.names or ():
            entries[name] = seen["txn_first_offset" if name == "current_txn_first_offset" else name]
        entries = entries[java_hash_map_order(entries["producer_id"].astype(np.int64))]
        data = encode_producer_snapshot(entries, crc32c=lambda part: crc32c(np.frombuffer(part, np.uint8)))
        (self._folder / f"{self._value('next_offset'):020}.snapshot").write_bytes(data)


def _sizes(shape: Shape) -> tuple[int, int]:
    """Return about the least and the most bytes of a batch."""
    return int(shape.batch_bytes * (1 - _SPREAD)), int(shape.batch_bytes * (1 + _SPREAD))


def _create_topic(into: Path, log_dirs: Sequence[Path], partitions: int, version: str) -> None:
    """Let a broker format the dirs and make the topic's folders; a large topic grows in steps."""
    with Broker(
        log_dirs, work_dir=into / "work", properties=QUIET_PROPERTIES, version=version, heap="2g"
    ) as broker:
        broker.format()
        broker.start()
        for count in range(_MOST_NEW_PARTITIONS, partitions + _MOST_NEW_PARTITIONS, _MOST_NEW_PARTITIONS):
            is_first = count == _MOST_NEW_PARTITIONS
            count = min(count, partitions)
            broker.run_tool(
                "org.apache.kafka.tools.TopicCommand",
                *("--bootstrap-server", broker.bootstrap_servers, "--topic", TOPIC),
                *("--create" if is_first else "--alter", "--partitions", str(count)),
                *(("--replication-factor", "1") if is_first else ()),
            )
            _wait_for_folders(log_dirs, count)
        broker.stop(wait_seconds=_LONGEST_CREATION_SECONDS)
    shutil.rmtree(into / "work")


def _wait_for_folders(log_dirs: Sequence[Path], count: int) -> None:
    """Wait until the broker has made *count* partitions of the topic: it answers before."""
    deadline = time.monotonic() + _LONGEST_CREATION_SECONDS
    while sum(1 for log_dir in log_dirs for _ in log_dir.glob(f"{TOPIC}-*/partition.metadata")) < count:
        if time.monotonic() > deadline:
            raise BrokerError(f"the broker has not made {count} partitions in {_LONGEST_CREATION_SECONDS} s")
        time.sleep(0.5)


def _create_folders(log_dirs: Sequence[Path], partitions: int) -> None:
    for log_dir in log_dirs:
        log_dir.mkdir()
        meta = MetaProperties(cluster_id="AAAAAAAAAAAAAAAAAAAAAQ", node_id=1, directory_id=uuid4())
        (log_dir / META_PROPERTIES).write_bytes(encode_meta_properties(meta))
        (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint({}))
    for partition in range(partitions):
        folder = log_dirs[partition % len(log_dirs)] / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


def read_size(text: str) -> int:
    """Return the bytes that *text* means: 300MiB, 2GiB, 170, ..."""
    number = text.strip().rstrip("kKmMgGiIbB")
    unit = text.strip()[len(number) :].lower().removesuffix("b") if text else ""
    unit = {"": "", "k": "kb", "m": "mb", "g": "gb", "ki": "kib", "mi": "mib", "gi": "gib"}.get(unit, "?")
    if unit == "?":
        raise argparse.ArgumentTypeError(f"{text}: expected a number and one of KiB, MiB, GiB, KB, MB, GB")
    return int(float(number) * _UNITS[unit])


def main(arguments: list[str] | None = None) -> None:
    """Make a dataset and say what it holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("into", type=Path, help="folder to make; must not exist")
    parser.add_argument("--bytes", type=read_size, default=2 << 30, help="of all .log files (default 2GiB)")
    parser.add_argument("--batch-bytes", type=read_size, default=64 << 10, help="target (default 64KiB)")
    parser.add_argument("--dirs", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--segments", type=int, default=4, help="of each partition (default 4)")
    parser.add_argument("--producers", type=int, default=100, help="idempotent ones (default 100)")
    parser.add_argument("--codec", choices=CODECS, default="none", help="of the records (default none)")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--no-broker", action="store_true", help="without Java; no broker starts on these")
    options = parser.parse_args(arguments)
    shape = Shape(
        bytes_total=options.bytes,
        batch_bytes=options.batch_bytes,
        dirs=options.dirs,
        partitions=options.partitions,
        segments=options.segments,
        producers=options.producers,
        codec=options.codec,
        seed=options.seed,
    )
    begin = time.perf_counter()
    dataset = generate(options.into, shape, with_broker=not options.no_broker)
    seconds = time.perf_counter() - begin
    print(
        f"{dataset.log_bytes / 1e9:.2f} GB in {dataset.batch_count:,} batches, "
        f"{dataset.transactional_count:,} of them in transactions, {dataset.marker_count:,} markers; "
        f"made in {seconds:.1f} s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
