"""How the suites run a recovery, and what they look at afterwards besides the tree: times, and lost batches."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import crcmod.predefined

from recovery.engine.report import CUT_LEDGER, RecoveryReport
from recovery.load.model import LogSettings
from recovery.logdir.quarantine_place import INSIDE_FOLDER, SIBLING_SUFFIX
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.write.undo_notice import UNDO_NOTICE
from tests.logs.samples import LOCK, HugeFile, Sample, content_of
from tests.runs.engine_run import run_engine

_crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

_LEAST_BATCH_BYTES = 26  # a message of magic 0 without key and value


def settings_of(sample: Sample) -> Callable[[str], LogSettings]:
    """The settings of the sample's topics, as an `Engine` asks for them."""
    broker = sample.properties

    def of(topic: str) -> LogSettings:
        own = sample.topic_configs.get(topic, {})

        def number(key: str, broker_key: str, default: int) -> int:
            return int(own.get(key, broker.get(broker_key, default)))

        return LogSettings(
            index_interval_bytes=number("index.interval.bytes", "log.index.interval.bytes", 4096),
            segment_index_bytes=number("segment.index.bytes", "log.index.size.max.bytes", 10 * 1024 * 1024),
            segment_bytes=number(
                "internal.segment.bytes",
                "internal.segment.bytes",
                number("segment.bytes", "log.segment.bytes", 1024 * 1024 * 1024),
            ),
            preallocate=own.get("preallocate", broker.get("log.preallocate")) == "true",
            remote_log_enabled=broker.get("remote.log.storage.system.enable") == "true"
            and own.get("remote.storage.enable") == "true",
            is_compacted="compact" in own.get("cleanup.policy", "delete"),
        )

    return of


def recover(
    sample: Sample,
    log_dirs: Iterable[Path] | None = None,
    *,
    settings_of_topics: Callable[[str], LogSettings] | None = None,
    **options: Any,
) -> RecoveryReport:
    """Recover *log_dirs* (all of the sample's unless given) as the sample's broker would."""
    return run_engine(
        sample.log_dirs if log_dirs is None else log_dirs,
        settings_of(sample) if settings_of_topics is None else settings_of_topics,
        **({"now_ms": sample.now_ms} | options),
    )


def footprint(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything below *root* and *root* itself: path -> inode, size, times of content and of status, owner, mode.

    Two equal footprints: nothing was written, renamed, truncated or given another owner or mode in between.
    """

    def of(path: str) -> tuple[int, ...]:
        found = os.lstat(path)
        return (
            found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns,
            found.st_uid, found.st_gid, found.st_mode,
        )  # fmt: skip

    found = {".": of(os.fspath(root))}
    for folder, folder_names, file_names in os.walk(root):
        for name in (*folder_names, *file_names):
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = of(path)
    return found


def own_leftovers(log_dir: Path) -> list[str]:
    """What a recovery that has ended must not leave in a log dir: locks, temporary files, quarantine."""
    return sorted(
        str(path.relative_to(log_dir))
        for path in log_dir.rglob("*")
        if path.name in (LOCK, INSIDE_FOLDER, CUT_LEDGER, UNDO_NOTICE) or path.name.endswith(TEMPORARY_SUFFIX)
    )


def quarantine_of(log_dir: Path) -> Path:
    """Where the quarantine of *log_dir* is if there is one."""
    return log_dir.with_name(log_dir.name + SIBLING_SUFFIX)


def manifest_errors(log_dir: Path) -> list[str]:
    """What is in the quarantine of *log_dir* and not as its manifests say, or the other way round."""
    errors = []
    for manifest in sorted(quarantine_of(log_dir).glob("*/manifest.jsonl")):
        lines = [json.loads(line) for line in manifest.read_text().splitlines()]
        entries = [line for line in lines if line["kind"] in ("file", "tail", "moved")]
        for entry in entries:
            stored = manifest.parent / entry["stored"]
            data = stored.read_bytes() if stored.is_file() else b""
            if not is_as_saved(entry, data):
                errors.append(f"{stored.name}: {len(data)} bytes, the manifest says {entry['size_bytes']}")
        found = {path for path in manifest.parent.rglob("*") if path.is_file()} - {manifest}
        unknown = found - {manifest.parent / entry["stored"] for entry in entries}
        errors += [f"{path.name}: not in the manifest" for path in sorted(unknown)]
    return errors


def is_as_saved(entry: Mapping[str, Any], data: bytes) -> bool:
    """Whether *data* are what a line of the manifest says: zeros at the end may be counted, and not hashed."""
    if len(data) != entry["size_bytes"] or entry["sha256"] is None:
        return len(data) == entry["size_bytes"]
    hashed_bytes = entry.get("sha256_bytes", len(data))
    zeros = len(data) - hashed_bytes
    return (
        hashlib.sha256(data[:hashed_bytes]).hexdigest() == entry["sha256"]
        and data.count(0, hashed_bytes) == zeros
    )


# -- conservation ----------------------------------------------------------------------------------------


def valid_batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each batch in *data* whose CRC is right, with its position; behind damage the search goes on byte by byte.

    Does not use the project's own formats and checksums.
    """
    position = 0
    while position + _LEAST_BATCH_BYTES <= len(data):
        size_bytes = _valid_size_bytes(data, position)
        if size_bytes is not None:
            yield position, data[position : position + size_bytes]
            position += size_bytes
            continue
        if not any(data[position : position + 4096]):  # preallocated zeros hold no batch
            position += 4096 - _LEAST_BATCH_BYTES
        position += 1


def _valid_size_bytes(data: bytes, position: int) -> int | None:
    length, _, magic, crc = struct.unpack_from(">iibI", data, position + 8)
    end = position + 12 + length
    if not 14 <= length <= len(data) - position - 12:
        return None
    if magic >= 2:
        return 12 + length if length >= 49 and _crc32c(data[position + 21 : end]) == crc else None
    (crc,) = struct.unpack_from(">I", data, position + 12)
    return 12 + length if zlib.crc32(data[position + 16 : end]) == crc else None


def log_bytes(log_dir: Path) -> dict[str, bytes]:
    """The `.log` files below *log_dir*, in every stage but `.deleted`, by path relative to it."""
    return {
        str(path.relative_to(log_dir)): _data_of(path)
        for path in sorted(log_dir.rglob("*.log*"))
        if path.is_file() and not path.name.endswith(".deleted")
    }


def _data_of(path: Path) -> bytes:
    """The bytes of a file; of a huge one with holes those before the first hole."""
    content = content_of(path)
    if not isinstance(content, HugeFile):
        return content
    data = b""
    for position, page in content.pages:
        if position != len(data):
            break
        data += page
    return data


def lost_batches(before: Mapping[str, bytes], log_dir: Path, quarantine: Path | None = None) -> list[str]:
    """Where in *before* (see `log_bytes`) a valid batch stood that is neither live nor in quarantine now.

    What is called `.deleted` now is not live: the next start of a broker removes it. A file that is still there
    under its name, whatever that is, was left alone.
    """
    now = log_bytes(log_dir)
    live = {path: data for path, data in now.items() if path.endswith(".log")}
    place = quarantine_of(log_dir) if quarantine is None else quarantine
    saved = {str(path): _data_of(path) for path in place.rglob("*.log*")} if place.exists() else {}
    kept = [*live.values(), *saved.values()]
    whole = {batch for data in saved.values() for _, batch in valid_batches(data)}
    lost = []
    for path, data in before.items():
        if now.get(path) == data:
            continue
        here = live.get(path, b"")
        for position, batch in valid_batches(data):
            if here[position : position + len(batch)] == batch or batch in whole:
                continue
            if not any(batch in other for other in kept):
                lost.append(f"{path} at {position} ({len(batch)} bytes)")
    return lost
