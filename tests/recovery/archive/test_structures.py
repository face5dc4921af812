"""Archives whose parts are sound and whose whole is not: each structure in one layout by turns, in all four modes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.structures import LAYOUTS, MODES, STRUCTURES, StructureBench

pytestmark = pytest.mark.long


def test_each_structure_has_the_stated_verdict(tmp_path: Path) -> None:
    bench = StructureBench(tmp_path)
    wrong, verdicts = [], 0
    for number, layout in enumerate(LAYOUTS):
        for name, mode, expected, found in bench.cases(layout, list(STRUCTURES)[number :: len(LAYOUTS)]):
            verdicts += 1
            if not found.fits(expected):
                wrong.append(f"{name} / {layout} / {mode}: {found}; expected {expected}")
    assert wrong == []
    assert verdicts > 20 * len(MODES)
