"""What a remedy of `verify` names is done, to the letter: then nothing is left to find, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.samples import Sample, unpack
from tests.runs.driving import recover
from tests.runs.verifying import damage_of, lines_of, verified


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("intact", tmp_path)


@pytest.mark.parametrize(
    ("suffix", "position", "rule"),
    [
        (".index", 7, "index-entry"),
        (".timeindex", 7, "index-entry"),
        (".txnindex", 25, "transaction-index-entry"),
    ],
)
def test_an_index_that_lies_is_rebuilt_with_the_others_of_its_segment(
    suffix: str, position: int, rule: str, sample: Sample
) -> None:
    paths = [path for path in sample.log_dirs[0].rglob(f"transactions-0/*{suffix}") if path.stat().st_size]
    before = paths[0].read_bytes()
    damaged = bytearray(before)
    damaged[position] ^= 1
    paths[0].write_bytes(damaged)
    found = damage_of(verified(sample))
    assert {finding.file for finding in found} == {paths[0].name}
    assert rule in {finding.rule for finding in found}
    assert found[0].remedy.startswith("stop the broker, remove the .index of this segment, and run `recover`")
    paths[0].with_suffix(".index").unlink()
    assert recover(sample).exit_code == 0
    assert lines_of(verified(sample)) == []
    if suffix == ".txnindex":
        assert paths[0].read_bytes() == before
    else:
        assert len(paths[0].read_bytes()) == len(before)
