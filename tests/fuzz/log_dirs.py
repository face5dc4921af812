"""A log dir made from a row of decisions: segments with right checksums, their derived files, leftovers, and damage.

The names are the broker's but for a few; the batches are those that producers, transaction coordinators and old
clients write, in any order; each file may then be cut, changed or replaced. Two cases of the same bytes are the
same log dir.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from segfmt import byte_layout
from segfmt.checkpoint import encode_leader_epoch_checkpoint, encode_offset_checkpoint
from segfmt.filenames import format_offset
from segfmt.offset_index import encode_offset_index
from segfmt.producer_snapshot import encode_producer_snapshot
from segfmt.time_index import encode_time_index
from segfmt.transaction_index import encode_transaction_index
from tests.fuzz.choices import Choices
from tests.fuzz.seal import seal_batches
from tests.logs import builders
from tests.native.scanning import scan_segment

NOW_MS = builders.BASE_TIMESTAMP_MS + 3_600_000
INDEX_INTERVAL_BYTES = 200
SEGMENT_INDEX_BYTES = 4096
MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
_ID = "0123456789abcdef" * 2
_FOLDERS = ("t-0", "t-0", "t-0", "t-0", f"t-0.{_ID}-delete", f"t-0.{_ID}-stray", f"t-0.{_ID}-future", "t-00")
_SECOND_FOLDERS = (
    "u-1",
    "u-1",
    f"t-0.{_ID}-future",
    "__cluster_metadata-0",
    "remote-log-index-cache",
    "lost+found",
)
_BASES = (0, 5, 100, (1 << 31) - 4, 1 << 40, (1 << 63) - 40)
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_ODD_NAMES = (
    "+5.log", "-1.log", "12.log",
    "x.index", "5.index", "+5.snapshot", "00000000000000000007.log.deleted", "00000000000000000003.index",
    "leader-epoch-checkpoint.tmp", "9" * 20 + ".snapshot", "00000000000000000005.snapshot", "readme",
    "00000000000000000100.log.swap", "00000000000000000005.log.cleaned", "00000000000000000002.txnindex",
    "00000000000000000004-0000000001.checkpoint", ".timeindex",
)  # fmt: skip
_EDGES = (0, 1, -1, 5, 100, (1 << 63) - 1, -(1 << 63), 1 << 31, (1 << 31) - 1)


@dataclass(slots=True)
class MadeLogDir:
    """Files by path relative to the log dir; `a-0/` with b"" is an empty folder."""

    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, root: Path) -> None:
        """Make *root* and everything in it."""
        for path, data in self.files.items():
            target = root / path
            if path.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        root.mkdir(parents=True, exist_ok=True)


def make_log_dir(choices: Choices, *, is_alone: bool = False) -> MadeLogDir:
    """Return the log dir that *choices* describe; with one partition at most where it *is_alone*."""
    made = MadeLogDir()
    offsets = _partition(choices, made, choices.pick(_FOLDERS))
    if choices.is_rare(4) and not is_alone:
        offsets += _partition(choices, made, choices.pick(_SECOND_FOLDERS))
    _checkpoint(choices, made, RECOVERY_POINTS, offsets)
    _checkpoint(choices, made, LOG_STARTS, offsets)
    if choices.is_rare(3):
        made.files[MARKER] = choices.pick([b'{"version":0,"brokerEpoch":7}', b"", b"{"])
    return made


def _checkpoint(choices: Choices, made: MadeLogDir, name: str, offsets: list[int]) -> None:
    kind = choices.below(8)
    if kind == 0:
        return
    places = [*offsets, *_EDGES] if choices.is_rare(6) else offsets or [0]
    lines = {("t", 0): choices.pick(places) + (choices.below(3) if choices.is_rare(4) else 0)}
    if choices.is_rare(3):
        lines["u", 1] = choices.pick(places)
    lines = {key: min(value, (1 << 63) - 1) for key, value in lines.items()}
    data = encode_offset_checkpoint(lines)
    made.files[name] = _damaged(choices, data) if kind == 7 else data


def _partition(choices: Choices, made: MadeLogDir, folder: str) -> list[int]:
    """Add a partition's folder; return the offsets at which its segments begin, and its end."""
    made.files[f"{folder}/"] = b""
    base = choices.pick(_BASES) if choices.is_rare(3) else 0
    bases, offset, epoch = [], base, 0
    for _ in range(1 + choices.below(4)):
        bases.append(offset)
        log, offset, epoch = _segment(choices, offset, epoch)
        _derived(choices, made, folder, bases[-1], log)
        made.files[f"{folder}/{format_offset(bases[-1])}.log"] = _maybe_damaged(choices, log, one_in=4)
    if choices.is_rare(3):
        del made.files[f"{folder}/{format_offset(choices.pick(bases))}.log"]
    _small_files(choices, made, folder, bases, epoch)
    _leftovers(choices, made, folder)
    return [*bases, offset]


def _segment(choices: Choices, base: int, epoch: int) -> tuple[bytes, int, int]:
    """Return the bytes of a segment, the offset behind it, and the last leader epoch."""
    batches, offset = [], base
    for _ in range(choices.below(8)):
        epoch += choices.is_rare(4)
        batch, count = _batch(choices, offset, epoch)
        batches.append(batch)
        offset = min(offset + count + (choices.below(4) if choices.is_rare(8) else 0), (1 << 63) - 40)
    return b"".join(batches), offset, epoch


def _batch(choices: Choices, offset: int, epoch: int) -> tuple[bytes, int]:
    kind = choices.below(12)
    producer_id = choices.below(3)
    value_bytes = choices.pick([10, 60, 150, 400])
    time_ms = builders.BASE_TIMESTAMP_MS + offset % 1000 + (choices.signed(1) if choices.is_rare(4) else 0)
    if kind < 3:
        return builders.data_batch(
            offset, 1 + choices.below(3), value_bytes=value_bytes, leader_epoch=epoch, max_timestamp_ms=time_ms
        ), 3  # fmt: skip
    if kind < 8:
        return builders.data_batch(
            offset,
            1,
            value_bytes=value_bytes,
            leader_epoch=epoch,
            max_timestamp_ms=time_ms,
            producer_id=producer_id,
            producer_epoch=choices.below(2),
            base_sequence=choices.pick([0, 1, 5, (1 << 31) - 1, -1]),
            transactional=kind >= 6,
        ), 1
    if kind < 10:
        return builders.marker_batch(
            offset,
            choices.pick([builders.COMMIT, builders.ABORT, 2]) if choices.is_rare(8) else choices.below(2),
            producer_id=producer_id,
            producer_epoch=choices.below(2),
            coordinator_epoch=choices.below(3),
            leader_epoch=epoch,
        ), 1
    if kind == 10:
        return _odd_batch(choices, offset, epoch)
    return _old_message(choices, offset)


def _odd_batch(choices: Choices, offset: int, epoch: int) -> tuple[bytes, int]:
    """A batch that no broker writes, with a right checksum."""
    return builders.record_batch(
        base_offset=min(offset + (choices.signed(1) if choices.is_rare(2) else 0), (1 << 63) - 1),
        records=choices.take(choices.below(40)),
        record_count=choices.pick([1, 0, 2, -1]),
        last_offset_delta=choices.pick([0, 1, -1, (1 << 31) - 1]),
        leader_epoch=choices.pick([epoch, -1, epoch + 5, 0]),
        magic=choices.pick([2, 3]),
        codec=choices.below(8),
        producer_id=choices.pick([-1, 0, 1]),
        producer_epoch=choices.pick([0, -1]),
        control=choices.is_rare(2),
        transactional=choices.is_rare(2),
        max_timestamp_ms=choices.pick([builders.BASE_TIMESTAMP_MS, -1, (1 << 63) - 1]),
    ), 1


def _old_message(choices: Choices, offset: int) -> tuple[bytes, int]:
    magic = choices.below(2)
    if choices.is_rare(2):
        first = offset if magic == 0 else 0
        inner = [builders.message(first + i, magic=magic) for i in range(choices.below(3))]
        return builders.compressed_message(inner, offset=offset + len(inner), magic=magic), len(inner) + 1
    return builders.message(offset, magic=magic, value=choices.take(choices.below(30))), 1


def _derived(choices: Choices, made: MadeLogDir, folder: str, base: int, log: bytes) -> None:
    """Add the indexes and the snapshot of a segment: as a broker would have them, wrong, or missing."""
    scan = scan_segment(
        np.frombuffer(log, np.uint8), base_offset=base, index_interval_bytes=INDEX_INTERVAL_BYTES
    )
    stem = f"{folder}/{format_offset(base)}"
    offsets = np.zeros(len(scan.offset_index), byte_layout.OFFSET_INDEX_DTYPE)
    offsets["relative_offset"], offsets["position"] = scan.offset_index[:, 0], scan.offset_index[:, 1]
    whole = {
        ".index": encode_offset_index(offsets),
        ".timeindex": encode_time_index(scan.time_index.astype(byte_layout.TIME_INDEX_DTYPE)),
        ".txnindex": encode_transaction_index(_aborted(choices, base)),
        ".snapshot": encode_producer_snapshot(_producers(choices, base)),
    }
    for suffix, data in whole.items():
        kind = choices.below(8)
        is_usual = suffix not in (".txnindex", ".snapshot")
        if kind == 7 or (kind >= 4 and not is_usual):
            continue
        made.files[stem + suffix] = _damaged(choices, data) if kind == 6 else data


def _aborted(choices: Choices, base: int) -> np.ndarray:
    count = choices.below(3)
    entries = np.zeros(count, byte_layout.ABORTED_TXN_DTYPE)
    for entry in entries:
        entry["producer_id"], entry["first_offset"] = choices.below(3), base
        entry["last_offset"] = min(base + choices.below(20), (1 << 63) - 1)
        entry["last_stable_offset"] = base
        entry["version"] = 256 if choices.is_rare(16) else 0
    return entries


def _producers(choices: Choices, base: int) -> np.ndarray:
    count = choices.below(4)
    entries = np.zeros(count, byte_layout.PRODUCER_ENTRY_DTYPE)
    for number, entry in enumerate(entries):
        entry["producer_id"] = number * choices.pick([1, 16, 1 << 32])
        entry["last_offset"] = choices.pick([base - 1, -1, base])
        entry["timestamp_ms"] = NOW_MS - choices.pick([1000, 86_400_001, -5])
        entry["current_txn_first_offset"] = choices.pick([-1, base - 1, 0])
    return entries


def _small_files(choices: Choices, made: MadeLogDir, folder: str, bases: list[int], epoch: int) -> None:
    if not choices.is_rare(4):
        entries = [(number, base) for number, base in enumerate(bases[: epoch + 1])]
        data = encode_leader_epoch_checkpoint(entries)
        made.files[f"{folder}/leader-epoch-checkpoint"] = _maybe_damaged(choices, data, one_in=8)
    if not choices.is_rare(4):
        data = b"version: 0\ntopic_id: Ql39DSphRbO0LGsT-wh4cQ"
        made.files[f"{folder}/partition.metadata"] = _maybe_damaged(choices, data, one_in=12)


def _leftovers(choices: Choices, made: MadeLogDir, folder: str) -> None:
    """Copies and renames with the suffixes of deletion, cleaning and splitting; names that no broker gives."""
    if choices.is_rare(3):
        suffix = choices.pick([".deleted", ".swap", ".cleaned"])
        there = [path for path in made.files if path.startswith(f"{folder}/") and path.endswith(_SUFFIXES)]
        for path in _some(choices, there):
            made.files[path + suffix] = _maybe_damaged(choices, made.files[path], one_in=4)
            if choices.is_rare(2):
                del made.files[path]
    if choices.is_rare(8):
        made.files[f"{folder}/{choices.pick(_ODD_NAMES)}"] = choices.take(choices.below(60))
    if choices.is_rare(16):
        name = choices.pick(["00000000000000000000.snapshot", "x.log"])
        if f"{folder}/{name}" not in made.files:
            made.files[f"{folder}/{name}/"] = b""


def _some(choices: Choices, paths: list[str]) -> Iterator[str]:
    for path in paths:
        if choices.is_rare(3):
            yield path


def _maybe_damaged(choices: Choices, data: bytes, *, one_in: int) -> bytes:
    return _damaged(choices, data) if choices.is_rare(one_in) else data


def _damaged(choices: Choices, data: bytes) -> bytes:
    changed = bytearray(data)
    kind = choices.below(10)
    place = choices.below(len(data) + 1)
    if kind == 0 and data:
        changed[place % len(data)] ^= 1 << choices.below(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        changed += bytes(choices.pick([1, 16, 17, 18, 61, 300]))
    elif kind == 3:
        changed += choices.take(choices.below(80))
    elif kind == 4:
        changed[place : place + 8] = struct.pack(">q", choices.pick(_EDGES))
    elif kind == 5:
        changed = bytearray(choices.take(choices.below(80)))
    elif kind == 6:
        changed.clear()
    elif kind == 7:
        changed[place:place] = data[place : place + 100]
    elif kind == 8:
        changed[place : place + 50] = bytes(50)
    else:
        changed[place : place + 4] = choices.take(4)
        return seal_batches(bytes(changed))
    return bytes(changed)
