"""`recover` beside a plain read of the same files and beside a real broker, in one run.

    python -m benchmarks.broker --scratch DIR --preset NAME [--rounds 5] [--json FILE] ...

Each data set (bytes of `.log` files / bytes of a batch) is made by `benchmarks.generate`, and each round measures,
forwards and backwards in turn, on copies that share the `.log` files (`benchmarks.copies`), all synced and in the
page cache:

    mapped, pread   reading the files and adding up their words, as many threads
    engine          `recovery.recover()` in a process that is warm: reading, writing, fsync, hand-over
    process         `kafka-log-recovery recover`, all of it, Python's start included
    broker          a 4.3.1 broker's own "Loaded N logs in T ms" on its copy, as many recovery threads

With --cold nothing of the files is in the page cache, and `cat` is the yardstick; with --clean the log dirs were
shut down cleanly, and there is nothing to recover. Every side's result is checked (`benchmarks.sides`), and once
the whole tree against Kafka's own LogManager (tests/brokers/oracle.py).

A preset is a set of options and the ratios that must be reached; options beside it win over it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine, plain_read
from benchmarks.copies import remove_tree
from benchmarks.generate import CODECS, Shape, generate, read_size
from benchmarks.measured_broker import DEFAULT_HEAP, make_room_for
from benchmarks.rounds import measure, print_table
from benchmarks.sides import Setup
from native import cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Options of this command by their names, and the medians that must be reached, by `Ratio.key`."""

    options: dict[str, Any]
    goals: dict[str, float] = field(default_factory=dict)


DEFAULTS: dict[str, Any] = {
    "data": ["2GiB/64KiB", "300MiB/170"],
    "dirs": 2,
    "partitions": 8,
    "segments": 4,
    "threads": 1,
    "also_threads": 0,
    "cpu_paths": "",
    "heap": DEFAULT_HEAP,
    "clean": False,
    "cold": False,
    "no_broker": False,
}
_TEN_THOUSAND = {"partitions": 10_000, "heap": "4g"}
PRESETS = {
    "large-batches": Preset(
        options={"data": ["8GiB/64KiB"]},
        goals={"engine/plain read": 0.70, "engine/broker": 5, "process/broker": 3},
    ),
    "small-batches": Preset(options={"data": ["2GiB/170"]}, goals={"engine/broker": 50}),
    "one-partition": Preset(
        options={
            "data": ["8GiB/64KiB"],
            "dirs": 1,
            "partitions": 1,
            "segments": 32,
            "threads": 2,
            "also_threads": 1,
        },
        goals={"engine/broker": 5, "engine/engine, threads 1": 1.8},
    ),
    "cold": Preset(
        options={"data": ["8GiB/64KiB"], "cold": True, "no_broker": True}, goals={"engine/cat": 0.95}
    ),
    "many-partitions": Preset(
        options=_TEN_THOUSAND | {"data": ["600MiB/4KiB"], "segments": 3}, goals={"engine/broker": 2}
    ),
    "clean": Preset(
        options=_TEN_THOUSAND | {"data": ["200MiB/4KiB"], "segments": 1, "clean": True},
        goals={"engine/broker": 1},
    ),
    "cpu-paths": Preset(options={"data": ["2GiB/64KiB"], "cpu_paths": "all", "no_broker": True}),
}


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options: what was given, else the preset's, else DEFAULTS."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scratch", type=Path, required=True, help="a folder on the disk to use; nothing is left in it"
    )
    parser.add_argument(
        "--preset", choices=PRESETS, help="options and goals of a row of docs/internals/performance.md"
    )
    parser.add_argument("--data", action="append", metavar="BYTES/BATCH", help="2GiB/64KiB and 300MiB/170")
    parser.add_argument("--dirs", type=int, help="2")
    parser.add_argument("--partitions", type=int, help="of all dirs together (8)")
    parser.add_argument("--segments", type=int, help="of each partition (4)")
    parser.add_argument("--producers", type=int, default=100, help="idempotent ones of a partition (100)")
    parser.add_argument("--codec", choices=CODECS, default="none", help="of the records (none)")
    parser.add_argument("--threads", type=int, help="recovery threads a log dir (1)")
    parser.add_argument("--also-threads", type=int, metavar="N", help="measure our engine with N, too")
    parser.add_argument(
        "--cpu-paths", help="measure our engine on these, too: all others, or names with commas"
    )
    parser.add_argument(
        "--heap", help=f"of the broker's JVM ({DEFAULT_HEAP}, as kafka-server-start.sh has it)"
    )
    parser.add_argument("--clean", action="store_true", default=None, help="log dirs with nothing to recover")
    parser.add_argument("--cold", action="store_true", default=None, help="no page cache, beside `cat`")
    parser.add_argument("--no-broker", action="store_true", default=None, help="only our sides, without Java")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for others, a measurement")
    parser.add_argument("--tries", type=int, default=1, help="measurements of a side while others disturb it")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    preset = PRESETS[options.preset].options if options.preset else {}
    for name, value in (DEFAULTS | preset).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def setup_of(options: argparse.Namespace) -> Setup:
    """Return how the sides are measured."""
    others = [path for path in cpu.supported() if path is not cpu.choose()]
    names = [path.name.lower().replace("_", "-") for path in others]
    if options.cpu_paths != "all":
        names = [name for name in options.cpu_paths.split(",") if name]
    return Setup(
        threads=options.threads,
        also_threads=options.also_threads,
        cpu_paths=tuple(names),
        is_clean=options.clean,
        is_cold=options.cold,
        with_broker=not options.no_broker,
        heap=options.heap,
    )


def main(arguments: list[str] | None = None) -> None:
    """Make the data sets, measure, print tables, write JSON."""
    options = read_options(arguments)
    setup = setup_of(options)
    if setup.with_broker:
        make_room_for(options.partitions * options.segments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = options.scratch.resolve() / f"benchmark-{os.getpid()}"
    facts = machine.describe(options.scratch)
    print(machine.line(facts))
    plain_read.warm_up()
    results = {}
    try:
        for name in options.data:
            size, _, batch = name.partition("/")
            shape = Shape(
                bytes_total=read_size(size),
                batch_bytes=read_size(batch),
                dirs=options.dirs,
                partitions=options.partitions,
                segments=options.segments,
                producers=options.producers,
                codec=options.codec,
            )
            print(f"{name}: generating", file=sys.stderr)
            dataset = generate(scratch / "data", shape, with_broker=setup.with_broker)
            results[name] = measure(
                dataset,
                scratch,
                setup,
                rounds=options.rounds,
                goals=PRESETS[options.preset].goals if options.preset else {},
                tries=options.tries,
                patience_seconds=options.patience,
            )
            print_table(name, results[name])
            for place in scratch.iterdir():
                remove_tree(place)
    finally:
        print("removing the scratch files", file=sys.stderr)
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        document = {"version": 1, "preset": options.preset, "machine": facts, "results": results}
        options.json.write_text(json.dumps(document, default=str, indent=1) + "\n")


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
