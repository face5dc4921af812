"""CRC-32C in cache: our kernels beside Rust's crc-fast 1.10 and Java's CRC32C, in one run.

    python -m benchmarks.checksums [--rounds 11] [--paths all] [--json FILE]

Ours is `native._crc32c.checksum`, called by a kernel in a loop, as the scan calls it; the other two are compiled
programs with the same loop (crc_fast/, Crc32cSpeed.java). All work on the same bytes: some copies of a message
of 1 KiB, 64 KiB or 1 MiB, one behind the other and small enough to stay in the first- or second-level cache, because a
compiler may take the second checksum of the same address for the first. One side works at a time, turn by turn,
in quanta of about a millisecond; the best quantum of a turn counts, the first turns are not counted (JIT), and
the sums of all checksums must agree. The ratio of a round is ours by the better of the two others; the median of the
rounds is what must reach the goal.

A worker is asked by a line `size copies calls quanta` and answers `seconds sum`: of the best quantum, and the sum
of its checksums.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from native import cpu
from native._crc32c import checksum
from native._jit import in_process
from native.cpu_path import CpuPath
from tests.servers.build_cache import cached

SIZES = {"1 KiB": (1 << 10, 16), "64 KiB": (64 << 10, 4), "1 MiB": (1 << 20, 1)}
"""Bytes of a message, copies of it."""
GOAL = 0.97
QUANTUM_BYTES = 32 << 20
QUANTA = 40
WARM_UP_TURNS = 5
_RUST_DIR = Path(__file__).parent / "crc_fast"
_JAVA_SOURCE = Path(__file__).parent / "Crc32cSpeed.java"

Side = Callable[[int, int, int, int], tuple[float, int]]
"""(size, copies, calls, quanta) -> (seconds of the best quantum, sum of its checksums)."""


class MissingToolError(Exception):
    """What a side is built with is not on this machine."""


@in_process
def _sum_checksums(path, address, size, copies, calls):  # noqa: ANN001, ANN202  # numba infers the types
    """Return the sum of *calls* checksums of messages of *size* bytes at *address*."""
    total = np.int64(0)
    for call in range(calls):
        total += checksum(path, address + call % copies * size, size)
    return total


def our_side(path: CpuPath) -> Side:
    """Return the side that calls our kernel of *path*."""

    def work(size: int, copies: int, calls: int, quanta: int) -> tuple[float, int]:
        at = np.arange(size, dtype=np.int64)
        data = np.tile((at * 31 + (at >> 8) * 7).astype(np.uint8), copies)
        address, best, total = data.ctypes.data, float("inf"), 0
        _sum_checksums(path, address, size, copies, 1)
        for _ in range(quanta):
            begin = time.perf_counter()
            total = int(_sum_checksums(path, address, size, copies, calls))
            best = min(best, time.perf_counter() - begin)
        return best, total

    return work


class Worker:
    """A program that answers; a context manager that ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # ends it: there are no more questions

    def __call__(self, size: int, copies: int, calls: int, quanta: int) -> tuple[float, int]:
        """Ask, and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{size} {copies} {calls} {quanta}\n")
        self._process.stdin.flush()
        words = self._process.stdout.readline().split()
        if len(words) != 2:
            raise SystemExit(f"{self._process.args} answered {words}")
        return float(words[0]), int(words[1])


def rust_program() -> Path:
    """Return the program that calls crc-fast, built once.

    Raises:
        MissingToolError: there is no cargo, or it could not build.
    """
    if shutil.which("cargo") is None:
        raise MissingToolError(
            "no `cargo` on the PATH: install Rust (1.85 or newer), or leave this side out with --without rust"
        )
    sources = [_RUST_DIR / "Cargo.toml", _RUST_DIR / "Cargo.lock", _RUST_DIR / "src" / "main.rs"]

    def build(into: Path) -> None:
        command = ["cargo", "build", "--release", "--locked", "--quiet"]
        command += ["--manifest-path", str(sources[0]), "--target-dir", str(into)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingToolError(f"cargo could not build {_RUST_DIR.name}:\n{done.stderr[-3000:]}")

    return cached("crc-fast", sources, [], build) / "release" / "crc-fast-speed"


def other_sides(without: Sequence[str], stack: ExitStack) -> dict[str, Side]:
    """Return the sides that are not ours, started."""
    sides: dict[str, Side] = {}
    if "rust" not in without:
        sides["rust"] = stack.enter_context(Worker([str(rust_program())]))
    if "java" not in without:
        if shutil.which("java") is None:
            raise MissingToolError(
                "no `java` on the PATH: install Java 17, or leave it out with --without java"
            )
        sides["java"] = stack.enter_context(Worker(["java", str(_JAVA_SOURCE)]))
    return sides


def measure_size(
    sides: dict[str, Side], size: int, copies: int, *, rounds: int, quantum_bytes: int, quanta: int
) -> list[dict[str, float]]:
    """Return the GB/s of each side in each round.

    Raises:
        SystemExit: two sides do not agree about a checksum.
    """
    calls = max(1, quantum_bytes // size)
    found: list[dict[str, float]] = []
    for number in range(-WARM_UP_TURNS, rounds):
        names = list(sides)[:: -1 if number % 2 else 1]
        answers = {name: sides[name](size, copies, calls, quanta) for name in names}
        sums = {name: total for name, (_, total) in answers.items()}
        if len(set(sums.values())) != 1:
            raise SystemExit(f"the checksums of {size} bytes differ: {sums}")
        if number >= 0:
            found.append({name: calls * size / seconds / 1e9 for name, (seconds, _) in answers.items()})
    return found


def ratios(rounds: list[dict[str, float]], ours: str, others: Sequence[str]) -> list[float]:
    """Return our speed by the better of the others', of each round."""
    return [one[ours] / max(one[name] for name in others) for one in rounds]


def main(arguments: list[str] | None = None) -> None:
    """Build, warm up, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quanta", type=int, default=QUANTA, help=f"of a turn (default {QUANTA})")
    parser.add_argument("--quantum-bytes", type=int, default=QUANTUM_BYTES, help="default 32 MiB")
    parser.add_argument("--paths", default="all", help="comma-separated; all that this CPU has by default")
    parser.add_argument("--without", action="append", default=[], choices=("rust", "java"))
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    paths = (
        cpu.supported() if options.paths == "all" else [cpu.named(name) for name in options.paths.split(",")]
    )
    facts, meter, results = machine.describe(machine.ROOT), machine.CpuMeter(), []
    with ExitStack() as stack:
        try:
            others = other_sides(options.without, stack)
        except MissingToolError as error:
            raise SystemExit(str(error)) from error
        ours = {path.name.lower().replace("_", "-"): our_side(path) for path in paths}
        print(
            f"| GB/s, median of {options.rounds} | "
            + " | ".join([*ours, *others])
            + " | ratio to the best other | |"
        )
        print("|---|" + "---|" * (len(ours) + len(others) + 2))
        for name, (size, copies) in SIZES.items():
            rounds = measure_size(
                others | ours,
                size,
                copies,
                rounds=options.rounds,
                quantum_bytes=options.quantum_bytes,
                quanta=options.quanta,
            )
            results.append(_row(name, rounds, list(ours), list(others)))
    share = meter.foreign_share()
    print(f"\nothers used {share:.0%} of the CPUs meanwhile. {machine.line(facts)}")
    if options.json:
        document = {"version": 1, "machine": facts, "foreign_share": round(share, 3), "results": results}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def _row(name: str, rounds: list[dict[str, float]], ours: list[str], others: list[str]) -> dict[str, Any]:
    """Print the row of one size; return its object of the JSON file."""
    medians = {side: statistics.median(one[side] for one in rounds) for side in (*ours, *others)}
    by_path = {side: statistics.median(ratios(rounds, side, others)) for side in ours} if others else {}
    words = ", ".join(f"{side} {ratio:.2f}" for side, ratio in by_path.items())
    best = max(by_path.values(), default=None)
    verdict = "" if best is None else "reached" if best >= GOAL else "missed"
    cells = " | ".join(f"{speed:.1f}" for speed in medians.values())
    print(f"| {name} | {cells} | {words} | {verdict} |", flush=True)
    return {"size": name, "rounds": rounds, "median": medians, "ratio": by_path, "goal": GOAL}


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
