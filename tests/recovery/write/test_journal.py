"""The journal of a run: what is in it comes back, and nothing else does, whatever became of the file."""

from __future__ import annotations

import errno
import json
import os
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native.raw_scan import RawScan, Stop
from recovery.errors import JournalError
from recovery.load.model import FileStat, Original, ScanRequest
from recovery.write import journal_file
from recovery.write import journal_format as journal_record
from recovery.write.journal import Journal, listing_digest
from recovery.write.journal_format import PREFIX, START, Header, RecordKind
from recovery.write.scan_record import ARRAYS
from tests.logs.scan_strategies import assert_same_scan, scanned_segments

STAT = FileStat(size_bytes=1 << 30, mtime_ns=1_795_268_375_570_000_001, inode=77)
Segment = tuple[str, ScanRequest, FileStat, RawScan]


def a_header(log_dir: Path, **changes: Any) -> Header:
    fields: dict[str, Any] = {
        "tool_version": "0.1.0",
        "log_dir": str(log_dir),
        "configuration": {"log.index.interval.bytes": "4096", "topic t: segment.bytes": "1"},
        "now_ms": 1_795_268_375_570,
        "had_clean_shutdown": False,
        "run_folder": None,
        "folders": {"t-0": "cd" * 32, "o\udcffdd-1": "ef" * 32},
    }
    return Header(**(fields | changes))


def a_request(number: int = 0) -> ScanRequest:
    return ScanRequest(
        part=Original(file=f"{number:020d}.log", size_bytes=1 << 30), base_offset=number, ordinal=1, count=1
    )


def a_scan(number: int = 0, rows: int = 3) -> RawScan:
    found = {name: np.zeros((rows, *shape), dtype) for name, (dtype, shape) in ARRAYS.items()}
    found["txn_events"]["kind"] = 1
    found["offset_index"][:] = number
    return RawScan(
        stop=Stop.END,
        valid_bytes=1 << 30,
        stop_position=1 << 30,
        stop_detail=(0, 0),
        batch_count=number,
        legacy_batch_count=0,
        last_offset=number,
        max_timestamp_ms=-1,
        max_timestamp_offset=number,
        producer_end_offset=-1,
        **found,
    )


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "d1").mkdir()
    return tmp_path / "d1"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "d1.quarantine" / "journal")


@pytest.fixture
def journal(path: str, log_dir: Path) -> Iterator[Journal]:
    with Journal.create(path, a_header(log_dir)) as made:
        yield made


def filled(journal: Journal) -> None:
    """Three scans, two commits, a note, in turns."""
    assert journal.add_scan("t-0", a_request(0), STAT, a_scan(0))
    assert journal.add_scan("t-0", a_request(1), STAT, a_scan(1))
    journal.commit("t-0", {"logEndOffset": 5, "saved": ["ü", "\udcff"]})
    journal.note("hand-off", {"begun": True})
    assert journal.add_scan("t-1", a_request(2), STAT, a_scan(2))
    journal.commit("t-1", {})


def reopened(path: str, **options: Any) -> Journal:
    found = Journal.open(path, **options)
    assert found is not None
    return found


class TestRoundTrip:
    def test_all_of_it_comes_back(self, journal: Journal, path: str, log_dir: Path) -> None:
        filled(journal)
        for source in (journal, reopened(path, read_only=True), reopened(path)):
            assert source.header == a_header(log_dir)
            assert dict(source.commits) == {
                "t-0": {"logEndOffset": 5, "saved": ["ü", "\udcff"]},
                "t-1": {},
            }
            assert dict(source.notes) == {"hand-off": {"begun": True}}
            assert source.scan_count == 3
            for number in range(3):
                found = source.scan_of(f"t-{number // 2}", a_request(number), STAT)
                assert_same_scan(found, a_scan(number))
            source.close()

    def test_a_journal_goes_on_where_it_was(self, journal: Journal, path: str) -> None:
        filled(journal)
        journal.close()
        with reopened(path) as second:
            second.commit("t-0", {"again": 1})
            assert second.add_scan("t-9", a_request(9), STAT, a_scan(9))
        with reopened(path) as third:
            assert third.commits["t-0"] == {"again": 1}
            assert list(third.commits) == ["t-0", "t-1"]
            assert_same_scan(third.scan_of("t-9", a_request(9), STAT), a_scan(9))
            assert_same_scan(third.scan_of("t-0", a_request(1), STAT), a_scan(1))

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.lists(scanned_segments(), max_size=3))
    def test_any_scan_comes_back(self, tmp_path: Path, segments: list[Segment]) -> None:
        path = str(tmp_path / "any")
        with Journal.create(path, a_header(tmp_path)) as journal:
            for folder, request, stat, scan in segments:
                assert journal.add_scan(folder, request, stat, scan)
        with reopened(path) as again:
            for number, (folder, request, stat, scan) in enumerate(segments):
                is_last = all(
                    (folder, request.part, stat) != (f, r.part, s) for f, r, s, _ in segments[number + 1 :]
                )
                if is_last:
                    assert_same_scan(again.scan_of(folder, request, stat), scan)

    @pytest.mark.parametrize(
        "other",
        [
            FileStat(size_bytes=STAT.size_bytes + 1, mtime_ns=STAT.mtime_ns, inode=STAT.inode),
            FileStat(size_bytes=STAT.size_bytes, mtime_ns=STAT.mtime_ns + 1, inode=STAT.inode),
            FileStat(size_bytes=STAT.size_bytes, mtime_ns=STAT.mtime_ns, inode=STAT.inode + 1),
        ],
    )
    def test_a_file_that_is_another_by_now_has_no_scan(self, journal: Journal, other: FileStat) -> None:
        journal.add_scan("t-0", a_request(), STAT, a_scan())
        assert journal.scan_of("t-0", a_request(), other) is None
        assert journal.scan_of("t-1", a_request(), STAT) is None
        assert journal.scan_of("t-0", a_request(1), STAT) is None

    def test_a_run_folder_is_a_name(self, path: str, log_dir: Path) -> None:
        for name, is_one in (("20261121T000000Z", True), ("../x", False), ("/x", False), ("..", False)):
            Journal.create(path, a_header(log_dir, run_folder=name)).close()
            if is_one:
                assert reopened(path).header.run_folder == name
            else:
                with pytest.raises(JournalError, match="first record"):
                    Journal.open(path)


class TestNothingBegun:
    def test_no_file(self, tmp_path: Path) -> None:
        assert Journal.open(str(tmp_path / "none")) is None
        assert Journal.open(str(tmp_path / "no" / "folder")) is None

    @pytest.mark.parametrize("content", [b"", b"K", b"KLRJ\0\0", bytes(8), bytes(100_000)])
    def test_a_file_that_never_reached_the_disk(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "journal").write_bytes(content)
        assert Journal.open(str(tmp_path / "journal")) is None
        assert (tmp_path / "journal").read_bytes() == content

    def test_a_header_that_is_torn(self, journal: Journal, path: str) -> None:
        journal.close()
        data = Path(path).read_bytes()
        for size in range(len(data)):
            Path(path).write_bytes(data[:size])
            assert Journal.open(path) is None


class TestDamage:
    def whole(self, journal: Journal, path: str) -> tuple[bytes, list[int]]:
        """Return the file's bytes, and where each record of `filled` ends."""
        filled(journal)
        journal.close()
        data = Path(path).read_bytes()
        ends, position = [], START.size
        while position < len(data):
            position += PREFIX.size + PREFIX.unpack_from(data, position)[1]
            ends.append(position)
        assert len(ends) == 7
        return data, ends

    def assert_is_prefix(self, journal: Journal, count: int) -> None:
        """The first *count* of the records of `filled` are there, as they were, and no others."""
        scans = [("t-0", 0, 1), ("t-0", 1, 2), ("t-1", 2, 5)]
        for folder, number, ordinal in scans:
            found = journal.scan_of(folder, a_request(number), STAT)
            if ordinal <= count:
                assert_same_scan(found, a_scan(number))
            else:
                assert found is None
        assert set(journal.commits) == {f for f, ordinal in (("t-0", 3), ("t-1", 6)) if ordinal <= count}
        assert set(journal.notes) == ({"hand-off"} if count >= 4 else set())
        if count >= 3:
            assert journal.commits["t-0"] == {"logEndOffset": 5, "saved": ["ü", "\udcff"]}

    def test_torn_at_every_byte_what_is_before_counts(self, journal: Journal, path: str) -> None:
        data, ends = self.whole(journal, path)
        for size in range(ends[0], len(data) + 1):
            Path(path).write_bytes(data[:size])
            with reopened(path, read_only=True) as found:
                self.assert_is_prefix(found, sum(end <= size for end in ends) - 1)
            assert Path(path).stat().st_size == size

    def test_every_flipped_byte_is_noticed(self, journal: Journal, path: str) -> None:
        data, ends = self.whole(journal, path)
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << position % 8
            Path(path).write_bytes(damaged)
            if position < START.size:
                with pytest.raises(JournalError):
                    Journal.open(path)
                continue
            found = Journal.open(path, read_only=True)
            if position < ends[0]:
                assert found is None
                continue
            assert found is not None
            self.assert_is_prefix(found, sum(end <= position for end in ends) - 1)
            found.close()

    def test_who_goes_on_cuts_the_torn_end_first(self, journal: Journal, path: str) -> None:
        data, ends = self.whole(journal, path)
        for size in (ends[4] - 1, ends[4] + 1, ends[3] + 5):
            Path(path).write_bytes(data[:size] + b"\xff" * 5000)
            with reopened(path) as found:
                count = sum(end <= size for end in ends)
                assert Path(path).stat().st_size == ends[count - 1]
                found.commit("t-7", {"x": 1})
            with reopened(path) as again:
                assert again.commits["t-7"] == {"x": 1}
                assert again.commits["t-0"]["logEndOffset"] == 5

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def test_nothing_but_what_was_written_comes_out_of_damage(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        path = str(tmp_path / "journal")
        with Journal.create(path, a_header(tmp_path)) as journal:
            filled(journal)
        content = bytearray(Path(path).read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            begin = data.draw(st.integers(0, len(content)))
            end = data.draw(st.integers(begin, min(begin + 400, len(content))))
            content[begin:end] = data.draw(st.one_of(st.binary(max_size=40), st.just(bytes(content[:200]))))
        Path(path).write_bytes(content)
        try:
            found = Journal.open(path)
        except JournalError:
            return
        if found is None:
            return
        with found:
            assert set(found.commits) <= {"t-0", "t-1"}
            for number in range(3):
                scan = found.scan_of(f"t-{number // 2}", a_request(number), STAT)
                if scan is not None:
                    assert_same_scan(scan, a_scan(number))

    def test_a_record_of_another_segment_is_never_taken_for_the_one_that_is_asked_for(
        self, journal: Journal
    ) -> None:
        filled(journal)
        for key in journal._scans:
            journal._scans[key] = max(journal._scans.values())  # as if two keys had one digest
        assert journal.scan_of("t-0", a_request(0), STAT) is None
        assert_same_scan(journal.scan_of("t-1", a_request(2), STAT), a_scan(2))

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def test_a_power_failure_takes_nothing_that_was_committed(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        """What was written after the last sync may be missing, torn, zero or garbage, sector by sector."""
        path = str(tmp_path / "journal")
        with Journal.create(path, a_header(tmp_path)) as journal:
            journal.add_scan("t-0", a_request(0), STAT, a_scan(0))
            journal.commit("t-0", {"a": 1})
            synced_bytes = os.path.getsize(path)
            for number in range(1, 4):
                journal.add_scan("t-0", a_request(number), STAT, a_scan(number))
        content = bytearray(Path(path).read_bytes())
        for begin in range(synced_bytes, len(content), 512):
            end = min(begin + 512, len(content))
            fate = data.draw(st.sampled_from(["kept", "zero", "garbage"]))
            if fate != "kept":
                content[begin:end] = bytes(end - begin) if fate == "zero" else os.urandom(end - begin)
        Path(path).write_bytes(content[: data.draw(st.integers(synced_bytes, len(content)))])
        with reopened(path) as found:
            assert dict(found.commits) == {"t-0": {"a": 1}}
            assert_same_scan(found.scan_of("t-0", a_request(0), STAT), a_scan(0))
            for number in range(1, 4):
                scan = found.scan_of("t-0", a_request(number), STAT)
                if scan is not None:
                    assert_same_scan(scan, a_scan(number))
            found.commit("t-1", {"b": 2})
        with reopened(path, read_only=True) as again:
            assert dict(again.commits) == {"t-0": {"a": 1}, "t-1": {"b": 2}}

    def test_a_record_counts_only_where_it_was_written(self, journal: Journal, path: str) -> None:
        data, ends = self.whole(journal, path)
        moved = data[: ends[0]] + data[ends[1] :]
        Path(path).write_bytes(moved)
        with reopened(path) as found:
            self.assert_is_prefix(found, 0)

    def test_a_document_that_rots_while_it_is_open(self, journal: Journal, path: str) -> None:
        filled(journal)
        with open(path, "r+b") as file:
            file.truncate(2000)
        assert journal.scan_of("t-1", a_request(2), STAT) is None
        with pytest.raises(JournalError, match="was whole"):
            journal.commits["t-1"]


class TestForged:
    """Records whose checksums are right: whoever may write the folder may write those."""

    def forge(self, path: str, kind: RecordKind, payload: bytes) -> None:
        position = os.path.getsize(path)
        checksum = journal_record.payload_checksum(kind, [payload])
        checksum = journal_record.end_checksum(checksum, position)
        with open(path, "ab") as file:
            file.write(PREFIX.pack(kind.value, len(payload), checksum) + payload)

    @pytest.mark.parametrize("kind", RecordKind)
    @pytest.mark.parametrize(
        "head",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"key": {"a": NaN}, "folder": NaN, "name": [1]}',
            b'{"key": {"a": 1e999}}',
            b'{"key": {"a": {}}, "folder": 1, "name": null}',
            b'{"key": {"a": ' + b"9" * 5000 + b"}}",
            b'{"key":' + b"[" * 20_000,
            b"\xff\xfe\x00",
        ],
    )
    def test_an_odd_head_ends_the_reading(
        self, journal: Journal, path: str, kind: RecordKind, head: bytes
    ) -> None:
        journal.commit("t-0", {})
        journal.close()
        end = os.path.getsize(path)
        self.forge(path, kind, len(head).to_bytes(4, "big") + head)
        with reopened(path) as found:
            assert list(found.commits) == ["t-0"]
        assert os.path.getsize(path) == end

    @pytest.mark.parametrize("size", [0, 1, 3, 4, 1 << 16, (1 << 16) + 1, (1 << 32) - 1])
    def test_a_head_longer_than_its_record(self, journal: Journal, path: str, size: int) -> None:
        journal.close()
        self.forge(path, RecordKind.COMMIT, size.to_bytes(4, "big")[: size if size < 4 else 4])
        with reopened(path) as found:
            assert list(found.commits) == []

    def test_a_document_that_is_no_object(self, journal: Journal, path: str) -> None:
        journal.close()
        head = b'{"folder":"t-0"}'
        self.forge(path, RecordKind.COMMIT, len(head).to_bytes(4, "big") + head + b"[1]")
        with reopened(path) as found, pytest.raises(JournalError):
            found.commits["t-0"]

    def test_a_first_record_that_is_no_header(self, path: str, log_dir: Path) -> None:
        for name, value in (
            ("now_ms", "5"),
            ("now_ms", True),
            ("folders", {"t-0": 1}),
            ("configuration", []),
            ("had_clean_shutdown", 1),
            ("log_dir", None),
            ("extra", 1),
        ):
            Journal.create(path, a_header(log_dir)).close()
            content = Path(path).read_bytes()
            (size,) = PREFIX.unpack_from(content, START.size)[1:2]
            payload = content[START.size + PREFIX.size :][:size]
            found = journal_record.read_payload(payload)
            assert found is not None
            document = json.loads(bytes(found[1])) | {name: value}
            Path(path).write_bytes(content[: START.size])
            forged = journal_record.encode_payload(found[0], [json.dumps(document).encode()])
            assert forged is not None
            self.forge(path, RecordKind.HEADER, b"".join(forged))
            with pytest.raises(JournalError, match="first record"):
                Journal.open(path)


class TestForeign:
    def test_a_file_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "journal").write_bytes(b"#!/bin/sh\nexit 1\n")
        with pytest.raises(JournalError, match=r"byte 0: not a journal.* Remedy: ") as caught:
            Journal.open(str(tmp_path / "journal"))
        assert caught.value.exit_code == 3
        assert (tmp_path / "journal").read_bytes() == b"#!/bin/sh\nexit 1\n"

    def test_another_version(self, tmp_path: Path) -> None:
        (tmp_path / "journal").write_bytes(START.pack(b"KLRJ", 2) + b"whatever")
        with pytest.raises(JournalError, match=r"version 2 .* this tool knows 1\. Remedy: "):
            Journal.open(str(tmp_path / "journal"))

    def test_a_link_is_refused_and_not_followed(self, journal: Journal, path: str, tmp_path: Path) -> None:
        journal.close()
        os.rename(path, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", path)
        before = (tmp_path / "elsewhere").read_bytes()
        for read_only in (True, False):
            with pytest.raises(JournalError, match="not a regular file"):
                Journal.open(path, read_only=read_only)
        assert (tmp_path / "elsewhere").read_bytes() == before

    def test_a_new_journal_takes_the_place_of_a_link(self, path: str, log_dir: Path, tmp_path: Path) -> None:
        os.mkdir(os.path.dirname(path))
        victim = tmp_path / "victim"
        victim.write_text("mine")
        for name in (path, path + ".new"):
            os.symlink(victim, name)
        Journal.create(path, a_header(log_dir)).close()
        assert victim.read_text() == "mine"
        assert not os.path.islink(path)
        assert not os.path.lexists(path + ".new")

    @pytest.mark.parametrize("read_only", [True, False])
    def test_a_folder_and_a_pipe(self, tmp_path: Path, read_only: bool) -> None:
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "pipe")
        for name in ("folder", "pipe"):
            with pytest.raises(JournalError, match="not a regular file"):
                Journal.open(str(tmp_path / name), read_only=read_only)


class TestReadOnly:
    def test_it_changes_nothing_and_takes_nothing(self, journal: Journal, path: str) -> None:
        filled(journal)
        journal.close()
        with open(path, "ab") as file:
            file.write(b"torn")
        before = Path(path).read_bytes(), os.stat(path).st_mtime_ns
        with reopened(path, read_only=True) as found:
            assert not found.add_scan("t-5", a_request(5), STAT, a_scan(5))
            assert found.scan_of("t-5", a_request(5), STAT) is None
            with pytest.raises(OSError, match="reading only"):
                found.commit("t-5", {})
            with pytest.raises(OSError, match="reading only"):
                found.note("x", {})
            assert len(found.commits) == 2
        assert (Path(path).read_bytes(), os.stat(path).st_mtime_ns) == before


class TestPlace:
    def test_file_and_folder_belong_to_the_owner_of_the_log_dir(self, path: str, log_dir: Path) -> None:
        owner = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        os.chown(log_dir, *owner)
        Journal.create(path, a_header(log_dir)).close()
        for made in (path, os.path.dirname(path)):
            assert (os.stat(made).st_uid, os.stat(made).st_gid) == owner
        assert os.stat(path).st_mode & 0o777 == 0o600

    def test_removed_with_the_folder_that_was_made_for_it(self, journal: Journal, path: str) -> None:
        journal.close()
        reopened(path).remove()
        assert not os.path.lexists(os.path.dirname(path))

    def test_a_folder_with_something_in_it_stays(self, journal: Journal, path: str) -> None:
        (Path(path).parent / "20261121T000000Z").mkdir()
        journal.remove()
        assert os.listdir(os.path.dirname(path)) == ["20261121T000000Z"]

    def test_a_folder_that_was_there_stays(self, path: str, log_dir: Path) -> None:
        os.mkdir(os.path.dirname(path))
        Journal.create(path, a_header(log_dir)).remove()
        assert os.listdir(os.path.dirname(path)) == []

    def test_removed_twice(self, journal: Journal) -> None:
        journal.remove()
        with pytest.raises(FileNotFoundError):
            journal.remove()

    def test_a_torn_journal_gives_way_to_a_new_one(self, path: str, log_dir: Path) -> None:
        os.mkdir(os.path.dirname(path))
        Path(path).write_bytes(b"KLRJ\0")
        Path(path + ".new").write_bytes(b"left by a kill")
        Journal.create(path, a_header(log_dir)).close()
        assert reopened(path).header == a_header(log_dir)
        assert os.listdir(os.path.dirname(path)) == ["journal"]


class TestFailingWrites:
    @pytest.fixture
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Numbers of bytes that may still be written, one for each call; then no space is left."""
        allowed: list[int] = []

        def limited(descriptor: int, pieces: list[memoryview], position: int) -> int:
            if not allowed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.pwrite(descriptor, b"".join(pieces)[: allowed.pop(0)], position)

        monkeypatch.setattr(journal_file.os, "pwritev", limited)
        return allowed

    @pytest.mark.parametrize("short", [[], [1], [11, 1], [500]])
    def test_a_scan_that_finds_no_space_leaves_no_trace(
        self, path: str, log_dir: Path, failing: list[int], short: list[int]
    ) -> None:
        failing += [1 << 20] * 8
        journal = Journal.create(path, a_header(log_dir))
        filled(journal)
        before = Path(path).read_bytes()
        failing[:] = short
        with pytest.raises(OSError, match="No space left") as caught:
            journal.add_scan("t-3", a_request(3), STAT, a_scan(3))
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == path
        assert Path(path).read_bytes() == before
        assert journal.scan_of("t-3", a_request(3), STAT) is None
        failing += [7, 1 << 20]
        journal.commit("t-4", {"n": 4})
        journal.close()
        with reopened(path) as again:
            assert again.commits["t-4"] == {"n": 4}
            assert again.scan_count == 3

    def test_what_cannot_be_cut_back_is_written_over(
        self, journal: Journal, path: str, failing: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "no")

        before = Path(path).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(journal_file.os, "ftruncate", refuse)
            failing += [300]
            with pytest.raises(OSError, match="No space left"):
                journal.add_scan("t-3", a_request(3), STAT, a_scan(3))
            assert len(Path(path).read_bytes()) == len(before) + 300
            with pytest.raises(OSError, match="no"):
                journal.commit("t-0", {})
        failing += [1 << 20]
        journal.commit("t-0", {"a": 1})
        with reopened(path, read_only=True) as again:
            assert dict(again.commits) == {"t-0": {"a": 1}}
            assert again.scan_count == 0

    def test_a_journal_that_cannot_be_begun_leaves_nothing(
        self, path: str, log_dir: Path, failing: list[int]
    ) -> None:
        for allowed in ([], [8], [3], [8, 20]):
            failing[:] = allowed
            with pytest.raises(OSError, match="No space left"):
                Journal.create(path, a_header(log_dir))
            assert not os.path.lexists(os.path.dirname(path))

    @pytest.mark.parametrize("call", ["fsync", "rename", "fstat"])
    def test_nor_does_one_that_cannot_be_brought_to_disk(
        self, path: str, log_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "no")

        os.mkdir(os.path.dirname(path))
        with monkeypatch.context() as patch:
            patch.setattr(journal_file.os, call, refuse)
            with pytest.raises(OSError, match="no"):
                Journal.create(path, a_header(log_dir))
        assert os.listdir(os.path.dirname(path)) == []

    def test_a_read_that_fails_costs_a_scan_and_names_the_file(
        self, journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        filled(journal)
        monkeypatch.setattr(journal_file.os, "pread", refuse)
        assert journal.scan_of("t-0", a_request(0), STAT) is None
        for read in (lambda: journal.commits["t-0"], lambda: Journal.open(path)):
            with pytest.raises(OSError, match="Input/output error") as caught:
                read()
            assert caught.value.filename == path

    def test_a_torn_end_that_cannot_be_cut_names_the_file(
        self, journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        with open(path, "ab") as file:
            file.write(b"torn")
        monkeypatch.setattr(journal_file.os, "ftruncate", refuse)
        with pytest.raises(OSError, match="Read-only") as caught:
            Journal.open(path)
        assert caught.value.filename == path
        assert Journal.open(path, read_only=True) is not None

    def test_a_commit_that_is_not_on_disk_does_not_count_here(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "no")

        monkeypatch.setattr(journal_file.os, "fsync", refuse)
        with pytest.raises(OSError, match="no") as caught:
            journal.commit("t-0", {})
        assert caught.value.filename == journal.path
        assert "t-0" not in journal.commits

    def test_scans_leave_as_much_space_as_they_take(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = os.statvfs(journal.path)
        free_bytes = [0]

        class Volume:
            f_frsize = 1

            @property
            def f_bavail(self) -> int:
                return free_bytes[0]

        assert found.f_frsize > 0
        monkeypatch.setattr(journal_file.os, "fstatvfs", lambda _: Volume())
        scan = a_scan(0, rows=100_000)
        size = sum(getattr(scan, name).nbytes for name in ARRAYS)
        for free in (0, size, size + (1 << 20), 2 * size):
            free_bytes[0] = free
            assert not journal.add_scan("t-0", a_request(), STAT, scan)
        journal.commit("t-0", {})
        free_bytes[0] = 2 * size + 10_000
        assert journal.add_scan("t-0", a_request(), STAT, scan)


def test_a_commit_brings_all_before_it_to_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr(journal_file.os, "fsync", note)
    journal.add_scan("t-0", a_request(), STAT, a_scan())
    assert sizes == []
    journal.commit("t-0", {})
    journal.note("x", {})
    assert sizes == sorted(sizes)
    assert sizes[-1] == os.path.getsize(journal.path)
    assert len(sizes) == 2


def test_each_record_is_one_write(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    pwritev = os.pwritev

    def note(descriptor: int, pieces: list[memoryview], position: int) -> int:
        writes.append(position)
        return pwritev(descriptor, pieces, position)

    monkeypatch.setattr(journal_file.os, "pwritev", note)
    filled(journal)
    assert len(writes) == 6


def test_two_threads_do_not_meet(journal: Journal, path: str) -> None:
    def work(number: int) -> None:
        for item in range(50):
            journal.add_scan(f"t-{number}", a_request(item), STAT, a_scan(item, rows=1 + item % 7))
            if item % 10 == 0:
                journal.commit(f"t-{number}", {"item": item})
            assert_same_scan(
                journal.scan_of(f"t-{number}", a_request(item), STAT), a_scan(item, rows=1 + item % 7)
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reopened(path) as again:
        assert dict(again.commits) == {f"t-{number}": {"item": 40} for number in range(4)}
        for number in range(4):
            for item in range(50):
                found = again.scan_of(f"t-{number}", a_request(item), STAT)
                assert_same_scan(found, a_scan(item, rows=1 + item % 7))


def test_memory_does_not_follow_the_size(path: str, log_dir: Path) -> None:
    """120 MB of scans: neither writing nor opening keeps them."""
    journal = Journal.create(path, a_header(log_dir))
    scan = a_scan(0, rows=20_000)
    tracemalloc.start()
    try:
        for number in range(60):
            assert journal.add_scan("t-0", a_request(number), STAT, scan)
        journal.close()
        assert os.path.getsize(path) > 100 << 20
        with reopened(path) as again:
            assert again.scan_count == 60
            assert again.scan_of("t-0", a_request(30), STAT) is not None
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    os.unlink(path)


class TestListing:
    FILES: ClassVar = {
        "a.log": FileStat(size_bytes=1, mtime_ns=2, inode=3),
        "b\udcff.log": FileStat(size_bytes=4),
    }

    def test_order_does_not_matter(self) -> None:
        assert listing_digest(self.FILES) == listing_digest(dict(reversed(self.FILES.items())))

    def test_everything_else_does(self) -> None:
        found = {
            listing_digest(self.FILES),
            listing_digest({}),
            listing_digest({"a.log": self.FILES["a.log"]}),
        }
        for changed in (
            FileStat(size_bytes=2, mtime_ns=2, inode=3),
            FileStat(size_bytes=1, mtime_ns=3, inode=3),
            FileStat(size_bytes=1, mtime_ns=2, inode=4),
        ):
            found.add(listing_digest(self.FILES | {"a.log": changed}))
        assert len(found) == 6

    def test_what_a_load_does_not_write_to_does_not(self) -> None:
        more = dict.fromkeys(("c.log.deleted", "b.index.recovery-tmp", "NOTE"), FileStat(size_bytes=1))
        assert listing_digest(self.FILES | more) == listing_digest(self.FILES)


def test_the_checksum_is_that_of_the_formats_page() -> None:
    """CRC-32 of kind, length, payload and position, in this order."""
    data = b"NOTE" + (3).to_bytes(4, "big") + b"abc" + (77).to_bytes(8, "big")
    checksum = journal_record.payload_checksum(RecordKind.NOTE, [b"a", b"", memoryview(b"bc")])
    assert journal_record.end_checksum(checksum, 77) == zlib.crc32(data)
