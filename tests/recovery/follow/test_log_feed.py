"""Bytes of a log as they come: over rotation of every kind, through a pipe, in lines of any length."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.errors import UsageError
from recovery.follow import log_feed
from recovery.follow.log_feed import LONGEST_LINE_BYTES, FileFeed, Lines, StreamFeed, open_feed

KEYS = (b"key", b"word")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    return path


@pytest.fixture
def feed(log: Path) -> Iterator[FileFeed]:
    found = FileFeed(str(log))
    yield found
    found.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def everything(feed: FileFeed) -> bytes:
    found = b""
    while data := feed.read(0):
        found += data
    return found


class TestFile:
    def test_what_is_appended(self, feed: FileFeed, log: Path) -> None:
        assert everything(feed) == b"one\n"
        append(log, b"tw")
        append(log, b"o\n")
        assert everything(feed) == b"two\n"
        assert everything(feed) == b""

    def test_renamed_and_created_anew(self, feed: FileFeed, log: Path) -> None:
        everything(feed)
        with log.open("ab") as writer:
            log.rename(log.with_suffix(".1"))
            writer.write(b"late\n")
        assert everything(feed) == b"late\n"
        log.write_bytes(b"new\n")
        append(log.with_suffix(".1"), b"later\n")
        assert everything(feed) == b"later\nnew\n"

    def test_what_is_written_between_the_last_look_and_the_rotation(
        self, feed: FileFeed, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        everything(feed)
        look = feed._has_other_file

        def write_first() -> bool:
            if not log.with_suffix(".1").exists():
                append(log, b"late\n")
                log.rename(log.with_suffix(".1"))
                log.write_bytes(b"new\n")
            return look()

        monkeypatch.setattr(feed, "_has_other_file", write_first)
        assert everything(feed) == b"late\nnew\n"

    def test_cut_and_written_anew(self, feed: FileFeed, log: Path) -> None:
        append(log, b"two\n" * 100)
        everything(feed)
        os.truncate(log, 0)
        assert everything(feed) == b""
        append(log, b"new\n")
        assert everything(feed) == b"new\n"

    def test_cut_and_grown_past_the_place_between_two_looks(self, feed: FileFeed, log: Path) -> None:
        everything(feed)
        os.truncate(log, 0)
        append(log, b"another beginning\n" * 10)
        assert everything(feed) == b"another beginning\n" * 10

    def test_replaced_by_a_link_to_another_file(self, feed: FileFeed, log: Path) -> None:
        everything(feed)
        (log.parent / "server.2.log").write_bytes(b"new\n")
        (log.parent / "link").symlink_to("server.2.log")
        (log.parent / "link").rename(log)
        assert everything(feed) == b"new\n"
        (log.parent / "server.3.log").write_bytes(b"newer\n")
        (log.parent / "link").symlink_to("server.3.log")
        (log.parent / "link").rename(log)
        assert everything(feed) == b"newer\n"

    def test_gone_and_back(self, feed: FileFeed, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        everything(feed)
        log.unlink()
        assert everything(feed) == b""
        assert not feed.is_lost
        monkeypatch.setattr(log_feed, "_MISSING_S", -1.0)
        assert feed.is_lost
        log.write_bytes(b"back\n")
        assert everything(feed) == b"back\n"
        assert not feed.is_lost

    def test_a_file_that_is_not_there_yet(self, tmp_path: Path) -> None:
        path = tmp_path / "later.log"
        with pytest.raises(UsageError, match=r"No such file or directory\. Remedy: "):
            open_feed(str(path), may_be_missing=False)
        feed = open_feed(str(path), may_be_missing=True)
        assert feed.read(0) == b""
        path.write_bytes(b"now\n")
        assert feed.read(0) == b"now\n"
        feed.close()

    def test_a_folder_is_no_log(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not a regular file"):
            open_feed(str(tmp_path), may_be_missing=False)

    def test_no_descriptor_is_left_behind(self, feed: FileFeed, log: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            everything(feed)
            log.unlink()
            log.write_bytes(b"x\n")
        everything(feed)
        assert len(os.listdir("/proc/self/fd")) == before


class TestPipe:
    def test_until_its_end(self) -> None:
        reader, writer = os.pipe()
        feed = StreamFeed(reader, "standard input")
        assert feed.read(0) == b""
        assert not feed.has_ended
        os.write(writer, b"one\n")
        assert feed.read(1) == b"one\n"
        os.close(writer)
        assert feed.read(1) == b""
        assert feed.has_ended
        feed.close()

    def test_one_with_a_name(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        both = os.open(path, os.O_RDWR)  # else opening waits for the other side
        feed = open_feed(str(path), may_be_missing=False)
        os.write(both, b"one\n")
        assert feed.read(1) == b"one\n"
        os.close(both)
        assert (feed.read(1), feed.has_ended) == (b"", True)
        feed.close()


class TestLines:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
    def test_the_lines_with_keywords_in_their_order_wherever_chunks_end(self, size: int) -> None:
        data = b"a key\nnothing\r\n\nword key word\nkeyword\nno\nthe last word"
        lines = Lines()
        found = [line for i in range(0, len(data), size) for line in lines.split(data[i : i + size], KEYS)]
        assert [line.rstrip() for line in found] == [b"a key", b"word key word", b"keyword"]
        assert lines.last(KEYS) == [b"the last word"]
        assert lines.last(KEYS) == []

    def test_a_line_without_end_takes_no_memory(self) -> None:
        lines = Lines()
        tracemalloc.start()
        try:
            for _ in range(200):
                assert lines.split(b"key" * 300_000, KEYS) == []
            assert tracemalloc.get_traced_memory()[1] < 5 << 20
        finally:
            tracemalloc.stop()
        (long, short) = lines.split(b"\nkey\n", KEYS)
        assert (len(long), short) == (LONGEST_LINE_BYTES, b"key")

    def test_a_long_line_within_a_chunk_is_cut(self) -> None:
        (line,) = Lines().split(b"x" * 10 + b"\n" + b"key" * 100_000 + b"\n", KEYS)
        assert len(line) == LONGEST_LINE_BYTES
