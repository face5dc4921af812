"""What is kept between runs: found again whole, and not believed once it was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.archive.check.output import keep_scans, kept_digests, read_scans
from recovery.archive.check.scan_rows import HEAD_OFFSET, ScanRow
from recovery.archive.check.scanned import DIGEST_BYTES
from recovery.archive.stores.local_store import LocalStore

ROWS = [
    ScanRow("t-0/", HEAD_OFFSET, "", b"run", 0, b"head"),
    *(ScanRow("t-0/", number, "", bytes([number]) * DIGEST_BYTES, 10, b"x" * 50) for number in range(3)),
]
DIGESTS = b"".join(row.digest for row in ROWS[1:])


@pytest.fixture
def output(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def keep(output: LocalStore) -> None:
    assert [row.digest for row in keep_scans(output, ROWS)] == [row.digest for row in ROWS]


def test_scans_are_found_again(output: LocalStore) -> None:
    keep(output)
    keep(output)  # another attempt of the same task
    ((key, digests),) = kept_digests(output)
    assert digests == DIGESTS
    assert list(read_scans(output, key)) == ROWS


@pytest.mark.parametrize("suffix", ["parquet", "keys"])
def test_a_file_that_was_cut_is_left_out_and_written_again(
    suffix: str, output: LocalStore, tmp_path: Path
) -> None:
    keep(output)
    (path,) = tmp_path.glob(f"scans/*.{suffix}")
    path.write_bytes(path.read_bytes()[:-DIGEST_BYTES])
    assert list(kept_digests(output)) == []
    keep(output)
    ((key, digests),) = kept_digests(output)
    assert (digests, list(read_scans(output, key))) == (DIGESTS, ROWS)


def test_scans_without_their_file_are_left_out(output: LocalStore, tmp_path: Path) -> None:
    keep(output)
    (path,) = tmp_path.glob("scans/*.parquet")
    path.unlink()
    assert list(kept_digests(output)) == []
