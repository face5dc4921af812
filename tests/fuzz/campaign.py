"""Coverage-guided fuzzing by atheris, one target after another, each in a process of its own.

    python -m tests.fuzz.campaign --list
    python -m tests.fuzz.campaign [--target NAME]... --runs 100000          all targets unless named
    python -m tests.fuzz.campaign [--target NAME]... --seconds 600 [--corpus DIR]
    python -m tests.fuzz.campaign --target NAME --replay FILE               one input again, with its traceback

atheris is in the extra `fuzz` (pip install -e '.[dev,fuzz]'). A finding is an exception that a target does not
expect, a death by signal, a case of more than five seconds or of 256 MB more memory. Each is made as small as it
gets and written to the folder given by --findings: put it into tests/fuzz/cases/TARGET/ with what was wrong in
its name, and the suite runs it for ever. --corpus keeps the inputs that reached new code for the next campaign.
--bounds-check has numba check every index of the kernels (NUMBA_BOUNDSCHECK=1).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.minimise import failure_of, minimise, signature
from tests.fuzz.targets import Target, targets

_LONGEST_CASE_S = 10  # libFuzzer's own alarm, for cases that never end
_STATISTICS = "statistics.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """What a campaign did to one target."""

    target: str
    runs: int
    seconds: float
    slowest_s: float
    growth_bytes: int
    corpus_size: int
    findings: tuple[Path, ...]

    def __str__(self) -> str:
        return (
            f"{self.target:20} {self.runs:10,} runs {self.seconds:7.0f} s  slowest {self.slowest_s:6.3f} s  "
            f"memory +{self.growth_bytes >> 20:3} MB  corpus {self.corpus_size:5}  findings {len(self.findings)}"
        )


def fuzz(
    target: Target, *, runs: int, seconds: float, corpus: Path, findings: Path, bounds_check: bool
) -> TargetResult:
    """Fuzz *target* until it has *runs* or *seconds* (0: no limit), in a process of its own."""
    corpus.mkdir(parents=True, exist_ok=True)
    folder = findings / target.name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        seeds = Path(work) / "seeds"
        seeds.mkdir()
        for number, data in enumerate(target.corpus()):
            (seeds / str(number)).write_bytes(data)
        command = [
            sys.executable, "-m", "tests.fuzz.fuzzer", target.name, ",".join(target.instruments),
            str(runs), str(seconds), str(Path(work) / _STATISTICS), str(folder),
            f"-max_len={target.longest_bytes}", "-len_control=0", f"-timeout={_LONGEST_CASE_S}", "-rss_limit_mb=4096",
            f"-artifact_prefix={folder}/", str(corpus), str(seeds),
        ]  # fmt: skip
        environment = dict(os.environ, **({"NUMBA_BOUNDSCHECK": "1"} if bounds_check else {}))
        started_s = time.monotonic()
        with (folder / "log.txt").open("wb") as log:
            code = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False).returncode
        statistics = _statistics(Path(work) / _STATISTICS)
    found = sorted(path for path in folder.iterdir() if path.suffix not in (".txt", ".small"))
    if code != 0 and not found:
        found = [folder / "log.txt"]  # it did not even begin, or died of what libFuzzer does not catch
    return TargetResult(
        target=target.name,
        runs=int(statistics.get("runs", 0)),
        seconds=time.monotonic() - started_s,
        slowest_s=statistics.get("slowest_s", 0.0),
        growth_bytes=int(statistics.get("growth_bytes", 0)),
        corpus_size=sum(1 for _ in corpus.iterdir()),
        findings=tuple(found),
    )


def _statistics(path: Path) -> dict[str, float]:
    return json.loads(path.read_text()) if path.exists() else {}


def _minimise(target: Target, found: Path) -> None:
    """Write the smallest input that fails like *found* beside it."""
    data = found.read_bytes()
    how = failure_of(target, data)
    if how is None:
        print(f"    {found}: does not fail when run alone")
        return
    small = minimise(data, lambda candidate: failure_of(target, candidate) == how)
    found.with_name(found.name + ".small").write_bytes(small)
    print(f"    {how}: {found.name}.small, {len(small)} bytes: {small[:80]!r}")


def _replay(target: Target, path: Path) -> None:
    try:
        target.run(path.read_bytes())
    except Exception:
        print(signature(traceback.format_exc()))
        raise
    print("no finding")


def main(write: Callable[[str], None] = print) -> int:
    """Run the command above."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=main.__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--target", action="append", choices=sorted(targets()), default=[])
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "fuzz-findings")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--bounds-check", action="store_true")
    arguments = parser.parse_args()
    chosen = [targets()[name] for name in arguments.target] or list(targets().values())
    if arguments.list:
        write("\n".join(target.name for target in chosen))
        return 0
    if arguments.replay is not None:
        _replay(chosen[0], arguments.replay)
        return 0
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is missing: pip install -e '.[dev,fuzz]' (x86-64 Linux)")
    total = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.corpus or Path(folder)
        for target in chosen:
            result = fuzz(
                target,
                runs=arguments.runs or (0 if arguments.seconds else 10_000),
                seconds=arguments.seconds,
                corpus=root / target.name,
                findings=arguments.findings,
                bounds_check=arguments.bounds_check,
            )
            write(str(result))
            for found in result.findings:
                _minimise(target, found) if found.suffix != ".txt" else write(f"    see {found}")
            total, failed = total + result.runs, failed + len(result.findings)
    write(f"{total:,} runs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
