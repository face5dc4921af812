"""What a broker needs of the archive if records stay there (`--aux`), and does not find, is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.archive.restore.test_restore import one_of, restored, trees, with_losses

NAME = "transactions-1"


@pytest.fixture
def archive(tmp_path: Path) -> TieredArchive:
    return with_losses(tmp_path)


def _files(archive: TieredArchive, suffix: str) -> list[Path]:
    return sorted(archive.path.glob(f"{NAME}-*/*{suffix}"))


def _flip_in_the_last_snapshot(archive: TieredArchive) -> tuple[Path, str]:
    path = _files(archive, ".snapshot")[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 255
    path.write_bytes(data)
    return path, "at byte 2: snapshot: CRC "


def _empty_the_last_snapshot(archive: TieredArchive) -> tuple[Path, str]:
    path = _files(archive, ".snapshot")[-1]
    path.write_bytes(b"")
    return path, "at byte 0: snapshot: 0 bytes"


def _cut_the_last_snapshot(archive: TieredArchive) -> tuple[Path, str]:
    path = _files(archive, ".snapshot")[-1]
    path.write_bytes(path.read_bytes()[:-1])
    return path, ": snapshot: "


def _empty_a_log(archive: TieredArchive) -> tuple[Path, str]:
    path = _files(archive, ".log")[3]
    size = path.stat().st_size
    path.write_bytes(b"")
    return path, f"is not complete: 0 bytes, the metadata topic says {size:,}"


def _cut_a_log(archive: TieredArchive) -> tuple[Path, str]:
    path = _files(archive, ".log")[3]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:1000])
    return path, f"is not complete: 1,000 bytes, the metadata topic says {size:,}"


def _lose(suffix: str, row: int) -> Callable[[TieredArchive], tuple[Path, str]]:
    def lose(archive: TieredArchive) -> tuple[Path, str]:
        path = _files(archive, suffix)[row]
        path.unlink()
        return path, "is not in the archive, without which no broker serves it"

    return lose


SNAPSHOTS = (_flip_in_the_last_snapshot, _empty_the_last_snapshot, _cut_the_last_snapshot)
LOGS = (_empty_a_log, _cut_a_log)
OBJECTS = (_lose(".snapshot", -1), _lose(".index", 3), _lose(".timeindex", 3), _lose(".txnindex", 1))


@pytest.mark.parametrize("damage", [*SNAPSHOTS, *LOGS, *OBJECTS])
def test_it_is_refused_before_a_byte_is_written(
    archive: TieredArchive, damage: Callable[[TieredArchive], tuple[Path, str]]
) -> None:
    path, words = damage(archive)
    before = trees(archive)
    for dry_run in (True, False):
        report = restored(archive, names=[NAME, "codecs-0"], is_aux=True, broker={"dry_run": dry_run})
        one = one_of(report, NAME)
        assert (one.status, report.exit_code) == ("refused", 4)
        (reason,) = one.reasons
        assert path.name in reason
        assert words in reason
        assert "Remedy: " in reason
        assert one_of(report, "codecs-0").status == "restored"
        if dry_run:
            assert trees(archive) == before
    assert not any((log_dir / NAME).exists() for log_dir in archive.log_dirs)


@pytest.mark.parametrize("damage", LOGS)
def test_a_log_of_another_size_is_known_to_a_dry_run_in_full(
    archive: TieredArchive, damage: Callable[[TieredArchive], tuple[Path, str]]
) -> None:
    path, words = damage(archive)
    one = one_of(restored(archive, names=[NAME], broker={"dry_run": True}), NAME)
    assert one.status == "refused"
    assert f"{path.name} {words}" in one.reasons[0]


def test_an_empty_log_is_known_by_its_listing_alone(archive: TieredArchive) -> None:
    path = _files(archive, ".log")[-1]
    path.write_bytes(b"")
    one = one_of(restored(archive, names=[NAME], metadata=False, broker={"dry_run": True}), NAME)
    assert one.status == "refused"
    assert f"{path.name} is not complete: 0 bytes" in one.reasons[0]


@pytest.mark.parametrize("damage", [*SNAPSHOTS, *OBJECTS])
def test_in_full_what_is_beside_the_logs_is_made_anew(
    archive: TieredArchive, damage: Callable[[TieredArchive], tuple[Path, str]]
) -> None:
    damage(archive)
    assert one_of(restored(archive, names=[NAME]), NAME).status == "restored"
