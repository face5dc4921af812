"""What bytes in quarantine are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.write.digest import has_part, is_begun_copy


@pytest.mark.parametrize(
    ("after", "part", "is_part"),
    [
        (b"", b"abcdef", True),
        (b"abc", b"abcdef", True),
        (b"abcdef", b"abcdef", True),
        (b"abcdefg", b"abcdef", False),
        (b"ab\0\0e", b"abcdef", True),
        (b"abx", b"abcdef", False),
        (bytes(4), b"abcdef", True),
        (bytes(4), None, True),
        (b"\0x", None, False),
    ],
)
def test_what_an_append_can_have_left(
    after: bytes, part: bytes | None, is_part: bool, tmp_path: Path
) -> None:
    """What a power failure has kept from the disk is zeros."""
    log, saved = tmp_path / "log", tmp_path / "saved"
    log.write_bytes(b"log" + after)
    saved.write_bytes(part or b"")
    assert has_part(str(log), 3, 6, None if part is None else str(saved)) is is_part
    assert not has_part(str(log), 20, 6, None)


@pytest.mark.parametrize(
    ("copy", "is_begun"),
    [
        (b"", True),
        (b"abc", True),
        (b"abcdef", True),
        (b"a\0cdef", True),
        (bytes(6), True),
        (b"abcdefg", False),
        (bytes(7), False),
        (b"abcdeg", False),
    ],
)
def test_what_a_copy_can_have_left(copy: bytes, is_begun: bool, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("copy", "original", "missing")]
    for path, data in zip(paths, (copy, b"abcdef"), strict=False):
        Path(path).write_bytes(data)
    assert is_begun_copy(paths[0], paths[1]) is is_begun
    assert not is_begun_copy(paths[0], paths[2])
    assert not is_begun_copy(paths[2], paths[1])
