"""Random byte edits in sound log dirs, and how many of them `verify` finds, field by field.

    python -m tests.damage.verify_campaign --seeds 1000 [--first 5000] [--show]

A seed chooses a kind of file, a file of that kind in what `recover` leaves of the samples, a field, and another value
for one byte of it. `verify` is run plainly and with --deep. An edit is found where there is damage afterwards, or a
file that cannot be checked; *named* is counted where that file is the edited one,
*noted* where there is a note only. Before the first edit every
partition is verified as it is: nothing may be found.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recovery.check.report import VerifyReport
from segfmt import byte_layout
from segfmt.errors import FormatError
from segfmt.record_batch import walk_batches
from tests.damage.mutilate import Victim, make_victim
from tests.logs.samples import SAMPLE_NAMES, Sample, unpack
from tests.runs.driving import recover
from tests.runs.verifying import lines_of, verified

KINDS = {
    ".log": 10,
    ".index": 3,
    ".timeindex": 3,
    ".txnindex": 3,
    ".snapshot": 3,
    "leader-epoch-checkpoint": 2,
    "partition.metadata": 1,
    "recovery-point-offset-checkpoint": 1,
    "log-start-offset-checkpoint": 1,
    "meta.properties": 1,
    ".kafka_cleanshutdown": 1,
}
"""Suffix of the files of a kind, and how often it is chosen."""

_MESSAGE_FIELDS = {
    "offset": (0, 8),
    "size": (8, 12),
    "crc": (12, 16),
    "magic": (16, 17),
    "attributes": (17, 18),
}
_SNAPSHOT_FIELDS = {"version": (0, 2), "crc": (2, 6), "count": (6, 10)}
_ENTRY_DTYPES = {
    ".index": byte_layout.OFFSET_INDEX_DTYPE,
    ".timeindex": byte_layout.TIME_INDEX_DTYPE,
    ".txnindex": byte_layout.ABORTED_TXN_DTYPE,
}


@dataclass(slots=True, kw_only=True)
class Row:
    """What became of the edits of one field."""

    edits: int = 0
    found: int = 0
    found_deep: int = 0
    noted: int = 0
    named: int = 0
    missed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One byte of a field."""

    path: Path
    field: str
    position: int
    value: int


class VerifyCampaign:
    """Sound partitions, each in a log dir of its own."""

    def __init__(self, root: Path) -> None:
        self._victims: list[tuple[Sample, Victim]] = []
        for name in SAMPLE_NAMES:
            sample = unpack(name, root)
            recover(sample)
            for log_dir in sample.log_dirs:
                for folder in sorted(log_dir.iterdir()):
                    if _is_log(folder):
                        into = root / "victims" / str(len(self._victims))
                        self._victims.append((sample, make_victim(sample, folder, into)))
        self._files = {kind: list(self._files_of(kind)) for kind in KINDS}

    def check_sound(self) -> list[str]:
        """What is found before any edit."""
        return [
            line
            for sample, victim in self._victims
            for line in lines_of(verified(sample, [victim.log_dir], deep=True))
        ]

    def run(self, seed: int, rows: dict[str, Row]) -> None:
        """Make the edit of *seed*, verify twice, undo it."""
        rng = random.Random(f"verify/{seed}")
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        sample, victim, path = rng.choice(self._files[kind])
        edit = choose_edit(path, kind, rng, is_compacted=_is_compacted(sample, victim))
        data = path.read_bytes()
        changed = bytearray(data)
        changed[edit.position] = edit.value
        times = path.stat()
        path.write_bytes(changed)
        try:
            plain = verified(sample, [victim.log_dir])
            deep = verified(sample, [victim.log_dir], deep=True)
        finally:
            path.write_bytes(data)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        row = rows[edit.field]
        row.edits += 1
        row.found += is_found(plain)
        row.found_deep += is_found(deep)
        row.named += any(Path(file.path) == path for file in (*deep.damaged, *deep.unchecked))
        has_note = any(file.findings for file in deep.files)
        row.noted += has_note and not is_found(deep)
        if not is_found(deep):
            old = data[edit.position]
            row.missed.append(
                f"{seed}: {victim.folder.name}/{path.name} byte {edit.position}: {old:#04x} -> {edit.value:#04x}"
                f"{' (noted)' if has_note else ''}"
            )

    def _files_of(self, kind: str) -> Iterator[tuple[Sample, Victim, Path]]:
        for sample, victim in self._victims:
            for folder in (victim.folder, victim.log_dir):
                for path in sorted(folder.iterdir()):
                    if path.is_file() and path.name.endswith(kind) and path.stat().st_size:
                        yield sample, victim, path


def is_found(report: VerifyReport) -> bool:
    """Whether something is said of damage."""
    return bool(report.damaged or report.unchecked)


def choose_edit(path: Path, kind: str, rng: random.Random, *, is_compacted: bool) -> Edit:
    """Choose a field of *path*, a byte of it and another value."""
    data = path.read_bytes()
    if kind == ".log":
        name, start, end = _log_field(data, rng)
        name = f"{name}, compacted topic" if is_compacted and "CRC" not in name else name
    elif kind in _ENTRY_DTYPES:
        name, start, end = _entry_field(data, kind, rng)
    elif kind == ".snapshot":
        fields = dict(_SNAPSHOT_FIELDS) | ({"entries": (10, len(data))} if len(data) > 10 else {})
        name = rng.choice(list(fields))
        start, end = fields[name]
    else:
        name, start, end = "a byte", 0, len(data)
    position = rng.randrange(start, end)
    value = rng.randrange(255)
    return Edit(
        path=path, field=f"{kind}: {name}", position=position, value=value + (value >= data[position])
    )


def _log_field(data: bytes, rng: random.Random) -> tuple[str, int, int]:
    batches = []
    try:
        batches.extend(walk_batches(data))
    except FormatError as error:
        raise AssertionError("a sound log") from error
    batch = rng.choice(batches)
    if batch.magic < byte_layout.MAGIC_V2:
        fields = dict(_MESSAGE_FIELDS) | {"key and value (CRC)": (18, batch.size_bytes)}
        names = {name: f"message {name}" for name in fields}
    else:
        fields = {
            name: (offset, offset + byte_layout.RECORD_BATCH_HEADER_DTYPE[name].itemsize)
            for name, (_, offset, *_) in byte_layout.RECORD_BATCH_HEADER_DTYPE.fields.items()
        }
        fields["records (CRC)"] = (byte_layout.RECORDS_POSITION, batch.size_bytes)
        free = ("base_offset", "length", "partition_leader_epoch", "magic")
        names = {name: name if name in free or "(" in name else f"{name} (CRC)" for name in fields}
    name = rng.choice([name for name, (start, end) in fields.items() if end > start])
    start, end = fields[name]
    return names[name], batch.position + start, batch.position + end


def _entry_field(data: bytes, kind: str, rng: random.Random) -> tuple[str, int, int]:
    dtype = _ENTRY_DTYPES[kind]
    entry = rng.randrange(len(data) // dtype.itemsize) * dtype.itemsize
    name = rng.choice(dtype.names)
    offset = dtype.fields[name][1]
    return name, entry + offset, entry + offset + dtype[name].itemsize


def _is_compacted(sample: Sample, victim: Victim) -> bool:
    topic = victim.folder.name.rpartition("-")[0]
    policy = sample.topic_configs.get(topic, {}).get("cleanup.policy", "delete")
    return "compact" in policy or topic.startswith("__")


def _is_log(folder: Path) -> bool:
    is_other = folder.name.startswith(("__cluster_metadata", "remote-"))
    return folder.is_dir() and not is_other and not folder.name.endswith(("-delete", "-stray"))


def table(rows: dict[str, Row]) -> list[str]:
    """The rows as Markdown."""
    lines = [
        "| field | edits | found | with `--deep` | file named | noted only |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items()):
        lines.append(f"| {name} | {row.edits} | {row.found} | {row.found_deep} | {row.named} | {row.noted} |")
    total = [
        sum(getattr(row, key) for row in rows.values())
        for key in ("edits", "found", "found_deep", "named", "noted")
    ]
    return [*lines, f"| all | {' | '.join(map(str, total))} |"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds and print the table; exit code 1 where something was found before any edit."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.verify_campaign", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--show", action="store_true", help="print each edit that was not found")
    options = parser.parse_args(arguments)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        campaign = VerifyCampaign(Path(folder))
        found = campaign.check_sound()
        rows: dict[str, Row] = collections.defaultdict(Row)
        for seed in range(options.first, options.first + options.seeds):
            campaign.run(seed, rows)
    print("\n".join(found or ["nothing is found before the first edit"]))
    print("\n".join(table(rows)))
    if options.show:
        print("\n".join(f"{name}: {words}" for name, row in sorted(rows.items()) for words in row.missed))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
