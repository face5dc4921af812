"""A sample of the sequences of `tests/damage/sequences.py`, the same in each run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.damage.sequences import Campaign
from tests.servers.machine import MOUNTS, OVERLAYS, needs

CASES = 45

pytestmark = [
    pytest.mark.java,
    needs(MOUNTS, OVERLAYS),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with Campaign(tmp_path_factory.mktemp("sequences")) as running:
        yield running


@pytest.mark.parametrize("number", range(CASES))
def test_what_was_there_adds_up(campaign: Campaign, number: int) -> None:
    assert campaign.run(20261122, number) is None
