"""Rounds of measurements: every side once a round, forwards and backwards in turn; ratios; a table.

Ratios are medians of the rounds' ratios. Seconds are this machine's, at that time.
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.generate import Dataset
from benchmarks.sides import Measured, Setup, Sides

WARM_READ_SHARE, WARM_READ_BYTES = 0.01, 32 << 20
"""More than either, read from disk while a side was measured with a warm cache, is remarked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times faster something is than something else: median and extremes of the rounds.

    Attributes:
        key: `of/than`, as in the goals of a preset.
        goal: what the median must reach; None: nobody asks.
    """

    key: str
    name: str
    goal: float | None
    median: float
    least: float
    most: float


def measure(
    dataset: Dataset,
    scratch: Path,
    setup: Setup,
    *,
    rounds: int,
    goals: dict[str, float] | None = None,
    tries: int = 1,
    patience_seconds: float = 0,
) -> dict[str, Any]:
    """Measure one data set; return the object of the JSON file."""
    sides = Sides(dataset, scratch, setup)
    compared_files = sides.prepare()
    done: list[dict[str, Any]] = []
    for number in range(rounds):
        load_average = os.getloadavg()[0]
        order = list(sides.sides)[:: -1 if number % 2 else 1]
        measured: dict[str, Measured] = {
            name: sides.measure(name, tries=tries, patience_seconds=patience_seconds) for name in order
        }
        done.append(
            {
                "order": order,
                "load_average": load_average,
                "sides": {name: asdict(one) for name, one in measured.items()},
            }
        )
        words = "  ".join(f"{name} {one.seconds:.3f}" for name, one in measured.items())
        busy = max(one.foreign_share for one in measured.values())
        print(f"  round {number + 1}: {words}  (others: up to {busy:.0%} of the CPUs)", file=sys.stderr)
    seconds = {name: [one["sides"][name]["seconds"] for one in done] for name in sides.sides}
    return {
        "dataset": asdict(dataset),
        "setup": asdict(setup),
        "files_equal_to_oracle": compared_files,
        "rounds": done,
        "ratios": [asdict(ratio) for ratio in ratios(seconds, goals or {})],
        "median_seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "peak_anonymous_bytes": max(one["sides"]["process"]["peak_anonymous_bytes"] for one in done),
    }


def ratios(seconds: dict[str, list[float]], goals: dict[str, float]) -> list[Ratio]:
    """Return what is compared, from the seconds of all rounds by side."""
    engines = [side for side in seconds if side.startswith("engine")]
    pairs: list[tuple[str, str, list[float], list[float]]] = []
    for key, name, several in (
        ("plain read", "the plain read", ("mapped", "pread")),
        ("cat", "`cat`", ("cat", "cat, one a dir")),
    ):
        if several[0] in seconds:
            fastest = [min(some) for some in zip(*(seconds[side] for side in several), strict=True)]
            pairs += [
                (f"{side}/{key}", f"{side}: of the speed of {name}", fastest, seconds[side])
                for side in engines
            ]
    if "broker" in seconds:
        for side in ("engine", "process"):
            pairs.append(
                (f"{side}/broker", f"{side}: faster than the broker", seconds["broker"], seconds[side])
            )
    for side in engines[1:]:
        pairs.append((f"engine/{side}", f"engine: faster than {side}", seconds[side], seconds["engine"]))
    found = []
    for key, name, slower, faster in pairs:
        each = [a / b for a, b in zip(slower, faster, strict=True)]
        found.append(
            Ratio(
                key=key,
                name=name,
                goal=goals.get(key),
                median=statistics.median(each),
                least=min(each),
                most=max(each),
            )
        )
    if missing := goals.keys() - {ratio.key for ratio in found}:
        print(f"not measured: {', '.join(sorted(missing))}", file=sys.stderr)
    return found


def print_table(name: str, result: dict[str, Any]) -> None:
    """Print what was found on one data set as Markdown."""
    dataset, setup, medians = result["dataset"], result["setup"], result["median_seconds"]
    shape, log_bytes = dataset["shape"], dataset["log_bytes"]
    kind = "shut down cleanly, " if setup["is_clean"] else ""
    cache = "no page cache" if setup["is_cold"] else "page cache warm"
    print(
        f"\n{name}: {log_bytes / 1e9:.2f} GB, {dataset['batch_count']:,} batches, {dataset['producer_count']:,} "
        f"producers, {kind}{shape['dirs']} dirs, {shape['partitions']:,} partitions of {shape['segments']} "
        f"segments, {setup['threads']} threads a dir, {cache}, {len(result['rounds'])} rounds, "
        f"{result['files_equal_to_oracle']:,} files equal to Kafka's\n"
    )
    print("| ratio | goal | median | least .. most | |\n|---|---|---|---|---|")
    for ratio in result["ratios"]:
        goal = ratio["goal"]
        verdict = "" if goal is None else "reached" if ratio["median"] >= goal else "missed"
        print(
            f"| {ratio['name']} | {'' if goal is None else f'{goal:.2f}'} | {ratio['median']:.2f} | "
            f"{ratio['least']:.2f} .. {ratio['most']:.2f} | {verdict} |"
        )
    print("\n| side | median | speed | others used, median and most | read from disk, most |")
    print("|---|---|---|---|---|")
    for side, seconds in medians.items():
        each = [one["sides"][side] for one in result["rounds"]]
        shares = [one["foreign_share"] for one in each]
        read_bytes = max(one["disk_read_bytes"] for one in each)
        print(
            f"| {side} | {seconds:.3f} s | {log_bytes / seconds / 1e9:.2f} GB/s | "
            f"{statistics.median(shares):.1%}, {max(shares):.1%} | {read_bytes / 1e6:,.0f} MB |"
        )
    _print_phases(result)
    most_read = max(side["disk_read_bytes"] for one in result["rounds"] for side in one["sides"].values())
    if not setup["is_cold"] and most_read > max(log_bytes * WARM_READ_SHARE, WARM_READ_BYTES):
        print("\nThe machine read from disk meanwhile, for us or for others: was the page cache warm?")
    print(f"\nThe process's peak of anonymous memory: {result['peak_anonymous_bytes'] / 1e6:.0f} MB")


def _print_phases(result: dict[str, Any]) -> None:
    """Print where the engine's time went: of all its threads together, by the clock and on a CPU."""
    print("\n| phase of the engine, all threads | median | on a CPU |\n|---|---|---|")
    rounds = [one["sides"]["engine"]["phases"] for one in result["rounds"]]
    for each in zip(*rounds, strict=True):
        thread_ms, cpu_ms = (
            statistics.median(phase[name] for phase in each) for name in ("threadMs", "cpuMs")
        )
        print(f"| {each[0]['phase']} | {thread_ms:.0f} ms | {cpu_ms:.0f} ms |")
