"""A share of the sweep over all files of archives: what was changed is found, or a documented reason holds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.brokers.tiered_broker import TieredArchive
from tests.damage.archive_harmless import REASONS
from tests.damage.archive_sweep import Sweep, kinds, run

CASES = 300

pytestmark = pytest.mark.long


def test_a_changed_file_is_found_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, stored_archive: TieredArchive
) -> None:
    """Every fifth kind or so, each with another part and change than the one before."""
    sweep, counts = Sweep(tmp_path_factory.mktemp("sweep"), stored_archive), Counter[str]()
    stride = len(kinds()) // CASES
    seeds = range(1_000_000, 1_000_000 + CASES * stride, stride)
    assert [str(case) for case in run(sweep, seeds, counts)] == []
    assert counts["found"] > CASES * 0.6
    assert len(REASONS.keys() & counts.keys()) > 4
