"""Where chains end, by offsets alone."""

from __future__ import annotations

import pytest

from recovery.archive.check.chain_ends import ChainEnds


@pytest.mark.parametrize("missing", [1, 2, 50])
def test_each_offset_between_two_segments_is_missed(missing: int) -> None:
    ends = ChainEnds(())
    assert ends.begin(0) is None
    ends.reach(0, 100)
    base = 100 + missing
    assert ends.find(100) == 0
    assert ends.find(base) is None
    finding = ends.begin(base)
    assert finding is not None
    assert (finding.rule, finding.severity) == ("offset-gap", "damage")
    assert finding.detail == f"offsets 100 to {base - 1} are missing before this segment"


def test_what_is_gone_is_no_gap_but_for_the_offset_beside_it() -> None:
    for first, last, severity in ((100, 149, "note"), (101, 149, "damage"), (100, 148, "damage")):
        ends = ChainEnds([(first, last)])
        ends.begin(0)
        ends.reach(0, 100)
        finding = ends.begin(150)
        assert finding is not None
        assert finding.severity == severity
