"""The peak of anonymous memory of a recovery, against its bound.

    python -m benchmarks.memory --scratch DIR [--case NAME ...] [--scale 1] [--json FILE]

The bound: 250 MB, and 32 MB a recovery thread (of all log dirs), and so many bytes for each live producer: one that
a partition knows which is being recovered. As many partitions are recovered at a time as there are threads, so
the live producers of a case are those of as many of its partitions. One axis is changed at a time: bytes of the
log, bytes of a batch, partitions, threads, producers; log dirs are made for each case and removed after it, without
a broker. Each case is measured `--rounds` times, in a process of its own (`kafka-log-recovery recover`), and its
largest peak counts. Exit code 1: a case is above its bound.

Bytes for each live producer are measured, too: what the cases of the producers' axis take more than the one with
the fewest, for each producer more. They must not be above what the bound has for a producer, either.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.generate import Dataset, Shape, generate
from benchmarks.sides import WrongResultError, run_recover

BASE_BYTES = 250_000_000
THREAD_BYTES = 32_000_000
PRODUCER_BYTES = 2_000
"""For each live producer: its state, the tables of the scans that see it, and the snapshots that are made of it."""
_FEWEST_MORE = 1000
"""Producers: fewer do not show what one takes."""
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One recovery: what of, and with how many threads a log dir."""

    axis: str
    shape: Shape
    threads: int = 1

    @property
    def name(self) -> str:
        """What tells it from the others of its axis."""
        shape = self.shape
        return {
            "bytes": f"{shape.bytes_total / _GIB:g} GiB",
            "batch": f"{shape.batch_bytes} B batches",
            "partitions": f"{shape.partitions} partitions",
            "threads": f"{self.threads} threads",
            "producers": f"{shape.producers} producers",
        }[self.axis]


def cases() -> list[Case]:
    """Return all cases, one axis after the other."""
    large = 64 << 10
    return [
        *(Case(axis="bytes", shape=Shape(bytes_total=n * _GIB, batch_bytes=large)) for n in (1, 2, 8)),
        *(Case(axis="batch", shape=Shape(bytes_total=_GIB, batch_bytes=n)) for n in (170, large)),
        *(
            Case(axis="partitions", shape=Shape(bytes_total=_GIB, batch_bytes=4096, partitions=n))
            for n in (8, 1000)
        ),
        *(
            Case(axis="threads", shape=Shape(bytes_total=_GIB, batch_bytes=4096, partitions=16), threads=n)
            for n in (1, 2, 8)
        ),
        *(
            Case(
                axis="producers",
                shape=Shape(
                    bytes_total=256 * _MIB, batch_bytes=170, dirs=1, partitions=1, segments=2, producers=n
                ),
            )
            for n in (100, 10_000, 100_000)
        ),
    ]


def scaled(case: Case, scale: float) -> Case:
    """Return *case* with that share of its bytes, and of its producers where these are the axis."""
    shape = asdict(case.shape)
    shape["bytes_total"] = int(shape["bytes_total"] * scale)
    if case.axis == "producers":
        shape["producers"] = max(1, int(shape["producers"] * scale))
    return Case(axis=case.axis, shape=Shape(**shape), threads=case.threads)


def live_producers(case: Case, dataset: Dataset) -> int:
    """Return how many producers the partitions know that are recovered at a time."""
    shape = case.shape
    at_a_time = min(shape.partitions, shape.dirs * case.threads)
    return dataset.producer_count * at_a_time // shape.partitions


def bound_bytes(case: Case, producers: int) -> int:
    """Return what *case* may take with so many live producers."""
    return BASE_BYTES + THREAD_BYTES * case.shape.dirs * case.threads + PRODUCER_BYTES * producers


def measure(case: Case, scratch: Path, rounds: int) -> dict[str, Any]:
    """Make the log dirs of *case*, recover them, and return the object of the JSON file."""
    peaks, producers, log_bytes = [], 0, 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            dataset = generate(Path(folder) / "data", case.shape, with_broker=False)
            producers, log_bytes = live_producers(case, dataset), dataset.log_bytes
            log_dirs = ",".join(map(str, dataset.log_dirs))
            _, peak_bytes, report = run_recover(["--log-dirs", log_dirs, "--threads", str(case.threads)])
            recovered = sum(
                one["segments"]["recovered"] for log_dir in report["logDirs"] for one in log_dir["partitions"]
            )
            if report["exitCode"] != 0 or recovered != case.shape.partitions * case.shape.segments:
                raise WrongResultError(
                    f"{case.name}: exit code {report['exitCode']}, {recovered} segments recovered"
                )
            peaks.append(peak_bytes)
    return {
        "axis": case.axis,
        "case": case.name,
        "threads": case.shape.dirs * case.threads,
        "log_bytes": log_bytes,
        "live_producers": producers,
        "peak_bytes": max(peaks),
        "all_peaks_bytes": peaks,
        "bound_bytes": bound_bytes(case, producers),
    }


def bytes_per_producer(results: list[dict[str, Any]]) -> list[float]:
    """Return what each case of the producers' axis takes for each producer that the least of them has not."""
    found = sorted(
        (one for one in results if one["axis"] == "producers"), key=lambda one: one["live_producers"]
    )
    return [
        (one["peak_bytes"] - found[0]["peak_bytes"]) / (one["live_producers"] - found[0]["live_producers"])
        for one in found[1:]
        if one["live_producers"] - found[0]["live_producers"] >= _FEWEST_MORE
    ]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, write JSON; exit with 1 where a bound is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder; nothing is left in it")
    parser.add_argument(
        "--case", action="append", choices=sorted({case.axis for case in cases()}), help="only this axis"
    )
    parser.add_argument("--scale", type=float, default=1, help="make all logs so much larger (1)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = options.scratch.resolve() / f"benchmark-{os.getpid()}"
    scratch.mkdir()
    facts, results = machine.describe(options.scratch), []
    print(
        "| axis | | log | threads | live producers | peak of RssAnon | bound | |\n|---|---|---|---|---|---|---|---|"
    )
    try:
        for case in (scaled(case, options.scale) for case in cases()):
            if options.case and case.axis not in options.case:
                continue
            found = measure(case, scratch, options.rounds)
            results.append(found)
            verdict = "held" if found["peak_bytes"] <= found["bound_bytes"] else "BROKEN"
            print(
                f"| {found['axis']} | {found['case']} | {found['log_bytes'] / 1e6:,.0f} MB | {found['threads']} | "
                f"{found['live_producers']:,} | {found['peak_bytes'] / 1e6:.0f} MB | "
                f"{found['bound_bytes'] / 1e6:.0f} MB | {verdict} |",
                flush=True,
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    each = bytes_per_producer(results)
    if each:
        words = ", ".join(f"{one:,.0f}" for one in each)
        print(f"\nBytes for each live producer: {words}; the bound has {PRODUCER_BYTES:,}")
    print(f"\n{machine.line(facts)}")
    if options.json:
        document = {"version": 1, "machine": facts, "results": results, "bytes_per_producer": each}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if (
        any(one["peak_bytes"] > one["bound_bytes"] for one in results)
        or max(each, default=0) > PRODUCER_BYTES
    ):
        sys.exit(1)


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
