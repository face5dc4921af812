"""Targets: our own files beside the log dirs, which somebody else may be able to write: journals and manifests."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from native.raw_scan import PRODUCER_DTYPE, RawScan, Stop
from recovery.errors import JournalError
from recovery.load.model import FileStat, Original, ScanMode, ScanRequest
from recovery.plan.manifest import is_below, read_lines, read_manifest
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from recovery.write.scan_record import ARRAYS, encode_scan
from tests.fuzz.choices import Choices
from tests.fuzz.targets import Target

_START_BYTES, _PREFIX_BYTES = 8, 12


def _journal(data: bytes) -> None:
    """A journal is read as its longest sound beginning, by whoever only looks and by whoever goes on with it."""
    choices = Choices(data)
    content = _with_checksums(choices.rest()) if choices.below(4) else choices.rest()
    with _path() as path:
        path.write_bytes(content)
        _read_journal(content, path)


def _read_journal(content: bytes, path: Path) -> None:
    try:
        found = Journal.open(str(path), read_only=True)
    except JournalError:
        return
    finally:
        assert path.read_bytes() == content
    if found is None:
        return
    with found:
        said = _contents(found)
    again = Journal.open(str(path))
    assert again is not None
    with again:
        kept = path.read_bytes()
        assert content.startswith(kept)
        assert _contents(again) == said
        again.commit("added", {"x": 1})
    assert path.read_bytes().startswith(kept)
    with_more = Journal.open(str(path), read_only=True)
    assert with_more is not None
    with with_more:
        assert with_more.commits["added"] == {"x": 1}
        assert {name: one for name, one in _contents(with_more).items() if name != "done added"} == {
            name: one for name, one in said.items() if name != "done added"
        }


def _contents(journal: Journal) -> dict[str, object]:
    """What a journal says, scans as bytes; a scan that is taken is one that could have been written."""
    said: dict[str, object] = {"header": journal.header}
    for word, documents in (("done", journal.commits), ("note", journal.notes)):
        for name in documents:
            try:
                said[f"{word} {name}"] = json.dumps(documents[name], sort_keys=True)
            except JournalError:
                said[f"{word} {name}"] = None  # a record that is whole, with a body that is no document
    for position in journal._scans.values():
        found = journal._file.read(position)
        assert found is not None
        request = _request(found[0]["key"])
        if request is None:
            continue
        scan = journal.scan_of(*request)
        if scan is not None:
            head, pieces = encode_scan(scan)
            said[f"scan {position}"] = (json.dumps(head, sort_keys=True), b"".join(pieces))
            assert 0 <= scan.valid_bytes <= request[1].part.size_bytes
    return said


def _request(key: dict[str, object]) -> tuple[str, ScanRequest, FileStat] | None:
    try:
        part = Original(
            file=key["file"], size_bytes=key["part_bytes"], origin_position=key["origin_position"]
        )
        request = ScanRequest(
            part=part,
            base_offset=key["base_offset"],
            start_position=key["start_position"],
            mode=ScanMode(key["mode"]),
        )
        stat = FileStat(size_bytes=key["size_bytes"], mtime_ns=key["mtime_ns"], inode=key["inode"])
        return key["folder"], request, stat
    except (KeyError, ValueError):
        return None


def _with_checksums(content: bytes) -> bytes:
    """Return *content* with the checksum of each record right, along the lengths that it has."""
    octets = bytearray(content)
    position = _START_BYTES
    while len(octets) - position >= _PREFIX_BYTES:
        kind, length = struct.unpack_from(">4sI", octets, position)
        left = len(octets) - position - _PREFIX_BYTES
        if length > left:
            length = left
            struct.pack_into(">I", octets, position + 4, length)
        end = position + _PREFIX_BYTES + length
        checked = kind + struct.pack(">I", length) + octets[position + _PREFIX_BYTES : end]
        struct.pack_into(">I", octets, position + 8, zlib.crc32(checked + struct.pack(">Q", position)))
        position = end
    return bytes(octets)


@contextlib.contextmanager
def _path() -> Iterator[Path]:
    """A place for a journal, gone afterwards."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzzed-journal-", dir=memory) as folder:
        yield Path(folder) / "journal"


def _journals() -> list[bytes]:
    """A journal with one of everything, for each way to read it."""
    header = Header(
        tool_version="1",
        log_dir="/",
        configuration={"a": "1"},
        now_ms=5,
        had_clean_shutdown=True,
    )
    arrays = {name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in ARRAYS.items()}
    arrays["txn_events"]["kind"] = 1
    assert arrays["producers"].dtype == PRODUCER_DTYPE
    integers = dict.fromkeys(RawScan._fields[:9], 1) | {"stop_detail": (1, 2), "producer_end_offset": 3}
    scan = RawScan(**(integers | {"stop": Stop.END} | arrays))
    with _path() as path:
        with Journal.create(str(path), header) as journal:
            request = ScanRequest(part=Original(file="a.log", size_bytes=9), base_offset=0)
            journal.add_scan("t-0", request, FileStat(size_bytes=9), scan)
            journal.commit("t-0", {"a": [1]})
            journal.note("run", {"folder": "x"})
        content = path.read_bytes()
    return [bytes([way]) + content for way in (0, 1)]


def _manifest(data: bytes) -> None:
    """Any bytes are a manifest, of which no line leads out of its folder."""
    found = read_manifest(read_lines(io.BytesIO(data).read))
    for entry in found.entries:
        assert is_below(entry.stored)
        joined = os.path.normpath(os.path.join("/run", entry.stored))
        assert joined.startswith("/run/")
        assert joined == f"/run/{entry.stored}"
        for path in entry.contents or ():
            assert os.path.normpath(os.path.join(joined, path)) == f"{joined}/{path}".rstrip("/")
    assert len(found.entries) + len(found.problems) <= data.count(b"\n")
    assert found.has_torn_end == (not data.endswith(b"\n") and data != b"")


def _manifests() -> list[bytes]:
    line = {
        "version": 1,
        "log_dir": "/d",
        "kind": "tail",
        "partition": "t-0",
        "file": "a",
        "position": 3,
        "size_bytes": 5,
        "stored": "t-0/a.from-3",
        "sha256": "00",
        "reason": "r",
    }
    thing = {"path": "x", "kind": "folder", "size_bytes": 0, "sha256": None}
    contents = [thing, thing | {"path": "x/y", "kind": "file"}, thing | {"path": "x/..", "kind": "other"}]
    moved = line | {"kind": "moved", "sha256": None, "moved": "folder"}
    return [
        json.dumps(line).encode() + b"\n",
        json.dumps(line | {"stored": "../x"}).encode() + b"\n{",
        json.dumps(moved | {"contents": contents[:2]}).encode() + b"\n",
        json.dumps(moved | {"contents": contents}).encode() + b"\n",
    ]


_OURS = (
    "recovery.write.journal",
    "recovery.write.journal_file",
    "recovery.write.journal_format",
    "recovery.write.scan_record",
)
TARGETS = [
    Target(name="journal", run=_journal, instruments=_OURS, more_seeds=_journals),
    Target(name="manifest", run=_manifest, instruments=("recovery.plan.manifest",), more_seeds=_manifests),
]
