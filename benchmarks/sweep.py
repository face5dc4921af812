"""How speed depends on the size of batches, on threads, on partitions: the figures behind docs/plots.

    python -m benchmarks.sweep --scratch DIR --json FILE [--over batch-bytes|threads|partitions]
        [--no-broker] [--rounds 5]

Without --over all three, one after the other. Each point is what `benchmarks.broker` measures: a plain read, our engine
and process, a broker, side by side, on log dirs of its own. `python -m benchmarks.plots FILE` draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import machine, plain_read
from benchmarks.copies import remove_tree
from benchmarks.generate import Shape, generate, read_size
from benchmarks.measured_broker import make_room_for
from benchmarks.rounds import measure
from benchmarks.sides import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is measured at one value of what is varied."""

    value: int
    shape: Shape
    setup: Setup


def points(over: str, size_bytes: int, setup: Setup) -> list[Point]:
    """Return the points of one sweep over log dirs of *size_bytes*.

    Args:
        over: `batch-bytes`; `threads` (one partition of 32 segments in one dir); `partitions` (of 3 segments, 32 MiB
            for each hundred: what is measured is the cost of a partition).
        setup: that of all points, threads left out.
    """
    if over == "batch-bytes":
        return [
            Point(value=n, shape=Shape(bytes_total=size_bytes, batch_bytes=n), setup=setup)
            for n in (170, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
        ]
    if over == "threads":
        one = Shape(bytes_total=size_bytes, batch_bytes=64 << 10, dirs=1, partitions=1, segments=32)
        return [Point(value=n, shape=one, setup=replace(setup, threads=n)) for n in (1, 2, 3, 4)]
    return [
        Point(
            value=n,
            shape=Shape(
                bytes_total=max(1, size_bytes * n // 6400), batch_bytes=4096, partitions=n, segments=3
            ),
            setup=setup,
        )
        for n in (8, 100, 400, 1600, 6000)
    ]


OVER = ("batch-bytes", "threads", "partitions")


def main(arguments: list[str] | None = None) -> None:
    """Measure all points, print a table of each sweep, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder; nothing is left in it")
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    parser.add_argument("--over", action="append", choices=OVER, help="what is varied (all three)")
    parser.add_argument("--values", help="only these points, separated by commas")
    parser.add_argument("--bytes", type=read_size, default=2 << 30, help="of all .log files (2GiB)")
    parser.add_argument("--no-broker", action="store_true", help="only our sides, without Java")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = options.scratch.resolve() / f"benchmark-{os.getpid()}"
    document: dict[str, Any] = {
        "version": 1,
        "machine": machine.describe(options.scratch),
        "rounds": options.rounds,
    }
    document["sweeps"] = sweeps = {}
    plain_read.warm_up()
    wanted = {int(value) for value in options.values.split(",")} if options.values else None
    setup = Setup(with_broker=not options.no_broker)
    try:
        for over in options.over or OVER:
            chosen = [
                point
                for point in points(over, options.bytes, setup)
                if wanted is None or point.value in wanted
            ]
            sweeps[over] = [measure_point(over, point, scratch, options.rounds) for point in chosen]
            print_table(over, sweeps[over])
            print(f"\n{machine.line(document['machine'])}")
            options.json.write_text(json.dumps(document, indent=1) + "\n")  # as far as it has come
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def measure_point(over: str, point: Point, scratch: Path, rounds: int) -> dict[str, Any]:
    """Return the object of one point in the JSON file."""
    if point.setup.with_broker:
        make_room_for(point.shape.partitions * point.shape.segments)
    print(f"{over} {point.value}: generating", file=sys.stderr)
    dataset = generate(scratch / "data", point.shape, with_broker=point.setup.with_broker)
    found = measure(dataset, scratch, point.setup, rounds=rounds)
    for place in scratch.iterdir():
        remove_tree(place)
    return {
        "value": point.value,
        "log_bytes": dataset.log_bytes,
        "partitions": point.shape.partitions,
        "seconds": {
            side: [one["sides"][side]["seconds"] for one in found["rounds"]]
            for side in found["median_seconds"]
        },
        "median_seconds": found["median_seconds"],
        "foreign_share": max(
            side["foreign_share"] for one in found["rounds"] for side in one["sides"].values()
        ),
    }


def print_table(over: str, measured: list[dict[str, Any]]) -> None:
    """Print as Markdown the GB/s of each side at each point; of partitions the milliseconds of each."""
    sides = list(measured[0]["median_seconds"])
    unit = "ms a partition" if over == "partitions" else "GB/s"
    print(f"\n| {over}, {unit} | " + " | ".join(sides) + " |\n|---" + "|---" * len(sides) + "|")
    for one in measured:
        medians = one["median_seconds"]
        if over == "partitions":
            cells = [f"{medians[side] * 1000 / one['partitions']:.2f}" for side in sides]
        else:
            cells = [f"{one['log_bytes'] / medians[side] / 1e9:.2f}" for side in sides]
        print(f"| {one['value']} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
