"""Archives whose objects are named by a list: the same as listed ones, and lists that cannot be."""

from __future__ import annotations

import gzip
import json
import shutil
from hashlib import md5
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.inventory.run import inventory
from recovery.archive.options import ArchiveOptions
from recovery.archive.stores.archived import StoredObject
from recovery.archive.stores.stores import open_archive
from recovery.errors import UsageError
from recovery.spark import archive
from tests.brokers.tiered_broker import TieredArchive


def keys_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("form", ["keys", "urls", "sizes", "gzip", "inventory"])
def test_a_list_stands_for_a_listing(form: str, stored_archive: TieredArchive, tmp_path: Path) -> None:
    root, path = stored_archive.path, tmp_path / "list"
    keys = keys_of(root)
    sizes = {key: (root / key).stat().st_size for key in keys}
    if form == "urls":
        path.write_text("".join(f"{root}/{key}\n" for key in keys))
    elif form == "sizes":
        path.write_text("".join(f'{key}\t{size}\t"tag"\n' for key, size in sizes.items()))
    elif form == "gzip":
        path.write_bytes(gzip.compress("".join(f"{key}\n" for key in keys).encode()))
    elif form == "inventory":
        rows = "".join(f'"bucket","{key}","{size}","tag"\n' for key, size in sizes.items())
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "one.csv.gz").write_bytes(gzip.compress(rows.encode()))
        path = tmp_path / "2026-11-21T00-00Z" / "manifest.json"
        path.parent.mkdir()
        files = [{"key": "inventory/bucket/config/data/one.csv.gz"}]
        path.write_text(json.dumps({"fileSchema": "Bucket, Key, Size, ETag", "files": files}))
    else:
        path.write_text("\n".join(reversed(keys)))
    metadata = tuple(map(str, stored_archive.log_dirs))
    listed = inventory(ArchiveOptions(url=str(root), metadata=metadata))
    named = inventory(ArchiveOptions(url=str(root), metadata=metadata, files_from=str(path)))
    without_empty = {topic: one for topic, one in listed.topics.items() if one.segments}
    assert named.topics == without_empty  # folders without files have no key
    assert named.findings == listed.findings


def test_what_has_a_size_alone_is_read_again(stored_archive: TieredArchive, tmp_path: Path) -> None:
    """A byte that has flipped since the run before changes no size."""
    root, output, listed = tmp_path / "archive", tmp_path / "output", tmp_path / "list"
    shutil.copytree(stored_archive.path, root)
    keys = keys_of(root)
    listed.write_text("".join(f"{key}\t{(root / key).stat().st_size}\n" for key in keys))
    options = CheckOptions(url=str(root), output=str(output), files_from=str(listed), cores=2)
    sound = archive.check(options, engine="process")
    log = root / next(key for key in keys if key.endswith(".log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    damaged = archive.check(options, engine="process")
    assert ("checksum" in sound.summary.rules, sound.known_segments) == (False, 0)
    assert (damaged.summary.rules["checksum"], damaged.known_segments) == (1, 0)
    (note,) = [note.text for note in damaged.notes if "ETags" in note.text]
    assert f"{damaged.summary.segments} segments are read in each run" in note


def test_what_a_list_does_not_name_is_missing(stored_archive: TieredArchive, tmp_path: Path) -> None:
    keys = keys_of(stored_archive.path)
    left_out = next(key for key in keys if "plain-0" in key and key.endswith(".index"))
    (tmp_path / "list").write_text("\n".join(key for key in keys if key != left_out))
    report = inventory(ArchiveOptions(url=str(stored_archive.path), files_from=str(tmp_path / "list")))
    (found,) = [found for prefix, found in report.findings if prefix + found.file == left_out]
    assert found.rule == "missing-object"


def test_what_is_gone_since_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "here").write_bytes(b"1234")
    (tmp_path / "list").write_text("here\ngone\n")
    store = open_archive(str(tmp_path / "archive"), str(tmp_path / "list"))
    (found,) = store.list_level("").objects
    assert isinstance(found, StoredObject)
    assert (found.key, found.size_bytes) == ("here", 4)


def test_of_what_is_named_twice_the_last_line_counts(tmp_path: Path) -> None:
    lines = ["a/x\t1\tone", "a/y\t5\tfive", "a/x\t2\ttwo", "z\t9\tnine"]
    (tmp_path / "list").write_text("\n".join(lines))
    level = open_archive(str(tmp_path), str(tmp_path / "list")).list_level("a/")
    assert [(one.key, one.size_bytes, one.version) for one in level.objects] == [
        ("a/x", 2, "two"),
        ("a/y", 5, "five"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("list", "key\tmany\n", "line 1: expected a key"),
        ("list", "a\tb\tc\td\n", "line 1: expected a key"),
        ("list", f"a\t1\nb\t{2**62}\n", "line 2: a size of 4611686018427387904 bytes"),
        ("manifest.json", "{}", "fileSchema"),
        ("manifest.json", "no JSON", "Expecting value"),
        ("manifest.json", '{"fileFormat": "ORC", "fileSchema": "Key", "files": []}', "fileFormat is ORC"),
        ("manifest.json", '{"fileSchema": "Key", "files": [{"key": "nowhere"}]}', "No such file"),
    ],
)
def test_a_list_that_cannot_be(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=words) as error:
        open_archive(str(tmp_path), str(tmp_path / name))
    assert "ValueError" not in str(error.value)
    with pytest.raises(UsageError, match="No such file"):
        open_archive(str(tmp_path), str(tmp_path / "nowhere"))


def _manifest(folder: Path, data: bytes) -> Path:
    described = {"key": "inventory/data/one.csv.gz", "size": len(data), "MD5checksum": md5(data).hexdigest()}
    manifest = {"fileFormat": "CSV", "fileSchema": "Bucket, Key, Size, ETag", "files": [described]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "manifest.json"


def test_a_file_of_an_inventory_that_was_not_copied_whole(tmp_path: Path) -> None:
    """Else half of the archive would be left out in silence."""
    data = gzip.compress(b'"bucket","a/x","5","one"\n' * 50)
    path = str(_manifest(tmp_path, data))
    place = tmp_path / "one.csv.gz"
    place.write_bytes(data)
    assert len(open_archive(str(tmp_path), path).list_level("a/").objects) == 1
    for wrong in (b"", data[:-5], gzip.compress(b"")):
        place.write_bytes(wrong)
        with pytest.raises(
            UsageError, match=rf"{place} has {len(wrong)} bytes, the manifest says {len(data)}"
        ):
            open_archive(str(tmp_path), path)
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UsageError, match=rf"{place} has the MD5 checksum .*: copy it again"):
        open_archive(str(tmp_path), path)


def test_a_list_that_is_cut_within_its_gzip(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(gzip.compress(b"a/x\t5\tone\n" * 50)[:-9])
    with pytest.raises(UsageError, match="a gzip file is cut or damaged"):
        open_archive(str(tmp_path), str(tmp_path / "list"))
