"""Copies of files: what is a hole stays one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.write.durable import copy_part, new_file

BLOCK = 4096
SIZE = 10 << 20


@pytest.mark.parametrize("places", [(0,), (SIZE - 3,), (0, 5 * BLOCK, 3 << 20), ()])
def test_a_copy_is_as_sparse_as_the_file(places: tuple[int, ...], ram_path: Path) -> None:
    """A preallocated index has 10 MiB, of which an entry or two are written."""
    source, target = ram_path / "source", ram_path / "target"
    with source.open("wb") as file:
        file.truncate(SIZE)
        for place in places:
            file.seek(place)
            file.write(b"abc")
    with source.open("rb") as file, new_file(str(target)) as descriptor:
        copy_part(file.fileno(), descriptor, position=0, size_bytes=None)
    assert target.read_bytes() == source.read_bytes()
    assert os.stat(target).st_blocks <= os.stat(source).st_blocks
