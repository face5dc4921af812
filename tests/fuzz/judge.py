"""Made log dirs before Kafka's own LogManager: is what is left there what is left here?

    python -m tests.fuzz.judge --cases 1000 --seed 1 [--findings DIR]
    python -m tests.fuzz.judge --replay FILE

A case is a log dir of one partition made from random bytes (`tests.fuzz.log_dirs`), judged like the cases of
`tests.damage.campaign`, whose verdicts these are; what both have left is then loaded once more, now with a marker. One
that is unexplained is made as small as it gets and written to the folder of findings.
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.brokers import Oracle
from tests.damage import judgement
from tests.damage.judgement import IDENTICAL, UNEXPLAINED
from tests.fuzz.choices import Choices
from tests.fuzz.log_dirs import INDEX_INTERVAL_BYTES, NOW_MS, SEGMENT_INDEX_BYTES, make_log_dir
from tests.fuzz.minimise import minimise
from tests.logs.samples import Sample

PROPERTIES = {
    "log.index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    "log.index.size.max.bytes": str(SEGMENT_INDEX_BYTES),
}
_SIZES = (40, 100, 300, 800)


class Judge:
    """Takes cases as bytes and keeps count of the verdicts."""

    def __init__(self, oracle: Oracle, root: Path) -> None:
        self._oracle = oracle
        self._root = root
        self.verdicts: collections.Counter[str] = collections.Counter()

    def judge(self, data: bytes) -> tuple[str, list[str]]:
        """Verdict and details of the log dir that *data* makes."""
        work = Path(tempfile.mkdtemp(dir=self._root))
        try:
            log_dir = work / "d"
            make_log_dir(Choices(data), is_alone=True).write(log_dir)
            sample = Sample(
                name="made",
                root=work,
                log_dirs=(log_dir,),
                properties=PROPERTIES,
                topic_configs={},
                now_ms=NOW_MS,
            )
            judge = judgement.Judge(self._oracle, sample)
            judged = judge.compare([log_dir], work)
            if judged.verdict == IDENTICAL:
                (work / "again").mkdir()
                judged = judge.compare([log_dir], work / "again")
            return judged.verdict, list(judged.details)
        finally:
            shutil.rmtree(work)

    def count(self, data: bytes) -> tuple[str, list[str]]:
        """As `judge`, and count the verdict."""
        verdict, details = self.judge(data)
        self.verdicts[verdict] += 1
        return verdict, details


def main() -> int:
    """Run the command above."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.judge", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--findings", type=Path, default=Path(tempfile.gettempdir()) / "fuzz-findings" / "judge"
    )
    parser.add_argument("--replay", type=Path)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with Oracle() as oracle, tempfile.TemporaryDirectory(dir=memory if memory.exists() else None) as root:
        judge = Judge(oracle, Path(root))
        if arguments.replay is not None:
            verdict, details = judge.judge(arguments.replay.read_bytes())
            print(verdict, *details, sep="\n    ")
            return 0
        arguments.findings.mkdir(parents=True, exist_ok=True)
        for number in range(arguments.cases):
            rng = random.Random(f"{arguments.seed}/{number}")
            data = rng.randbytes(rng.choice(_SIZES))
            verdict, details = judge.count(data)
            if verdict == UNEXPLAINED:
                small = minimise(data, lambda made: judge.judge(made)[0] == UNEXPLAINED, most_trials=400)
                path = arguments.findings / f"{arguments.seed}-{number}"
                path.write_bytes(small)
                verdict, details = judge.judge(small)
                print(
                    f"{path}, {len(small)} bytes {small.hex()}: {verdict}", *details, sep="\n    ", flush=True
                )
        print(*(f"{verdict}: {count}" for verdict, count in judge.verdicts.most_common()), sep="\n")
    return 1 if judge.verdicts[UNEXPLAINED] else 0


if __name__ == "__main__":
    sys.exit(main())
