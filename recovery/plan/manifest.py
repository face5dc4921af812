"""What the manifest of a quarantined run says. Bytes and values only, no file.

One JSON object a line, as docs/reference/formats.md has it; lines that name no stored file are skipped.
A line is not trusted: a path that leads out of the run is a problem, not a path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from recovery.plan.actions import LOG_DIR_ITSELF
from segfmt.filenames import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX

MOST_LINE_BYTES: Final = 64 << 20
"""A longer line does not count as one. The change of a partition with 10,000 files takes 5 MB."""
_READ_BYTES: Final = 1 << 20

FILE, FOLDER, OTHER = "file", "folder", "other"
"""What there is in a folder that was moved: regular files, folders, anything else."""

MOST_DEPTH = 100
"""How many names a path in `contents` has at most, so that a walk that follows them ends."""

_COUNTED_KINDS: Final = frozenset({"file", "tail", "moved"})
_LATER_SUFFIXES: Final = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)


class Digest(NamedTuple):
    """What the bytes of a file are identified by."""

    sha256: str
    """Hex."""
    hashed_bytes: int
    """How many bytes from the beginning on are hashed; all others are zeros."""


class Thing(NamedTuple):
    """What was moved as a whole, or something below it, as it was then."""

    kind: str
    """`FILE`, `FOLDER` or `OTHER`."""
    size_bytes: int
    """Meaningless for a folder."""
    sha256: str | None
    """Hex; None for what is not a file, and for a file that was not read."""


Contents = Mapping[str, Thing]
"""By path relative to what was moved, which itself has the path ""; a folder comes before what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """A line of a manifest that says where something is.

    Attributes:
        kind: `file`, `tail` or `moved`; others are from later versions, and are not counted.
        partition: name of the partition's folder, or that of the log dir's own files.
        file: the name it had there.
        stored: path relative to the run's folder.
        digest: None if there is none to check.
        rule: of the cut or the problem; None if there is none, or a version before wrote the line.
        is_derived: whether the log can rebuild it.
        first_offset, last_offset: of what left the log with it; None if that is not known.
        contents: of what was moved as a whole; None if that was not listed, as by earlier versions.
        link: where it leads, if it is a link; None for anything else.
    """

    kind: str
    partition: str
    file: str
    stored: str
    size_bytes: int
    digest: Digest | None
    reason: str
    is_derived: bool
    rule: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    contents: Contents | None = None
    link: str | None = None

    @property
    def is_counted(self) -> bool:
        """Whether this version knows what it is."""
        return self.kind in _COUNTED_KINDS

    @property
    def is_moved(self) -> bool:
        """Whether it was moved as a whole, by a repair."""
        return self.kind == "moved"

    @property
    def path(self) -> str:
        """Where it was, relative to the log dir."""
        return self.file if self.partition == LOG_DIR_ITSELF else f"{self.partition}/{self.file}"

    @property
    def is_other_kind(self) -> bool:
        """Whether it was moved as a whole and is not a regular file."""
        return self.is_moved and self.digest is None

    def has_moved(self, path: str, kind: str, size_bytes: int) -> bool:
        """Whether a thing at *path* in what was moved as a whole came with it; all did if nothing was listed."""
        if self.contents is None:
            return self.is_other_kind
        listed = self.contents.get(path)
        return (
            listed is not None
            and listed.kind == kind
            and (kind == FOLDER or not path or listed.size_bytes == size_bytes)
        )

    @property
    def is_log(self) -> bool:
        """Whether it is record batches that left a log: a segment, in any stage of its life, or a tail of one."""
        return is_segment(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """What left the log of one partition."""

    partition: str
    parts: tuple[StoredEntry, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, each reason once."""
        return tuple(dict.fromkeys(part.reason for part in self.parts))

    @property
    def first_offset(self) -> int | None:
        """The lowest one that is known of the parts."""
        return min((part.first_offset for part in self.parts if part.first_offset is not None), default=None)

    @property
    def last_offset(self) -> int | None:
        """The highest one of the parts, None unless all of them are known."""
        last_offsets = [part.last_offset for part in self.parts if part.last_offset is not None]
        return max(last_offsets) if len(last_offsets) == len(self.parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a manifest says.

    Attributes:
        log_dir: of the run; None if no line says it.
        problems: lines that cannot be read.
        has_torn_end: whether the last line is not whole: its file was not touched before the run was killed.
    """

    entries: tuple[StoredEntry, ...]
    log_dir: str | None
    problems: tuple[str, ...]
    has_torn_end: bool


class Line(NamedTuple):
    """A line of a manifest."""

    data: bytearray
    """Without its line end; empty if there is more than a line can have."""
    is_whole: bool
    """Whether it has a line end."""


def read_lines(read: Callable[[int], bytes]) -> Iterator[Line]:
    """Yield the lines of a manifest, with one of them in memory at a time.

    Args:
        read: returns the next bytes, at most as many as asked for; none at the end.
    """
    data, size_bytes = bytearray(), 0
    while chunk := read(_READ_BYTES):
        for number, piece in enumerate(chunk.split(b"\n")):
            if number > 0:  # a line ends before this piece
                yield Line(data, is_whole=True)
                data, size_bytes = bytearray(), 0
            size_bytes += len(piece)
            if size_bytes <= MOST_LINE_BYTES:
                data += piece
            else:
                data = bytearray()
    if size_bytes > 0:
        yield Line(data, is_whole=False)


def read_manifest(lines: Iterable[Line]) -> Manifest:
    """Return what the lines of a manifest say; damage is reported, not raised."""
    entries: dict[str, StoredEntry] = {}
    problems, log_dir, has_torn_end = [], None, False
    for number, line in enumerate(lines, 1):
        if not line.is_whole:
            has_torn_end = True
            continue
        document = json_object(line)
        if document is None:
            problems.append(f"line {number} of the manifest is not a JSON object")
            continue
        if log_dir is None and isinstance(document.get("log_dir"), str):
            log_dir = document["log_dir"]
        if "stored" not in document:
            continue
        entry = _entry(document)
        if entry is None:
            problems.append(f"line {number} of the manifest does not say which file below the run it means")
        else:
            entries[entry.stored] = entry  # the last line for a path counts
            if not entry.is_counted:
                problems.append(f"line {number} of the manifest is of a kind that this version does not know")
    return Manifest(
        entries=tuple(entries.values()), log_dir=log_dir, problems=tuple(problems), has_torn_end=has_torn_end
    )


def is_segment(name: str) -> bool:
    """Whether the file *name* is a segment, in any stage of its life."""
    for suffix in _LATER_SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(LOG_SUFFIX)


def json_object(line: Line) -> dict[str, Any] | None:
    """Return the JSON object of a line, None if it has none."""
    try:
        document = json.loads(line.data.decode())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _entry(document: dict[str, Any]) -> StoredEntry | None:
    texts = [document.get(name) for name in ("kind", "partition", "file", "stored", "reason")]
    size_bytes = document.get("size_bytes")
    is_sound = (
        all(isinstance(text, str) for text in texts)
        and type(size_bytes) is int
        and is_below(document["stored"])
    )
    if not is_sound:
        return None
    try:
        digest, contents, link = read_digest(document), read_contents(document), read_link(document)
    except ValueError:
        return None
    return StoredEntry(
        kind=document["kind"],
        partition=document["partition"],
        file=document["file"],
        stored=document["stored"],
        size_bytes=document["size_bytes"],
        digest=digest,
        reason=document["reason"],
        rule=rule if isinstance(rule := document.get("rule"), str) else None,
        is_derived=document.get("derived") is True,
        first_offset=_offset(document.get("first_offset")),
        last_offset=_offset(document.get("last_offset")),
        contents=contents,
        link=link,
    )


def read_link(document: Mapping[str, Any]) -> str | None:
    """Return where the link leads that a line of a manifest is about, None if it is about none.

    Raises:
        ValueError: no link can lead there.
    """
    link = document.get("link")
    if link is not None and not (isinstance(link, str) and link and "\0" not in link):
        raise ValueError(f"{link!r} is not where a link leads")
    return link


def read_digest(document: Mapping[str, Any]) -> Digest | None:
    """Return the digest in a line of a manifest, None if it has none.

    Raises:
        ValueError: the line has something else in place of a digest.
    """
    sha256, size_bytes = document.get("sha256"), document["size_bytes"]
    hashed_bytes = document.get("sha256_bytes", size_bytes)
    if sha256 is None:
        return None
    if not isinstance(sha256, str) or type(hashed_bytes) is not int or not 0 <= hashed_bytes <= size_bytes:
        raise ValueError("not a SHA-256, or not of so many bytes")
    return Digest(sha256, hashed_bytes)


def digest_fields(digest: Digest | None, size_bytes: int) -> dict[str, Any]:
    """Return what a line of a manifest says of the bytes of a file."""
    if digest is None:
        return {"sha256": None}
    is_whole = digest.hashed_bytes == size_bytes
    return {"sha256": digest.sha256} | ({} if is_whole else {"sha256_bytes": digest.hashed_bytes})


def read_contents(document: Mapping[str, Any]) -> Contents | None:
    """Return what a line of a manifest lists of what was moved as a whole, None if it lists nothing.

    Raises:
        ValueError: no run has written that: a path leads elsewhere, or is not in a folder that is listed before it.
    """
    listed, kind = document.get("contents"), document.get("moved")
    if document["kind"] != "moved" or listed is None:
        return None
    if document.get("sha256") is not None or kind not in (FOLDER, OTHER) or not isinstance(listed, list):
        raise ValueError("not the contents of what was moved as a whole")
    contents = {"": Thing(kind, 0, None)}
    for fields in listed:
        path, thing = _listed_thing(fields if isinstance(fields, dict) else {})
        parent = contents.get(path.rpartition("/")[0])
        if path in contents or parent is None or parent.kind != FOLDER:
            raise ValueError(f"{path!r} is there twice, or not in a folder")
        contents[path] = thing
    return contents


def _listed_thing(document: dict[str, Any]) -> tuple[str, Thing]:
    """Return what `contents` says of one thing, with its path."""
    path, kind, size_bytes, sha256 = (document.get(key) for key in ("path", "kind", "size_bytes", "sha256"))
    if not isinstance(path, str) or not is_below(f"x/{path}"):
        raise ValueError(f"{path!r} is not a path below a folder")
    if path.count("/") >= MOST_DEPTH:
        raise ValueError(f"a path of more than {MOST_DEPTH} names")
    if kind not in (FILE, FOLDER, OTHER) or type(size_bytes) is not int or size_bytes < 0:
        raise ValueError(f"{kind!r} and {size_bytes!r} are not a kind and a size")
    if sha256 is not None and not (isinstance(sha256, str) and kind == FILE):
        raise ValueError("not the SHA-256 of a file")
    return path, Thing(kind, size_bytes, sha256)


def contents_fields(contents: Contents | None) -> dict[str, Any]:
    """Return what a line of a manifest says of what is moved as a whole."""
    if contents is None:
        return {"contents": None}
    return {
        "moved": contents[""].kind,
        "contents": [{"path": path, **thing._asdict()} for path, thing in contents.items() if path],
    }


def _offset(value: object) -> int | None:
    return value if type(value) is int else None


def is_below(path: str) -> bool:
    """Whether *path* is a plain relative path to something below its first folder."""
    parts = path.split("/")
    return "\0" not in path and not {"", ".", ".."} & set(parts) and len(parts) > 1
