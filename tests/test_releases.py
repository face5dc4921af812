"""The comparison of two versions finds what is known to differ, and nothing where both are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import KAFKA_VERSION, RELEASES, Oracle
from tests.damage.campaign import Campaign
from tests.releases import changed_classes, different_cases

pytestmark = pytest.mark.java


def test_classes_that_have_changed() -> None:
    assert changed_classes(KAFKA_VERSION, KAFKA_VERSION) == {}
    changed = changed_classes(KAFKA_VERSION, RELEASES["4.4"])
    assert {"AbstractIndex", "LogManager", "TransactionIndex"} <= changed.keys()
    assert not {"LeaderEpochFileCache", "LogLoader", "OffsetIndex"} & changed.keys()


def test_cases_that_end_differently(oracle: Oracle, newest_oracle: Oracle, ram_path: Path) -> None:
    """The damage `wrong aborted transaction` writes a version of 255 in one case, and none in the other."""
    names = ["single-0/47", "single-1/47"]
    campaign = Campaign(oracle, ram_path)
    (found,) = different_cases(oracle, newest_oracle, campaign, names)
    assert (found.case, found.how) == (names[0], ("loaded, then fatal",))
    assert "with the entry (255, " in found.damages[0]
    assert list(different_cases(oracle, oracle, campaign, names)) == []
