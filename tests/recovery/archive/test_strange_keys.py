"""Names that no broker gives, and links that lead nowhere: they are named, and the rest is judged as without them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.verdict_rows import object_row
from recovery.archive.engine.run import OutputError
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.stores import open_store
from recovery.spark import archive
from segfmt.filenames import log_name
from segfmt.java_text import LONG_MAX
from tests.logs.archives import LOG, made_copies, write_archive
from tests.logs.builders import data_batch
from tests.recovery.archive.test_kept_scans import Runs
from tests.runs.goings import run_through
from tests.servers.s3_server import in_environment


def judged(root: Path, *, files_from: Path | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    """What could not be looked at, and the rows of all objects."""
    options = CheckOptions(
        url=str(root), files_from=None if files_from is None else str(files_from), now_ms=1
    )
    report, verdicts = run_through(options)
    rows = [object_row(verdict, one) for verdict in verdicts for one in verdict.objects]
    unlisted = [f"{one.prefix}: {one.error}" for one in report.unlisted]
    return unlisted, [row | {"version": ""} for row in rows]


def _byte_name(folder: Path, name: bytes) -> bytes:
    return os.path.join(os.fsencode(folder), name)


def _foreign_folder(root: Path, folder: Path) -> None:
    os.mkdir(_byte_name(root, b"\xff-0"))
    (root / os.fsdecode(b"\xff-0") / log_name(0)).write_bytes(b"")


def _circle_of_two(root: Path, folder: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    (root / "a" / "to-b").symlink_to(root / "b")
    (root / "b" / "to-a").symlink_to(root / "a")


@pytest.mark.parametrize("layout", ["plain", "local-tiered"])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (_foreign_folder, ["\\udcff-0/: the name of the folder is not UTF-8"]),
        (
            lambda root, folder: (folder / "loop").symlink_to("loop"),
            ["/loop: Too many levels of symbolic links"],
        ),
        (lambda root, folder: (root / "up").symlink_to(root), ["up/: a link to a folder that it is in"]),
        (
            lambda root, folder: (root / "out").symlink_to(root.parent),
            ["out/: a link to a folder that it is in"],
        ),
        (_circle_of_two, ["a/to-b/to-a/: a link to", "b/to-a/to-b/: a link to"]),
        (
            lambda root, folder: (folder / "gone").symlink_to("nowhere"),
            ["/gone: a link to a file that is not there"],
        ),
    ],
    ids=["folder", "loop", "up", "out", "circle", "dangling"],
)
def test_it_is_named_and_the_rest_is_judged(
    make: Callable[[Path, Path], object], named: list[str], layout: str, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    write_archive(root, layout, made_copies(segments=2))
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    _, expected = judged(root)
    make(root, folder)
    unlisted, rows = judged(root)
    assert len(unlisted) == len(named)
    for line, part in zip(sorted(unlisted), named, strict=True):
        assert part in line
        line.encode()  # it can be printed, and kept
    assert rows == expected


@pytest.mark.parametrize("layout", ["plain", "local-tiered"])
def test_files_of_strange_names_are_kept_and_named(layout: str, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    write_archive(root, layout, made_copies(segments=2))
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    for name in (b"\xff.log", b"\x1b[2J.snapshot", b"a\nb", b"\xff"):
        Path(os.fsdecode(_byte_name(folder, name))).write_bytes(b"x")
    runs = Runs(root, tmp_path / "output")
    rows = runs.verdicts()
    assert runs.verdicts() == rows
    assert runs.read_count == 0
    damaged = {row["key"].rpartition("/")[2] for row in rows if row.get("valid") is False}
    assert damaged == ({"\\udcff.log", "\x1b[2J.snapshot"} if layout == "plain" else set())


@pytest.mark.parametrize("key", ["/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_no_key_leads_out_of_a_folder(key: str, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "output"))
    for act in (store.stat, store.open, lambda key: store.read(key, most_bytes=1)):
        with pytest.raises(OSError, match="the key leads out of"):
            act(key)
    for write in (store.create, store.replace):
        with pytest.raises(OSError, match="the key leads out of"):
            write(key, b"x")


def test_a_list_names_what_cannot_be_a_key(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    write_archive(root, "local-tiered", made_copies(segments=2))
    _, expected = judged(root)
    keys = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    (tmp_path / "list").write_text("\n".join([*keys, "../../etc/passwd", "/etc/passwd"]))
    unlisted, rows = judged(root, files_from=tmp_path / "list")
    assert [line.partition(": ")[0] for line in unlisted] == ["../../etc/passwd", "/etc/passwd"]
    assert rows == expected


@pytest.fixture
def strange_bucket() -> Iterator[str]:
    """An S3 server that lists one key, which real ones hold and the one of the other tests cannot."""
    listing = (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><KeyCount>1</KeyCount>'
        "<IsTruncated>false</IsTruncated><Contents><Key>a/../x</Key><Size>1</Size><ETag>e</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(listing)))
            self.end_headers()
            self.wfile.write(listing.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "r"}
        with in_environment(keys | {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}):
            yield "s3://b"
        server.shutdown()
        thread.join()


def test_keys_that_no_library_addresses_are_named(strange_bucket: str) -> None:
    store = open_store(strange_bucket)
    for key in ("../x", "a//b", "a\x01b"):
        with pytest.raises(OSError, match="no key for the library that reads buckets"):
            store.stat(key)
        with pytest.raises(OSError, match="no key for the library that reads buckets"):
            store.create(key, b"x")
    with pytest.raises(OSError, match=r'"a/\.\./x".*--files-from'):
        store.list_level("")


def test_no_link_leads_a_writer_out_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "output" / "recovered").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "output" / "recovered" / "t-0").symlink_to(tmp_path / "outside")
    store = LocalStore(str(tmp_path / "output"))
    for write in (store.create, store.replace):
        with pytest.raises(PermissionError, match=r"the link leads out of .*/t-0"):
            write("recovered/t-0/0.index", b"x")
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("name", ["scans", "history", "verdicts", "partitions", "recovered", "quarantine"])
def test_a_link_in_the_output_leads_no_run_out_of_it(name: str, tmp_path: Path) -> None:
    """Neither to another folder nor into the archive, whose index would be replaced without a copy of it."""
    root = tmp_path / "archive"
    write_archive(root, "local-tiered", made_copies(segments=2))
    index = next(root.rglob("*.timeindex"))
    index.write_bytes(index.read_bytes() + b"x")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (tmp_path / "output").mkdir()
    link = tmp_path / "output" / name
    link.symlink_to(root)
    options = CheckOptions(
        url=str(root), output=str(tmp_path / "output"), rebuilds=True, is_in_place=name == "quarantine"
    )
    refusal = r"the link leads out of .*\(put a folder in its place\)"
    if name in ("recovered", "quarantine"):
        (row,) = archive.check(options, engine="process").objects
        assert re.search(f"{link}: {refusal}", row["not_rebuilt"])
    else:
        with pytest.raises(OutputError, match=f"^{link}: {refusal}"):
            archive.check(options, engine="process")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_the_last_of_all_offsets_is_kept(tmp_path: Path) -> None:
    """The offset after it is none."""
    folder = tmp_path / "archive" / "top-0"
    folder.mkdir(parents=True)
    (folder / log_name(LONG_MAX)).write_bytes(data_batch(LONG_MAX, 1))
    runs = Runs(folder.parent, tmp_path / "output")
    rows = runs.verdicts()
    assert (runs.verdicts(), runs.read_count) == (rows, 0)
    assert any(row["key"].endswith(log_name(LONG_MAX)) for row in rows if "key" in row)


@pytest.mark.parametrize("layout", ["local-tiered", "aiven", "plain"])
@pytest.mark.parametrize("rename", ["{}.gz", ".{}.Ab12Cd", "{}.bak"])
def test_files_that_may_be_a_segment_are_not_sound(layout: str, rename: str, tmp_path: Path) -> None:
    """Compressed by an operator, or left by a copy that was interrupted; beside the segment itself it is a note."""
    archive = write_archive(tmp_path / "archive", layout, made_copies(segments=3))
    last = archive.place(archive.copies[-1], LOG)
    beside = last.with_name(rename.format(last.name))
    beside.write_bytes(last.read_bytes())
    report, _ = run_through(CheckOptions(url=str(archive.root), now_ms=0))
    assert report.exit_code == 0
    beside.unlink()
    for path in last.parent.glob(f"{last.stem}*"):
        path.rename(path.with_name(rename.format(path.name)))
    report, verdicts = run_through(CheckOptions(url=str(archive.root), now_ms=0))
    unchecked = {
        Path(one.verdict.path).name
        for verdict in verdicts
        for one in verdict.objects
        if one.verdict.is_valid is None and one.verdict.findings[0].rule == "foreign-file"
    }
    assert beside.name in unchecked
    assert report.exit_code == 4
