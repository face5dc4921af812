"""Copies to a real S3 server, and back from it: objects of several parts, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.stores.stores import open_store
from tests.brokers.tiered_broker import unpack_tiered
from tests.faults.bad_sector import bad_sector
from tests.logs.samples import unpack
from tests.runs.command import run
from tests.servers.s3_server import BUCKET, S3Server, in_environment

pytestmark = pytest.mark.s3

LARGE_BYTES = 200 << 20


@pytest.fixture
def served(s3_server: S3Server) -> Iterator[S3Server]:
    with in_environment(s3_server.environment()):
        yield s3_server


class Ending:
    """Bytes of which the last ones cannot be read."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def read(self, size_bytes: int, /) -> bytes:
        part = min(size_bytes, self.left_bytes)
        self.left_bytes -= part
        return bytes(part)


def test_log_dirs_come_back_from_a_bucket(served: S3Server, tmp_path: Path) -> None:
    archive = unpack_tiered(tmp_path)
    config = archive.root / "server.properties"
    url = f"s3://{BUCKET}/copy-and-back"
    done = run("archive", "copy", "-c", config, "--output", url)
    assert done.exit_code == 0, done.stderr
    again = run("archive", "copy", "-c", config, "--output", url, "--format", "json")
    assert [one["files"] for one in again.report["logDirs"]] == [0, 0]
    before = {path.name: path.read_bytes() for path in (archive.root / "d2/untiered-0").glob("*.log")}
    shutil.rmtree(archive.root / "d2/untiered-0")
    back = run("archive", "restore", url, "-c", config, "--partition", "untiered-0", "--progress", "none")
    assert back.exit_code == 0, back.stdout + back.stderr
    assert {path.name: path.read_bytes() for path in (archive.root / "d2/untiered-0").glob("*.log")} == before


def test_an_object_of_many_parts_takes_little_memory(served: S3Server, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    large = next(path for path in sample.log_dirs[0].iterdir() if path.name[-2:] == "-0") / "large.bin"
    with open(large, "wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    url = f"s3://{BUCKET}/large"
    # The high-water mark of the new program alone: getrusage counts what the process was before it, a copy of this one.
    code = (
        "import re; from recovery.archive.copy.options import CopyOptions;"
        "from recovery.archive.copy.run import copy;"
        f"report = copy(CopyOptions(output={url!r}, log_dirs=({str(sample.log_dirs[0])!r},)));"
        "status = open('/proc/self/status').read();"
        "print(report.exit_code, int(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]) * 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    exit_code, peak_bytes = map(int, done.stdout.split())
    assert exit_code == 0
    assert peak_bytes < LARGE_BYTES
    store = open_store(url)
    key = f"{sample.log_dirs[0].name}/{large.parent.name}/large.bin"
    assert store.stat(key).size_bytes == LARGE_BYTES
    assert store.read(key, most_bytes=LARGE_BYTES) == large.read_bytes()


def test_folders_whose_names_a_bucket_does_not_take(served: S3Server, tmp_path: Path) -> None:
    """The files below them are named, and all else is copied."""
    folder = tmp_path / "d1" / "t-0"
    odd = [folder / "a\nb" / "file", tmp_path / "d1" / "u\udcff-0" / "file"]
    for path in (*odd, folder / f"{0:020}.log"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    options = CopyOptions(output=f"s3://{BUCKET}/odd", log_dirs=(str(tmp_path / "d1"),))
    for _ in range(2):
        report = copy(options)
        assert [one.file for one in report.log_dirs[0].failed] == list(map(str, odd))
        assert all("the output does not take its name" in one.error for one in report.log_dirs[0].failed)
    assert report.log_dirs[0].skipped_files == 1


@pytest.mark.parametrize("readable", [0, 5 << 20, 40 << 20])
def test_an_object_that_cannot_be_read_is_not_there(served: S3Server, readable: int) -> None:
    store = open_store(f"s3://{BUCKET}/broken")
    assert store.send("object", Ending(readable), 64 << 20) == ""
    with pytest.raises(FileNotFoundError):
        store.stat("object")


@pytest.mark.parametrize(("readable", "held"), [(5 << 20, True), (40 << 20, False)])
def test_what_could_be_read_gets_a_key_of_its_own_as_far_as_it_is_held(
    served: S3Server, readable: int, held: bool
) -> None:
    """The parts of a large object cannot get another key."""
    store = open_store(f"s3://{BUCKET}/held")
    size_bytes = 6 << 20 if held else 64 << 20
    sent_as = store.send("object", Ending(readable), size_bytes, part_key=lambda: "part")
    assert sent_as == ("part" if held else "")
    assert [one.name for one in store.list_level("").objects] == (["part"] if held else [])
    if held:
        store.remove("part")


def test_no_bucket(served: S3Server, tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    report = copy(CopyOptions(output="s3://nosuch-bucket/x", log_dirs=(str(sample.log_dirs[0]),)))
    assert report.exit_code == 1
    assert report.to_text().startswith(
        "FAILED s3://nosuch-bucket/x/kafka-log-recovery-copy.jsonl: no such bucket. Remedy: see to the output"
    )
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        open_store("s3://nosuch-bucket").list_level("")
    assert report.log_dirs[0].left_files > 10


@pytest.mark.parametrize("size_bytes", [1 << 20, 20 << 20], ids=["one part", "several parts"])
def test_an_object_whose_file_has_other_bytes_now_stays(
    served: S3Server, tmp_path: Path, size_bytes: int
) -> None:
    log = tmp_path / "d1" / "t-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    before = os.urandom(size_bytes)
    log.write_bytes(before)
    url = f"s3://{BUCKET}/earlier-{size_bytes}"
    options = CopyOptions(output=url, log_dirs=(str(tmp_path / "d1"),))
    copy(options)
    log.write_bytes(b"x" + before)
    (kept,) = copy(options).log_dirs[0].kept
    store, key = open_store(url), f"d1/t-0/{log.name}"
    assert kept.kept_as == f"{key}.earlier"
    assert store.read(kept.kept_as, most_bytes=1 << 30) == before
    assert store.read(key, most_bytes=1 << 30) == log.read_bytes()
    os.truncate(log, 0)
    assert copy(options).log_dirs[0].kept[0].kept_as == f"{key}.earlier.2"
    assert store.keep(f"{key}.earlier", [f"{key}.earlier", key, "free"]) == f"{key}.earlier"


@pytest.mark.parametrize("size_bytes", [1 << 20, 20 << 20], ids=["one part", "several parts"])
def test_the_part_of_a_file_goes_once_all_of_it_is_there(
    served: S3Server, tmp_path: Path, size_bytes: int
) -> None:
    log = tmp_path / "d1" / "t-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(os.urandom(size_bytes))
    bad = size_bytes - 10_000
    kept = bad // 4096 * 4096
    url = f"s3://{BUCKET}/parts-{size_bytes}"
    options = CopyOptions(output=url, log_dirs=(str(tmp_path / "d1"),))
    store, key = open_store(url), f"d1/t-0/{log.name}"
    with bad_sector(log, bad):
        (failed,) = copy(options).log_dirs[0].failed
    assert (failed.position, failed.kept_bytes, failed.kept_as) == (kept, kept, f"{key}.partial")
    assert store.read(f"{key}.partial", most_bytes=size_bytes) == log.read_bytes()[:kept]
    with bad_sector(log, bad) as reads:
        (failed,) = copy(options).log_dirs[0].failed
    assert (failed.is_kept_earlier, len(reads)) == (True, 1)
    assert [one.name for one in store.list_level("d1/t-0/").objects] == [f"{log.name}.partial"]
    assert copy(options).exit_code == 0
    assert [one.name for one in store.list_level("d1/t-0/").objects] == [log.name]
    assert store.read(key, most_bytes=size_bytes) == log.read_bytes()
    with bad_sector(log, 0):
        assert copy(options).log_dirs[0].skipped_files == 1
        restarted = CopyOptions(output=url, log_dirs=options.log_dirs, restart=True)
        (failed,) = copy(restarted).log_dirs[0].failed
    assert (failed.kept_bytes, failed.earlier_copy) == (0, "same")
    assert store.stat(key).size_bytes == size_bytes
