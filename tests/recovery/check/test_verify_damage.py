"""Every damage of `mutilate` and `verify`: found at the damaged file, or no damage for a reason that holds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.damage import verify_expectations
from tests.damage.damaged_partition import DamagedPartition
from tests.damage.mutilate import DAMAGES, make_victim
from tests.damage.verify_damage import FOUND, VerifyDamage, main, numbers_of
from tests.damage.verify_expectations import EXPECTED, Reason
from tests.logs.samples import tree_of, unpack

pytestmark = pytest.mark.long

CASES = 4
NEVER_FOUND = {"leftover indexes and snapshots", "leftover temporary file"}
"""What a broker removes, or never reads, wherever it lies."""
SELDOM_FOUND = {"many producers"}
"""Sound batches; only the snapshots that are taken away with them may be missed."""
REASONS = [one for one in vars(verify_expectations).values() if isinstance(one, Reason)]


@pytest.fixture(scope="module")
def damage(tmp_path_factory: pytest.TempPathFactory) -> VerifyDamage:
    return VerifyDamage(tmp_path_factory.mktemp("damage"))


def test_every_damage_has_an_entry() -> None:
    assert set(EXPECTED) == set(DAMAGES)
    assert {reason for one in EXPECTED.values() for reason in one.reasons} == set(REASONS)


@pytest.mark.parametrize("kind", DAMAGES)
def test_it_is_found_at_the_damaged_file(damage: VerifyDamage, kind: str) -> None:
    cases = [damage.run(kind, number) for number in numbers_of(kind, 0, CASES)]
    assert [str(case) for case in cases if not case.is_explained] == []
    if kind not in SELDOM_FOUND:
        is_found = any(case.deep == FOUND for case in cases)
        assert is_found != (kind in NEVER_FOUND), [str(case) for case in cases]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.words)
def test_no_reason_excuses_damage(tmp_path: Path, reason: Reason) -> None:
    """A broker loads all of these; a batch is lost or another in each."""
    sample = unpack("stopped", tmp_path)
    folder = next(one for one in sample.log_dirs[0].iterdir() if one.name == "plain-1")
    for kind in ("flipped records, flushed", "flipped leader epoch, flushed", "flipped crc, unflushed"):
        work = tmp_path / kind
        victim = make_victim(sample, folder, work / "d")
        before = tree_of(work)
        words = DAMAGES[kind](victim, random.Random(1))
        assert words is not None
        damaged = DamagedPartition(
            sample=sample, victim=victim, work=work, words=words, before=before, after=tree_of(work)
        )
        assert not reason.holds(damaged), kind


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "1", "--kind", "torn tail", "--kind", "leftover temporary file", "--show"]) == 0
    printed = capsys.readouterr().out
    assert "| logs | 1 | 1 | 0 | 0 | 0 | 0 |" in printed
    assert "a recovery leaves what it leaves without it" in printed
