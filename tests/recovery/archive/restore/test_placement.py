"""Where a new log goes: drawn sets of log dirs, counts and cordons against Kafka's own `LogManager.nextLogDirs`."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest

from recovery.archive.restore.placement import next_log_dirs
from tests.brokers.jars import ORACLE_DIR, class_path, compiled

DRAWN = 500


def drawn(rng: random.Random) -> dict[str, Any]:
    """One set: names of all lengths, many counts that are equal."""
    words = ["/data", "/mnt/disk", "/var/lib/kafka/d", "/kafka-logs-", "/srv/ä", "/Aa", "/BB"]
    live: list[str] = []
    count = rng.randint(1, 8)
    while len(live) < count:
        path = rng.choice(words) + str(rng.choice([rng.randint(0, 20), rng.randint(0, 10**9)]))
        live += [path] if path not in live else []
    return {
        "live": live,
        "counts": {path: rng.choice([0, 0, 1, 2, 3]) for path in live},
        "cordoned": [path for path in live if rng.random() < 0.3],
    }


@pytest.mark.java
def test_a_new_log_goes_where_a_broker_puts_it() -> None:
    rng = random.Random(18)
    cases = [drawn(rng) for _ in range(DRAWN)]
    cases += [{**case, "cordoned": case["live"]} for case in cases[:20]]
    done = subprocess.run(
        ["java", "-cp", class_path(after=[compiled(ORACLE_DIR / "placement")]), "PlacementOracle"],
        input="".join(json.dumps(case) + "\n" for case in cases),
        check=True,
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(answers) == len(cases)
    for case, answer in zip(cases, answers, strict=True):
        assert list(next_log_dirs(case["live"], case["counts"], case["cordoned"])) == answer, case
    assert sum(len(answer) > 5 for answer in answers) > 50


def test_a_log_dir_that_is_alone_gets_it_even_if_it_is_cordoned() -> None:
    assert next_log_dirs(["/a"], {"/a": 9}, ["/a"]) == ["/a"]
    assert next_log_dirs(["/a", "/b"], {"/a": 9}, ["/b"]) == ["/a"]
    assert next_log_dirs(["/a", "/b"], {"/a": 9}, ["/b", "/a"]) == ["/a"]
    assert next_log_dirs(["/a", "/b"], {"/a": 9}, []) == ["/b", "/a"]
