"""Every damage of the table is found in every layout, by the driver that all others must agree with; nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.tiered_broker import TieredArchive
from tests.damage.archive_campaign import ArchiveBench, is_found
from tests.damage.archive_damage import AIVEN_DAMAGES, ARCHIVE_DAMAGES
from tests.logs.archives import LAYOUTS, doubled, write_archive
from tests.runs.log_findings import of_logs, with_found_ends

pytestmark = pytest.mark.long

SEED = 1


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, stored_archive: TieredArchive) -> ArchiveBench:
    return ArchiveBench(tmp_path_factory.mktemp("archives"), stored_archive)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_found_in_sound_archives(layout: str, bench: ArchiveBench) -> None:
    assert bench.found_in(bench.sound(layout), is_deep=True) == []
    assert bench.found_in(bench.sound(layout), is_logs_only=True) == []


@pytest.mark.parametrize("layout", ["local-tiered", "aiven, zstd"])
def test_offsets_that_were_archived_twice_are_no_damage(
    layout: str, bench: ArchiveBench, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path / "archive", layout, doubled(bench.copies, 3))
    found = {(finding.rule, finding.severity) for _, finding in bench.found_in(archive)}
    assert found == {("overlap", "note"), ("duplicate", "note")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_is_found(layout: str, bench: ArchiveBench) -> None:
    missed, bitten = [], set()
    missed_in_logs = []
    for name in ARCHIVE_DAMAGES:
        case = bench.damaged(name, layout, SEED)
        if case is not None:
            bitten.add(name)
            found = bench.found_in(case[0])
            if not is_found(found, case[1]):
                missed.append((name, case[1], found))
            alone = of_logs(bench.found_in(case[0], is_logs_only=True))
            if with_found_ends(alone, of_logs(found)) != of_logs(found):
                missed_in_logs.append((name, alone, of_logs(found)))
    assert missed == []
    assert missed_in_logs == []
    if layout == "local-tiered":
        assert bitten == ARCHIVE_DAMAGES.keys() - AIVEN_DAMAGES
    elif layout != "plain":
        assert bitten >= AIVEN_DAMAGES
