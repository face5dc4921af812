"""The log dirs that once were left in another way than Kafka's own LogManager leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import Oracle
from tests.damage.judgement import UNEXPLAINED
from tests.fuzz.judge import Judge
from tests.fuzz.targets import CASES

_CASES = sorted((CASES / "judge").iterdir())


@pytest.mark.java
@pytest.mark.parametrize("path", _CASES, ids=[path.name for path in _CASES])
def test_a_log_dir_that_was_found_once_ends_as_with_the_broker(
    path: Path, oracle: Oracle, ram_path: Path
) -> None:
    verdict, details = Judge(oracle, ram_path).judge(path.read_bytes())
    assert verdict != UNEXPLAINED, "\n".join(details)
